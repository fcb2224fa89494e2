//! Limits the share of a worker's time that moves take: short batches with pauses between them.
//!
//! ```text
//!   requests |#####|  |########|     |###|      |#####
//!   batches        |b|          |b|       |b|           a batch: until its time is up
//!                    |<- pause ->|                      pause: so many times what it took
//! ```
//!
//! A batch is timed by the clock of the machine, not by that of the thread: a worker that lost its
//! processor meanwhile shares it with others who have work, and pauses for longer. What the batches
//! cost where the keys arrive is about the same; so a pace is a part of *that* node's time, and
//! those who send to it divide it among them.

/// When the next batch may begin, and what batches took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    next_ns: u64,
    /// Time and steps of all batches since [`Pace::begin`].
    spent_ns: u64,
    steps: u64,
    /// When moves have to be over, as far as that can be.
    end_ns: Option<u64>,
}

/// What the next batch may take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Share {
    /// No step begins after so long.
    pub(super) batch_ns: u64,
    /// Batches take one part in so many of the time.
    pub(super) parts: u64,
}

/// Beside requests: some five keys, which delay a request by hardly more than another request does.
const BUSY: Share = Share {
    batch_ns: 10_000,
    parts: 64,
};

/// For nobody's harm: where nodes share processors the others may have work all the same.
const IDLE: Share = Share {
    batch_ns: 100_000,
    parts: 4,
};

/// So long after the last request a worker has nothing else to do.
const IDLE_AFTER_NS: u64 = 10_000_000;

/// A turn that requests led to is waited for so long.
const SLACK_NS: u64 = 1_000_000;

/// However long a batch took, the next is not later: moves come to an end on every machine.
const PAUSE_NS_MAX: u64 = 5_000_000;

/// In a hurry a worker still gives requests this part of its time.
const HURRY_PARTS_MIN: u64 = 2;

/// What a step takes as long as none was timed.
const STEP_NS: u64 = 2_000;

impl Pace {
    /// Other moves begin; they are to be over at `end_ns`, if that matters.
    pub(super) fn begin(&mut self, end_ns: Option<u64>) {
        *self = Self {
            next_ns: self.next_ns,
            end_ns,
            ..Self::default()
        };
    }

    /// When the next batch may begin.
    pub(super) fn due_ns(&self) -> u64 {
        self.next_ns
    }

    /// When to begin a turn for the next batch alone: later than it may begin, if requests lead to
    /// turns anyhow. Between nodes that share processors every waking is felt.
    pub(super) fn wake_ns(&self, now_ns: u64, asked_ns: u64) -> u64 {
        match is_idle(now_ns, asked_ns) {
            true => self.next_ns,
            false => self.next_ns + SLACK_NS,
        }
    }

    /// What a batch at `now_ns` may take, if the last request came at `asked_ns`, `senders` nodes
    /// send to each that receives, and there are `left` keys to look at.
    pub(super) fn share(&self, now_ns: u64, asked_ns: u64, senders: u64, left: u64) -> Share {
        let Share { batch_ns, parts } = match is_idle(now_ns, asked_ns) {
            true => IDLE,
            false => BUSY,
        };
        let parts = parts * senders.max(1);
        let parts = match self.end_ns {
            None => parts,
            Some(end_ns) => {
                let step_ns = self.spent_ns.checked_div(self.steps).unwrap_or(STEP_NS);
                let needed_ns = left.saturating_mul(step_ns).max(1);
                let enough = end_ns.saturating_sub(now_ns) / needed_ns;
                enough.clamp(HURRY_PARTS_MIN, parts)
            }
        };
        Share { batch_ns, parts }
    }

    /// One batch: `step` again and again until it says that there is no more to do now, or the time
    /// of the batch is up. Nothing if it is too early for one.
    pub(super) fn run(
        &mut self,
        clock: impl Fn() -> u64,
        share: Share,
        mut step: impl FnMut() -> bool,
    ) {
        let begun_ns = clock();
        if begun_ns < self.next_ns {
            return;
        }
        let mut now_ns = begun_ns;
        let mut goes_on = true;
        while goes_on && now_ns - begun_ns < share.batch_ns {
            goes_on = step();
            self.steps += 1;
            now_ns = clock().max(now_ns);
        }
        let took_ns = now_ns - begun_ns;
        self.spent_ns += took_ns;
        let pause_ns = took_ns.saturating_mul(share.parts.saturating_sub(1));
        self.next_ns = now_ns + pause_ns.min(PAUSE_NS_MAX);
    }
}

