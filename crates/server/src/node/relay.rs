//! Requests for keys of which this node knows nothing: this worker sends them to the primary over
//! a link of its own, which saves the way to the machine of their slice.
//!
//! ```text
//!   relay --> sent --> answered: done
//!     |        |  +--> another node has the key by now: machine
//!     |        +-----> the node is lost, or silent: a write may have happened, a read: machine
//!     +--> no room on the link, or no link: machine
//! ```
//!
//! Whatever does not end like that goes to the machine of its slice, which alone decides how it
//! goes on.

use curtail_codec::node::{BatchHead, NodeRequest};
use curtail_links::LinkEvent;
use curtail_types::{Access, Failure, NodeId, RouteHash};

use crate::{
    metrics::counters::Count,
    node::{
        NodeWorker,
        flush::FLUSH_NUMBER,
        host::NodeContext,
        inbox::ForwardAnswer,
        stages::{Completed, End, Origin, send_request},
    },
};

/// A request that another node carries out.
#[derive(Debug)]
pub(super) struct Out {
    origin: Origin,
    to: NodeId,
    key: RouteHash,
    access: Access,
    bytes: Vec<u8>,
    delegated: u64,
    begun_ns: u64,
}

/// How long a request that was sent waits for its answer.
const ANSWER_NS: u64 = 10_000_000_000;

/// How often that is looked at.
const LOOK_NS: u64 = 100_000_000;

impl NodeWorker {
    /// Has another node carry a request out.
    pub(super) fn relay(
        &mut self,
        cx: &mut NodeContext<'_>,
        (origin, to): (Origin, NodeId),
        (key, access): (RouteHash, Access),
        bytes: Vec<u8>,
    ) {
        let view = self.in_force.as_ref().map(|now| now.slices.number);
        let head = BatchHead {
            number: self.delegated,
            view: view.unwrap_or_default(),
        };
        let name = self.out.keep(Out {
            origin,
            to,
            key,
            access,
            bytes,
            delegated: self.delegated,
            begun_ns: self.now_ns,
        });
        let Some(out) = self.out.get(name) else {
            return;
        };
        let request = NodeRequest {
            number: name as u32,
            options: 0,
            bytes: &out.bytes,
        };
        match send_request(&mut self.links, to, head, request) {
            true => cx.counts.add(Count::ClusterRelayed, 1),
            false => self.give_out(name),
        }
    }

    /// Leaves a request that was to go out to the machine of its slice.
    fn give_out(&mut self, name: u64) {
        if let Some(out) = self.out.take(name) {
            self.give_request(out.origin, out.key, out.access, out.bytes);
        }
    }

    /// Processes the replies of other nodes.
    pub(super) fn take_answers(&mut self) {
        let mut answered = std::mem::take(&mut self.inbox.answered);
        for (number, answer) in answered.drain(..) {
            match number & FLUSH_NUMBER {
                0 => self.take_answer(number, answer),
                _ => self.flushes.note_flushed(number, &answer),
            }
        }
        self.inbox.answered = answered;
    }

    fn take_answer(&mut self, number: u32, answer: ForwardAnswer) {
        let out = self.out.at(number);
        let out = out.filter(|(_, out)| out.delegated == answer.delegated);
        let Some((name, out)) = out else {
            return self.spare.give(answer.value);
        };
        if answer.end == End::Elsewhere {
            self.spare.give(answer.value);
            return self.give_out(name);
        }
        let end = match answer.end.answers(&out.bytes, &answer.value) {
            true => answer.end,
            false => End::Failed(Failure::NodeLost),
        };
        let out = self.out.take(name);
        self.done.extend(out.map(|out| Completed {
            value: answer.value,
            copies: answer.copies,
            ..Completed::without_value(out.origin, out.bytes, end)
        }));
    }

    /// Processes the events of links.
    pub(super) fn take_events(&mut self) {
        while let Some(event) = self.links.next_event() {
            if let LinkEvent::Reset(node) = event {
                self.flushes.lose(node);
                self.end_out(|out| out.to == node);
            }
        }
    }

    /// Ends requests that have waited too long for a reply.
    pub(super) fn look_through(&mut self) {
        let now_ns = self.now_ns;
        if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.looked_ns = now_ns;
            self.end_out(|out| now_ns.saturating_sub(out.begun_ns) > ANSWER_NS);
        }
    }

    /// These have no answer, and get none: reads begin again, writes may have happened.
    fn end_out(&mut self, is_lost: impl Fn(&Out) -> bool) {
        for number in self.out.all() {
            let Some((name, out)) = self.out.at(number).filter(|(_, out)| is_lost(out)) else {
                continue;
            };
            if out.access == Access::Read {
                self.give_out(name);
            } else if let Some(out) = self.out.take(name) {
                let failed = Completed::failed(out.origin, out.bytes, Failure::NodeLost);
                self.done.push(failed);
            }
        }
    }
}
