//! Requests of this node's clients that other nodes carry out.
//!
//! Every request ends: by an answer, by a refusal, or when it has waited for too long. One that
//! had no effect is placed again; a write that was sent and has no answer has an unknown end.

use alloc::{collections::BTreeMap, vec::Vec};

use curtail_types::{Access, Cas, Instant, NodeId, NodeSet};

use super::{
    ReplicaRefusal, ReplicaRequest, Ticket,
    machine::{Context, Waiting},
};

/// The requests that other nodes have, or shall have.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Forwarding {
    of: BTreeMap<Ticket, Forwarded>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Forwarded {
    request: ReplicaRequest,
    since: Instant,
    /// Who has it; nobody yet if it is to be placed again.
    to: Option<NodeId>,
}

impl Forwarding {
    pub(super) fn waits(&self) -> bool {
        !self.of.is_empty()
    }

    /// Sends a request to the primary, or keeps it until there is one.
    pub(super) fn send(&mut self, cx: &mut Context, (request, since): Waiting, to: Option<NodeId>) {
        if self.of.len() >= cx.config.waiting_max {
            return cx.host.refuse(request.ticket, ReplicaRefusal::Busy);
        }
        let forwarded = Forwarded { request, since, to };
        self.of.insert(request.ticket, forwarded);
        if let Some(to) = to {
            cx.host.forward(&request, to);
        }
    }

    /// Another node has answered; returns the request and the version that a good answer shows.
    pub(super) fn take_answer(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        (ticket, answer): (Ticket, Result<Cas, ReplicaRefusal>),
    ) -> Option<(Waiting, Cas)> {
        let forwarded = self.of.get_mut(&ticket)?;
        if forwarded.to != Some(from) {
            // Since then it was sent to another node.
            return None;
        }
        let waiting = (forwarded.request, forwarded.since);
        let waited_ns = cx.now.ns - forwarded.since.ns;
        match answer {
            Ok(_) => {}
            Err(ReplicaRefusal::Elsewhere) if waited_ns < cx.config.patience_ns => {
                forwarded.to = None;
                return None;
            }
            Err(ReplicaRefusal::Elsewhere) => cx.host.refuse(ticket, ReplicaRefusal::Late),
            Err(refusal) => cx.host.refuse(ticket, refusal),
        }
        self.of.remove(&ticket);
        answer.ok().map(|version| (waiting, version))
    }

    /// Requests that removed nodes had: what they did with writes is unknown. Returns what is to be
    /// placed again.
    pub(super) fn enter_view(&mut self, cx: &mut Context, members: NodeSet) -> Vec<Waiting> {
        for (&ticket, forwarded) in &mut self.of {
            if forwarded.to.is_some_and(|to| !members.contains(to)) {
                match forwarded.request.access {
                    Access::Read => forwarded.to = None,
                    _ => cx.host.refuse(ticket, ReplicaRefusal::Unknown),
                }
            }
        }
        self.of
            .retain(|_, forwarded| forwarded.to.is_none_or(|to| members.contains(to)));
        self.take_unplaced()
    }

    fn take_unplaced(&mut self) -> Vec<Waiting> {
        let unplaced = self
            .of
            .extract_if(.., |_, forwarded| forwarded.to.is_none());
        let unplaced = unplaced.map(|(_, forwarded)| (forwarded.request, forwarded.since));
        unplaced.collect()
    }

    /// Ends what has waited for too long; returns what is to be placed again.
    pub(super) fn tick(&mut self, cx: &mut Context) -> Vec<Waiting> {
        self.of.retain(|&ticket, forwarded| {
            let is_over = cx.now.ns - forwarded.since.ns >= cx.config.patience_ns;
            if is_over {
                let had_no_effect = forwarded.to.is_none();
                let refusal = match had_no_effect || forwarded.request.access == Access::Read {
                    true => ReplicaRefusal::Late,
                    false => ReplicaRefusal::Unknown,
                };
                cx.host.refuse(ticket, refusal);
            }
            !is_over
        });
        self.take_unplaced()
    }
}
