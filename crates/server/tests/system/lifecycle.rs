//! Start, stop, restart; logins; Unix sockets.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use curtail_runtime::ControlEvent;
use curtail_server::{Restored, Server, StartError, UnixSocket};

use crate::support::{Client, PATIENCE, config, start, start_recording, temporary_path};

/// Goal: stopping answers what is in flight and takes a bounded time. Method: stop while a client
/// has a pipeline under way and others are idle.
#[test]
fn stopping_answers_what_was_sent() {
    let server = start(config());
    let idle: Vec<Client> = (0..20).map(|_| Client::connect(&server)).collect();
    let mut client = Client::connect(&server);
    client.ask("set n 0 0 1\r\n0\r\n", "STORED\r\n");
    client.send("incr n 1\r\n".repeat(5000));
    let began = Instant::now();
    drop(server.stop());
    assert!(began.elapsed() < Duration::from_secs(5));
    let replies: String = (1..=5000).map(|n| format!("{n}\r\n")).collect();
    client.expect(replies);
    client.expect_closed();
    drop(idle);
}

#[test]
fn an_address_in_use_is_an_error() {
    let server = start(config());
    let mut config = config();
    config.listen[0].address = server.addresses()[0];
    let error = Server::start(config, |_| ()).err().unwrap();
    assert!(matches!(error, StartError::Bind(..)));
    assert!(error.to_string().contains("in use"), "{error}");
}

#[test]
fn shutdown_needs_permission() {
    let server = start(config());
    Client::connect(&server).ask("shutdown\r\n", "ERROR: shutdown not enabled\r\n");
    let mut config = config();
    config.shutdown_allowed = true;
    let (server, asked) = start_recording(config);
    let mut client = Client::connect(&server);
    client.ask("shutdown now\r\n", "CLIENT_ERROR invalid shutdown mode\r\n");
    client.ask("shutdown graceful\r\nshutdown\r\nmn\r\n", "MN\r\n");
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked, [ControlEvent::StopAndSave, ControlEvent::Stop]);
}

/// Goal: contents survive a restart, once. Method: save, start again with the same file, and start
/// a third time: the file is gone, so old contents cannot come back after a crash.
#[test]
fn contents_survive_a_restart_once() {
    let path = temporary_path("memory");
    let with_file = || {
        let mut config = config();
        config.memory_file = Some(path.clone());
        config
    };
    let large = "x".repeat(100_000);
    let server = start(with_file());
    let mut client = Client::connect(&server);
    for number in 0..1000 {
        client.ask(
            format!("set k{number} {number} 0 4\r\nabcd\r\n"),
            "STORED\r\n",
        );
    }
    client.ask(format!("set large 0 0 100000\r\n{large}\r\n"), "STORED\r\n");
    client.ask(
        "set short 0 1 1\r\nx\r\ndelete k7\r\n",
        "STORED\r\nDELETED\r\n",
    );
    client.send("gets k5\r\n");
    let version = client.line();
    let saved = server.stop().save().unwrap();
    assert_eq!(saved.as_ref(), Some(&path));
    thread::sleep(Duration::from_millis(1100));

    let server = start(with_file());
    assert!(matches!(server.restored(), Restored::Items(1000..=1001)));
    let mut client = Client::connect(&server);
    client.ask(
        "get k0 k999\r\n",
        "VALUE k0 0 4\r\nabcd\r\nVALUE k999 999 4\r\nabcd\r\nEND\r\n",
    );
    client.ask(
        "get large\r\n",
        &format!("VALUE large 0 100000\r\n{large}\r\nEND\r\n"),
    );
    client.ask("get short k7\r\n", "END\r\n");
    client.ask("gets k5\r\n", &format!("{version}\r\nabcd\r\nEND\r\n"));
    drop(server);

    let server = start(with_file());
    assert!(matches!(server.restored(), Restored::Nothing));
    Client::connect(&server).ask("get k0\r\n", "END\r\n");
}

