//! Clusters of real processes in trouble: killed, stopped, cut off, slow, with wrong clocks,
//! removed and added; clients at all nodes, whose histories are judged, while the hot set changes.
//!
//! An episode is one trouble: keys of its own, the trouble, its end, until every key has its place
//! again; then the judgement. Some keys stay hot all the time, some become hot and cease to be,
//! some never are. A few episodes here; many behind `--ignored`. Partitions and bad lines want the
//! right to make network namespaces.

use curtail_history::Verdict;
use curtail_server::Fault;

use crate::{
    etcd::Etcd,
    fault_episode::Told,
    process_episodes::{Draw, Series, run_many},
    support::{Protocol, Shape, setting},
    troubles::Trouble,
};

pub(crate) const SHAPE: Shape = Shape {
    workers: 1,
    lease_ms: 2000,
    ..Shape::DEFAULT
};

/// Has these happen to one cluster, one after the other.
pub(crate) fn run(shape: Shape, in_network: bool, troubles: &[Trouble]) -> Vec<Told> {
    let series = Series {
        shape,
        in_network,
        troubles: troubles.to_vec(),
        first: 0,
    };
    series.run()
}

#[track_caller]
pub(crate) fn judge(all: &[Told]) {
    for told in all {
        assert!(told.operations > 100, "too few to tell: {told}");
        assert_eq!(told.verdict, Verdict::Consistent, "{told}");
        assert_eq!(told.lost_wrongly, Vec::<String>::new(), "{told}");
        assert!(told.counts_losses(), "{told}");
    }
}

/// With two holders a kill loses no acknowledged write, and a stopped process shows nothing old.
#[test]
fn two_holders_survive_a_kill_and_a_stop() {
    let shape = Shape {
        replicas: 2,
        ..SHAPE
    };
    judge(&run(shape, false, &[Trouble::Kill, Trouble::LongStop]));
}

/// A node that is cut off stops answering, and only its cold keys with one holder are lost.
#[test]
fn a_partition_shows_nothing_old() {
    judge(&run(SHAPE, true, &[Trouble::PartOne, Trouble::Lossy]));
}

/// Two nodes that do not reach each other lose nothing, and one of them is removed, though a third
/// that hears both is the one that usually removes.
#[test]
fn two_nodes_that_are_parted_lose_nothing() {
    let shape = Shape {
        replicas: 2,
        ..SHAPE
    };
    judge(&run(shape, true, &[Trouble::PartTwo, Trouble::PartOneWay]));
}

/// Native clients, of which datagrams get lost and arrive twice, lose no acknowledged write when a
/// process is killed, and see nothing old when one is stopped.
#[test]
fn native_clients_survive_a_kill_and_a_stop() {
    let shape = Shape {
        replicas: 2,
        protocol: Protocol::Native,
        ..SHAPE
    };
    judge(&run(shape, false, &[Trouble::Kill, Trouble::LongStop]));
}

/// With one holder, whose node accepts marked writes before it executes them, only what was on the
/// killed node is lost, and a stopped process shows nothing old.
#[test]
fn accepted_writes_of_a_killed_node_are_all_that_is_lost() {
    let shape = Shape {
        protocol: Protocol::Native,
        ..SHAPE
    };
    judge(&run(shape, false, &[Trouble::Kill, Trouble::LongStop]));
}

/// The same over a line that drops packets, and when a node is cut off.
#[test]
fn native_clients_survive_a_partition() {
    let shape = Shape {
        protocol: Protocol::Native,
        ..SHAPE
    };
    judge(&run(shape, true, &[Trouble::PartOne, Trouble::Lossy]));
}

/// With the model `sc` their sessions agree while a process is killed.
#[test]
fn native_sessions_agree_though_a_node_is_killed() {
    let shape = Shape {
        model: "sc",
        replicas: 2,
        protocol: Protocol::Native,
        ..SHAPE
    };
    judge(&run(shape, false, &[Trouble::Kill]));
}

