//! Replies to meta commands: a two-letter code, then the flags that the client asked for, in its
//! order, then those that it did not ask for (`W`, `X`, `Z`).

use curtail_types::{ArithmeticOutcome, Cas, DeleteOutcome, ItemStatus, SetOutcome};

use super::{Refusal, Sink, WireKey};
use crate::memcached::{Meta, Return};

/// `VA <bytes> <flags>` with the value to follow, or `HD <flags>`. Quiet hides neither.
#[inline]
pub(super) fn hit(
    sink: &mut Sink<'_>,
    key: &WireKey<'_>,
    meta: &Meta<'_>,
    status: &ItemStatus,
) -> bool {
    if meta.value {
        sink.push(b"VA ");
        sink.push_number(status.value_bytes.into());
    } else {
        sink.push(b"HD");
    }
    if !meta.returns.is_empty() {
        item_flags(sink, key, meta, status, meta.returns);
    }
    if status.won | status.stale | status.contended {
        recache_flags(sink, status);
    }
    sink.push(b"\r\n");
    meta.value
}

/// `EN`, unless quiet.
#[inline]
pub(super) fn miss(sink: &mut Sink<'_>, key: &WireKey<'_>, meta: &Meta<'_>) {
    if !meta.quiet {
        status_line(sink, key, meta, b"EN", None);
    }
}

#[inline]
pub(super) fn set(sink: &mut Sink<'_>, key: &WireKey<'_>, meta: &Meta<'_>, outcome: SetOutcome) {
    let (code, cas) = match outcome {
        SetOutcome::Stored(_) if meta.quiet => return,
        SetOutcome::Stored(cas) => (b"HD", cas),
        SetOutcome::NotStored => (b"NS", Cas(0)),
        SetOutcome::Exists => (b"EX", Cas(0)),
        SetOutcome::NotFound => (b"NF", Cas(0)),
        SetOutcome::TooLarge => return sink.push(Refusal::TooLarge.reply()),
        SetOutcome::OutOfMemory => return sink.push(Refusal::OutOfMemoryStoring.reply()),
    };
    status_line(sink, key, meta, code, Some(cas));
}

pub(super) fn delete(
    sink: &mut Sink<'_>,
    key: &WireKey<'_>,
    meta: &Meta<'_>,
    outcome: DeleteOutcome,
) {
    let code = match outcome {
        DeleteOutcome::Deleted if meta.quiet => return,
        DeleteOutcome::Deleted => b"HD",
        DeleteOutcome::NotFound => b"NF",
        DeleteOutcome::Exists => b"EX",
        DeleteOutcome::OutOfMemory => return sink.push(Refusal::OutOfMemory.reply()),
    };
    status_line(sink, key, meta, code, None);
}

pub(super) fn arithmetic(
    sink: &mut Sink<'_>,
    key: &WireKey<'_>,
    meta: &Meta<'_>,
    outcome: &ArithmeticOutcome,
) {
    let code = match outcome {
        ArithmeticOutcome::Counted {
            number,
            status,
            created,
        } => {
            // memcached tells a quiet client that it created the number.
            if !meta.quiet || *created {
                counted(sink, key, meta, *number, status);
            }
            return;
        }
        ArithmeticOutcome::NotFound => b"NF",
        ArithmeticOutcome::Exists => b"EX",
        ArithmeticOutcome::NotANumber => return sink.push(Refusal::NotANumber.reply()),
        ArithmeticOutcome::OutOfMemory => return sink.push(Refusal::OutOfMemory.reply()),
    };
    status_line(sink, key, meta, code, None);
}

/// `ME <key> <name>=<value> ...`; no value follows. Slab classes do not exist here, so the class is
/// always 1; the size is that of key and value.
pub(super) fn debug(sink: &mut Sink<'_>, key: &WireKey<'_>, status: &ItemStatus) -> bool {
    sink.push(b"ME ");
    sink.push(key.text());
    sink.push(b" exp=");
    ttl(sink, status);
    sink.push(b" la=");
    sink.push_number(status.idle_seconds.into());
    sink.push(b" cas=");
    sink.push_number(status.cas.0);
    sink.push(b" fetch=");
    sink.push(if status.fetched { b"yes" } else { b"no" });
    sink.push(b" cls=1 size=");
    sink.push_number(key.text().len() as u64 + u64::from(status.value_bytes));
    sink.push(b"\r\n");
    false
}

/// Like a hit, but of the item's own flags only time to live and version are known to `ma`.
fn counted(
    sink: &mut Sink<'_>,
    key: &WireKey<'_>,
    meta: &Meta<'_>,
    number: u64,
    status: &ItemStatus,
) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    if meta.value {
        sink.push(b"VA ");
        sink.push_number(digits.len() as u64);
    } else {
        sink.push(b"HD");
    }
    let returns = meta.returns.filter(|what| {
        matches!(
            what,
            Return::Ttl | Return::Cas | Return::Opaque | Return::Key
        )
    });
    item_flags(sink, key, meta, status, returns);
    sink.push(b"\r\n");
    if meta.value {
        sink.push(digits);
        sink.push(b"\r\n");
    }
}

/// A code with the flags that do not need an item: opaque, key and, after a write, the version.
fn status_line(
    sink: &mut Sink<'_>,
    key: &WireKey<'_>,
    meta: &Meta<'_>,
    code: &[u8; 2],
    cas: Option<Cas>,
) {
    sink.push(code);
    for what in meta.returns {
        match (what, cas) {
            (Return::Opaque, _) => opaque(sink, meta),
            (Return::Key, _) => echo_key(sink, key),
            (Return::Cas, Some(cas)) => flag_number(sink, b" c", cas.0),
            _ => {}
        }
    }
    sink.push(b"\r\n");
}

#[inline(never)]
fn item_flags(
    sink: &mut Sink<'_>,
    key: &WireKey<'_>,
    meta: &Meta<'_>,
    status: &ItemStatus,
    returns: impl Iterator<Item = Return>,
) {
    for what in returns {
        match what {
            Return::Size => flag_number(sink, b" s", status.value_bytes.into()),
            Return::Ttl => {
                sink.push(b" t");
                ttl(sink, status);
            }
            Return::Cas => flag_number(sink, b" c", status.cas.0),
            Return::Flags => flag_number(sink, b" f", status.flags.into()),
            Return::Idle => flag_number(sink, b" l", status.idle_seconds.into()),
            Return::Fetched => flag_number(sink, b" h", status.fetched.into()),
            Return::Opaque => opaque(sink, meta),
            Return::Key => echo_key(sink, key),
        }
    }
}

#[cold]
fn recache_flags(sink: &mut Sink<'_>, status: &ItemStatus) {
    if status.contended {
        sink.push(b" Z");
    }
    if status.stale {
        sink.push(b" X");
    }
    if status.won {
        sink.push(b" W");
    }
}

fn flag_number(sink: &mut Sink<'_>, flag: &[u8; 2], number: u64) {
    sink.push(flag);
    sink.push_number(number);
}

fn ttl(sink: &mut Sink<'_>, status: &ItemStatus) {
    match status.ttl_seconds {
        Some(seconds) => sink.push_number(seconds.into()),
        None => sink.push(b"-1"),
    }
}

fn opaque(sink: &mut Sink<'_>, meta: &Meta<'_>) {
    sink.push(b" O");
    sink.push(meta.opaque);
}

fn echo_key(sink: &mut Sink<'_>, key: &WireKey<'_>) {
    sink.push(b" k");
    sink.push(key.text());
    if key.is_base64() {
        sink.push(b" b");
    }
}
