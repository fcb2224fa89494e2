//! Both drivers against a small server: what they count must be what happened.

use std::time::Duration;

use curtail_loadgen::{Plan, Popularity, Protocol, Report, Sizes, Workload, measure};

use crate::fake::{self, Lie};

fn plan(target: String, protocol: Protocol) -> Plan {
    Plan {
        target,
        workload: Workload {
            protocol,
            keys: 200,
            key_bytes: 10,
            sizes: Sizes::fixed(50),
            get_ratio: 0.5,
            popularity: Popularity::Uniform,
        },
        connections: 4,
        threads: 2,
        pipeline: 8,
        rate: None,
        warm_up: Duration::from_millis(100),
        duration: Duration::from_millis(400),
        window: Duration::from_millis(20),
        pregenerated: None,
        cores: Vec::new(),
        spin: false,
        seed: 1,
        server_pid: Some(std::process::id()),
    }
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
    assert!(report.all.count > 0 && report.all.p50_us > 0.0);
    assert!(report.server_ns_per_request.is_some_and(|ns| ns >= 0.0));
}

#[test]
fn the_general_driver_counts_what_happened() {
    for protocol in [Protocol::Text, Protocol::Meta] {
        let report = measure(&plan(fake::start(Lie::None), protocol)).unwrap();
        check_counts(&report);
    }
}

/// Goal: blocks whose length is not as expected are framed, so that misses are counted and hang
/// nothing.
#[test]
fn the_cheap_driver_counts_what_happened() {
    for protocol in [Protocol::Text, Protocol::Meta] {
        let report = measure(&Plan {
            pregenerated: Some(20_000),
            ..plan(fake::start(Lie::None), protocol)
        });
        check_counts(&report.unwrap());
    }
}

#[test]
fn refused_writes_are_counted_as_errors() {
    for pregenerated in [None, Some(20_000)] {
        let report = measure(&Plan {
            pregenerated,
            ..plan(fake::start(Lie::Refusing), Protocol::Meta)
        });
        let counts = report.unwrap().counts;
        assert!(
            counts.errors > 10 && counts.stored == 0 && counts.hits == 0,
            "{counts:?}"
        );
    }
}

/// Goal: the open loop offers what was asked. Method: 2,000 requests a second for 400 ms, counted
/// within six standard deviations of a Poisson process, all answered.
#[test]
fn an_open_loop_offers_its_rate() {
    let report = measure(&Plan {
        rate: Some(2000.0),
        ..plan(fake::start(Lie::None), Protocol::Text)
    });
    let report = report.unwrap();
    let offered = report.all.count as f64;
    assert!((offered - 800.0).abs() < 6.0 * 800_f64.sqrt(), "{offered}");
    assert_eq!(report.counts.unfinished, 0);
    assert!(report.driver_lag.count > 0);
}

/// Goal: waiting for a stalled server counts from the intended instant. Method: a server that
/// accepts and never answers; every request must show up as unfinished with its waiting time.
#[test]
fn a_server_that_never_answers_shows_in_the_latency() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let report = measure(&Plan {
        rate: Some(500.0),
        ..plan(target, Protocol::Text)
    });
    let report = report.unwrap();
    assert_eq!(report.counts.done, 0);
    assert!(report.counts.unfinished > 100, "{:?}", report.counts);
    // All of them wait at least for the grace period of one second.
    assert!(report.all.p50_us > 1_000_000.0, "{:?}", report.all);
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let good = || plan(fake::start(Lie::None), Protocol::Meta);
    let bad = [
        Plan {
            threads: 0,
            ..good()
        },
        Plan {
            connections: 1,
            ..good()
        },
        Plan {
            pipeline: 0,
            ..good()
        },
        Plan {
            rate: Some(0.0),
            ..good()
        },
        Plan {
            rate: Some(1.0),
            pregenerated: Some(100),
            ..good()
        },
        Plan {
            pregenerated: Some(3),
            ..good()
        },
        Plan {
            duration: Duration::ZERO,
            ..good()
        },
    ];
    for plan in bad {
        assert!(measure(&plan).is_err(), "{plan:?}");
    }
}
