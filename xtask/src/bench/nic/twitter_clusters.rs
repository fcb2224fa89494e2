//! Twitter's clusters 12, 19, 27 and 31 (Juneberry, Table 1): the latency of writes and of reads,
//! apart, in each mode.

use std::{path::Path, process::Command};

use anyhow::Result;
use curtail_report::Table;

use super::{
    Asked,
    link::{Cores, Link, Way, target},
    load::{Step, capacity, drive},
    table::{Rows, cell, median, ratio},
};

/// Juneberry's Table 1.
struct Cluster {
    number: u16,
    writes: f64,
    key_bytes: u32,
    value_bytes: u32,
    zipf: f64,
}

const CLUSTERS: [Cluster; 4] = [
    Cluster {
        number: 12,
        writes: 0.80,
        key_bytes: 44,
        value_bytes: 1030,
        zipf: 0.3048,
    },
    Cluster {
        number: 19,
        writes: 0.25,
        key_bytes: 42,
        value_bytes: 101,
        zipf: 0.735,
    },
    Cluster {
        number: 27,
        writes: 0.15,
        key_bytes: 66,
        value_bytes: 8,
        zipf: 1.065,
    },
    Cluster {
        number: 31,
        writes: 0.94,
        key_bytes: 41,
        value_bytes: 15,
        zipf: 0.0,
    },
];

/// Shares of what RawRPC reaches.
const LOADS: [f64; 4] = [0.3, 0.5, 0.7, 0.9];

/// Keys, all stored before.
const KEYS: &str = "20000";

pub(super) fn run(asked: &Asked, binary: &Path) -> Result<()> {
    let ways = ways();
    let mut arguments = asked.server.clone();
    // The early limit is fixed, as the simulator's is.
    let work = format!("native_service_us={},native_read_wait_us=0", asked.work_us);
    arguments.extend(["-o".into(), work]);
    let link = Link::start(binary, &ways, asked.cores, &arguments, &asked.folder)?;
    let mut rows = Rows::default();
    let chosen =
        |cluster: &&Cluster| asked.clusters.is_empty() || asked.clusters.contains(&cluster.number);
    for cluster in CLUSTERS.iter().filter(chosen) {
        one(asked, &link, &ways, cluster, &mut rows)?;
    }
    let names: Vec<String> = asked
        .clusters
        .iter()
        .map(|number| format!("-{number}"))
        .collect();
    let cores = match asked.cores {
        Cores::One => "",
        Cores::Two => "-two",
    };
    let name = format!("nic-clusters{cores}{}.csv", names.concat());
    rows.save(&asked.folder.join(name))
}

fn ways() -> Vec<Way> {
    // Juneberry's thread that acknowledges does nothing else (JB-25): reads go to the workers.
    let apart = ["-o", "native_placement=hand-off"];
    vec![
        Way::new("raw", "raw-rpc", "raw", &[]),
        Way::new("deferred", "deferred-exec", "deferred", &[]),
        Way::new("io-ack", "io-ack", "io-ack", &[]),
        Way::new("io-ack-apart", "io-ack-apart", "io-ack", &apart),
        Way::new("xdp", "oq", "xdp", &[]),
    ]
}

/// A cluster's load on all servers.
struct Run<'a> {
    asked: &'a Asked,
    link: &'a Link,
    ways: &'a [Way],
    labels: Vec<String>,
    cluster: &'a Cluster,
}

