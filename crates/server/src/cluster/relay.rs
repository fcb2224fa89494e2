//! Requests that other nodes carry out for this one, until their answers are there.
//!
//! ```text
//!   relay ---> sent ---> answered: done
//!     ^         |  |
//!     |         |  +---> the node is lost: a read goes again, a write may have happened
//!     +-- parked <-+ no room, or that node was not ready: again, where the key is then
//! ```

use curtail_codec::{
    memcached::Carried,
    node::{BatchHead, Class, NodeRequest, Part},
};
use curtail_types::{Cas, Instant, NodeId};

use super::{
    NodeWorker,
    inbox::{AFTER, FLUSH},
    jobs::{Completed, End, Origin},
    moves::Waiter,
    node_worker::AGAIN_NS,
    place::{Way, access_of},
    slices::{LARGE_BYTES, Relayed, RelayedKind},
};
use crate::kit::Kit;

/// A request that another node carries out.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) relayed: Relayed,
    pub(super) parcel: u64,
    begun_ns: u64,
    /// When it may be sent again.
    pub(super) again_ns: u64,
    pub(super) is_sent: bool,
}

/// How long a request tries to reach a node that can carry it out.
const PATIENCE_NS: u64 = 5_000_000_000;

/// How long a request that was sent waits for its answer.
const ANSWER_NS: u64 = 10_000_000_000;

/// How often what is out is looked through.
const LOOK_NS: u64 = 100_000_000;

const UNREACHABLE: &[u8] = b"SERVER_ERROR the node of this key cannot be reached\r\n";

const UNKNOWN: &[u8] = b"SERVER_ERROR the node of this key was lost; a write may have happened\r\n";

impl NodeWorker {
    /// Has another node carry a request out.
    pub(super) fn relay(&mut self, now: Instant, relayed: Relayed) {
        let out = Out {
            relayed,
            parcel: self.parcel,
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

    /// Sends a request that is out; parks it if that cannot be.
    fn send_out(&mut self, now: Instant, number: u32) {
        let parcel = self.parcel;
        let Some(Some(out)) = self.out.get_mut(number as usize) else {
            return;
        };
        let Some(in_force) = &self.in_force else {
            return self.parked.push_back(number);
        };
        let head = BatchHead {
            number: parcel,
            view: in_force.view.number,
        };
        let mut framed = Vec::new();
        if out.relayed.after != Cas(0) {
            framed.extend_from_slice(&out.relayed.after.0.to_le_bytes());
            framed.extend_from_slice(&out.relayed.bytes);
        }
        let bytes = match framed.is_empty() {
            true => &out.relayed.bytes,
            false => &framed,
        };
        let class = match bytes.len() > LARGE_BYTES {
            true => Class::LargeDemand,
            false => Class::Demand,
        };
        let part = Part::Request(
            head,
            NodeRequest {
                number,
                options: match out.relayed.kind {
                    RelayedKind::Item if out.relayed.after != Cas(0) => AFTER,
                    RelayedKind::Item => 0,
                    RelayedKind::Flush => FLUSH,
                },
                bytes,
            },
        );
        let endpoint = self.links.endpoint(out.relayed.to);
        let sent = endpoint.map(|to| self.links.send(to, class, &part));
        if let Some(Ok(())) = sent {
            out.parcel = parcel;
            out.is_sent = true;
        } else {
            out.again_ns = now.ns + AGAIN_NS;
            self.parked.push_back(number);
        }
    }

    /// Tries again what could not be sent, or was sent to a node that was not ready for it.
    pub(super) fn send_again(&mut self, kit: &mut Kit) {
        let now = kit.now.instant;
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
                self.end(number, UNREACHABLE.to_vec());
            } else if now.ns < out.again_ns {
                self.parked.push_back(number);
            } else {
                self.place_again(kit, number);
            }
        }
    }

