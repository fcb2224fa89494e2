//! What the acknowledgement of a native client's write promises: that the primary has executed it,
//! or that several nodes have it; and what a client learns of a write whose end nobody knows.

use std::time::{Duration, Instant};

use curtail_client::{ClientError, Command, Config, Promise, Reason, Session};
use curtail_codec::native::{Opcode, Place, Reply, Status};
use curtail_server::Fault;
use curtail_testing::{eventually, native_address};

use crate::{
    native_clients::{native, nodes_with},
    native_support::{Answer, Ask, Client},
    support::{Cluster, await_placement, until},
};

/// What an answer promises, and of how many nodes; of an accepted write one.
#[track_caller]
fn promised(answer: &Answer) -> (Promise, u8) {
    match answer.reply() {
        Reply::Ack(ack) if ack.promise == Promise::Accepted => {
            assert_ne!(ack.place.queue, Place::NO_QUEUE);
            (Promise::Accepted, 1)
        }
        Reply::Ack(ack) => {
            assert_eq!(ack.promise, ack.place.promise_of_executed());
            (ack.promise, ack.place.copies())
        }
        Reply::Result { place, .. } => (place.promise_of_executed(), place.copies()),
        other => panic!("{other:?}"),
    }
}

/// Writes at a node, marked and not, one of them sent twice; all promise the same, but that the
/// node may accept marked ones of what it alone holds.
#[track_caller]
fn promise_of(client: &mut Client, key: &str) -> (Promise, u8) {
    let key = key.as_bytes();
    let set = client.bytes(0, Ask::set(key, b"1").nilext());
    let first = promised(&client.exchange(&set));
    assert_eq!(promised(&client.exchange(&set)), first, "sent again");
    let count = Ask::new(Opcode::Increment, key).argument(1);
    let told = promised(&client.ask(count));
    let marked = promised(&client.ask(count.nilext()));
    for marked in [first, marked] {
        assert!(
            marked == told || told.1 == 1 && marked == (Promise::Accepted, 1),
            "{marked:?}, {told:?}"
        );
    }
    told
}

fn expected(copies: u8) -> (Promise, u8) {
    match copies {
        1 => (Promise::Executed, 1),
        _ => (Promise::Replicated, copies),
    }
}

/// Goal: a client learns at any node how many nodes have its write. Method: one to three replicas;
/// writes of keys of every primary at every node, and of hot keys.
#[test]
fn a_write_is_acknowledged_with_the_number_of_its_copies() {
    for replicas in 1..=3 {
        let cluster = nodes_with(replicas as usize);
        let mut nodes: Vec<_> = (0..3).map(|id| native(&cluster, id)).collect();
        for number in 0..12 {
            for client in &mut nodes {
                let told = promise_of(client, &format!("p{number}"));
                assert_eq!(told, expected(replicas), "p{number}");
            }
        }
        for number in 0..12 {
            cluster.change_hot(&format!("p{number}"), true);
        }
        eventually("keys are hot", || {
            cluster.client(0).stat("curtail", "cluster_hot_keys") == 12
        });
        for number in 0..12 {
            for client in &mut nodes {
                let told = promise_of(client, &format!("p{number}"));
                assert_eq!(told, expected(replicas), "hot p{number}");
            }
        }
    }
}

/// Goal: the library tells a program the promise, and refuses to call a write replicated that one
/// node has. Method: two replicas; two of three nodes end, one after the other.
#[test]
fn a_program_can_wait_for_executed_and_for_replicated() {
    let mut cluster = nodes_with(2);
    let within = Duration::from_secs(20);
    let session = Session::connect(native_address(cluster.nodes[0].as_ref().unwrap())).unwrap();
    let set = || session.set(b"key", b"value").unwrap();
    let replicated = set().replicated().unwrap();
    assert_eq!((replicated.promise, replicated.copies()), expected(2));
    assert_eq!(set().executed(&session, within), set().accepted());
    let answer = session.delete(b"key").unwrap().result().unwrap();
    assert_eq!((answer.promise(), answer.copies()), expected(2));
    let large = vec![b'l'; 100_000];
    let stored = session.set(b"large", &large).unwrap().replicated().unwrap();
    assert_eq!((stored.promise, stored.copies()), expected(2), "over TCP");
    let read = session.get(b"large").unwrap().result().unwrap();
    assert_eq!(read.value, large);
    let nobody = set().durable(&session, within);
    assert_eq!(nobody.unwrap_err(), ClientError::NotDurable);
    for gone in [2, 1] {
        cluster.nodes[gone] = None;
        await_placement(&mut cluster.client(0), gone as u64);
    }
    let refused = set().replicated().unwrap_err();
    assert_eq!(refused, ClientError::NotReplicated(1));
    assert_eq!(set().accepted().unwrap().promise, Promise::Accepted);
    let executed = set().executed(&session, within).unwrap();
    assert_eq!((executed.promise, executed.copies()), expected(1));
}

