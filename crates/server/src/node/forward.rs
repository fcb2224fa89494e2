//! Requests forwarded to other nodes, until their replies arrive.
//!
//! ```text
//!   relay ---> sent ---> answered: done
//!     ^         |  |
//!     |         |  +---> the node is lost: a read goes again, a write may have happened
//!     +-- parked <-+ no room, or that node was not ready: again, where the key is then
//! ```

use curtail_codec::node::{BatchHead, Class, ItemRequest, NodeRequest, Part};
use curtail_dispatch::SharedState;
use curtail_types::{Cas, Failure, Instant, RouteHash};

use crate::node::{
    Cluster, NodeWorker,
    host::NodeContext,
    inbox::{AFTER, FLUSH, SHOW},
    migration::Waiter,
    request_placement::Way,
    slice_jobs::End,
    slices::{LARGE_BYTES, Relayed, RelayedKind},
    worker::AGAIN_NS,
};

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

impl NodeWorker {
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
            view: in_force.view.number,
        };
        let Relayed {
            to,
            key,
            after,
            bytes,
            kind,
            ..
        } = &out.relayed;
        let after_bytes = after.0.to_le_bytes();
        let (after_option, first): (u8, &[u8]) = match *after != Cas(0) {
            true => (AFTER, &after_bytes),
            false => (0, &[]),
        };
        let length = first.len() + bytes.len();
        let class = match length > LARGE_BYTES {
            true => Class::LargeDemand,
            false => Class::Demand,
        };
        let options = match kind {
            RelayedKind::Item => after_option | self.cluster.show_option(*key),
            RelayedKind::Flush => FLUSH,
        };
        let request = NodeRequest {
            number,
            options,
            bytes: &[],
        };
        let part = Part::Request(head, request);
        let endpoint = self.links.endpoint(*to);
        let sent = endpoint.map(|to| {
            self.links.send_filled(to, class, &part, length, |room| {
                let (before, rest) = room.split_at_mut(first.len());
                before.copy_from_slice(first);
                rest.copy_from_slice(bytes);
            })
        });
        if let Some(Ok(())) = sent {
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
                self.place_again(cx, number);
            }
        }
    }

    /// A request that is parked goes where its key is now.
    fn place_again(&mut self, cx: &mut NodeContext<'_>, number: u32) {
        let now = cx.store_cx.now.instant;
        let Some(Some(out)) = self.out.get_mut(number as usize) else {
            return;
        };
        if out.relayed.kind == RelayedKind::Flush {
            let live = self.in_force.as_ref().map(|now| now.view.live);
            let to = out.relayed.to;
            return match live.is_some_and(|live| live.contains(to)) {
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
            way => {
                if let Some(out) = self.take_out(number) {
                    let begun_ns = out.begun_ns;
                    let Relayed {
                        origin,
                        bytes,
                        after,
                        ..
                    } = out.relayed;
                    let waiter = Waiter {
                        origin,
                        key,
                        access,
                        after,
                        begun_ns,
                        bytes,
                    };
                    match way {
                        Way::Arriving => self.give_waiter(cx, waiter),
                        _ => self.run_waiter(waiter),
                    }
                }
            }
        }
    }
}

impl Cluster {
    /// Whether the answer to a request for `key` is to say which write it shows: only if this node
    /// has a copy that could show an earlier one to the same session. A copy that comes later has
    /// that write, but for one that is on its way; of that the answer tells by itself.
    fn show_option(&self, key: RouteHash) -> u8 {
        match self.keeps_sessions && self.keys.look(key).state != SharedState::Ordinary {
            true => SHOW,
            false => 0,
        }
    }
}