fn is_idle(now_ns: u64, asked_ns: u64) -> bool {
    now_ns.saturating_sub(asked_ns) > IDLE_AFTER_NS
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A worker that does nothing but look whether a batch is due, every microsecond, for
    /// `total_ns`; a step takes `step_ns`, and every so many it loses its processor. Returns the
    /// time that steps took, and how many there were.
    fn work(total_ns: u64, share: Share, step_ns: u64, lost: Option<(u64, u64)>) -> (u64, u64) {
        let now = Cell::new(0);
        let (mut spent_ns, mut steps) = (0, 0);
        let mut pace = Pace::default();
        while now.get() < total_ns {
            pace.run(
                || now.get(),
                share,
                || {
                    steps += 1;
                    let lost = lost.filter(|(every, _)| u64::is_multiple_of(steps, *every));
                    now.set(now.get() + step_ns + lost.map_or(0, |(_, ns)| ns));
                    spent_ns += step_ns;
                    true
                },
            );
            now.set(now.get() + 1_000);
        }
        (spent_ns, steps)
    }

    /// Goal: moves take their part of the time and no more, and not much less. Method: virtual
    /// time; a worker that always has keys to send and steps of several lengths.
    #[test]
    fn batches_take_their_share_of_the_time() {
        for step_ns in [500, 2_000, 30_000] {
            for share in [BUSY, IDLE] {
                let total_ns = 1_000_000_000;
                let (spent_ns, _) = work(total_ns, share, step_ns, None);
                let part_ns = total_ns / share.parts;
                assert!(
                    spent_ns <= part_ns + share.batch_ns,
                    "{share:?}: {spent_ns}"
                );
                assert!(spent_ns >= part_ns * 9 / 10, "{share:?}: {spent_ns}");
            }
        }
    }

    /// Goal: a request waits for one short batch. Method: a step that always has more to do.
    #[test]
    fn a_batch_ends_when_its_time_is_up() {
        let now = Cell::new(7);
        let mut steps = 0;
        Pace::default().run(
            || now.get(),
            BUSY,
            || {
                steps += 1;
                now.set(now.get() + 2_000);
                true
            },
        );
        assert_eq!(steps, BUSY.batch_ns / 2_000);
    }

    /// Goal: who shares a busy processor yields, and comes to an end all the same. Method: every
    /// tenth step loses the processor for 4 ms, or for ever so long.
    #[test]
    fn a_worker_that_loses_its_processor_pauses_for_longer_but_goes_on() {
        let total_ns = 1_000_000_000;
        let (_, undisturbed) = work(total_ns, BUSY, 2_000, None);
        let (_, steps) = work(total_ns, BUSY, 2_000, Some((10, 4_000_000)));
        assert!(steps * 10 < undisturbed * 9, "{steps} of {undisturbed}");
        let (_, steps) = work(total_ns, BUSY, 2_000, Some((1, 50_000_000)));
        assert!(
            steps >= total_ns / (50_000_000 + PAUSE_NS_MAX + 3_000),
            "{steps}"
        );
    }

    /// Goal: the nodes that send to one divide its time, one that was asked for nothing lately is
    /// faster, and one that has to end is in time. Method: what batches of each may take.
    #[test]
    fn the_share_follows_the_pending_work() {
        let pace = Pace::default();
        let busy = pace.share(1_000, 1_000, 1, 1_000_000);
        assert_eq!(busy, BUSY);
        assert_eq!(pace.share(1_000, 1_000, 3, 0).parts, 3 * BUSY.parts);
        assert_eq!(pace.share(IDLE_AFTER_NS + 2_000, 1_000, 1, 0), IDLE);
        let mut hurried = pace;
        hurried.begin(Some(10_000_000_000));
        let parts = |left: u64| hurried.share(0, 0, 1, left).parts;
        assert_eq!(parts(1_000), BUSY.parts, "there is time enough");
        let left = 1_000_000;
        assert_eq!(parts(left), 10_000_000_000 / (left * STEP_NS));
        assert_eq!(parts(u64::MAX), HURRY_PARTS_MIN);
        assert_eq!(
            hurried.share(20_000_000_000, 0, 1, 1).parts,
            HURRY_PARTS_MIN
        );
    }
}
