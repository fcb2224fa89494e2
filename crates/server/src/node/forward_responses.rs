//! Replies of other nodes to forwarded requests, and the timeouts of those.

use curtail_codec::node::ItemRequest;
use curtail_links::LinkEvent;
use curtail_types::{Cas, Failure, NodeId};

use crate::node::{
    NodeWorker,
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
        for (number, answer) in answered.drain(..) {
            self.take_answer(cx, number, answer);
        }
        self.inbox.answered = answered;
    }

    fn take_answer(&mut self, cx: &mut NodeContext<'_>, number: u32, answer: ForwardAnswer) {
        let ForwardAnswer {
            delegated,
            mut end,
            value,
            view,
            copies,
            ..
        } = answer;
        let out = self.out.at(number);
        let out = out.filter(|(_, out)| out.is_sent && out.delegated == delegated);
        let Some((name, out)) = out else {
            return self.spare.give(value);
        };
        if end == End::Elsewhere {
            self.park(cx.store_cx.now.instant, number);
            return self.spare.give(value);
        }
        let is_flush = out.key.is_none();
        let fits = match is_flush {
            true => !matches!(end, End::Answered(Some(_))),
            false => end.answers(&out.bytes, &value),
        };
        if !fits {
            end = End::Failed(Failure::NodeLost);
        }
        if let Some(out) = self.out.take(name) {
            let view = u64::from(view.0);
            self.done.push(Completed {
                value,
                copies,
                shown: Cas(if is_flush { view } else { 0 }),
                ..Completed::without_value(out.origin, out.bytes, end)
            });
        }
    }

    /// A request that was out has ended without showing a value.
    pub(super) fn end(&mut self, number: u32, end: End) {
        let name = self.out.at(number).map(|(name, _)| name);
        let out = name.and_then(|name| self.out.take(name));
        let completed = out.map(|out| Completed::without_value(out.origin, out.bytes, end));
        self.done.extend(completed);
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
        for number in self.out.all() {
            let out = self.out.at(number);
            let Some((_, out)) = out.filter(|(_, out)| out.is_sent && out.to == node) else {
                continue;
            };
            let is_read = || {
                let request = ItemRequest::decode(&out.bytes);
                request.is_some_and(|request| request.operation.is_read())
            };
            match out.key.is_none() || is_read() {
                true => self.park(cx.store_cx.now.instant, number),
                false => self.end(number, End::Failed(Failure::NodeLost)),
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
        for number in self.out.all() {
            let begun_ns = self.out.at(number).map_or(now_ns, |(_, out)| out.begun_ns);
            if now_ns.saturating_sub(begun_ns) > ANSWER_NS {
                self.end(number, End::Failed(Failure::NodeLost));
            }
        }
    }
}
