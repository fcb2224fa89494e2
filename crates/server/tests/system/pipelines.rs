//! Many requests at once, cut anywhere, from several clients.

use std::thread;

use curtail_testing::{Client, config, config_with, hit, serve, set, start, together};

/// A conversation that touches text and meta commands, values, misses, errors and silence.
const REQUESTS: &str = "set a 5 0 3\r\nabc\r\nget a b a\r\nmg a v f k Oxy\r\nmg none v\r\nmn\r\n\
    ms b 4 T0 c\r\nwxyz\r\nincr a 1\r\nset n 0 0 2\r\n41\r\nincr n 1\r\nbogus\r\n\
    set q 0 0 1 noreply\r\nz\r\nget q\r\nset bad 0 0 3\r\nabcd\r\ndelete a\r\ndelete a\r\n\
    append n 0 0 1\r\n0\r\ntouch n 100\r\ngets none\r\nmd n q\r\nversion\r\n";

/// What comes back, up to the version of `b`.
const REPLIES_1: &str = "STORED\r\nVALUE a 5 3\r\nabc\r\nVALUE a 5 3\r\nabc\r\nEND\r\n\
    VA 3 f5 ka Oxy\r\nabc\r\nEN\r\nMN\r\nHD c";

const REPLIES_2: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\nSTORED\r\n\
    42\r\nERROR\r\nVALUE q 0 1\r\nz\r\nEND\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\nDELETED\r\n\
    NOT_FOUND\r\nSTORED\r\nTOUCHED\r\nEND\r\nVERSION ";

#[track_caller]
fn check_replies(client: &mut Client) {
    client.expect(REPLIES_1);
    let version = client.line();
    assert!(version.parse::<u64>().unwrap() > 0);
    client.expect(REPLIES_2);
    assert!(client.line().starts_with("1.6"));
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let (_server, mut client) = serve(config());
    for _ in 0..3 {
        client.send(REQUESTS);
        check_replies(&mut client);
        client.demand("flush_all\r\n", "OK\r\n");
    }
}

/// Answers do not depend on where the bytes of a conversation are cut.
#[test]
fn a_request_may_be_cut_at_every_byte() {
    let (server, mut observer) = serve(config());
    let mut client = Client::connect(&server);
    for cut in 1..REQUESTS.len() {
        let before = observer.stat("", "bytes_read");
        client.send(&REQUESTS[..cut]);
        // The observer's own question counts too; the worker answers it after the first part or
        // together with it.
        let _ = observer.stat("", "bytes_read") > before;
        client.send(&REQUESTS[cut..]);
        check_replies(&mut client);
        client.demand("flush_all\r\n", "OK\r\n");
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let (_server, mut client) = serve(config());
    for byte in REQUESTS.as_bytes() {
        client.send([*byte]);
    }
    check_replies(&mut client);
}

/// Requests beyond one turn's share of 7 are answered in later turns, in order.
#[test]
fn a_deep_pipeline_takes_many_turns() {
    let (_server, mut client) = serve(config_with(|config| config.requests_per_turn_max = 7));
    client.set("n", "0");
    let count = 20_000;
    let requests = "incr n 1\r\n".repeat(count);
    let replies: String = (1..=count).map(|n| format!("{n}\r\n")).collect();
    let mut sender = client.stream().try_clone().unwrap();
    let sending = thread::spawn(move || {
        std::io::Write::write_all(&mut sender, requests.as_bytes()).unwrap();
    });
    client.expect(replies);
    sending.join().unwrap();
    assert!(client.stat("", "conn_yields") > 100);
}

/// Two workers never mix up the replies of 16 pipelining clients.
#[test]
fn two_workers_serve_many_clients() {
    let server = start(config_with(|config| config.workers = 2));
    together(16, |number| {
        let mut client = Client::connect(&server);
        for round in 0..50 {
            let (mut requests, mut replies) = (Vec::new(), Vec::new());
            for key in 0..20 {
                let name = format!("k{number}.{key}");
                let value = format!("{number}/{round}/{key}");
                requests.extend(set(&name, 0, &value));
                requests.extend(format!("get {name}\r\n").bytes());
                replies.extend(b"STORED\r\n");
                replies.extend(hit(&name, 0, &value));
            }
            client.demand(requests, &replies);
        }
    });
    let mut client = Client::connect(&server);
    for name in ["cmd_get", "get_hits", "cmd_set"] {
        assert_eq!(client.stat("", name), 16 * 50 * 20, "{name}");
    }
    assert!(client.stat("curtail", "worker:1:connections") < 10);
}

#[test]
fn stats_has_memcacheds_83_names() {
    let mut config = config();
    config.echoed.lru_crawler = false;
    config.echoed.lru_maintainer = false;
    let (_server, mut client) = serve(config);
    let rows = client.rows("").into_iter();
    let names: std::collections::BTreeSet<String> = rows.map(|(name, _)| name).collect();
    assert_eq!(names.len(), 83, "{names:?}");
}

/// A refused append does not take the right to recache a stale item from the next reader.
#[test]
fn a_refused_append_takes_nobodys_right_to_recache() {
    let (_server, mut client) = serve(config());
    client.demand("ms key 1\r\na\r\n", "HD\r\n");
    client.demand("md key I\r\n", "HD\r\n");
    client.demand("ms key 1 MA C1\r\nb\r\n", "EX\r\n");
    client.demand("mg key v\r\n", "VA 1 X W\r\na\r\n");
}

/// No item has version 0, and each command that compares takes it as memcached does.
#[test]
fn version_0_is_that_of_no_item() {
    let (_server, mut client) = serve(config());
    client.set("k", "1");
    client.demand("cas k 0 0 1 0\r\n2\r\n", "EXISTS\r\n");
    client.demand("ms k 1 C0\r\n3\r\n", "EX\r\n");
    client.demand("ms k 1 C0 I\r\n4\r\n", "EX\r\n");
    client.demand("md k C0\r\n", "EX\r\n");
    client.demand("ma k C1 v\r\n", "EX\r\n");
    client.demand("ma k C0 v\r\n", "VA 1\r\n2\r\n");
}
