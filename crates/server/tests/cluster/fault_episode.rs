//! One trouble for a cluster of processes, and what clients saw of it.

use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_history::{
    Entry, History, Numbered, Updates, Verdict, check_agreed, check_linearizable,
};
use curtail_testing::{Connection, PATIENCE};
use curtail_types::Instant;

use crate::{
    histories::{STEPS_MAX, word},
    idle_key_losses::{Treasure, items_lost},
    losses::{Views, with_losses, without_losses},
    processes::Processes,
    recording_clients::{CallFor, Caller, End, Nodes, Plan, Run},
    sequential_clients::{number_the_unanswered, sessions},
    support::{Protocol, Shape},
    troubles::Trouble,
    unanswered_time::{Gaps, longest},
};

/// Keys of an episode: those that are hot all the time, those that become hot and cease to be, and
/// those that never are.
const PINNED: u64 = 4;
const CHURNING: u64 = 8;
const COLD: u64 = 6;
const KEYS: u64 = PINNED + CHURNING + COLD;

/// Keys of two episodes differ.
const KEYS_APART: u64 = 1000;

/// Clients that ask for anything at any node.
const CLIENTS: u32 = 5;

/// Before the trouble, and after it.
const CALM: Duration = Duration::from_millis(1000);

/// Between two requests of a client that asks for anything: nodes have the same processors, and
/// what is measured is for how long keys are away, not how busy the machine is.
const PAUSE: Duration = Duration::from_millis(1);

/// After how long a message without an answer is sent again, and a little for what runs it.
const REPETITION: Duration = Duration::from_millis(50);

/// Between two looks at the cluster, and changes of the hot set.
const STEP: Duration = Duration::from_millis(10);

/// What came of an episode.
pub(crate) struct Told {
    pub(crate) shape: Shape,
    pub(crate) trouble: Trouble,
    number: usize,
    pub(crate) operations: usize,
    pub(crate) verdict: Verdict,
    /// Values that are gone although a node had them, or was to have them, all the time.
    pub(crate) lost_wrongly: Vec<String>,
    /// Keys with one holder that died with it, and how many a node says that were lost.
    lost: usize,
    lost_as_told: u64,
    /// A node that was removed while it was stopped, and was the only holder of its slices, counts
    /// their items, too.
    stopped_nodes_count: bool,
    /// Nodes that were removed although nothing was done to them.
    pub(crate) removed_wrongly: usize,
    /// The node at which hot keys were watched was of the half that lost.
    pub(crate) is_watch_removed: bool,
    pub(crate) gaps: Gaps,
    pub(crate) took: Duration,
}

