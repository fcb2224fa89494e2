//! Start, stop, restart; logins; Unix sockets.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use curtail_runtime::ControlEvent;
use curtail_server::{Config, Fault, Restored, Server, StartError, UnixSocket};
use curtail_testing::{
    Client, PATIENCE, assert_contains, config, config_with, eventually, http, scrape, serve, set,
    start, temporary_file, temporary_path,
};

use crate::support::start_recording;

/// A stop answers what is in flight, in a bounded time.
#[test]
fn stopping_answers_what_was_sent() {
    let server = start(config());
    let idle: Vec<Client> = (0..20).map(|_| Client::connect(&server)).collect();
    let mut client = Client::connect(&server);
    client.set("n", "0");
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
    Client::connect(&server).demand("shutdown\r\n", "ERROR: shutdown not enabled\r\n");
    let mut config = config();
    config.shutdown_allowed = true;
    let (server, asked) = start_recording(config);
    let mut client = Client::connect(&server);
    client.demand("shutdown now\r\n", "CLIENT_ERROR invalid shutdown mode\r\n");
    client.demand("shutdown graceful\r\nshutdown\r\nmn\r\n", "MN\r\n");
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked, [ControlEvent::StopAndSave, ControlEvent::Stop]);
}

/// A saved store is restored once: its file is gone then, so old contents cannot return.
#[test]
fn contents_survive_a_restart_once() {
    let path = temporary_path();
    let with_file = || config_with(|config| config.memory_file = Some(path.to_path_buf()));
    let large = "x".repeat(100_000);
    let (server, mut client) = serve(with_file());
    for number in 0..1000 {
        let request = set(format_args!("k{number}"), number, "abcd");
        client.demand(request, "STORED\r\n");
    }
    client.set("large", &large);
    client.demand(
        "set short 0 1 1\r\nx\r\ndelete k7\r\n",
        "STORED\r\nDELETED\r\n",
    );
    client.send("gets k5\r\n");
    let version = client.line();
    let saved = server.stop().save().unwrap();
    assert_eq!(saved.as_deref(), Some(&*path));
    thread::sleep(Duration::from_millis(1100));

    let server = start(with_file());
    assert!(matches!(server.restored(), Restored::Items(1000..=1001)));
    let mut client = Client::connect(&server);
    let both = "VALUE k0 0 4\r\nabcd\r\nVALUE k999 999 4\r\nabcd\r\nEND\r\n";
    client.demand("get k0 k999\r\n", both);
    client.demand_value("large", &large);
    client.demand("get short k7\r\n", "END\r\n");
    client.demand("gets k5\r\n", format!("{version}\r\nabcd\r\nEND\r\n"));
    drop(server);

    let server = start(with_file());
    assert!(matches!(server.restored(), Restored::Nothing));
    Client::connect(&server).demand("get k0\r\n", "END\r\n");
}

/// A save that fails is an error and leaves no file.
#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let missing = temporary_path().join("memory");
    let server = start(config_with(|config| {
        config.memory_file = Some(missing.clone())
    }));
    Client::connect(&server).set("a", "x");
    assert!(server.stop().save().is_err());
    assert!(!missing.exists());
}

#[test]
fn a_damaged_file_starts_empty_and_says_why() {
    let path = temporary_path();
    for content in [&b""[..], b"not a saved store", &[0xff; 70_000]] {
        fs::write(&path, content).unwrap();
        let server = start(config_with(|config| {
            config.memory_file = Some(path.to_path_buf())
        }));
        assert!(matches!(server.restored(), Restored::Failed(_)));
        Client::connect(&server).set("a", "x");
    }
}

