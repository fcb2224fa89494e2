//! Collect: receive once from each ready connection, and decode every complete request.
//!
//! Input lands side by side in one piece of memory that the worker uses again every turn, so fifty
//! short requests touch a few pages and not fifty buffers. What is left of a connection's input
//! (the first half of a request, or requests beyond its share of the turn) is copied out to the
//! connection. The body of a large write never comes through here: it is received straight into the
//! store.

use curtail_codec::memcached::{Admin, BodyEndState, Decoded, Limits, Request, SetHeader, Words};
use curtail_runtime::Received;
use curtail_store::Hint;
use curtail_types::KeyHash;

use crate::{
    connection::{Connection, output::Progress},
    limits::{
        BODY_BYTES_MAX, INLINE_VALUE_BYTES_MAX, RECEIVE_AREA_BYTES, RECEIVE_BYTES_MAX,
        REQUESTS_PER_CONNECTION_MIN, REQUESTS_PER_TURN_MAX,
    },
    metrics::{counters::Count, stage_histograms::StageName},
    request::batch::{Batch, Entry, Origin, Work},
    turn::{lifecycle, long_running, note_latency, note_work_ahead},
    worker::{Worker, context::WorkerContext},
};

/// A small page; one that is larger is only touched more often than needed.
const PAGE_BYTES: usize = 4 << 10;

/// Room that one connection may need: what it holds, and what it may receive.
const NEEDED_BYTES: usize = 2 * RECEIVE_BYTES_MAX + HELD_BYTES_MAX;

/// The most that a connection holds of an incomplete request: a line and an inline value.
const HELD_BYTES_MAX: usize = 4096 + INLINE_VALUE_BYTES_MAX as usize;

const _: () = assert!(RECEIVE_AREA_BYTES >= 2 * NEEDED_BYTES);
const _: () = {
    let limits = Limits {
        value_bytes_max: 0,
        inline_value_bytes_max: INLINE_VALUE_BYTES_MAX,
    };
    assert!(limits.input_bytes_max() <= HELD_BYTES_MAX);
};

/// What became of a connection's turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Turn {
    Done,
    Close,
}

/// What to do with the input behind a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum After {
    Decode,
    /// The same; it was the end of keys, which count as requests each.
    DecodeUncounted,
    /// It has to wait for something that takes more than this turn.
    Keep,
    /// It belongs to a large value, or will never be looked at.
    Drop,
}

/// Fills `batch` from the connections that are ready, in their order, until it or `area` is
/// full; the others stay in line.
pub(crate) fn collect<'a>(worker: &mut Worker, mut area: &'a mut [u8], batch: &mut Batch<'a>) {
    let ready = worker.slots.ready_count();
    let most = worker.cx.shared.config.requests_per_turn_max;
    worker.cx.turn.share = share_of(ready).min(most);
    (worker.cx.measured.larges, worker.cx.measured.larges_left) = (0, 0);
    worker.cx.measured.large_answers.clear();
    let carried_out = worker.slots.carried_out();
    for _ in 0..ready {
        if batch.room() == 0 || area.len() < NEEDED_BYTES {
            return;
        }
        let Some(slot) = worker.slots.next_ready() else {
            return;
        };
        let Some(connection) = worker.slots.get_mut(slot) else {
            continue;
        };
        let first = batch.entries().len() as u64;
        let ahead = carried_out - connection.queued_at + first;
        match collect_one(connection, slot, &mut area, batch, &mut worker.cx) {
            Turn::Done => worker.slots.served.push(slot),
            Turn::Close => lifecycle::close(worker, slot),
        }
        if batch.entries().len() as u64 > first {
            worker.cx.recorders.stages.record(StageName::Line, ahead);
        }
    }
}

/// Requests that one of `ready` connections may have in a turn.
fn share_of(ready: usize) -> usize {
    (REQUESTS_PER_TURN_MAX / ready.max(1)).max(REQUESTS_PER_CONNECTION_MIN)
}

