//! One node: its machines, and what it has beside them.
//!
//! ```text
//!   client --Demand--> admit -+-> a valid copy, or a gate that lets it: beside it -> reply
//!   node ----Request--------- +-> the machine of the key's stage --> SimHost --> reply
//! ```

use std::collections::BTreeMap;

use curtail_consistency::{
    replica::{CopyState, Gate, Replica, ReplicaConfig, Ticket},
    slice_view::{RowChange, SliceId},
};
use curtail_types::{Access, Cas, HybridClock, NodeId, RouteHash, ViewNumber, WriterId};

use super::{
    ClusterRun, MemoryFull, Mutant, STAGES,
    clock::Clock,
    packet::{Demand, Effect, Item},
    run_state::RunState,
    store::Store,
};

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    /// One for each stage.
    pub(super) machines: Vec<Replica>,
    pub(super) local: Local,
}

/// What a node has beside its machines.
#[derive(Debug, Default)]
pub(super) struct Local {
    pub(super) me: NodeId,
    pub(super) is_up: bool,
    pub(super) clock: Clock,
    pub(super) hybrid: HybridClock,
    /// Of threads beside the machines.
    pub(super) beside: HybridClock,
    pub(super) store: Store,
    /// By slice.
    pub(super) gates: Vec<SliceGate>,
    /// By slice.
    pub(super) scans: Vec<ScanAt>,
    /// By key: what readers may see of a hot key.
    pub(super) shown: Vec<Shown>,
    /// What clients here write into copies.
    pub(super) writes: BTreeMap<Ticket, (usize, Item)>,
    /// What requests that ran are answered with.
    pub(super) results: BTreeMap<Ticket, Effect>,
    /// Requests that are not answered.
    pub(super) open: BTreeMap<Ticket, Open>,
    /// Changes of the view that it wants, until it follows another.
    pub(super) proposals: Vec<RowChange>,
    pub(super) is_proposing: bool,
    /// When this life began.
    pub(super) up_since: u64,
    /// The view in which this life joined.
    pub(super) joined: Option<ViewNumber>,
    /// When its lease ends, in the world's time.
    pub(super) serve_until: u64,
    /// The same, of the last reading of the store that it has begun: it may not know yet.
    pub(super) granted_until: u64,
    pub(super) paused_until: u64,
    /// Until when it cannot reach the store of views.
    pub(super) store_cut_until: u64,
    /// When it is woken next.
    pub(super) wake_at: u64,
    /// Until when it needs room for something else.
    pub(super) reserved_until: u64,
    /// Bytes that a machine wanted evicted and that its own slices did not have.
    pub(super) lack: u64,
}

/// Who may run beside the machine of a slice, and who does.
#[derive(Clone, Debug, Default)]
pub(super) struct SliceGate {
    pub(super) gate: Gate,
    /// How often it was closed: what a reader copied before does not count.
    pub(super) closes: u32,
    /// Requests that run.
    pub(super) beside: u32,
    /// The machine waits for those.
    pub(super) closing: bool,
}

/// How far a scan is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScanAt {
    pub(super) number: u32,
    pub(super) behind: Option<RouteHash>,
}

/// What readers may see of a hot key.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub(super) state: CopyState,
    pub(super) item: Option<Item>,
    pub(super) changes: u32,
}

/// A request that is not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) demand: Demand,
    pub(super) origin: Origin,
}

/// Who wants the answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    Client,
    /// A node, in this life.
    Node(NodeId, u32),
}

/// A request beside the machines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    pub(super) demand: Demand,
    pub(super) kind: BesideKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum BesideKind {
    /// It runs on the store when it ends.
    Runs,
    Copied(Copied),
}

/// What a reader has copied; it counts if these have not changed since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    pub(super) effect: Effect,
    closes: Option<u32>,
    changes: u32,
}

impl Shown {
    pub(super) fn is_hot(&self) -> bool {
        self.state != CopyState::Absent
    }
}

