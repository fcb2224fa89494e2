//! Requests of other nodes: those of their clients, for keys whose home is here.
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

use curtail_codec::node::{
    AnswerStatus, BatchHead, Class, ItemAnswer, ItemRequest, NodeAnswer, Part,
};
use curtail_links::Endpoint;
use curtail_types::{Cas, Exptime, Failure};

use crate::{
    log::log_flush,
    metrics::counters::Count,
    node::{
        NodeWorker,
        execute::execute,
        host::NodeContext,
        inbox::Asked,
        migration::Waiter,
        request_placement::{Way, route_of},
        slice_jobs::{Asker, Completed, End, Origin},
        slices::{LARGE_BYTES, RelayedKind},
    },
};

impl NodeWorker {
    /// Executes what other nodes ask for.
    pub(super) fn answer_peers(&mut self, cx: &mut NodeContext<'_>) {
        let mut asked = std::mem::take(&mut self.inbox.asked);
        for one in asked.drain(..) {
            self.answer_peer(cx, one);
        }
        self.inbox.asked = asked;
    }

    fn answer_peer(&mut self, cx: &mut NodeContext<'_>, asked: Asked) {
        self.mover.asked_ns = self.now_ns;
        let (after, bytes) = (asked.after, asked.bytes);
        let origin = Origin {
            worker: self.index,
            asker: Asker::Peer {
                at: asked.at,
                delegated: asked.delegated,
                number: asked.number,
            },
        };
        if let (RelayedKind::Flush, Some(at)) = (asked.kind, bytes.first_chunk()) {
            let at = Exptime(i64::from_le_bytes(*at));
            let node = format_args!("node {}", asked.at.node.0);
            log_flush(cx.host.admin_lines(), cx.store_cx.now, &node);
            cx.store_cx.store.flush_all(cx.store_cx.now, at);
            let done = Completed::without_value(origin, bytes, End::Done(None));
            return self.done.push(done);
        }
        let Some(request) = ItemRequest::decode(&bytes) else {
            return self.fail(Failure::OutOfService, origin, bytes);
        };
        cx.counts.add(Count::ClusterAnswered, 1);
        let (key, access) = (route_of(request.key.bytes()), request.operation.access());
        let in_force = self.in_force.as_ref().filter(|_| self.serves);
        let way = in_force
            .filter(|now| now.view.number == asked.view)
            .map(|in_force| self.cluster.place(in_force, key, access));
        match way {
            Some(Way::Here) => {
                let hash = cx.store_cx.store.hash(request.key.bytes());
                let mut value = self.spare.take();
                let end = End::of(execute(cx, &request, hash, &mut value));
                let shown = asked
                    .shows
                    .then(|| cx.store_cx.version_of(request.key, hash));
                self.done.push(Completed {
                    origin,
                    end,
                    request: bytes,
                    value,
                    ts: shown.flatten().unwrap_or_default(),
                });
            }
            // It is this node's; who asked may not know that it has moved.
            Some(Way::At(_)) | None => {
                let moved = Completed::without_value(origin, bytes, End::Elsewhere);
                self.done.push(moved);
            }
            Some(Way::Looked(_) | Way::Protocol) => {
                self.give_request(origin, key, (access, after), bytes);
            }
            Some(Way::Arriving) => {
                let waiter = Waiter {
                    origin,
                    key,
                    access,
                    after,
                    begun_ns: self.now_ns,
                    bytes,
                };
                self.give_waiter(cx, waiter);
            }
        }
    }

    /// Tells the node that asked how it ended.
    pub(super) fn answer(
        &mut self,
        at: Endpoint,
        (delegated, number): (u64, u32),
        completed: &Completed,
    ) {
        let mut room = [0; SAID_BYTES_MAX];
        let (status, length) = self
            .say(completed, &mut room)
            .unwrap_or((AnswerStatus::Moved, 0));
        let said = room.get(..length).unwrap_or_default();
        let value: &[u8] = match completed.end {
            End::Done(_) | End::Answered(_) => &completed.value,
            End::Elsewhere | End::Failed(_) => &[],
        };
        let view = self.in_force.as_ref().map(|now| now.view.number);
        let head = BatchHead {
            number: delegated,
            view: view.unwrap_or_default(),
        };
        let bytes = said.len() + value.len();
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
        // A node that gets no answer sends the request again, or fails it.
        let _ = self.links.send_filled(at, class, &part, bytes, |room| {
            let (first, rest) = room.split_at_mut(said.len());
            first.copy_from_slice(said);
            rest.copy_from_slice(value);
        });
    }

    /// Writes what stands in an answer before the value; how many bytes that is.
    fn say(
        &self,
        completed: &Completed,
        room: &mut [u8; SAID_BYTES_MAX],
    ) -> Option<(AnswerStatus, usize)> {
        let outcome = match completed.end {
            End::Elsewhere => return Some((AnswerStatus::Moved, 0)),
            End::Failed(failure) => {
                *room.first_mut()? = failure as u8;
                return Some((AnswerStatus::Failed, 1));
            }
            End::Done(outcome) | End::Answered(outcome) => outcome,
        };
        let Some(outcome) = outcome else {
            return Some((AnswerStatus::Done, 0));
        };
        let answer = ItemAnswer {
            outcome,
            value: &[],
        };
        // Which write an answer shows is known here for nothing if the protocol has run it.
        let is_of_here = matches!(completed.end, End::Done(_));
        if is_of_here && self.cluster.keeps_sessions && completed.ts != Cas(0) {
            let (shown, rest) = room.split_first_chunk_mut()?;
            *shown = completed.ts.0.to_le_bytes();
            return Some((AnswerStatus::Shown, shown.len() + answer.encode(rest)?));
        }
        Some((AnswerStatus::Done, answer.encode(room)?))
    }
}

/// The most bytes of an answer beside its value: the write that it shows, and how it ended.
const SAID_BYTES_MAX: usize = size_of::<Cas>() + ItemAnswer::HEAD_BYTES_MAX;
