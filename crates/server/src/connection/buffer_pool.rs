//! Buffers that outlive a turn: incomplete input, and output that the kernel has not taken.
//!
//! A connection holds a buffer only while it has such bytes, so an idle connection holds none. The
//! sizes are classes, each four times the one before; a worker keeps a few of each for the next
//! connection. All of them count against the one memory limit: the pool reports what it takes from
//! the allocator and gives back.
//!
//! Invariant: `bytes_taken` is the sum of the lengths of all buffers of this pool, in use or kept,
//! and `bytes_kept` of those that are kept; a buffer of a connection that moves to another worker
//! changes pools with it.

use std::sync::Arc;

use curtail_store::Store;

use crate::limits::BUFFERS_KEPT_BYTES_MAX;

/// The sizes of buffers in bytes; longer content takes a buffer of its own length.
const CLASSES: [usize; 6] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// Hands out buffers to the connections of one worker.
#[derive(Debug)]
pub(crate) struct BufferPool {
    store: Arc<Store>,
    kept: [Vec<Box<[u8]>>; CLASSES.len()],
    bytes_taken: usize,
    /// Every turn asks for it, so it is not added up then.
    bytes_kept: usize,
    buffers_out: usize,
    /// Memory that another thread is to free, if this one frees none.
    spent: Option<Vec<Box<[u8]>>>,
}

/// Some bytes that wait.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl BufferPool {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            kept: Default::default(),
            bytes_taken: 0,
            bytes_kept: 0,
            buffers_out: 0,
            spent: None,
        }
    }

    /// From now on memory that is not kept is left for [`take_spent`](Self::take_spent).
    pub(crate) fn free_elsewhere(&mut self) {
        self.spent = Some(Vec::new());
    }

    /// What another thread is to free; it counts against no limit any more.
    pub(crate) fn take_spent(&mut self) -> Vec<Box<[u8]>> {
        self.spent.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A buffer that holds a copy of `content`, in the smallest class that fits.
    pub(crate) fn hold(&mut self, content: &[u8]) -> Buffer {
        let mut bytes = self.take(content.len());
        if let Some(room) = bytes.get_mut(..content.len()) {
            room.copy_from_slice(content);
        }
        self.buffers_out += 1;
        Buffer {
            bytes,
            start: 0,
            end: content.len(),
        }
    }

    /// Adds `content` behind what `buffer` holds, moving to a larger class if need be.
    pub(crate) fn append(&mut self, buffer: &mut Buffer, content: &[u8]) {
        let end = buffer.end + content.len();
        if let Some(room) = buffer.bytes.get_mut(buffer.end..end) {
            room.copy_from_slice(content);
            buffer.end = end;
            return;
        }
        let held = buffer.content().len();
        let mut larger = self.take(held + content.len());
        let (old, new) = larger.split_at_mut(held);
        old.copy_from_slice(buffer.content());
        if let Some(room) = new.get_mut(..content.len()) {
            room.copy_from_slice(content);
        }
        let bytes = std::mem::replace(&mut buffer.bytes, larger);
        self.keep(bytes);
        buffer.start = 0;
        buffer.end = held + content.len();
    }

    /// Takes a buffer back.
    pub(crate) fn release(&mut self, buffer: Buffer) {
        self.buffers_out -= 1;
        self.keep(buffer.bytes);
    }

    /// Bytes taken from the allocator, and of them those in buffers that are in use.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.bytes_taken, self.bytes_taken - self.bytes_kept)
    }

    /// How many buffers are in use.
    pub(crate) fn buffers_out(&self) -> usize {
        self.buffers_out
    }

    /// Lets buffers go with the connection that holds them to another worker's pool, which
    /// [imports](Self::import) them.
    pub(crate) fn export(&mut self, (count, bytes): (usize, usize)) {
        self.buffers_out -= count;
        self.bytes_taken -= bytes;
    }

    /// Takes over buffers that another worker's pool let go.
    pub(crate) fn import(&mut self, (count, bytes): (usize, usize)) {
        self.buffers_out += count;
        self.bytes_taken += bytes;
    }

    fn take(&mut self, length: usize) -> Box<[u8]> {
        let class = CLASSES.iter().position(|&bytes| bytes >= length);
        if let Some(bytes) = class.and_then(|class| self.kept.get_mut(class)?.pop()) {
            self.bytes_kept -= bytes.len();
            return bytes;
        }
        let bytes = class.and_then(|class| CLASSES.get(class).copied());
        let bytes = bytes.unwrap_or(length);
        self.bytes_taken += bytes;
        self.store.account(bytes.cast_signed());
        vec![0; bytes].into_boxed_slice()
    }

    fn keep(&mut self, bytes: Box<[u8]>) {
        let class = CLASSES.iter().position(|&length| length == bytes.len());
        if let Some(kept) = class.and_then(|class| self.kept.get_mut(class))
            && (kept.len() + 1) * bytes.len() <= BUFFERS_KEPT_BYTES_MAX
        {
            self.bytes_kept += bytes.len();
            kept.push(bytes);
            return;
        }
        self.bytes_taken -= bytes.len();
        self.store.account(-bytes.len().cast_signed());
        if let Some(spent) = &mut self.spent {
            spent.push(bytes);
        }
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        self.store.account(-self.bytes_taken.cast_signed());
    }
}

impl Buffer {
    /// What it holds.
    pub(crate) fn content(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets the first `bytes`.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }
}

#[cfg(test)]
mod tests {
    use curtail_store::StoreConfig;

    use super::*;

    fn pool() -> BufferPool {
        BufferPool::new(Arc::new(Store::new(StoreConfig::default()).unwrap()))
    }

    #[test]
    fn content_moves_to_a_larger_class_and_keeps_its_order() {
        let mut pool = pool();
        let mut buffer = pool.hold(b"0123456789");
        buffer.consume(4);
        pool.append(&mut buffer, &[b'x'; 300]);
        assert_eq!(buffer.content()[..6], *b"456789");
        assert_eq!(buffer.content().len(), 306);
        pool.release(buffer);
        assert_eq!(pool.buffers_out(), 0);
    }

    /// Goal: the pool of a large worker, which may lose its processor for long at any moment, frees
    /// no memory, for which the allocator may take a lock of another thread. Method: a buffer that
    /// is too long to be kept, and the store's account.
    #[test]
    fn what_a_large_worker_does_not_keep_is_freed_elsewhere() {
        let mut pool = pool();
        let store = Arc::clone(&pool.store);
        let before = store.memory().accounted;
        pool.free_elsewhere();
        let large = pool.hold(&[7; 300 << 10]);
        pool.release(large);
        assert_eq!(store.memory().accounted, before);
        let spent = pool.take_spent();
        assert_eq!(
            spent.iter().map(|bytes| bytes.len()).sum::<usize>(),
            300 << 10
        );
        assert!(pool.take_spent().is_empty());
    }

    /// Goal: what is given back is used again and what is too much is freed. Method: count what
    /// the store was told.
    #[test]
    fn the_pool_reports_every_byte_to_the_store() {
        let mut pool = pool();
        let store = Arc::clone(&pool.store);
        let before = store.memory().accounted;
        let large: Vec<Buffer> = (0..3).map(|_| pool.hold(&[0; 300 << 10])).collect();
        assert_eq!(store.memory().accounted - before, 3 * (300 << 10));
        large.into_iter().for_each(|buffer| pool.release(buffer));
        assert_eq!(store.memory().accounted, before);
        let small = pool.hold(b"x");
        pool.release(small);
        assert_eq!(pool.bytes(), (256, 0));
        drop(pool);
        assert_eq!(store.memory().accounted, before);
    }
}
