//! Outcomes to bytes: one function per outcome of the store, each straight code into a [`Sink`].
//!
//! Every function writes at most [`REPLY_BYTES_MAX`] bytes, a value not counted, so that a server
//! checks its room once and then forgets about it. What a reply looks like is the request's
//! [`Form`]; text and meta each have their file, and this one only chooses.
//!
//! ```text
//! hit(..) -> true?  -> the value's bytes, by the caller -> value_end(..)
//! ```

mod meta;
mod refusal;
mod stats;
mod text;

use curtail_types::{ArithmeticOutcome, DeleteOutcome, ItemStatus, SetOutcome};

use super::{Form, Sink, WireKey};

pub use refusal::Refusal;
pub use stats::{STAT_BYTES_MAX, stat, stat_number, stat_text};

/// The most bytes that any of these functions writes, beside a value.
pub const REPLY_BYTES_MAX: usize = 512;

/// A read found its item. Writes what comes before the value; when it returns true, the caller
/// appends exactly `status.value_bytes` bytes of value and calls [`value_end`].
#[inline]
#[must_use = "the value may have to follow"]
pub fn hit(sink: &mut Sink<'_>, key: &WireKey<'_>, form: &Form<'_>, status: &ItemStatus) -> bool {
    match form {
        Form::Meta(meta) => meta::hit(sink, key, meta, status),
        Form::Value { with_cas, .. } => text::value(sink, key, *with_cas, status),
        Form::Line { noreply } => text::line(sink, *noreply, b"TOUCHED\r\n"),
        Form::Debug => meta::debug(sink, key, status),
    }
}

/// The same as [`hit`] where nothing but the value is asked for and the item has nothing to tell
/// unasked (it is not stale, and nobody has won it): most reads. False, with nothing written, if
/// more is asked for.
#[inline(always)] // what `hit` would be given need not be found out
#[must_use = "the value may have to follow"]
pub fn plain_hit(sink: &mut Sink<'_>, form: &Form<'_>, value_bytes: usize) -> bool {
    match form {
        Form::Meta(meta) if meta.value && meta.returns.is_empty() => {
            sink.push(b"VA ");
            sink.push_number(value_bytes as u64);
            sink.push(b"\r\n");
            true
        }
        _ => false,
    }
}

/// What follows a value that [`hit`] or [`plain_hit`] asked for.
#[inline]
pub fn value_end(sink: &mut Sink<'_>, form: &Form<'_>) {
    match form {
        Form::Value { last: true, .. } => sink.push(b"\r\nEND\r\n"),
        _ => sink.push(b"\r\n"),
    }
}

/// A read found nothing.
#[inline]
pub fn miss(sink: &mut Sink<'_>, key: &WireKey<'_>, form: &Form<'_>) {
    match form {
        Form::Meta(meta) => meta::miss(sink, key, meta),
        Form::Value { last, .. } => {
            if *last {
                sink.push(b"END\r\n");
            }
        }
        Form::Line { noreply } => {
            text::line(sink, *noreply, b"NOT_FOUND\r\n");
        }
        Form::Debug => sink.push(b"EN\r\n"),
    }
}

/// How a write ended.
#[inline]
pub fn set(sink: &mut Sink<'_>, key: &WireKey<'_>, form: &Form<'_>, outcome: SetOutcome) {
    match form {
        Form::Meta(meta) => meta::set(sink, key, meta, outcome),
        _ => text::set(sink, noreply(form), outcome),
    }
}

/// How a removal ended.
pub fn delete(sink: &mut Sink<'_>, key: &WireKey<'_>, form: &Form<'_>, outcome: DeleteOutcome) {
    match form {
        Form::Meta(meta) => meta::delete(sink, key, meta, outcome),
        _ => text::delete(sink, noreply(form), outcome),
    }
}

/// How arithmetic ended.
pub fn arithmetic(
    sink: &mut Sink<'_>,
    key: &WireKey<'_>,
    form: &Form<'_>,
    outcome: &ArithmeticOutcome,
) {
    match form {
        Form::Meta(meta) => meta::arithmetic(sink, key, meta, outcome),
        _ => text::arithmetic(sink, noreply(form), outcome),
    }
}

/// The two bytes behind a value were not its line end.
pub fn bad_data_chunk(sink: &mut Sink<'_>, form: &Form<'_>) {
    refuse(sink, form, Refusal::BadDataChunk);
}

/// Answers a request of this form with an error. Meta commands are told of errors even when they
/// asked for quiet.
pub fn refuse(sink: &mut Sink<'_>, form: &Form<'_>, refusal: Refusal) {
    text::line(sink, noreply(form), refusal.reply());
}

/// Answers with an error in any case.
pub fn error(sink: &mut Sink<'_>, refusal: Refusal) {
    sink.push(refusal.reply());
}

/// `mn`.
#[inline]
pub fn noop(sink: &mut Sink<'_>) {
    sink.push(b"MN\r\n");
}

/// `version`; `version` has at most 256 bytes and no line end.
pub fn version(sink: &mut Sink<'_>, version: &str) {
    sink.push(b"VERSION ");
    sink.push(version.as_bytes());
    sink.push(b"\r\n");
}

/// The answer of most administration commands.
pub fn ok(sink: &mut Sink<'_>, noreply: bool) {
    text::line(sink, noreply, b"OK\r\n");
}

/// A right login.
pub fn authenticated(sink: &mut Sink<'_>) {
    sink.push(b"STORED\r\n");
}

/// The end of a list, of `stats` for one.
pub fn end(sink: &mut Sink<'_>) {
    sink.push(b"END\r\n");
}

fn noreply(form: &Form<'_>) -> bool {
    matches!(form, Form::Line { noreply: true })
}

#[cfg(test)]
mod tests;
