//! Encodes outcomes: one function per outcome of the store, each straight code into a [`Sink`].
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

use curtail_types::{ArithmeticOutcome, DeleteOutcome, ItemStatus, Outcome, SetOutcome};

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

/// What [`hit`] writes before a value of fewer than 1000 bytes of an item that has nothing to tell
/// unasked, written to the front of `room` as it is, where nothing but the value is asked for: most
/// reads. Gives back how many bytes that is; `None` if more is asked for. Behind it a few bytes may
/// be written over.
#[inline(always)] // as few instructions as a reply can have
#[must_use = "the value must follow"]
pub fn plain_head(
    room: &mut [u8],
    key: &WireKey<'_>,
    form: &Form<'_>,
    value_bytes: usize,
) -> Option<usize> {
    match form {
        Form::Meta(meta) if meta.value && meta.returns.is_empty() => {
            let (line, bytes) = short_number_line(*b"VA ", value_bytes)?;
            *room.first_chunk_mut()? = line;
            Some(bytes)
        }
        Form::Value {
            with_cas: false, ..
        } => {
            let (line, bytes) = short_number_line(*b" 0 ", value_bytes)?;
            let key = key.text();
            let (start, room) = room.split_first_chunk_mut()?;
            *start = *b"VALUE ";
            room.get_mut(..key.len())?.copy_from_slice(key);
            *room.get_mut(key.len()..)?.first_chunk_mut()? = line;
            Some(start.len() + key.len() + bytes)
        }
        _ => None,
    }
}

/// Three bytes, a number below 1000 and a line end, and how many bytes that is.
#[inline(always)]
fn short_number_line(start: [u8; 3], number: usize) -> Option<([u8; 8], usize)> {
    const LINE_END: u64 = u16::from_le_bytes(*b"\r\n") as u64;
    let digit = |number: usize| u64::from(b'0') + number as u64;
    let (digits, count) = match number {
        0..10 => (digit(number), 1),
        10..100 => (digit(number / 10) | digit(number % 10) << 8, 2),
        100..1000 => {
            let [hundreds, tens, ones] = [number / 100, number / 10 % 10, number % 10].map(digit);
            (hundreds | tens << 8 | ones << 16, 3)
        }
        _ => return None,
    };
    let [a, b, c] = start;
    let line =
        u64::from(u32::from_le_bytes([a, b, c, 0])) | digits << 24 | LINE_END << (24 + 8 * count);
    Some((line.to_le_bytes(), 5 + count))
}

/// The same as [`value_end`] behind a value that [`plain_head`] stands before, written to the front
/// of `room`: how many bytes. A few bytes behind it may be written over. `None` if there is no
/// room.
#[inline(always)]
pub fn plain_end(room: &mut [u8], form: &Form<'_>) -> Option<usize> {
    // Both ends begin alike, and what is too much does not count.
    *room.first_chunk_mut()? = *b"\r\nEND\r\n";
    Some(match form {
        Form::Value { last: true, .. } => 7,
        _ => 2,
    })
}

/// What follows a value that [`hit`] asked for.
#[inline]
pub fn value_end(sink: &mut Sink<'_>, form: &Form<'_>) {
    sink.push(value_tail(form));
}

/// The same as bytes.
#[inline]
pub const fn value_tail(form: &Form<'_>) -> &'static [u8] {
    match form {
        Form::Value { last: true, .. } => b"\r\nEND\r\n",
        _ => b"\r\n",
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

/// How an operation ended, whatever it was. Returns whether the value follows, and then
/// [`value_end`].
#[must_use = "the value may have to follow"]
pub fn outcome(sink: &mut Sink<'_>, key: &WireKey<'_>, form: &Form<'_>, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Found(status) => return hit(sink, key, form, status),
        Outcome::Missing => miss(sink, key, form),
        Outcome::Set(outcome) => set(sink, key, form, *outcome),
        Outcome::Delete(outcome) => delete(sink, key, form, *outcome),
        Outcome::Arithmetic(outcome) => arithmetic(sink, key, form, outcome),
    }
    false
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
