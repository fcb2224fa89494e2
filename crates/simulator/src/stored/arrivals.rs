//! Where requests come from: one Poisson process and one generator.

use std::ops::Range;

use curtail_workload::{Generator, Kind, Phases, Poisson, Random, Stream, mix};

use crate::stored::{Stored, queues::Request};

/// Where requests come from.
#[derive(Debug)]
pub(super) struct Arrivals {
    times: Poisson,
    generator: Generator,
    places: Random,
    pub(super) left: u64,
    drawn: u64,
    measured: Range<u64>,
    pub(super) next_ns: u64,
}

impl Arrivals {
    pub(super) fn new(model: &Stored) -> Self {
        let mut times = Poisson::new(Phases::fixed(model.rate_mops * 1e6), mix(model.seed));
        let next_ns = times.next().unwrap_or(u64::MAX);
        let sixth = model.requests / 6;
        Self {
            times,
            generator: model.workload.generator(mix(model.seed), Stream::ONLY),
            places: Random::of_stream(model.seed, 3),
            left: model.requests,
            drawn: 0,
            measured: sixth..model.requests - sixth,
            next_ns,
        }
    }

    /// The next request, and a random word to place it by.
    #[inline]
    pub(super) fn request(&mut self, now: u64) -> (Request, u64) {
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
