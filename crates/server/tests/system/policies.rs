//! Policies: whatever decides where a request runs, clients are answered alike.

use std::{io::Write, thread, time::Duration};

use curtail_server::{Config, PolicyName, Server};
use curtail_testing::{
    Client, config, eventually, hit, http, pattern, scrape, serve, set, start, together,
};

use crate::support::beside;

fn configured(policy: PolicyName, workers: usize) -> Config {
    Config {
        policy,
        workers,
        memory_bytes_max: 128 << 20,
        item_bytes_max: 8 << 20,
        ..config()
    }
}

fn named(name: &str) -> PolicyName {
    name.parse().unwrap()
}

/// Under every policy a pipeline of small and large requests is answered in order, each read after
/// the write before it.
#[test]
fn every_policy_answers_pipelines_in_order() {
    for policy in PolicyName::all() {
        let server = start(configured(policy, 3));
        together(6, |client| converse(&server, client, 6));
        let mut client = Client::connect(&server);
        let delegated = client.stat("curtail", "delegations");
        let must = matches!(
            policy.policy,
            curtail_dispatch::Policy::Erew | curtail_dispatch::Policy::Crew
        );
        assert!(!must || delegated > 100, "{policy}: {delegated}");
        assert_eq!(client.stat("curtail", "late_releases"), 0);
        assert_eq!(client.stat("curtail", "delegations_refused"), 0);
    }
}

/// One client's rounds of pipelines.
fn converse(server: &Server, number: usize, rounds: usize) {
    let mut client = Client::connect(server);
    for round in 0..rounds {
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        for key in 0..12 {
            let name = format!("c{number}.{key}");
            let bytes = [3, 700, 3000, 5000, 40_000, 300_000][(key + round) % 6];
            let text = pattern(bytes, number + key + round);
            requests.extend(set(&name, 0, &text));
            replies.extend(b"STORED\r\n");
            requests.extend(format!("get {name}\r\nmg {name} s q\r\nmn\r\n").bytes());
            replies.extend(hit(&name, 0, &text));
            replies.extend(format!("HD s{bytes}\r\nMN\r\n").bytes());
            requests.extend(format!("delete {name} noreply\r\nget {name}\r\n").bytes());
            replies.extend(b"END\r\n");
            requests.extend(format!("set {name} 0 0 1\r\n7\r\nincr {name} 5\r\n").bytes());
            replies.extend(b"STORED\r\n12\r\n");
        }
        requests.extend(b"version\r\nbogus\r\nverbosity 0\r\n");
        let mut sender = client.stream().try_clone().unwrap();
        let sending = thread::spawn(move || sender.write_all(&requests).unwrap());
        client.expect(&replies);
        assert!(client.line().starts_with("VERSION"));
        client.expect("ERROR\r\nOK\r\n");
        sending.join().unwrap();
    }
}

/// Policies change every 2 ms: no reply is lost, doubled or misplaced, and nothing is left over.
#[test]
fn policies_change_under_load() {
    let mut config = configured(PolicyName::default(), 3);
    config.epoch_ms = 3;
    let server = start(config);
    let storm = |client: &mut Client, _| {
        for name in PolicyName::all() {
            client.demand(format!("policy {name}\r\n"), "OK\r\n");
            thread::sleep(Duration::from_millis(2));
        }
    };
    beside(&server, 1, storm, || {
        together(6, |number| converse(&server, number, 12));
    });
    let mut client = Client::connect(&server);
    for name in ["worker:0", "worker:1", "worker:2", "large:0", "large:1"] {
        client.await_stat("curtail", &format!("{name}:mailbox"), 0);
    }
    assert_eq!(visitors(&mut client), 0);
    assert_eq!(client.stat("curtail", "late_releases"), 0);
}

/// Ways in which a large request can come, each with its request and how its answer ends.
const LARGE_WAYS: [&str; 6] = ["get", "set", "append", "append long", "refused", "many"];

