//! Requests that this worker sends to other nodes by itself, until their replies arrive.
//!
//! ```text
//!   relay ---> sent ---> answered: done
//!     ^         |  |
//!     |         |  +---> the node is lost: a read goes again, a write may have happened
//!     +-- parked <-+ no room, or that node was not ready: again, where the key is then
//! ```
//!
//! Only requests for keys of which this node knows nothing go this way; the others go to the
//! machine of their slice, which forwards what is another node's ([`stages`](super::stages)).

use curtail_codec::node::{BatchHead, Class, ItemRequest, NodeRequest, Part};
use curtail_types::{Failure, Instant, NodeId, RouteHash};

use crate::metrics::counters::Count;
use crate::node::{
    LARGE_BYTES, NodeWorker,
    host::NodeContext,
    inbox::FLUSH,
    request_placement::Way,
    stages::{End, Origin},
};

/// A request that another node is to execute.
#[derive(Debug)]
pub(super) struct Relayed {
    pub(super) origin: Origin,
    pub(super) to: NodeId,
    pub(super) key: RouteHash,
    pub(super) bytes: Vec<u8>,
    pub(super) kind: RelayedKind,
}

/// What is in a relayed request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RelayedKind {
    /// About one item: an `ItemRequest`.
    Item,
    /// `flush_all`: when, as eight bytes.
    Flush,
}

/// A request that another node carries out.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) relayed: Relayed,
    pub(super) delegated: u64,
    pub(super) begun_ns: u64,
    /// When it may be sent again.
    pub(super) again_ns: u64,
    pub(super) is_sent: bool,
}

/// Time limit for reaching a node that can execute a request.
const PATIENCE_NS: u64 = 5_000_000_000;

/// After how long it is sent again when a node was not ready for it.
pub(super) const AGAIN_NS: u64 = 500_000;

impl Relayed {
    /// A `flush_all` for another node.
    pub(super) fn flush(origin: Origin, to: NodeId, at: &[u8]) -> Self {
        Self {
            origin,
            to,
            key: RouteHash(0),
            bytes: at.to_vec(),
            kind: RelayedKind::Flush,
        }
    }
}

impl NodeWorker {
    /// Has node `to` carry out a request for an item, and counts it.
    pub(super) fn relay_item(
        &mut self,
        cx: &mut NodeContext<'_>,
        (origin, to): (Origin, NodeId),
        key: RouteHash,
        bytes: Vec<u8>,
    ) {
        let relayed = Relayed {
            origin,
            to,
            key,
            bytes,
            kind: RelayedKind::Item,
        };
        cx.counts.add(Count::ClusterRelayed, 1);
        self.relay(cx.store_cx.now.instant, relayed);
    }

    /// Has another node carry a request out.
    pub(super) fn relay(&mut self, now: Instant, relayed: Relayed) {
        let out = Out {
            relayed,
            delegated: self.delegated,
            begun_ns: now.ns,
            again_ns: 0,
            is_sent: false,
        };
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.out.push(None);
                (self.out.len() - 1) as u32
            }
        };
        if let Some(place) = self.out.get_mut(number as usize) {
            *place = Some(out);
        }
        self.send_out(now, number);
    }

    /// Sends a forwarded request; parks it if that is impossible.
    fn send_out(&mut self, now: Instant, number: u32) {
        let delegated = self.delegated;
        let Some(Some(out)) = self.out.get_mut(number as usize) else {
            return;
        };
        let Some(in_force) = &self.in_force else {
            return self.parked.push_back(number);
        };
        let head = BatchHead {
            number: delegated,
            view: in_force.slices.number,
        };
        let Relayed {
            to, bytes, kind, ..
        } = &out.relayed;
        let class = match bytes.len() > LARGE_BYTES {
            true => Class::LargeDemand,
            false => Class::Demand,
        };
        let options = match kind {
            RelayedKind::Item => 0,
            RelayedKind::Flush => FLUSH,
        };
        let request = NodeRequest {
            number,
            options,
            bytes,
        };
        let part = Part::Request(head, request);
        let endpoint = self.links.endpoint(*to);
        let sent = endpoint.is_some_and(|to| self.links.send(to, class, &part).is_ok());
        if sent {
            out.delegated = delegated;
            out.is_sent = true;
        } else {
            out.again_ns = now.ns + AGAIN_NS;
            self.parked.push_back(number);
        }
    }

    /// Tries again what could not be sent, or was sent to a node that was not ready for it.
    pub(super) fn send_again(&mut self, cx: &mut NodeContext<'_>) {
        let now = cx.store_cx.now.instant;
        for _ in 0..self.parked.len() {
            let Some(number) = self.parked.pop_front() else {
                return;
            };
            let Some(Some(out)) = self.out.get(number as usize) else {
                continue;
            };
            if out.is_sent {
                continue;
            }
            if now.ns.saturating_sub(out.begun_ns) > PATIENCE_NS {
                self.end(number, End::Failed(Failure::Unreachable));
            } else if now.ns < out.again_ns {
                self.parked.push_back(number);
            } else {
                self.place_again(now, number);
            }
        }
    }

    /// A request that is parked goes where its key is now.
    fn place_again(&mut self, now: Instant, number: u32) {
        let Some(Some(out)) = self.out.get_mut(number as usize) else {
            return;
        };
        if out.relayed.kind == RelayedKind::Flush {
            let members = self.in_force.as_ref().map(|now| now.slices.members);
            let to = out.relayed.to;
            return match members.is_some_and(|members| members.contains(to)) {
                true => self.send_out(now, number),
                // What is not there need not be flushed.
                false => self.end(number, End::Answered(None)),
            };
        }
        let (Some(in_force), Some(request)) =
            (&self.in_force, ItemRequest::decode(&out.relayed.bytes))
        else {
            self.parked.push_back(number);
            return;
        };
        let (key, access) = (out.relayed.key, request.operation.access());
        match self.cluster.place(in_force, key, access) {
            Way::At(to) => {
                out.relayed.to = to;
                self.send_out(now, number);
            }
            // Its machine has it run here, or forwards it.
            _ => {
                if let Some(out) = self.take_out(number) {
                    let Relayed { origin, bytes, .. } = out.relayed;
                    self.give_request(origin, key, access, bytes);
                }
            }
        }
    }
}
