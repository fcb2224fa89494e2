//! What arrived from other nodes in this turn, sorted by kind.
//!
//! A frame borrows from its link, and answers go over links: so frames are unpacked first and
//! processed afterwards. Messages of machines go straight to their stages.

use curtail_codec::node::{
    AnswerStatus, BatchHead, Body, ItemAnswer, ItemRequest, NodeAnswer, NodeRequest,
};
use curtail_consistency::replica::ReplicaRefusal;
use curtail_links::Endpoint;
use curtail_types::{Cas, Exptime, Failure, NodeId, ViewNumber};

use crate::{
    native::Behind,
    node::{
        control_messages::News,
        flush::when_to_flush,
        host::NodeContext,
        requests_of_threads::ThreadRequest,
        stages::{Answered, End, Job, STAGES, Said, Spare, forwarded},
        work_costs::Received,
    },
};

/// What arrived, but for what machines say.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) asked: Vec<Asked>,
    pub(super) answered: Vec<ForwardAnswer>,
    pub(super) news: Vec<(NodeId, News)>,
    /// Requests of threads of this server.
    pub(super) of_threads: Vec<ThreadRequest>,
    /// For the stages.
    pub(super) jobs: Vec<(usize, Job)>,
    /// How much that was in this turn.
    pub(super) received: Received,
}

/// A request of another node.
pub(super) struct Asked {
    pub(super) at: Endpoint,
    pub(super) delegated: u64,
    pub(super) number: u32,
    /// When to flush, if that is what is asked.
    pub(super) flush: Option<Exptime>,
    /// The accepted writes that it waits for.
    pub(super) behind: Option<Behind>,
    pub(super) bytes: Vec<u8>,
}

/// Requests that wait for accepted writes, until the next turn.
#[derive(Default)]
pub(super) struct PutOff {
    pub(super) asked: Vec<Asked>,
    pub(super) of_threads: Vec<ThreadRequest>,
}

/// An answer of another node.
pub(super) struct ForwardAnswer {
    pub(super) delegated: u64,
    pub(super) number: u32,
    /// The view of who answers.
    pub(super) view: ViewNumber,
    pub(super) end: End,
    /// The write that it shows, if that is known; else 0.
    pub(super) shown: Cas,
    /// How many nodes in sync have that; 0 if the node does not say.
    pub(super) copies: u8,
    pub(super) value: Vec<u8>,
}

/// The option of a request that is a `flush_all`.
pub(super) const FLUSH: u8 = 1;

impl Inbox {
    /// Whether requests wait here for accepted writes.
    pub(super) fn waits(&self) -> bool {
        !self.asked.is_empty() || !self.of_threads.is_empty()
    }

    /// Takes in one frame.
    pub(super) fn take(&mut self, spare: &mut Spare, at: Endpoint, body: &Body<'_>) {
        match *body {
            Body::Replica(messages) => {
                let count = &mut self.received.messages;
                count.frames += 1;
                for part in messages {
                    count.parts += 1;
                    let stage = usize::from(part.stage);
                    if let Some(said) = Said::new(at.node, &part, spare)
                        && stage < STAGES
                    {
                        self.jobs.push((stage, Job::Message(said)));
                    }
                }
            }
            Body::Requests(head, requests) => {
                let before = self.asked.len();
                self.asked
                    .extend(requests.map(|request| Asked::new(at, head, &request, spare)));
                let count = &mut self.received.forwarded;
                count.frames += 1;
                count.parts += (self.asked.len() - before) as u64;
            }
            Body::Answers(head, answers) => {
                let count = &mut self.received.forwarded;
                count.frames += 1;
                for answer in answers {
                    count.parts += 1;
                    let answer = ForwardAnswer::new(head, &answer, spare);
                    match forwarded(answer.number) {
                        Some((stage, index)) if stage < STAGES => {
                            let job = Job::Answered(answer.of_machine(at.node, index));
                            self.jobs.push((stage, job));
                        }
                        _ => self.answered.push(answer),
                    }
                }
            }
            Body::Report(bytes) => self
                .news
                .extend(News::from_bytes(bytes).map(|news| (at.node, news))),
            _ => {}
        }
    }
}

impl Asked {
    fn new(at: Endpoint, head: BatchHead, request: &NodeRequest<'_>, spare: &mut Spare) -> Self {
        let is_flush = request.options & FLUSH != 0;
        Self {
            at,
            delegated: head.number,
            number: request.number,
            flush: when_to_flush(request).filter(|_| is_flush),
            behind: None,
            bytes: spare.copied(request.bytes),
        }
    }

    /// Whether it waits for accepted writes.
    pub(super) fn waits(&mut self, cx: &mut NodeContext<'_>) -> bool {
        if cx.barrier.is_none() || self.flush.is_some() {
            return false;
        }
        let key = ItemRequest::decode(&self.bytes).map(|request| request.key);
        self.behind = key.and_then(|key| cx.accepted_before(key.bytes(), self.behind));
        self.behind.is_some()
    }
}

impl ForwardAnswer {
    fn new(head: BatchHead, answer: &NodeAnswer<'_>, spare: &mut Spare) -> Self {
        let (shown, bytes) = match (answer.status, answer.bytes.split_first_chunk()) {
            (AnswerStatus::Shown, Some((shown, bytes))) => (u64::from_le_bytes(*shown), bytes),
            _ => (0, answer.bytes),
        };
        let mut value: &[u8] = &[];
        let end = match answer.status {
            AnswerStatus::Moved | AnswerStatus::Refused => End::Elsewhere,
            AnswerStatus::Failed => {
                let failure = bytes
                    .first()
                    .and_then(|number| Failure::from_number(*number));
                End::Failed(failure.unwrap_or(Failure::NodeLost))
            }
            AnswerStatus::Done | AnswerStatus::Shown if bytes.is_empty() => End::Answered(None),
            AnswerStatus::Done | AnswerStatus::Shown => match ItemAnswer::decode(bytes) {
                Some(answer) => {
                    value = answer.value;
                    End::Answered(Some(answer.outcome))
                }
                None => End::Failed(Failure::NodeLost),
            },
        };
        Self {
            delegated: head.number,
            number: answer.number,
            view: head.view,
            end,
            shown: Cas(shown),
            copies: answer.copies,
            value: spare.copied(value),
        }
    }

    /// The same for the machine that forwarded the request, which waits at `index`.
    fn of_machine(self, from: NodeId, index: u32) -> Answered {
        Answered {
            from,
            index,
            attempt: self.delegated,
            end: match self.end {
                End::Elsewhere => Err(ReplicaRefusal::Elsewhere),
                end => Ok(end),
            },
            shown: self.shown,
            copies: self.copies,
            value: self.value,
        }
    }
}
