//! `watch`: who watches is told what happens, holds nobody up, and changes nothing.

use std::time::Duration;

use curtail_server::{Config, PolicyName};
use curtail_testing::{Client, assert_contains, config, config_with, eventually, serve};

/// The fields of a line, without what differs from run to run.
fn told(watcher: &mut Client) -> String {
    let line = watcher.line();
    let mut words = line.split(' ');
    let time = words.next().unwrap();
    assert!(time.starts_with("ts=") && time.contains('.'), "{line}");
    assert!(words.next().unwrap().starts_with("gid="), "{line}");
    let kept = words.filter(|word| !word.starts_with("cfd=") && !word.starts_with("rport="));
    kept.collect::<Vec<_>>().join(" ")
}

#[test]
fn fetches_and_writes_are_told_in_order() {
    let (server, mut client) = serve(config());
    let mut watcher = Client::connect(&server);
    client.demand("mn\r\n", "MN\r\n");
    watcher.demand("watch fetchers mutations\r\n", "OK\r\n");
    client.demand("set a 0 50 4\r\nabcd\r\n", "STORED\r\n");
    client.demand("get a b\r\n", "VALUE a 0 4\r\nabcd\r\nEND\r\n");
    client.demand("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    client.demand("ms AAE= 2 b\r\nhi\r\n", "HD\r\n");
    client.demand("cas c 0 0 1 7\r\nx\r\n", "NOT_FOUND\r\n");
    for line in [
        "type=item_get key=a status=not_found clsid=0 size=0",
        "type=item_store key=a status=stored cmd=set ttl=50 clsid=1 size=4",
        "type=item_get key=a status=found clsid=1 size=4",
        "type=item_get key=b status=not_found clsid=0 size=0",
        "type=item_get key=a status=found clsid=1 size=4",
        "type=item_store key=a status=not_stored cmd=add ttl=0 clsid=1 size=1",
        "type=item_get key=%00%01 status=not_found clsid=0 size=0",
        "type=item_store key=%00%01 status=stored cmd=set ttl=0 clsid=1 size=2",
        "type=item_get key=c status=not_found clsid=0 size=0",
        "type=item_store key=c status=not_found cmd=cas ttl=0 clsid=1 size=1",
    ] {
        assert_eq!(told(&mut watcher), line);
    }
}

/// Watchers see a large write, sent with a pause inside, once it ends, and one that is too large.
#[test]
fn large_writes_are_told_when_they_end() {
    let (server, mut client) = serve(config());
    let mut watcher = Client::connect(&server);
    watcher.demand("watch mutations\r\n", "OK\r\n");
    client.send("set big 0 0 100000\r\n");
    client.send(vec![b'x'; 60_000]);
    std::thread::sleep(Duration::from_millis(20));
    client.send(vec![b'x'; 40_000]);
    client.demand("\r\n", "STORED\r\n");
    client.send("set huge 0 0 2000000\r\n");
    client.send(vec![b'x'; 2_000_000]);
    client.demand("\r\n", "SERVER_ERROR object too large for cache\r\n");
    // One is told by a large worker, the other by a worker: in the order in which their turns end.
    let mut lines = [told(&mut watcher), told(&mut watcher)];
    lines.sort();
    assert_eq!(
        lines[0],
        "type=item_store key=big status=stored cmd=set ttl=0 clsid=1 size=100000"
    );
    assert!(lines[1].contains("key=huge status=too_large"));
}

/// Watchers see connections of both workers open and close, with the reason.
#[test]
fn connections_are_told_with_how_they_ended() {
    let (server, mut watcher) = serve(config_with(|config| config.workers = 2));
    watcher.demand("watch connevents\r\n", "OK\r\n");
    for _ in 0..2 {
        let mut client = Client::connect(&server);
        client.demand("mn\r\n", "MN\r\n");
        let opened = "type=conn_new rip=127.0.0.1 transport=tcp";
        assert_eq!(told(&mut watcher), opened);
        client.send("quit\r\n");
        let closed = "type=conn_close rip=127.0.0.1 transport=tcp reason=normal";
        assert_eq!(told(&mut watcher), closed);
        let mut client = Client::connect(&server);
        client.send("GET / HTTP/1.1\r\n");
        assert_eq!(told(&mut watcher), opened);
        let closed = "type=conn_close rip=127.0.0.1 transport=tcp reason=error";
        assert_eq!(told(&mut watcher), closed);
    }
}

#[test]
fn evictions_are_told() {
    let (server, mut client) = serve(config_with(|config| config.memory_bytes_max = 8 << 20));
    let mut watcher = Client::connect(&server);
    watcher.demand("watch evictions\r\n", "OK\r\n");
    let value = "x".repeat(1000);
    for item in 0..20_000 {
        client.send(format!("set item-{item} 0 0 1000 noreply\r\n{value}\r\n"));
    }
    client.demand("mn\r\n", "MN\r\n");
    let line = told(&mut watcher);
    assert!(line.starts_with("type=eviction key=item-"), "{line}");
    assert_contains(&line, " fetch=no ttl=-1 la=");
    assert!(line.ends_with(" clsid=1 size=1000"), "{line}");
}

/// A watcher whose small buffer overflowed learns how many lines it missed.
#[test]
fn a_watcher_that_does_not_read_is_told_what_it_missed() {
    let (server, mut client) = serve(config_with(|config| config.watcher_bytes_max = 8 << 10));
    let mut watcher = Client::connect(&server);
    watcher.demand("watch\r\n", "OK\r\n");
    assert_eq!(client.stat("", "log_watchers"), 1);
    let request = format!("get {}\r\n", "/".repeat(250)).repeat(100);
    let reply = "END\r\n".repeat(100);
    eventually("lines are skipped", || {
        client.demand(&request, &reply);
        client.stat("", "log_watcher_skipped") > 1000
    });
    let mut skipped = 0;
    while skipped == 0 {
        client.demand("get a\r\n", "END\r\n");
        let line = watcher.line();
        if let Some(number) = line.strip_prefix("skipped=") {
            skipped = number.parse().unwrap();
        }
    }
    assert!(told(&mut watcher).starts_with("type=item_get key="));
    drop(watcher);
    client.await_stat("", "log_watchers", 0);
}

#[test]
fn watching_has_its_limits() {
    let (server, mut client) = serve(config());
    client.demand("watch what\r\n", "ERROR\r\n");
    let watchers: Vec<Client> = (0..20)
        .map(|_| {
            let mut watcher = Client::connect(&server);
            watcher.demand("watch mutations\r\n", "OK\r\n");
            watcher
        })
        .collect();
    client.demand(
        "watch\r\n",
        "WATCHER_TOO_MANY log watcher limit reached\r\n",
    );
    drop(watchers);
    client.await_stat("", "log_watchers", 0);

    let (_server, mut client) = serve(config_with(|config| config.watch_allowed = false));
    client.demand("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n");
}

/// Watching, and `verbosity`, do not change where requests run.
#[test]
fn looking_on_changes_no_policy() {
    for looks in [
        "watch connevents\r\n",
        "watch evictions\r\n",
        "watch fetchers\r\n",
        "watch mutations\r\n",
        "verbosity 2\r\n",
    ] {
        let (server, mut onlooker) = serve(Config {
            workers: 2,
            policy: "crew".parse::<PolicyName>().unwrap(),
            ..config()
        });
        onlooker.demand(looks, "OK\r\n");
        let mut client = Client::connect(&server);
        for key in 0..100 {
            client.set(format_args!("k{key}"), "v");
        }
        let delegated = client.stat("curtail", "delegations");
        assert!(delegated > 10, "{looks:?}: {delegated}");
        client.demand("verbosity 0\r\n", "OK\r\n");
    }
}

/// Watchers see requests that other workers execute, in the order of each key.
#[test]
fn what_is_carried_out_elsewhere_is_told() {
    let (server, mut watcher) = serve(Config {
        workers: 3,
        policy: "erew".parse::<PolicyName>().unwrap(),
        ..config()
    });
    watcher.demand("watch fetchers mutations\r\n", "OK\r\n");
    let mut client = Client::connect(&server);
    client.demand("mn\r\n", "MN\r\n");
    let keys = 40;
    for key in 0..keys {
        client.set(format_args!("k{key}"), "v");
        client.demand(format!("append k{key} 0 0 1\r\nw\r\n"), "STORED\r\n");
        client.demand_value(format_args!("k{key}"), "vw");
    }
    assert!(client.stat("curtail", "delegations") > keys);
    let mut lines: Vec<String> = (0..5 * keys).map(|_| told(&mut watcher)).collect();
    for key in 0..keys {
        let name = format!("key=k{key} ");
        let of_key: Vec<String> = lines.extract_if(.., |line| line.contains(&name)).collect();
        let get = |found| format!("type=item_get {name}status={found}");
        let store = |command| format!("type=item_store {name}status=stored cmd={command} ttl=0");
        let expected = [
            get("not_found clsid=0 size=0"),
            store("set") + " clsid=1 size=1",
            get("found clsid=1 size=1"),
            store("append") + " clsid=1 size=1",
            get("found clsid=1 size=2"),
        ];
        assert_eq!(of_key, expected);
    }
    assert!(lines.is_empty(), "{lines:?}");
}

/// The rows of `stats slow`, and how many requests were slow.
fn slow(client: &mut Client) -> (Vec<String>, u64) {
    let count = client.stat("slow", "slow_requests");
    let rows = client.rows("slow").into_iter();
    let slow = rows.filter(|(name, _)| name.starts_with("slow:"));
    (
        slow.map(|(name, row)| format!("{name} {row}")).collect(),
        count,
    )
}

/// `stats slow` lists requests from the threshold on (every one takes a microsecond, none takes a
/// minute), the newest 128 of them.
#[test]
fn slow_requests_are_listed_from_the_threshold_on() {
    let (server, mut client) = serve(config());
    let mut watcher = Client::connect(&server);
    watcher.demand("watch slow\r\n", "OK\r\n");
    client.set("a", "x");
    assert_eq!(
        slow(&mut client),
        (Vec::new(), 0),
        "it is off unless asked for"
    );
    client.demand("stats slow threshold 60000000\r\n", "OK\r\n");
    client.demand_value("a", "x");
    assert_eq!(slow(&mut client), (Vec::new(), 0), "nothing took a minute");
    client.demand(
        "stats slow threshold x\r\n",
        "CLIENT_ERROR bad command line format\r\n",
    );
    client.demand("stats slow threshold 1\r\n", "OK\r\n");
    client.set("a%b", "value");
    eventually("the write is listed", || {
        slow(&mut client)
            .0
            .iter()
            .any(|row| row.contains(" cmd=set key=a%25b size=5 us="))
    });
    let line = loop {
        let line = watcher.line();
        if line.contains("cmd=set") {
            break line;
        }
    };
    assert_contains(&line, " type=slow cmd=set key=a%25b size=5 us=");
    assert_contains(&line, " worker=0 cfd=");
    for _ in 0..200 {
        client.demand_value("a", "x");
    }
    let (rows, count) = slow(&mut client);
    assert_eq!(rows.len(), 128, "the newest are kept");
    assert!(count > 200, "{count}");
    client.demand("stats slow threshold 0\r\n", "OK\r\n");
    client.demand("stats reset\r\n", "RESET\r\n");
    client.demand_value("a", "x");
    assert_eq!(slow(&mut client), (Vec::new(), 0));
}

/// A large value sent with a pause inside is slow by the pause.
#[test]
fn a_large_request_is_slow_as_long_as_it_takes() {
    let (_server, mut client) = serve(config_with(|config| config.slow_us = 100_000));
    client.send("set big 0 0 100000\r\n");
    client.send(vec![b'x'; 60_000]);
    std::thread::sleep(Duration::from_millis(150));
    client.send(vec![b'x'; 40_000]);
    client.demand("\r\n", "STORED\r\n");
    eventually("the value is listed", || {
        slow(&mut client)
            .0
            .iter()
            .any(|row| row.contains(" cmd=set key=big size=100000 us="))
    });
}

/// A delegated request is listed once, and the end of a `get` of many keys not at all.
#[test]
fn a_request_is_slow_once_wherever_it_runs() {
    let (_server, mut client) = serve(Config {
        workers: 3,
        policy: "erew".parse::<PolicyName>().unwrap(),
        slow_us: 1,
        ..config()
    });
    for key in 0..40 {
        client.demand(format!("delete k{key}\r\n"), "NOT_FOUND\r\n");
    }
    client.demand("get k1 k2 k3\r\n", "END\r\n");
    let named = |rows: &[String], command: &str| {
        let name = format!(" cmd={command} ");
        rows.iter().filter(|row| row.contains(&name)).count()
    };
    eventually("all are listed", || {
        let (rows, _) = slow(&mut client);
        named(&rows, "delete") >= 40 && named(&rows, "get") >= 3
    });
    assert!(client.stat("curtail", "delegations") > 10);
    let (rows, _) = slow(&mut client);
    let counts = ["delete", "get", "other"].map(|command| named(&rows, command));
    assert_eq!(counts, [40, 3, 0], "{rows:#?}");
}

/// A server that lists no keys (`-X`) shows none here either.
#[test]
fn keys_are_not_shown_where_they_must_not_be_listed() {
    let mut config = config();
    (config.slow_us, config.dump_allowed) = (1, false);
    let (_server, mut client) = serve(config);
    client.demand("get secret\r\n", "END\r\n");
    eventually("the read is listed", || {
        let (rows, _) = slow(&mut client);
        assert!(rows.iter().all(|row| !row.contains("secret")), "{rows:?}");
        rows.iter().any(|row| row.contains(" cmd=get key=- "))
    });
}
