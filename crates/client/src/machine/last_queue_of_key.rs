//! The queue that each key was sent to last.
//!
//! The server alone knows the secret that decides a key's queue, so a client cannot compute it; but
//! every answer names the queue, and keys are asked for again. A small table remembers it under a
//! hash of the client's own. A wrong guess counts a write against another queue's window, which
//! costs a little pressure in the wrong place and nothing else.

/// Guesses by key hash.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Routes {
    /// A queue's number plus one; 0 for what was never learnt.
    queues: Box<[u16]>,
}

/// Entries; a power of two.
const ENTRIES: usize = 4096;

impl Routes {
    pub(super) fn new() -> Self {
        Self {
            queues: vec![0; ENTRIES].into_boxed_slice(),
        }
    }

    /// The queue that this key's writes probably go to.
    pub(super) fn guess(&self, key_hash: u64) -> Option<u16> {
        let known = self.queues.get(entry(key_hash)).copied().unwrap_or(0);
        known.checked_sub(1)
    }

    /// A write of this key went to `queue`.
    pub(super) fn learn(&mut self, key_hash: u64, queue: u16) {
        if let Some(known) = self.queues.get_mut(entry(key_hash)) {
            *known = queue.saturating_add(1);
        }
    }

    /// The server has other queues now.
    pub(super) fn forget(&mut self) {
        self.queues.fill(0);
    }
}

const fn entry(key_hash: u64) -> usize {
    (key_hash >> 32) as usize & (ENTRIES - 1)
}

const _: () = assert!(ENTRIES.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_is_guessed_until_it_is_forgotten() {
        let mut routes = Routes::new();
        assert_eq!(routes.guess(7 << 32), None);
        routes.learn(7 << 32, 0);
        routes.learn(8 << 32, 15);
        assert_eq!(
            (routes.guess(7 << 32), routes.guess(8 << 32)),
            (Some(0), Some(15))
        );
        routes.forget();
        assert_eq!(routes.guess(7 << 32), None);
    }
}
