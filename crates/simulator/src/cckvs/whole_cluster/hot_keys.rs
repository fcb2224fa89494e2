//! The hot keys of all nodes: the production machines, and what a driver keeps beside them.

use std::collections::{HashMap, VecDeque};

use curtail_consistency::{
    replica::{
        CopyState, Gate, Model, Replica, ReplicaConfig, ReplicaEvent, ReplicaHost, ReplicaMessage,
        ReplicaRefusal, ReplicaRequest, RunResult, SliceChange, Ticket,
    },
    slice_view::{RowChange, SliceId, SliceView, slice_of},
};
use curtail_types::{
    Access, Cas, HybridClock, Instant, NodeId, NodeSet, Now, RouteHash, ViewNumber, WriterId,
};
use curtail_workload::mix;

use super::{port::Load, thread::Place};

/// What a step of a machine comes to.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// A session's request is complete.
    Done(u32),
    /// A session's request was refused.
    Refused(u32),
    /// This goes to each of them: a message, or a session's write to its primary.
    Send(NodeSet, Load),
    /// The answer to such a write, back to where it came from.
    Answer(Place, Load),
}

/// The answer to a write that was forwarded: its version.
pub(super) type Answer = Result<Cas, ReplicaRefusal>;

/// Every node's machines, and every key that was ever written.
pub(super) struct Hot {
    nodes: u16,
    /// Those of a node stand together; each steps the keys of its group, as each stage of a
    /// server does.
    machines: Vec<(Replica, Beside)>,
    /// Of each rank, its place among the keys and 1; 0 is a key that nobody wrote.
    places: Vec<u32>,
    drivers: Drivers,
}

/// What a driver keeps beside a machine.
struct Beside {
    clock: HybridClock,
    gate: Gate,
    /// A gate that was closed.
    closed: Option<SliceId>,
}

/// What the drivers of all nodes keep.
#[derive(Default)]
struct Drivers {
    of: HashMap<RouteHash, usize>,
    keys: Vec<Key>,
    /// Answers of requests that ran, and of which version.
    results: HashMap<Ticket, Cas>,
    /// Of which key a session has a write forwarded.
    forwarded: HashMap<u32, u64>,
}

/// A key as the drivers of all nodes see it.
struct Key {
    rank: u64,
    /// The nodes whose readers need not ask the machine.
    valid: NodeSet,
    /// The version that its primary has stored.
    stored: Cas,
}

/// What a machine has beside it while it steps.
struct CopyHost<'a> {
    me: NodeId,
    now: Instant,
    beside: &'a mut Beside,
    drivers: &'a mut Drivers,
    effects: Vec<Effect>,
}

impl Hot {
    /// `ranks` keys that all of `nodes` have.
    pub(super) fn new(nodes: u16, model: Model, ranks: u64) -> Self {
        let members: NodeSet = (0..nodes).map(|node| NodeId(node as u8)).collect();
        // As in the paper, what is not hot has one node that stores it.
        let view = SliceView::first(ViewNumber(1), members, nodes, 1);
        let mut hot = Self {
            nodes,
            machines: Vec::new(),
            places: vec![0; ranks as usize],
            drivers: Drivers::default(),
        };
        for node in 0..nodes {
            for group in 0..GROUPS {
                hot.machines.push(machine(node, model));
                let at = (node, usize::from(group));
                hot.step(at, ReplicaEvent::View(&view), Instant::default());
            }
        }
        hot
    }

    /// Whether a reader at `node` may take its copy without asking the machine.
    pub(super) fn is_valid(&self, node: u16, rank: u64) -> bool {
        let place = self.places[rank as usize].checked_sub(1);
        let key = place.map(|place| &self.drivers.keys[place as usize]);
        key.is_none_or(|key| key.valid.contains(NodeId(node as u8)))
    }

    /// A session asks at `node`.
    pub(super) fn request(
        &mut self,
        (node, rank): (u16, u64),
        session: u32,
        writes: bool,
        now: Instant,
    ) -> Vec<Effect> {
        if writes && self.places[rank as usize] == 0 {
            self.promote(rank, now);
        }
        let access = match writes {
            true => Access::Replace,
            false => Access::Read,
        };
        let request = request(rank, Ticket(u64::from(session)), access, false);
        self.step((node, group(rank)), ReplicaEvent::Request(request), now)
    }