/// One large request in one of [`LARGE_WAYS`].
fn ask_large(client: &mut Client, way: &str, large: &[u8]) {
    match way {
        "get" => client.demand_value("large", large),
        "set" => client.set("other", large),
        // Joined to a large value, which is copied; short, or too long to come with its command.
        "append" | "append long" => {
            let more = vec![b'm'; if way == "append" { 10 } else { 6000 }];
            let head = format!("append large 0 0 {}\r\n", more.len());
            client.send([head.as_bytes(), &more, b"\r\n"].concat());
            client.expect("STORED\r\n");
            client.set("large", large);
        }
        // Longer than any value may be: the server has to receive it all the same.
        "refused" => {
            client.send(set("other", 0, vec![b'r'; 9 << 20]));
            client.expect("SERVER_ERROR object too large for cache\r\n");
        }
        _ => {
            client.send("get large none large\r\nget none\r\n");
            let one = hit("large", 0, large);
            let one = &one[..one.len() - "END\r\n".len()];
            client.expect([one, one, b"END\r\nEND\r\n"].concat());
        }
    }
}

/// Small requests while another client asks for large ones in one way, so many times; with sizes
/// together, until one small request was behind a large one. Returns how many were, and hand-offs.
fn mix(policy: &str, workers: usize, (way, large): (&str, &[u8]), times: usize) -> (u64, u64) {
    let (server, mut writer) = serve(configured(named(policy), workers));
    writer.set("large", large);
    let small = |client: &mut Client, number: usize| {
        let name = format!("small{number}");
        client.set(&name, b"v");
        client.demand_value(&name, b"v");
    };
    beside(&server, 3, small, || {
        for _ in 0..times {
            ask_large(&mut writer, way, large);
            if !policy.starts_with("size-aware") && writer.stat("curtail", "small_behind_large") > 0
            {
                break;
            }
        }
    });
    let behind = writer.stat("curtail", "small_behind_large");
    (behind, writer.stat("curtail", "hand_offs"))
}

/// With sizes apart no small request waits behind another connection's large one, in whatever way
/// that comes; with sizes together the server counts that one does. Under `erew` another worker
/// looks the key up.
#[test]
fn no_small_request_waits_behind_a_large_one() {
    let large = pattern(3 << 20, 1);
    for way in LARGE_WAYS {
        let load = (way, &*large);
        for (policy, workers) in [
            ("size-aware+d-crew", 1),
            ("size-aware-static+crcw", 1),
            ("size-aware+erew", 3),
        ] {
            let (behind, hand_offs) = mix(policy, workers, load, 3);
            assert_eq!(behind, 0, "{policy}, {way}");
            assert!(hand_offs >= 3, "{policy}, {way}: {hand_offs}");
        }
        let (behind, hand_offs) = mix("d-crew", 1, load, 200);
        assert!(behind > 0, "the count does not count: {way}");
        assert_eq!(hand_offs, 0);
    }
}

/// Also when 2, 5 and 20 % are large and epochs have learned them, each is handed over; with sizes
/// together small ones behind them are counted.
#[test]
fn frequent_large_requests_stay_apart_and_are_counted() {
    let large = pattern(500_000, 1);
    for percent in [2, 5, 20] {
        let mut config = configured(PolicyName::default(), 1);
        config.epoch_ms = 20;
        let (server, mut client) = serve(config);
        client.set("large", &large);
        let ask = |client: &mut Client| {
            (percent..100).for_each(|_| client.demand("get small\r\n", "END\r\n"));
            (0..percent).for_each(|_| ask_large(client, "get", &large));
        };
        let begun = std::time::Instant::now();
        let mut rounds = 0;
        while rounds < 30 || begun.elapsed() < Duration::from_millis(500) {
            ask(&mut client);
            rounds += 1;
        }
        let before = client.stat("curtail", "hand_offs");
        ask(&mut client);
        let hand_offs = client.stat("curtail", "hand_offs") - before;
        assert_eq!(hand_offs, percent, "{percent} %");
        client.demand("policy crcw\r\n", "OK\r\n");
        beside(&server, 3, get_small, || {
            let counted = (0..200).any(|_| {
                ask_large(&mut client, "get", &large);
                client.stat("curtail", "small_behind_large") > 0
            });
            assert!(counted, "{percent} %: nothing is counted");
        });
    }
}

fn get_small(client: &mut Client, _: usize) {
    client.demand("get small\r\n", "END\r\n");
}

/// Small requests of which the server says that 64 KB or more were moved ahead of them.
fn many_kilobytes_ahead(client: &mut Client) -> u64 {
    let count = |(name, count): (String, String)| {
        let class = name.strip_prefix("stage:ahead_kilobytes:small:")?;
        let bound = class.strip_prefix("below_").map(|bound| bound.parse());
        let is_much = bound.is_none_or(|bound: Result<u64, _>| bound.unwrap() > 64);
        is_much.then(|| count.parse::<u64>().unwrap())
    };
    client.rows("curtail").into_iter().filter_map(count).sum()
}

