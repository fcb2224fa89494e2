//! What a machine says to other nodes, on its way into the links.

use std::collections::VecDeque;

use curtail_codec::node::{
    self, BatchHead, Class, ItemRequest, NodeRequest, Part, ReplicaItem, ReplicaPart,
    VERSION_COPIES,
};
use curtail_consistency::replica::{CopyKind, CopyMessage, ReplicaMessage, Ticket};
use curtail_links::SendError;
use curtail_types::{Key, NodeId, NodeSet, RouteHash};

use super::{StageContext, StageState, host::find};
use crate::node::{LARGE_BYTES, forward::send_request};

/// Messages that found no room on their way, the oldest first. What is sent to a node meanwhile
/// waits behind them, since a follower takes changes in order only.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    queue: VecDeque<(NodeId, ReplicaMessage, Option<Ticket>)>,
    to: NodeSet,
    /// Until when changes go on the connections for large items, behind a large one.
    large_until_ns: u64,
}

/// Messages beyond that are dropped; machines send them again.
const UNSENT_MAX: usize = 4096;

/// A large change and the small ones behind it take the same way for so long.
const LARGE_NS: u64 = 100_000_000;

/// The number of a request that a machine forwarded: its stage, and its place there.
pub(in crate::node) const FORWARDED: u32 = 1 << 31;
const STAGE_SHIFT: u32 = 28;
const INDEX_MASK: u32 = (1 << STAGE_SHIFT) - 1;

/// The stage and the place of such a request.
pub(in crate::node) const fn forwarded(number: u32) -> Option<(usize, u32)> {
    match number & FORWARDED {
        0 => None,
        _ => Some((
            ((number ^ FORWARDED) >> STAGE_SHIFT) as usize,
            number & INDEX_MASK,
        )),
    }
}

impl Unsent {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn push(&mut self, to: NodeId, message: &ReplicaMessage, ticket: Option<Ticket>) {
        if self.queue.len() < UNSENT_MAX {
            self.queue.push_back((to, message.clone(), ticket));
            self.to = self.to.with(to);
        }
    }
}

impl StageState {
    /// Sends a message; one that carries an image with the item as it is stored, or with the value
    /// of the request `ticket`.
    pub(super) fn send(
        &mut self,
        stage_cx: &mut StageContext<'_, '_>,
        to: NodeSet,
        message: &ReplicaMessage,
        ticket: Option<Ticket>,
    ) {
        let waiting = to.intersection(self.unsent.to);
        for to in waiting {
            self.unsent.push(to, message, ticket);
        }
        let full = self.send_now(stage_cx, to.difference(waiting), message, ticket);
        for to in full {
            self.unsent.push(to, message, ticket);
        }
    }

    /// Sends what found no room before.
    pub(super) fn send_again(&mut self, stage_cx: &mut StageContext<'_, '_>) {
        let mut full = NodeSet::NONE;
        for _ in 0..self.unsent.queue.len() {
            let Some((to, message, ticket)) = self.unsent.queue.pop_front() else {
                break;
            };
            let is_full = full.contains(to)
                || !self
                    .send_now(stage_cx, NodeSet::only(to), &message, ticket)
                    .is_empty();
            if is_full {
                full = full.with(to);
                self.unsent.queue.push_back((to, message, ticket));
            }
        }
        self.unsent.to = full;
    }

    /// Returns the nodes on whose links there is no room.
    fn send_now(
        &mut self,
        stage_cx: &mut StageContext<'_, '_>,
        to: NodeSet,
        message: &ReplicaMessage,
        ticket: Option<Ticket>,
    ) -> NodeSet {
        if to.is_empty() {
            return NodeSet::NONE;
        }
        let stripped = without_copies(stage_cx, to, message);
        let message = stripped.as_ref().unwrap_or(message);
        self.message.clear();
        message.encode(&mut self.message);
        let item = match (ticket, message.carries_image()) {
            (Some(ticket), _) => self.written_item(ticket),
            (None, Some(key)) => self.stored_item(stage_cx, key),
            (None, None) => false,
        };
        let key = Key::new(&self.key).ok().filter(|_| item);
        let image = self.image;
        let item = key.map(|key| ReplicaItem {
            version: image.cas,
            key,
            image: node::Image {
                client_flags: image.flags,
                expiry: image.expiry,
                stale: image.stale,
                won: image.won,
                value: &self.value,
            },
        });
        let part = Part::Replica(ReplicaPart {
            stage: self.number,
            message: &self.message,
            item,
        });
        let now_ns = stage_cx.cx.store_cx.now.instant.ns;
        let is_large = item.is_some_and(|item| item.image.value.len() > LARGE_BYTES);
        let is_change = matches!(message, ReplicaMessage::Append(_));
        if is_large && is_change {
            self.unsent.large_until_ns = now_ns + LARGE_NS;
        }
        let large = is_large || is_change && now_ns < self.unsent.large_until_ns;
        let class = class_of(message, large);
        let mut full = NodeSet::NONE;
        for to in to {
            if let Some(endpoint) = stage_cx.links.endpoint(to)
                && stage_cx.links.send(endpoint, class, &part) == Err(SendError::Full)
            {
                full = full.with(to);
            }
        }
        full
    }

