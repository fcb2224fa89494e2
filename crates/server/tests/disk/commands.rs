//! Every command finds its item on disk when memory does not have it, with its flags, its end and
//! its CAS.

use curtail_testing::{Client, pattern, set, start};

use crate::support::{bounded, disk_config, folder, push_out, serve_disk};

/// A line of `gets`: flags, bytes, CAS.
fn gets(client: &mut Client, key: &str) -> Option<(u32, String, u64)> {
    client.send(format!("gets {key}\r\n"));
    let head = client.line();
    if head == "END\r\n" || head == "END" {
        return None;
    }
    let words: Vec<String> = head.split_whitespace().map(str::to_owned).collect();
    let value = client.line().trim_end().to_owned();
    client.expect("END\r\n");
    Some((words[2].parse().unwrap(), value, words[4].parse().unwrap()))
}

/// Goal: each command works on an item that only the disk has, as if it were in memory. Method: an
/// item for each command, then enough others to push them out, then the commands; a read of each
/// result after it was pushed out again.
#[test]
fn every_command_reaches_an_evicted_item() {
    let folder = folder();
    let (_server, mut client) = serve_disk(folder.path(), bounded());
    let names = [
        "get", "add", "replace", "append", "prepend", "cas", "incr", "decr", "touch", "gat",
        "delete", "meta", "gone",
    ];
    for (number, name) in names.iter().enumerate() {
        let value = if ["incr", "decr"].contains(name) {
            "10"
        } else {
            "old"
        };
        client.demand(set(format!("k-{name}"), number as u32, value), "STORED\r\n");
    }
    let (_, _, cas) = gets(&mut client, "k-cas").unwrap();
    client.demand("delete k-gone\r\n", "DELETED\r\n");
    push_out(&mut client, 1);

    client.demand("get k-get\r\n", "VALUE k-get 0 3\r\nold\r\nEND\r\n");
    client.demand("add k-add 0 0 3\r\nnew\r\n", "NOT_STORED\r\n");
    client.demand("add k-new 0 0 3\r\nnew\r\n", "STORED\r\n");
    client.demand("replace k-replace 7 0 3\r\nnew\r\n", "STORED\r\n");
    client.demand("replace k-none 7 0 3\r\nnew\r\n", "NOT_STORED\r\n");
    client.demand("append k-append 0 0 3\r\n+++\r\n", "STORED\r\n");
    client.demand("prepend k-prepend 0 0 3\r\n---\r\n", "STORED\r\n");
    client.demand(
        format!("cas k-cas 0 0 3 {}\r\nbad\r\n", cas + 1),
        "EXISTS\r\n",
    );
    client.demand(format!("cas k-cas 0 0 3 {cas}\r\nnew\r\n"), "STORED\r\n");
    client.demand(
        format!("cas k-none 0 0 3 {cas}\r\nnew\r\n"),
        "NOT_FOUND\r\n",
    );
    client.demand("incr k-incr 5\r\n", "15\r\n");
    client.demand("decr k-decr 3\r\n", "7\r\n");
    client.demand("incr k-none 5\r\n", "NOT_FOUND\r\n");
    client.demand("touch k-touch 1000\r\n", "TOUCHED\r\n");
    client.demand("touch k-none 1000\r\n", "NOT_FOUND\r\n");
    client.demand("gat 1000 k-gat\r\n", "VALUE k-gat 9 3\r\nold\r\nEND\r\n");
    client.demand("delete k-delete\r\n", "DELETED\r\n");
    client.demand("delete k-none\r\n", "NOT_FOUND\r\n");
    client.demand("get k-gone\r\n", "END\r\n");
    client.demand("mg k-meta f v\r\n", "VA 3 f11\r\nold\r\n");
    client.demand("ma k-count N0 J5\r\n", "HD\r\n");
    push_out(&mut client, 2);

    let (_, value, after) = gets(&mut client, "k-cas").unwrap();
    assert_eq!(value, "new");
    assert!(after > cas, "a write gave no higher CAS");
    client.demand("get k-replace\r\n", "VALUE k-replace 7 3\r\nnew\r\nEND\r\n");
    client.demand(
        "get k-append\r\n",
        "VALUE k-append 3 6\r\nold+++\r\nEND\r\n",
    );
    client.demand(
        "get k-prepend\r\n",
        "VALUE k-prepend 4 6\r\n---old\r\nEND\r\n",
    );
    client.demand("get k-incr\r\n", "VALUE k-incr 6 2\r\n15\r\nEND\r\n");
    client.demand("get k-add\r\n", "VALUE k-add 1 3\r\nold\r\nEND\r\n");
    client.demand("get k-new\r\n", "VALUE k-new 0 3\r\nnew\r\nEND\r\n");
    client.demand("get k-delete\r\n", "END\r\n");
    client.demand("get k-count\r\n", "VALUE k-count 0 1\r\n5\r\nEND\r\n");
    for name in ["k-touch", "k-gat"] {
        client.send(format!("mg {name} t\r\n"));
        let line = client.line();
        let seconds: i64 = line.trim_end().trim_start_matches("HD t").parse().unwrap();
        assert!((900..=1000).contains(&seconds), "{name}: {line}");
    }
}

