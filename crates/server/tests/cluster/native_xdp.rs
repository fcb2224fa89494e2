//! The XDP program at a node of a cluster: it accepts marked writes of slices that the
//! node alone holds, and leaves everything else to the server. On `lo` of a namespace of the test's
//! own; `namespace.rs` says who fails and who skips without one.

use std::{thread, time::Duration};

use curtail_client::Promise;
use curtail_codec::native::Reply;
use curtail_history::{Verdict, check_linearizable};
use curtail_server::{Fault, NativeMode};
use curtail_testing::eventually;

use crate::{
    histories::{PLAN, STEPS_MAX, judge, record},
    namespace::Namespace,
    native_clients::native,
    native_support::{Ask, Client},
    process_faults,
    recording_clients::Plan,
    restarts::restart_all,
    support::{Cluster, Protocol, Shape, await_placement},
    troubles::Trouble,
};

/// Runs a test in a namespace, if there may be one; node 0 of its cluster has the program.
fn with_program(test: impl FnOnce(Shape) + Send + 'static) {
    let name = thread::current().name().map(str::to_owned);
    let builder = thread::Builder::new().name(name.unwrap_or_default());
    let run = move || {
        let Some(namespace) = Namespace::enter() else {
            return;
        };
        let pins = namespace.pins.join("curtail");
        let mut shape = Shape::DEFAULT;
        shape.protocol = Protocol::Native;
        shape.pins = Some(pins.to_str().unwrap().to_owned().leak());
        test(shape);
    };
    let ended = builder.spawn(run).unwrap().join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Sends a marked write until it is acknowledged; whether it was accepted.
#[track_caller]
fn is_accepted(client: &mut Client, ask: Ask<'_>) -> bool {
    match client.ask(ask.nilext()).reply() {
        Reply::Ack(ack) => ack.promise == Promise::Accepted,
        other => panic!("{other:?}"),
    }
}

fn key_of(number: usize) -> Vec<u8> {
    (0..number)
        .map(|at| b'a' + ((at * 7 + number) % 26) as u8)
        .collect()
}

/// Goal: the program accepts what its node alone holds, by the hashes that the node has for keys of
/// every length, and everybody sees it; the server answers the rest. Method: marked writes of keys
/// of 1 to 200 bytes, several of each length.
#[test]
fn the_program_accepts_at_a_node() {
    with_program(|shape| {
        let cluster = Cluster::start(shape);
        await_placement(&mut cluster.client(0), 3);
        let server = cluster.nodes[0].as_ref().unwrap();
        assert_eq!(server.native().unwrap().mode, NativeMode::Xdp);
        let mut nodes: Vec<_> = (0..3).map(|id| native(&cluster, id)).collect();
        let mut memcached = cluster.clients();
        let received = |cluster: &Cluster| cluster.client(0).stat("curtail", "native:received");
        let (before, mut by_length) = (received(&cluster), [0; 2]);
        let mut asked = 0;
        for length in (1..=140).chain([199, 200]) {
            for salt in 0..4_u8 {
                let mut key = key_of(length);
                key[length - 1] = b'0' + salt;
                let value = format!("{length} {salt}");
                let accepted = is_accepted(&mut nodes[0], Ask::set(&key, value.as_bytes()));
                by_length[usize::from(length > 128)] += usize::from(accepted);
                asked += 1;
                let name = String::from_utf8(key.clone()).unwrap();
                let reader = usize::from(salt) % 3;
                assert_eq!(nodes[reader].get(&key).as_deref(), Some(value.as_bytes()));
                asked += usize::from(reader == 0);
                memcached[length % 3].demand_value(name, &*value);
            }
        }
        let told = received(&cluster) - before;
        println!("accepted {by_length:?}; the server received {told} of {asked}");
        assert!(by_length.iter().all(|count| *count > 0), "{by_length:?}");
        // Sent again or not, what the program acknowledged the server has not received.
        assert!(told + 60 < asked as u64, "{told} of {asked}");
        for number in 0..40 {
            let key = format!("hot{number}");
            for value in 0..6 {
                is_accepted(&mut nodes[0], Ask::set(key.as_bytes(), &[value]));
            }
            cluster.change_hot(&key, true);
            let read = nodes[1].get(key.as_bytes());
            assert_eq!(read.as_deref(), Some(&[5][..]), "{key}");
            cluster.change_hot(&key, false);
        }
    });
}

fn plan(shape: Shape) -> Plan {
    let mut plan = Plan { shape, ..PLAN };
    plan.shape.service_ns = 300_000;
    plan.lasts = Duration::from_secs(5);
    plan
}

/// Goal: what native clients see is linearizable while the program accepts writes, keys become hot
/// and cease to be, and datagrams get lost, arrive twice and late.
#[test]
fn histories_over_the_program_are_linearizable() {
    with_program(|shape| {
        let mut plan = plan(shape);
        judge(plan, 21);
        plan.loses = true;
        judge(plan, 22);
    });
}

/// Goal: so it is while each node in turn leaves and comes back, and nothing is lost.
#[test]
fn what_the_program_accepts_survives_a_rolling_restart() {
    with_program(|shape| restart_all(plan(shape), 2));
}

/// Goal: when the process of a node with the program is killed, only what was on that node is lost,
/// and when it is stopped for longer than its lease, nobody sees anything old. Method: real
/// processes; node 0, which has the program, is in trouble each time.
#[test]
fn a_node_with_the_program_is_killed_and_stopped() {
    with_program(|shape| {
        let shape = Shape {
            protocol: shape.protocol,
            pins: shape.pins,
            service_ns: 100_000,
            ..process_faults::SHAPE
        };
        for trouble in [Trouble::Kill, Trouble::LongStop] {
            process_faults::judge(&process_faults::run(shape, false, &[trouble]));
        }
    });
}

/// Goal: queues that an ended life of the node has left are dropped, and the next one accepts.
#[test]
fn a_node_drops_the_queues_of_its_former_life() {
    with_program(|shape| {
        let mut cluster = Cluster::start(shape);
        await_placement(&mut cluster.client(0), 3);
        let mut client = native(&cluster, 0);
        let write = |client: &mut Client| {
            let keys = (0..60).map(|number| format!("d{number}"));
            keys.filter(|key| is_accepted(client, Ask::set(key.as_bytes(), b"v")))
                .count()
        };
        assert!(write(&mut client) > 0);
        cluster.nodes[0] = None;
        await_placement(&mut cluster.client(1), 2);
        cluster.revive(0);
        cluster.await_service(0);
        await_placement(&mut cluster.client(1), 3);
        let mut client = native(&cluster, 0);
        eventually("it accepts again", || write(&mut client) > 0);
    });
}

/// Goal: the judge would notice reads that do not wait for what the program has accepted.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn a_read_that_overtakes_the_program_is_noticed() {
    with_program(|shape| {
        let mut plan = plan(shape);
        plan.shape.fault = Fault::SkipsStamps;
        let caught = (0..20).any(|seed| {
            let verdict = check_linearizable(&record(plan, seed), STEPS_MAX);
            matches!(verdict, Verdict::Violation(_))
        });
        assert!(caught, "twenty runs without a violation");
    });
}
