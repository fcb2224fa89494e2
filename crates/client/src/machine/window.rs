//! How many writes one queue of the server may have of ours: additive increase, multiplicative
//! decrease (Chiu and Jain, 1989), held below the credits that the server last told.
//!
//! A card's receive queue without this collapses just above its capacity, because a client whose
//! writes are acknowledged before they are executed feels no pressure (Juneberry, NSDI 2025,
//! section 7; JB-16, JB-44). A full queue halves the window and closes it for a random time, once a
//! round trip, however many refusals come back together.

/// The window of one queue. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Window {
    /// Writes that may be outstanding, in 256ths.
    limit: u32,
    /// The window never grows beyond this.
    limit_max: u32,
    outstanding: u16,
    /// Free slots of the queue, as last told.
    credits: u32,
    /// Nothing new before this.
    closed_until_ns: u64,
    /// When it was last made smaller.
    cut_ns: u64,
}

/// One write, as the limit counts.
const ONE: u32 = 256;

impl Window {
    /// A window of `writes` to begin with, `writes_max` at most.
    pub(super) fn new(writes: u32, writes_max: u32) -> Self {
        let writes_max = writes_max.clamp(1, u32::MAX / ONE);
        Self {
            limit: writes.clamp(1, writes_max) * ONE,
            limit_max: writes_max * ONE,
            outstanding: 0,
            credits: writes.max(1),
            closed_until_ns: 0,
            cut_ns: 0,
        }
    }

    /// Whether one more write may be sent. A queue without credits is tried with one write, since
    /// only an answer can tell that it has some again.
    pub(super) fn admits(&self, now_ns: u64) -> bool {
        let writes = (self.limit / ONE).min(self.credits.max(1));
        now_ns >= self.closed_until_ns && u32::from(self.outstanding) < writes
    }

    /// A write was sent.
    pub(super) fn take(&mut self) {
        self.outstanding += 1;
    }

    /// A write is no longer outstanding, however it ended.
    pub(super) fn release(&mut self) {
        assert!(self.outstanding > 0, "a window is released once a write");
        self.outstanding -= 1;
    }

    /// The queue took a write; it has this many credits left.
    pub(super) fn accepted(&mut self, credits: u32) {
        self.credits = credits;
        let step = ONE * ONE / self.limit.max(ONE);
        self.limit = (self.limit + step.max(1)).min(self.limit_max);
    }

    /// The queue was full: halves the window unless that was done within the last `round_trip_ns`,
    /// and closes it for `pause_ns`.
    pub(super) fn refused(&mut self, now_ns: u64, round_trip_ns: u64, pause_ns: u64, credits: u32) {
        self.credits = credits;
        if self.cut(now_ns, round_trip_ns) {
            self.closed_until_ns = now_ns + pause_ns;
        }
    }

    /// The queue was full, and nothing follows from that but a pause.
    pub(super) fn not_ready(&mut self, now_ns: u64, pause_ns: u64) {
        self.closed_until_ns = self.closed_until_ns.max(now_ns + pause_ns);
    }

    /// As if the queue had room without end.
    pub(super) fn forget_credits(&mut self) {
        self.credits = u32::MAX;
    }

    /// A write was not answered in time.
    pub(super) fn silent(&mut self, now_ns: u64, round_trip_ns: u64) {
        self.cut(now_ns, round_trip_ns);
    }

    /// When it opens again, if it is closed.
    pub(super) fn opens_ns(&self, now_ns: u64) -> Option<u64> {
        (self.closed_until_ns > now_ns).then_some(self.closed_until_ns)
    }

    /// The credits that were last told.
    pub(super) fn credits(&self) -> u32 {
        self.credits
    }

    /// Whole writes that may be outstanding.
    pub(super) fn writes(&self) -> u32 {
        self.limit / ONE
    }

    /// Halves the window; false if it was just done.
    fn cut(&mut self, now_ns: u64, round_trip_ns: u64) -> bool {
        if self.cut_ns != 0 && now_ns < self.cut_ns.saturating_add(round_trip_ns) {
            return false;
        }
        self.cut_ns = now_ns.max(1);
        self.limit = (self.limit / 2).max(ONE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: u64 = 20_000;

    /// Goal: a round trip of answers adds about one write, and a full queue halves the window once.
    /// Method: a window of 8 is answered 8 times, then refused by all of the next 8.
    #[test]
    fn it_grows_by_one_a_round_trip_and_is_halved_once() {
        let mut window = Window::new(8, 64);
        (0..8).for_each(|_| window.accepted(1000));
        assert_eq!(window.writes(), 8);
        window.accepted(1000);
        assert_eq!(
            window.writes(),
            9,
            "nine answers are a little more than a round trip"
        );
        for i in 0..8 {
            window.refused(1_000_000 + i, RTT, 5000, 0);
        }
        assert_eq!(window.writes(), 4, "halved once, not eight times");
        assert!(!window.admits(1_004_999), "closed for a pause");
        assert_eq!(window.opens_ns(1_004_999), Some(1_005_000));
        assert!(
            window.admits(1_005_000),
            "one write tries a queue without credits"
        );
        window.take();
        assert!(!window.admits(1_005_000), "and one only");
        window.refused(1_000_000 + RTT, RTT, 5000, 0);
        assert_eq!(window.writes(), 2);
    }

    #[test]
    fn it_never_has_more_outstanding_than_credits() {
        let mut window = Window::new(64, 64);
        window.accepted(3);
        (0..3).for_each(|_| {
            assert!(window.admits(0));
            window.take();
        });
        assert!(!window.admits(0));
        window.release();
        assert!(window.admits(0));
    }

    #[test]
    fn it_never_closes_for_good_and_never_grows_beyond_its_bound() {
        let mut window = Window::new(1, 2);
        (1..100).for_each(|i| window.refused(i * 2 * RTT, RTT, 0, 0));
        assert_eq!(window.writes(), 1);
        assert!(window.admits(200 * RTT));
        (0..10_000).for_each(|_| window.accepted(1000));
        assert_eq!(window.writes(), 2);
    }
}