    /// A request that is parked goes where its key is now.
    fn place_again(&mut self, kit: &mut Kit, number: u32) {
        let now = kit.now.instant;
        let Some(Some(out)) = self.out.get_mut(number as usize) else {
            return;
        };
        if out.relayed.kind == RelayedKind::Flush {
            let live = self.in_force.as_ref().map(|now| now.view.live);
            let to = out.relayed.to;
            return match live.is_some_and(|live| live.contains(to)) {
                true => self.send_out(now, number),
                // What is not there need not be flushed.
                false => self.end(number, Vec::new()),
            };
        }
        let (Some(in_force), Some((carried, _))) =
            (&self.in_force, Carried::read(&out.relayed.bytes))
        else {
            self.parked.push_back(number);
            return;
        };
        let (key, access) = (out.relayed.key, access_of(&carried.operation));
        match self.cluster.place(in_force, key, access) {
            Way::At(to) => {
                out.relayed.to = to;
                self.send_out(now, number);
            }
            way => {
                if let Some(out) = self.take_out(number) {
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
                        bytes,
                    };
                    match way {
                        Way::Arriving => self.give_waiter(kit, waiter),
                        _ => self.run_waiter(waiter),
                    }
                }
            }
        }
    }

    /// Ends what waits for an answer for too long.
    pub(super) fn look_through(&mut self, kit: &Kit) {
        let now_ns = kit.now.instant.ns;
        if now_ns.saturating_sub(self.looked_ns) < LOOK_NS {
            return;
        }
        self.looked_ns = now_ns;
        self.look_at_joining();
        self.repeat_moves_done();
        for number in 0..self.out.len() as u32 {
            let is_late = |out: &Out| now_ns.saturating_sub(out.begun_ns) > ANSWER_NS;
            let late = self.out.get(number as usize).and_then(Option::as_ref);
            if late.is_some_and(is_late) {
                self.end(number, UNKNOWN.to_vec());
            }
        }
    }

    pub(super) fn out_of(&mut self, number: u32, parcel: u64) -> Option<&mut Out> {
        let out = self.out.get_mut(number as usize)?.as_mut()?;
        (out.parcel == parcel && out.is_sent).then_some(out)
    }

    pub(super) fn take_out(&mut self, number: u32) -> Option<Out> {
        let out = self.out.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(out)
    }

    /// A request of a node that is no member any more.
    pub(super) fn refuse(&mut self, origin: Origin, mut bytes: Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(UNREACHABLE);
        self.done.push(Completed {
            origin,
            end: End::Refused,
            reply: bytes,
            ts: Cas(0),
        });
    }

    /// A request that was out has its reply.
    pub(super) fn end(&mut self, number: u32, reply: Vec<u8>) {
        if let Some(out) = self.take_out(number) {
            self.spare.give(out.relayed.bytes);
            self.done.push(Completed {
                origin: out.relayed.origin,
                end: End::Done,
                reply,
                ts: Cas(0),
            });
        }
    }

    /// A node, or all it knew, is gone: reads are asked again, writes may have happened.
    pub(super) fn lose(&mut self, kit: &Kit, node: NodeId) {
        for number in 0..self.out.len() as u32 {
            let Some(Some(out)) = self.out.get_mut(number as usize) else {
                continue;
            };
            if out.relayed.to != node || !out.is_sent {
                continue;
            }
            let is_read = out.relayed.kind == RelayedKind::Item && is_read(&out.relayed.bytes);
            if is_read {
                out.is_sent = false;
                out.again_ns = kit.now.instant.ns + AGAIN_NS;
                self.parked.push_back(number);
            } else {
                self.end(number, UNKNOWN.to_vec());
            }
        }
    }
}

fn is_read(bytes: &[u8]) -> bool {
    use curtail_consistency::symmetric::Access;
    Carried::read(bytes).is_some_and(|(carried, _)| access_of(&carried.operation) == Access::Read)
}