#[test]
fn a_login_is_demanded_and_can_change() {
    let path = temporary_file("foo:bar\n");
    let (server, mut client) = serve(config_with(|config| {
        config.auth_file = Some(path.to_path_buf())
    }));
    client.demand("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
    client.demand(
        "set x 0 0 7\r\nfoo baz\r\n",
        "CLIENT_ERROR authentication failure\r\n",
    );
    client.demand(
        "set x 0 0 7\r\nfoo bar\r\nget x\r\nset a 0 0 1\r\n1\r\n",
        "STORED\r\nEND\r\nSTORED\r\n",
    );
    fs::write(&path, "new:word\n").unwrap();
    server.reload().unwrap();
    client.demand_value("a", "1");
    let mut other = Client::connect(&server);
    other.demand(
        "set x 0 0 7\r\nfoo bar\r\n",
        "CLIENT_ERROR authentication failure\r\n",
    );
    other.demand(
        "set x 0 0 8\r\nnew word\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    );
    fs::write(&path, "no colon").unwrap();
    assert!(server.reload().is_err());
    Client::connect(&server).demand("set x 0 0 8\r\nnew word\r\n", "STORED\r\n");
    assert_eq!(other.stat("", "auth_errors"), 2);
}

#[test]
fn a_unix_socket_serves_and_is_removed() {
    let path = temporary_path();
    let mut config = config();
    config.unix = Some(UnixSocket {
        path: path.to_path_buf(),
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
    assert_contains(&text, &format!("addr unix:{}\r\n", path.display()));
    assert!(text.contains("state conn_listening") && text.contains("state conn_parse_cmd"));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn the_admin_port_answers_scrapers() {
    let server = start(config_with(|config| {
        config.admin = Some("127.0.0.1:0".parse().unwrap())
    }));
    Client::connect(&server).demand(
        "set a 0 0 1\r\nx\r\nget a b\r\n",
        "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
    let page = scrape(&server);
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for line in [
        "curtail_operations_total{kind=\"get\",outcome=\"hit\"} 1\n",
        "curtail_operations_total{kind=\"get\",outcome=\"miss\"} 1\n",
        "curtail_items 1\n",
        "curtail_turn_cpu_seconds_count{worker=\"0\",role=\"small\"}",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    let demand = |request: &str, status: u16, header: &str, end: &str| {
        let answer = http(server.admin_address().unwrap(), request);
        let is_status = answer.starts_with(&format!("HTTP/1.1 {status}"));
        let is_right = is_status && answer.contains(header) && answer.ends_with(end);
        assert!(is_right, "{request}: {answer}");
    };
    for path in ["/livez", "/readyz", "/healthz"] {
        demand(&format!("GET {path}"), 200, "", "\r\n\r\nok\n");
        let length = "content-length: 3\r\n";
        demand(&format!("HEAD {path}"), 200, length, "\r\n\r\n");
    }
    for (request, status, allowed) in [
        ("GET /secrets", 404, ""),
        ("POST /secrets", 404, ""),
        ("POST /metrics", 405, "allow: GET, HEAD\r\n"),
        ("PUT /policy", 405, "allow: GET, HEAD\r\n"),
        ("GET /policy/crcw", 405, "allow: PUT\r\n"),
        ("PUT /policy/nonsense", 400, ""),
    ] {
        demand(request, status, allowed, "");
    }
}

/// `/livez` measures progress: a worker that never wakes by itself is stuck until it has a client.
#[test]
fn a_worker_that_makes_no_progress_is_told() {
    let server = start(Config {
        faults: Fault::SleepsLong.into(),
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..config()
    });
    let ask = |path| http(server.admin_address().unwrap(), path);
    assert!(ask("GET /livez").starts_with("HTTP/1.1 200"));
    let started = Instant::now();
    let mut answer = String::new();
    while !answer.starts_with("HTTP/1.1 503") {
        assert!(started.elapsed() < 5 * PATIENCE, "{answer}");
        thread::sleep(Duration::from_millis(100));
        answer = ask("GET /livez");
    }
    let why = "worker 0 has made no progress for 1";
    assert_contains(&answer, why);
    assert!(ask("GET /readyz").starts_with("HTTP/1.1 200"));
    Client::connect(&server).demand("mn\r\n", "MN\r\n");
    eventually("it moves again", || {
        ask("GET /livez").starts_with("HTTP/1.1 200")
    });
}

/// `stats reset` does not reset metrics, and refused connections count by reason.
#[test]
fn a_reset_of_stats_leaves_metrics_alone() {
    let (server, mut client) = serve(Config {
        connections_max: 1,
        refuse_connections_fast: true,
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..config()
    });
    client.demand(
        "set a 0 0 1\r\nx\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
    let mut other = Client::connect(&server);
    other.expect("ERROR Too many open connections\r\n");
    let holds = |page: &str| {
        for line in [
            "curtail_connections_accepted_total 1\n",
            "curtail_connections_refused_total{reason=\"limit\"} 1\n",
            "curtail_connections_refused_total{reason=\"system\"} 0\n",
            "curtail_connections 1\n",
            "curtail_items_stored_total 1\n",
            "curtail_operations_total{kind=\"get\",outcome=\"hit\"} 1\n",
        ] {
            assert!(page.contains(line), "{line} in\n{page}");
        }
    };
    holds(&scrape(&server));
    client.demand("stats reset\r\n", "RESET\r\n");
    for name in [
        "total_connections",
        "rejected_connections",
        "total_items",
        "get_hits",
    ] {
        assert_eq!(client.stat("", name), 0, "{name}");
    }
    holds(&scrape(&server));
}
