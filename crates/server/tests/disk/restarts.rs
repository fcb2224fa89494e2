//! What is there after a restart, what is refused, and what an operator sees.

use curtail_server::{Durability, Server, StartError};
use curtail_testing::{Client, assert_contains, config_with, scrape, start};

use crate::support::{bounded, disk_config, folder, push_out, serve_disk};

/// Goal: items, flags, ends and CAS are the same after a restart, and no CAS comes twice. Method:
/// both modes; two restarts.
#[test]
fn items_outlive_a_restart() {
    for durability in [Durability::Sync, bounded()] {
        let folder = folder();
        let (server, mut client) = serve_disk(folder.path(), durability);
        client.demand("set a 5 0 3\r\none\r\n", "STORED\r\n");
        client.demand("set b 0 1000 3\r\ntwo\r\n", "STORED\r\n");
        client.demand("set c 0 0 5\r\nthree\r\n", "STORED\r\n");
        client.demand("delete c\r\n", "DELETED\r\n");
        client.send("mg a c\r\n");
        let cas = client.line();
        drop(client);
        drop(server);
        let (server, mut client) = serve_disk(folder.path(), durability);
        client.demand("get a c\r\n", "VALUE a 5 3\r\none\r\nEND\r\n");
        client.send("mg a c\r\n");
        assert_eq!(client.line(), cas);
        client.send("mg b t\r\n");
        let left = client.line();
        let seconds: u32 = left.trim_end().trim_start_matches("HD t").parse().unwrap();
        assert!((900..=1000).contains(&seconds), "{left}");
        client.demand("set d 0 0 1\r\nd\r\n", "STORED\r\n");
        client.send("mg d c\r\n");
        let number = |line: &str| line.trim_end().trim_start_matches("HD c").parse::<u64>();
        let later = client.line();
        assert!(
            number(&later).unwrap() > number(&cas).unwrap(),
            "{cas} {later}"
        );
        drop(client);
        drop(server);
    }
}

/// Goal: a flush holds after a restart. Method: as said.
#[test]
fn a_flush_outlives_a_restart() {
    let folder = folder();
    let (server, mut client) = serve_disk(folder.path(), Durability::Sync);
    client.set("before", "value");
    client.demand("flush_all\r\n", "OK\r\n");
    client.set("after", "value");
    drop((client, server));
    let (_server, mut client) = serve_disk(folder.path(), Durability::Sync);
    client.demand("get before\r\n", "END\r\n");
    client.demand_value("after", "value");
}

/// Goal: a directory in use, and what a tier cannot have beside it, are clear errors. Method: each.
#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let folder = folder();
    let (server, _client) = serve_disk(folder.path(), bounded());
    let second = Server::start(disk_config(folder.path(), bounded()), |_| ());
    let error = second.err().unwrap();
    assert!(matches!(error, StartError::Storage(_)));
    assert_contains(&error.to_string(), "is in use by process");
    drop(server);
    let other = folder.path().join("other");
    let mut config = disk_config(&other, bounded());
    config.evict = false;
    let error = Server::start(config, |_| ()).err().unwrap().to_string();
    assert_contains(&error, "given together with -M");
    let mut config = disk_config(&other, bounded());
    config.udp_port = Some(0);
    let error = Server::start(config, |_| ()).err().unwrap().to_string();
    assert_contains(&error, "given together with -U");
}

