//! Inputs and outputs of the membership machine.

use alloc::sync::Arc;

use curtail_types::{Instant, NodeId, NodeSet, ViewNumber};

use super::{ClusterRecord, Incarnation, RecordChange, SlicePlan};
use crate::slice_view::{RowChange, SLICES};

/// What a machine is made with.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct MemberConfig {
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
    /// How long changes of rows are gathered before they go on together.
    pub gather_ns: u64,
    /// At least so long after the view before it comes one that changes rows for which no request
    /// waits: each view has the nodes drop their copies of hot keys.
    pub calm_ns: u64,
    /// The slices, and how many nodes hold each.
    pub plan: SlicePlan,
    /// Nodes that the cluster is waited for to form with.
    pub founders: NodeSet,
}

impl MemberConfig {
    /// A lease of `lease_ns` and what goes well with it: a margin of 2 % (1 % for either clock) and
    /// 5 ms (SwitchKV requirement SW-32), ten heartbeats in a lease, suspicion after half of it.
    pub const fn with_lease(me: NodeId, lease_ns: u64) -> Self {
        Self {
            me,
            lease_ns,
            margin_ns: lease_ns / 50 + 5_000_000,
            heartbeat_ns: lease_ns / 10,
            suspicion_ns: lease_ns / 2,
            gather_ns: 1_000_000,
            calm_ns: lease_ns / 20,
            plan: SlicePlan {
                slices: SLICES,
                replicas: 1,
            },
            founders: NodeSet::only(me),
        }
    }
}

/// What one node tells another several times in a lease.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Heartbeat {
    /// Which life of the sender this is.
    pub life: Incarnation,
    /// The newest view that it knows of.
    pub view: ViewNumber,
    /// The view in force there: members removed before it have stopped serving.
    pub adopted: ViewNumber,
    /// What the sender's clock shows.
    pub sent: Instant,
    /// Which life of the receiver it is for.
    pub to_life: Incarnation,
    /// The newest `sent` of that life that the sender has received; 0 if none. The receiver may
    /// serve for a lease from then, as far as the sender is concerned.
    pub answers: Instant,
    /// The members that it has heard of late. Whom most of the others hear is not removed at once
    /// by one node that does not.
    pub hears: NodeSet,
    /// How many items it has, as its host says: what is lost with it is known by that.
    pub items: u32,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum MemberInput<'a> {
    /// Time has come (its deadline).
    Tick,
    /// The store was read.
    Read {
        /// When the reading began, by this node's clock.
        started: Instant,
        /// Which state of the store this is; 0 if it holds nothing yet.
        revision: u64,
        /// What it holds.
        record: &'a ClusterRecord,
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
        /// Whose. One of this node itself says that the thread that receives heartbeats here works:
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
    /// A machine of this node wants a row changed.
    Propose(RowChange),
    /// Machines of another node do, and this node may be the one that writes the view.
    Proposed {
        /// The node.
        from: NodeId,
        /// What they want.
        changes: &'a [RowChange],
    },
}

/// Something to do, in the order in which it is emitted.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum MemberOutput {
    /// Read the store; answered by [`MemberInput::Read`] or [`MemberInput::ReadFailed`], always.
    Read,
    /// Write [`ClusterRecord::after`] `change` if the store is still at revision `expected` (0:
    /// holds nothing); answered by [`MemberInput::Won`] or [`MemberInput::Lost`], always.
    Propose {
        /// The revision that must be there.
        expected: u64,
        /// What to change.
        change: RecordChange,
    },
    /// Tell these nodes that this one is there, with what
    /// [`heartbeat_to`](super::MemberMachine::heartbeat_to) says now.
    Heartbeat {
        /// To whom.
        to: NodeSet,
    },
    /// Send these changes of rows to the node that writes the view. They are sent again while they
    /// are wanted.
    Forward {
        /// To whom.
        to: NodeId,
        /// At most [`CHANGES_MAX`](super::CHANGES_MAX).
        changes: Arc<[RowChange]>,
    },
    /// [`MemberMachine::adopted`](super::MemberMachine::adopted) is in force here. Nobody who is
    /// not in it serves any more.
    Adopt,
    /// Serve clients until then, under the adopted view.
    Serve {
        /// Not at or after this instant.
        until: Instant,
    },
    /// Serve nobody any more until told to.
    StopServing,
    /// For reports.
    Event(MemberNotice),
}

/// What a report tells of a node's membership.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum MemberNotice {
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
    Proposed(RecordChange),
    /// A proposal of this node was not written, or nobody knows.
    Beaten(RecordChange),
    /// The store holds an older view than before, which it must not: it is not believed.
    StoreWentBack,
    /// In the view that is in force now this node is the primary of so many slices whose primary
    /// was taken out.
    Inherited {
        /// The slices.
        slices: u16,
    },
    /// Nobody in sync was left of so many slices: they begin empty in the view that is in force
    /// now.
    Lost {
        /// The slices.
        slices: u16,
        /// Those of them whose primary this node is, so that the sum over the nodes counts each
        /// once.
        here: u16,
    },
}
