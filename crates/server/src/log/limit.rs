//! Limits log lines that a peer can cause: so many a second, or one a minute of what lasts; and
//! a count of the suppressed ones.

use std::fmt::Display;

use curtail_types::Now;
use tracing::info;

use crate::{
    log::component,
    sync::{Mutex, lock},
};

/// Lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct Limit(Mutex<Second>);

#[derive(Debug, Default)]
struct Second {
    /// Which second of the server's this is; of what lasts, the one of the last line.
    number: u64,
    lines: u64,
    suppressed: u64,
}

/// Lines of one kind in a second.
const LINES_MAX: u64 = 10;

/// Seconds between lines of what lasts.
const LASTING_SECONDS: u64 = 60;

/// Lines that a peer can cause, each kind with its bound.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// Logins that were refused.
    pub(crate) refused_logins: Limit,
    /// Logins that were accepted.
    pub(crate) accepted_logins: Limit,
    /// Connections whose client does not speak the protocol.
    pub(crate) malformed: Limit,
    /// Commands that change the server.
    pub(crate) admin: Limit,
    /// Connections that the system could not give.
    pub(crate) accept: Limit,
}

impl Limit {
    /// Whether a line may be written in this second; if so, how many were suppressed since the last
    /// one.
    pub(crate) fn pass(&self, seconds: u64) -> Option<u64> {
        self.pass_within(seconds, 1, LINES_MAX)
    }

    /// The same for what is tried again until it ends: one line, then one a minute.
    pub(crate) fn pass_lasting(&self, seconds: u64) -> Option<u64> {
        self.pass_within(seconds, LASTING_SECONDS, 1)
    }

    /// How many were suppressed in seconds before this one, if that was not told yet.
    pub(crate) fn left(&self, seconds: u64) -> Option<u64> {
        self.left_within(seconds, 1)
    }

    /// The same of [`Limit::pass_lasting`], once a minute.
    pub(crate) fn left_lasting(&self, seconds: u64) -> Option<u64> {
        self.left_within(seconds, LASTING_SECONDS)
    }

    fn pass_within(&self, seconds: u64, period: u64, lines_max: u64) -> Option<u64> {
        let mut second = lock(&self.0);
        if seconds.abs_diff(second.number) >= period {
            second.number = seconds;
            second.lines = 0;
        }
        if second.lines == lines_max {
            second.suppressed += 1;
            return None;
        }
        second.lines += 1;
        Some(std::mem::take(&mut second.suppressed))
    }

    fn left_within(&self, seconds: u64, period: u64) -> Option<u64> {
        let mut second = lock(&self.0);
        let due = second.suppressed > 0 && seconds.abs_diff(second.number) >= period;
        due.then(|| std::mem::take(&mut second.suppressed))
    }
}

/// Writes that `peer` sent `flush_all`, which a node of a cluster may still refuse.
pub(crate) fn log_flush(limit: &Limit, now: Now, peer: &dyn Display) {
    if let Some(suppressed) = limit.pass(now.unix_seconds().into()) {
        info!(
            target: component::ADMIN,
            %peer,
            suppressed,
            "received flush_all, which removes all items"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a flood makes ten lines a second, and none of the others is forgotten. Method: a
    /// thousand in one second, then a quiet one.
    #[test]
    fn a_flood_is_counted() {
        let limit = Limit::default();
        let passed = (0..1000).filter(|_| limit.pass(5).is_some()).count();
        assert_eq!(passed as u64, LINES_MAX);
        assert_eq!(limit.left(5), None, "the second is not over");
        assert_eq!(limit.left(6), Some(1000 - LINES_MAX));
        assert_eq!(limit.left(6), None, "it is told once");
        assert_eq!(limit.pass(6), Some(0));
    }

    /// Goal: what is tried again a hundred times a second makes a line a minute.
    #[test]
    fn what_lasts_makes_a_line_a_minute() {
        let limit = Limit::default();
        let mut told = 0;
        for seconds in 1_000..1_120 {
            assert_eq!(
                limit.left_lasting(seconds),
                (seconds == 1_060).then_some(5_999)
            );
            told += (0..100)
                .filter(|_| limit.pass_lasting(seconds).is_some())
                .count();
        }
        assert_eq!(told, 2);
        assert_eq!(limit.left_lasting(1_119), None, "the minute is not over");
        assert_eq!(limit.pass_lasting(1_120), Some(5_999));
    }

    #[test]
    fn the_next_line_tells_what_was_suppressed() {
        let limit = Limit::default();
        (0..LINES_MAX + 7).for_each(|_| _ = limit.pass(1));
        assert_eq!(limit.pass(2), Some(7));
    }
}
