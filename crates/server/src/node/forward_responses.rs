//! Answers of other nodes to what this one has had them carry out, and the end of waiting for them.

use curtail_codec::{memcached::Carried, node::AnswerStatus};
use curtail_consistency::placement::slice_of;
use curtail_dispatch::SharedState;
use curtail_types::{Cas, NodeId};

use crate::{
    metrics::counters::Count,
    node::{
        NodeWorker,
        forward::{Out, UNKNOWN, UNREACHABLE},
        inbox::Answered,
        links::LinkEvent,
        placement::access_of,
        slice_jobs::{Completed, End, Job, Origin},
        slices::RelayedKind,
        worker::AGAIN_NS,
    },
    worker::context::WorkerContext,
};

/// How long a request that was sent waits for its answer.
const ANSWER_NS: u64 = 10_000_000_000;

/// How often what is out is looked through.
const LOOK_NS: u64 = 100_000_000;

impl NodeWorker {
    /// Takes in what other nodes answered.
    pub(super) fn take_answers(&mut self, cx: &mut WorkerContext) {
        let mut answered = std::mem::take(&mut self.inbox.answered);
        for answer in answered.drain(..) {
            self.take_answer(cx, answer);
        }
        self.inbox.answered = answered;
    }

    fn take_answer(&mut self, cx: &mut WorkerContext, answer: Answered) {
        let Answered {
            number,
            shown,
            bytes,
            ..
        } = answer;
        let Some(out) = self.out_of(number, answer.delegated) else {
            return self.spare.give(bytes);
        };
        if answer.status == AnswerStatus::Moved {
            out.is_sent = false;
            out.again_ns = cx.store_cx.now.instant.ns + AGAIN_NS;
            self.parked.push_back(number);
            return self.spare.give(bytes);
        }
        let key = out.relayed.key;
        let Some(completed) = self.completed(number, bytes) else {
            return;
        };
        // This node's copy, if it has one, must not show an earlier write to the same session.
        let is_shared = || self.cluster.keys.look(key).state != SharedState::Ordinary;
        if shown != Cas(0) && is_shared() {
            cx.counts.add(Count::ClusterShown, 1);
            self.give(slice_of(key), Job::Seen(key, shown, Box::new(completed)));
        } else {
            self.done.push(completed);
        }
    }

    /// A request that was out has its reply.
    pub(super) fn end(&mut self, number: u32, reply: Vec<u8>) {
        let completed = self.completed(number, reply);
        self.done.extend(completed);
    }

    fn completed(&mut self, number: u32, reply: Vec<u8>) -> Option<Completed> {
        let Out { relayed, .. } = self.take_out(number)?;
        self.spare.give(relayed.bytes);
        Some(Completed {
            origin: relayed.origin,
            end: End::Answered,
            reply,
            ts: Cas(0),
        })
    }

    fn out_of(&mut self, number: u32, delegated: u64) -> Option<&mut Out> {
        let out = self.out.get_mut(number as usize)?.as_mut()?;
        (out.delegated == delegated && out.is_sent).then_some(out)
    }

    pub(super) fn take_out(&mut self, number: u32) -> Option<Out> {
        let out = self.out.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(out)
    }

    /// A request of a node that is no member any more.
    pub(super) fn refuse(&mut self, origin: Origin, bytes: Vec<u8>) {
        self.refuse_with(UNREACHABLE, origin, bytes);
    }

    /// The memory of a request, with what its asker is told.
    pub(super) fn refuse_with(&mut self, text: &[u8], origin: Origin, mut bytes: Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(text);
        self.done.push(Completed {
            origin,
            end: End::Refused,
            reply: bytes,
            ts: Cas(0),
        });
    }

    /// What the links tell of.
    pub(super) fn take_events(&mut self, cx: &WorkerContext) {
        while let Some(event) = self.links.next_event() {
            if let LinkEvent::Reset(node) = event {
                self.lose(cx, node);
            }
        }
    }

    /// A node, or all it knew, is gone: reads are asked again, writes may have happened.
    fn lose(&mut self, cx: &WorkerContext, node: NodeId) {
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
                out.again_ns = cx.store_cx.now.instant.ns + AGAIN_NS;
                self.parked.push_back(number);
            } else {
                self.end(number, UNKNOWN.to_vec());
            }
        }
    }

    /// Ends what waits for an answer for too long.
    pub(super) fn look_through(&mut self, cx: &WorkerContext) {
        let now_ns = cx.store_cx.now.instant.ns;
        if now_ns.saturating_sub(self.looked_ns) < LOOK_NS {
            return;
        }
        self.looked_ns = now_ns;
        self.look_at_joining();
        self.repeat_moves_done();
        self.end_waiting();
        for number in 0..self.out.len() as u32 {
            let is_late = |out: &Out| now_ns.saturating_sub(out.begun_ns) > ANSWER_NS;
            let late = self.out.get(number as usize).and_then(Option::as_ref);
            if late.is_some_and(is_late) {
                self.end(number, UNKNOWN.to_vec());
            }
        }
    }
}

fn is_read(bytes: &[u8]) -> bool {
    use curtail_consistency::symmetric::Access;
    Carried::read(bytes).is_some_and(|(carried, _)| access_of(&carried.operation) == Access::Read)
}
