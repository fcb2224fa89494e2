//! Histograms of the work ahead of requests and of their time, stage by stage.
//!
//! The first unit is work, not time: requests carried out ahead of one, connections ahead in a
//! large worker's line, replies' bytes sent ahead in the turn. It costs no clock, and on a shared
//! machine it tells the server's own queueing from the machine's stalls. Time is measured beside it
//! in microseconds, apart for small and large requests: of small ones in one turn of 64, of large
//! ones that a large worker has always. In those turns the work ahead is also told apart by
//! size, in requests and in kilobytes; see `note_work_ahead`.
//!
//! ```text
//!            queue                     execute              reply
//!  small  |-- the turn before it ---|-- its batch -------|-- sending the turn's replies --|
//!  large  |-- until a large worker  |-- until the value  |-- until the kernel has all of  |
//!         |   has the connection    |   is stored (SET)  |   the value (GET)              |
//! ```

use crate::sync::{AtomicU64, Relaxed};

/// A histogram by powers of two: class 0 is 0, class c is `2^(c-1)..2^c`. Behind the classes stands
/// the sum of all amounts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stage([u64; NUMBERS]);

/// What is told of requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum StageName {
    /// Requests carried out ahead of a request in its turn.
    Queue,
    /// Requests carried out ahead of a connection's first since the connection stood in line.
    Line,
    /// Connections ahead of one in a large worker's line.
    LargeQueue,
    /// Kilobytes of replies sent ahead of a connection's in its turn.
    Reply,
    QueueSmall,
    QueueLarge,
    ExecuteSmall,
    ExecuteLarge,
    ReplySmall,
    ReplyLarge,
    /// Requests carried out ahead of a request in its turn.
    AheadSmall,
    AheadLarge,
    /// Kilobytes moved ahead of it since its worker last looked for requests.
    KilobytesSmall,
    KilobytesLarge,
    Length,
}

/// The stages of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stages([Stage; LENGTH]);

/// The stages of one worker as others may read them.
#[derive(Debug)]
pub(crate) struct PublishedStages([PublishedStage; LENGTH]);

/// One that others may read.
type PublishedStage = [AtomicU64; NUMBERS];

/// Classes of a stage; the last holds everything above.
pub(crate) const CLASSES: usize = 18;

const NUMBERS: usize = CLASSES + 1;

const LENGTH: usize = StageName::Length as usize;

/// How stages are called, and the size of the requests that they are about if that is one.
const NAMES: [(&str, Option<&str>); LENGTH] = [
    ("queue_requests_ahead", None),
    ("line_requests_ahead", None),
    ("large_queue_connections_ahead", None),
    ("reply_kilobytes_ahead", None),
    ("queue_us", Some("small")),
    ("queue_us", Some("large")),
    ("execute_us", Some("small")),
    ("execute_us", Some("large")),
    ("reply_us", Some("small")),
    ("reply_us", Some("large")),
    ("ahead_requests", Some("small")),
    ("ahead_requests", Some("large")),
    ("ahead_kilobytes", Some("small")),
    ("ahead_kilobytes", Some("large")),
];

impl Stage {
    /// `count` more of `amount`.
    #[inline]
    fn record(&mut self, amount: u64, count: u64) {
        if let Some(class) = self.0.get_mut(class_of(amount)) {
            *class += count;
        }
        self.add_to_sum(amount * count);
    }

    /// One for each of `0..count`: the requests of a turn, each with those before it.
    #[inline]
    fn record_line(&mut self, count: u64) {
        let mut from = 0;
        self.add_to_sum(count * count.saturating_sub(1) / 2);
        for (class, number) in self.0.iter_mut().take(CLASSES).enumerate() {
            if from >= count {
                return;
            }
            let next = 1 << class;
            *number += count.min(next) - from;
            from = next;
        }
    }

    /// How many are in each class.
    pub(crate) fn classes(&self) -> &[u64] {
        self.0.get(..CLASSES).unwrap_or_default()
    }

    /// The sum of all amounts.
    pub(crate) fn sum(&self) -> u64 {
        self.0.get(CLASSES).copied().unwrap_or(0)
    }

