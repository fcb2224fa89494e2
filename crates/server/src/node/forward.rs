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
use curtail_links::Links;
use curtail_types::{Failure, Instant, NodeId, RouteHash};

use crate::node::{
    LARGE_BYTES, NodeWorker,
    host::NodeContext,
    inbox::FLUSH,
    request_placement::Way,
    stages::{End, Origin},
};

/// A request that another node carries out.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) origin: Origin,
    pub(super) to: NodeId,
    /// The key of an `ItemRequest`; `None` of a `flush_all`.
    pub(super) key: Option<RouteHash>,
    /// An `ItemRequest`; when to flush, as eight bytes.
    pub(super) bytes: Vec<u8>,
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

impl NodeWorker {
    /// Has another node carry a request out.
    pub(super) fn relay(
        &mut self,
        now: Instant,
        (origin, to): (Origin, NodeId),
        key: Option<RouteHash>,
        bytes: Vec<u8>,
    ) {
        let number = self.out.keep(Out {
            origin,
            to,
            key,
            bytes,
            delegated: self.delegated,
            begun_ns: now.ns,
            again_ns: 0,
            is_sent: false,
        });
        self.send_out(now, number as u32);
    }

    /// Sends a forwarded request; parks it if that is impossible.
    fn send_out(&mut self, now: Instant, number: u32) {
        let Some((_, out)) = self.out.at(number) else {
            return;
        };
        let Some(in_force) = &self.in_force else {
            return self.parked.push_back(number);
        };
        let head = BatchHead {
            number: self.delegated,
            view: in_force.slices.number,
        };
        let request = NodeRequest {
            number,
            options: if out.key.is_some() { 0 } else { FLUSH },
            bytes: &out.bytes,
        };
        if send_request(&mut self.links, out.to, head, request) {
            out.delegated = self.delegated;
            out.is_sent = true;
        } else {
            self.park(now, number);
        }
    }

    /// Has a request sent again after a pause.
    pub(super) fn park(&mut self, now: Instant, number: u32) {
        if let Some((_, out)) = self.out.at(number) {
            out.is_sent = false;
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
            let Some((_, out)) = self.out.at(number).filter(|(_, out)| !out.is_sent) else {
                continue;
            };
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
        let Some((name, out)) = self.out.at(number) else {
            return;
        };
        let Some(key) = out.key else {
            let members = self.in_force.as_ref().map(|now| now.slices.members);
            return match members.is_some_and(|members| members.contains(out.to)) {
                true => self.send_out(now, number),
                // What is not there need not be flushed.
                false => self.end(number, End::Answered(None)),
            };
        };
        let request = ItemRequest::decode(&out.bytes);
        let (Some(in_force), Some(request)) = (&self.in_force, request) else {
            return self.parked.push_back(number);
        };
        let access = request.operation.access();
        match self.cluster.place(in_force, key, access) {
            Way::At(to) => {
                out.to = to;
                self.send_out(now, number);
            }
            // Its machine has it run here, or forwards it.
            _ => {
                if let Some(out) = self.out.take(name) {
                    self.give_request(out.origin, key, access, out.bytes);
                }
            }
        }
    }
}

/// Sends a request to a node that is to carry it out; false if that is impossible now.
pub(super) fn send_request(
    links: &mut Links,
    to: NodeId,
    head: BatchHead,
    request: NodeRequest<'_>,
) -> bool {
    let class = match request.bytes.len() > LARGE_BYTES {
        true => Class::LargeDemand,
        false => Class::Demand,
    };
    let part = Part::Request(head, request);
    let endpoint = links.endpoint(to);
    endpoint.is_some_and(|to| links.send(to, class, &part).is_ok())
}
