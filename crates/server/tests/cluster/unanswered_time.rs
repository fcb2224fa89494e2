//! Measures for how long a key gave no reply.

use std::time::Duration;

use curtail_history::Entry;

/// The longest times in which keys gave no answer at a node to which nothing was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gaps {
    /// Hot keys, read.
    pub(crate) read: Duration,
    /// Hot keys, written.
    pub(crate) write: Duration,
    /// Keys that never are hot, read or written.
    pub(crate) cold: Duration,
}

impl Gaps {
    pub(crate) fn longest(&self) -> Duration {
        self.read.max(self.write).max(self.cold)
    }
}

/// The longest time between two answers that one client had, one after the other.
pub(crate) fn longest(entries: impl Iterator<Item = Entry>) -> Duration {
    let mut returns = entries.filter_map(|entry| Some(entry.returned?.0.ns));
    let Some(mut last) = returns.next() else {
        return Duration::MAX;
    };
    let mut longest = 0;
    for at in returns {
        longest = longest.max(at - last);
        last = at;
    }
    Duration::from_nanos(longest)
}