/// Sessions agree on the order of a hot key's writes across a long stop and a lost view.
#[test]
fn sessions_agree_while_nodes_stop() {
    let shape = Shape {
        model: "sc",
        replicas: 2,
        ..SHAPE
    };
    judge(&run(shape, false, &[Trouble::LongStop, Trouble::LoseView]));
}

/// The judge notices nodes that go on answering when their lease has ended.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn an_answer_past_the_lease_is_noticed() {
    let shape = Shape {
        fault: Fault::ServesPastLease,
        ..SHAPE
    };
    let is_wrong = |told: &Told| matches!(told.verdict, Verdict::Violation(_));
    // On a busy machine one of them may see nothing of it.
    let caught = (0..20).any(|_| {
        let all = run(shape, false, &[Trouble::LoseView]);
        all.iter().any(is_wrong)
    });
    assert!(caught, "twenty episodes without a violation");
}

/// A node that leaves in order and comes back takes nothing with it, and clocks that go wrong by
/// 1 % show nothing old.
#[test]
fn a_node_leaves_while_clocks_are_wrong() {
    let shape = Shape {
        replicas: 2,
        ..SHAPE
    };
    judge(&run(shape, false, &[Trouble::Leave, Trouble::Clocks]));
}

/// A cluster goes on when its etcd is killed and started again.
#[test]
fn etcd_dies_and_comes_back() {
    if !Etcd::is_here() {
        return eprintln!("left out: no etcd here; Debian has it in the package etcd-server");
    }
    let shape = Shape {
        view_in_etcd: true,
        ..SHAPE
    };
    judge(&run(shape, false, &[Trouble::StoreDies, Trouble::Kill]));
}

/// The shape that `CURTAIL_SHAPE` is (`4,2,sc`: nodes, holders, model; `4,2,sc,etcd`), if it is.
fn shape_told() -> Option<Shape> {
    let told = std::env::var("CURTAIL_SHAPE").ok()?;
    let words: Vec<&str> = told.split(',').collect();
    let &[nodes, replicas, model, ref rest @ ..] = &*words else {
        panic!("CURTAIL_SHAPE={told}");
    };
    Some(Shape {
        nodes: nodes.parse().unwrap(),
        replicas: replicas.parse().unwrap(),
        model: if model == "sc" { "sc" } else { "lin" },
        view_in_etcd: rest == ["etcd"],
        ..SHAPE
    })
}

/// The troubles that `CURTAIL_TROUBLES` names (`Kill,Leave`), or all.
fn troubles_told() -> Vec<Trouble> {
    let told = std::env::var("CURTAIL_TROUBLES").unwrap_or_default();
    let names: Vec<&str> = told.split(',').filter(|name| !name.is_empty()).collect();
    let named = |trouble: &Trouble| names.is_empty() || names.contains(&&*format!("{trouble:?}"));
    Trouble::ALL.into_iter().filter(named).collect()
}

/// Clusters that a seed chooses, each through every trouble: `CURTAIL_EPISODES` of them,
/// `CURTAIL_SEED`, `CURTAIL_LEASE_MS`, `CURTAIL_SHAPE`, `CURTAIL_TROUBLES`. Prints a table of how
/// long keys were away.
#[test]
#[ignore = "minutes: CURTAIL_EPISODES of about eight seconds"]
fn many_episodes() {
    let episodes = setting("CURTAIL_EPISODES").unwrap_or(30) as usize;
    let lease_ms = setting("CURTAIL_LEASE_MS").unwrap_or(1000);
    let mut draw = Draw::new(setting("CURTAIL_SEED").unwrap_or(1));
    let shape = |draw: &mut Draw| Shape {
        lease_ms,
        ..shape_told().unwrap_or_else(|| draw.shape(SHAPE))
    };
    let all = run_many(&mut draw, episodes, &troubles_told(), shape);
    let wrong: Vec<Told> = all.into_iter().filter(|told| !told.is_right()).collect();
    for told in &wrong {
        println!("wrong: {told}\n{:?}", told.verdict);
    }
    judge(&wrong);
}
