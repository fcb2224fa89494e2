//! What other nodes ask of this one: their clients' requests for keys whose home is here.
//!
//! ```text
//!   Requests frame --> asked --> here, as if a client had asked ----------+
//!                        |  +--> the machine of the key's slice --> done --+--> Answers frame
//!                        |  +--> waits for the key to arrive -----^        |
//!                        +-- not this node's, or another view: "moved" ----+
//! ```
//!
//! An answer goes over the link that the request came by; those of one delegated batch share a
//! frame.

use curtail_codec::{
    memcached::{Carried, KeyScratch},
    node::{AnswerStatus, BatchHead, Class, NodeAnswer, Part},
};
use curtail_types::{Cas, Exptime, Key, NodeId};

use crate::{
    admin::commands,
    metrics::counters::Count,
    node::{
        NodeWorker,
        inbox::Asked,
        links::Endpoint,
        migration::Waiter,
        placement::{Way, access_of, route_of},
        slice_jobs::{Asker, Completed, End, Origin},
        slices::{LARGE_BYTES, RelayedKind},
    },
    worker::context::WorkerContext,
};

/// Another node, as the log names it.
struct Node(NodeId);

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {}", self.0.0)
    }
}

impl NodeWorker {
    /// Carries out what other nodes ask for.
    pub(super) fn answer_peers(&mut self, cx: &mut WorkerContext) {
        let mut asked = std::mem::take(&mut self.inbox.asked);
        for one in asked.drain(..) {
            self.answer_peer(cx, one);
        }
        self.inbox.asked = asked;
    }

    fn answer_peer(&mut self, cx: &mut WorkerContext, asked: Asked) {
        self.mover.asked_ns = self.now_ns;
        let origin = Origin {
            worker: self.index,
            asker: Asker::Peer {
                at: asked.at,
                delegated: asked.delegated,
                number: asked.number,
            },
        };
        let mut reply = self.spare.take();
        let end = self.run_for_peer(cx, &asked, origin, &mut reply);
        match end {
            Some((end, ts)) => self.done.push(Completed {
                origin,
                end,
                reply,
                ts,
            }),
            None => self.spare.give(reply),
        }
        self.spare.give(asked.bytes);
    }

    /// How it ended, and which write it showed; `None` if a slice has it now.
    fn run_for_peer(
        &mut self,
        cx: &mut WorkerContext,
        asked: &Asked,
        origin: Origin,
        reply: &mut Vec<u8>,
    ) -> Option<(End, Cas)> {
        if let (RelayedKind::Flush, Some(at)) = (asked.kind, asked.bytes.first_chunk()) {
            let at = Exptime(i64::from_le_bytes(*at));
            commands::log_flush(
                &cx.shared.limits.admin,
                cx.store_cx.now,
                &Node(asked.at.node),
            );
            cx.store_cx.store.flush_all(cx.store_cx.now, at);
            return Some((End::Done, Cas(0)));
        }
        let Some((carried, _)) = Carried::read(&asked.bytes) else {
            return Some((End::Refused, Cas(0)));
        };
        cx.counts.add(Count::ClusterAnswered, 1);
        let in_force = self.in_force.as_ref().filter(|_| self.serves);
        let Some(in_force) = in_force.filter(|now| now.view.number == asked.view) else {
            return Some((End::Elsewhere, Cas(0)));
        };
        let mut scratch = KeyScratch::default();
        let key_bytes = carried.resolve(&mut scratch).bytes();
        let (key, access) = (route_of(key_bytes), access_of(&carried.operation));
        match self.cluster.place(in_force, key, access) {
            Way::Here => {
                let hash = cx.store_cx.store.hash(key_bytes);
                self.execute_cx.run(cx, &carried, hash, reply);
                let shown = match (asked.shows, Key::new(key_bytes)) {
                    (true, Ok(key)) => cx.version_of(key, hash),
                    _ => None,
                };
                Some((End::Done, shown.unwrap_or_default()))
            }
            // It is this node's; who asked may not know that it has moved.
            Way::At(_) => Some((End::Elsewhere, Cas(0))),
            Way::Looked(_) | Way::Protocol => {
                let bytes = self.spare.copied(&asked.bytes);
                self.give_request(origin, key, (access, asked.after), bytes);
                None
            }
            Way::Arriving => {
                let bytes = self.spare.copied(&asked.bytes);
                let waiter = Waiter {
                    origin,
                    key,
                    access,
                    after: asked.after,
                    begun_ns: self.now_ns,
                    bytes,
                };
                self.give_waiter(cx, waiter);
                None
            }
        }
    }

    /// Sends a reply to the node that asked.
    pub(super) fn answer(
        &mut self,
        at: Endpoint,
        (delegated, number): (u64, u32),
        completed: &Completed,
    ) {
        let Completed { end, reply, ts, .. } = completed;
        let shown = ts.0.to_le_bytes();
        let (status, shown, reply): (_, &[u8], &[u8]) = match end {
            // Which write a reply shows is known here for nothing if the protocol has run it.
            End::Done if self.cluster.keeps_sessions && *ts != Cas(0) => {
                (AnswerStatus::Shown, &shown, reply)
            }
            End::Done | End::Answered => (AnswerStatus::Done, &[], reply),
            End::Elsewhere => (AnswerStatus::Moved, &[], &[]),
            End::Refused => (AnswerStatus::Refused, &[], reply),
        };
        let view = self.in_force.as_ref().map(|now| now.view.number);
        let head = BatchHead {
            number: delegated,
            view: view.unwrap_or_default(),
        };
        let bytes = shown.len() + reply.len();
        let class = match bytes > LARGE_BYTES {
            true => Class::LargeAnswer,
            false => Class::Answer,
        };
        let answer = NodeAnswer {
            number,
            status,
            bytes: &[],
        };
        let part = Part::Answer(head, answer);
        // Who gets none asks again, or says so to its client.
        let _ = self.links.send_filled(at, class, &part, bytes, |room| {
            let (first, rest) = room.split_at_mut(shown.len());
            first.copy_from_slice(shown);
            rest.copy_from_slice(reply);
        });
    }
}
