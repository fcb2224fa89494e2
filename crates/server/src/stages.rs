//! How much work stood before requests, in three stages: before they were carried out, in the line
//! of a large worker, and before their replies were sent.
//!
//! The unit is work, not time: requests carried out ahead of one in its turn, connections ahead in
//! a large worker's line, replies' bytes sent ahead in the turn. It costs no clock, and on a shared
//! machine it tells the server's own queueing from the machine's stalls. Time is measured beside it
//! for one turn in 64.

use crate::sync::{AtomicU64, Relaxed};

/// A histogram by powers of two: class 0 is 0, class c is `2^(c-1)..2^c`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage([u64; CLASSES]);

/// One that others may read.
#[derive(Debug)]
pub(crate) struct PublishedStage([AtomicU64; CLASSES]);

/// The stages of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stages {
    /// Requests carried out ahead of a request in its turn.
    pub(crate) queue: Stage,
    /// Connections ahead of one in a large worker's line.
    pub(crate) large_queue: Stage,
    /// Kilobytes of replies sent ahead of a connection's in its turn.
    pub(crate) reply: Stage,
    /// Of measured turns: microseconds to receive and decode, to carry out, to send.
    pub(crate) collect_us: Stage,
    pub(crate) execute_us: Stage,
    pub(crate) reply_us: Stage,
}

/// The stages of one worker as others may read them.
#[derive(Debug, Default)]
pub(crate) struct PublishedStages {
    stages: [PublishedStage; 6],
}

/// Classes of a stage; the last holds everything above.
pub(crate) const CLASSES: usize = 18;

impl Stage {
    /// One more of `amount`.
    #[inline]
    pub(crate) fn record(&mut self, amount: u64) {
        if let Some(class) = self.0.get_mut(class_of(amount)) {
            *class += 1;
        }
    }

    /// One for each of `0..count`: the requests of a turn, each with those before it.
    #[inline]
    pub(crate) fn record_line(&mut self, count: u64) {
        let mut from = 0;
        for (class, number) in self.0.iter_mut().enumerate() {
            if from >= count {
                return;
            }
            let next = 1 << class;
            *number += count.min(next) - from;
            from = next;
        }
    }

    /// How many are in each class.
    pub(crate) fn classes(&self) -> &[u64; CLASSES] {
        &self.0
    }

    /// Adds another worker's.
    pub(crate) fn add(&mut self, other: &Self) {
        for (number, more) in self.0.iter_mut().zip(other.0) {
            *number += more;
        }
    }
}

impl Stages {
    /// All of them with their names, in one order.
    pub(crate) fn all(&self) -> [(&'static str, &Stage); 6] {
        [
            ("queue_requests_ahead", &self.queue),
            ("large_queue_connections_ahead", &self.large_queue),
            ("reply_kilobytes_ahead", &self.reply),
            ("collect_us", &self.collect_us),
            ("execute_us", &self.execute_us),
            ("reply_us", &self.reply_us),
        ]
    }

    /// Adds another worker's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.queue.add(&other.queue);
        self.large_queue.add(&other.large_queue);
        self.reply.add(&other.reply);
        self.collect_us.add(&other.collect_us);
        self.execute_us.add(&other.execute_us);
        self.reply_us.add(&other.reply_us);
    }
}

impl PublishedStages {
    /// Shows `stages` to the others; only their worker calls this, now and then.
    pub(crate) fn publish(&self, stages: &Stages) {
        for (shown, (_, stage)) in self.stages.iter().zip(stages.all()) {
            for (shown, number) in shown.0.iter().zip(stage.0) {
                shown.store(number, Relaxed);
            }
        }
    }

    pub(crate) fn read(&self) -> Stages {
        let mut stages = self.stages.each_ref().map(PublishedStage::read).into_iter();
        let mut next = || stages.next().unwrap_or_default();
        Stages {
            queue: next(),
            large_queue: next(),
            reply: next(),
            collect_us: next(),
            execute_us: next(),
            reply_us: next(),
        }
    }
}

impl PublishedStage {
    fn read(&self) -> Stage {
        Stage(std::array::from_fn(|class| {
            self.0.get(class).map_or(0, |shown| shown.load(Relaxed))
        }))
    }
}

impl Default for PublishedStage {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; CLASSES])
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
            (0..count).for_each(|ahead| single.record(ahead));
            assert_eq!(line.classes(), single.classes(), "{count}");
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
    fn what_is_published_is_read() {
        let mut stages = Stages::default();
        stages.reply_us.record(5);
        stages.queue.record(0);
        let published = PublishedStages::default();
        published.publish(&stages);
        let mut sum = published.read();
        sum.add(&stages);
        assert_eq!(sum.reply_us.classes()[3], 2);
        assert_eq!(sum.queue.classes()[0], 2);
    }
}
