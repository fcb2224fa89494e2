//! Arrivals: one Poisson process, and the operation of each request.

use std::ops::Range;

use curtail_dispatch::pull_baselines::Source;
use curtail_workload::{
    Chance, Generator, Kind, Phases, Poisson, Random, Ranks, Stream, Workload, mix,
};

use crate::{
    c4::key_buckets,
    queueing::{
        outstanding_requests::{Request, Way},
        tournament::NO_TIME,
    },
};

/// Where requests come from.
#[derive(Debug)]
pub(crate) struct Arrivals<'a> {
    asks: Asks<'a>,
    times: Poisson,
    places: Random,
    pub(crate) left: u64,
    drawn: u64,
    measured: Range<u64>,
    /// When the next one was sent.
    sent_ns: u64,
    /// From there to the core that decides about it.
    input_ns: u64,
    /// What a request takes of a core that balances, and when that has done all before.
    dispatch_ns: u64,
    dispatched_ns: u64,
}

/// What is asked for.
#[derive(Debug)]
enum Asks<'a> {
    /// Keys by their rank, placed as C-4's authors place them, and a share of writes.
    Ranks {
        ranks: &'a Ranks,
        popular: &'static [u32],
        keys: Random,
        kinds: Random,
        writes: Chance,
    },
    Workload(Box<Generator>),
}

impl<'a> Arrivals<'a> {
    /// `requests` in all, `rate` a second, for keys of these ranks. The first tenth is not
    /// measured, unless the authors' simulator is followed.
    pub(crate) fn of_ranks(
        ranks: &'a Ranks,
        write_percent: f64,
        rate: f64,
        (requests, seed): (u64, u64),
    ) -> Self {
        let asks = Asks::Ranks {
            ranks,
            popular: key_buckets::popular(),
            keys: Random::of_stream(seed, 1),
            kinds: Random::of_stream(seed, 2),
            writes: Chance::new(write_percent / 100.0),
        };
        Self::new(asks, rate, (requests, seed))
    }

    /// The same for a workload.
    pub(crate) fn of_workload(workload: &Workload, rate: f64, requests: u64, seed: u64) -> Self {
        let generator = workload.generator(mix(seed), Stream::ONLY);
        Self::new(Asks::Workload(Box::new(generator)), rate, (requests, seed))
    }

    fn new(asks: Asks<'a>, rate: f64, (requests, seed): (u64, u64)) -> Self {
        let mut times = Poisson::new(Phases::fixed(rate), mix(seed));
        let first = times.next().filter(|_| requests > 0);
        Self {
            asks,
            times,
            places: Random::of_stream(seed, 3),
            left: requests,
            drawn: 0,
            measured: 0..requests,
            sent_ns: first.unwrap_or(NO_TIME),
            input_ns: 0,
            dispatch_ns: 0,
            dispatched_ns: 0,
        }
    }

    /// The same, of which these are measured.
    pub(crate) fn measured(self, measured: Range<u64>) -> Self {
        Self { measured, ..self }
    }

    /// The same, decided about after `input_ns`, by a core that takes `dispatch_ns` for each.
    pub(crate) fn through(self, input_ns: u64, dispatch_ns: u64) -> Self {
        Self {
            input_ns,
            dispatch_ns,
            ..self
        }
    }

    /// When somebody decides about the next request.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        let comes = self.sent_ns.saturating_add(self.input_ns);
        comes
            .max(self.dispatched_ns)
            .saturating_add(self.dispatch_ns)
    }

    /// The next request, and a random word to place it by.
    #[inline]
    pub(crate) fn request(&mut self, now: u64) -> (Request, u64) {
        self.dispatched_ns = self.next_ns();
        let mut request = self.ask(now);
        request.at = self.sent_ns;
        request.measured = self.measured.contains(&self.drawn);
        self.drawn += 1;
        self.left -= 1;
        self.sent_ns = match self.left {
            0 => NO_TIME,
            _ => self.times.next().unwrap_or(NO_TIME),
        };
        (request, self.places.next())
    }

    #[inline]
    fn ask(&mut self, now: u64) -> Request {
        let mut request = Request {
            at: now,
            extra: 0,
            delivered: now,
            bound: now,
            key: 0,
            partition: 0,
            value_bytes: 0,
            bytes_left: 0,
            moved_before: 0,
            to: Source::Shared,
            way: Way::Direct,
            ticket: None,
            write: false,
            large: false,
            measured: true,
            deferred: false,
        };
        match &mut self.asks {
            Asks::Ranks {
                ranks,
                popular,
                keys,
                kinds,
                writes,
            } => {
                request.key = ranks.rank(keys);
                request.write = kinds.chance(*writes);
                request.partition = key_buckets::bucket(popular, request.key);
            }
            Asks::Workload(generator) => {
                let drawn = generator.draw(now);
                request.key = mix(drawn.key);
                request.partition = (request.key >> (64 - PARTITION_BITS)) as u32;
                request.value_bytes = drawn.item.value_bytes;
                request.large = drawn.item.large;
                request.write = drawn.kind != Kind::Get;
            }
        }
        request
    }
}

/// A fixed slice of the keys' hashes: 2^20 of them, as in C-4.
const PARTITION_BITS: u32 = 20;
