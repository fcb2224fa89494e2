//! Draws requests from a workload: one generator for each stream (a thread, a connection, a
//! simulated client), the same data set for all.
//!
//! ```text
//!            draw(now)
//!   kind  <- mix              which command
//!   rank  <- popularity       which rank, or one of the large keys
//!   place <- hot set          which key has this rank now
//!   key   <- scramble         which number that key has
//!   item  <- items            its length and time to live, from the number alone
//! ```

use crate::{
    items::{Item, Items},
    mix::{Kind, MixTable},
    popularity_change::HotSet,
    random::{Chance, Random},
    rank_sampler::{Popularity, Ranks},
    scramble::Scramble,
    stepped_value::Phases,
    workload::Workload,
};

/// One request, before it has bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Request {
    /// What is asked.
    pub kind: Kind,
    /// Of which key: a number that [`Items`] turns into bytes.
    pub key: u64,
    /// Length and time to live of what belongs to the key.
    pub item: Item,
}

/// Which part of a run a generator is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Stream {
    /// From 0.
    pub index: u32,
    /// How many parts there are; at least 1.
    pub count: u32,
}

/// Draws the requests of one stream.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    mix: MixTable,
    ranks: Ranks,
    scramble: Scramble,
    hot_set: Option<HotSet>,
    large: Option<LargeDraw>,
    items: Items,
    requests: u64,
    latest: bool,
    stream: Stream,
    /// The next number that this stream inserts, and the first past all that keys can be written
    /// for.
    next_insert: u64,
    capacity: u64,
}

/// Whether the next request is for a large key.
#[derive(Clone, Debug)]
struct LargeDraw {
    percent: Phases,
    chance: Chance,
    /// When the chance changes.
    until_ns: u64,
    first: u64,
    keys: u64,
}

impl Generator {
    pub(crate) fn new(workload: &Workload, items: Items, seed: u64, stream: Stream) -> Self {
        assert!(stream.index < stream.count, "{stream:?}");
        let small = workload.small_keys();
        let hot_set = |change| HotSet::new(change, small, workload.layout);
        Self {
            random: Random::of_stream(seed, u64::from(stream.index)),
            mix: workload.mix.table(),
            ranks: Ranks::new(small, workload.popularity),
            scramble: Scramble::new(small, workload.layout),
            hot_set: workload.change.map(hot_set),
            large: workload.large.as_ref().map(|large| LargeDraw {
                percent: large.percent.clone(),
                chance: Chance::new(0.0),
                until_ns: 0,
                first: small,
                keys: large.keys,
            }),
            requests: 0,
            latest: matches!(workload.popularity, Popularity::Latest { .. }),
            stream,
            next_insert: workload.keys + u64::from(stream.index),
            capacity: items.key_text().capacity(),
            items,
        }
    }

    /// The next request, meant to be sent at `now_ns` (from the start of the run; what changes with
    /// time follows it).
    pub fn draw(&mut self, now_ns: u64) -> Request {
        let kind = self.mix.draw(&mut self.random);
        let key = match kind {
            Kind::Insert => self.insert(),
            _ => self.key(now_ns),
        };
        self.requests += 1;
        Request {
            kind,
            key,
            item: self.items.item(key),
        }
    }

    /// The data set.
    pub fn items(&self) -> &Items {
        &self.items
    }

    /// The number of the key that has this rank now (0 is the hottest).
    pub fn key_of_rank(&self, rank: u64) -> u64 {
        if self.latest {
            let newest = match self.next_insert.checked_sub(u64::from(self.stream.count)) {
                Some(newest) if newest >= self.ranks.count() => newest,
                _ => self.ranks.count() - 1,
            };
            return newest.saturating_sub(rank);
        }
        let place = self
            .hot_set
            .as_ref()
            .map_or(rank, |hot_set| hot_set.place(rank));
        self.scramble.key(place)
    }

    fn key(&mut self, now_ns: u64) -> u64 {
        if let Some(large) = &mut self.large
            && let Some(key) = large.draw(now_ns, &mut self.random)
        {
            return key;
        }
        if let Some(hot_set) = &mut self.hot_set {
            hot_set.advance(now_ns, self.requests);
        }
        let rank = self.ranks.rank(&mut self.random);
        self.key_of_rank(rank)
    }

    /// New numbers, in turn with the other streams; once all that keys can be written for are
    /// used, from 0 again.
    fn insert(&mut self) -> u64 {
        let number = self.next_insert;
        let next = number.checked_add(u64::from(self.stream.count));
        self.next_insert = next
            .filter(|next| *next < self.capacity)
            .unwrap_or_else(|| u64::from(self.stream.index));
        number.min(self.capacity - 1)
    }
}

impl LargeDraw {
    fn draw(&mut self, now_ns: u64, random: &mut Random) -> Option<u64> {
        if now_ns >= self.until_ns {
            self.chance = Chance::new(self.percent.at(now_ns) / 100.0);
            self.until_ns = self.percent.until(now_ns).unwrap_or(u64::MAX);
        }
        random
            .chance(self.chance)
            .then(|| self.first + random.below(self.keys))
    }
}

impl Stream {
    /// A run of one stream.
    pub const ONLY: Self = Self { index: 0, count: 1 };
}

#[cfg(test)]
mod tests;
