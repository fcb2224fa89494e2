//! Where requests come from: one Poisson process and one generator.

use std::ops::Range;

use curtail_workload::{Generator, Kind, Phases, Poisson, Random, Stream, Workload, mix};

use crate::stored::queues::Request;

/// Where requests come from.
#[derive(Debug)]
pub(crate) struct Arrivals {
    times: Poisson,
    generator: Generator,
    places: Random,
    pub(crate) left: u64,
    drawn: u64,
    measured: Range<u64>,
    pub(crate) next_ns: u64,
}

impl Arrivals {
    /// `requests` in all, at a rate in millions a second.
    pub(crate) fn new(workload: &Workload, rate_mops: f64, requests: u64, seed: u64) -> Self {
        assert!(rate_mops > 0.0 && requests > 0);
        let mut times = Poisson::new(Phases::fixed(rate_mops * 1e6), mix(seed));
        let next_ns = times.next().unwrap_or(u64::MAX);
        let sixth = requests / 6;
        Self {
            times,
            generator: workload.generator(mix(seed), Stream::ONLY),
            places: Random::of_stream(seed, 3),
            left: requests,
            drawn: 0,
            measured: sixth..requests - sixth,
            next_ns,
        }
    }

    /// The next request, and a random word to place it by.
    #[inline]
    pub(crate) fn request(&mut self, now: u64) -> (Request, u64) {
        let drawn = self.generator.draw(now);
        let measured = self.measured.contains(&self.drawn);
        self.drawn += 1;
        self.left -= 1;
        self.next_ns = match self.left {
            0 => u64::MAX,
            _ => self.times.next().unwrap_or(u64::MAX),
        };
        let request = Request {
            at: now,
            extra: 0,
            delivered: now,
            bound: now,
            hash: mix(drawn.key),
            value_bytes: drawn.item.value_bytes,
            rx: 0,
            write: drawn.kind != Kind::Get,
            large: drawn.item.large,
            measured,
        };
        (request, self.places.next())
    }
}
