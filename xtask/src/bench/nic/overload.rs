//! One to two times what the server carries (JB-T6): credits and narrowing windows, receivers that
//! are not ready (JB-16), and RawRPC.

use std::{path::Path, process::Command};

use anyhow::Result;
use curtail_report::Table;

use super::{
    Asked,
    link::{Link, Way, target},
    load::{Step, capacity, drive},
    table::{Rows, cell, median},
};

/// Shares of what RawRPC reaches.
const LOADS: [f64; 8] = [0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0];

/// Places of each of the 16 queues: few, so that they are full within the warm-up.
const SLOTS: &str = "256";

/// For how long a connection stands still whose receiver is not ready, as in the simulator.
const PAUSE_US: &str = "640";

/// The way whose clients are told that the receiver is not ready.
const NOT_READY: usize = 1;

/// Sessions of the driver.
const SESSIONS: &str = "4";

pub(super) fn run(asked: &Asked, binary: &Path) -> Result<()> {
    let ways = ways();
    let mut arguments = asked.server.clone();
    let work = format!("native_service_us={}", asked.work_us);
    arguments.extend(["--native-slots", SLOTS, "-o", &work].map(str::to_owned));
    let link = Link::start(binary, &ways, asked.cores, &arguments, &asked.folder)?;
    let labels: Vec<String> = ways.iter().map(|way| way.label.to_owned()).collect();
    let driver = |way: usize| -> Command {
        let mut command = link.driver();
        command.args(["--target", &format!("{}={}", ways[way].label, target(way))]);
        command.args([
            "--keys",
            "100000",
            "--key-bytes",
            "16",
            "--value-bytes",
            "64",
        ]);
        command.args(["--get-ratio", "0", "--zipf", "0", "--pipeline", "64"]);
        command.args(["--connections", SESSIONS]);
        if way == NOT_READY {
            command.args(["--when-full-pause-us", PAUSE_US]);
        }
        command
    };
    let capacity = capacity(&mut driver(ways.len() - 1), &labels)?;
    let loads = if asked.loads.is_empty() {
        &LOADS[..]
    } else {
        &asked.loads
    };
    let seconds = asked.seconds.to_string();
    let mut steps: Vec<Vec<Vec<Step>>> = vec![vec![Vec::new(); loads.len()]; ways.len()];
    for _ in 0..asked.rounds {
        for (place, load) in loads.iter().enumerate() {
            for (way, steps) in steps.iter_mut().enumerate() {
                let rate = format!("{:.0}", load * capacity);
                let pace = ["--rate", &rate, "--warm-up", "0.3", "--duration", &seconds];
                steps[place].extend(drive(driver(way).args(pace), &labels)?);
            }
        }
    }
    println!(
        "\nwrites of 16 + 64 B, uniform keys; RawRPC reaches {:.1} k/s; {} us of work; queues of \
         {SLOTS} places",
        capacity / 1000.0,
        asked.work_us
    );
    let rows = report(&ways, loads, &steps);
    rows.save(&asked.folder.join("nic-overload.csv"))
}

/// Limits that no measurement moves, since the simulator's are fixed.
const CREDITS: &str = "native_backlog=64,native_read_wait_us=0";
const NOT_READY_LIMIT: &str = "native_backlog=256,native_read_wait_us=0";

/// The simulator's series of the same names.
fn ways() -> Vec<Way> {
    vec![
        Way::new("credits", "credits", "xdp", &["-o", CREDITS]),
        Way::new("not-ready", "not-ready", "xdp", &["-o", NOT_READY_LIMIT]),
        Way::new("raw", "raw-rpc", "raw", &[]),
    ]
}

fn report(ways: &[Way], loads: &[f64], steps: &[Vec<Vec<Step>>]) -> Rows {
    let mut table = Table::default();
    let mut rows = Rows::default();
    for (way, steps) in ways.iter().zip(steps) {
        let steps: Vec<Vec<&Step>> = steps.iter().map(|steps| steps.iter().collect()).collect();
        let rate = |steps: &[&Step]| median(steps, |step| Some(step.rate)).unwrap_or(0.0);
        let peak = steps
            .iter()
            .map(|steps| rate(steps))
            .fold(f64::MIN_POSITIVE, f64::max);
        for (load, own) in loads.iter().zip(&steps) {
            let middle = |of: &dyn Fn(&Step) -> Option<f64>| median(own, of);
            let sent = [0, 1, 2].map(|place| middle(&|step| step.sent[place]));
            let due = [0, 2].map(|place| middle(&|step| step.accepted[place]));
            let refused = middle(&|step| Some(100.0 * step.refused));
            let backlog = [
                middle(&|step| Some(step.backlog_p50)),
                middle(&|step| Some(step.backlog_p99)),
            ];
            table.named(&[
                ("load", load.to_string()),
                ("way", way.label.to_owned()),
                ("executed, k/s", cell(&[Some(rate(own) / 1000.0)])),
                ("of its peak", format!("{:.2}", rate(own) / peak)),
                ("accepted since sent p50 / p90 / p99, us", cell(&sent)),
                ("since due p50 / p99, us", cell(&due)),
                ("refused, %", cell(&[refused])),
                ("backlog p50 / p99", cell(&backlog)),
            ]);
            let of = ("juneberry-overload", way.series, PARAMS);
            rows.add_point(of, *load, own);
            rows.add(of, *load, "over_peak", Some(rate(own) / peak));
            rows.add(of, *load, "ack_since_sent_p99_us", sent[2]);
        }
    }
    print!("{}", table.markdown());
    rows
}

const PARAMS: &str = "prices=measured;writes=100;gamma=0;slots=256;cores=1";