/// Goal: a write that gives its item the version that it has already reaches the disk. Method: meta
/// flag `E` with that version, in every command that looks at the item first; then both are pushed
/// out.
#[test]
fn a_write_under_the_same_version_reaches_the_disk() {
    let folder = folder();
    let (_server, mut client) = serve_disk(folder.path(), bounded());
    for key in ["set", "append", "count"] {
        client.demand(format!("ms {key} 1 E5\r\n1\r\n"), "HD\r\n");
    }
    client.demand("ms set 1 C5 E5\r\n7\r\n", "HD\r\n");
    client.demand("ms append 1 MA E5\r\n7\r\n", "HD\r\n");
    client.demand("ma count E5 D6\r\n", "HD\r\n");
    push_out(&mut client, 1);
    client.demand("mg set c v\r\n", "VA 1 c5\r\n7\r\n");
    client.demand("mg append c v\r\n", "VA 2 c5\r\n17\r\n");
    client.demand("mg count c v\r\n", "VA 1 c5\r\n7\r\n");
}

/// Goal: an item that a client was told to store is still told apart from a value after it was
/// evicted. Method: `N` makes an item, `R` gives the right to renew one; then both are pushed out.
#[test]
fn a_right_to_recache_outlives_eviction() {
    let folder = folder();
    let (_server, mut client) = serve_disk(folder.path(), bounded());
    client.demand("mg made v N100\r\n", "VA 0 W\r\n\r\n");
    client.demand("set ends 0 100 3\r\nold\r\n", "STORED\r\n");
    client.demand("mg ends v R200\r\n", "VA 3 W\r\nold\r\n");
    push_out(&mut client, 1);
    client.demand("mg made v\r\n", "VA 0 Z\r\n\r\n");
    client.demand("mg ends v R200\r\n", "VA 3 Z\r\nold\r\n");
}

/// Goal: a `get` of many keys, some of them on disk and some nowhere, is answered in their order.
/// Method: every second key is there; twice, with and without them in memory.
#[test]
fn a_get_of_many_keys_keeps_their_order() {
    let folder = folder();
    let (_server, mut client) = serve_disk(folder.path(), bounded());
    for number in (0..60).step_by(2) {
        client.set(format!("many-{number}"), format!("value-{number}"));
    }
    push_out(&mut client, 1);
    let keys: Vec<String> = (0..60).map(|number| format!("many-{number}")).collect();
    let expected: String = (0..60)
        .step_by(2)
        .map(|number| {
            let value = format!("value-{number}");
            format!("VALUE many-{number} 0 {}\r\n{value}\r\n", value.len())
        })
        .collect();
    for _ in 0..2 {
        client.demand(
            format!("get {}\r\n", keys.join(" ")),
            format!("{expected}END\r\n"),
        );
    }
}

