//! Replies to text commands.

use curtail_types::{ArithmeticOutcome, DeleteOutcome, ItemStatus, SetOutcome};

use super::{Refusal, Sink, WireKey};

/// `VALUE <key> <flags> <bytes> [<cas>]`; the value follows.
#[inline]
pub(super) fn value(
    sink: &mut Sink<'_>,
    key: &WireKey<'_>,
    with_cas: bool,
    status: &ItemStatus,
) -> bool {
    sink.push(b"VALUE ");
    sink.push(key.text());
    sink.push(b" ");
    sink.push_number(status.flags.into());
    sink.push(b" ");
    sink.push_number(status.value_bytes.into());
    if with_cas {
        sink.push(b" ");
        sink.push_number(status.cas.0);
    }
    sink.push(b"\r\n");
    true
}

/// One line, unless silence was asked for; no value follows.
#[inline]
pub(super) fn line(sink: &mut Sink<'_>, noreply: bool, text: &[u8]) -> bool {
    if !noreply {
        sink.push(text);
    }
    false
}

#[inline]
pub(super) fn set(sink: &mut Sink<'_>, noreply: bool, outcome: SetOutcome) {
    let text: &[u8] = match outcome {
        SetOutcome::Stored(_) => b"STORED\r\n",
        SetOutcome::NotStored => b"NOT_STORED\r\n",
        SetOutcome::Exists => b"EXISTS\r\n",
        SetOutcome::NotFound => b"NOT_FOUND\r\n",
        SetOutcome::TooLarge => Refusal::TooLarge.reply(),
        SetOutcome::OutOfMemory => Refusal::OutOfMemoryStoring.reply(),
    };
    line(sink, noreply, text);
}

pub(super) fn delete(sink: &mut Sink<'_>, noreply: bool, outcome: DeleteOutcome) {
    let text: &[u8] = match outcome {
        DeleteOutcome::Deleted => b"DELETED\r\n",
        DeleteOutcome::NotFound => b"NOT_FOUND\r\n",
        DeleteOutcome::Exists => b"EXISTS\r\n",
        DeleteOutcome::OutOfMemory => Refusal::OutOfMemory.reply(),
    };
    line(sink, noreply, text);
}

pub(super) fn arithmetic(sink: &mut Sink<'_>, noreply: bool, outcome: &ArithmeticOutcome) {
    let text: &[u8] = match outcome {
        ArithmeticOutcome::Counted { number, .. } => {
            if !noreply {
                sink.push_number(*number);
            }
            b"\r\n"
        }
        ArithmeticOutcome::NotFound => b"NOT_FOUND\r\n",
        ArithmeticOutcome::Exists => b"EXISTS\r\n",
        ArithmeticOutcome::NotANumber => Refusal::NotANumber.reply(),
        ArithmeticOutcome::OutOfMemory => Refusal::OutOfMemory.reply(),
    };
    line(sink, noreply, text);
}
