//! `/metrics`, `/livez` and `/readyz` of servers that are alone and of nodes: no number of `stats`
//! without its metric, nothing in the dashboard and the alert rules that no server tells, and a
//! node that does not answer clients says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    ptr,
    time::Duration,
};

use curtail_server::{Config, Durability, NativeMode, Server, StorageConfig};
use curtail_testing::{
    Client, config_with, eventually, gateway_config, http, native_config, start,
};

use crate::support::{Cluster, Shape};

/// Reports that hold numbers of the running server.
const REPORTS: [&str; 4] = ["", "memory", "curtail", "settings"];

/// The last table of this page has the rows of `stats` that no metric carries, in backticks.
const PAGE: &str = include_str!("../../../../docs/reference/stats.md");

/// Each row of `stats` has a metric of its value, or the reference page says why not, and neither
/// names a row that is gone. Looks at the page before and after each report.
#[test]
fn every_number_of_stats_has_a_metric() {
    let servers = Servers::start();
    let carried = Server::stats_in_metrics();
    let (_, exceptions) = PAGE.split_once("\n## Rows without a metric\n").unwrap();
    let cells = exceptions
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let exceptions: Vec<&str> = cells.flat_map(|cell| cell.split(['`', ' '])).collect();
    let exceptions = exceptions.iter().copied().filter(|name| !name.is_empty());
    let (mut used, mut seen) = (BTreeSet::<&str>::new(), BTreeSet::new());
    let mut faults = Vec::new();
    for (server, mut client) in servers.all() {
        // Nobody answers the gateway.
        let asked = if ptr::eq(server, &servers.gateway) {
            0
        } else {
            50
        };
        for number in 0..asked {
            client.ask(format!("set key{number} 0 0 1\r\nx\r\n"));
            client.ask(format!("mg key{number}\r\n"));
        }
        let before = Page::of(server);
        let reports: Vec<_> = REPORTS.iter().flat_map(|kind| client.rows(kind)).collect();
        let after = Page::of(server);
        for (stat, value) in reports {
            let word = value.split(' ').next().unwrap_or_default();
            let number = word.parse::<f64>().ok();
            let carriers: Vec<_> = carried.iter().filter(|row| fits(row.0, &stat)).collect();
            seen.extend(carriers.iter().map(|row| row.0));
            if carriers.is_empty() {
                let fitting = exceptions.clone().filter(|name| fits(name, &stat));
                let mut fitting = fitting.peekable();
                if fitting.peek().is_none() {
                    faults.push(format!("{stat} {value}: no metric carries it"));
                }
                used.extend(fitting);
            }
            let Some(number) = number else {
                continue;
            };
            for (name, metric, labels) in carriers {
                let (Some(before), Some(after)) =
                    (before.sum(metric, labels), after.sum(metric, labels))
                else {
                    faults.push(format!("{stat} {value}: {metric}{{{labels}}} is not there"));
                    continue;
                };
                let scale = if stat.ends_with("_us") { 1e-6 } else { 1.0 };
                let number = number * scale;
                let counts = metric.ends_with("_total") && !name.contains('*');
                if counts && !(before - 1e-6..=after + 1e-6).contains(&number) {
                    faults.push(format!("{stat} {value}: {metric} {before} to {after}"));
                }
            }
        }
    }
    let names = carried.iter().map(|row| row.0);
    let gone = names.filter(|name| !name.contains('*') && !seen.contains(name));
    faults.extend(gone.map(|name| format!("{name} is gone")));
    let unused = exceptions.filter(|name| !used.contains(name));
    faults.extend(unused.map(|name| format!("{name} needs no exception")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Prometheus can read the pages: one heading for each family before its samples, no help or series
/// twice, cumulative histograms that end in +Inf and agree with their count.
#[test]
fn pages_are_well_formed() {
    let servers = Servers::start();
    for (server, _) in servers.all() {
        let page = Page::of(server);
        let mut helps = BTreeMap::new();
        let (mut family, mut kind) = ("", "");
        let mut last = (String::new(), 0.0);
        for line in page.text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert_eq!(helps.insert(help, name), None, "{name}: {help}");
                family = name;
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, of) = rest.split_once(' ').unwrap();
                assert_eq!(name, family);
                kind = of;
            } else {
                let series = line.rsplit_once(' ').unwrap().0;
                let name = series.split('{').next().unwrap();
                let suffix = name.strip_prefix(family).expect(line);
                let is_histogram = kind == "histogram";
                assert_eq!(is_histogram, !suffix.is_empty(), "{line}");
                let value = page.series[series];
                if let Some((labels, _)) =
                    series.rsplit_once("le=\"").filter(|_| suffix == "_bucket")
                {
                    assert!(last.0 != labels || last.1 <= value, "{line}");
                    last = (labels.to_owned(), value);
                } else if suffix == "_count" {
                    assert_eq!(last.1, value, "{line}");
                }
            }
        }
        let lines = page.text.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), page.series.len(), "a series stands twice");
        assert!(helps.len() > 80, "{}", helps.len());
    }
}

