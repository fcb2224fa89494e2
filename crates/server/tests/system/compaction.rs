//! Compaction: requests that are carried out as one are answered, counted and told as if each had
//! been carried out by itself.

use std::collections::BTreeMap;

use curtail_server::{Config, Server};
use curtail_testing::{Client, config, hit, serve, set, start, together};
use curtail_workload::Random;

/// Two servers that differ in nothing but whether they compact.
fn pair(config: &Config) -> [Server; 2] {
    [true, false].map(|compaction| {
        start(Config {
            compaction,
            ..config.clone()
        })
    })
}

/// Values from which counting goes over an edge, or is refused.
const VALUES: [&str; 9] = [
    "0",
    "7",
    "98",
    "997  ",
    "18446744073709551613",
    "18446744073709551615",
    "word",
    "",
    "3 words",
];

/// Pipelines: runs of one kind, with what may stand between, before and behind them.
fn pipeline(random: &mut Random) -> String {
    let mut text = String::new();
    while text.len() < 1500 {
        let key = random.one_of(&["a", "b", "counter"]);
        let quiet = random.one_of(&["", "", "", " noreply"]);
        let delta = random.one_of(&["1", "1", "2", "95", "18446744073709551615"]);
        let value = random.one_of(&VALUES);
        let value = format!("{}\r\n{value}\r\n", value.len());
        let kinds = [
            format!("incr {key} {delta}{quiet}\r\n"),
            format!("incr {key} {delta}{quiet}\r\n"),
            format!("decr {key} {delta}{quiet}\r\n"),
            format!("ma {key} D{delta} v t k O7\r\n"),
            format!("ma {key} q v\r\n"),
            format!("ma {key} N60 J5 MD D1 v\r\n"),
            format!("ma {key} T90 v t\r\n"),
            format!("set {key} 3 0 {value}"),
            format!("set {key} 3 100 {value}"),
            format!("ms {key} {} k O9\r\n{}\r\n", 4, "5678"),
            format!("append {key} 0 0 2{quiet}\r\n12\r\n"),
            format!("ms {key} 1 MA N30\r\n3\r\n"),
            format!("prepend {key} 0 0 1\r\n4\r\n"),
            format!("touch {key} 500{quiet}\r\n"),
            format!("touch {key} -1\r\n"),
            format!("delete {key}{quiet}\r\n"),
            format!("md {key} q\r\n"),
            format!("add {key} 0 0 {value}"),
        ];
        let kind = &kinds[random.below(kinds.len() as u64) as usize];
        for _ in 0..=random.below(9) {
            text += kind;
            if random.below(12) == 0 {
                text += &format!("mg {key} v f s t h\r\n");
            }
            if random.below(12) == 0 {
                // The same kind again, but not the same request.
                text += &format!("incr {key} 3\r\nset {key} 1 0 1\r\n8\r\n");
            }
        }
    }
    text + "mn\r\n"
}

/// Everything that comes back, up to the answer to the last request.
fn answers(client: &mut Client, pipeline: &str) -> Vec<String> {
    client.send(pipeline);
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line| line != "MN") {
        let line = client.line();
        let words: Vec<String> = line.split(' ').map(rounded).collect();
        lines.push(words.join(" "));
    }
    lines
}

/// A time to live in tens of seconds: a second may end between the answers of two servers.
fn rounded(word: &str) -> String {
    let seconds = word.strip_prefix('t').and_then(|text| text.parse().ok());
    seconds.map_or_else(
        || word.to_owned(),
        |seconds: i64| format!("t{}", (seconds + 5).div_euclid(10) * 10),
    )
}

/// What counts requests, by name.
fn counts(client: &mut Client) -> BTreeMap<String, String> {
    let mut counts = client.rows("");
    counts.retain(|(name, _)| {
        let counts_requests = [
            "cmd_", "get_", "incr_", "decr_", "touch_", "delete_", "cas_",
        ];
        // An expired item is counted by the read that finds it, unless background maintenance was
        // first, which differs from server to server.
        let counted =
            name != "get_expired" && counts_requests.iter().any(|begin| name.starts_with(begin));
        counted || name == "total_items" || name == "curr_items"
    });
    counts.into_iter().collect()
}

/// A server that compacts and one that does not give the same answers and counts to random
/// pipelines.
#[test]
fn compaction_changes_no_answer_and_no_count() {
    for (workers, policy) in [(1, "size-aware+d-crew"), (2, "crew")] {
        let servers = pair(&Config {
            workers,
            policy: policy.parse().unwrap(),
            detail: true,
            ..config()
        });
        let mut clients = servers.each_ref().map(Client::connect);
        for seed in 0..150 {
            let text = pipeline(&mut Random::new(seed * 7919 + 13));
            let [folded, single] = clients.each_mut().map(|client| answers(client, &text));
            assert_eq!(folded, single, "{policy}, pipeline {seed}:\n{text}");
        }
        let [folded, single] = clients.each_mut().map(counts);
        assert_eq!(folded, single, "{policy}");
        let detail = |client: &mut Client| {
            client.send("stats detail dump\r\n");
            client.line()
        };
        let [folded, single] = clients.each_mut().map(detail);
        assert_eq!(folded, single, "{policy}");
        let compacted = |client: &mut Client| client.stat("curtail", "writes_compacted");
        let [folded, single] = clients.each_mut().map(compacted);
        assert!(folded > 1000 && single == 0, "{policy}: {folded}, {single}");
    }
}

