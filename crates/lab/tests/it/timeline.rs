//! `curtail bench timeline` against a real server, at a reduced size.

use std::{fs, process::Command};

use curtail_server::{Config, Listen, Server};

use crate::BINARY;

/// A server with two workers that plans twice a second.
fn start() -> Server {
    let listen = Listen {
        address: "127.0.0.1:0".parse().unwrap(),
        optional: false,
    };
    let config = Config {
        listen: vec![listen],
        workers: 2,
        epoch_ms: 500,
        ..Config::default()
    };
    Server::start(config, |_| ()).unwrap()
}

/// The numbers of a column.
fn column(csv: &str, name: &str) -> Vec<f64> {
    let mut lines = csv.lines().map(|line| line.split(','));
    let at = lines.next().unwrap().position(|other| other == name);
    let cells = lines.map(|mut line| line.nth(at.unwrap()).unwrap());
    cells.filter_map(|cell| cell.parse().ok()).collect()
}

/// Goal: the share of large requests goes up and back, and the report shows, second by second, that
/// share, the threshold, the roles and the latencies of small and large requests. Method: three
/// phases of three seconds, two epochs to a second, so that the plan has to follow.
#[test]
fn a_changing_load_is_shown_with_the_plan_that_follows_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = start();
    let target = server.addresses()[0].to_string();
    let output = Command::new(BINARY)
        .args(["bench", "timeline", "--target", &target])
        .args([
            "--workload",
            "etc:keys=2000,large-keys=40,p-large=0/20/0@3s",
        ])
        .args([
            "--preload",
            "--rate",
            "2000",
            "--warm-up",
            "0",
            "--duration",
            "9",
        ])
        .args(["--connections", "20", "--report"])
        .arg(folder.path())
        .output()
        .unwrap();
    drop(server);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(folder.path().join("timeline.html")).unwrap();
    let csv = fs::read_to_string(folder.path().join("timeline.csv")).unwrap();
    let column = |name: &str| column(&csv, name);
    let percent = column("large_percent");
    assert_eq!(percent, [0.0, 0.0, 0.0, 20.0, 20.0, 20.0, 0.0, 0.0, 0.0]);
    assert!(
        column("threshold_bytes")
            .iter()
            .all(|&bytes| bytes >= 32_768.0)
    );
    let large_cores = column("large_cores");
    assert_eq!((large_cores[2], large_cores[5]), (0.0, 1.0), "{csv}");
    let hand_offs = column("hand_offs");
    assert!(hand_offs[4] > 0.0 && hand_offs[1] == 0.0, "{csv}");
    assert!(column("small_p99_us").len() >= 8, "{csv}");
    assert!(!column("large_p50_us").is_empty(), "{csv}");
    assert_eq!(column("small_behind_large").iter().sum::<f64>(), 0.0);
    assert_eq!(page.matches("<svg").count(), 5);
    assert!(!page.contains("no values"), "{page}");
}