/// Lets a trouble happen to a settled cluster, and judges what clients saw.
pub(crate) fn episode(cluster: &mut Processes, trouble: Trouble, number: usize) -> Told {
    let shape = cluster.shape;
    cluster.log.clear();
    let first_key = number as u64 * KEYS_APART;
    let plan = Plan {
        shape,
        clients: CLIENTS,
        keys: KEYS,
        first_key,
        reply: 3 * shape.lease(),
        lasts: Duration::ZERO,
        pace: Duration::from_millis(2),
        pause: PAUSE,
        churns: true,
        nodes: Nodes::Stay,
        loses: shape.protocol == Protocol::Native,
    };
    let victims = trouble.victims(shape.nodes, number);
    let spared = (0..shape.nodes).find(|id| !victims.contains(id)).unwrap();
    let treasure = Treasure::bury(cluster, number, spared);
    // A node that is removed while it is stopped counts what it alone had.
    let is_lost = trouble == Trouble::LongStop && shape.replicas == 1;
    let stopped = if is_lost { &victims[..] } else { &[] };
    let counts = |cluster: &mut Processes| -> Vec<u64> {
        stopped.iter().map(|&id| items_lost(cluster, id)).collect()
    };
    let counted_before = counts(cluster);
    heat(cluster, first_key);
    let run = Run::new(plan, cluster.addresses());
    let mut views = Views::default();
    let (seen, began) = thread::scope(|scope| {
        let clients = Clients::start(scope, &run, spared);
        let end = End(&run);
        let began = disturb(cluster, &run, trouble, &victims, &mut views);
        drop(end);
        (clients.end(), began)
    });
    let took = run.started.elapsed();
    let keys = first_key..first_key + KEYS;
    let found = treasure.dig(cluster, &mut views);
    let may_be_lost = views.losses(keys);
    treasure.remove(cluster, first_key..first_key + KEYS);
    let counted = counts(cluster);
    let grew = |(id, (before, now)): (&usize, (u64, u64))| !views.removes(*id) || now > before;
    let both = counted_before.into_iter().zip(counted);
    let stopped_nodes_count = stopped.iter().zip(both).all(grew);
    let operations = seen.calls.len() + seen.sessions.len();
    let told = Told {
        shape,
        trouble,
        number,
        operations,
        gaps: seen.gaps,
        verdict: seen.judge(&may_be_lost, began),
        lost_wrongly: found.wrongly,
        lost: found.lost,
        lost_as_told: found.lost_as_told,
        stopped_nodes_count,
        is_watch_removed: views.removes(spared),
        removed_wrongly: views.removed_wrongly(trouble.wants_removed(shape.nodes, &victims)),
        took,
    };
    if !told.is_right() {
        println!("wrong: {told}\n{:#?}\nviews: {views:?}", told.verdict);
    }
    if told.is_worth_a_look() {
        println!("what nodes said:\n{}", cluster.log.text());
    }
    told
}

/// Has the keys that are to stay hot become so, and all others cease.
fn heat(cluster: &mut Processes, first_key: u64) {
    let started = Clock::now();
    loop {
        for key in first_key.saturating_sub(KEYS_APART)..first_key {
            if key % KEYS_APART < KEYS {
                cluster.change_hot(&format!("k{key}"), false);
            }
        }
        for key in first_key..first_key + PINNED {
            cluster.change_hot(&format!("k{key}"), true);
        }
        // The number is counted about once a second.
        thread::sleep(Duration::from_millis(300));
        let addresses = cluster.stream_addresses().into_iter().flatten();
        let counts: Vec<Option<u64>> = addresses.map(hot_keys).collect();
        if counts.iter().all(|&count| count == Some(PINNED)) {
            return;
        }
        assert!(started.elapsed() < 2 * PATIENCE, "hot keys: {counts:?}");
    }
}

/// How many keys are hot at a node. One that stalls may be removed, and closes its connections.
fn hot_keys(address: SocketAddr) -> Option<u64> {
    let rows = Connection::to(address, PATIENCE).ok()?.stats("curtail");
    let rows = rows.ok()?;
    let row = rows.iter().find(|(name, _)| name == "cluster_hot_keys")?;
    row.1.parse().ok()
}