    /// Takes out the item of a key; whether there is one.
    fn stored_item(&mut self, stage_cx: &mut StageContext<'_, '_>, key: RouteHash) -> bool {
        let store_cx = &mut *stage_cx.cx.store_cx;
        let found = find(store_cx, key, &mut self.key);
        let image = found.and_then(|(key, hash)| store_cx.take_image(key, hash, &mut self.value));
        self.image = image.unwrap_or_default();
        image.is_some()
    }

    /// Takes the value that a request writes to a copy.
    fn written_item(&mut self, ticket: Ticket) -> bool {
        let Some(waiting) = self.requests.get(ticket.0) else {
            return false;
        };
        let request = ItemRequest::decode(&waiting.done.request);
        let (Some(request), Some(image)) = (request, waiting.written) else {
            return false;
        };
        self.key.clear();
        self.key.extend_from_slice(request.key.bytes());
        self.value.clear();
        self.value.extend_from_slice(request.value);
        self.image = image;
        true
    }

    /// Sends a request to a node that is to carry it out; false if that is impossible now.
    pub(super) fn send_request(
        &mut self,
        stage_cx: &mut StageContext<'_, '_>,
        ticket: Ticket,
        to: NodeId,
    ) -> bool {
        let Some(waiting) = self.requests.get(ticket.0) else {
            return true;
        };
        let head = BatchHead {
            number: stage_cx.delegated,
            view: stage_cx.view,
        };
        waiting.sent = Some((to, head.number));
        let request = NodeRequest {
            number: FORWARDED
                | u32::from(self.number) << STAGE_SHIFT
                | ticket.0 as u32 & INDEX_MASK,
            options: 0,
            bytes: &waiting.done.request,
        };
        send_request(stage_cx.links, to, head, request)
    }
}

/// The message for a node of an older version, which says of no write how many nodes have it.
fn without_copies(
    stage_cx: &StageContext<'_, '_>,
    to: NodeSet,
    message: &ReplicaMessage,
) -> Option<ReplicaMessage> {
    let ReplicaMessage::Copy(copy) = message else {
        return None;
    };
    let speaks = |to| {
        let to = stage_cx.links.endpoint(to);
        to.is_some_and(|to| stage_cx.links.speaks(to, VERSION_COPIES))
    };
    let is_new = copy.copies == 0 || to.into_iter().all(speaks);
    (!is_new).then_some(ReplicaMessage::Copy(CopyMessage { copies: 0, ..*copy }))
}

/// On whose credit a message travels: what lets the other node be done with something is never held
/// up by what makes it do something.
fn class_of(message: &ReplicaMessage, large: bool) -> Class {
    let answers = match message {
        ReplicaMessage::Applied { .. }
        | ReplicaMessage::Tail { .. }
        | ReplicaMessage::Room { .. }
        | ReplicaMessage::Entered(_) => true,
        ReplicaMessage::Copy(copy) => matches!(
            copy.kind,
            CopyKind::Ack | CopyKind::Reject | CopyKind::Validate | CopyKind::Dropped
        ),
        _ => false,
    };
    match (answers, large) {
        (false, false) => Class::Demand,
        (false, true) => Class::LargeDemand,
        (true, false) => Class::Answer,
        (true, true) => Class::LargeAnswer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_forwarded_request_names_its_stage_and_place() {
        let number = FORWARDED | 7 << STAGE_SHIFT | 12_345;
        assert_eq!(forwarded(number), Some((7, 12_345)));
        assert_eq!(forwarded(12_345), None);
    }
}
