//! What arrived from other nodes in this turn, sorted by kind.
//!
//! A frame borrows from its link, and answers go over links: so frames are unpacked first and
//! processed afterwards. Messages of machines go straight to their stages.

use curtail_codec::node::{AnswerStatus, BatchHead, Body, ItemAnswer, NodeAnswer};
use curtail_consistency::control_messages::ControlMessage;
use curtail_links::Endpoint;
use curtail_types::{Cas, Failure, NodeId, ViewNumber};

use crate::node::{
    requests_asked::Asked,
    stages::{End, Job, STAGES, Spare, forwarded},
    work_costs::Received,
};

/// What arrived, but for what machines say.
#[derive(Default)]
pub(super) struct Inbox {
    /// Requests of other nodes and of threads; some wait here for accepted writes.
    pub(super) asked: Vec<Asked>,
    pub(super) answered: Vec<(u32, ForwardAnswer)>,
    pub(super) news: Vec<(NodeId, ControlMessage)>,
    /// For the stages.
    pub(super) jobs: Vec<(usize, Job)>,
    /// How much that was in this turn.
    pub(super) received: Received,
}

/// An answer of another node.
#[derive(Debug)]
pub(super) struct ForwardAnswer {
    pub(super) from: NodeId,
    /// Which attempt to have it carried out this answers.
    pub(super) delegated: u64,
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
    /// Takes in one frame.
    pub(super) fn take(&mut self, spare: &mut Spare, at: Endpoint, body: &Body<'_>) {
        match *body {
            Body::Replica(messages) => {
                let count = &mut self.received.messages;
                count.frames += 1;
                for part in messages {
                    count.parts += 1;
                    let stage = usize::from(part.stage);
                    if let Some(job) = Job::message(at.node, &part, spare)
                        && stage < STAGES
                    {
                        self.jobs.push((stage, job));
                    }
                }
            }
            Body::Requests(head, requests) => {
                let before = self.asked.len();
                self.asked
                    .extend(requests.map(|request| Asked::of_peer(at, head, &request, spare)));
                let count = &mut self.received.forwarded;
                count.frames += 1;
                count.parts += (self.asked.len() - before) as u64;
            }
            Body::Answers(head, answers) => {
                let count = &mut self.received.forwarded;
                count.frames += 1;
                for answer in answers {
                    count.parts += 1;
                    let number = answer.number;
                    let answer = ForwardAnswer::new(at.node, head, &answer, spare);
                    match forwarded(number) {
                        Some((stage, place)) => {
                            self.jobs.push((stage, Job::Answered(place, answer)));
                        }
                        None => self.answered.push((number, answer)),
                    }
                }
            }
            Body::Report(bytes) => self
                .news
                .extend(ControlMessage::decode(bytes).map(|news| (at.node, news))),
            _ => {}
        }
    }
}

impl ForwardAnswer {
    fn new(from: NodeId, head: BatchHead, answer: &NodeAnswer<'_>, spare: &mut Spare) -> Self {
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
            from,
            delegated: head.number,
            view: head.view,
            end,
            shown: Cas(shown),
            copies: answer.copies,
            value: spare.copied(value),
        }
    }
}
