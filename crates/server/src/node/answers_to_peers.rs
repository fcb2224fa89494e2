//! Answers to other nodes' requests. An answer goes over the link that the request came by; those
//! of one delegated batch share a frame.

use curtail_codec::node::{
    AnswerStatus, BatchHead, Class, ItemAnswer, NodeAnswer, Part, VERSION_COPIES,
};
use curtail_links::{Endpoint, SendError};
use curtail_types::Cas;

use crate::{
    node::{
        LARGE_BYTES, NodeWorker,
        stages::{Completed, End},
    },
    test_faults::Fault,
};

impl NodeWorker {
    /// Tells the node that asked how it ended; false if there is no room on the way there now.
    pub(super) fn answer(
        &mut self,
        at: Endpoint,
        (delegated, number): (u64, u32),
        completed: &Completed,
    ) -> bool {
        if self.cluster.faults.has(Fault::LosesAnswers) {
            return true;
        }
        let mut room = [0; SAID_BYTES_MAX];
        let (status, length) = self
            .say(completed, &mut room)
            .unwrap_or((AnswerStatus::Moved, 0));
        let said = room.get(..length).unwrap_or_default();
        let value: &[u8] = match completed.end {
            End::Done(_) | End::Answered(_) => &completed.value,
            End::Elsewhere | End::Failed(_) => &[],
        };
        let view = self.in_force.as_ref().map(|now| now.slices.number);
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
            copies: match self.links.speaks(at, VERSION_COPIES) {
                true => completed.copies,
                false => 0,
            },
            bytes: &[],
        };
        let part = Part::Answer(head, answer);
        let sent = self.links.send_filled(at, class, &part, bytes, |room| {
            let (first, rest) = room.split_at_mut(said.len());
            first.copy_from_slice(said);
            rest.copy_from_slice(value);
        });
        sent != Err(SendError::Full)
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
        if self.cluster.keeps_sessions && completed.shown != Cas(0) {
            let (shown, rest) = room.split_first_chunk_mut()?;
            *shown = completed.shown.0.to_le_bytes();
            return Some((AnswerStatus::Shown, shown.len() + answer.encode(rest)?));
        }
        Some((AnswerStatus::Done, answer.encode(room)?))
    }
}

/// The most bytes of an answer beside its value: the write that it shows, and how it ended.
const SAID_BYTES_MAX: usize = size_of::<Cas>() + ItemAnswer::HEAD_BYTES_MAX;