impl Run<'_> {
    /// The driver against some of the servers.
    fn command(&self, ways: &[usize]) -> Command {
        let cluster = self.cluster;
        let mut command = self.link.driver();
        for index in ways {
            let target = format!("{}={}", self.labels[*index], target(*index));
            command.args(["--target", &target]);
        }
        command.args([
            "--keys",
            KEYS,
            "--key-bytes",
            &cluster.key_bytes.to_string(),
        ]);
        command.args(["--value-bytes", &cluster.value_bytes.to_string()]);
        command.args(["--get-ratio", &format!("{:.2}", 1.0 - cluster.writes)]);
        command.args(["--zipf", &cluster.zipf.to_string(), "--pipeline", "64"]);
        command
    }

    /// Stores every key at every server; then what RawRPC reaches, in requests a second.
    fn prepare(&self) -> Result<f64> {
        let all: Vec<usize> = (0..self.ways.len()).collect();
        let mut store = self.command(&all);
        drive(
            store.args(["--preload", "--warm-up", "0", "--duration", "0.05"]),
            &self.labels,
        )?;
        capacity(&mut self.command(&[0]), &self.labels)
    }

    fn measure(&self, rates: &[String]) -> Result<Vec<Step>> {
        let all: Vec<usize> = (0..self.ways.len()).collect();
        let mut open = self.command(&all);
        open.args(["--rate", &rates.join(",")]);
        open.args(["--repeat", &self.asked.rounds.to_string()]);
        open.args([
            "--warm-up",
            "0.2",
            "--duration",
            &self.asked.seconds.to_string(),
        ]);
        drive(&mut open, &self.labels)
    }

    fn head(&self, capacity: f64) {
        let (cluster, asked) = (self.cluster, self.asked);
        let cores = match asked.cores {
            Cores::One => "servers have one processor",
            Cores::Two => "the thread that acknowledges has the driver's processor",
        };
        println!(
            "\ncluster {}: {:.0} % writes, {} + {} B, Zipf {}; RawRPC reaches {:.1} k/s; {} us of \
             work; {cores}\n",
            cluster.number,
            cluster.writes * 100.0,
            cluster.key_bytes,
            cluster.value_bytes,
            cluster.zipf,
            capacity / 1000.0,
            asked.work_us,
        );
    }
}

fn one(asked: &Asked, link: &Link, ways: &[Way], cluster: &Cluster, rows: &mut Rows) -> Result<()> {
    let run = Run {
        asked,
        link,
        ways,
        labels: ways.iter().map(|way| way.label.to_owned()).collect(),
        cluster,
    };
    let capacity = run.prepare()?;
    let loads = match asked.loads.is_empty() {
        true => &LOADS[..],
        false => &asked.loads,
    };
    let rates: Vec<String> = loads
        .iter()
        .map(|load| format!("{:.0}", load * capacity))
        .collect();
    let steps = run.measure(&rates)?;
    run.head(capacity);
    let own = match asked.cores {
        Cores::One => "",
        Cores::Two => ";acknowledging=own core",
    };
    let params = format!(
        "prices=measured;workload=cluster{};cores=1{own}",
        cluster.number
    );
    let mut table = Table::default();
    for (load, rate) in loads.iter().zip(&rates) {
        let at: f64 = rate.parse()?;
        let of = |way: usize| -> Vec<&Step> {
            let is_its = |step: &&Step| step.target == way && (step.offered - at).abs() < 1.0;
            steps.iter().filter(is_its).collect()
        };
        let last = of(ways.len() - 1);
        for (index, way) in ways.iter().enumerate() {
            let own = of(index);
            table.named(&cells(*load, way.label, &own, &last));
            rows.add_point(("juneberry-fig7", way.series, &params), *load, &own);
        }
    }
    print!("{}", table.markdown());
    Ok(())
}

fn cells(load: f64, label: &str, own: &[&Step], last: &[&Step]) -> [(&'static str, String); 9] {
    let middle = |of: &dyn Fn(&Step) -> Option<f64>| median(own, of);
    let accepted = [0, 1, 2].map(|place| middle(&|step| step.accepted[place]));
    let read = [0, 1, 2].map(|place| middle(&|step| step.read[place]));
    let to_last = ratio(own, last, |step| step.accepted[0]);
    [
        ("load", load.to_string()),
        ("mode", label.to_owned()),
        ("k/s", cell(&[middle(&|step| Some(step.rate / 1000.0))])),
        ("writes p50 / p90 / p99, us", cell(&accepted)),
        ("over xdp", cell(&[to_last])),
        ("reads p50 / p90 / p99, us", cell(&read)),
        (
            "refused, %",
            cell(&[middle(&|step| Some(100.0 * step.refused))]),
        ),
        (
            "backlog p99",
            cell(&[middle(&|step| Some(step.backlog_p99))]),
        ),
        (
            "driver late p99, us",
            cell(&[middle(&|step| Some(step.late_p99))]),
        ),
    ]
}
