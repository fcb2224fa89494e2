//! `metrics`: the pages that servers tell, the alert rules and their tests, judged by Prometheus's
//! own promtool.
//!
//! What the pages must hold, and that rules and dashboard ask for nothing else, is tested with the
//! server's crate; here it is what another program reads.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::check_result::{Outcome, Tally};
use crate::process::{Log, Running};
use crate::required_packages::{self, Tool};
use crate::server::{self, Server, free_port, free_ports, talk};
use crate::workspace::Workspace;

const RULES: &str = "curtail.rules.yml";
const TESTS: &str = "curtail.rules.test.yml";
const DASHBOARD: &str = "packaging/grafana/curtail.json";

/// With fewer queries the dashboard was not understood.
const QUERIES_MIN: usize = 40;

/// How long a node may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(20);

/// promtool on everything: each page, file and test is a case.
pub(crate) fn step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let promtool = Tool::of("promtool", "prometheus");
    required_packages::ensure(log, &[promtool])?;
    let binary = server::build(workspace, log)?;
    let scratch = workspace.scratch("metrics")?;
    let mut tally = Tally::default();
    for (name, page) in [
        ("a server alone", page_alone(&binary)?),
        ("a node", page_of_node(&binary, &scratch)?),
    ] {
        tally += judge(log, name, check_page(log, &page)?)?;
    }
    let folder = workspace.root.join("packaging/prometheus");
    for words in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        let mut command = Command::new("promtool");
        let finished = log.finish(command.args(words).current_dir(&folder))?;
        tally += judge(log, words[2], finished.status.success())?;
    }
    let queries = queries(&workspace.root.join(DASHBOARD))?;
    let file = scratch.join("dashboard.rules.yml");
    fs::write(&file, as_rules(&queries))?;
    let mut command = Command::new("promtool");
    let finished = log.finish(command.args(["check", "rules"]).arg(&file))?;
    let is_right = finished.status.success() && queries.len() >= QUERIES_MIN;
    tally += judge(log, DASHBOARD, is_right)?;
    Ok(Outcome::counted(tally, None))
}

fn judge(log: &Log, name: &str, is_right: bool) -> Result<Tally> {
    log.line(&format!(
        "{name}: {}",
        if is_right { "ok" } else { "FAILED" }
    ))?;
    Ok(match is_right {
        true => Tally::ONE_PASSED,
        false => Tally::ONE_FAILED,
    })
}

/// Whether promtool finds nothing to say about a page.
fn check_page(log: &Log, page: &str) -> Result<bool> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("promtool")?;
    let input = child.stdin.take().context("promtool has no input")?;
    // All of the page is read before the first word is said.
    { input }.write_all(page.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    log.line(&said)?;
    Ok(output.status.success() && said.trim().is_empty())
}

/// The page of a server with the native path on, after some requests.
fn page_alone(binary: &Path) -> Result<String> {
    let (admin, native) = (free_port()?, free_port()?);
    let flags = [
        "--admin-port",
        &format!("127.0.0.1:{admin}"),
        "--native",
        &native.to_string(),
    ];
    let server = Server::start(&server::words(binary), &flags)?;
    let requests = "set a 0 0 1\r\nb\r\nget a b\r\nincr a 1\r\nquit\r\n";
    talk(server.port, requests)?;
    get(admin, "/metrics")
}

/// The page of a node that is a cluster by itself.
fn page_of_node(binary: &Path, folder: &Path) -> Result<String> {
    let mut free = free_ports();
    let mut port = || free.next().context("no port is free");
    let (clients, links, admin) = (port()?, port()?, port()?);
    for left in ["cluster.toml", "secret", "view.json"] {
        let _ = fs::remove_file(folder.join(left));
    }
    let text = format!(
        "name = \"metrics\"\nsecret_file = \"secret\"\n\
         [store]\nkind = \"file\"\npath = \"view.json\"\n\
         [[node]]\nid = 0\nclients = \"127.0.0.1:{clients}\"\nlinks = \"127.0.0.1:{links}\"\n"
    );
    fs::write(folder.join("cluster.toml"), text)?;
    let secret = folder.join("secret");
    fs::write(&secret, "only for nodes that are gone in a moment")?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let mut command = Command::new(binary);
    command.args(["serve", "-m", "64", "--node", "0", "--cluster"]);
    command.arg(folder.join("cluster.toml"));
    command.args(["--admin-port", &format!("127.0.0.1:{admin}")]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut node = Running::start(&mut command)?;
    let start = Instant::now();
    while get(admin, "/readyz").is_err() {
        ensure!(
            !node.has_ended()?,
            "the node ended; start it by hand to see why"
        );
        ensure!(
            start.elapsed() < READY_MAX,
            "the node does not become ready"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    get(admin, "/metrics")
}

/// What a path of the admin port has, if it answers that all is well.
fn get(port: u16, path: &str) -> Result<String> {
    let answer = talk(port, &format!("GET {path} HTTP/1.0\r\n\r\n"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
    let status = head.split(' ').nth(1);
    if status != Some("200") {
        bail!("{path}: {head}");
    }
    Ok(body.to_owned())
}

/// What the panels of a dashboard ask for.
fn queries(path: &Path) -> Result<Vec<String>> {
    let dashboard: serde_json::Value = serde_json::from_slice(&fs::read(path)?)?;
    let panels = dashboard["panels"]
        .as_array()
        .context("a dashboard without panels")?;
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let query = |target: &serde_json::Value| target["expr"].as_str().map(str::to_owned);
    targets
        .map(|target| query(target).context("a target without a query"))
        .collect()
}

/// The same as rules: promtool reads no other queries. The variables of a dashboard stand in quotes
/// but for one.
fn as_rules(queries: &[String]) -> String {
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, query) in queries.iter().enumerate() {
        let query = query.replace("$__rate_interval", "5m").replace('\'', "''");
        rules += &format!("  - record: dashboard:query:{number}\n    expr: '{query}'\n");
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_become_rules() {
        let rules = as_rules(&["rate(a{b='c'}[$__rate_interval])".to_owned()]);
        assert!(
            rules.ends_with("    expr: 'rate(a{b=''c''}[5m])'\n"),
            "{rules}"
        );
    }
}