/// Goal: without room at every node in sync a marked write is an error of the library, and not an
/// accepted one.
#[test]
fn a_write_without_room_is_no_accepted_one() {
    let cluster = Cluster::with(|shape| {
        (shape.replicas, shape.protocol) = (2, crate::support::Protocol::Native);
        (shape.evict, shape.memory_bytes) = (false, 16 << 20);
    });
    await_placement(&mut cluster.client(0), 3);
    let session = Session::connect(native_address(cluster.nodes[0].as_ref().unwrap())).unwrap();
    let value = [b'f'; 1300];
    let refused = (0..60_000).find_map(|number| {
        let set = session.set(format!("f{number}").as_bytes(), &value);
        set.unwrap().replicated().err()
    });
    assert_eq!(refused, Some(ClientError::NotStored(Status::OutOfMemory)));
}

/// Goal: a cluster can be upgraded node by node: a node that does not count copies answers, and the
/// others promise no more than they know. Method: one node of the older protocol between nodes.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn a_node_of_an_older_protocol_promises_less() {
    let mut cluster = nodes_with(2);
    cluster.shape.fault = Fault::SpeaksOldVersion;
    cluster.revive(1);
    cluster.await_service(1);
    await_placement(&mut cluster.client(0), 3);
    let mut memcached = cluster.client(2);
    let mut seen = Vec::new();
    for id in 0..3 {
        let mut client = native(&cluster, id);
        for number in 0..24 {
            let key = format!("o{id}-{number}");
            let told = promise_of(&mut client, &key);
            assert!(
                [(Promise::Executed, 0), expected(2)].contains(&told),
                "{told:?}"
            );
            seen.push((id, told.1));
            memcached.demand_value(&*key, "3");
        }
    }
    // Of its own slices the older node knows; of those of another primary it is not told.
    for told in [(0, 0), (0, 2), (1, 0), (1, 2), (2, 0), (2, 2)] {
        assert!(seen.contains(&told), "{told:?} in {seen:?}");
    }
}

/// Goal: a write whose end nobody knows is neither refused nor executed again, however often it is
/// sent. Method: a node that executes what others ask for, and whose answers are lost; counters
/// that are counted up once at another node, byte by byte and with the library.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn a_write_without_a_known_end_is_executed_once_and_not_refused() {
    let mut cluster = nodes_with(1);
    cluster.shape.fault = Fault::LosesAnswers;
    cluster.revive(1);
    await_placement(&mut cluster.client(0), 3);
    const KEYS: u8 = 24;
    let key = |number| format!("u{number}");
    // The node answers its own clients.
    let mut memcached = cluster.client(1);
    for number in 0..=KEYS {
        let set = format!("set {} 0 0 1\r\n0\r\n", key(number));
        until(&mut memcached, &set, |line| line == "STORED");
    }
    let mut client = native(&cluster, 0);
    let asked: Vec<(String, Vec<u8>)> = (0..KEYS)
        .map(|number| {
            let key = key(number);
            let count = Ask::new(Opcode::Increment, key.as_bytes()).argument(1);
            let bytes = client.bytes(number, count);
            (key, bytes)
        })
        .collect();
    let mut answered = [false; KEYS as usize];
    let begun = Instant::now();
    // Longer than a node waits for another one's answer.
    while begun.elapsed() < Duration::from_secs(13) {
        for (_, bytes) in asked
            .iter()
            .filter(|(_, bytes)| !answered[usize::from(bytes[6])])
        {
            client.socket.send_to(bytes, client.to).unwrap();
        }
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_millis(300) {
            let Some(answer) = client.receive() else {
                continue;
            };
            assert_eq!(answer.nack(), None, "nobody knows that it had no effect");
            assert_eq!(answer.number(), 1);
            answered[usize::from(answer.slot_and_sequence().0)] = true;
        }
    }
    let unknown = answered.iter().filter(|is| !**is).count();
    assert!((1..usize::from(KEYS)).contains(&unknown), "{answered:?}");
    for (key, _) in &asked {
        memcached.demand_value(&**key, "1");
    }
    let lost = answered.iter().position(|is| !is).unwrap();
    let config = Config {
        patience: Duration::from_secs(13),
        ..Config::default()
    };
    let session = Session::open(client.to, config).unwrap();
    let count = Command::increment(asked[lost].0.as_bytes(), 1);
    for is_marked in [false, true] {
        let ended = match is_marked {
            true => session
                .write(&count.marked())
                .unwrap()
                .executed(&session, config.patience)
                .err(),
            false => session.call(&count).unwrap().result().err(),
        };
        assert_eq!(ended, Some(ClientError::Indeterminate(Reason::Silence)));
    }
    memcached.demand_value(&*asked[lost].0, "3");
}