/// Each name and label that the dashboard and the alert rules use is on some server's page.
#[test]
fn dashboard_and_rules_ask_for_what_there_is() {
    let servers = Servers::start();
    let mut client = Client::connect(&servers.alone);
    eventually("a key is hot", || {
        (0..500).for_each(|_| drop(client.ask("mg hot\r\n")));
        let page = Page::of(&servers.alone);
        page.sum("curtail_hot_key_share_ratio", "rank=\"1\"")
            .is_some()
    });
    let pages: Vec<_> = servers.all().map(|(server, _)| Page::of(server)).collect();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for file in ["prometheus/curtail.rules.yml", "grafana/curtail.json"] {
        let text = fs::read_to_string(packaging.join(file)).unwrap();
        let selectors = selectors(&text.replace("\\\"", "\""));
        assert!(selectors.len() > 20, "{file}: {selectors:?}");
        for (name, labels) in selectors {
            let fits = |series: &&String| {
                let of = series.split('{').next().unwrap();
                let is_it = of == name || of.strip_prefix(name.as_str()) == Some("_count");
                is_it && labels.iter().all(|label| series.contains(label.as_str()))
            };
            let mut series = pages.iter().flat_map(|page| page.series.keys());
            let found = series.any(|series| fits(&series));
            assert!(found, "{file}: {name} with {labels:?} is on no page");
        }
    }
}

/// An operator finds each alert by its name, with its remedy.
#[test]
fn every_alert_has_a_remedy() {
    let rules = include_str!("../../../../packaging/prometheus/curtail.rules.yml");
    let failures = include_str!("../../../../docs/operations/failures.md");
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let missing: Vec<_> = names
        .clone()
        .filter(|name| !failures.contains(&format!("`{name}`")))
        .collect();
    assert!(names.count() > 15 && missing.is_empty(), "{missing:?}");
}

/// A node without a lease, and one that leaves, is not ready and says why, but is live.
#[test]
fn a_node_out_of_service_is_not_ready() {
    let servers = Servers::start();
    let (cluster, node) = (&servers.cluster, &servers.node);
    let mut client = Client::connect(node);
    assert_eq!(get(node, "/readyz"), (200, "ok\n".to_owned()));
    let own = cluster.replace_view();
    eventually("the lease ends", || get(node, "/readyz").0 == 503);
    let answer = client.ask("mg none\r\n");
    assert_eq!(answer, "SERVER_ERROR this node is not in service");
    let (status, why) = get(node, "/readyz");
    assert_eq!(status, 503);
    assert!(
        why.starts_with("the lease of this node has ended") && why.lines().count() == 1,
        "{why}"
    );
    assert_eq!(get(node, "/healthz"), (status, why));
    assert_eq!(get(node, "/livez"), (200, "ok\n".to_owned()));
    let page = Page::of(node);
    for gone in [
        "curtail_ready",
        "curtail_cluster_in_service",
        "curtail_cluster_lease_remaining_seconds",
    ] {
        assert_eq!(page.sum(gone, ""), Some(0.0), "{gone}");
    }
    fs::write(cluster.view_file(), own).unwrap();
    eventually("it is back", || get(node, "/readyz").0 == 200);
    assert_eq!(Page::of(node).sum("curtail_ready", ""), Some(1.0));
    assert!(node.leave(), "it has keys to give");
    let leaves = "this node leaves its cluster\n".to_owned();
    assert_eq!(get(node, "/readyz"), (503, leaves));
    assert_eq!(get(node, "/livez").0, 200);
    assert_eq!(get(&servers.alone, "/readyz"), (200, "ok\n".to_owned()));
}

/// Goal: a node that cannot join says that, not what follows from it. Method: a node is started
/// while a folder stands in the place of the view file.
#[test]
fn a_node_that_cannot_join_says_so() {
    let mut cluster = Cluster::start(Shape::DEFAULT);
    cluster.nodes[2] = None;
    let mut config = cluster.config(2);
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    fs::remove_file(cluster.view_file()).unwrap();
    fs::create_dir(cluster.view_file()).unwrap();
    let node = start(config);
    let (status, why) = get(&node, "/readyz");
    assert_eq!(status, 503);
    assert!(
        why.starts_with("this node is not in the view of its cluster"),
        "{why}"
    );
}

