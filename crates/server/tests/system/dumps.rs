//! `lru_crawler`: its dumps list every item, in pieces, at the pace of their reader.

use std::{collections::BTreeSet, fmt::Write};

use curtail_testing::{Client, config, serve};

/// Stores `count` items with keys `item-0` and so on.
fn fill(client: &mut Client, count: usize) {
    let mut text = String::new();
    for item in 0..count {
        write!(text, "set item-{item} 0 0 4 noreply\r\nabcd\r\n").unwrap();
    }
    client.send(text);
    client.demand("mn\r\n", "MN\r\n");
}

/// Lines up to `end`, which is taken too.
fn lines_until(client: &mut Client, end: &str) -> Vec<String> {
    std::iter::repeat_with(|| client.line())
        .take_while(|line| line != end)
        .collect()
}

#[test]
fn a_dump_lists_every_item_once_and_what_follows_it_waits() {
    let (_server, mut client) = serve(config());
    fill(&mut client, 5000);
    client.send("mn\r\nlru_crawler metadump all\r\nversion\r\nget item-1\r\n");
    client.expect("MN\r\n");
    let lines = lines_until(&mut client, "END");
    assert_eq!(lines.len(), 5000);
    let keys: BTreeSet<&str> = lines
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(keys.len(), 5000);
    assert!(keys.contains("key=item-4999"));
    assert!(lines.iter().all(|line| line.contains(" exp=-1 la=")));
    assert!(client.line().starts_with("VERSION "));
    client.expect("VALUE item-1 0 4\r\nabcd\r\nEND\r\n");
}

/// Goal: every line of `mgdump` reads an item. Method: send the lines back as they came.
#[test]
fn a_dump_of_requests_can_be_sent_back() {
    let (_server, mut client) = serve(config());
    client.demand("ms plain 2\r\nhi\r\n", "HD\r\n");
    client.demand("ms AAEgAg== 2 b\r\nyo\r\n", "HD\r\n");
    client.send("lru_crawler mgdump hash\r\n");
    let lines = lines_until(&mut client, "EN");
    let requests: BTreeSet<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(requests, BTreeSet::from(["mg AAEgAg== b", "mg plain"]));
    for request in requests {
        client.demand(format!("{request}\r\n"), "HD\r\n");
    }
}

/// Ten clients that do not read their 12 MB dumps (encoding triples the keys) cost a piece each,
/// and nobody waits.
#[test]
fn a_dump_that_nobody_reads_stands_still() {
    const ITEMS: usize = 20_000;
    let (server, mut other) = serve(config());
    let mut text = String::new();
    for item in 0..ITEMS {
        write!(text, "set {item:/>200} 0 0 1 noreply\r\na\r\n").unwrap();
    }
    other.send(text);
    other.demand("mn\r\n", "MN\r\n");
    let mut slow: Vec<Client> = (0..10).map(|_| Client::connect(&server)).collect();
    let empty = other.stat("memory", "connections");
    for client in &mut slow {
        client.send("lru_crawler metadump all\r\n");
    }
    let mut held = 0;
    for _ in 0..500 {
        held = held.max(other.stat("memory", "connections"));
    }
    held -= empty;
    assert!(held > 0, "the kernel took everything");
    assert!(held < 8 << 20, "ten dumps hold {held} bytes");
    assert_eq!(lines_until(&mut slow[3], "END").len(), ITEMS);
}

#[test]
fn the_crawlers_switches_are_kept_and_its_errors_are_memcacheds() {
    let (_server, mut client) = serve(config());
    let (bad_class, bad_line) = (
        "BADCLASS invalid class id",
        "CLIENT_ERROR bad command line format",
    );
    let too_long = "CLIENT_ERROR sleep must be one second or less";
    for (request, answer) in [
        ("lru_crawler metadump all", "END"),
        ("lru_crawler metadump 2,3", "END"),
        ("lru_crawler metadump 0", bad_class),
        ("lru_crawler crawl hash", bad_class),
        ("lru_crawler crawl all", "OK"),
        ("lru_crawler", "ERROR"),
        ("lru_crawler tocrawl 7", "OK"),
        ("lru_crawler sleep 1000000", "OK"),
        ("lru_crawler sleep 1000001", too_long),
        ("lru_crawler sleep x", bad_line),
    ] {
        client.demand(format!("{request}\r\n"), format!("{answer}\r\n"));
    }
    assert_eq!(client.stat("settings", "lru_crawler_tocrawl"), 7);
    assert_eq!(client.stat("settings", "lru_crawler_sleep"), 1_000_000);
    client.demand("lru_crawler disable\r\n", "OK\r\n");
    client.demand(
        "lru_crawler metadump all\r\n",
        "CLIENT_ERROR lru crawler disabled\r\n",
    );
    client.demand("lru_crawler enable\r\n", "OK\r\n");
    drop(client);

    let mut quiet = config();
    quiet.dump_allowed = false;
    let (_server, mut client) = serve(quiet);
    client.demand(
        "lru_crawler mgdump all\r\n",
        "ERROR metadump not allowed\r\n",
    );
}

/// Clients that list keys by `stats items` and `stats cachedump` find them: in an empty store, in a
/// small one, and up to 2 MB of a larger one.
#[test]
fn keys_are_found_by_their_class() {
    let (_server, mut client) = serve(config());
    client.demand("stats items\r\n", "END\r\n");
    client.demand("stats cachedump 1 0\r\n", "END\r\n");
    fill(&mut client, 3000);
    client.demand("ms YSBiDQo= 2 b\r\nhi\r\n", "HD\r\n");
    assert_eq!(client.stat("items", "items:1:number"), 3001);
    assert_eq!(client.stat("items", "items:1:number_cold"), 3001);
    assert_eq!(client.stat("slabs", "active_slabs"), 1);
    assert_eq!(client.stat("slabs", "1:used_chunks"), 3001);
    let bytes = client.stat("items", "items:1:mem_requested");
    assert_eq!(bytes / 3001, client.stat("slabs", "1:chunk_size"));
    client.send("stats cachedump 1 0\r\nmn\r\n");
    let lines = lines_until(&mut client, "END");
    client.expect("MN\r\n");
    let keys: BTreeSet<&str> = lines.iter().map(String::as_str).collect();
    // The key with a space and a line end in it would break the list.
    assert_eq!((lines.len(), keys.len()), (3000, 3000));
    assert!(keys.contains("ITEM item-17 [4 b; 0 s]"));
    client.send("stats cachedump 1 7\r\n");
    assert_eq!(lines_until(&mut client, "END").len(), 7);
    for (words, answer) in [
        ("2 0", "END\r\n"),
        ("0 0", "END\r\n"),
        ("64 0", "CLIENT_ERROR Illegal slab id\r\n"),
        ("1", "CLIENT_ERROR bad command line\r\n"),
        ("1 x", "CLIENT_ERROR bad command line format\r\n"),
    ] {
        client.demand(format!("stats cachedump {words}\r\n"), answer);
    }
    let mut text = String::new();
    for item in 0..12_000 {
        write!(text, "set {item:0>200} 0 0 1 noreply\r\na\r\n").unwrap();
    }
    client.send(text);
    client.demand("mn\r\n", "MN\r\n");
    client.send("stats cachedump 1 0\r\n");
    let lines = lines_until(&mut client, "END");
    let bytes: usize = lines.iter().map(|line| line.len() + 2).sum();
    assert!((2_000_000..=2 << 20).contains(&bytes), "{bytes}");
}
