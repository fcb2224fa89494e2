//! Inputs and outputs of the membership machine.

use curtail_types::{Instant, NodeId, NodeSet, View, ViewNumber};

use super::{Change, Incarnation, Members};
use crate::lease::LeaseTerms;

pub use crate::members::Heartbeat;

/// What a machine is made with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Config {
    /// The node that it runs on.
    pub me: NodeId,
    /// How long after the start of a reading of the store a node may serve, in nanoseconds.
    pub lease_ns: u64,
    /// How much longer the others wait, or how much sooner it stops: what two clocks may differ by
    /// over a lease, and what passes between a look at the clock and the reply that it allows.
    pub margin_ns: u64,
    /// Between two heartbeats to a node.
    pub heartbeat_ns: u64,
    /// After how long a silence a node is held for dead. At least three heartbeats.
    pub suspicion_ns: u64,
    /// How many nodes hold a key.
    pub replicas: usize,
    /// Nodes that the cluster is waited for to form with.
    pub founders: NodeSet,
}

impl Config {
    /// A lease of `lease_ns` and what goes well with it: a margin of 2 % (1 % for either clock) and
    /// 5 ms (SwitchKV requirement SW-32), ten heartbeats in a lease, suspicion after half of it.
    pub const fn with_lease(me: NodeId, lease_ns: u64) -> Self {
        Self {
            me,
            lease_ns,
            margin_ns: LeaseTerms::of(lease_ns).margin_ns,
            heartbeat_ns: lease_ns / 10,
            suspicion_ns: lease_ns / 2,
            replicas: 1,
            founders: NodeSet::only(me),
        }
    }

    /// How its leases are counted.
    pub(super) const fn terms(&self) -> LeaseTerms {
        LeaseTerms {
            length_ns: self.lease_ns,
            margin_ns: self.margin_ns,
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Time has come (its deadline).
    Tick,
    /// The store was read.
    Read {
        /// When the reading began, by this node's clock.
        started: Instant,
        /// Which state of the store this is; 0 if it holds nothing yet.
        revision: u64,
        /// What it holds.
        members: &'a Members,
    },
    /// The store could not be read.
    ReadFailed,
    /// The proposal was written, as this revision.
    Won {
        /// The state of the store that it made.
        revision: u64,
    },
    /// The proposal was not written, or nobody knows whether it was.
    Lost,
    /// A heartbeat arrived.
    Heartbeat {
        /// Whose. One of this node itself says that whoever receives heartbeats here is at work:
        /// once there was one, the others' silence counts only while there are more. Nothing else
        /// of it is looked at.
        from: NodeId,
        /// What it says.
        heartbeat: Heartbeat,
    },
    /// Become a member, as this life.
    Join(Incarnation),
    /// Leave without loss.
    Leave,
    /// This node is joining in the adopted view `view`, and has every hot key.
    Ready {
        /// The view.
        view: ViewNumber,
    },
    /// A node has moved all keys that leave it.
    MovesDone {
        /// The node.
        from: NodeId,
        /// Under which view.
        view: ViewNumber,
    },
}

/// Something to do, in the order in which it is emitted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Output {
    /// Read the store; answered by [`Input::Read`] or [`Input::ReadFailed`], always.
    Read,
    /// Write [`Members::after`] `change` if the store is still at revision `expected` (0: holds
    /// nothing); answered by [`Input::Won`] or [`Input::Lost`], always.
    Propose {
        /// The revision that must be there.
        expected: u64,
        /// What to change.
        change: Change,
    },
    /// Tell these nodes that this one is there, with what
    /// [`heartbeat_to`](super::Membership::heartbeat_to) says now.
    Heartbeat {
        /// To whom.
        to: NodeSet,
    },
    /// This view is in force here. Nobody who is not in it serves any more.
    Adopt(View),
    /// Serve clients until then, under the adopted view.
    Serve {
        /// Not at or after this instant.
        until: Instant,
    },
    /// Serve nobody any more until told to.
    StopServing,
    /// For reports.
    Event(MembershipEvent),
}

/// What a report tells of a node's membership.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MembershipEvent {
    /// The lease ended before the store could be read again, or another node answered.
    Fenced,
    /// It holds again.
    Resumed,
    /// Others removed this node: what it has is worth nothing any more. It may join anew.
    Removed,
    /// Another process joined with this node's number: this one has to end.
    Replaced,
    /// This node has left, as it was asked to.
    Departed,
    /// A node has been silent for too long.
    Suspected(NodeId),
    /// A node that was suspected has been heard again.
    Heard(NodeId),
    /// A proposal of this node was written.
    Proposed(Change),
    /// A proposal of this node was not written, or nobody knows.
    Beaten(Change),
    /// The store holds an older view than before, which it must not: it is not believed.
    StoreWentBack,
}
