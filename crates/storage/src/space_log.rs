//! Says once that the disk has too little free space, and once that it has enough again.
//!
//! After a write without room the engine tries again, so its state may alternate while the disk
//! stays full. So it counts as recovered only when it has taken writes for a while.

use std::time::{Duration, Instant};

/// What an operator has to know of the free space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SpaceNews {
    /// Writes are refused.
    Short,
    /// Writes are taken again.
    Enough,
}

/// What was said.
#[derive(Debug, Default)]
pub(crate) struct SpaceLog {
    is_short: bool,
    /// Since when there has been space, while it is said that there is none.
    enough_since: Option<Instant>,
}

/// How long there must be space until this is said.
const SETTLED: Duration = Duration::from_secs(1);

impl SpaceLog {
    /// What to say now, if anything; `is_short`: whether writes are refused for lack of space.
    pub(crate) fn note(&mut self, is_short: bool, now: Instant) -> Option<SpaceNews> {
        if is_short {
            self.enough_since = None;
            return (!std::mem::replace(&mut self.is_short, true)).then_some(SpaceNews::Short);
        }
        if !self.is_short {
            return None;
        }
        let since = *self.enough_since.get_or_insert(now);
        if now.duration_since(since) < SETTLED {
            return None;
        }
        *self = Self::default();
        Some(SpaceNews::Enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one line when space is short and one when it has recovered, also if attempts to write
    /// alternate with refusals meanwhile. Method: the states of ten seconds, one every 200 ms.
    #[test]
    fn a_full_disk_is_said_once_and_its_recovery_once() {
        let mut log = SpaceLog::default();
        let start = Instant::now();
        let mut said = Vec::new();
        for look in 0..50 {
            let is_short = match look {
                10..20 => true,
                20..30 => look % 2 == 0,
                _ => false,
            };
            let now = start + Duration::from_millis(200) * look;
            said.extend(log.note(is_short, now).map(|news| (look, news)));
        }
        assert_eq!(said, [(10, SpaceNews::Short), (34, SpaceNews::Enough)]);
    }
}
