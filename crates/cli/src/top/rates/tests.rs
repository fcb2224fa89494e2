//! Two samples give the view that was computed by hand.

use super::*;

use std::time::Duration;

const GENERAL: &str = "pid 7\nuptime 10\nversion 1.6.18-x\ncurr_connections 4\nmax_connections 1024
    total_connections 100\nrejected_connections 2\nrusage_user 1.500000\nrusage_system 0.500000
    cmd_get 1000\ncmd_set 100\ncmd_touch 0\nget_hits 900\nget_misses 100\ndelete_hits 0
    bytes_read 5000\nbytes_written 9000\nlimit_maxbytes 67108864\nbytes 400\ncurr_items 3
    evictions 7\nreclaimed 0\nhash_bytes 64\nread_buf_bytes 16384";

const OWN: &str = "policy size-aware+d-crew\nregime 3\nthreshold 32768\nsmall_cores 2
    large_cores 0\nstandby 1\nlarge:0:from_bytes 32768\nhistory:0 size-aware+d-crew 32768 2+0
    history:10 crew 5 1+1\nhistory:2 crew 4 1+1\nrequests 2000\nhand_offs 4\ndelegations 0
    writes_compacted 50\nlarge_refused 1\nsmall_behind_large 0
    stage:queue_requests_ahead:below_1 90
    stage:queue_requests_ahead:below_2 10\nstage:reply_us:small:more 1
    worker:0:connections 3\nworker:0:requests_last_epoch 300\nworker:0:turn_cpu_us_10 5
    worker:0:turn_cpu_us_more 0\nworker:0:turn_cpu_us_max 99\nworker:0:turn_cpu_us_sum 40
    worker:0:mailbox 2\nworker:1:connections 1\nworker:1:requests_last_epoch 100
    large:0:connections 0\nlarge:0:mailbox 0\nlarge:1:connections 0";

fn sample(ms: u64, general: &str, own: Option<&str>) -> Sample {
    Sample {
        taken: Duration::from_millis(ms),
        general: Names::of(general),
        own: own.map(Names::of),
        ..Sample::default()
    }
}

