//! What all connections of a driver thread share: how a request begins, and what its answer counts
//! as.

use std::sync::Arc;

use curtail_workload::Kind;

use super::{Clock, Plan, Session};
use crate::{
    error::LoadError,
    measure::{Class, Operation, Recorder, Times},
    request_source::{Marking, Request, Then, Wording},
    text_protocol::{Protocol, Reply},
    verify::{Fault, Proof, Versions},
};

/// Words requests and records answers.
pub(super) struct Desk {
    pub(super) wording: Wording,
    pub(super) recorder: Recorder,
    marking: Marking,
    versions: Option<Arc<Versions>>,
    /// The latest latency, of how many requests: most of a pipeline's are alike.
    alike: Option<(Class, Times, u64)>,
}

/// A request that waits or is under way.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) request: Request,
    intended_ns: u64,
    /// 0 until it is sent.
    sent_ns: u64,
    /// What a compare-and-swap compares with.
    pub(super) token: u64,
    pub(super) proof: Proof,
}

/// How a request ended.
pub(super) struct Answer<'a> {
    pub(super) reply: Reply,
    /// What a read found, where values are kept; `None` if it does not end as it should.
    pub(super) value: Option<&'a [u8]>,
    /// The write ended when it was accepted, whatever it does.
    pub(super) is_accepted: bool,
    /// Nobody knows whether the write takes effect.
    pub(super) is_unknown: bool,
}

impl Pending {
    pub(super) fn new(request: Request, intended_ns: u64) -> Self {
        Self {
            request,
            intended_ns,
            sent_ns: 0,
            token: 0,
            proof: Proof::default(),
        }
    }

    /// Whether it has waited for an answer for so long.
    pub(super) fn has_waited(&self, ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.intended_ns) >= ns
    }

    fn times(&self, now_ns: u64) -> Times {
        Times {
            intended_ns: self.intended_ns,
            sent_ns: self.sent_ns,
            now_ns,
        }
    }
}

impl Desk {
    pub(super) fn new(plan: &Plan, session: &Session) -> Result<Self, LoadError> {
        Ok(Self {
            wording: plan.load.wording(),
            recorder: plan.recorder()?,
            marking: match plan.load.protocol {
                Protocol::Native => plan.load.marking,
                _ => Marking::None,
            },
            versions: session.versions.clone().filter(|_| plan.load.verify),
            alike: None,
        })
    }

    /// The driver notices at `now_ns` that a request is due.
    #[inline]
    pub(super) fn late(&mut self, pending: &Pending, now_ns: u64) {
        self.recorder.late(pending.intended_ns, now_ns);
    }

    /// A request is about to be sent, for the first time or again.
    #[inline]
    pub(super) fn begins(&self, pending: &mut Pending, sent_ns: u64, clock: &Clock) {
        let request = &pending.request;
        if let (Some(versions), 0) = (&self.versions, pending.sent_ns) {
            pending.proof = match request.verb {
                verb if !verb.is_write() => versions.read_begins(request.key),
                _ if request.is_counter => Proof::default(),
                _ => versions.write_begins(request.key, clock.epoch_ns + sent_ns),
            };
        }
        pending.sent_ns = sent_ns;
    }

    /// Whether a write is to end when it is accepted.
    pub(super) fn is_marked(&self, request: &Request) -> bool {
        match self.marking {
            _ if !request.verb.is_write() || request.begins_counter() => false,
            Marking::Sets => request.verb == Kind::Set,
            Marking::Writes => true,
            Marking::None => false,
        }
    }

    /// Counts an answer; returns the second request of the operation, for the same connection.
    #[inline]
    pub(super) fn answered(
        &mut self,
        pending: &Pending,
        answer: &Answer<'_>,
        now_ns: u64,
    ) -> Option<Pending> {
        let Request {
            verb, value_bytes, ..
        } = pending.request;
        let known = self.wording.lengths_are_known;
        let mut class = self.recorder.reply(verb, answer.reply, value_bytes, known);
        if answer.is_accepted {
            class = self.recorder.class(Operation::Accepted, value_bytes);
        }
        let times = pending.times(now_ns);
        match &mut self.alike {
            Some((last, other, count)) if (*last, *other) == (class, times) => *count += 1,
            _ => {
                self.settle();
                self.alike = Some((class, times, 1));
            }
        }
        if self.versions.is_some() {
            self.verify(pending, answer);
        }
        if pending.request.then == Then::Nothing && answer.reply != Reply::Refused {
            return None;
        }
        self.follow_up(pending, answer.reply, now_ns)
    }

    /// Records what was counted and not recorded yet.
    pub(super) fn settle(&mut self) {
        if let Some((class, times, count)) = self.alike.take() {
            self.recorder.latency(class, times, count);
        }
    }

    /// The run ended before the request: it counts with the time it has waited.
    pub(super) fn unfinished(&mut self, pending: &Pending, now_ns: u64) {
        let request = &pending.request;
        let operation = match self.is_marked(request) {
            true => Operation::Accepted,
            false => Operation::hoped(request.verb),
        };
        let class = self.recorder.class(operation, request.value_bytes);
        self.recorder.unfinished(class, pending.times(now_ns));
    }

    /// Checks a value that came, or notes that a write ended.
    fn verify(&mut self, pending: &Pending, answer: &Answer<'_>) {
        let Some(versions) = &self.versions else {
            return;
        };
        let Request { verb, key, .. } = pending.request;
        if verb.is_write() {
            // Counters have no version. A write of which nobody knows stays under way for ever: it
            // may still take effect.
            if pending.proof.version > 0 && !answer.is_unknown {
                versions.write_ends(key, pending.proof, answer.reply == Reply::Done);
            }
            return;
        }
        if !matches!(answer.reply, Reply::Hit { .. }) {
            return;
        }
        let checked = answer.value.ok_or(Fault::Torn);
        let checked = checked.and_then(|value| versions.read_ends(key, pending.proof, value));
        let counts = &mut self.recorder.counts;
        counts.verified += 1;
        match checked {
            Ok(()) => {}
            Err(Fault::Torn) => counts.torn += 1,
            Err(Fault::Foreign) => counts.foreign += 1,
            Err(Fault::Stale) => counts.stale += 1,
        }
    }

    fn follow_up(&self, pending: &Pending, reply: Reply, now_ns: u64) -> Option<Pending> {
        let request = &pending.request;
        let (next, token) = match reply {
            Reply::Refused => (request.first_count(self.wording.protocol), 0),
            Reply::Hit { token, .. } => (request.follow_up(true), token),
            Reply::Miss => (request.follow_up(false), 0),
            Reply::Done | Reply::Error => return None,
        };
        Some(Pending {
            token,
            ..Pending::new(next?, now_ns)
        })
    }
}
