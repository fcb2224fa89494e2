//! An item as a reader sees it.

use std::marker::PhantomData;

use curtail_types::ItemStatus;

/// An item that a read found.
///
/// What it shows may be torn by a writer until the closure that got it has returned and the store
/// has validated the read; the closure then runs again.
#[derive(Debug)]
pub struct ItemView<'a> {
    status: ItemStatus,
    item: PhantomData<&'a ()>,
}

impl ItemView<'_> {
    /// What is known about the item beside its value.
    pub fn status(&self) -> &ItemStatus {
        &self.status
    }

    /// The length of the value in bytes.
    pub fn value_bytes(&self) -> usize {
        self.status.value_bytes as usize
    }

    /// Copies the value from byte `from` on into `into`, as much as fits; returns the bytes copied.
    pub fn copy_value(&self, _from: usize, _into: &mut [u8]) -> usize {
        todo!()
    }

    /// Keeps the value's memory from being reused, so that it can be sent without a copy; for
    /// values longer than [`COPY_BYTES_MAX`](crate::COPY_BYTES_MAX), while leases hold less than a
    /// quarter of the memory limit. The bytes may be looked at once `get` has returned the lease.
    pub fn lease_value(&self) -> Option<ValueLease> {
        todo!()
    }
}

/// A large value that stays readable while this lives.
#[derive(Debug)]
pub struct ValueLease {
    length: usize,
}

impl ValueLease {
    /// The length of the whole value in bytes.
    pub fn value_bytes(&self) -> usize {
        self.length
    }

    /// The longest contiguous part of the value that starts at byte `from`; empty at the end.
    pub fn part(&self, _from: usize) -> &[u8] {
        todo!()
    }

    /// Bytes of memory that the lease keeps from being reused.
    pub fn pinned_bytes(&self) -> usize {
        todo!()
    }
}