/// The bytes ahead of small requests show large values with sizes together, and none with sizes
/// apart; one turn in 64 is measured.
#[test]
fn bytes_ahead_of_small_requests_are_told() {
    let large = pattern(3 << 20, 1);
    for (policy, rounds_max) in [("size-aware+d-crew", 60), ("d-crew", 3000)] {
        let (server, mut client) = serve(configured(named(policy), 1));
        client.set("large", &large);
        let rounds = beside(&server, 3, get_small, || {
            (0..rounds_max).position(|_| {
                client.demand_value("large", &large);
                many_kilobytes_ahead(&mut client) > 0
            })
        });
        assert_eq!(rounds.is_some(), policy == "d-crew", "{policy}: {rounds:?}");
    }
}

/// No small request waits while large ones are refused: both large workers are full.
#[test]
fn refused_large_requests_keep_nobody_waiting() {
    let mut config = configured(PolicyName::default(), 1);
    config.large_connections_max = 1;
    let (server, mut client) = serve(config);
    let large = pattern(5 << 20, 3);
    client.set("large", &large);
    eventually("the writer is back", || visitors(&mut client) == 0);
    let mut slow = [(); 2].map(|()| SlowReader::new(&server));
    await_visitors(&mut client, 2);
    let set_small = |client: &mut Client, _: usize| client.set("small", "v");
    beside(&server, 1, set_small, || {
        for _ in 0..4 {
            client.send(set("other", 0, &large));
            client.expect("SERVER_ERROR busy\r\n");
            client.demand("append large 0 0 1\r\nv\r\n", "SERVER_ERROR busy\r\n");
        }
        client.demand("get none\r\n", "END\r\n");
    });
    assert_eq!(client.stat("curtail", "large_refused"), 8);
    assert_eq!(client.stat("curtail", "small_behind_large"), 0);
    slow.iter_mut().for_each(|slow| slow.read(&large));
}

/// A client that asks for more large values than sockets can hold, and reads them later.
struct SlowReader(Client);

impl SlowReader {
    const UNREAD: usize = 4;

    fn new(server: &Server) -> Self {
        let mut client = Client::connect(server);
        client.send("get large\r\n".repeat(Self::UNREAD));
        Self(client)
    }

    fn read(&mut self, large: &[u8]) {
        (0..Self::UNREAD).for_each(|_| self.0.expect(hit("large", 0, large)));
    }
}

/// Connections with the two large workers that a server with one or two workers has.
fn visitors(client: &mut Client) -> u64 {
    client.stat("curtail", "large:0:connections") + client.stat("curtail", "large:1:connections")
}

/// Waits until `count` connections are with large workers, and stay there.
fn await_visitors(client: &mut Client, count: u64) {
    eventually("connections are away", || {
        let mut away = || visitors(client) == count;
        let now = away();
        thread::sleep(Duration::from_millis(100));
        now && away()
    });
}

/// Clients that do not read large values delay neither other large requests nor their worker.
#[test]
fn large_workers_serve_around_slow_readers() {
    let (server, mut client) = serve(configured(PolicyName::default(), 1));
    let large = pattern(7 << 20, 5);
    client.set("large", &large);
    let slow = [(); 2].map(|()| SlowReader::new(&server));
    let mut half = Client::connect(&server);
    half.send(&set("other", 0, &large)[..1 << 20]);
    await_visitors(&mut client, 3);
    for _ in 0..3 {
        client.demand_value("large", &large);
    }
    for mut slow in slow {
        slow.read(&large);
        slow.0.demand("get none\r\n", "END\r\n");
    }
    drop(half);
    eventually("all are back", || {
        visitors(&mut client) == 0 && client.stat("", "curr_connections") == 1
    });
}

