//! Memory for frames in flight: chunks of one size that are reused, and longer ones that are not.

/// Empty pieces for the next frames.
#[derive(Debug, Default)]
pub(crate) struct ChunkPool {
    free: Vec<Vec<u8>>,
    /// Bytes of all pieces, those in use among them.
    bytes: usize,
}

/// Bytes of a piece: room for some hundred small messages.
pub(crate) const CHUNK_BYTES: usize = 32 << 10;

/// Empty pieces that are kept: 2 MiB.
const FREE_MAX: usize = 64;

impl ChunkPool {
    /// An empty piece with room for `bytes` at least.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let free = self.free.pop_if(|_| bytes <= CHUNK_BYTES);
        free.unwrap_or_else(|| {
            let piece = Vec::with_capacity(bytes.max(CHUNK_BYTES));
            self.bytes += piece.capacity();
            piece
        })
    }

    /// Appends to a piece, which grows if it must.
    pub(crate) fn append(&mut self, chunk: &mut Vec<u8>, bytes: &[u8]) {
        let before = chunk.capacity();
        chunk.extend_from_slice(bytes);
        self.bytes += chunk.capacity() - before;
    }

    /// Bytes of memory that links hold.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a piece back.
    pub(crate) fn give(&mut self, mut chunk: Vec<u8>) {
        if chunk.capacity() == CHUNK_BYTES && self.free.len() < FREE_MAX {
            chunk.clear();
            self.free.push(chunk);
        } else {
            self.bytes = self.bytes.saturating_sub(chunk.capacity());
        }
    }
}