/// Goal: while the file system is below its reserve, writes are refused in words and reads go on;
/// in both forms of value. Method: a reserve that no disk has.
#[test]
fn a_full_disk_refuses_writes_and_reads_go_on() {
    let folder = folder();
    let (server, mut client) = serve_disk(folder.path(), bounded());
    client.set("there", "value");
    push_out(&mut client, 1);
    drop((client, server));
    let mut config = disk_config(folder.path(), bounded());
    if let Some(disk) = &mut config.disk {
        disk.reserve_bytes = u64::MAX;
    }
    let server = start(config);
    let mut client = Client::connect(&server);
    let full = "SERVER_ERROR the disk is full\r\n";
    client.demand_value("there", "value");
    client.demand("set there 0 0 3\r\nnew\r\n", full);
    client.demand("incr there 1\r\n", full);
    client.demand("delete there\r\n", full);
    client.demand("flush_all\r\n", full);
    assert_eq!(client.stat("curtail", "disk:write_state"), 3);
    let mut large = b"set large 0 0 50000\r\n".to_vec();
    large.resize(large.len() + 50_000, b'x');
    large.extend_from_slice(b"\r\n");
    client.demand(&large, full);
    // It would remove the item that is there.
    let mut too_large = b"set there 0 0 2000000\r\n".to_vec();
    too_large.resize(too_large.len() + 2_000_000, b'x');
    too_large.extend_from_slice(b"\r\n");
    client.demand(&too_large, full);
    client.demand_value("there", "value");
    client.demand("get large\r\n", "END\r\n");
}

/// Goal: between half of its reserve and the reserve the disk takes deletions of every form, which
/// last, and nothing that stores. Method: a reserve of half more than the disk has free.
#[test]
fn a_disk_that_is_almost_full_takes_deletions() {
    let folder = folder();
    let (server, mut client) = serve_disk(folder.path(), bounded());
    for key in ["gone", "empty", "too-large", "kept"] {
        client.set(key, "value");
    }
    push_out(&mut client, 1);
    drop((client, server));
    let free = rustix::fs::statvfs(folder.path()).unwrap();
    let mut config = disk_config(folder.path(), bounded());
    if let Some(disk) = &mut config.disk {
        disk.reserve_bytes = free.f_bavail * free.f_frsize / 2 * 3;
    }
    let server = start(config.clone());
    let mut client = Client::connect(&server);
    let full = "SERVER_ERROR the disk is full\r\n";
    client.demand("set kept 0 0 3\r\nnew\r\n", full);
    client.demand("touch kept 100\r\n", full);
    client.demand("delete gone\r\n", "DELETED\r\n");
    client.demand("md empty x\r\n", "HD\r\n");
    // It stores the value again.
    client.demand("md kept I T30\r\n", full);
    let mut too_large = b"set too-large 0 0 2000000\r\n".to_vec();
    too_large.resize(too_large.len() + 2_000_000, b'x');
    too_large.extend_from_slice(b"\r\n");
    client.demand(&too_large, "SERVER_ERROR object too large for cache\r\n");
    assert_eq!(client.stat("curtail", "disk:write_state"), 1);
    drop((client, server));
    let (server, mut client) = serve_disk(folder.path(), bounded());
    for key in ["gone", "too-large"] {
        client.demand(format!("get {key}\r\n"), "END\r\n");
    }
    client.demand_value("empty", "");
    client.demand_value("kept", "value");
    drop((client, server));
    let server = start(config);
    let mut client = Client::connect(&server);
    client.demand("set kept 0 0 3\r\nnew\r\n", full);
    client.demand("flush_all\r\n", "OK\r\n");
    drop((client, server));
    let (_server, mut client) = serve_disk(folder.path(), bounded());
    client.demand("get kept\r\n", "END\r\n");
}

/// Goal: `stats` and `/metrics` show the disk, and a server without one shows nothing of it.
/// Method: as said.
#[test]
fn the_disk_is_shown() {
    let folder = folder();
    let mut config = disk_config(folder.path(), bounded());
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    let server = start(config);
    let mut client = Client::connect(&server);
    client.set("key", "value");
    push_out(&mut client, 1);
    client.demand_value("key", "value");
    assert!(client.stat("curtail", "disk_reads") >= 1);
    assert!(client.stat("curtail", "disk:writes") > 1500);
    assert_eq!(client.stat("curtail", "disk:write_state"), 0);
    let page = scrape(&server);
    assert_contains(&page, "curtail_disk_reads_total");
    assert_contains(&page, "curtail_disk_write_state 0");
    let plain = start(config_with(|config| {
        config.admin = Some("127.0.0.1:0".parse().unwrap());
    }));
    assert!(!scrape(&plain).contains("curtail_disk_write_state"));
}