/// Goal: a value longer than what is copied, and one that is received in pieces, go to disk and
/// back, and conditions hold for them. Method: 100 kB and 1 kB + 1.
#[test]
fn large_values_go_to_disk_and_back() {
    let folder = folder();
    let (_server, mut client) = serve_disk(folder.path(), bounded());
    let large = pattern(100_000, 1);
    let medium = pattern(1025, 2);
    client.set("large", &large);
    client.set("medium", &medium);
    push_out(&mut client, 1);
    client.demand_value("large", &large);
    client.demand_value("medium", &medium);
    push_out(&mut client, 2);
    let other = pattern(90_000, 3);
    let mut request = b"add large 0 0 90000\r\n".to_vec();
    request.extend_from_slice(&other);
    request.extend_from_slice(b"\r\n");
    client.demand(&request, "NOT_STORED\r\n");
    push_out(&mut client, 3);
    let mut request = b"replace large 0 0 90000\r\n".to_vec();
    request.extend_from_slice(&other);
    request.extend_from_slice(b"\r\n");
    client.demand(&request, "STORED\r\n");
    push_out(&mut client, 4);
    client.demand_value("large", &other);
    client.demand("append large 0 0 3\r\nend\r\n", "STORED\r\n");
    push_out(&mut client, 5);
    let mut longer = other.clone();
    longer.extend_from_slice(b"end");
    client.demand_value("large", &longer);
}

/// Goal: an item that is larger than all loaded items that a worker keeps is read from disk.
/// Method: 4.5 MB.
#[test]
fn the_largest_values_come_back() {
    let folder = folder();
    let mut config = disk_config(folder.path(), bounded());
    (config.memory_bytes_max, config.item_bytes_max) = (20 << 20, 8 << 20);
    let server = start(config);
    let mut client = Client::connect(&server);
    let largest = pattern(4_500_000, 1);
    client.set("largest", &largest);
    for salt in 1..4 {
        push_out(&mut client, salt);
    }
    client.demand_value("largest", &largest);
}

/// Goal: `flush_all` reaches what only the disk has, and nothing after it. Method: now, and with a
/// delay.
#[test]
fn a_flush_reaches_the_disk() {
    let folder = folder();
    let (_server, mut client) = serve_disk(folder.path(), bounded());
    client.set("early", "value");
    push_out(&mut client, 1);
    client.demand("flush_all\r\n", "OK\r\n");
    client.demand("get early\r\n", "END\r\n");
    client.set("late", "value");
    push_out(&mut client, 2);
    client.demand_value("late", "value");
    client.demand("flush_all 2\r\n", "OK\r\n");
    client.demand_value("late", "value");
    curtail_testing::eventually("a planned flush", || client.get("late").is_none());
    client.set("after", "value");
    push_out(&mut client, 3);
    client.demand("get late\r\n", "END\r\n");
    client.demand_value("after", "value");
}

/// Goal: a large value that was half received when everything was flushed is stored, as it was
/// answered. Method: another client flushes between the halves.
#[test]
fn a_large_write_outlives_a_flush_before_its_end() {
    let folder = folder();
    let (server, mut client) = serve_disk(folder.path(), bounded());
    let large = pattern(100_000, 1);
    client.send("set large 0 0 100000\r\n");
    client.send(&large[..50_000]);
    let mut other = Client::connect(&server);
    curtail_testing::eventually("the first half", || other.stat("", "bytes_read") >= 50_000);
    other.demand("flush_all\r\n", "OK\r\n");
    client.send(&large[50_000..]);
    client.demand("\r\n", "STORED\r\n");
    client.demand_value("large", &large);
    push_out(&mut client, 1);
    client.demand_value("large", &large);
}

/// Goal: an item that ends on disk is not shown, and one that is stored with an end in the past
/// replaces what was there. Method: one second, and a negative time.
#[test]
fn ends_hold_on_disk() {
    let folder = folder();
    let (_server, mut client) = serve_disk(folder.path(), bounded());
    client.demand("set short 0 1 5\r\nvalue\r\n", "STORED\r\n");
    client.demand("set long 0 0 5\r\nvalue\r\n", "STORED\r\n");
    client.demand("set ended 0 0 5\r\nvalue\r\n", "STORED\r\n");
    push_out(&mut client, 1);
    client.demand("set ended 0 -1 5\r\nvalue\r\n", "STORED\r\n");
    curtail_testing::eventually("its end", || client.get("short").is_none());
    push_out(&mut client, 2);
    client.demand("get short ended\r\n", "END\r\n");
    client.demand_value("long", "value");
}
