//! Audits the queue's promises from outside, by what clients were told and when.
//!
//! Every bucket of keys remembers the greatest position that a client knows to be accepted. A read
//! takes that number when it is sent, and what it is answered from must be at least as new. Buckets
//! are those of the stamps, so that a bucket belongs to one queue.

use crate::juneberry::Wrong;

/// What clients know, by bucket.
#[derive(Debug)]
pub(super) struct Audit {
    /// Position + 1.
    known: Box<[u64]>,
    pub(super) wrong: Wrong,
}

impl Audit {
    pub(super) fn new() -> Self {
        Self {
            known: vec![0; BUCKETS].into(),
            wrong: Wrong::default(),
        }
    }

    /// A client was told that this write has its place.
    #[inline]
    pub(super) fn accepted(&mut self, hash: u64, pos: u64) {
        let known = &mut self.known[bucket(hash)];
        *known = (*known).max(pos + 1);
    }

    /// What a read that is sent now must see.
    #[inline]
    pub(super) fn needs(&self, hash: u64) -> u64 {
        self.known[bucket(hash)]
    }

    /// A read was answered from a state in which everything below `sees` was executed.
    #[inline]
    pub(super) fn read(&mut self, needs: u64, sees: u64) {
        self.wrong.stale_reads += u64::from(sees < needs);
    }
}

#[inline]
fn bucket(hash: u64) -> usize {
    (hash >> (64 - BUCKETS.trailing_zeros())) as usize
}

const BUCKETS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_must_see_what_was_told_before_it_was_sent() {
        let mut audit = Audit::new();
        let hash = 7 << 50;
        assert_eq!(audit.needs(hash), 0);
        audit.accepted(hash, 4);
        audit.accepted(hash, 2);
        assert_eq!(audit.needs(hash), 5);
        audit.read(5, 5);
        assert_eq!(audit.wrong.stale_reads, 0);
        audit.read(5, 4);
        assert_eq!(audit.wrong.stale_reads, 1);
    }
}