impl Node {
    pub(super) fn new(run: &ClusterRun, full: MemoryFull, me: NodeId, life: u32, of: Made) -> Self {
        let room_ask = match full {
            MemoryFull::Ample => 0,
            MemoryFull::Evict | MemoryFull::Refuse => ROOM_ASK,
        };
        let machine = |stage| {
            let config = ReplicaConfig {
                me,
                model: run.model,
                retransmit_ns: RETRANSMIT_NS,
                suspicion_ns: FOLLOWER_SUSPICION_NS,
                patience_ns: PATIENCE_NS,
                learning_ns: LEARNING_NS,
                waiting_max: 64,
                window_max: 8,
                room_ask,
                catch_ups_max: 2,
                stage: (stage, STAGES),
            };
            Replica::new(config).with_mutant(run.mutant.and_then(Mutant::of_machine))
        };
        let slices = usize::from(run.slices);
        // No life of a node gives a version that another gave, whatever its clock shows.
        let writer = WriterId::of(me, life as u16);
        Self {
            machines: (0..STAGES).map(machine).collect(),
            local: Local {
                me,
                is_up: true,
                clock: of.clock,
                hybrid: HybridClock::new(writer, Default::default()),
                beside: HybridClock::new(
                    WriterId::of(me, WriterId::PER_NODE / 2 + life as u16),
                    Default::default(),
                ),
                store: Store::new(run.keys, of.capacity),
                gates: vec![SliceGate::default(); slices],
                scans: vec![ScanAt::default(); slices],
                shown: vec![Shown::default(); run.keys],
                wake_at: u64::MAX,
                ..Local::default()
            },
        }
    }
}

/// What a node is made of in every life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) clock: Clock,
    pub(super) capacity: Option<u64>,
}

impl Local {
    /// The version of a write of a key beside the machines, above that of the item. The clock of
    /// the threads that give it is ahead, as when the worker of the machine stands still.
    pub(super) fn next_beside(&mut self, key: usize, now: u64) -> Cas {
        if let Some(item) = self.store.item(key) {
            self.beside.follow(item.stamp.version);
        }
        let mut now = self.clock.now(now);
        now.unix_ns += BESIDE_AHEAD_NS;
        self.beside.next(now)
    }

    /// Whether it may answer for what it has.
    pub(super) fn serves(&self, env: &RunState) -> bool {
        let has_view = env.views[usize::from(self.me.0)].is_some();
        let is_wrong = env.run.mutant == Some(Mutant::Unfenced);
        has_view && (env.now < self.serve_until || is_wrong)
    }

    pub(super) fn open(&mut self, demand: Demand, origin: Origin) {
        self.open.insert(demand.ticket(), Open { demand, origin });
    }

    /// What a client of this node, or else another node, waits for.
    pub(super) fn waited_for(&self, ticket: Ticket, by_client: bool) -> Option<Demand> {
        let open = self.open.get(&ticket);
        let open = open.filter(|open| by_client == matches!(open.origin, Origin::Client));
        open.map(|open| open.demand)
    }

    /// What a client's request does beside the machine, if it may.
    pub(super) fn beside(&mut self, env: &RunState, demand: &Demand) -> Option<BesideKind> {
        let slice = env.keys.slice(demand.key);
        let reads = demand.access() == Access::Read;
        let row = env.row(self.me, slice);
        let is_primary = row.is_some_and(|row| row.primary == self.me);
        let shown = &self.shown[demand.key];
        let gate = &mut self.gates[usize::from(slice.0)];
        let copied = |effect, closes| {
            let changes = shown.changes;
            BesideKind::Copied(Copied {
                effect,
                closes,
                changes,
            })
        };
        let item = || Effect::of_read(self.store.item(demand.key));
        match (shown.is_hot(), gate.gate) {
            (true, _) if !reads || shown.state != CopyState::Valid => None,
            (true, _) if !is_primary => Some(copied(Effect::of_read(shown.item.as_ref()), None)),
            (_, Gate::Closed) => None,
            (true, _) => Some(copied(item(), Some(gate.closes))),
            (false, Gate::Open) => {
                gate.beside += 1;
                Some(BesideKind::Runs)
            }
            (false, Gate::Reads) => reads.then(|| copied(item(), Some(gate.closes))),
        }
    }

    /// Whether what a reader has copied still counts.
    pub(super) fn counts(&self, slice: SliceId, key: usize, copied: &Copied) -> bool {
        let closes = self.gates[usize::from(slice.0)].closes;
        copied.closes.is_none_or(|then| then == closes) && copied.changes == self.shown[key].changes
    }
}

/// Tickets with this bit are of flushes.
pub(super) const FLUSH: u64 = 1 << 62;
/// When something is sent again.
pub(super) const RETRANSMIT_NS: u64 = 1_000_000;
/// After how long without progress a follower is put out of the slice.
const FOLLOWER_SUSPICION_NS: u64 = 8_000_000;
/// How long a request may wait.
pub(super) const PATIENCE_NS: u64 = 150_000_000;

/// How long a new primary spares its slice from eviction.
const LEARNING_NS: u64 = 2_000_000;
/// Room that a primary asks for at a time.
const ROOM_ASK: u64 = 3;
/// How far the threads beside the machines are ahead of the machines' clock.
const BESIDE_AHEAD_NS: u64 = 5_000_000;
