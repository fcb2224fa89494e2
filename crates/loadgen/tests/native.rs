//! The native driver against the server.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::time::Duration;

use curtail_loadgen::{Load, Marking, Pace, Plan, Protocol, Report, Session, Stop, measure};
use curtail_server::{NativeMode, Server};
use curtail_testing::{native_address, native_config, start};

const MIX: &str = "zipf:keys=500,key=8,value=64,mix=get@0.4+set@0.3+incr@0.1+delete@0.1+rmw@0.1";

fn plan(server: &Server, marking: Marking) -> Plan {
    let mut load = Load::drawn(Protocol::Native, MIX.parse().unwrap());
    load.marking = marking;
    Plan {
        connections: 2,
        threads: 2,
        pipeline: 16,
        warm_up: Duration::from_millis(100),
        duration: Duration::from_millis(300),
        size_limits: vec![1400],
        ..Plan::new(native_address(server).to_string(), load)
    }
}

fn run(plan: &Plan) -> Report {
    measure(plan, &Session::new(Stop::new())).unwrap()
}

/// Goal: what is accepted, answered and read is told apart, and nothing goes wrong unseen. Method:
/// a mix of everything with each way of marking.
#[test]
fn accepted_result_and_read_are_told_apart() {
    for marking in [Marking::Sets, Marking::Writes, Marking::None] {
        let server = start(native_config(NativeMode::IoAck));
        let report = run(&plan(&server, marking));
        let native = report.native.as_ref().unwrap();
        assert!(native.read.count > 50, "{marking:?}: {}", report.table());
        let (accepted, result) = (native.accepted.count > 20, native.result.count > 20);
        let expected = match marking {
            Marking::Sets => (true, true),
            Marking::Writes => (true, false),
            Marking::None => (false, true),
        };
        assert_eq!(
            (accepted, result),
            expected,
            "{marking:?}: {}",
            report.table()
        );
        let all = native.read.count + native.accepted.count + native.result.count;
        assert_eq!(all, report.all.count);
        assert_eq!((native.failed, report.counts.errors), (0, 0));
        assert_eq!(native.sessions, 2);
    }
}

/// Goal: values are verified on this path too, and a full queue is seen. Method: a queue of a few
/// places that executes slowly, so that writes are refused and wait; every value must still be the
/// newest.
#[test]
fn refusals_and_backlog_are_shown_and_values_verified() {
    let mut config = native_config(NativeMode::IoAck);
    let native = config.native.as_mut().unwrap();
    native.slots = Some(16);
    native.service_ns = 200_000;
    let server = start(config);
    let mut plan = plan(&server, Marking::Sets);
    plan.load = Load::drawn(
        Protocol::Native,
        "zipf:keys=1,value=64,mix=get@0.5+set@0.5".parse().unwrap(),
    );
    plan.load.verify = true;
    let report = run(&plan);
    let native = report.native.as_ref().unwrap();
    assert!(
        native.nacks_full > 0 && native.nack_share > 0.0,
        "{}",
        report.table()
    );
    assert!(
        native.backlog_max > 0 && native.backlog_max <= 16,
        "{}",
        report.table()
    );
    assert!(native.waited_max > 0, "{}", report.table());
    assert!(report.counts.verified > 50, "{}", report.table());
    assert_eq!(report.faults(), 0, "{}", report.table());
    assert!(report.table().contains("refused: full"));
}

/// Goal: the open loop offers what was asked, and a think time holds back.
#[test]
fn open_and_thinking_loops_are_timed() {
    let server = start(native_config(NativeMode::IoAck));
    let open = Plan {
        pace: Pace::poisson(2000.0),
        ..plan(&server, Marking::Sets)
    };
    let report = run(&open);
    let offered = report.all.count as f64;
    assert!(
        offered > 300.0,
        "{offered} with the second halves of read-modify-writes"
    );
    assert_eq!(report.counts.unfinished, 0);
    assert!(report.driver_lateness.is_some());
    let thinking = Plan {
        pace: Pace::Closed {
            think_ns: 20_000_000,
        },
        ..plan(&server, Marking::Sets)
    };
    let report = run(&thinking);
    let most = 2.0 * 16.0 * 300.0 / 20.0;
    assert!(
        report.counts.done as f64 <= 2.0 * most,
        "{}",
        report.table()
    );
}