    /// Something about a hot key comes to `node`.
    pub(super) fn receive(
        &mut self,
        node: u16,
        from: Place,
        load: Load,
        now: Instant,
    ) -> Vec<Effect> {
        let sender = NodeId(from.node as u8);
        match load {
            Load::Hot(rank, message) => {
                let message = ReplicaMessage::Copy(message);
                let event = ReplicaEvent::Message(sender, &message);
                self.step((node, group(rank)), event, now)
            }
            Load::Forward(rank, session) => {
                let origin = u64::from(from.node) << 16 | u64::from(from.index) | IS_FORWARDED;
                let ticket = Ticket(origin << 32 | u64::from(session));
                let request = request(rank, ticket, Access::Replace, true);
                self.step((node, group(rank)), ReplicaEvent::Request(request), now)
            }
            Load::Answer(session, answer) => match self.drivers.forwarded.remove(&session) {
                Some(rank) => {
                    let ticket = Ticket(u64::from(session));
                    let event = ReplicaEvent::Answered(sender, ticket, answer);
                    self.step((node, group(rank)), event, now)
                }
                None => Vec::new(),
            },
            Load::Requests(_) | Load::Replies(_) | Load::Credits(..) => Vec::new(),
        }
    }

    /// Makes a key hot on every node, in no time.
    fn promote(&mut self, rank: u64, now: Instant) {
        let key = route(rank);
        let keys = &mut self.drivers.keys;
        self.drivers.of.insert(key, keys.len());
        keys.push(Key {
            rank,
            valid: NodeSet::NONE,
            stored: Cas(0),
        });
        self.places[rank as usize] = keys.len() as u32;
        let primary = slice_of(key, self.nodes).0;
        let effects = self.step((primary, group(rank)), ReplicaEvent::Heat(key, true), now);
        let mut due = VecDeque::from([(primary, effects)]);
        while let Some((node, effects)) = due.pop_front() {
            for effect in effects {
                let Effect::Send(to, load) = effect else {
                    continue;
                };
                let from = Place { node, index: 0 };
                for to in to.into_iter().map(|to| u16::from(to.0)) {
                    due.push_back((to, self.receive(to, from, load.clone(), now)));
                }
            }
        }
    }

    fn step(
        &mut self,
        (node, group): (u16, usize),
        event: ReplicaEvent<'_>,
        now: Instant,
    ) -> Vec<Effect> {
        let (replica, beside) = &mut self.machines[usize::from(node * GROUPS) + group];
        let mut host = CopyHost {
            me: NodeId(node as u8),
            now,
            beside,
            drivers: &mut self.drivers,
            effects: Vec::new(),
        };
        replica.step(event, &mut host);
        // Nothing runs beside the machines here but reads of what they show.
        while let Some(slice) = host.beside.closed.take() {
            replica.step(ReplicaEvent::Closed(slice), &mut host);
        }
        host.effects
    }
}

fn machine(node: u16, model: Model) -> (Replica, Beside) {
    let me = NodeId(node as u8);
    let config = ReplicaConfig {
        me,
        model,
        // Nothing is lost here, so nobody is ever told that time has come.
        retransmit_ns: NEVER_NS,
        suspicion_ns: NEVER_NS,
        patience_ns: NEVER_NS,
        learning_ns: 0,
        waiting_max: WAITING_MAX,
        window_max: WAITING_MAX,
        room_ask: 0,
        catch_ups_max: 1,
        stage: (0, 1),
    };
    let beside = Beside {
        clock: HybridClock::new(WriterId::of(me, 0), Cas(0)),
        gate: Gate::Closed,
        closed: None,
    };
    (Replica::new(config), beside)
}

impl CopyHost<'_> {
    fn key(&mut self, key: RouteHash) -> Option<&mut Key> {
        let place = *self.drivers.of.get(&key)?;
        self.drivers.keys.get_mut(place)
    }

    fn end(&mut self, ticket: Ticket, answer: Answer) {
        let (session, origin) = (ticket.0 as u32, ticket.0 >> 32);
        self.effects.push(match (answer, origin) {
            (Ok(_), 0) => Effect::Done(session),
            (Err(_), 0) => Effect::Refused(session),
            _ => {
                let to = Place {
                    node: (origin >> 16 & 0xff) as u16,
                    index: origin as u16,
                };
                Effect::Answer(to, Load::Answer(session, answer))
            }
        });
    }
}