    #[inline]
    fn add_to_sum(&mut self, amount: u64) {
        if let Some(sum) = self.0.get_mut(CLASSES) {
            *sum += amount;
        }
    }
}

impl Stages {
    /// One more of `amount`.
    #[inline]
    pub(crate) fn record(&mut self, name: StageName, amount: u64) {
        self.record_many(name, amount, 1);
    }

    /// `count` more of `amount`.
    #[inline]
    pub(crate) fn record_many(&mut self, name: StageName, amount: u64, count: u64) {
        if let Some(stage) = self.0.get_mut(name as usize) {
            stage.record(amount, count);
        }
    }

    /// One for each of `0..count`.
    #[inline]
    pub(crate) fn record_line(&mut self, name: StageName, count: u64) {
        if let Some(stage) = self.0.get_mut(name as usize) {
            stage.record_line(count);
        }
    }

    /// One of them.
    pub(crate) fn get(&self, name: StageName) -> Stage {
        self.0.get(name as usize).copied().unwrap_or_default()
    }

    /// All of them with their names and sizes, in one order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, Option<&'static str>, &Stage)> {
        let named = NAMES.iter().zip(&self.0);
        named.map(|((name, size), stage)| (*name, *size, stage))
    }

    /// Adds another worker's.
    pub(crate) fn add(&mut self, other: &Self) {
        let classes = |stages: &Self| stages.0.map(|stage| stage.0);
        let more = classes(other);
        for (stage, more) in self.0.iter_mut().zip(more) {
            for (number, more) in stage.0.iter_mut().zip(more) {
                *number += more;
            }
        }
    }
}

impl PublishedStages {
    /// Shows `stages` to the others; only their worker calls this, now and then.
    pub(crate) fn publish(&self, stages: &Stages) {
        for (shown, stage) in self.0.iter().zip(&stages.0) {
            for (shown, number) in shown.iter().zip(stage.0) {
                shown.store(number, Relaxed);
            }
        }
    }

    pub(crate) fn read(&self) -> Stages {
        let load = |number: &AtomicU64| number.load(Relaxed);
        let stages = self.0.each_ref();
        Stages(stages.map(|stage| Stage(stage.each_ref().map(load))))
    }
}

impl Default for PublishedStages {
    fn default() -> Self {
        Self([const { [const { AtomicU64::new(0) }; NUMBERS] }; LENGTH])
    }
}

/// The smallest amount above a class; `None` for the last.
pub(crate) fn bound_of(class: usize) -> Option<u64> {
    (class + 1 < CLASSES).then(|| 1 << class)
}

#[inline]
fn class_of(amount: u64) -> usize {
    ((u64::BITS - amount.leading_zeros()) as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line counts like its members. Method: both ways for lines of every length up to 600.
    #[test]
    fn a_line_is_the_sum_of_its_places() {
        for count in 0..600 {
            let (mut line, mut single) = (Stage::default(), Stage::default());
            line.record_line(count);
            (0..count).for_each(|ahead| single.record(ahead, 1));
            assert_eq!(line.0, single.0, "{count}");
        }
    }

    #[test]
    fn classes_end_below_their_bounds() {
        for class in 0..CLASSES - 1 {
            let bound = bound_of(class).unwrap();
            assert_eq!((class_of(bound - 1), class_of(bound)), (class, class + 1));
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn what_is_published_is_read_under_its_name() {
        let mut stages = Stages::default();
        stages.record(StageName::ReplyLarge, 5);
        stages.record(StageName::Queue, 0);
        let published = PublishedStages::default();
        published.publish(&stages);
        let mut sum = published.read();
        sum.add(&stages);
        let classes = |name, size| {
            let mut all = sum.all();
            let found = all.find(|stage| (stage.0, stage.1) == (name, size));
            found.unwrap().2.classes().to_vec()
        };
        assert_eq!(classes("reply_us", Some("large"))[3], 2);
        assert_eq!(classes("queue_requests_ahead", None)[0], 2);
        assert_eq!(classes("reply_us", Some("small")), [0; CLASSES]);
    }
}
