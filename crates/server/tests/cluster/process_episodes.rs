//! Many episodes on clusters of processes that a seed chooses, and what came of each kind of
//! trouble, as a table.
//!
//! ```text
//!   seed --> shape: nodes, holders, model, where the view is --> a cluster in its own namespaces
//!            every trouble that can be had there, in some order --> episodes --> judged
//! ```

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_workload::Random;

use crate::{
    etcd::Etcd,
    fault_episode::{Told, episode},
    network::Network,
    processes::Processes,
    support::Shape,
    troubles::{Place, Trouble},
    unanswered_time::Gaps,
};

/// A cluster, and what is to happen to it.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) shape: Shape,
    /// Where nodes have lines of their own, if that is allowed.
    pub(crate) in_network: bool,
    /// Those that cannot be had there are left out.
    pub(crate) troubles: Vec<Trouble>,
    /// The number of the first episode, which chooses its victim and its keys.
    pub(crate) first: usize,
}

/// What is drawn from one seed.
pub(crate) struct Draw {
    random: Random,
    pub(crate) seed: u64,
}

impl Series {
    /// Has everything happen, one after the other.
    pub(crate) fn run(self) -> Vec<Told> {
        // A thread of its own: those that it starts share its network, others do not.
        thread::spawn(move || self.run_here()).join().unwrap()
    }

    fn run_here(self) -> Vec<Told> {
        let nodes = self.shape.nodes;
        let network = self.in_network.then(|| Network::enter(nodes)).flatten();
        let mut cluster = Processes::start(self.shape, network);
        let place = Place {
            has_network: cluster.network.is_some(),
            has_wrong_clocks: cluster.clocks.is_some(),
            view_in_etcd: self.shape.view_in_etcd,
        };
        let can_be: Vec<Trouble> = Trouble::at(place).collect();
        let mut all = Vec::new();
        for trouble in self.troubles {
            if !can_be.contains(&trouble) {
                eprintln!("{trouble:?} is left out: it cannot be had in {place:?}");
                continue;
            }
            let told = episode(&mut cluster, trouble, self.first + all.len());
            println!("{told}");
            all.push(told);
        }
        all
    }
}

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            seed,
        }
    }

    /// A shape like `base`: 3 to 8 nodes, smaller ones more often, one to three holders.
    pub(crate) fn shape(&mut self, base: Shape) -> Shape {
        let nodes = [3, 3, 4, 4, 5, 5, 6, 8];
        let draw = &mut self.random;
        Shape {
            nodes: nodes[draw.below(nodes.len() as u64) as usize],
            replicas: 1 + draw.below(3) as usize,
            model: if draw.one_in(2) { "sc" } else { "lin" },
            view_in_etcd: draw.one_in(3) && Etcd::is_here(),
            ..base
        }
    }

    /// The troubles that can be had with such a view, in some order.
    pub(crate) fn troubles(&mut self, chosen: &[Trouble], view_in_etcd: bool) -> Vec<Trouble> {
        let place = Place {
            has_network: true,
            has_wrong_clocks: true,
            view_in_etcd,
        };
        let can_be = Trouble::at(place).filter(|trouble| chosen.contains(trouble));
        let mut left: Vec<Trouble> = can_be.collect();
        let mut troubles = Vec::new();
        while !left.is_empty() {
            let index = self.random.below(left.len() as u64) as usize;
            troubles.push(left.swap_remove(index));
        }
        troubles
    }
}

/// A row for each trouble: how often it was had, and for how long keys were away.
pub(crate) fn table(all: &[Told]) -> String {
    let mut kinds: BTreeMap<usize, Vec<&Told>> = BTreeMap::new();
    for told in all {
        kinds.entry(told.trouble as usize).or_default().push(told);
    }
    let mut text =
        "| trouble | episodes | operations | wrong | removed without need | hot keys read \
                    after, ms | written after | other keys after | beyond CL-20 |\n\
                    |---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    for told in kinds.values() {
        text += &row(&format!("{:?}", told[0].trouble), told);
    }
    let everything: Vec<&Told> = all.iter().collect();
    text += &row("all", &everything);
    text
}

fn row(name: &str, all: &[&Told]) -> String {
    // Where one half was removed, what it saw there says nothing of the other.
    let watched = all.iter().filter(|told| !told.is_watch_removed);
    let watched: Vec<&Gaps> = watched.map(|told| &told.gaps).collect();
    let told = |of: fn(&Gaps) -> Duration| {
        let mut ms: Vec<u128> = watched.iter().map(|gaps| of(gaps).as_millis()).collect();
        ms.sort_unstable();
        match (ms.get(ms.len() / 2), ms.last()) {
            (Some(middle), Some(worst)) => format!("{middle}, {worst}"),
            _ => "-".into(),
        }
    };
    let count = |is: fn(&Told) -> bool| all.iter().filter(|told| is(told)).count();
    let removed: usize = all.iter().map(|told| told.removed_wrongly).sum();
    let operations: usize = all.iter().map(|told| told.operations).sum();
    let late = match all.iter().all(|told| told.trouble.is_unbounded()) {
        true => "no bound".into(),
        false => count(Told::is_late).to_string(),
    };
    format!(
        "| {name} | {} | {operations} | {} | {removed} | {} | {} | {} | {late} |\n",
        all.len(),
        count(|told| !told.is_right()),
        told(|gaps| gaps.read),
        told(|gaps| gaps.write),
        told(|gaps| gaps.cold),
    )
}

/// Runs episodes until there are so many, shows the table of those so far after each cluster, and
/// keeps it among the build's temporary files.
pub(crate) fn run_many(
    draw: &mut Draw,
    episodes: usize,
    chosen: &[Trouble],
    shape: impl Fn(&mut Draw) -> Shape,
) -> Vec<Told> {
    let started = Clock::now();
    let mut all: Vec<Told> = Vec::new();
    let mut first = 0;
    while all.len() < episodes {
        let shape = shape(draw);
        let mut troubles = draw.troubles(chosen, shape.view_in_etcd);
        troubles.truncate(episodes - all.len());
        let before = all.len();
        all.extend(
            Series {
                shape,
                in_network: true,
                troubles,
                first,
            }
            .run(),
        );
        assert!(all.len() > before, "none of {chosen:?} can be had here");
        first = all.len();
        let (seed, seconds) = (draw.seed, started.elapsed().as_secs());
        let text = format!(
            "seed {seed}, {} episodes in {seconds} s\n\n{}",
            all.len(),
            table(&all)
        );
        println!("{text}");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cluster-episodes.md");
        fs::write(path, text).unwrap();
    }
    all
}