/// Commands and HTTP show and change the policy, unless that is forbidden.
#[test]
fn the_policy_can_be_changed() {
    let config = Config {
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..configured(PolicyName::default(), 2)
    };
    let (server, mut client) = serve(config.clone());
    let ask = |server: &Server, line: &str| http(server.admin_address().unwrap(), line);
    client.demand("policy\r\n", "POLICY size-aware+d-crew\r\n");
    client.demand("policy crew\r\npolicy\r\n", "OK\r\nPOLICY crew\r\n");
    client.demand("policy best\r\n", "CLIENT_ERROR no such policy\r\n");
    client.demand("policy a b\r\n", "ERROR\r\n");
    assert!(ask(&server, "GET /policy").ends_with("crew\n"));
    let name = "size-aware-static+erew";
    let answer = ask(&server, &format!("PUT /policy/{name}"));
    assert!(answer.ends_with(&format!("{name}\n")), "{answer}");
    assert!(ask(&server, "PUT /policy/best").starts_with("HTTP/1.1 400"));
    client.demand("policy\r\n", format!("POLICY {name}\r\n"));
    let info = format!("curtail_policy_info{{name=\"{name}\"}} 1");
    assert!(scrape(&server).contains(&info));
    assert_eq!(client.stat("curtail", "regime"), 3);
    let (server, mut client) = serve(Config {
        policy_change_allowed: false,
        ..config
    });
    let refusal =
        "CLIENT_ERROR the policy is fixed (--fixed-policy, --tier disk or --tier-file)\r\n";
    client.demand("policy crew\r\n", refusal);
    assert!(ask(&server, "PUT /policy/crew").starts_with("HTTP/1.1 403"));
    client.demand("policy\r\n", "POLICY size-aware+d-crew\r\n");
}

/// The threshold follows the load: mostly values of 100 KB, then of one byte.
#[test]
fn the_threshold_is_learned() {
    let mut config = configured(PolicyName::default(), 2);
    config.epoch_ms = 20;
    let (_server, mut client) = serve(config);
    assert_eq!(client.stat("curtail", "threshold"), 32 << 10);
    client.set("large", pattern(100_000, 0));
    client.set("small", "v");
    let learns = |client: &mut Client, key: &str, bytes: usize, above: u64| {
        let answer = hit(key, 0, vec![b'v'; bytes]).len();
        eventually("the threshold moves", || {
            for _ in 0..3 {
                client.send(format!("get {key}\r\n").repeat(100));
                assert_eq!(client.take(100 * answer).len(), 100 * answer);
            }
            let threshold = client.stat("curtail", "threshold");
            (threshold > 100_000) == (above > 100_000)
        });
    };
    learns(&mut client, "large", 100_000, 100_001);
    learns(&mut client, "small", 1, 0);
}

/// Beyond two for each of two large workers, which help each other first, large requests get
/// `busy`, and small ones are served.
#[test]
fn too_many_large_requests_are_told_so() {
    let mut config = configured(PolicyName::default(), 1);
    config.large_connections_max = 2;
    let (server, mut client) = serve(config);
    let large = pattern(5 << 20, 3);
    client.set("large", &large);
    // The reply is sent before the connection is back, and until then it counts.
    eventually("the writer is back", || visitors(&mut client) == 0);
    let mut slow = [1, 2, 3, 4].map(|number| {
        let slow = SlowReader::new(&server);
        await_visitors(&mut client, number);
        slow
    });
    assert_eq!(client.stat("curtail", "large:1:connections"), 2);
    assert_eq!(client.stat("curtail", "hand_offs_relieved"), 2);
    client.demand("get large\r\nget none\r\n", "SERVER_ERROR busy\r\nEND\r\n");
    client.send(set("other", 0, &large));
    client.expect("SERVER_ERROR busy\r\n");
    client.demand("set small 0 0 1\r\nv\r\nget other\r\n", "STORED\r\nEND\r\n");
    assert_eq!(client.stat("curtail", "large_refused"), 2);
    slow.iter_mut().for_each(|slow| slow.read(&large));
    eventually("there is room again", || visitors(&mut client) == 0);
    client.demand_value("large", &large);
}

/// A `watch` or `quit` in the packet of a large read takes effect behind its value.
#[test]
fn what_follows_a_large_value_follows_it() {
    let (server, mut client) = serve(configured(PolicyName::default(), 1));
    let large = pattern(3 << 20, 3);
    client.set("large", &large);
    let mut watcher = Client::connect(&server);
    watcher.send("get large\r\nwatch fetchers\r\n");
    watcher.expect(hit("large", 0, &large));
    watcher.expect("OK\r\n");
    client.demand("get none\r\n", "END\r\n");
    assert!(watcher.line().contains("key=none"));
    let mut leaver = Client::connect(&server);
    leaver.send("get large\r\nquit\r\n");
    leaver.expect(hit("large", 0, &large));
    leaver.expect_closed();
}
