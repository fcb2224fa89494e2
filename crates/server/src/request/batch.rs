//! The requests of one turn side by side, so that the worker can prefetch all memory they touch
//! before it executes the first.
//!
//! A batch borrows from the memory that the turn received into; its own list is used again in the
//! next turn, so that collecting allocates nothing.

use curtail_codec::memcached::{Decoder, Request, SetHeader};
use curtail_store::Hint;
use curtail_types::KeyHash;

use crate::limits::REQUESTS_PER_TURN_MAX;

/// What a turn carries out, in order of arrival per connection.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    entries: Vec<Entry<'a>>,
}

/// One thing to do for one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The slot of the connection.
    pub(crate) slot: usize,
    /// The hash of the request's key; 0 for what has no key.
    pub(crate) hash: KeyHash,
    /// What to do.
    pub(crate) work: Work<'a>,
    /// Where it was decoded, so that it can be put off to a later turn.
    pub(crate) origin: Origin<'a>,
    /// Where its item was when memory was asked for it.
    pub(crate) hint: Hint,
}

/// Where a request was decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// The state of the connection's decoder before it.
    pub(crate) decoder: Decoder,
    /// The connection's input from it on, to the end of what was received.
    pub(crate) input: &'a [u8],
}

/// What to do for a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    /// A request, complete.
    Request(Request<'a>),
    /// The beginning of a large write; `rest` is what was received behind it.
    LargeSet {
        /// What is written.
        header: SetHeader<'a>,
        /// Bytes of the value, and perhaps requests after it.
        rest: &'a [u8],
    },
    /// The end of a large write that began in an earlier turn.
    LargeSetEnd {
        /// Whether the bytes behind the value were its line end.
        right: bool,
    },
    /// A login, judged while decoding.
    Login {
        /// Name and password were right.
        accepted: bool,
    },
    /// Not a request: send the reply, and close the connection if asked to.
    Malformed {
        /// What to answer.
        reply: &'static [u8],
        /// Whether to close then.
        close: bool,
    },
}

impl Work<'_> {
    /// Whether this is the beginning of a write of a value of so many bytes or more.
    pub(crate) fn writes(&self, bytes: usize) -> bool {
        matches!(self, Self::LargeSet { header, .. } if header.value_bytes as usize >= bytes)
    }
}

impl<'a> Batch<'a> {
    /// Room for more?
    #[inline]
    pub(crate) fn room(&self) -> usize {
        REQUESTS_PER_TURN_MAX.saturating_sub(self.entries.len())
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry<'a>) {
        self.entries.push(entry);
    }

    /// Adds a request, which is copied once, to its place. A whole entry that is pushed goes
    /// through the stack, because the list may have to grow first.
    #[inline(always)]
    pub(crate) fn push_request(
        &mut self,
        slot: usize,
        hash: KeyHash,
        request: &Request<'a>,
        origin: Origin<'a>,
    ) {
        let entry = self.entries.push_mut(Entry {
            slot,
            hash,
            work: Work::LargeSetEnd { right: false },
            origin,
            hint: Hint::default(),
        });
        entry.work = Work::Request(*request);
    }

    /// The entries, to note hints in.
    #[inline]
    pub(crate) fn entries_mut(&mut self) -> &mut [Entry<'a>] {
        &mut self.entries
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[Entry<'a>] {
        &self.entries
    }

    /// The same list, empty, ready to borrow from another turn's memory.
    pub(crate) fn recycle<'b>(mut self) -> Batch<'b> {
        self.entries.clear();
        // Collecting from a vector of the same layout reuses its memory; the test below would
        // notice if that ever changed.
        #[expect(
            clippy::unnecessary_filter_map,
            reason = "the type changes: another lifetime"
        )]
        let entries = self.entries.into_iter().filter_map(|_| None).collect();
        Batch { entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recycling_keeps_the_memory() {
        let mut batch = Batch::default();
        while batch.room() > 0 {
            batch.push(Entry {
                slot: 1,
                hash: KeyHash(0),
                work: Work::Malformed {
                    reply: b"",
                    close: false,
                },
                origin: Origin {
                    decoder: Decoder::new(false),
                    input: b"",
                },
                hint: Hint::default(),
            });
        }
        let capacity = batch.entries.capacity();
        let recycled = batch.recycle();
        assert!(recycled.entries().is_empty());
        assert_eq!(recycled.entries.capacity(), capacity);
    }
}
