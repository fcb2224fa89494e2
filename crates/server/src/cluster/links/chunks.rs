//! Memory for frames that are on their way: pieces of one size that are used again, and longer ones
//! that are not.

/// Empty pieces for the next frames.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    free: Vec<Vec<u8>>,
}

/// Bytes of a piece: room for some hundred small messages.
pub(super) const CHUNK_BYTES: usize = 32 << 10;

/// Empty pieces that are kept: 2 MiB.
const FREE_MAX: usize = 64;

impl Chunks {
    /// An empty piece with room for `bytes` at least.
    pub(super) fn take(&mut self, bytes: usize) -> Vec<u8> {
        if bytes > CHUNK_BYTES {
            return Vec::with_capacity(bytes);
        }
        let free = self.free.pop();
        free.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES))
    }

    /// Takes a piece back.
    pub(super) fn give(&mut self, mut chunk: Vec<u8>) {
        if chunk.capacity() == CHUNK_BYTES && self.free.len() < FREE_MAX {
            chunk.clear();
            self.free.push(chunk);
        }
    }
}
