//! Every operation, in every mode that needs no privileges.

use curtail_codec::native::{ErrorCode, Flags, Opcode, Reply, Status};
use curtail_server::{Config, Fault, NativeConfig, NativeMode, NativePlacement, Server};
use curtail_testing::{
    Client as Memcached, PATIENCE, eventually, native_address, native_config, scrape, start,
};

use crate::support::{Ask, Client, Line, config_with, serve};

const MODES: [NativeMode; 3] = [NativeMode::IoAck, NativeMode::Deferred, NativeMode::Raw];

/// A server that listens at all addresses answers from the one that was asked, at once and from its
/// executor.
#[test]
fn answers_come_from_the_address_that_was_asked() {
    for mode in MODES {
        let mut everywhere = native_config(mode);
        everywhere.listen[0].address = "0.0.0.0:0".parse().unwrap();
        let server = start(everywhere);
        let port = native_address(&server).port();
        for ip in ["127.0.0.1", "127.0.0.2"] {
            let mut client = Client::connect_strictly(format!("{ip}:{port}").parse().unwrap());
            // A request that is sent again is answered by its receiver, so none is sent again.
            client.socket.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write(b"k", b"one");
            let stored = client.ask(Ask::set(b"k", ip.as_bytes()));
            assert_eq!(stored.status(), Status::Done, "{mode:?}");
            assert_eq!(client.get(b"k").unwrap(), ip.as_bytes());
        }
    }
}

/// Each operation, marked and unmarked, is read back over both protocols.
#[test]
fn operations_do_what_they_say() {
    for mode in MODES {
        let (server, mut client) = serve(native_config(mode));
        let mut memcached = Memcached::connect(&server);
        assert_eq!(client.get(b"k"), None);
        let first = client.write(b"k", b"one");
        assert_eq!(client.get(b"k").unwrap(), b"one");
        let second = client.write(b"k", b"two");
        assert_eq!(second, first + 1, "{mode:?}: one key, one queue");
        assert_eq!(memcached.get("k").unwrap(), "two");
        let stored = client.ask(Ask::set(b"k", b"10"));
        assert_eq!(stored.status(), Status::Done);
        let wrong = Ask {
            flags: Flags::COMPARE,
            ..Ask::set(b"k", b"no").argument(1)
        };
        assert_eq!(client.ask(wrong).status(), Status::Exists);
        let right = wrong.argument(stored.version());
        let right = Ask {
            value: b"20",
            ..right
        };
        assert_eq!(client.ask(right).status(), Status::Done);
        let counts = Ask::new(Opcode::Increment, b"k").argument(5);
        assert_eq!(client.ask(counts).number(), 25);
        client.accept(counts);
        let down = Ask::new(Opcode::Decrement, b"k").argument(1);
        assert_eq!(client.ask(down).number(), 29);
        let add = Ask::store(Opcode::Add, b"k", b"x");
        assert_eq!(client.ask(add).status(), Status::NotStored);
        let append = Ask::store(Opcode::Append, b"k", b"!");
        assert_eq!(client.ask(append).status(), Status::Done);
        let prepend = Ask::store(Opcode::Prepend, b"k", b"?");
        client.accept(prepend);
        assert_eq!(client.get(b"k").unwrap(), b"?29!");
        assert_eq!(client.ask(counts).status(), Status::NotANumber);
        let delete = Ask::new(Opcode::Delete, b"k");
        assert_eq!(client.ask(delete).status(), Status::Done);
        assert_eq!(client.ask(delete).status(), Status::NotFound);
        assert_eq!(memcached.get("k"), None);
        let replace = Ask::store(Opcode::Replace, b"k", b"x");
        assert_eq!(client.ask(replace).status(), Status::NotStored);
    }
}

