//! What a run must give whatever the costs, and the costs against the numbers that they come from.

use super::*;
use crate::{
    cckvs::{CACHED_SHARE, Shards, exact_hit_ratio},
    costs::CostsError,
};

fn cluster(copies: Option<Model>, write_ratio: f64) -> WholeCluster {
    WholeCluster {
        hardware: *Hardware::paper(),
        nodes: 9,
        copies,
        is_exclusive: false,
        gamma: 0.99,
        hit_ratio: exact_hit_ratio(0.99, CACHED_SHARE),
        write_ratio,
        value_bytes: 40,
        coalesces: false,
        sessions: 24,
        warm_up: 8,
        requests: 60_000,
        seed: 1,
    }
}

/// Goal: the costs follow from the numbers that the file names. Method: the sums themselves, and a
/// run of Base-EREW.
#[test]
fn costs_follow_from_what_the_paper_measured_without_copies() {
    let hardware = Hardware::paper();
    let at_node = 240e6 / 9.0 * (8.0 / 9.0) * 2.0;
    assert!((hardware.packets_per_second / at_node - 1.0).abs() < 1e-3);
    let hottest_ns = 1e3 / (95.0 * Shards::hottest(0.99, 90, 1));
    let request_ns = hardware.item_ns + hardware.packet_ns * 8.0 / 9.0;
    assert!((request_ns / hottest_ns - 1.0).abs() < 1e-3, "{hottest_ns}");
    let exclusive = WholeCluster {
        is_exclusive: true,
        warm_up: 64,
        ..cluster(None, 0.0)
    };
    let mrps = exclusive.run().mrps;
    assert!((mrps / 95.0 - 1.0).abs() < 0.08, "{mrps}");
}

/// Goal: the machines send what the protocol says: N - 1 values for a write and as many
/// acknowledgements, and under Lin as many messages that end it; under SC all but one in N of the
/// writes are sent to their primary. Method: many writes, few of which meet.
#[test]
fn a_hot_write_sends_the_messages_that_are_counted() {
    for (model, kinds, forwarded) in [(Model::Sc, 2.0, 8.0 / 9.0), (Model::Lin, 3.0, 0.0)] {
        let load = WholeCluster {
            gamma: 0.0,
            requests: 120_000,
            ..cluster(Some(model), 0.05)
        };
        let outcome = load.run();
        let sent = outcome.sent;
        let packets =
            sent.updates.packets + sent.acknowledgements.packets + sent.invalidations.packets;
        let writes = load.requests as f64 * load.hit_ratio * load.write_ratio;
        let each = packets as f64 / writes / 8.0;
        assert!((each / kinds - 1.0).abs() < 0.06, "{model:?}: {each}");
        let ways = sent.forwarded.packets as f64 / writes / 2.0;
        assert!((ways - forwarded).abs() < 0.06, "{model:?}: {ways}");
        assert_eq!(outcome.refused, 0);
        let per_credit = match model {
            Model::Sc => 15.0,
            Model::Lin => 30.0,
        };
        let (messages, credits) = (packets as f64, sent.credits.packets as f64);
        assert!(
            credits < messages / per_credit * 1.1,
            "{model:?}: {credits}"
        );
    }
}

/// Goal: where nothing waits for anything, the simulation is the equations; under SC it is what
/// they give with the acknowledgements and the way to the primary that the paper does not have.
/// Method: popularity without favourites, so that no write meets another, against packets through
/// the switch.
#[test]
fn without_conflicts_the_equations_come_out() {
    use crate::cckvs::{HotCopies, Link, MessageBytes};
    for (copies, write_ratio) in [
        (None, 0.0),
        (Some(Model::Sc), 0.0),
        (Some(Model::Sc), 0.03),
        (Some(Model::Lin), 0.03),
    ] {
        let simulated = WholeCluster {
            gamma: 0.0,
            ..cluster(copies, write_ratio)
        };
        let load = HotCopies {
            nodes: 9,
            hit_ratio: copies.map_or(0.0, |_| simulated.hit_ratio),
            write_ratio,
        };
        let mut traffic = load.traffic(&MessageBytes::paper(40), copies.unwrap_or_default());
        if copies == Some(Model::Sc) {
            traffic.packets += load.copies() * (1.0 + 2.0 / 9.0);
        }
        let link = Link {
            packets_per_second: simulated.hardware.packets_per_second,
            bytes_per_second: simulated.hardware.bytes_per_second,
        };
        let equations = load.throughput_mrps(&link, traffic);
        let mrps = simulated.run().mrps;
        let ratio = mrps / equations;
        assert!(
            (ratio - 1.0).abs() < 0.05,
            "{copies:?} {write_ratio}: {ratio}"
        );
    }
}

/// Goal: what the paper says of shared packets: more throughput, more so for reads, fewer packets.
#[test]
fn requests_that_share_packets_lift_throughput() {
    let gain = |copies, write_ratio| {
        let alone = cluster(copies, write_ratio);
        let together = WholeCluster {
            coalesces: true,
            sessions: 128,
            ..alone
        };
        let (alone, together) = (alone.run(), together.run());
        assert!(together.sent.misses.packets < alone.sent.misses.packets);
        together.mrps / alone.mrps
    };
    let (reads, writes) = (gain(Some(Model::Lin), 0.0), gain(Some(Model::Lin), 0.01));
    assert!(
        reads > 2.2 && writes > 1.3 && writes < reads,
        "{reads} {writes}"
    );
}

/// Goal: of what the paper says of latency (Fig. 13c) that 95 % of the requests take about an order
/// of magnitude less than 1 ms at full load, and that writes cost latency. Method: the figure's
/// fullest point.
#[test]
fn latencies_at_full_load_are_far_below_a_millisecond() {
    let full = |copies, write_ratio| {
        let load = WholeCluster {
            coalesces: true,
            sessions: 128,
            ..cluster(copies, write_ratio)
        };
        load.run()
    };
    let reads = full(Some(Model::Lin), 0.0);
    let (sc, lin) = (full(Some(Model::Sc), 0.01), full(Some(Model::Lin), 0.01));
    for outcome in [reads, sc, lin] {
        let between = 1.0 < outcome.mean_us && outcome.mean_us < outcome.p95_us;
        assert!(between && outcome.p95_us < 100.0, "{outcome:?}");
    }
    assert!(reads.mean_us < sc.mean_us && reads.mean_us < lin.mean_us);
}

/// Goal: a seed replays a run, and another does not.
#[test]
fn seeds_replay() {
    let load = WholeCluster {
        requests: 20_000,
        ..cluster(Some(Model::Lin), 0.02)
    };
    assert_eq!(load.run(), load.run());
    let other = WholeCluster { seed: 2, ..load };
    assert_ne!(load.run(), other.run());
}

/// Goal: a file that would stop the simulation is refused.
#[test]
fn files_are_checked() {
    let text = toml::to_string(Hardware::paper()).unwrap();
    assert_eq!(Hardware::parse(&text), Ok(*Hardware::paper()));
    for (name, number) in [("item_ns", "0.0"), ("threads", "0"), ("lin_credits", "1")] {
        let lines = text
            .lines()
            .map(|line| match line.starts_with(&format!("{name} ")) {
                true => format!("{name} = {number}\n"),
                false => format!("{line}\n"),
            });
        let changed: String = lines.collect();
        assert_eq!(
            Hardware::parse(&changed),
            Err(CostsError::Number(name.into()))
        );
    }
}
