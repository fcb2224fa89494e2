//! Both drivers against a small server: what they count must be what happened.

use std::time::Duration;

use curtail_loadgen::{
    Counts, Load, LoadError, Pace, Plan, Protocol, Report, Session, Stall, Stop, measure,
};
use curtail_testing::undisturbed;

use crate::fake::{self, Lie};

/// Half of the requests are reads of 200 keys alike.
const MIX: &str = "uniform:keys=200,key=10,value=50,get=0.5";

fn plan(target: String, protocol: Protocol) -> Plan {
    Plan {
        connections: 4,
        threads: 2,
        pipeline: 8,
        warm_up: Duration::from_millis(100),
        duration: Duration::from_millis(400),
        server_pids: vec![std::process::id()],
        late: Duration::from_millis(1),
        size_limits: vec![1400],
        ..Plan::new(target, Load::drawn(protocol, MIX.parse().unwrap()))
    }
}

fn run(plan: &Plan) -> Result<Report, LoadError> {
    measure(plan, &Session::new(Stop::new()))
}

/// What the plan that `change` leaves gives on a server of this kind.
fn driven(lie: Lie, protocol: Protocol, change: impl FnOnce(&mut Plan)) -> Report {
    let mut plan = plan(fake::start(lie), protocol);
    change(&mut plan);
    run(&plan).unwrap()
}

/// Keys are not stored before: early reads miss, later ones hit.
fn check_counts(report: &Report) {
    let counts = &report.counts;
    assert!(counts.done > 100 && report.rate > 0.0, "{counts:?}");
    assert!(
        counts.misses > 10 && counts.hits > 10 && counts.stored > 10,
        "{counts:?}"
    );
    assert_eq!(
        (counts.errors, counts.wrong_sizes, counts.unfinished),
        (0, 0, 0)
    );
    // Half of the requests are reads, within six standard deviations.
    let all = (counts.misses + counts.hits + counts.stored) as f64;
    let gets = (counts.misses + counts.hits) as f64;
    assert!(
        (gets - all / 2.0).abs() < 6.0 * all.sqrt() / 2.0,
        "{counts:?}"
    );
    assert!(report.all.count > 0 && report.all.p50_us.is_some_and(|us| us > 0.0));
    assert!(report.server_ns_per_request.is_some_and(|ns| ns >= 0.0));
}

#[test]
fn the_general_driver_counts_what_happened() {
    for protocol in [Protocol::Text, Protocol::Meta] {
        undisturbed(|| check_counts(&driven(Lie::None, protocol, |_| {})));
    }
}

/// Goal: blocks whose length is not as expected are framed, so that misses are counted and hang
/// nothing.
#[test]
fn the_cheap_driver_counts_what_happened() {
    for protocol in [Protocol::Text, Protocol::Meta] {
        undisturbed(|| {
            let report = driven(Lie::None, protocol, |plan| plan.pregenerated = Some(20_000));
            check_counts(&report);
        });
    }
}

/// Goal: connections are dealt out over a cluster's nodes in turn. Method: the second node only
/// listens; of five connections of two threads two must be waiting there.
#[test]
fn connections_are_dealt_out_over_nodes() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let report = driven(Lie::None, Protocol::Meta, |plan| {
        plan.other_nodes = vec![silent.local_addr().unwrap().to_string()];
        plan.connections = 5;
    });
    assert!(report.counts.hits > 0);
    let waiting = std::iter::from_fn(|| silent.accept().ok()).count();
    assert_eq!(waiting, 2);
}

#[test]
fn refused_writes_are_counted_as_errors() {
    for pregenerated in [None, Some(20_000)] {
        let report = driven(Lie::Refusing, Protocol::Meta, |plan| {
            plan.pregenerated = pregenerated
        });
        let counts = report.counts;
        let (errors, others) = (counts.errors, counts.stored + counts.hits);
        assert!(errors > 10 && others == 0, "{counts:?}");
    }
}

/// Goal: the open loop offers what was asked. Method: 2,000 requests a second for 400 ms, counted
/// within six standard deviations of a Poisson process, all answered.
#[test]
fn an_open_loop_offers_its_rate() {
    let report = driven(Lie::None, Protocol::Text, |plan| {
        plan.pace = Pace::poisson(2000.0);
    });
    let offered = report.all.count as f64;
    assert!((offered - 800.0).abs() < 6.0 * 800_f64.sqrt(), "{offered}");
    assert_eq!(report.counts.unfinished, 0);
    assert!(report.driver_lateness.is_some_and(|late| late.count > 0));
    assert!(
        report
            .service
            .is_some_and(|service| service.count == report.all.count)
    );
}

