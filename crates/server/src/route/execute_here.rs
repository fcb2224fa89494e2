//! Executing one entry of a batch at this worker.

use curtail_codec::memcached::{
    Request,
    encode::{self, Refusal},
};
use curtail_store::Hint;
use curtail_types::KeyHash;
use tracing::{info, warn};

use crate::{
    admin::commands,
    limits::OUTPUT_BYTES_MAX,
    log::component,
    metrics::counters::Count,
    request::{
        batch::{Entry, Work},
        reply_buffer::ROOM_BYTES,
    },
    route::{self, on_node, run_routes},
    turn::{
        delegate,
        execute::{self, *},
        large_write, lifecycle, log_events, send,
    },
    worker::Worker,
};

#[inline(always)] // once into the loop over the batch, where most requests pass
pub(crate) fn carry_out<P: ReadPath>(worker: &mut Worker, entry: &Entry<'_>, claims: bool) {
    let Entry {
        slot,
        hash,
        work,
        hint,
        ..
    } = entry;
    let (slot, hash, hint) = (*slot, *hash, *hint);
    if worker.replies.bytes_for(slot) > OUTPUT_BYTES_MAX {
        put_off(worker, entry);
        return;
    }
    if worker.replies.remaining() < ROOM_BYTES {
        send::reply_early(worker);
    }
    match work {
        Work::Request(Request::Item {
            key,
            operation,
            value,
            form,
        }) => {
            let item = Item {
                slot,
                key,
                hash,
                form,
                hint,
            };
            let mut held = None;
            if claims && !operation.is_read() {
                held = route::claim_free(worker, hash);
                if held.is_none() {
                    return run_contended(worker, entry);
                }
            }
            if worker.cx.event_log.on {
                log_events::log_here(worker, entry);
            }
            let (cx, replies) = (&mut worker.cx, &mut worker.replies);
            match execute::run_item::<P>(cx, replies, &item, operation, value) {
                Executed::Done | Executed::Missing => {}
                Executed::NeedsLargeWorker(bytes) => execute::hand_on(worker, entry, bytes),
                Executed::Refused(refusal) => worker.replies.refuse(slot, form, refusal),
            }
            if let Some(ticket) = held {
                delegate::release(&mut worker.cx, ticket);
            }
        }
        _ if worker.cx.event_log.on => {
            log_events::log_here(worker, entry);
            carry_out_other(worker, entry);
        }
        _ => carry_out_other(worker, entry),
    }
}

/// Carries out what is not a complete request about one item.
pub(crate) fn carry_out_other(worker: &mut Worker, entry: &Entry<'_>) {
    let slot = entry.slot;
    match &entry.work {
        Work::Request(request) => run_other(worker, slot, entry.hash, request),
        Work::LargeSet { header, rest } => {
            if let Some(right) = large_write::begin_large_set(worker, entry, header, rest) {
                end_large_write(worker, slot, right);
            }
        }
        Work::LargeSetEnd { right } => end_large_write(worker, slot, *right),
        Work::Login { accepted } => answer_login(worker, slot, *accepted),
        Work::Malformed { reply, close } => {
            worker.replies.write(slot, |sink| sink.push(reply));
            if *close {
                lifecycle::close_in_error(worker, slot);
            }
        }
    }
}

/// A write to a partition that others were at a moment ago.
#[cold]
pub(crate) fn run_contended(worker: &mut Worker, entry: &Entry<'_>) {
    let route = route::claim(worker, entry.hash);
    run_routes::execute_run(worker, std::slice::from_ref(entry), route);
}

/// The same, for the rare ways to it.
#[inline(never)]
pub(crate) fn carry_out_apart(worker: &mut Worker, entry: &Entry<'_>) {
    carry_out::<Apart>(worker, entry, false);
}

pub(crate) fn run_other(worker: &mut Worker, slot: usize, hash: KeyHash, request: &Request<'_>) {
    match request {
        Request::SetTooLarge(header) => {
            let item = Item {
                slot,
                key: &header.key,
                hash,
                form: &header.form,
                hint: Hint::default(),
            };
            execute::refuse_too_large(&mut worker.cx, &mut worker.replies, &item, &header.set);
            swallow_apart(worker, slot, hash, header.value_bytes);
        }
        Request::EndOfKeys { refusal } => {
            note_failed(worker);
            if let (Some(refusal), Some(connection)) = (refusal, worker.slots.get_mut(slot)) {
                connection.output.fail_ahead(refusal.reply());
            }
            end_parts(worker, slot, b"END\r\n");
        }
        Request::Noop => {
            worker.cx.counts.add(Count::CmdMeta, 1);
            worker.replies.write(slot, encode::noop);
        }
        Request::Admin(admin) => commands::administrate(worker, slot, admin),
        Request::Item { .. } | Request::SetHeader(_) | Request::Authenticate { .. } => {}
    }
}

pub(crate) fn answer_login(worker: &mut Worker, slot: usize, accepted: bool) {
    worker.cx.counts.add(Count::AuthCmds, 1);
    log_login(worker, slot, accepted);
    if accepted {
        worker.replies.write(slot, encode::authenticated);
    } else {
        worker.cx.counts.add(Count::AuthErrors, 1);
        worker
            .replies
            .write(slot, |sink| encode::error(sink, Refusal::LoginFailed));
    }
}

/// Neither the name nor the password is logged: who mistypes one may have typed the other.
#[cold]
pub(crate) fn log_login(worker: &mut Worker, slot: usize, accepted: bool) {
    let shared = &worker.cx.shared;
    let limit = match accepted {
        true => &shared.limits.accepted_logins,
        false => &shared.limits.refused_logins,
    };
    let Some(suppressed) = limit.pass(worker.cx.store_cx.now.unix_seconds().into()) else {
        return;
    };
    let connection = worker.slots.get_mut(slot);
    let peer = connection.map_or("", |connection| &connection.visible.address);
    if accepted {
        info!(target: component::AUTH, peer, suppressed, "a client logged in");
    } else {
        warn!(
            target: component::AUTH,
            peer,
            suppressed,
            "a login was refused: its name and password are not in the login file (-Y)"
        );
    }
}

/// Ends a large write here, unless its key has moved to another node, or become hot, while it was
/// received.
fn end_large_write(worker: &mut Worker, slot: usize, right: bool) {
    let is_node = worker.cx.shared.cluster.is_some();
    if !(right && is_node && on_node::end_large_elsewhere(worker, slot)) {
        large_write::end_large_set(worker, slot, right);
    }
}