impl ReplicaHost for CopyHost<'_> {
    fn run(&mut self, request: &ReplicaRequest, version: Cas) -> RunResult {
        let writes = request.access != Access::Read;
        let Some(key) = self.key(request.key) else {
            return RunResult::Unchanged;
        };
        if writes {
            key.stored = version;
        }
        let shown = key.stored;
        self.drivers.results.insert(request.ticket, shown);
        match writes {
            true => RunResult::Stored(request.size),
            false => RunResult::Unchanged,
        }
    }

    fn stamp(&mut self, ticket: Ticket, version: Cas) {
        self.drivers.results.insert(ticket, version);
    }

    fn respond(&mut self, ticket: Ticket, _: u8) {
        let version = self.drivers.results.remove(&ticket).unwrap_or_default();
        self.end(ticket, Ok(version));
    }

    fn refuse(&mut self, ticket: Ticket, refusal: ReplicaRefusal) {
        self.drivers.results.remove(&ticket);
        self.end(ticket, Err(refusal));
    }

    fn forward(&mut self, request: &ReplicaRequest, to: NodeId) {
        if let Some(rank) = self.key(request.key).map(|key| key.rank) {
            let session = request.ticket.0 as u32;
            self.drivers.forwarded.insert(session, rank);
            let load = Load::Forward(rank, session);
            self.effects.push(Effect::Send(NodeSet::only(to), load));
        }
    }

    fn send(&mut self, to: NodeSet, message: &ReplicaMessage) {
        if let ReplicaMessage::Copy(message) = message
            && let Some(rank) = self.key(message.key).map(|key| key.rank)
        {
            self.effects
                .push(Effect::Send(to, Load::Hot(rank, *message)));
        }
    }

    fn send_write(&mut self, to: NodeSet, message: &ReplicaMessage, _: Ticket) {
        self.send(to, message);
    }

    fn item(&mut self, key: RouteHash) -> Option<(Cas, u32)> {
        self.key(key).map(|key| (key.stored, ITEM_BYTES))
    }

    fn gate(&mut self, slice: SliceId, gate: Gate) {
        if std::mem::replace(&mut self.beside.gate, gate) == Gate::Open {
            self.beside.closed = Some(slice);
        }
    }

    fn next_version(&mut self) -> Cas {
        self.beside.clock.next(Now {
            instant: self.now,
            unix_ns: 0,
        })
    }

    fn saw(&mut self, version: Cas) {
        if version > self.beside.clock.last() {
            self.beside.clock = HybridClock::new(WriterId::of(self.me, 0), version);
        }
    }

    fn show(&mut self, key: RouteHash, _: Cas, state: CopyState, _: bool) {
        let me = self.me;
        if let Some(key) = self.key(key) {
            key.valid = match state {
                CopyState::Valid => key.valid.with(me),
                _ => key.valid.without(me),
            };
        }
    }

    fn read_copy(&mut self, _: &ReplicaRequest) {}

    fn write_copy(&mut self, _: &ReplicaRequest, _: Cas) -> bool {
        true
    }

    fn store_copy(&mut self, key: RouteHash, version: Cas) -> RunResult {
        match self.key(key) {
            Some(key) => {
                key.stored = version;
                RunResult::Stored(ITEM_BYTES)
            }
            None => RunResult::NoRoom,
        }
    }

    fn incoming_bytes(&self) -> u32 {
        ITEM_BYTES
    }

    fn now(&self) -> Instant {
        self.now
    }

    // Slices have one holder each, and stores have room: nothing of this happens.

    fn apply(&mut self, _: NodeId, _: &SliceChange) -> bool {
        true
    }

    fn promise(&mut self, _: NodeId, _: u64, wanted: u64) -> u64 {
        wanted
    }

    fn evicts(&self) -> bool {
        false
    }

    fn evict(
        &mut self,
        _: u64,
        _: &mut dyn FnMut(SliceId) -> bool,
        _: &mut dyn FnMut(SliceId, RouteHash),
    ) {
    }

    fn scan(&mut self, _: SliceId, _: bool) {}

    fn clear(&mut self, _: SliceId, _: Option<Cas>) {}
    fn flush(&mut self, _: SliceId) -> Cas {
        self.next_version()
    }

    fn propose(&mut self, _: RowChange) {}
}

fn request(rank: u64, ticket: Ticket, access: Access, is_forwarded: bool) -> ReplicaRequest {
    ReplicaRequest {
        ticket,
        key: route(rank),
        access,
        size: if access == Access::Read {
            0
        } else {
            ITEM_BYTES
        },
        is_forwarded,
    }
}

fn route(rank: u64) -> RouteHash {
    RouteHash(mix(rank))
}

fn group(rank: u64) -> usize {
    mix(rank) as usize % usize::from(GROUPS)
}

/// Machines of a node: each looks at all of its hot keys whenever something happens.
const GROUPS: u16 = 128;
/// Requests of a node that wait for hot keys: more than it has sessions.
const WAITING_MAX: usize = 1 << 14;
/// Longer than any run.
const NEVER_NS: u64 = 1 << 50;
/// Of a ticket's upper half: the node and the thread that sent the request are in the rest.
const IS_FORWARDED: u64 = 1 << 24;
/// What an item counts where room is counted, which nobody is short of.
const ITEM_BYTES: u32 = 1;