/// `text` with the values of some names replaced.
fn with(text: &str, values: &[(&str, &str)]) -> String {
    let line = |line: &str| {
        let name = line.trim().split(' ').next().unwrap_or_default();
        match values.iter().find(|(wanted, _)| *wanted == name) {
            Some((name, value)) => format!("{name} {value}"),
            None => line.to_owned(),
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn later_general() -> String {
    with(
        GENERAL,
        &[
            ("uptime", "12"),
            ("total_connections", "110"),
            ("rusage_user", "2.500000"),
            ("rusage_system", "1.000000"),
            ("cmd_get", "3000"),
            ("cmd_set", "500"),
            ("get_hits", "2400"),
            ("get_misses", "600"),
            ("bytes_written", "29000"),
        ],
    )
}

fn near(rate: Option<f64>, wanted: f64) {
    assert!(
        rate.is_some_and(|rate| (rate - wanted).abs() < 1e-9),
        "{rate:?} is not {wanted}"
    );
}

#[test]
fn growth_over_time_is_a_rate() {
    let before = sample(1000, GENERAL, Some(OWN));
    let own = with(
        OWN,
        &[
            ("requests", "7000"),
            ("hand_offs", "10"),
            ("writes_compacted", "50"),
        ],
    );
    let view = View::between(Some(&before), &sample(3000, &later_general(), Some(&own)));
    near(view.interval_seconds, 2.0);
    near(view.traffic.requests, 2500.0);
    near(view.traffic.reads, 1000.0);
    near(view.traffic.writes, 200.0);
    near(view.traffic.hit_ratio, 0.75);
    near(view.traffic.cpus, 0.75);
    near(view.traffic.cpu_us_per_request, 300.0);
    near(view.traffic.bytes_sent, 10_000.0);
    near(view.traffic.bytes_received, 0.0);
    near(view.clients.opened, 5.0);
    let moves = view.moves.unwrap();
    near(moves.hand_offs, 3.0);
    near(moves.compacted, 0.0);
    assert_eq!(
        (moves.large_refused, moves.small_behind_large),
        (Some(1), Some(0))
    );
    assert_eq!(moves.taken_back, None, "the server does not tell");
}

#[test]
fn the_first_sample_has_no_rates() {
    let view = View::between(None, &sample(0, GENERAL, Some(OWN)));
    assert_eq!(view.interval_seconds, None);
    assert_eq!(
        (view.traffic.requests, view.traffic.hit_ratio),
        (None, None)
    );
    assert_eq!(view.clients.now, Some(4));
    assert_eq!(view.workers.len(), 4);
    assert_eq!(view.workers[0].requests, None);
}

/// Goal: a server that started over gives no rates, and no negative ones. Method: another pid; the
/// same pid with less uptime, as in a container; a counter that was reset.
#[test]
fn what_went_backwards_is_absent() {
    let before = sample(1000, GENERAL, Some(OWN));
    for (name, value) in [("pid", "8"), ("uptime", "1")] {
        let now = with(&later_general(), &[(name, value)]);
        let view = View::between(Some(&before), &sample(2000, &now, Some(OWN)));
        assert_eq!(view.traffic.reads, None, "{name}");
        assert_eq!(view.interval_seconds, None, "{name}");
    }
    let reset = with(&later_general(), &[("cmd_get", "5")]);
    let view = View::between(Some(&before), &sample(2000, &reset, None));
    assert_eq!(view.traffic.reads, None);
    near(view.traffic.writes, 400.0);
}

#[test]
fn a_plain_memcached_shows_what_it_has() {
    let mut before = sample(0, GENERAL, None);
    let mut now = sample(2000, &later_general(), None);
    let rows = "1:addr a\n1:state conn_listening\n2:state conn_read\n3:state conn_read\n3:addr b";
    now.clients = Some(Names::of(rows));
    let view = View::between(Some(&before), &now);
    near(view.traffic.requests, 1200.0);
    assert_eq!(view.memory.limit, Some(67_108_864));
    assert_eq!(view.memory.item_bytes, Some(400));
    assert_eq!(
        view.clients.states,
        BTreeMap::from([("read".to_owned(), 2)])
    );
    assert!(view.plan.is_none() && view.moves.is_none());
    assert!(view.workers.is_empty() && view.stages.is_empty());
    // And one that says nothing at all.
    (before.general, now.general) = (Names::default(), Names::default());
    let view = View::between(Some(&before), &now);
    assert_eq!((view.traffic.requests, view.clients.now), (None, None));
}

#[test]
fn workers_have_roles_and_shares() {
    let own = with(
        OWN,
        &[
            ("requests", "6000"),
            ("worker:0:turn_cpu_us_10", "9"),
            ("worker:0:turn_cpu_us_more", "1"),
            ("worker:0:turn_cpu_us_sum", "140"),
        ],
    );
    let before = sample(0, GENERAL, Some(OWN));
    let now = sample(2000, &later_general(), Some(&own));
    let workers = View::between(Some(&before), &now).workers;
    let roles: Vec<(&str, Role)> = workers.iter().map(|w| (&*w.name, w.role)).collect();
    let wanted = [
        ("0", Role::Small),
        ("1", Role::Small),
        ("large 0", Role::Standby),
        ("large 1", Role::Idle),
    ];
    assert_eq!(roles, wanted);
    near(workers[0].requests, 1500.0);
    near(workers[1].requests, 500.0);
    near(workers[0].cpu_us_per_turn, 20.0);
    assert_eq!(workers[0].cpu_us_p99, Some(Edge::Above));
    assert_eq!(
        (workers[0].queue, workers[0].cpu_us_most),
        (Some(2), Some(99))
    );
    assert_eq!(workers[1].queue, None);
    assert_eq!(workers[2].from_bytes, Some(32_768));

    let large = with(&own, &[("large_cores", "1")]);
    let view = View::between(Some(&before), &sample(2000, GENERAL, Some(&large)));
    assert_eq!(view.workers[2].role, Role::Large);
    let plain = with(&own, &[("policy", "d-crew")]);
    let view = View::between(Some(&before), &sample(2000, GENERAL, Some(&plain)));
    assert_eq!(
        (view.workers[0].role, view.workers[2].role),
        (Role::Any, Role::Idle)
    );
}

/// Goal: counts that a server keeps for each worker count more than shares. Method: add them.
#[test]
fn workers_own_counts_are_used_when_they_are_told() {
    let told = |requests: u64| {
        format!("{OWN}\nworker:0:requests {requests}\nworker:0:turns 5\nworker:0:queue_depth 6")
    };
    let before = sample(0, GENERAL, Some(&told(10)));
    let now = sample(1000, GENERAL, Some(&told(17)));
    let workers = View::between(Some(&before), &now).workers;
    near(workers[0].requests, 7.0);
    near(workers[0].turns, 0.0);
    assert_eq!(workers[0].queue, Some(6));
    assert_eq!(workers[1].turns, None);
}

#[test]
fn stages_are_told_as_they_are_named() {
    let own = with(OWN, &[("stage:queue_requests_ahead:below_2", "15")]);
    let before = sample(0, GENERAL, Some(OWN));
    let view = View::between(Some(&before), &sample(2000, GENERAL, Some(&own)));
    let names: Vec<&str> = view.stages.iter().map(|stage| &*stage.name).collect();
    assert_eq!(names, ["queue requests ahead", "reply us, small"]);
    near(view.stages[0].per_second, 2.5);
    assert_eq!(view.stages[0].quantiles.p50, Some(Edge::Below(2)));
    assert_eq!(
        view.stages[1].quantiles.p50, None,
        "nothing in this interval"
    );
}

#[test]
fn sampled_keys_are_told_in_the_servers_order() {
    let keys = "hot_key:1 0.2500 a%20b\nhot_key_writes:1 0.0500\nhot_key:2 0.0104 c\nhot_key:3 odd";
    let own = format!("{OWN}\n{keys}");
    let view = View::between(None, &sample(0, GENERAL, Some(&own)));
    let keys: Vec<(&str, f64, Option<f64>)> = view
        .hot_keys
        .iter()
        .map(|sampled| (&*sampled.key, sampled.share, sampled.writes))
        .collect();
    assert_eq!(keys, [("a%20b", 0.25, Some(0.05)), ("c", 0.0104, None)]);
}

#[test]
fn the_plan_has_its_changes_in_the_servers_order() {
    let plan = View::between(None, &sample(0, GENERAL, Some(OWN)))
        .plan
        .unwrap();
    assert_eq!(plan.words(), "size-aware+d-crew 32768 2+0");
    let at: Vec<u64> = plan
        .changes
        .iter()
        .map(|change| change.at_seconds)
        .collect();
    assert_eq!(at, [0, 10, 2]);
    assert_eq!(plan.changes[1].what, "crew 5 1+1");
}