fn collect_one<'a>(
    connection: &mut Connection,
    slot: usize,
    area: &mut &'a mut [u8],
    batch: &mut Batch<'a>,
    cx: &mut WorkerContext,
) -> Turn {
    if connection.departs.is_some() || connection.output.is_awaiting() {
        return Turn::Done;
    }
    if !connection.output.is_empty() {
        let value_bytes = connection.output.value_bytes_max();
        cx.note_large_here(slot, value_bytes);
        note_latency::note_value_sent(cx, connection, value_bytes);
        let (bytes, progress) = connection.output.send(&mut cx.pool, &mut connection.stream);
        cx.counts.add(Count::BytesWritten, bytes as u64);
        note_work_ahead::note_moved(cx, value_bytes, bytes);
        match progress {
            Progress::Broken => return Turn::Close,
            Progress::Full => connection.writable = false,
            Progress::All | Progress::More => {}
        }
        if !connection.output.is_empty() {
            return Turn::Done;
        }
        note_latency::note_sent(cx, connection);
    }
    if connection.closing {
        return Turn::Close;
    }
    // A large worker does nothing for a connection but what it came for.
    if let Some(loan) = &mut connection.loan
        && connection.body.is_none()
        && !std::mem::take(&mut loan.decodes)
        && connection.decoder.swallowing() == 0
    {
        return Turn::Done;
    }
    if connection.long_running.is_some() {
        return if long_running::go_on(connection, cx) {
            Turn::Done
        } else {
            Turn::Close
        };
    }
    if connection.body.as_ref().is_some_and(|body| body.is_whole) {
        batch.push(body_ended(connection, slot, true));
        return Turn::Done;
    }
    if connection.body.is_some() && !receive_body(connection, slot, cx) {
        return if connection.closing {
            Turn::Close
        } else {
            Turn::Done
        };
    }
    let Some(input) = receive(connection, area, cx) else {
        return Turn::Close;
    };
    if connection.loan.is_some() && connection.decoder.swallowing() > 0 {
        drop_refused(connection, input, cx);
        return Turn::Done;
    }
    let receives = connection.body.is_some();
    let input = end_body(connection, slot, input, batch);
    match receives && connection.loan.is_some() {
        true => connection.hold(&mut cx.pool, input, true),
        false => decode(connection, slot, input, batch, cx),
    }
    Turn::Done
}

/// Drops what belongs to a refused value, and keeps what follows for the worker it belongs to.
fn drop_refused(connection: &mut Connection, input: &[u8], cx: &mut WorkerContext) {
    let dropped = usize::try_from(connection.decoder.swallowing()).unwrap_or(usize::MAX);
    let (dropped, rest) = input.split_at(dropped.min(input.len()));
    // Nothing is complete in it.
    let _ = connection.decoder.decode(dropped, &cx.decoding.limits);
    connection.hold(&mut cx.pool, rest, true);
    connection.visible.touch(cx.store_cx.now.unix_seconds());
}

/// Notes that a part of a refused value was received where small requests wait.
#[cold]
fn note_dropped(connection: &Connection, slot: usize, cx: &mut WorkerContext) {
    let left = usize::try_from(connection.decoder.swallowing()).unwrap_or(usize::MAX);
    cx.note_large_here(slot, left);
}

/// Receives into a large value; true when it is complete and something else may follow.
fn receive_body(connection: &mut Connection, slot: usize, cx: &mut WorkerContext) -> bool {
    let Some(body) = &mut connection.body else {
        return true;
    };
    if body.reservation.is_full() {
        return true;
    }
    let value_bytes = body.value_bytes();
    cx.note_large_here(slot, value_bytes);
    let spare = body.reservation.spare();
    let room = spare.len().min(BODY_BYTES_MAX);
    let spare = spare.get_mut(..room).unwrap_or_default();
    touch(spare);
    cx.counts.add(Count::Receives, 1);
    match connection.stream.receive(spare) {
        Received::Bytes(bytes) => {
            body.reservation.advance(bytes);
            note_work_ahead::note_moved(cx, value_bytes, bytes);
            cx.counts.add(Count::BytesRead, bytes as u64);
            connection.readable = bytes == room || connection.ending;
            connection.visible.touch(cx.store_cx.now.unix_seconds());
        }
        Received::Nothing => connection.readable = false,
        Received::End => connection.closing = true,
    }
    // The two bytes behind the value come with the next receive.
    false
}

