//! Writes whose value comes after their command: room is made when the command is decoded, and the
//! value is published when all of it is there.

use curtail_codec::memcached::{
    BodyEnd, BodyEndState, Request,
    encode::{self, Refusal},
};
use curtail_store::Hint;
use curtail_types::{Set, SetOutcome};

use crate::request::execute::Item;
use crate::{
    connection::Body,
    metrics::counters::Count,
    request::batch::Entry,
    test_faults::Fault,
    worker::{context::WorkerContext, event_loop::Worker, store_context::StoreContext},
};

impl Worker {
    /// Makes room for a large value and takes in what has come of it; if that was all, whether it
    /// ended as it should. One that `passes` is received by this worker, for another node or its
    /// machine.
    pub(crate) fn begin_large_set(
        &mut self,
        entry: &Entry<'_>,
        request: &Request<'_>,
        mut rest: &[u8],
        passes: bool,
    ) -> Option<bool> {
        let (slot, hash) = (entry.slot, entry.hash);
        let Request::SetHeader {
            key,
            set,
            value_bytes,
            form,
        } = request
        else {
            return None;
        };
        let (cx, Some(connection)) = (&mut self.cx, self.slots.get_mut(slot)) else {
            return None;
        };
        let item = Item {
            slot,
            key,
            hash,
            form,
            hint: Hint::default(),
        };
        let joined = cx.joined_bytes(&item, set);
        let bytes = value_bytes.saturating_add(joined);
        let is_large = cx.is_large(bytes as usize) && !passes;
        if is_large && !cx.turn.large_full {
            // Not decoded here after all: a large worker starts over with the command.
            self.depart_to_receive(slot, hash, bytes);
            self.put_off(entry);
            return None;
        }
        let reserved = match is_large {
            false if passes => cx.reserve(&item, &Set::default(), *value_bytes),
            false => cx.reserve(&item, set, *value_bytes),
            true => Err(SetOutcome::OutOfMemory),
        };
        match reserved {
            Err(_) if is_large => {
                cx.counts.add(Count::LargeRefused, 1);
                self.replies.refuse(slot, form, Refusal::Busy);
                let unread = u64::from(*value_bytes) + BodyEnd::BYTES as u64;
                connection.decoder.swallow(unread);
                connection.hold(&mut cx.pool, rest, true);
                self.swallow_apart(slot, hash, bytes);
                return None;
            }
            Err(outcome) => {
                cx.answer_set(&mut self.replies, &item, set.compare.is_some(), outcome);
                let unread = u64::from(*value_bytes) + BodyEnd::BYTES as u64;
                connection.decoder.swallow(unread);
            }
            Ok(mut reservation) => {
                let written = reservation.write(rest);
                rest = rest.get(written..).unwrap_or_default();
                let full = reservation.is_full();
                connection.body = Body::new(&mut cx.pool, request, reservation);
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
    pub(crate) fn end_large_set(&mut self, slot: usize, right: bool) {
        if right && self.cx.shared.cluster.is_some() && self.end_large_elsewhere(slot) {
            return;
        }
        let ahead = right && self.cx.has(Fault::AnswersAhead);
        if ahead {
            self.replies.write(slot, |sink| sink.push(b"STORED\r\n"));
            self.reply_early();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let (cx, Some(connection)) = (&mut self.cx, self.slots.get_mut(slot)) else {
            return;
        };
        let Some(body) = connection.body.take() else {
            return;
        };
        if connection.pending.is_some() {
            cx.end_pending(connection);
        }
        let WorkerContext {
            store_cx: StoreContext { store, writer, now },
            pool,
            counts,
            ..
        } = cx;
        let replies = &mut self.replies;
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
            cx.log_outcome(outcome);
        }
    }
}
