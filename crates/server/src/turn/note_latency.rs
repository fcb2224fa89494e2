//! Measures how long requests take, in one turn of 64.

use curtail_codec::memcached::{Form, Request};
use curtail_types::Operation;

use crate::{
    connection::{Connection, Loan},
    metrics::latency::{Command, Pending, Size},
    request::batch::{Batch, Entry, Work},
    worker::{Worker, context::WorkerContext},
};

/// Notes how long the requests of a measured turn took, those whose replies have left.
pub(crate) fn note_latencies(worker: &mut Worker, batch: &Batch<'_>, begun_ns: u64, now_ns: u64) {
    for entry in batch.entries() {
        let Some(connection) = worker.slots.get_mut(entry.slot) else {
            continue;
        };
        // It counts from the turn that carries it out, or while a large worker has it.
        let is_end = matches!(
            entry.work,
            Work::LargeSetEnd { .. } | Work::Request(Request::EndOfKeys { .. })
        );
        if connection.put_off || connection.departs.is_some() || is_end {
            continue;
        }
        let cx = &mut worker.cx;
        let command = command_of(&entry.work);
        let size = size_of(cx, entry, command);
        if connection.output.is_empty() && connection.body.is_none() {
            let took_ns = now_ns.saturating_sub(begun_ns);
            cx.recorders.latencies.record(command, size, took_ns);
        } else if connection.pending.is_none() {
            connection.pending = Some(Pending {
                since_ns: begun_ns,
                command,
                size,
            });
        }
    }
}

/// A value of `bytes` is answered to the connection in `slot`.
#[cold]
pub(crate) fn note_answered_bytes(cx: &mut WorkerContext, slot: usize, bytes: usize) {
    let has_room = cx.measured.large_answers.len() < cx.measured.large_answers.capacity();
    if bytes >= cx.recorders.large_class_from && has_room {
        cx.measured.large_answers.push(slot);
    }
}

pub(crate) fn size_of(cx: &mut WorkerContext, entry: &Entry<'_>, command: Command) -> Size {
    let is_large = match &entry.work {
        Work::Request(Request::Item { value, .. }) if command != Command::Get => {
            value.len() >= cx.recorders.large_class_from
        }
        Work::Request(Request::SetHeader(header) | Request::SetTooLarge(header))
        | Work::LargeSet { header, .. } => {
            header.value_bytes as usize >= cx.recorders.large_class_from
        }
        _ if command == Command::Get => take_large_answer(cx, entry.slot),
        _ => false,
    };
    match is_large {
        true => Size::Large,
        false => Size::Small,
    }
}

/// Whether a large value was answered to the connection in `slot` that was not asked about yet.
pub(crate) fn take_large_answer(cx: &mut WorkerContext, slot: usize) -> bool {
    let mut answers = cx.measured.large_answers.iter();
    let found = answers.position(|&answered| answered == slot);
    found.is_some_and(|found| cx.measured.large_answers.swap_remove(found) == slot)
}

/// `bytes` of a value are on their way to a connection that others answered.
#[inline]
pub(crate) fn note_value_sent(cx: &WorkerContext, connection: &mut Connection, bytes: usize) {
    if let Some(pending) = &mut connection.pending
        && pending.command == Command::Get
        && bytes >= cx.recorders.large_class_from
    {
        pending.size = Size::Large;
    }
}

/// Notes how long a pending request took, if its reply has left.
#[inline]
pub(crate) fn note_sent(cx: &mut WorkerContext, connection: &mut Connection) {
    if connection.pending.is_some() && connection.output.is_empty() {
        end_pending(cx, connection);
    }
}

#[cold]
pub(crate) fn end_pending(cx: &mut WorkerContext, connection: &mut Connection) {
    if let Some(pending) = connection.pending.take() {
        let took_ns = cx.shared.clock.now().instant.ns - pending.since_ns;
        cx.recorders
            .latencies
            .record(pending.command, pending.size, took_ns);
    }
}

/// A large worker is done with a connection's request, at `now_ns`.
pub(crate) fn note_large_latency(cx: &mut WorkerContext, loan: &Loan, now_ns: u64) {
    let command = match loan.receives {
        true => Command::Set,
        false => Command::Get,
    };
    let took_ns = now_ns.saturating_sub(loan.begun_ns);
    cx.recorders.latencies.record(command, Size::Large, took_ns);
}

pub(crate) fn command_of(work: &Work<'_>) -> Command {
    match work {
        Work::Request(Request::Item {
            operation, form, ..
        }) => match operation {
            Operation::Get(get) if get.touch.is_some() && matches!(form, Form::Line { .. }) => {
                Command::Touch
            }
            Operation::Get(_) => Command::Get,
            Operation::Set(_) => Command::Set,
            Operation::Delete(_) => Command::Delete,
            Operation::Arithmetic(_) => Command::Arithmetic,
        },
        Work::Request(Request::SetHeader(_) | Request::SetTooLarge(_))
        | Work::LargeSet { .. }
        | Work::LargeSetEnd { .. } => Command::Set,
        _ => Command::Other,
    }
}