/// Goal: waiting for a stalled server counts from the intended instant. Method: a server that
/// accepts and never answers; every request must show up as unfinished with its waiting time.
#[test]
fn a_server_that_never_answers_shows_in_the_latency() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let mut plan = plan(target, Protocol::Text);
    plan.pace = Pace::poisson(500.0);
    let report = run(&plan).unwrap();
    assert_eq!(report.counts.done, 0);
    assert!(report.counts.unfinished > 100, "{:?}", report.counts);
    // All of them wait at least for the grace period of one second, and nobody knows how long more.
    assert!(report.all.mean_us > 1_000_000.0, "{:?}", report.all);
    assert!(report.all.p50_us.is_none() && report.all.not_measurable["p50"].contains("answered"));
}

/// Goal: a server that stops to answer shows in a closed loop, too, which then measures nothing
/// more. Method: a server that accepts and never answers, with both drivers.
#[test]
fn a_closed_loop_counts_what_is_not_answered() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for pregenerated in [None, Some(1_000)] {
        let mut plan = plan(listener.local_addr().unwrap().to_string(), Protocol::Text);
        plan.pregenerated = pregenerated;
        (plan.warm_up, plan.duration) = (Duration::ZERO, Duration::from_millis(1_300));
        let report = run(&plan).unwrap();
        // Four connections with eight requests each.
        let counts = &report.counts;
        assert_eq!((counts.done, counts.unfinished), (0, 32), "{counts:?}");
        assert!(report.all.mean_us >= 1_000_000.0, "{:?}", report.all);
        let kinds: Vec<&str> = report.warnings.iter().map(|one| one.kind).collect();
        assert!(kinds.contains(&"unanswered"), "{kinds:?}");
    }
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let bad: [fn(&mut Plan); 8] = [
        |plan| plan.threads = 0,
        |plan| plan.connections = 1,
        |plan| plan.pipeline = 0,
        |plan| plan.pace = Pace::poisson(0.0),
        |plan| (plan.pace, plan.pregenerated) = (Pace::poisson(1.0), Some(100)),
        |plan| plan.pregenerated = Some(3),
        |plan| plan.duration = Duration::ZERO,
        |plan| plan.size_limits = vec![2, 1],
    ];
    for spoil in bad {
        let mut plan = plan(fake::start(Lie::None), Protocol::Meta);
        spoil(&mut plan);
        assert!(run(&plan).is_err(), "{plan:?}");
    }
}

/// Goal: a driver that stood still does not pass its own stall off as the server's tail. Method:
/// an honest server, and a driver whose threads sleep for a tenth of the measured time.
#[test]
fn a_stalled_driver_refuses_the_tail_that_it_made() {
    let (at, length) = (Duration::from_millis(250), Duration::from_millis(60));
    let stalled = driven(Lie::None, Protocol::Text, |plan| {
        plan.pace = Pace::poisson(8000.0);
        plan.stall = Some(Stall { at, length });
    });
    let late = stalled.driver_lateness.clone().unwrap();
    assert!(late.max_us > 50_000.0 && late.late_share > 0.05, "{late:?}");
    assert_eq!(stalled.all.p99_us, None, "{:?}", stalled.all);
    let reason = &stalled.all.not_measurable["p99"];
    assert!(reason.contains("the driver's lateness"), "{reason}");
    let mut warnings = stalled.warnings.iter();
    assert!(warnings.any(|warning| warning.kind == "driver late"));
    let json = stalled.json().unwrap();
    assert!(json.contains("\"p99_us\":null"), "{json}");
}

/// Goal: the waiting of requests for a busy server is the server's, not the driver's lateness.
/// Method: a server that answers every request after 5 ms, one connection, twice the rate that
/// this allows.
#[test]
fn a_slow_server_is_not_taken_for_a_late_driver() {
    let report = driven(Lie::Slow, Protocol::Text, |plan| {
        plan.pace = Pace::poisson(400.0);
        (plan.connections, plan.threads, plan.pipeline) = (1, 1, 1);
        plan.duration = Duration::from_millis(500);
    });
    assert!(report.all.mean_us > 20_000.0, "{:?}", report.all);
    let service = report.service.unwrap();
    assert!(service.mean_us < report.all.mean_us / 2.0, "{service:?}");
    let late = report.driver_lateness.unwrap();
    assert!(late.p50_us < 20_000.0, "{late:?}");
}