/// Expiry and flags are kept, and a read with a touch brings the value.
#[test]
fn expiry_flags_and_touches() {
    for mode in MODES {
        let (server, mut client) = serve(native_config(mode));
        let mut memcached = Memcached::connect(&server);
        let ask = Ask {
            exptime: 100,
            item_flags: 7,
            ..Ask::set(b"k", b"value")
        };
        client.accept(ask);
        let line = memcached.ask("mg k t f\r\n");
        assert!(line == "HD t100 f7" || line == "HD t99 f7", "{line}");
        let touch = Ask {
            exptime: 500,
            ..Ask::new(Opcode::Touch, b"k")
        };
        assert_eq!(client.ask(touch).status(), Status::Done);
        let read = Ask {
            exptime: 900,
            ..Ask::new(Opcode::GetTouch, b"k")
        };
        let answer = client.ask(read);
        assert_eq!(answer.result(), (Status::Value, b"value".to_vec()));
        let Reply::Result { item_flags, .. } = answer.reply() else {
            unreachable!();
        };
        assert_eq!(item_flags, 7);
        let line = memcached.ask("mg k t\r\n");
        assert!(line == "HD t900" || line == "HD t899", "{line}");
        let gone = Ask::new(Opcode::GetTouch, b"nothing");
        assert_eq!(client.ask(gone).status(), Status::NotFound);
    }
}

/// A flush takes everything that was accepted before it, and nothing after.
#[test]
fn a_flush_takes_what_was_accepted_before() {
    for mode in MODES {
        let (server, mut client) = serve(native_config(mode));
        for round in 0..20 {
            for key in 0..40 {
                let key = format!("k{key}");
                client.write(key.as_bytes(), b"v");
            }
            let flush = client.ask(Ask::new(Opcode::Flush, b""));
            assert_eq!(flush.status(), Status::Done);
            client.write(b"after", b"v");
            for key in 0..40 {
                let key = format!("k{key}");
                assert_eq!(client.get(key.as_bytes()), None, "round {round}, {mode:?}");
            }
            assert_eq!(client.get(b"after").unwrap(), b"v");
        }
        let mut memcached = Memcached::connect(&server);
        for _ in 0..20 {
            client.write(b"k", b"v");
            assert_eq!(memcached.ask("flush_all\r\n"), "OK");
            assert_eq!(client.get(b"k"), None);
        }
    }
}

