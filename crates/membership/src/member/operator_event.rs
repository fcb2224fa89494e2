//! The events that a membership reports to operators.

use std::{fmt, time::Duration};

use curtail_consistency::members::{MemberNotice, RecordChange};

use super::StoreAsked;

/// Something that an operator should be able to find in the log.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MemberEvent {
    /// What the machine tells. After [`MemberNotice::Removed`] throw away what this node holds,
    /// then [`rejoin`](super::MemberHandle::rejoin).
    Notice(MemberNotice),
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
        use MemberNotice::{Beaten, Proposed};
        matches!(
            self,
            Self::Notice(Proposed(RecordChange::Rows(_)) | Beaten(_))
        )
    }
}

impl fmt::Display for MemberEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Notice(notice) => tell(notice, f),
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
                     lease: move the store to a less busy disk or machine (a longer lease_ms \
                     needs a stop of the whole cluster, which loses the contents)"
                )
            }
            Self::StoreAnswers => f.write_str("the view store answers again"),
        }
    }
}

fn tell(notice: &MemberNotice, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match notice {
        MemberNotice::Fenced => f.write_str(
            "the lease of this node has ended: the view store or another node did not answer in \
             time, or this process got no processor time; this node refuses requests until \
             it has a lease again",
        ),
        MemberNotice::Resumed => f.write_str("this node has a lease again and answers requests"),
        MemberNotice::Removed => f.write_str(
            "the other nodes removed this node from the view, because they received no \
             heartbeats from it; it drops its contents and joins again",
        ),
        MemberNotice::Replaced => f.write_str(
            "another process joined as this node and replaced this process: end this process, \
             which refuses all requests",
        ),
        MemberNotice::Departed => f.write_str("this node has left the cluster"),
        MemberNotice::Suspected(node) => write!(f, "node {} sends no heartbeats", node.0),
        MemberNotice::Heard(node) => write!(f, "node {} sends heartbeats again", node.0),
        MemberNotice::Proposed(change) => {
            write!(f, "this node changed the view: {}", about(change))
        }
        MemberNotice::Beaten(change) => {
            write!(
                f,
                "this node does not know whether the view store made the change that it asked for \
                 ({})",
                about(change)
            )
        }
        MemberNotice::Inherited { slices } => write!(
            f,
            "this node took over {slices} slices of removed nodes, with all their keys"
        ),
        MemberNotice::Lost { slices, .. } => write!(
            f,
            "{slices} slices lost all their keys, because no node that had them is left (a higher \
             `replicas` survives more failures, but needs a stop of the whole cluster)"
        ),
        MemberNotice::StoreWentBack => f.write_str(
            "the view store holds an older view than before, which this node ignores. Either \
             the store was restored from a backup, or another cluster writes to it: restore \
             the newest view, or restart all nodes, which loses the contents",
        ),
    }
}

fn about(change: &RecordChange) -> String {
    match change {
        RecordChange::Join(_) => "this node joins".into(),
        RecordChange::Form => "the waiting nodes form the cluster".into(),
        RecordChange::Rows(changes) => {
            format!("changes of the holders of slices: {}", changes.len())
        }
        RecordChange::Drain(node) => format!("node {} starts to leave", node.0),
        RecordChange::Depart => "this node has left".into(),
        RecordChange::Detach => {
            "this node is now detached: another node does not answer it. This node continues to \
             answer clients. If it dies now, failover takes up to four leases. Check the links \
             between the nodes: if they stay broken, one of the nodes is removed"
                .into()
        }
        RecordChange::Attach => "this node is no longer detached: all nodes answer it again".into(),
        RecordChange::Remove(nodes) => {
            let nodes = nodes.into_iter().map(|node| format!("node {}", node.0));
            format!("removed {}", nodes.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::NodeSet;

    use super::*;

    #[test]
    fn an_event_is_a_sentence() {
        let nodes = NodeSet::from_bits(0b101);
        let event = MemberEvent::Notice(MemberNotice::Proposed(RecordChange::Remove(nodes)));
        assert_eq!(
            event.to_string(),
            "this node changed the view: removed node 0, node 2"
        );
    }
}