fn verifying(lie: Lie) -> Report {
    driven(lie, Protocol::Meta, |plan| plan.load.verify = true)
}

#[test]
fn an_honest_server_is_not_accused() {
    let report = verifying(Lie::None);
    assert!(report.counts.verified > 100, "{:?}", report.counts);
    assert_eq!(report.faults(), 0, "{:?}", report.counts);
}

/// Goal: each kind of wrong value is found, and called by its name.
#[test]
fn wrong_values_are_found_and_fail_the_run() {
    type Count = fn(&Counts) -> u64;
    let found: [(Lie, Count); 4] = [
        (Lie::Torn, |counts| counts.torn),
        (Lie::Foreign, |counts| counts.foreign),
        (Lie::Stale, |counts| counts.stale),
        (Lie::Lost, |counts| counts.stale),
    ];
    for (lie, count) in found {
        let report = verifying(lie);
        let found = count(&report.counts) > 0 && report.faults() > 0;
        assert!(found, "{:?}", report.counts);
    }
}

/// Goal: every command of a workload is driven and answered. Method: all of them, text and meta,
/// keys that are not there included; `fill` stores them.
#[test]
fn every_command_is_driven() {
    let mix = "uniform:keys=200,key=10,value=50,mix=get@0.2+gets@0.1+set@0.1+add@0.1+replace@0.1\
               +cas@0.1+delete@0.1+incr@0.1+decr@0.05+rmw@0.05";
    for protocol in [Protocol::Text, Protocol::Meta] {
        let report = driven(Lie::None, protocol, |plan| {
            plan.load = Load::drawn(protocol, mix.parse().unwrap());
            plan.load.fill = true;
        });
        assert_eq!(report.faults(), 0, "{:?}", report.counts);
        let seen: Vec<&str> = report.classes.iter().map(|class| class.operation).collect();
        for operation in [
            "get hit", "set", "add", "replace", "cas", "delete", "incr", "decr",
        ] {
            assert!(
                seen.contains(&operation),
                "{protocol:?} {operation} {seen:?}"
            );
        }
        assert!(report.counts.refused > 0 && report.counts.changed > 0);
    }
}

#[test]
fn a_thinking_client_sends_when_it_has_thought() {
    let think_ns = 20_000_000;
    let report = driven(Lie::None, Protocol::Text, |plan| {
        plan.pace = Pace::Closed { think_ns };
    });
    // 32 slots that think for 20 ms: at most 1600 requests a second.
    let rate = report.rate;
    assert!((200.0..2000.0).contains(&rate), "{rate}");
}

/// Goal: a core that there is not ends the run at once, not when the other threads are done.
/// Method: the second of two threads is to run on one, in a run of hours.
#[test]
fn a_core_that_is_not_there_ends_the_run() {
    let plan = Plan {
        cores: vec![0, 1 << 20],
        duration: Duration::from_secs(10_000),
        window: Duration::from_secs(1),
        ..plan(fake::start(Lie::None), Protocol::Text)
    };
    let error = run(&plan).unwrap_err().to_string();
    assert!(error.contains("core"), "{error}");
}

/// Goal: asked to stop, a run ends at once with what it has.
#[test]
fn a_run_that_is_stopped_reports_what_it_measured() {
    let stop = Stop::new();
    let asker = stop.clone();
    let begun = std::time::Instant::now();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        asker.ask();
    });
    let plan = Plan {
        pace: Pace::poisson(2000.0),
        duration: Duration::from_secs(60),
        window: Duration::from_millis(100),
        ..plan(fake::start(Lie::None), Protocol::Text)
    };
    let report = measure(&plan, &Session::new(stop)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(
        report.seconds < 30.0 && report.counts.done > 20,
        "{:?}",
        report.counts
    );
}

/// Goal: a server that is not there is named, with the connection that failed.
#[test]
fn a_server_that_is_not_there_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = free.local_addr().unwrap().to_string();
    drop(free);
    let error = run(&plan(target.clone(), Protocol::Text))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("connection 1 of 4") && error.contains(&target),
        "{error}"
    );
}
