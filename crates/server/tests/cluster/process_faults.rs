//! Clusters of real processes in trouble: killed, stopped, cut off, slow; clients at all nodes,
//! whose histories are judged, while the hot set changes.
//!
//! An episode is one trouble: keys of its own, the trouble, its end, until every key has its place
//! again; then the judgement. Some keys stay hot all the time, some become hot and cease to be,
//! some never are. A few episodes here; many behind `--ignored`, where `CURTAIL_SECONDS` (60) is
//! for each shape. Partitions and slow lines want the right to make network namespaces.

use std::{
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_history::Verdict;
use curtail_server::Fault;

use crate::{
    fault_episode::{Told, Trouble, episode},
    network::Network,
    processes::Processes,
    support::{Shape, setting},
};

const SHAPE: Shape = Shape {
    workers: 1,
    lease_ms: 2000,
    ..Shape::DEFAULT
};

/// Runs episodes, one for each trouble, on one cluster; `None` where its network may not be made.
fn run(shape: Shape, in_network: bool, troubles: &[Trouble], seconds: u64) -> Option<Vec<Told>> {
    let troubles = troubles.to_vec();
    // A thread of its own: those that it starts share its network, others do not.
    let all = thread::spawn(move || {
        let network = match in_network {
            true => Some(Network::enter(shape.nodes)?),
            false => None,
        };
        let mut cluster = Processes::start(shape, network);
        let started = Clock::now();
        let mut all: Vec<Told> = Vec::new();
        let enough = Duration::from_secs(seconds);
        let first = setting("CURTAIL_FIRST").unwrap_or(0) as usize;
        for number in first.. {
            if all.len() >= troubles.len() && started.elapsed() > enough {
                break;
            }
            let trouble = &troubles[number % troubles.len()];
            let told = episode(&mut cluster, *trouble, number);
            println!("{told}");
            all.push(told);
        }
        Some(all)
    });
    all.join().unwrap()
}

/// Those whose places `CURTAIL_TROUBLES` has, or all.
fn chosen(troubles: &[Trouble]) -> Vec<Trouble> {
    let some = std::env::var("CURTAIL_TROUBLES").unwrap_or_else(|_| "01234567".into());
    let is_chosen = |place: &usize| some.contains(&place.to_string());
    let places = (0..troubles.len()).filter(is_chosen);
    places.map(|place| troubles[place]).collect()
}

#[track_caller]
fn judge(all: &[Told]) {
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
    judge(&run(shape, false, &[Trouble::Kill, Trouble::LongStop], 0).unwrap());
}

/// A node that is cut off stops answering, and only its cold keys with one holder are lost.
#[test]
fn a_partition_shows_nothing_old() {
    if let Some(all) = run(SHAPE, true, &[Trouble::PartOne, Trouble::Kill], 0) {
        judge(&all);
    }
}

/// Sessions agree on the order of a hot key's writes across a long stop and a lost view.
#[test]
fn sessions_agree_while_nodes_stop() {
    let shape = Shape {
        model: "sc",
        replicas: 2,
        ..SHAPE
    };
    judge(&run(shape, false, &[Trouble::LongStop, Trouble::LoseView], 0).unwrap());
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
    let caught = (0..4).any(|_| {
        let all = run(shape, false, &[Trouble::LoseView], 0).unwrap();
        all.iter().any(is_wrong)
    });
    assert!(caught, "four episodes without a violation");
}

/// Nodes, holders and model of each cluster that is tried.
const SHAPES: [(usize, usize, &str); 9] = [
    (3, 1, "lin"),
    (3, 2, "lin"),
    (3, 3, "sc"),
    (5, 1, "lin"),
    (5, 2, "lin"),
    (5, 1, "sc"),
    (8, 1, "lin"),
    (8, 2, "sc"),
    (8, 3, "lin"),
];

/// Those whose places `CURTAIL_SHAPES` has, or the one that `CURTAIL_SHAPE` is (`4,2,sc`), or all.
fn shapes() -> Vec<(usize, usize, &'static str)> {
    if let Ok(one) = std::env::var("CURTAIL_SHAPE") {
        let words: Vec<&str> = one.split(',').collect();
        let &[nodes, replicas, model] = &*words else {
            panic!("CURTAIL_SHAPE={one}");
        };
        let model = if model == "sc" { "sc" } else { "lin" };
        return vec![(nodes.parse().unwrap(), replicas.parse().unwrap(), model)];
    }
    let some = std::env::var("CURTAIL_SHAPES").unwrap_or_else(|_| "012345678".into());
    let places = (0..SHAPES.len()).filter(|place| some.contains(&place.to_string()));
    places.map(|place| SHAPES[place]).collect()
}

/// The same for long, in several shapes; `CURTAIL_SHAPES=0,4` takes some of them, `CURTAIL_SHAPE`
/// another one (`4,2,sc`: nodes, holders, model), and `CURTAIL_TROUBLES=0` some of the troubles;
/// `CURTAIL_FIRST` is the number of the first episode, and `CURTAIL_LEASE_MS` the lease.
#[test]
#[ignore = "minutes: CURTAIL_SECONDS for each of nine shapes"]
fn real_clusters_for_long() {
    let seconds = setting("CURTAIL_SECONDS").unwrap_or(60);
    let mut failed = Vec::new();
    for (nodes, replicas, model) in shapes() {
        let shape = Shape {
            nodes,
            replicas,
            model,
            lease_ms: setting("CURTAIL_LEASE_MS").unwrap_or(2000),
            ..SHAPE
        };
        println!("{nodes} nodes, {replicas} holders, {model}");
        let all = run(shape, true, &chosen(&Trouble::ALL), seconds)
            .or_else(|| run(shape, false, &chosen(&Trouble::ON_LOOPBACK), seconds))
            .unwrap();
        println!("{}", Told::sum(&all));
        failed.extend(all.into_iter().filter(|told| !told.is_right()));
    }
    failed
        .iter()
        .for_each(|told| println!("wrong: {told}\n{:?}", told.verdict));
    judge(&failed);
}
