//! How long requests take in the server, by command and size class: for `/metrics`.
//!
//! ```text
//!   receive | decode | other requests of the batch | this one | replies | handed to the kernel
//!   |<------------------------------ measured ---------------------------------------------->|
//! ```
//!
//! The requests of one turn in 64 are measured, whose clock is read anyway
//! ([`crate::metrics::stage_histograms`]), and all that a large worker serves. A reply that its
//! turn could not send (another worker or node answers, or the kernel took no more) is measured
//! when it has left; a large write that takes several turns, when its value is stored. What is
//! large is fixed at the start, not by the plan in force, so that the classes mean the same for as
//! long as the server runs.

use curtail_codec::memcached::{Form, Request};
use curtail_types::Operation;

use crate::{
    connection::{Connection, Loan},
    request::batch::{Batch, Entry, Work},
    sync::{AtomicU64, Relaxed},
    worker::{Worker, context::WorkerContext},
};

/// What a request asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum Command {
    Get,
    Set,
    Delete,
    Arithmetic,
    Touch,
    Other,
}

/// How large its value is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum Size {
    Small,
    Large,
}

/// A histogram of durations: class c has what took less than 2^c microseconds and is in no class
/// below; the last has everything else.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Durations {
    pub(crate) classes: [u64; CLASSES],
    pub(crate) sum_ns: u64,
    /// There are some that others were not shown.
    is_new: bool,
}

/// Those of one worker, or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies([[Durations; SIZES.len()]; COMMANDS.len()]);

/// Those of one worker as others may read them.
#[derive(Debug, Default)]
pub(crate) struct PublishedLatencies([[PublishedDurations; SIZES.len()]; COMMANDS.len()]);

#[derive(Debug, Default)]
struct PublishedDurations {
    classes: [AtomicU64; CLASSES],
    sum_ns: AtomicU64,
}

/// A request whose reply has not left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Pending {
    since_ns: u64,
    command: Command,
    size: Size,
}

/// The last class begins at 4.2 s.
const CLASSES: usize = 24;

/// In the order of [`Command`] and [`Size`].
const COMMANDS: [&str; 6] = ["get", "set", "delete", "arithmetic", "touch", "other"];
const SIZES: [&str; 2] = ["small", "large"];

/// The upper bound of a class in nanoseconds; `None` for the last.
pub(crate) fn bound_ns(class: usize) -> Option<u64> {
    (class + 1 < CLASSES).then(|| 1000 << class)
}

impl Durations {
    fn record(&mut self, ns: u64) {
        let us = ns / 1000;
        let class = (u64::BITS - us.leading_zeros()) as usize;
        if let Some(class) = self.classes.get_mut(class.min(CLASSES - 1)) {
            *class += 1;
        }
        self.sum_ns += ns;
        self.is_new = true;
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, command: Command, size: Size, ns: u64) {
        let sizes = self.0.get_mut(command as usize);
        if let Some(durations) = sizes.and_then(|sizes| sizes.get_mut(size as usize)) {
            durations.record(ns);
        }
    }

    /// All of them with their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, &Durations)> {
        COMMANDS.iter().zip(&self.0).flat_map(|(command, sizes)| {
            let sizes = SIZES.iter().zip(sizes);
            sizes.map(|(size, durations)| (*command, *size, durations))
        })
    }
}

impl PublishedLatencies {
    /// Shows what is new in `latencies` to the others; only their worker calls this, now and then.
    pub(crate) fn publish(&self, latencies: &mut Latencies) {
        let all = self.0.iter().flatten();
        for (shown, own) in all.zip(latencies.0.iter_mut().flatten()) {
            if !std::mem::take(&mut own.is_new) {
                continue;
            }
            for (shown, number) in shown.classes.iter().zip(own.classes) {
                shown.store(number, Relaxed);
            }
            shown.sum_ns.store(own.sum_ns, Relaxed);
        }
    }

    /// Adds what was shown.
    pub(crate) fn add_to(&self, sum: &mut Latencies) {
        let sums = sum.0.iter_mut().flatten();
        for (sum, shown) in sums.zip(self.0.iter().flatten()) {
            for (number, shown) in sum.classes.iter_mut().zip(&shown.classes) {
                *number += shown.load(Relaxed);
            }
            sum.sum_ns += shown.sum_ns.load(Relaxed);
        }
    }
}

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

fn size_of(cx: &mut WorkerContext, entry: &Entry<'_>, command: Command) -> Size {
    let is_large = match &entry.work {
        Work::Request(Request::Item { value, .. }) if command != Command::Get => {
            value.len() >= cx.recorders.large_class_from
        }
        Work::Request(
            Request::SetHeader { value_bytes, .. } | Request::SetTooLarge { value_bytes, .. },
        )
        | Work::LargeSet {
            request: Request::SetHeader { value_bytes, .. },
            ..
        } => *value_bytes as usize >= cx.recorders.large_class_from,
        _ if command == Command::Get => take_large_answer(cx, entry.slot),
        _ => false,
    };
    match is_large {
        true => Size::Large,
        false => Size::Small,
    }
}

/// Whether a large value was answered to the connection in `slot` that was not asked about yet.
fn take_large_answer(cx: &mut WorkerContext, slot: usize) -> bool {
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

fn command_of(work: &Work<'_>) -> Command {
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
        Work::Request(Request::SetHeader { .. } | Request::SetTooLarge { .. })
        | Work::LargeSet { .. }
        | Work::LargeSetEnd { .. } => Command::Set,
        _ => Command::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_below_the_bound_of_its_class() {
        for (ns, class) in [
            (0, 0),
            (999, 0),
            (1000, 1),
            (1999, 1),
            (2000, 2),
            (4_000_000, 12),
        ] {
            let mut durations = Durations::default();
            durations.record(ns);
            assert_eq!(durations.classes[class], 1, "{ns}");
            assert!(bound_ns(class).unwrap() > ns, "{ns}");
        }
        let mut durations = Durations::default();
        durations.record(u64::MAX / 2);
        assert_eq!(durations.classes[CLASSES - 1], 1);
        assert_eq!(bound_ns(CLASSES - 1), None);
    }

    #[test]
    fn what_is_published_is_added_under_its_name() {
        let mut own = Latencies::default();
        own.record(Command::Touch, Size::Large, 3000);
        let published = PublishedLatencies::default();
        published.publish(&mut own);
        published.publish(&mut own);
        let mut sum = own.clone();
        published.add_to(&mut sum);
        for (command, size, durations) in sum.all() {
            let expected = match (command, size) {
                ("touch", "large") => (2, 6000),
                _ => (0, 0),
            };
            let count: u64 = durations.classes.iter().sum();
            assert_eq!((count, durations.sum_ns), expected, "{command} {size}");
        }
    }
}