/// Has memory behind what is received into. In the middle of a receive the kernel would get it page
/// by page and, on many kernels, let nobody in between: 0.2 ms for 64 KB were seen, and 15 us for
/// memory that was there.
fn touch(room: &mut [u8]) {
    for page in room.chunks_mut(PAGE_BYTES) {
        if let Some(first) = page.first_mut() {
            *first = 0;
        }
    }
}

/// What the connection holds and what it sends now, side by side in `area`; `None` when it has
/// ended.
fn receive<'a>(
    connection: &mut Connection,
    area: &mut &'a mut [u8],
    cx: &mut WorkerContext,
) -> Option<&'a [u8]> {
    let whole = std::mem::take(area);
    let mut filled = 0;
    if let Some(held) = connection.held.take() {
        filled = held.content().len();
        whole.get_mut(..filled)?.copy_from_slice(held.content());
        cx.pool.release(held);
    }
    // Requests that are here already come before what the kernel has.
    if !std::mem::take(&mut connection.held_whole) && connection.readable {
        let room = whole.get_mut(filled..filled + RECEIVE_BYTES_MAX)?;
        cx.counts.add(Count::Receives, 1);
        match connection.stream.receive(room) {
            Received::Bytes(bytes) => {
                filled += bytes;
                cx.counts.add(Count::BytesRead, bytes as u64);
                connection.readable = bytes == RECEIVE_BYTES_MAX || connection.ending;
            }
            Received::Nothing => connection.readable = false,
            Received::End => return None,
        }
    }
    let (input, rest) = whole.split_at_mut_checked(filled)?;
    *area = rest;
    Some(input)
}

/// Takes the line end behind a large value off the front of `input`.
fn end_body<'a>(
    connection: &mut Connection,
    slot: usize,
    input: &'a [u8],
    batch: &mut Batch<'a>,
) -> &'a [u8] {
    let Some(body) = &mut connection.body else {
        return input;
    };
    let (taken, state) = body.end.feed(input);
    if state != BodyEndState::Incomplete {
        let right = state == BodyEndState::Right;
        batch.push(body_ended(connection, slot, right));
    }
    input.get(taken..).unwrap_or_default()
}

/// A large value is complete.
fn body_ended<'a>(connection: &Connection, slot: usize, right: bool) -> Entry<'a> {
    Entry {
        slot,
        hash: KeyHash(0),
        work: Work::LargeSetEnd { right },
        // The first entry of its connection is never put off.
        origin: Origin {
            decoder: connection.decoder,
            input: b"",
        },
        hint: Hint::default(),
    }
}

