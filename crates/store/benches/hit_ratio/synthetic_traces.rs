//! Synthetic traces, on which nothing was tuned: they show whether the choice holds elsewhere.

use crate::trace::Trace;

/// Zipf's law that stays, whose objects become popular slowly and then vanish, whose newest object
/// is always the most popular, and one between which loops and objects asked for once pass by.
pub(crate) fn traces() -> Vec<Trace> {
    vec![
        made("Zipf 0.9", |random, _| random.zipf()),
        made("Zipf 0.9, rising to the top, then gone", |random, time| {
            (random.zipf() + time / 10) % OBJECTS
        }),
        made("Zipf 0.9, the newest at the top", |random, time| {
            OBJECTS + time / 10 - random.zipf()
        }),
        made("Zipf 0.9 between loops", |random, time| match time % 3 {
            0 => OBJECTS + time / 3 % (OBJECTS / 2),
            _ => random.zipf(),
        }),
        made("Zipf 0.9, half asked for once", |random, time| {
            match time % 2 {
                0 => OBJECTS + time,
                _ => random.zipf(),
            }
        }),
    ]
}

const OBJECTS: u64 = 100_000;
const REQUESTS: u64 = 1_000_000;

fn made(name: &'static str, mut next: impl FnMut(&mut Random, u64) -> u64) -> Trace {
    let mut random = Random::new();
    let blocks = (0..REQUESTS).map(|time| next(&mut random, time));
    Trace::of_blocks(name, blocks)
}

/// Marsaglia's xorshift64*, and the ranks of Zipf's law by their cumulated weights.
struct Random {
    state: u64,
    cumulated: Vec<f64>,
}

impl Random {
    fn new() -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| {
            sum += (rank as f64 + 1.0).powf(-0.9);
            sum
        };
        Self {
            state: 0x1234_5678_9ABC_DEF1,
            cumulated: (0..OBJECTS).map(weight).collect(),
        }
    }

    fn zipf(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let bits = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        let sum = self.cumulated.last().copied().unwrap_or_default();
        let point = bits as f64 / (1_u64 << 53) as f64 * sum;
        self.cumulated
            .partition_point(|&cumulated| cumulated <= point) as u64
    }
}