/// Goal: a full disk at a warm restart is an error, leaves nothing behind, and harms nobody.
/// Method: save into a folder that is not there, and (where this system has one) onto /dev/full.
#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let missing = temporary_path("no-such-folder").join("memory");
    let mut config = config();
    config.memory_file = Some(missing.clone());
    let server = start(config);
    Client::connect(&server).ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    assert!(server.stop().save().is_err());
    assert!(!missing.exists());
}

#[test]
fn a_damaged_file_starts_empty_and_says_why() {
    let path = temporary_path("damaged");
    for content in [&b""[..], b"not a saved store", &[0xff; 70_000]] {
        fs::write(&path, content).unwrap();
        let mut config = config();
        config.memory_file = Some(path.clone());
        let server = start(config);
        assert!(matches!(server.restored(), Restored::Failed(_)));
        Client::connect(&server).ask("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    }
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_login_is_demanded_and_can_change() {
    let path = temporary_path("logins");
    fs::write(&path, "foo:bar\n").unwrap();
    let mut config = config();
    config.auth_file = Some(path.clone());
    let server = start(config);
    let mut client = Client::connect(&server);
    client.ask("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    client.ask(
        "set x 0 0 7\r\nfoo baz\r\n",
        "CLIENT_ERROR authentication failure\r\n",
    );
    client.ask(
        "set x 0 0 7\r\nfoo bar\r\nget x\r\nset a 0 0 1\r\n1\r\n",
        "STORED\r\nEND\r\nSTORED\r\n",
    );
    fs::write(&path, "new:word\n").unwrap();
    server.reload().unwrap();
    client.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    let mut other = Client::connect(&server);
    other.ask(
        "set x 0 0 7\r\nfoo bar\r\n",
        "CLIENT_ERROR authentication failure\r\n",
    );
    other.ask(
        "set x 0 0 8\r\nnew word\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    );
    fs::write(&path, "no colon").unwrap();
    assert!(server.reload().is_err());
    Client::connect(&server).ask("set x 0 0 8\r\nnew word\r\n", "STORED\r\n");
    assert_eq!(other.stat("", "auth_errors"), 2);
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_unix_socket_serves_and_is_removed() {
    let path = temporary_path("socket");
    let mut config = config();
    config.unix = Some(UnixSocket {
        path: path.clone(),
        mode: 0o700,
    });
    let server = start(config);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"set a 0 0 1\r\nx\r\nstats conns\r\nquit\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("STORED\r\nSTAT "), "{text}");
    assert!(
        text.contains(&format!("addr unix:{}\r\n", path.display())),
        "{text}"
    );
    assert!(text.contains("state conn_listening") && text.contains("state conn_parse_cmd"));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn the_admin_port_answers_scrapers() {
    let mut config = config();
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    let server = start(config);
    Client::connect(&server).ask(
        "set a 0 0 1\r\nx\r\nget a b\r\n",
        "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
    let fetch = |request: &str| {
        let mut client = Client::connect_to(server.admin_address().unwrap());
        client.send(format!(
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        ));
        String::from_utf8(client.take(usize::MAX)).unwrap()
    };
    let page = fetch("GET /metrics");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(
        page.contains("curtail_operations_total{kind=\"get\",outcome=\"hit\"} 1\n"),
        "{page}"
    );
    assert!(page.contains("curtail_operations_total{kind=\"get\",outcome=\"miss\"} 1\n"));
    assert!(page.contains("curtail_items 1\n"));
    assert!(page.contains("curtail_turn_cpu_seconds_count{worker=\"0\"}"));
    assert!(fetch("GET /healthz").ends_with("ok\n"));
    assert!(fetch("GET /secrets").starts_with("HTTP/1.1 404"));
    assert!(fetch("POST /metrics").starts_with("HTTP/1.1 405"));
}