/// A server alone, with the native path on and every option that adds rows to `stats`, a node of a
/// cluster of three, a server with a disk, and a gateway to a cache tier that is not there.
struct Servers {
    alone: Server,
    node: Server,
    on_disk: Server,
    gateway: Server,
    /// Removed after the server that uses it.
    _folder: tempfile::TempDir,
    cluster: Cluster,
}

impl Servers {
    fn start() -> Self {
        let mut cluster = Cluster::start(Shape::DEFAULT);
        let admin = Some("127.0.0.1:0".parse().unwrap());
        cluster.nodes[2] = None;
        let mut config = cluster.config(2);
        config.admin = admin;
        let node = start(config);
        let mut config = Config {
            workers: 2,
            admin,
            idle_timeout_seconds: 600,
            refuse_connections_fast: true,
            ..native_config(NativeMode::IoAck)
        };
        config.echoed.lru_crawler = true;
        config.echoed.lru_maintainer = true;
        let folder = tempfile::tempdir().unwrap();
        let on_disk = start(config_with(|config| {
            config.admin = admin;
            config.disk = Some(StorageConfig {
                dir: folder.path().join("data"),
                durability: Durability::Bounded(Duration::from_millis(50)),
                memory_bytes: 16 << 20,
                readers: 2,
                reserve_bytes: 0,
            });
        }));
        let gateway = start(Config {
            admin,
            ..gateway_config("127.0.0.1:9".parse().unwrap())
        });
        let servers = Self {
            alone: start(config),
            node,
            on_disk,
            gateway,
            _folder: folder,
            cluster,
        };
        eventually("the node joins", || get(&servers.node, "/readyz").0 == 200);
        // Until then the view changes, and the first round trip to another node is not known.
        eventually("all keys are in their place", || {
            let page = Page::of(&servers.node);
            let sum = |family, labels| page.sum(family, labels);
            sum("curtail_cluster_nodes", "state=\"placed\"") == Some(3.0)
                && sum("curtail_cluster_moving", "") == Some(0.0)
                && sum("curtail_cluster_member_round_trip_seconds", "").is_some()
        });
        servers
    }

    fn all(&self) -> impl Iterator<Item = (&Server, Client)> {
        [&self.alone, &self.node, &self.on_disk, &self.gateway]
            .into_iter()
            .map(|server| (server, Client::connect(server)))
    }
}

/// A page, and its series with their values.
struct Page {
    text: String,
    series: BTreeMap<String, f64>,
}

impl Page {
    fn of(server: &Server) -> Self {
        let (status, text) = get(server, "/metrics");
        assert_eq!(status, 200);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        });
        let series = series.collect();
        Self { text, series }
    }

    /// The sum of all series of a family with these labels; none if there is no such series. Of a
    /// histogram the number of its samples.
    fn sum(&self, family: &str, labels: &str) -> Option<f64> {
        let fits = |series: &str| {
            let (name, of) = series.split_once('{').unwrap_or((series, ""));
            let is_it = name
                .strip_prefix(family)
                .is_some_and(|rest| rest.is_empty() || rest == "_count");
            is_it && of.contains(labels)
        };
        let found = self.series.iter().filter(|(series, _)| fits(series));
        found
            .map(|(_, value)| *value)
            .reduce(|sum, value| sum + value)
    }
}

/// Metric names in `text`, each with the labels that are compared for equality: `a{b="c"}`.
fn selectors(text: &str) -> BTreeSet<(String, Vec<String>)> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut found = BTreeSet::new();
    for (start, _) in text.match_indices("curtail_") {
        if text[..start].ends_with(|before| is_name(before) || before == ':') {
            continue;
        }
        let text = &text[start..];
        let (name, rest) = text.split_at(text.find(|it| !is_name(it)).unwrap_or(text.len()));
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = matchers.map_or("", |(matchers, _)| matchers);
        let matchers = matchers.split(',').map(str::trim);
        let labels = matchers.filter(|matcher| matcher.contains("=\"") && !matcher.contains('$'));
        found.insert((name.to_owned(), labels.map(str::to_owned).collect()));
    }
    found
}

/// Whether `text` is what `pattern` says, whose `*` is any text.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).any(|skipped| text.get(skipped..).is_some_and(|text| fits(rest, text)))
        }),
    }
}

/// Status and body of what the admin port answers.
fn get(server: &Server, path: &str) -> (u16, String) {
    let answer = http(server.admin_address().unwrap(), &format!("GET {path}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}
