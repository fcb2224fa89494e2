//! An item as a reader sees it.

use curtail_segments::{Lease, Segments};
use curtail_types::{ItemStatus, Now};

use crate::{
    COPY_BYTES_MAX,
    item::{Extension, Item, Meta},
    large_values::{Part, Value},
    sync::{Arc, AtomicUsize, Ordering},
};

/// An item that a read found.
///
/// What it shows may be torn by a writer until the closure that got it has returned and the store
/// has validated the read; the closure then runs again.
#[derive(Debug)]
pub struct ItemView<'a> {
    value: Value<'a>,
    item: Item<'a>,
    meta: Meta,
    extension: Extension,
    now: Now,
    /// Whether this read won the right to recache.
    won: bool,
    segments: &'a Arc<Segments>,
    gate: &'a LeaseGate,
}

impl<'a> ItemView<'a> {
    #[inline]
    pub(crate) fn new(
        segments: &'a Arc<Segments>,
        gate: &'a LeaseGate,
        reference: u64,
        item: Item<'a>,
        meta: Meta,
        now: Now,
    ) -> Self {
        Self {
            value: Value::of(reference, item, meta),
            item,
            meta,
            extension: item.extension(meta),
            now,
            won: false,
            segments,
            gate,
        }
    }

    /// Its reader has won the right to recache, which nobody had before if it is new.
    pub(crate) fn win(&mut self, is_new: bool) {
        self.won = true;
        if is_new {
            self.meta = self.meta.with_won(false);
        }
    }

    /// What is known about the item beside its value.
    #[inline]
    pub fn status(&self) -> ItemStatus {
        ItemStatus {
            won: self.won,
            ..status_of(
                self.item,
                self.meta,
                self.extension,
                self.value.bytes,
                self.now,
            )
        }
    }

    /// The length of the value in bytes. May be garbage until the read is validated: do not size
    /// an allocation by it without a bound.
    pub fn value_bytes(&self) -> usize {
        self.value.bytes
    }

    /// Copies the value from byte `from` on into `into`, as much as fits; returns the bytes copied.
    #[inline]
    pub fn copy_value(&self, from: usize, into: &mut [u8]) -> usize {
        self.value.copy(self.segments, from, into)
    }

    /// Keeps the value's memory from being reused, so that it can be sent without a copy; for
    /// values longer than [`COPY_BYTES_MAX`], while leases hold less than a
    /// quarter of the memory limit. The bytes may be looked at once `get` has returned the lease.
    pub fn lease_value(&self) -> Option<ValueLease> {
        if self.value.bytes <= COPY_BYTES_MAX {
            return None;
        }
        let mut lease = ValueLease {
            first: None,
            others: Vec::new(),
            value_bytes: self.value.bytes,
        };
        let mut from = 0;
        while from < self.value.bytes {
            // The head itself is leased first: its list then stays what it is.
            let part = self.value.part(self.segments, from);
            let reference = match lease.first {
                None => self.value.reference(),
                Some(_) => part.reference,
            };
            let pinned = Lease::new(self.segments, reference)?;
            // The first bounds a length that is garbage.
            let too_much = lease.pinned_bytes() > self.gate.bytes_max()
                || (pinned.is_first() && self.segments.leased_bytes() > self.gate.bytes_max());
            if part.bytes == 0 || too_much {
                return None;
            }
            lease.add(LeasedPart { pinned, from, part });
            from += part.bytes;
        }
        Some(lease)
    }
}

/// What the meta protocol can tell of an item.
#[inline]
pub(crate) fn status_of(
    item: Item<'_>,
    meta: Meta,
    extension: Extension,
    value_bytes: usize,
    now: Now,
) -> ItemStatus {
    ItemStatus {
        flags: extension.flags,
        cas: item.cas(),
        value_bytes: value_bytes as u32,
        ttl_seconds: extension.expiry.remaining_seconds(now),
        idle_seconds: meta.idle_seconds(now),
        fetched: meta.fetched(),
        won: false,
        stale: meta.stale(),
        contended: meta.won(),
    }
}

/// How many bytes leases may keep from being reused. A segment with several leases counts once:
/// what the limit protects is memory that can be reused.
#[derive(Debug, Default)]
pub(crate) struct LeaseGate {
    bytes_max: AtomicUsize,
}

impl LeaseGate {
    pub(crate) fn set_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }
}

/// A large value that stays readable while this lives.
#[derive(Debug)]
pub struct ValueLease {
    /// Most values lie in one piece, and then nothing is allocated.
    first: Option<LeasedPart>,
    others: Vec<LeasedPart>,
    value_bytes: usize,
}

/// A contiguous part of a value, from its byte `from` on.
#[derive(Debug)]
struct LeasedPart {
    pinned: Lease,
    from: usize,
    part: Part,
}

impl ValueLease {
    fn add(&mut self, part: LeasedPart) {
        match self.first {
            None => self.first = Some(part),
            Some(_) => self.others.push(part),
        }
    }

    /// The length of the whole value in bytes.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The longest contiguous part of the value that starts at byte `from`; empty at the end.
    pub fn part(&self, from: usize) -> &[u8] {
        let others_before = self.others.partition_point(|other| other.from <= from);
        let holds = match others_before.checked_sub(1) {
            None => self.first.as_ref(),
            Some(index) => self.others.get(index),
        };
        let Some(LeasedPart {
            pinned,
            from: start,
            part,
        }) = holds
        else {
            return &[];
        };
        let skip = from - start;
        if skip >= part.bytes {
            return &[];
        }
        pinned.bytes(part.reference, part.skip + skip, part.bytes - skip)
    }

    /// Bytes of memory that the lease keeps from being reused, alone or together with others.
    pub fn pinned_bytes(&self) -> usize {
        let first = self.first.as_ref();
        first.map_or(0, |first| {
            (1 + self.others.len()) * first.pinned.segment_bytes()
        })
    }
}