/// The lines that a watcher got, without times, numbers and places.
fn told(watcher: &mut Client, until: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = watcher.line();
        let words = line.split(' ').skip(2);
        let kept = words.filter(|word| !word.starts_with("cfd="));
        let line = kept.collect::<Vec<_>>().join(" ");
        if line.contains(until) {
            return lines;
        }
        lines.push(line);
    }
}

/// Watchers get the same lines with compaction as without.
#[test]
fn compaction_changes_no_line_of_a_watcher() {
    let servers = pair(&Config {
        watcher_bytes_max: 64 << 20,
        journal_bytes_max: 8 << 20,
        ..config()
    });
    let mut clients = servers.each_ref().map(Client::connect);
    let mut watchers = servers.each_ref().map(Client::connect);
    for watcher in &mut watchers {
        watcher.demand("watch fetchers mutations\r\n", "OK\r\n");
    }
    for seed in 0..100 {
        let text = pipeline(&mut Random::new(seed * 104_729 + 7));
        for client in &mut clients {
            answers(client, &text);
            client.demand("get the.end\r\n", "END\r\n");
        }
        let [folded, single] = watchers
            .each_mut()
            .map(|watcher| told(watcher, "key=the.end"));
        assert!(!folded.is_empty());
        assert_eq!(folded, single, "pipeline {seed}:\n{text}");
    }
    assert!(clients[0].stat("curtail", "writes_compacted") > 500);
}

/// In a full store each answer of a compacted run holds: what is said to be stored is there.
#[test]
fn runs_in_a_full_store_are_answered_truly() {
    let (_server, mut client) = serve(Config {
        evict: false,
        memory_bytes_max: 8 << 20,
        ..config()
    });
    let counters = 200;
    for counter in 0..counters {
        client.set(format_args!("n{counter}"), "7");
    }
    let fill = "x".repeat(900);
    let mut refused = false;
    for item in 0..20_000 {
        client.send(format!("set fill{item} 0 0 900\r\n{fill}\r\n"));
        refused |= client.line() != "STORED";
    }
    assert!(refused, "the store is not full");
    let (mut stored, mut not_stored, mut counted, mut not_counted) = (0, 0, 0, 0);
    for counter in 0..counters {
        // Over the edge to more digits than there may be room for.
        let much = 10_u64.pow(18);
        client.send(format!("incr n{counter} 1\r\n").repeat(5));
        client.send(format!("incr n{counter} {much}\r\n").repeat(3));
        let mut number = 7;
        for step in [1, 1, 1, 1, 1, much, much, much] {
            let line = client.line();
            match line.parse::<u64>() {
                Ok(after) => {
                    number += step;
                    counted += 1;
                    assert_eq!(after, number);
                }
                Err(_) => {
                    not_counted += 1;
                    assert!(line.starts_with("SERVER_ERROR out of memory"), "{line}");
                }
            }
        }
        assert_eq!(
            client.get(&format!("n{counter}")).unwrap().trim_end(),
            number.to_string()
        );
        // As many new bytes as there are anywhere, and a few.
        let (long, short) = ("y".repeat(1000), "z".repeat(10));
        let new = format!("new{counter}");
        let write = |value: &str| set(&new, 0, value).repeat(2);
        client.send([write(&short), write(&long)].concat());
        let last = (0..4).map(|_| client.line()).last().unwrap();
        client.send(format!("get {new}\r\n"));
        if last == "STORED" {
            stored += 1;
            client.expect(hit(&new, 0, &long));
        } else {
            not_stored += 1;
            assert!(last.starts_with("SERVER_ERROR out of memory"), "{last}");
            client.expect("END\r\n");
        }
    }
    println!("stored {stored}, not {not_stored}; counted {counted}, not {not_counted}");
    assert!(not_stored > 0 && counted > 0 && not_counted > 0);
}

/// Each increment of a shared counter has its own answer, and none is lost.
#[test]
fn many_count_one_counter_and_none_is_lost() {
    for policy in ["crcw", "d-crew", "crew"] {
        let server = start(Config {
            workers: 2,
            policy: policy.parse().unwrap(),
            ..config()
        });
        let (clients, rounds, depth) = (8, 60, 50);
        let mut first = Client::connect(&server);
        first.set("n", "0");
        let seen = together(clients, |_| {
            let mut client = Client::connect(&server);
            let mut own = Vec::new();
            for _ in 0..rounds {
                client.send("incr n 1\r\n".repeat(depth));
                own.extend((0..depth).map(|_| client.line().parse::<u64>().unwrap()));
            }
            assert!(own.is_sorted(), "{policy}");
            own
        });
        let mut seen = seen.concat();
        seen.sort_unstable();
        let total = (clients * rounds * depth) as u64;
        assert!(seen.into_iter().eq(1..=total), "{policy}");
        assert_eq!(first.stat("", "incr_hits"), total, "{policy}");
        let compacted = first.stat("curtail", "writes_compacted");
        assert!(compacted > total / 2, "{policy}: {compacted}");
    }
}
