//! Writes that a node accepts before it executes them: of slices that it alone holds, and visible
//! to everybody from the acknowledgement on, whatever becomes of their keys and slices.

use std::time::Duration;

use curtail_client::Promise;
use curtail_codec::native::{Opcode, Reply, Status};
use curtail_history::{Verdict, check_linearizable};
use curtail_server::Fault;
use curtail_testing::eventually;

use crate::{
    histories::{PLAN, STEPS_MAX, judge, record},
    native_clients::{native, nodes_with},
    native_support::{Ask, Client},
    recording_clients::Plan,
    restarts::restart_all,
    support::{Cluster, Protocol, await_placement},
};

/// Nodes whose workers take so long for an accepted write that reads find some waiting.
const SLOW_NS: u64 = 300_000;

fn slow_nodes() -> Cluster {
    let cluster = Cluster::with(|shape| {
        (shape.protocol, shape.service_ns) = (Protocol::Native, SLOW_NS);
    });
    await_placement(&mut cluster.client(0), 3);
    cluster
}

fn slow_plan() -> Plan {
    let mut plan = PLAN;
    (plan.shape.protocol, plan.shape.service_ns) = (Protocol::Native, SLOW_NS);
    plan
}

/// How many writes the nodes have accepted.
fn accepted(cluster: &Cluster) -> u64 {
    let clients = cluster.clients().into_iter();
    clients
        .map(|mut client| client.stat("curtail", "native:accepted"))
        .sum()
}

/// Sends a marked write until it is acknowledged; whether it was accepted, not executed.
#[track_caller]
fn is_accepted(client: &mut Client, ask: Ask<'_>) -> bool {
    let bytes = client.bytes(0, ask.nilext());
    let promise = |answer: Reply<'_>| match answer {
        Reply::Ack(ack) => (ack.promise, ack.place.queue, ack.place.pos),
        other => panic!("{other:?}"),
    };
    let first = client.exchange(&bytes);
    let again = client.exchange(&bytes);
    assert_eq!(promise(first.reply()), promise(again.reply()), "sent again");
    promise(first.reply()).0 == Promise::Accepted
}

const KEYS: usize = 48;

/// Goal: a node accepts marked writes of the keys that it alone holds, and no others; everybody
/// sees them at once. Method: one copy, then two; slow workers; each key is written at every node,
/// and read and changed at another one and by memcached's clients.
#[test]
fn a_node_accepts_writes_of_what_it_alone_holds() {
    let cluster = slow_nodes();
    let mut nodes: Vec<_> = (0..3).map(|id| native(&cluster, id)).collect();
    let mut memcached = cluster.clients();
    let mut at = [0; 3];
    for number in 0..KEYS {
        let key = format!("a{number}");
        let name = key.as_bytes();
        for writer in 0..3 {
            let (value, reader) = (format!("{number}{writer}"), (writer + 1) % 3);
            let early = is_accepted(&mut nodes[writer], Ask::set(name, value.as_bytes()));
            at[writer] += usize::from(early);
            match (number + writer) % 4 {
                0 => memcached[reader].demand_value(&*key, &*value),
                1 => memcached[writer].demand_value(&*key, &*value),
                2 => assert_eq!(nodes[reader].get(name).as_deref(), Some(value.as_bytes())),
                _ => assert_eq!(nodes[writer].get(name).as_deref(), Some(value.as_bytes())),
            }
            is_accepted(&mut nodes[writer], Ask::set(name, b"41"));
            let count = Ask::new(Opcode::Increment, name).argument(1);
            assert_eq!(nodes[reader].ask(count).number(), 42);
            is_accepted(&mut nodes[writer], Ask::new(Opcode::Delete, name));
            assert_eq!(nodes[reader].ask(count).status(), Status::NotFound);
        }
    }
    assert!(at.iter().all(|times| *times > 0), "{at:?}");
    assert_eq!(at.iter().sum::<usize>(), KEYS, "one of three nodes each");
    let cluster = nodes_with(2);
    let mut client = native(&cluster, 0);
    for number in 0..KEYS {
        let key = format!("b{number}");
        assert!(!is_accepted(&mut client, Ask::set(key.as_bytes(), b"2")));
    }
    assert_eq!(accepted(&cluster), 0);
}