/// Decodes requests from `input` into `batch`, up to the connection's share; keeps the rest.
fn decode<'a>(
    connection: &mut Connection,
    slot: usize,
    mut input: &'a [u8],
    batch: &mut Batch<'a>,
    cx: &mut WorkerContext,
) {
    let share = match connection.loan {
        None => cx.turn.share,
        Some(_) => 1,
    };
    let share = share.clamp(1, batch.room().max(1));
    let (mut decoded, mut uncounted) = (0, 0);
    while decoded < share && !input.is_empty() {
        let origin = Origin {
            decoder: connection.decoder,
            input,
        };
        let decoded_one = connection.decoder.decode(input, &cx.decoding.limits);
        let (after, consumed) = match &decoded_one {
            Decoded::Complete { request, consumed } => {
                let rest = input.get(*consumed..).unwrap_or_default();
                (
                    push_request(connection, slot, request, rest, origin, batch, cx),
                    *consumed,
                )
            }
            &Decoded::Malformed {
                reply,
                consumed,
                close,
            } => {
                let work = Work::Malformed { reply, close };
                batch.push(Entry {
                    slot,
                    hash: KeyHash(0),
                    work,
                    origin,
                    hint: Hint::default(),
                });
                (if close { After::Drop } else { After::Decode }, consumed)
            }
            &Decoded::Incomplete { consumed, .. } => {
                let rest = input.get(consumed..).unwrap_or_default();
                connection.hold(&mut cx.pool, rest, false);
                if decoded == 0 {
                    note_dropped(connection, slot, cx);
                }
                note_commands(connection, decoded - uncounted, cx);
                return;
            }
        };
        input = input.get(consumed..).unwrap_or_default();
        decoded += 1;
        match after {
            After::Decode => {}
            After::DecodeUncounted => uncounted += 1,
            After::Keep => break,
            After::Drop => {
                note_commands(connection, decoded - uncounted, cx);
                return;
            }
        }
    }
    if !input.is_empty() {
        cx.counts.add(Count::ConnYields, 1);
        connection.hold(&mut cx.pool, input, true);
    }
    note_commands(connection, decoded - uncounted, cx);
}

fn note_commands(connection: &mut Connection, decoded: usize, cx: &mut WorkerContext) {
    if decoded > 0 {
        connection.requests += decoded as u64;
        cx.counts.add(Count::Requests, decoded as u64);
        connection.visible.touch(cx.store_cx.now.unix_seconds());
    }
}

/// Adds a request to the batch; tells what is to be done with the input behind it.
#[inline(always)] // a request is copied once, from the decoder into the batch
fn push_request<'a>(
    connection: &mut Connection,
    slot: usize,
    request: &Request<'a>,
    rest: &'a [u8],
    origin: Origin<'a>,
    batch: &mut Batch<'a>,
    cx: &mut WorkerContext,
) -> After {
    if let Request::Item { key, .. } = request {
        batch.push_request(slot, cx.hash(key), request, origin);
        return After::Decode;
    }
    let (hash, work) = to_work(connection, request, rest, cx);
    batch.push(Entry {
        slot,
        hash,
        work,
        origin,
        hint: Hint::default(),
    });
    match *request {
        Request::SetHeader(_) | Request::Admin(Admin::Quit) => After::Drop,
        Request::Admin(Admin::LruCrawler(_) | Admin::Watch(_)) => After::Keep,
        Request::Admin(Admin::Stats(words)) if lists_keys(words) => After::Keep,
        Request::EndOfKeys { .. } => After::DecodeUncounted,
        _ => After::Decode,
    }
}

/// Whether a `stats` is answered over several turns.
fn lists_keys(mut words: Words<'_>) -> bool {
    words.next() == Some(b"cachedump")
}

/// The less usual requests.
fn to_work<'a>(
    connection: &mut Connection,
    request: &Request<'a>,
    rest: &'a [u8],
    cx: &mut WorkerContext,
) -> (KeyHash, Work<'a>) {
    let request = *request;
    match &request {
        Request::Item { key, .. } | Request::SetTooLarge(SetHeader { key, .. }) => {
            (cx.hash(key), Work::Request(request))
        }
        &Request::SetHeader(header) => (cx.hash(&header.key), Work::LargeSet { header, rest }),
        Request::Authenticate { user, password } => {
            // Decided at once: what follows may only be decoded after a right login.
            let logins = cx.shared.logins();
            let accepted = logins.is_none_or(|logins| logins.accept(user, password));
            if accepted {
                connection.decoder.authenticated();
            }
            (KeyHash(0), Work::Login { accepted })
        }
        Request::EndOfKeys { .. } | Request::Noop | Request::Admin(_) => {
            (KeyHash(0), Work::Request(request))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_shared_among_ready_connections() {
        assert_eq!([0, 1, 2, 4].map(share_of), [256, 256, 128, 64]);
        assert_eq!([8, 50, 1000].map(share_of), [32; 3]);
    }
}
