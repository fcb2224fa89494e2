//! The state of a run that all nodes share: time, scheduled events, the network, and the histories.

use std::sync::Arc;

use curtail_consistency::{
    replica::ReplicaRefusal,
    slice_view::{RowChange, SliceId, SliceRow, SliceView},
};
use curtail_types::NodeId;
use curtail_workload::Random;

use super::{
    ClusterOutcome, ClusterRun, Fault, MemoryFull,
    histories::{Asked, Record},
    keys::Keys,
    network::Network,
    node::Beside,
    packet::{Answer, Packet},
};
use crate::event_queue::EventQueue;

/// Everything but the nodes.
pub(super) struct RunState<'a> {
    pub(super) run: &'a ClusterRun,
    pub(super) keys: &'a Keys,
    pub(super) now: u64,
    /// All that is planned, in nanoseconds.
    pub(super) events: EventQueue<Event>,
    pub(super) random: Random,
    pub(super) network: Network,
    pub(super) record: Record,
    pub(super) outcome: ClusterOutcome,
    /// What a store does that is full.
    pub(super) memory_full: MemoryFull,
    /// Which life of each node this is.
    pub(super) lives: Vec<u32>,
    /// The view that each node follows.
    pub(super) views: Vec<Option<Arc<SliceView>>>,
    /// The flush that is being carried out.
    pub(super) flushing: Option<u64>,
    /// Whether stores refuse at times.
    pub(super) refuses: bool,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Reply {
        number: u64,
        answer: Answer,
    },
    /// A session asks.
    Next(usize),
    /// A node starts.
    Start(usize),
    Chance(Fault),
    /// A change comes to the store of views.
    Store(StoreChange),
    /// A node may be silent for too long in this life.
    Suspect(usize, u32),
    /// Something comes to a node in this life of it.
    At {
        node: usize,
        life: u32,
        what: What,
    },
}

/// What comes to a node.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// From another node.
    Packet(NodeId, Packet),
    Demand(Asked),
    /// A timer rings.
    Wake,
    /// A request beside the machines ends.
    End(Beside),
    /// No request runs beside the machine of a slice whose gate was closed.
    Closed(SliceId),
    /// The scan of a slice with this number goes on.
    Scan(SliceId, u32),
    /// It reads the store of views; whether it does so again and again.
    Read(bool),
    /// It has read it, as it was when the reading began.
    Said(u64, Arc<SliceView>),
    /// It may follow the view that it knows.
    Adopt,
    /// It looks at what the placement wants.
    Place,
    /// It sends its proposals to the store of views.
    Propose,
}

/// A change of the view.
#[derive(Clone, Debug)]
pub(super) enum StoreChange {
    /// Of rows, by their primary.
    Rows(Vec<RowChange>),
    /// This life of a node joins.
    Join(usize, u32),
    /// It is taken out: it is silent, or has nothing any more.
    Remove(usize, u32),
}

impl RunState<'_> {
    /// The row of a slice in the view that a node follows.
    pub(super) fn row(&self, node: NodeId, slice: SliceId) -> Option<&SliceRow> {
        let view = self.views[usize::from(node.0)].as_ref();
        view.and_then(|view| view.row(slice))
    }

    /// Plans something.
    pub(super) fn plan_in(&mut self, delay: u64, event: Event) {
        self.events.plan(self.now + delay, event);
    }

    /// Plans something for a node as it is now.
    pub(super) fn plan_for(&mut self, node: usize, delay: u64, what: What) {
        let life = self.lives[node];
        let event = Event::At { node, life, what };
        self.plan_in(delay, event);
    }

    /// Plans what comes over the network outside of the links between nodes.
    pub(super) fn plan_soon(&mut self, event: Event) {
        let delay = Network::delay_ns(&mut self.random);
        self.plan_in(delay, event);
    }

    pub(super) fn send(&mut self, from: NodeId, to: NodeId, packet: Packet) {
        self.outcome.packets += 1;
        let loose = packet.is_loose();
        let arrivals = (self.network).arrivals(self.now, [from, to], loose, &mut self.random);
        let [Some(at), again] = arrivals else {
            return self.note_broken(from, to, &packet);
        };
        let (node, now) = (usize::from(to.0), self.now);
        if let Some(again) = again {
            self.plan_for(node, again - now, What::Packet(from, packet.clone()));
        }
        self.plan_for(node, at - now, What::Packet(from, packet));
    }

    /// A link broke: a requester that waits on it hears of that once the two meet again.
    fn note_broken(&mut self, from: NodeId, to: NodeId, packet: &Packet) {
        let (asker, other, number) = match packet {
            Packet::Request(demand) => (from, to, demand.number),
            Packet::Answer { number, .. } => (to, from, *number),
            Packet::Message { .. } => return,
        };
        let answer = Err(ReplicaRefusal::Unknown);
        let what = What::Packet(other, Packet::Answer { number, answer });
        let delay = self.network.cut_for(self.now, [from, to]);
        self.plan_for(usize::from(asker.0), delay, what);
    }

    pub(super) fn reply(&mut self, number: u64, answer: Answer) {
        self.plan_soon(Event::Reply { number, answer });
    }

    pub(super) fn fail(&mut self, what: impl Into<String>) {
        let at = self.now;
        let what = what.into();
        let failure = &mut self.outcome.failure;
        failure.get_or_insert_with(|| format!("at {at} ns: {what}"));
    }

    /// Shows what happens to a key, if somebody wants to see it.
    pub(super) fn trace_key(&self, node: NodeId, key: usize, what: impl FnOnce() -> String) {
        if self.run.trace == Some(key) {
            eprintln!("{:>12} n{} {}", self.now, node.0, what());
        }
    }

    /// The same of a slice.
    pub(super) fn trace_slice(&self, node: NodeId, slice: SliceId, what: impl FnOnce() -> String) {
        let traced = self.run.trace.map(|key| self.keys.slice(key));
        if traced == Some(slice) {
            eprintln!("{:>12} n{} {}", self.now, node.0, what());
        }
    }

    /// The same of what concerns everything.
    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.run.trace.is_some() {
            eprintln!("{:>12} -- {}", self.now, what());
        }
    }
}
