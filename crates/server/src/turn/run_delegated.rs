//! Executes a delegated batch, at its owner or, if it was reclaimed, at its origin.

use curtail_codec::memcached::{WireKey, encode::Refusal};
use curtail_types::{Now, Operation};

use crate::{
    request::{
        delegated_batch::{DelegatedBatch, DelegatedRequest},
        reply_buffer::{ROOM_BYTES, Replies, room_for},
    },
    turn::{
        compaction::{self, Kind, Run, is_same},
        delegate,
        execute::{self, Item},
        log_events,
    },
    worker::context::WorkerContext,
};

/// Neighbours in a delegated batch.
pub(crate) struct DelegatedRun<'r> {
    /// The number of the first.
    first: usize,
    items: &'r [DelegatedRequest],
    bytes: &'r [u8],
    is_logged: bool,
}

impl<'r> DelegatedRun<'r> {
    fn starting_at(
        first: usize,
        items: &'r [DelegatedRequest],
        bytes: &'r [u8],
        cx: &WorkerContext,
    ) -> Self {
        let rest = items.get(first..).unwrap_or_default();
        let length = match cx.shared.config.compaction {
            true => run_length(rest, bytes, cx.store_cx.now),
            false => 1,
        };
        Self {
            first,
            items: rest.get(..length).unwrap_or_default(),
            bytes,
            is_logged: cx.shared.cluster.is_some(),
        }
    }
}

impl Run for DelegatedRun<'_> {
    fn length(&self) -> usize {
        self.items.len()
    }

    fn at<T>(
        &self,
        number: usize,
        look: impl FnOnce(&Item<'_, '_>, &Operation, &[u8]) -> T,
    ) -> Option<T> {
        let kept = self.items.get(number)?;
        let (key, value, form) = kept.restore(self.bytes)?;
        let item = Item {
            slot: self.first + number,
            key: &key,
            hash: kept.hash,
            form: &form,
            hint: kept.hint,
        };
        Some(look(&item, &kept.operation, value))
    }

    fn operation(&self, number: usize) -> Option<&Operation> {
        Some(&self.items.get(number)?.operation)
    }

    fn connection(&self, number: usize) -> i32 {
        self.items.get(number).map_or(0, |item| item.connection)
    }

    fn is_logged(&self) -> bool {
        self.is_logged
    }
}

/// Carries out all requests of a delegated batch and gives their claims back.
pub(crate) fn run_delegated(cx: &mut WorkerContext, delegated: &mut DelegatedBatch) {
    let DelegatedBatch {
        items,
        replies,
        bytes,
        ..
    } = delegated;
    items
        .iter()
        .for_each(|item| cx.store_cx.store.prefetch(item.hash));
    for item in items.iter_mut() {
        item.hint = cx.store_cx.store.prefetch_item(item.hash);
    }
    let mut first = 0;
    while first < items.len() {
        let run = DelegatedRun::starting_at(first, items, bytes, cx);
        while replies.remaining() < room_for(run.length()) {
            replies.grow();
        }
        let length = run.length();
        if length == 1 || !compaction::fold(cx, replies, &run) {
            for number in first..first + length {
                let refused = run_delegated_alone(cx, replies, items, bytes, number);
                if let (Some(_), Some(item)) = (refused, items.get_mut(number)) {
                    item.refused = refused;
                }
            }
        }
        let next = first + length;
        for item in items.get_mut(first..next).unwrap_or_default() {
            if let Some(ticket) = item.ticket.take() {
                delegate::release(cx, ticket);
            }
        }
        first = next;
    }
}

/// Carries out one request of a delegated batch by itself.
pub(crate) fn run_delegated_alone(
    cx: &mut WorkerContext,
    replies: &mut Replies,
    items: &[DelegatedRequest],
    bytes: &[u8],
    number: usize,
) -> Option<Refusal> {
    if replies.remaining() < ROOM_BYTES {
        replies.grow();
    }
    let request = items.get(number)?;
    let (key, value, form) = request.restore(bytes)?;
    let operation = &request.operation;
    if cx.event_log.on {
        log_events::log_request(cx, request.connection, &key, operation, value.len());
        if cx.shared.cluster.is_none() {
            log_events::log_fetch(cx, &key, request.hash);
        }
    }
    let item = Item {
        slot: number,
        key: &key,
        hash: request.hash,
        form: &form,
        hint: request.hint,
    };
    execute::run_item_apart(cx, replies, &item, operation, value)
}

/// How many requests of a delegated batch make a run, from the first on, and at least that one.
pub(crate) fn run_length(items: &[DelegatedRequest], bytes: &[u8], now: Now) -> usize {
    let [first, second, ..] = items else {
        return 1;
    };
    if first.hash != second.hash {
        return 1;
    }
    let Some((key, kind)) = member(first, bytes, now) else {
        return 1;
    };
    let belongs = |item: &&DelegatedRequest| {
        let found = member(item, bytes, now);
        found.is_some_and(|(other, other_kind)| other_kind == kind && is_same(&key, &other))
    };
    items.iter().take_while(belongs).count()
}

/// The key of a request that may be one of a run, and how.
pub(crate) fn member<'a>(
    item: &'a DelegatedRequest,
    bytes: &'a [u8],
    now: Now,
) -> Option<(WireKey<'a>, Kind)> {
    let (key, value, form) = item.restore(bytes)?;
    let kind = Kind::of(&item.operation, &form, value.len(), now)?;
    Some((key, kind))
}
