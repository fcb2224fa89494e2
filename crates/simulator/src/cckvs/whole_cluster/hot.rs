//! The hot keys of all nodes: the production machines, and what a driver keeps beside them.

use std::collections::VecDeque;

use curtail_consistency::symmetric::{
    Access, Config, Input, Model, Output, Place, Symmetric, Ticket, Visibility,
};
use curtail_types::{
    Cas, HotEpoch, Instant, Message, NodeId, NodeSet, RouteHash, View, ViewNumber, WriterId,
};
use curtail_workload::mix;

/// What a step of a machine comes to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    /// A session's request is complete.
    Done(u32),
    /// A session's request was refused.
    Refused(u32),
    /// A message to each of them.
    Send(NodeSet, Message),
}

/// Every node's machine, and every key that was ever written.
pub(super) struct Hot {
    machines: Vec<Symmetric>,
    /// Of each rank, its place in `keys` and 1; 0 is a key that nobody wrote.
    places: Vec<u32>,
    keys: Vec<Key>,
    outputs: Vec<Output>,
}

/// A key as the drivers of all nodes see it.
struct Key {
    /// The nodes whose readers need not ask the machine.
    valid: NodeSet,
    /// The version that each node has.
    stored: Vec<Cas>,
}

impl Hot {
    /// `ranks` keys that all of `nodes` have. At most `keys_max` of them are written.
    pub(super) fn new(nodes: u16, model: Model, ranks: u64, keys_max: usize) -> Self {
        let live: NodeSet = (0..nodes).map(|node| NodeId(node as u8)).collect();
        let view = View {
            number: ViewNumber(1),
            live,
            placed: live,
            placed_before: live,
            ..View::default()
        };
        let machine = |node| {
            let me = NodeId(node as u8);
            let mut machine = Symmetric::new(Config {
                me,
                model,
                keys_max,
                waiting_max: WAITING_MAX,
                // Nothing is lost here, so nobody is ever told that time has come.
                retransmit_ns: NEVER_NS,
                replay_ns: NEVER_NS,
                patience_ns: NEVER_NS,
                settle_ns: NEVER_NS,
                writer: WriterId::of(me, 0),
            });
            machine.step(Instant::default(), Input::View(view), Cas(0), |_| {});
            machine
        };
        Self {
            machines: (0..nodes).map(machine).collect(),
            places: vec![0; ranks as usize],
            keys: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Whether a reader at `node` may take its copy without asking the machine.
    pub(super) fn is_valid(&self, node: u16, rank: u64) -> bool {
        let key = self.key(rank);
        key.is_none_or(|key| key.valid.contains(NodeId(node as u8)))
    }

    /// A session asks at `node`.
    pub(super) fn request(
        &mut self,
        at: (u16, u64),
        session: u32,
        writes: bool,
        now: Instant,
    ) -> Vec<Deed> {
        let (_, rank) = at;
        if writes && self.key(rank).is_none() {
            self.promote(rank, now);
        }
        let (key, place) = (RouteHash(rank), self.place(rank));
        let access = match writes {
            true => Access::Replace,
            false => Access::Read,
        };
        let input = Input::Request {
            ticket: Ticket(u64::from(session)),
            key,
            place,
            access,
            after: Cas(0),
            floor: Cas(0),
        };
        self.step(at, input, now)
    }

    /// A message comes to `node`.
    pub(super) fn receive(
        &mut self,
        at: (u16, u64),
        from: u16,
        message: Message,
        now: Instant,
    ) -> Vec<Deed> {
        let input = Input::Message {
            from: NodeId(from as u8),
            key: RouteHash(at.1),
            place: self.place(at.1),
            message,
        };
        self.step(at, input, now)
    }

    fn key(&self, rank: u64) -> Option<&Key> {
        let place = self.places[rank as usize].checked_sub(1)?;
        Some(&self.keys[place as usize])
    }

    fn place(&self, rank: u64) -> Place {
        let home = NodeId((mix(rank) % self.machines.len() as u64) as u8);
        let holders = NodeSet::only(home);
        Place { home, holders }
    }

    /// Makes a key hot on every node, in no time.
    fn promote(&mut self, rank: u64, now: Instant) {
        let nodes = self.machines.len();
        self.keys.push(Key {
            valid: NodeSet::NONE,
            stored: vec![Cas(0); nodes],
        });
        self.places[rank as usize] = self.keys.len() as u32;
        let (key, place) = (RouteHash(rank), self.place(rank));
        let input = Input::Promote {
            key,
            place,
            epoch: HotEpoch(1),
            floor: Cas::new(2, WriterId::of(place.home, 0)),
        };
        let home = u16::from(place.home.0);
        let mut due = VecDeque::from([(home, self.step((home, rank), input, now))]);
        while let Some((from, deeds)) = due.pop_front() {
            for deed in deeds {
                let Deed::Send(to, message) = deed else {
                    continue;
                };
                for to in to.into_iter().map(|to| u16::from(to.0)) {
                    due.push_back((to, self.receive((to, rank), from, message, now)));
                }
            }
        }
    }

    fn step(&mut self, (node, rank): (u16, u64), first: Input, now: Instant) -> Vec<Deed> {
        let mut deeds = Vec::new();
        let mut inputs = VecDeque::from([first]);
        let me = NodeId(node as u8);
        let key = &mut self.keys[self.places[rank as usize] as usize - 1];
        let machine = &mut self.machines[usize::from(node)];
        let stored = &mut key.stored[usize::from(node)];
        while let Some(input) = inputs.pop_front() {
            machine.step(now, input, *stored, |output| self.outputs.push(output));
            for output in self.outputs.drain(..) {
                match output {
                    Output::Run { ticket, ts: Cas(0) } | Output::Done { ticket } => {
                        deeds.push(Deed::Done(ticket.0 as u32));
                    }
                    Output::Run { ticket, ts } => {
                        *stored = ts;
                        let key = RouteHash(rank);
                        inputs.push_back(Input::Write { ticket, key });
                    }
                    Output::Refuse { ticket, .. } | Output::Forward { ticket, .. } => {
                        deeds.push(Deed::Refused(ticket.0 as u32));
                    }
                    Output::Publish { ts, state, .. } => {
                        *stored = ts;
                        key.valid = match state {
                            Visibility::Valid => key.valid.with(me),
                            _ => key.valid.without(me),
                        };
                    }
                    Output::Send { to, message, .. } => deeds.push(Deed::Send(to, message)),
                    Output::Moved { .. } => {}
                }
            }
        }
        deeds
    }
}

/// Requests of a node that wait for hot keys: more than it has sessions.
const WAITING_MAX: usize = 1 << 14;
/// Longer than any run.
const NEVER_NS: u64 = 1 << 50;
