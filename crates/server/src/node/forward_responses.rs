//! Replies of other nodes to forwarded requests, and the timeouts of those.

use curtail_codec::node::{ItemAnswer, ItemRequest};
use curtail_links::LinkEvent;
use curtail_types::{Cas, Failure, NodeId};

use crate::node::{
    NodeWorker,
    forward::{AGAIN_NS, Out, Relayed, RelayedKind},
    host::NodeContext,
    inbox::ForwardAnswer,
    stages::{Completed, End},
};

/// How long a request that was sent waits for its answer.
const ANSWER_NS: u64 = 10_000_000_000;

/// How often forwarded requests are checked for timeouts.
const LOOK_NS: u64 = 100_000_000;

impl NodeWorker {
    /// Processes the replies of other nodes.
    pub(super) fn take_answers(&mut self, cx: &mut NodeContext<'_>) {
        let mut answered = std::mem::take(&mut self.inbox.answered);
        for answer in answered.drain(..) {
            self.take_answer(cx, answer);
        }
        self.inbox.answered = answered;
    }

    fn take_answer(&mut self, cx: &mut NodeContext<'_>, answer: ForwardAnswer) {
        let ForwardAnswer {
            number,
            mut end,
            value,
            view,
            copies,
            ..
        } = answer;
        let Some(out) = self.out_of(number, answer.delegated) else {
            return self.spare.give(value);
        };
        if end == End::Elsewhere {
            out.is_sent = false;
            out.again_ns = cx.store_cx.now.instant.ns + AGAIN_NS;
            self.parked.push_back(number);
            return self.spare.give(value);
        }
        if !answers(&out.relayed, &end, &value) {
            end = End::Failed(Failure::NodeLost);
        }
        let is_flush = out.relayed.kind == RelayedKind::Flush;
        if let Some(mut completed) = self.completed(number, end, value) {
            completed.copies = copies;
            if is_flush {
                completed.shown = Cas(u64::from(view.0));
            }
            self.done.push(completed);
        }
    }

    /// A request that was out has ended without showing a value.
    pub(super) fn end(&mut self, number: u32, end: End) {
        let completed = self.completed(number, end, Vec::new());
        self.done.extend(completed);
    }

    fn completed(&mut self, number: u32, end: End, value: Vec<u8>) -> Option<Completed> {
        let Out { relayed, .. } = self.take_out(number)?;
        Some(Completed {
            value,
            ..Completed::without_value(relayed.origin, relayed.bytes, end)
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

    /// Processes the events of links.
    pub(super) fn take_events(&mut self, cx: &NodeContext<'_>) {
        while let Some(event) = self.links.next_event() {
            if let LinkEvent::Reset(node) = event {
                self.lose(cx, node);
            }
        }
    }

    /// A node is lost or has restarted: reads are sent again, writes may have happened.
    fn lose(&mut self, cx: &NodeContext<'_>, node: NodeId) {
        for number in 0..self.out.len() as u32 {
            let Some(Some(out)) = self.out.get_mut(number as usize) else {
                continue;
            };
            if out.relayed.to != node || !out.is_sent {
                continue;
            }
            let goes_again = match out.relayed.kind {
                RelayedKind::Item => is_read(&out.relayed.bytes),
                RelayedKind::Flush => true,
            };
            if goes_again {
                out.is_sent = false;
                out.again_ns = cx.store_cx.now.instant.ns + AGAIN_NS;
                self.parked.push_back(number);
            } else {
                self.end(number, End::Failed(Failure::NodeLost));
            }
        }
    }

    /// Ends requests that have waited too long for a reply.
    pub(super) fn look_through(&mut self, cx: &NodeContext<'_>) {
        let now_ns = cx.store_cx.now.instant.ns;
        if now_ns.saturating_sub(self.looked_ns) < LOOK_NS {
            return;
        }
        self.looked_ns = now_ns;
        for number in 0..self.out.len() as u32 {
            let is_late = |out: &Out| now_ns.saturating_sub(out.begun_ns) > ANSWER_NS;
            let late = self.out.get(number as usize).and_then(Option::as_ref);
            if late.is_some_and(is_late) {
                self.end(number, End::Failed(Failure::NodeLost));
            }
        }
    }
}

fn is_read(bytes: &[u8]) -> bool {
    ItemRequest::decode(bytes).is_some_and(|request| request.operation.is_read())
}

/// Whether a reply is of the request's kind: another would corrupt the client's reply stream.
fn answers(relayed: &Relayed, end: &End, value: &[u8]) -> bool {
    match (relayed.kind, *end) {
        (RelayedKind::Item, End::Answered(Some(outcome))) => {
            let request = ItemRequest::decode(&relayed.bytes);
            let answer = ItemAnswer { outcome, value };
            request.is_some_and(|request| request.is_answered_by(&answer))
        }
        (kind, End::Answered(outcome)) => kind == RelayedKind::Flush && outcome.is_none(),
        _ => true,
    }
}
