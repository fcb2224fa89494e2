//! An item as a reader sees it.

use curtail_segments::{Lease, Segments};
use curtail_types::{ItemStatus, Now};

use crate::{
    COPY_BYTES_MAX,
    item::{Extension, Item, Meta},
    large::{Part, Value},
    sync::{Arc, AtomicUsize, Ordering},
};

/// An item that a read found.
///
/// What it shows may be torn by a writer until the closure that got it has returned and the store
/// has validated the read; the closure then runs again.
#[derive(Debug)]
pub struct ItemView<'a> {
    status: ItemStatus,
    value: Value<'a>,
    segments: &'a Arc<Segments>,
    gate: &'a Arc<LeaseGate>,
}

impl<'a> ItemView<'a> {
    #[inline]
    pub(crate) fn new(
        segments: &'a Arc<Segments>,
        gate: &'a Arc<LeaseGate>,
        reference: u64,
        item: Item<'a>,
        meta: Meta,
        now: Now,
    ) -> Self {
        let value = Value::of(reference, item, meta);
        let extension = item.extension(meta);
        Self {
            status: status_of(item, meta, extension, value.bytes, now),
            value,
            segments,
            gate,
        }
    }

    pub(crate) fn status_mut(&mut self) -> &mut ItemStatus {
        &mut self.status
    }

    /// What is known about the item beside its value.
    pub fn status(&self) -> &ItemStatus {
        &self.status
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
            parts: Vec::new(),
            value_bytes: self.value.bytes,
            pinned_bytes: 0,
            gate: Arc::clone(self.gate),
        };
        let segment_bytes = self.segments.segment_bytes();
        let mut from = 0;
        while from < self.value.bytes {
            // The head itself is leased first: its list then stays what it is.
            let part = self.value.part(self.segments, from);
            let pinned = if lease.parts.is_empty() {
                Lease::new(self.segments, self.value.reference())?
            } else {
                Lease::new(self.segments, part.reference)?
            };
            if part.bytes == 0 || !lease.gate.enter(segment_bytes) {
                return None;
            }
            lease.pinned_bytes += segment_bytes;
            lease.parts.push((pinned, from, part));
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

/// How many bytes leases may keep from being reused, and how many they do.
#[derive(Debug, Default)]
pub(crate) struct LeaseGate {
    pinned: AtomicUsize,
    max: AtomicUsize,
}

impl LeaseGate {
    pub(crate) fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn pinned(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    fn enter(&self, bytes: usize) -> bool {
        let before = self.pinned.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.max.load(Ordering::Relaxed) {
            self.leave(bytes);
            return false;
        }
        true
    }

    fn leave(&self, bytes: usize) {
        self.pinned.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A large value that stays readable while this lives.
#[derive(Debug)]
pub struct ValueLease {
    parts: Vec<(Lease, usize, Part)>,
    value_bytes: usize,
    pinned_bytes: usize,
    gate: Arc<LeaseGate>,
}

impl ValueLease {
    /// The length of the whole value in bytes.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The longest contiguous part of the value that starts at byte `from`; empty at the end.
    pub fn part(&self, from: usize) -> &[u8] {
        let after = self.parts.partition_point(|(_, start, _)| *start <= from);
        let Some((lease, start, part)) = after.checked_sub(1).and_then(|i| self.parts.get(i))
        else {
            return &[];
        };
        let skip = from - start;
        if skip >= part.bytes {
            return &[];
        }
        lease.bytes(part.reference, part.skip + skip, part.bytes - skip)
    }

    /// Bytes of memory that the lease keeps from being reused.
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }
}

impl Drop for ValueLease {
    fn drop(&mut self) {
        self.gate.leave(self.pinned_bytes);
    }
}