/// Has the trouble come and go, and says when it began.
fn disturb(
    cluster: &mut Processes,
    run: &Run,
    trouble: Trouble,
    victims: &[usize],
    views: &mut Views,
) -> Instant {
    let lease = run.plan.shape.lease();
    let (mut begun, mut ended, mut settled) = (None, None, None);
    for step in 0.. {
        let now = Clock::now();
        let is_over = |since: Option<Clock>, lasts| since.is_some_and(|at| now - at > lasts);
        match (begun, ended, settled) {
            (None, ..) if is_over(Some(run.started), CALM) => {
                let what = format!("{trouble:?} of {victims:?} begins");
                cluster.log.note(&what);
                trouble.set(cluster, victims, true);
                begun = Some(now);
            }
            (_, None, _)
                if is_over(begun, trouble.lasts(lease)) && trouble.is_over(cluster, victims) =>
            {
                cluster.log.note(&format!("{trouble:?} ends"));
                trouble.set(cluster, victims, false);
                ended = Some(now);
            }
            (_, Some(_), None) if is_over(ended, CALM) && cluster.is_settled() => {
                settled = Some(now);
            }
            (_, _, Some(at)) if now - at > CALM => break,
            _ => {}
        }
        let roster = cluster.roster();
        assert!(!is_over(ended, 3 * PATIENCE), "never settled: {roster:?}");
        assert!(
            !is_over(begun, 5 * PATIENCE),
            "{trouble:?} never ended: {roster:?}"
        );
        let view = roster.map(Arc::new);
        let is_new = views.note(view.clone());
        if is_new && let Some(roster) = view {
            let text: String = roster.to_json().split_whitespace().collect();
            cluster.log.note(&text);
        }
        if is_new || step % 50 == 0 {
            *run.addresses.lock().unwrap() = cluster.addresses();
        }
        let churning = run.plan.first_key + PINNED;
        let key = churning + step % CHURNING;
        cluster.change_hot(&format!("k{key}"), (step / CHURNING).is_multiple_of(2));
        if trouble == Trouble::Churn && begun.is_some() {
            let key = run.plan.first_key + step % PINNED;
            let is_hot = ended.is_some() || (step / PINNED).is_multiple_of(2);
            cluster.change_hot(&format!("k{key}"), is_hot);
        }
        thread::sleep(STEP);
    }
    let ns = (begun.unwrap() - run.started).as_nanos();
    Instant { ns: ns as u64 }
}

/// Clients at work.
struct Clients<'scope> {
    calls: Vec<thread::ScopedJoinHandle<'scope, Vec<Entry>>>,
    sessions: Vec<thread::ScopedJoinHandle<'scope, Vec<Numbered>>>,
    /// Those that ask for one hot key, or write it, at a node to which nothing is done.
    readers: Vec<usize>,
    writers: Vec<usize>,
    /// Those that ask for one key there that never is hot.
    cold: Vec<usize>,
}

/// What they saw.
struct Seen {
    calls: Vec<Entry>,
    sessions: Vec<Numbered>,
    gaps: Gaps,
}

impl<'scope> Clients<'scope> {
    fn start<'env>(
        scope: &'scope thread::Scope<'scope, 'env>,
        run: &'env Run,
        spared: usize,
    ) -> Self {
        let mut clients = Self {
            calls: Vec::new(),
            sessions: Vec::new(),
            readers: Vec::new(),
            writers: Vec::new(),
            cold: Vec::new(),
        };
        let first = run.plan.first_key;
        let is_lin = run.plan.shape.model == "lin";
        for number in 0..CLIENTS {
            let caller = Caller::new(run, number, first, None);
            let keys = match is_lin {
                // The first key is written at one node alone, so that all others go on showing it.
                true => first + 1..first + KEYS,
                false => first + PINNED + CHURNING..first + KEYS,
            };
            clients
                .calls
                .push(scope.spawn(move || caller.call_among(keys)));
        }
        let mut number = CLIENTS;
        for key in first + PINNED + CHURNING..first + KEYS {
            number += 1;
            let caller = Caller::new(run, number, u64::from(number), Some(spared));
            clients.cold.push(clients.calls.len());
            clients
                .calls
                .push(scope.spawn(move || caller.call_for(key, CallFor::Both)));
        }
        let mut watch = |key: u64, node: usize, writes: bool| {
            number += 1;
            if is_lin {
                let what = if writes {
                    CallFor::Writes
                } else {
                    CallFor::Reads
                };
                let caller = Caller::new(run, number, u64::from(number), Some(node));
                clients
                    .calls
                    .push(scope.spawn(move || caller.call_for(key, what)));
                clients.calls.len() - 1
            } else {
                let (who, keys) = ((number, node), key..key + 1);
                let session = scope.spawn(move || sessions(run, who, keys, Some(writes)));
                clients.sessions.push(session);
                clients.sessions.len() - 1
            }
        };
        let pinned = first..first + PINNED;
        let readers = pinned.clone().map(|key| watch(key, spared, false));
        let readers = readers.collect();
        let writers = pinned.map(|key| watch(key, spared, true)).collect();
        for node in 0..run.plan.shape.nodes {
            watch(first, node, false);
        }
        clients.readers = readers;
        clients.writers = writers;
        if !is_lin {
            for node in 0..run.plan.shape.nodes {
                let who = (100 + node as u32, node);
                let keys = first..first + PINNED + CHURNING;
                let session = scope.spawn(move || sessions(run, who, keys, None));
                clients.sessions.push(session);
            }
        }
        clients
    }

    fn end(self) -> Seen {
        let calls: Vec<Vec<Entry>> = join(self.calls);
        let sessions: Vec<Vec<Numbered>> = join(self.sessions);
        let of_calls = |index: &usize| longest(calls[*index].iter().copied());
        let gap = |index: &usize| match sessions.get(*index) {
            Some(seen) => longest(seen.iter().map(|one| one.entry)),
            None => of_calls(index),
        };
        let gaps = Gaps {
            read: self.readers.iter().map(gap).max().unwrap_or_default(),
            write: self.writers.iter().map(gap).max().unwrap_or_default(),
            cold: self.cold.iter().map(of_calls).max().unwrap_or_default(),
        };
        Seen {
            gaps,
            calls: calls.into_iter().flatten().collect(),
            sessions: sessions.into_iter().flatten().collect(),
        }
    }
}

