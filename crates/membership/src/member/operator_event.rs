//! The events that a membership reports to operators.

use std::{fmt, time::Duration};

use curtail_consistency::members::{MemberNotice, RecordChange};
use curtail_types::{NodeId, NodeSet};

use super::StoreAsked;

/// Something that an operator should be able to find in the log.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MemberEvent {
    /// A lease has ended; nothing is served until the store, or the other nodes, answer.
    Fenced,
    /// The lease holds again.
    Resumed,
    /// The others removed this node. What it holds is worth nothing any more: throw it away, then
    /// [`rejoin`](super::MemberHandle::rejoin).
    Removed,
    /// Another process has joined as this node: this one has to end.
    Replaced,
    /// This node has left, as asked, and may end.
    Departed,
    /// A node has been silent for too long.
    Suspected(NodeId),
    /// Its heartbeats arrive again.
    Heard(NodeId),
    /// This node changed the view.
    Changed(RecordChange),
    /// This node wanted to change the view; another was first, or nobody knows.
    Beaten(RecordChange),
    /// This node is the primary now of so many slices of nodes that were removed.
    Inherited {
        /// The slices.
        slices: u16,
    },
    /// Nobody who had all of so many slices is left: they begin empty.
    Lost {
        /// The slices.
        slices: u16,
        /// Those of them whose primary this node is; the sum over the nodes counts each once.
        here: u16,
    },
    /// The store holds an older view than before and is not believed.
    StoreWentBack,
    /// The store holds no view any more, though there was one: it was removed or emptied.
    StoreEmpty,
    /// The store does not answer; reported once.
    StoreFailed(String),
    /// It answers again.
    StoreAnswers,
    /// It took more than a sixth of a lease to answer; reported for the first of several in a row.
    StoreSlow {
        /// What it was asked.
        asked: StoreAsked,
        /// How long it took.
        took: Duration,
    },
    /// This node's file is not that of the cluster: it takes no part.
    Mismatch(String),
}

impl MemberEvent {
    /// Whether it occurs often and is of little interest: a step of slices that move, a change that
    /// another node made first.
    pub const fn is_routine(&self) -> bool {
        matches!(self, Self::Changed(RecordChange::Rows(_)) | Self::Beaten(_))
    }
}

impl From<MemberNotice> for MemberEvent {
    fn from(event: MemberNotice) -> Self {
        match event {
            MemberNotice::Fenced => Self::Fenced,
            MemberNotice::Resumed => Self::Resumed,
            MemberNotice::Removed => Self::Removed,
            MemberNotice::Replaced => Self::Replaced,
            MemberNotice::Departed => Self::Departed,
            MemberNotice::Suspected(node) => Self::Suspected(node),
            MemberNotice::Heard(node) => Self::Heard(node),
            MemberNotice::Proposed(change) => Self::Changed(change),
            MemberNotice::Beaten(change) => Self::Beaten(change),
            MemberNotice::StoreWentBack => Self::StoreWentBack,
            MemberNotice::Inherited { slices } => Self::Inherited { slices },
            MemberNotice::Lost { slices, here } => Self::Lost { slices, here },
        }
    }
}

impl fmt::Display for MemberEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str(
                "the lease of this node has ended: the view store or another node did not answer \
                 in time, or this process did not run; this node refuses requests until it has a \
                 lease again",
            ),
            Self::Resumed => f.write_str("this node has a lease again and answers requests"),
            Self::Removed => f.write_str(
                "the other nodes removed this node from the view, because they received no \
                 heartbeats from it; it drops its contents and joins again",
            ),
            Self::Replaced => f.write_str(
                "another process joined as this node and replaced this process: end this process, \
                 which refuses all requests",
            ),
            Self::Departed => f.write_str("this node has left the cluster"),
            Self::Suspected(node) => write!(f, "node {} sends no heartbeats", node.0),
            Self::Heard(node) => write!(f, "node {} sends heartbeats again", node.0),
            Self::Changed(change) => write!(f, "this node changed the view: {}", Told(change)),
            Self::Beaten(change) => {
                write!(
                    f,
                    "the view store did not confirm this node's change, which may not have \
                     been made: {}",
                    Told(change)
                )
            }
            Self::Inherited { slices } => write!(
                f,
                "this node took over {slices} slices of removed nodes, with all their keys"
            ),
            Self::Lost { slices, .. } => write!(
                f,
                "{slices} slices lost all their keys, because no node that had them is left; raise \
                 replicas to survive more failures"
            ),
            Self::StoreWentBack => f.write_str(
                "the view store holds an older view than before, which this node ignores. Either \
                 the store was restored from a backup, or another cluster writes to it: restore \
                 the newest view, or restart all nodes, which loses the contents",
            ),
            Self::StoreEmpty => f.write_str(
                "the view was removed from the view store; restore the newest view from a backup, \
                 or restart all nodes, which loses the contents",
            ),
            Self::StoreFailed(reason) | Self::Mismatch(reason) => f.write_str(reason),
            Self::StoreSlow { asked, took } => {
                let what = match asked {
                    StoreAsked::Reading => "answer",
                    StoreAsked::Change => "change the view",
                };
                let ms = took.as_millis();
                write!(
                    f,
                    "the view store took {ms} ms to {what}, so failover can take longer than a \
                     lease: move the store to a less busy disk or machine, or raise lease_ms"
                )
            }
            Self::StoreAnswers => f.write_str("the view store answers again"),
        }
    }
}

struct Told<'a>(&'a RecordChange);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RecordChange::Join(_) => f.write_str("this node joins"),
            RecordChange::Form => f.write_str("the waiting nodes form the cluster"),
            RecordChange::Rows(changes) => {
                write!(f, "changes of the holders of slices: {}", changes.len())
            }
            RecordChange::Drain(node) => write!(f, "node {} starts to leave", node.0),
            RecordChange::Depart => f.write_str("this node has left"),
            RecordChange::Detach => f.write_str(
                "this node is now detached, because another node does not answer it; it continues \
                 to answer clients; if it dies meanwhile, failover takes up to two leases; check \
                 the links between the nodes",
            ),
            RecordChange::Attach => {
                f.write_str("this node is no longer detached: all nodes answer it again")
            }
            RecordChange::Remove(nodes) => write!(f, "removed {}", Numbers(*nodes)),
        }
    }
}

struct Numbers(NodeSet);

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.0.into_iter().enumerate() {
            let before = if index == 0 { "node " } else { ", node " };
            write!(f, "{before}{}", node.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_sentence() {
        let nodes = NodeSet::from_bits(0b101);
        let event = MemberEvent::Changed(RecordChange::Remove(nodes));
        assert_eq!(
            event.to_string(),
            "this node changed the view: removed node 0, node 2"
        );
    }
}
