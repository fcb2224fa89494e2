//! Writes whose value follows later: space is reserved when the command is decoded, and the value
//! is published when it is complete.

use curtail_codec::memcached::{
    BodyEnd, BodyEndState, SetHeader,
    encode::{self, Refusal},
};
use curtail_store::{Hint, Reservation};
use curtail_types::SetOutcome;

use crate::{
    connection::Body,
    metrics::counters::Count,
    request::batch::Entry,
    store_context::StoreContext,
    test_faults::Fault,
    turn::{
        execute::{self, Item},
        hand_off_large, log_events, note_latency, send,
    },
    worker::{Worker, context::WorkerContext},
};

/// Makes room for a large value and takes in what has come of it; if that was all, whether it
/// ended as it should.
pub(crate) fn begin_large_set(
    worker: &mut Worker,
    entry: &Entry<'_>,
    header: &SetHeader<'_>,
    rest: &[u8],
) -> Option<bool> {
    let (slot, hash) = (entry.slot, entry.hash);
    let SetHeader {
        set, value_bytes, ..
    } = header;
    let (cx, item) = (&mut worker.cx, item_of(entry, header));
    let joined = execute::joined_bytes(cx, &item, set);
    let bytes = value_bytes.saturating_add(joined);
    if !hand_off_large::is_large(cx, bytes as usize) {
        let reserved = execute::reserve(cx, &item, (set, true), *value_bytes);
        return receive_large_set(worker, entry, header, rest, reserved);
    }
    if !cx.turn.large_full {
        // Not decoded here after all: a large worker starts over with the command.
        execute::depart_to_receive(worker, slot, hash, bytes);
        execute::put_off(worker, entry);
        return None;
    }
    let connection = worker.slots.get_mut(slot)?;
    cx.counts.add(Count::LargeRefused, 1);
    worker.replies.refuse(slot, item.form, Refusal::Busy);
    let unread = u64::from(*value_bytes) + BodyEnd::BYTES as u64;
    connection.decoder.swallow(unread);
    connection.hold(&mut cx.pool, rest, true);
    execute::swallow_apart(worker, slot, hash, bytes);
    None
}

/// Makes room for a large value that this worker receives for another node, or for its machine.
pub(crate) fn reserve_for_other(
    worker: &mut Worker,
    entry: &Entry<'_>,
    header: &SetHeader<'_>,
) -> Result<Reservation, SetOutcome> {
    let item = item_of(entry, header);
    execute::reserve(
        &mut worker.cx,
        &item,
        (&header.set, false),
        header.value_bytes,
    )
}

fn item_of<'a, 'b>(entry: &Entry<'_>, header: &'a SetHeader<'b>) -> Item<'a, 'b> {
    Item {
        slot: entry.slot,
        key: &header.key,
        hash: entry.hash,
        form: &header.form,
        hint: Hint::default(),
    }
}

/// Takes in what has come of a large value, if there was room for it, or refuses it.
pub(crate) fn receive_large_set(
    worker: &mut Worker,
    entry: &Entry<'_>,
    header: &SetHeader<'_>,
    mut rest: &[u8],
    reserved: Result<Reservation, SetOutcome>,
) -> Option<bool> {
    let SetHeader {
        set, value_bytes, ..
    } = header;
    let item = item_of(entry, header);
    let (cx, connection) = (&mut worker.cx, worker.slots.get_mut(entry.slot)?);
    match reserved {
        Err(outcome) => {
            execute::answer_set(
                cx,
                &mut worker.replies,
                &item,
                set.compare.is_some(),
                outcome,
            );
            let unread = u64::from(*value_bytes) + BodyEnd::BYTES as u64;
            connection.decoder.swallow(unread);
        }
        Ok(mut reservation) => {
            let written = reservation.write(rest);
            rest = rest.get(written..).unwrap_or_default();
            let full = reservation.is_full();
            connection.body = Some(Body::new(&mut cx.pool, header, reservation));
            if full && let Some(body) = &mut connection.body {
                let (taken, state) = body.end.feed(rest);
                rest = rest.get(taken..).unwrap_or_default();
                connection.hold(&mut cx.pool, rest, true);
                let ended = state != BodyEndState::Incomplete;
                return ended.then_some(state == BodyEndState::Right);
            }
        }
    }
    connection.hold(&mut cx.pool, rest, true);
    None
}

/// Publishes a large value that is complete.
pub(crate) fn end_large_set(worker: &mut Worker, slot: usize, right: bool) {
    let ahead = right && worker.cx.has(Fault::AnswersAhead);
    if ahead {
        worker.replies.write(slot, |sink| sink.push(b"STORED\r\n"));
        send::reply_early(worker);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let (cx, Some(connection)) = (&mut worker.cx, worker.slots.get_mut(slot)) else {
        return;
    };
    let Some(body) = connection.body.take() else {
        return;
    };
    if connection.pending.is_some() {
        note_latency::end_pending(cx, connection);
    }
    let WorkerContext {
        store_cx: StoreContext { store, writer, now },
        pool,
        counts,
        ..
    } = cx;
    let replies = &mut worker.replies;
    let mut stored = None;
    body.finish(pool, |reservation, key, form, compares| {
        if right {
            let outcome = store.commit(writer, *now, reservation);
            counts.add_set(compares, outcome);
            stored = Some(outcome);
            if !ahead {
                replies.write(slot, |sink| encode::set(sink, &key, &form, outcome));
            }
        } else {
            counts.add(Count::CmdSet, 1);
            replies.write(slot, |sink| encode::bad_data_chunk(sink, &form));
        }
    });
    if let Some(outcome) = stored.filter(|_| cx.event_log.on) {
        log_events::log_outcome(cx, outcome);
    }
}