fn join<T>(threads: Vec<thread::ScopedJoinHandle<'_, T>>) -> Vec<T> {
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

impl Seen {
    fn judge(mut self, may_be_lost: &[u64], began: Instant) -> Verdict {
        number_the_unanswered(&mut self.sessions);
        let sessions = without_losses(self.sessions, may_be_lost, began);
        match check_agreed(&sessions, Updates::Loose) {
            Verdict::Consistent => {}
            wrong => return wrong,
        }
        let history: History = with_losses(self.calls, may_be_lost, began).collect();
        check_linearizable(&history, STEPS_MAX)
    }
}

impl Told {
    /// Nothing is wrong with it.
    pub(crate) fn is_right(&self) -> bool {
        self.verdict == Verdict::Consistent && self.lost_wrongly.is_empty() && self.counts_losses()
    }

    /// Something is wrong with it, or took longer than it should have.
    fn is_worth_a_look(&self) -> bool {
        !self.is_right() || self.removed_wrongly > 0 || self.is_late()
    }

    /// Keys were away for longer than after one failure (CL-20): a lease, a change of the view,
    /// which takes a sixth of one at most, and a repetition.
    pub(crate) fn is_late(&self) -> bool {
        let bound = self.shape.lease() * 7 / 6 + REPETITION;
        let is_bounded = !self.trouble.is_unbounded() && !self.is_watch_removed;
        is_bounded && self.gaps.longest() > bound
    }

    /// What a node says of losses is about what was lost.
    pub(crate) fn counts_losses(&self) -> bool {
        let few = 2 * KEYS as i64;
        let differs = (self.lost as i64 - self.lost_as_told.cast_signed()).abs();
        self.stopped_nodes_count && (self.trouble != Trouble::Kill || differs <= few)
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = word(&self.verdict);
        let Shape {
            nodes,
            replicas,
            model,
            lease_ms,
            ..
        } = self.shape;
        write!(
            f,
            "{nodes} nodes, {replicas} holders, {model}, lease {lease_ms} ms, episode {}: {:?}: {} \
             operations in {:.1?}, {verdict}; lost {} (told {}){}, wrongly {:?}; removed without \
             need {}; hot keys read within {:.2?}, written within {:.2?}, others within {:.2?}{}{}",
            self.number,
            self.trouble,
            self.operations,
            self.took,
            self.lost,
            self.lost_as_told,
            [" NOT AS TOLD", ""][usize::from(self.counts_losses())],
            self.lost_wrongly,
            self.removed_wrongly,
            self.gaps.read,
            self.gaps.write,
            self.gaps.cold,
            ["", ": LATE"][usize::from(self.is_late())],
            ["", " at a node that was removed"][usize::from(self.is_watch_removed)],
        )
    }
}
