//! What arrived from other nodes in this turn, sorted by kind.
//!
//! A frame borrows from its link, and answers go over links: so frames are unpacked first and
//! processed afterwards. Messages about keys go straight to their slices.

use curtail_codec::node::{AnswerStatus, BatchHead, Body, ItemAnswer, NodeAnswer, NodeRequest};
use curtail_consistency::placement::slice_of;
use curtail_links::Endpoint;
use curtail_types::{Cas, Failure, NodeId, RouteHash, ViewNumber};

use crate::node::{
    Cluster,
    control_messages::News,
    hot_set::coordinator::Proposal,
    slice_jobs::{End, Job, Moved, Said, Spare},
    slices::RelayedKind,
};

/// What arrived, but for messages about keys.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) asked: Vec<Asked>,
    pub(super) answered: Vec<Answered>,
    pub(super) moved: Vec<Moved>,
    pub(super) move_requests: Vec<(RouteHash, MoveAsked)>,
    pub(super) news: Vec<(NodeId, News)>,
    pub(super) proposals: Vec<Proposal>,
}

/// A request of another node.
pub(super) struct Asked {
    pub(super) at: Endpoint,
    pub(super) delegated: u64,
    pub(super) number: u32,
    pub(super) view: ViewNumber,
    pub(super) after: Cas,
    /// The answer is to say which write it shows.
    pub(super) shows: bool,
    pub(super) kind: RelayedKind,
    pub(super) bytes: Vec<u8>,
}

/// Another node asks for a key that it has become the home of.
#[derive(Debug)]
pub(crate) struct MoveAsked {
    pub(super) node: NodeId,
    pub(super) view: ViewNumber,
    pub(super) key: Box<[u8]>,
}

/// An answer of another node.
pub(super) struct Answered {
    pub(super) delegated: u64,
    pub(super) number: u32,
    pub(super) end: End,
    /// The write that it shows, if that was asked for; else 0.
    pub(super) shown: Cas,
    pub(super) value: Vec<u8>,
}

/// The option of a request that is a `flush_all`.
pub(super) const FLUSH: u8 = 1;

/// The option of a request before which eight bytes say what its session has seen of the key.
pub(super) const AFTER: u8 = 2;

/// The option of a request whose answer is to say which write it shows.
pub(super) const SHOW: u8 = 4;

impl Inbox {
    /// Takes in one frame. Slices that got something are noted in `woken`.
    pub(super) fn take(
        &mut self,
        cluster: &Cluster,
        (spare, woken): (&mut Spare, &mut u64),
        at: Endpoint,
        body: &Body<'_>,
    ) {
        match *body {
            Body::Messages(messages) => {
                for said in messages {
                    let slice = slice_of(said.route);
                    let job = Said::new(at.node, &said, spare.take());
                    if let Some(slice) = cluster.slices.get(slice) {
                        slice.leave(Job::Message(job));
                    }
                    *woken |= 1 << slice;
                }
            }
            Body::Requests(head, requests) => {
                self.asked
                    .extend(requests.map(|request| Asked::new(at, head, &request, spare)));
            }
            Body::Answers(head, answers) => {
                let taken = answers.map(|answer| Answered::new(head, &answer, spare));
                self.answered.extend(taken);
            }
            Body::Report(bytes) => match News::as_proposal(bytes) {
                Some((key, hot)) => self.proposals.push(Proposal {
                    key: key.into(),
                    hot,
                }),
                None => self
                    .news
                    .extend(News::from_bytes(bytes).map(|news| (at.node, news))),
            },
            Body::Moves(head, moves) => {
                self.moved
                    .extend(moves.map(|one| Moved::new(at.node, head.view, &one)));
            }
            Body::MoveRequests(head, asked) => {
                self.move_requests.extend(asked.map(|ask| {
                    let asked = MoveAsked {
                        node: at.node,
                        view: head.view,
                        key: ask.key.bytes().into(),
                    };
                    (ask.route, asked)
                }));
            }
            // Nobody sends what a replica says yet.
            Body::Replica(..) => {}
            Body::MovesAck(..) | Body::Heartbeat { .. } | Body::Resume { .. } | Body::Credit => {}
        }
    }
}

impl Asked {
    fn new(at: Endpoint, head: BatchHead, request: &NodeRequest<'_>, spare: &mut Spare) -> Self {
        let has = |option: u8| request.options & option != 0;
        let (after, bytes) = match request.bytes.split_first_chunk() {
            Some((after, bytes)) if has(AFTER) => (u64::from_le_bytes(*after), bytes),
            _ => (0, request.bytes),
        };
        Self {
            at,
            delegated: head.number,
            number: request.number,
            view: head.view,
            after: Cas(after),
            shows: has(SHOW),
            kind: match has(FLUSH) {
                true => RelayedKind::Flush,
                false => RelayedKind::Item,
            },
            bytes: spare.copied(bytes),
        }
    }
}

impl Answered {
    fn new(head: BatchHead, answer: &NodeAnswer<'_>, spare: &mut Spare) -> Self {
        let (shown, bytes) = match (answer.status, answer.bytes.split_first_chunk()) {
            (AnswerStatus::Shown, Some((shown, bytes))) => (u64::from_le_bytes(*shown), bytes),
            _ => (0, answer.bytes),
        };
        let mut value: &[u8] = &[];
        let end = match answer.status {
            AnswerStatus::Moved => End::Elsewhere,
            AnswerStatus::Refused => End::Failed(Failure::NodeLost),
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
            end,
            shown: Cas(shown),
            value: spare.copied(value),
        }
    }
}