/// Goal: a flush removes what was accepted before it, wherever it is ordered. Method: slow workers;
/// the flush comes from native and memcached's clients of other nodes, right behind the writes.
#[test]
fn a_flush_comes_after_what_was_accepted() {
    let cluster = slow_nodes();
    let mut nodes: Vec<_> = (0..3).map(|id| native(&cluster, id)).collect();
    let mut memcached = cluster.client(1);
    for round in 0..4 {
        for number in 0..KEYS {
            let key = format!("f{number}");
            is_accepted(&mut nodes[number % 3], Ask::set(key.as_bytes(), b"gone"));
        }
        match round % 2 {
            0 => memcached.demand("flush_all\r\n", "OK\r\n"),
            _ => {
                let flush = nodes[2].ask(Ask::new(Opcode::Flush, b""));
                assert_eq!(flush.status(), Status::Done);
            }
        }
        for number in 0..KEYS {
            let key = format!("f{number}");
            assert_eq!(nodes[(number + 1) % 3].get(key.as_bytes()), None, "{key}");
        }
    }
    assert!(accepted(&cluster) > 0);
}

/// Goal: what was accepted is there when its key becomes hot, and when its slice has moved. Method:
/// slow workers; a key becomes hot, then its node leaves, right behind writes of it.
#[test]
fn accepted_writes_go_along_with_their_keys() {
    let mut cluster = slow_nodes();
    let mut nodes: Vec<_> = (0..3).map(|id| native(&cluster, id)).collect();
    for number in 0..KEYS {
        let key = format!("h{number}");
        for value in 0..8 {
            is_accepted(&mut nodes[number % 3], Ask::set(key.as_bytes(), &[value]));
        }
        cluster.change_hot(&key, true);
        let read = nodes[(number + 1) % 3].get(key.as_bytes());
        assert_eq!(read.as_deref(), Some(&[7][..]), "{key}");
        cluster.change_hot(&key, false);
    }
    let before = accepted(&cluster);
    for number in 0..8 * KEYS {
        let key = format!("l{number}");
        is_accepted(&mut nodes[2], Ask::set(key.as_bytes(), b"moves"));
    }
    assert!(accepted(&cluster) > before, "the last node accepted some");
    let leaves = cluster.nodes[2].take().unwrap();
    assert!(leaves.leave());
    eventually("it leaves", || leaves.has_left());
    drop(leaves.stop());
    for number in 0..8 * KEYS {
        let key = format!("l{number}");
        let read = nodes[number % 2].get(key.as_bytes());
        assert_eq!(read.as_deref(), Some(&b"moves"[..]), "{key}");
    }
}

/// Goal: what native clients see is linearizable while nodes accept writes, keys become hot and
/// cease to be, and datagrams get lost. Method: slow workers.
#[test]
fn histories_with_accepted_writes_are_linearizable() {
    let mut plan = slow_plan();
    plan.lasts = Duration::from_secs(6);
    judge(plan, 11);
    plan.loses = true;
    judge(plan, 12);
}

/// Goal: so it is while each node in turn leaves and comes back, and nothing is lost.
#[test]
fn accepted_writes_survive_a_rolling_restart() {
    restart_all(slow_plan(), 1);
}

/// Goal: the judge would notice reads that do not wait for accepted writes. Method: nodes that do
/// not look at the stamps.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn a_read_that_overtakes_an_accepted_write_is_noticed() {
    let mut plan = slow_plan();
    plan.shape.fault = Fault::SkipsStamps;
    let caught = (0..20).any(|seed| {
        let verdict = check_linearizable(&record(plan, seed), STEPS_MAX);
        matches!(verdict, Verdict::Violation(_))
    });
    assert!(caught, "twenty runs without a violation");
}