/// `stats` and `/metrics` show the path and its memory; without it they say nothing of it.
#[test]
fn operators_see_what_it_does() {
    let admin = "127.0.0.1:0".parse().unwrap();
    let (server, mut client) = serve(Config {
        admin: Some(admin),
        ..native_config(NativeMode::IoAck)
    });
    for _ in 0..5 {
        client.write(b"k", b"v");
        client.ask(Ask::set(b"k", b"w")).result();
    }
    assert_eq!(client.get(b"k").unwrap(), b"w");
    assert_eq!(client.get(b"nothing"), None);
    let mut memcached = Memcached::connect(&server);
    for (name, least) in [
        ("native:accepted", 5),
        ("native:queued", 5),
        ("native:get_hits", 1),
        ("native:get_misses", 1),
        ("native:cookies", 1),
        ("native:grants", 1),
    ] {
        eventually(name, || memcached.stat("curtail", name) >= least);
    }
    memcached.await_stat("curtail", "native:executed", 10);
    assert_eq!(memcached.stat("curtail", "native:backlog"), 0);
    assert_eq!(memcached.stat("curtail", "native:corrupt_after_ack"), 0);
    let page = scrape(&server);
    for line in [
        "curtail_native_info{mode=\"io-ack\"} 1\n",
        "curtail_native_accepted_total 5\n",
        "curtail_native_executed_total 10\n",
        "curtail_native_queue_depth{queue=\"15\"} 0\n",
        "curtail_memory_bytes{part=\"native\"} ",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    let without = start(Config {
        admin: Some(admin),
        native: None,
        ..native_config(NativeMode::IoAck)
    });
    assert!(!scrape(&without).contains("curtail_native"));
}

/// A taken port, and shapes that make no sense, are errors at the start.
#[test]
fn what_cannot_be_had_is_said_at_the_start() {
    let refused = |change: fn(&mut NativeConfig)| {
        let config = config_with(NativeMode::IoAck, change);
        match Server::start(config, |_| ()) {
            Ok(_) => panic!("started"),
            Err(error) => error.to_string(),
        }
    };
    assert!(refused(|native| native.queues = 17).contains("16, 32 or 64"));
    assert!(refused(|native| native.slots = Some(100)).contains("power of two"));
    assert!(refused(|native| native.slots = Some(1 << 14)).contains("more than half of -m"));
    // Most of a session's memory is for answers that may be asked for again.
    let why = refused(|native| native.sessions = 1 << 14);
    assert!(why.contains("and 16384 sessions take "), "{why}");
    let first = start(native_config(NativeMode::IoAck));
    let taken = first.native().unwrap().addresses[0].port();
    for mode in [NativeMode::IoAck, NativeMode::Raw] {
        let second = Server::start(config_with(mode, |native| native.port = taken), |_| ());
        let Err(error) = second else {
            panic!("two servers at one port");
        };
        assert!(error.to_string().contains("already in use"), "{error}");
    }
}

/// What the log says at the start about acknowledgements is true in every mode, also where none is
/// early: with -M, and without a backlog.
#[test]
fn a_start_says_when_writes_are_acknowledged() {
    for mode in MODES {
        let says = |config: Config| start(config).native().unwrap().promise;
        let before = says(native_config(mode)).contains(" before ");
        assert_eq!(before, mode != NativeMode::Raw, "{mode:?}");
        let keeps_all = Config {
            evict: false,
            ..native_config(mode)
        };
        let without_backlog = config_with(mode, |native| native.backlog_max = 0);
        for config in [keeps_all, without_backlog] {
            let told = says(config);
            assert!(told.contains("after it"), "{mode:?}: {told}");
            assert!(!told.contains(" before "), "{mode:?}: {told}");
        }
    }
}

/// Queues that belong to one worker each are executed too, whichever worker receives.
#[test]
fn queues_may_belong_to_workers() {
    for mode in MODES {
        let (_server, mut client) = serve(Config {
            workers: 3,
            ..config_with(mode, |native| native.placement = NativePlacement::Owner)
        });
        for key in 0..100 {
            let key = format!("k{key}");
            let name = key.as_bytes();
            client.write(name, b"1");
            let count = Ask::new(Opcode::Increment, name).argument(1);
            assert_eq!(client.ask(count).number(), 2, "{mode:?}");
            assert_eq!(client.get(name).unwrap(), b"2");
        }
    }
}

/// One socket's burst of slow writes: another worker takes a part if the placement allows it.
#[test]
fn idle_workers_steal_where_they_may() {
    for (placement, steals) in [
        (NativePlacement::Stealing, true),
        (NativePlacement::Arrival, false),
    ] {
        let server = start(Config {
            workers: 2,
            ..config_with(NativeMode::Raw, |native| {
                native.placement = placement;
                native.service_ns = 1_000_000;
            })
        });
        let mut client = Client::connect(&server);
        for slot in 0..60 {
            let key = format!("key {slot}");
            let bytes = client.bytes(slot, Ask::set(key.as_bytes(), b"v").nilext());
            client.socket.send_to(&bytes, client.to).unwrap();
        }
        let mut memcached = Memcached::connect(&server);
        memcached.await_stat("curtail", "native:executed", 60);
        let stolen = memcached.stat("curtail", "native:stolen");
        assert_eq!(stolen > 0, steals, "{placement:?}: {stolen}");
        assert_eq!(client.get(b"key 59").unwrap(), b"v");
    }
}

/// Goal: requests that are executed together wait for what was accepted before the last of them
/// was sent, not before the first. Method: of two workers one is busy with a native write. A set at
/// the other one waits for that; another native write is accepted before the next set is sent,
/// which then runs together with the first.
#[test]
fn a_set_comes_after_what_was_accepted_before_it_whatever_it_runs_with() {
    let config = config_with(NativeMode::IoAck, |native| native.service_ns = 5_000_000);
    let (server, mut client) = serve(Config {
        workers: 2,
        ..config
    });
    let mut others: Vec<Memcached> = (0..8).map(|_| Memcached::connect(&server)).collect();
    others
        .iter_mut()
        .for_each(|other| assert_eq!(other.get("k"), None));
    for round in 0..40 {
        // Of one worker, as connections are dealt out.
        let mut its: Vec<&mut Memcached> = others.iter_mut().skip(round % 2).step_by(2).collect();
        client.write(b"k", b"first");
        its.iter_mut()
            .for_each(|other| other.send("set k 0 0 5\r\nearly\r\n"));
        client.write(b"k", b"second");
        its.iter_mut()
            .for_each(|other| other.send("set k 0 0 4\r\nlate\r\n"));
        for other in &mut its {
            assert_eq!(
                (other.line(), other.line()),
                ("STORED".into(), "STORED".into())
            );
        }
        let found = its[0].get("k").unwrap();
        assert_ne!(found, "second", "round {round}");
    }
}

/// Goal: native writes that find no room are counted where other writes are, whichever way they
/// came. Method: a full server with `-M`; writes as datagrams, over TCP, and with a large value.
#[test]
fn writes_without_room_are_counted() {
    let (server, mut client) = serve(Config {
        evict: false,
        memory_bytes_max: 16 << 20,
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..native_config(NativeMode::IoAck)
    });
    let value = [1; 1000];
    let mut refused = 0;
    let names = (0..40_000).map(|number| format!("key {number}"));
    for name in names {
        refused += u64::from(
            client.ask(Ask::set(name.as_bytes(), &value)).status() == Status::OutOfMemory,
        );
        if refused == 5 {
            break;
        }
    }
    assert_eq!(refused, 5, "it is not full");
    let mut line = Line::connect(&server);
    for bytes in [1000, 200_000] {
        let ask = line.ask(&mut client, Ask::set(b"another key", &vec![2; bytes]));
        assert_eq!(ask.status(), Status::OutOfMemory, "{bytes}");
    }
    let mut memcached = Memcached::connect(&server);
    memcached.await_stat("curtail", "native:no_memory", 7);
    let line = "curtail_writes_refused_total{reason=\"no_memory\",protocol=\"native\"} 7\n";
    let page = scrape(&server);
    assert!(page.contains(line), "{line} in\n{page}");
    assert_eq!(memcached.stat("items", "items:1:outofmemory"), 7);
}

/// Goal: nobody is told that a write was executed whose bytes were damaged in a queue: it has no
/// effect, and its number may be used again. Method: a server that turns a bit of the first write
/// of `damaged`; a marked write that is not acknowledged early is no exception.
#[test]
fn a_write_that_was_damaged_in_its_queue_is_an_error() {
    for is_marked in [false, true] {
        let (server, mut client) = serve(Config {
            faults: Fault::DamagesMemory.into(),
            // With `-M` none is.
            evict: !is_marked,
            ..native_config(NativeMode::IoAck)
        });
        client.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write(b"k", b"before");
        let set = Ask::set(b"k", b"damaged");
        let bytes = client.bytes(1, if is_marked { set.nilext() } else { set });
        assert_eq!(client.error(&bytes), ErrorCode::Checksum, "{is_marked}");
        assert_eq!(client.get(b"k").unwrap(), b"before");
        let again = client.exchange(&bytes);
        assert!(!matches!(again.reply(), Reply::Error(_)));
        assert_eq!(client.get(b"k").unwrap(), b"damaged");
        let mut memcached = Memcached::connect(&server);
        memcached.await_stat("curtail", "native:corrupt_after_ack", 1);
    }
}

/// Goal: a damaged set does not take the place of the set before it. Method: while a long set of a
/// key is executed, two more come, of which the second is damaged.
#[test]
fn a_damaged_set_covers_no_other() {
    let (_server, mut client) = serve(Config {
        faults: Fault::DamagesMemory.into(),
        ..config_with(NativeMode::IoAck, |native| native.service_ns = 30_000_000)
    });
    client.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write(b"k", b"first");
    client.write(b"k", b"second");
    let bytes = client.bytes(1, Ask::set(b"k", b"damaged"));
    assert_eq!(client.error(&bytes), ErrorCode::Checksum);
    assert_eq!(client.get(b"k").unwrap(), b"second");
}
