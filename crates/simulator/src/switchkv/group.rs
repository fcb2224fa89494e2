//! Several cache nodes in virtual time, and the group for the hottest keys (SW-65, CC-81).
//!
//! Every cached key has a copy at the cache node of its back end; the hottest keys have one at each
//! cache node, and the switch sends each of their reads to any. Requests are drawn one by one;
//! sessions, copies, writes and their messages are those of the production machines of
//! `consistency::tiered`. Messages arrive at once, and no time passes: what is asked is how reads
//! divide among cache nodes, and what a write costs.

use std::collections::VecDeque;

use curtail_consistency::replica::Ticket;
use curtail_consistency::tiered::{
    BackEndConfig, BackEndEvent, BackEndHost, BackEndId, CacheConfig, CacheEvent, CacheHost,
    CacheId, TierBackEnd, TierCache, TierMessage, TierRefusal, TierRequest,
};
use curtail_types::{Access, Instant, RouteHash};
use curtail_workload::{Popularity, Random, Ranks, mix};

/// A tier with several cache nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierGroup {
    /// Back ends.
    pub(crate) back_ends: u16,
    /// Cache nodes.
    pub(crate) caches: u8,
    /// Requests a second that each of them serves.
    pub(crate) cache_qps: f64,
    /// The hottest keys, which have copies.
    pub(crate) cached: u64,
    /// Of these, the ones that every cache node has.
    pub(crate) group_keys: u64,
    /// All keys.
    pub(crate) keys: u64,
    /// The exponent of their popularity; 0 is uniform.
    pub(crate) gamma: f64,
    /// Share of the requests that write; which keys is as for reads.
    pub(crate) write_share: f64,
    /// Requests.
    pub(crate) requests: u64,
    /// Of all randomness.
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct GroupOutcome {
    /// Reads that came to each cache node.
    pub(crate) caches: Vec<u64>,
    /// Reads that a cache node answered.
    pub(crate) hits: u64,
    /// Reads that came to a cache node in vain.
    pub(crate) detours: u64,
    /// Writes of keys that have copies.
    pub(crate) writes: u64,
    /// Messages between back ends and cache nodes because of writes.
    pub(crate) messages: u64,
    /// Requests that were answered; all, or the machines are wrong.
    pub(crate) answered: u64,
}

/// A message on its way between a back end and a cache node.
type Parcel = (bool, BackEndId, CacheId, TierMessage);

struct Run<'a> {
    model: &'a TierGroup,
    back_ends: Vec<TierBackEnd>,
    caches: Vec<TierCache>,
    network: VecDeque<Parcel>,
    outcome: GroupOutcome,
}

/// What a machine asks for.
struct Desk<'a> {
    back_end: BackEndId,
    cache: CacheId,
    network: &'a mut VecDeque<Parcel>,
    outcome: &'a mut GroupOutcome,
}

impl TierGroup {
    /// Cache nodes of 2 MQPS in front of the paper's back ends.
    pub(crate) const fn paper(caches: u8, group_keys: u64) -> Self {
        Self {
            back_ends: 128,
            caches,
            cache_qps: 2e6,
            cached: 10_000,
            group_keys,
            keys: super::KEYS,
            gamma: 0.99,
            write_share: 0.0,
            requests: 1_000_000,
            seed: 1,
        }
    }

    /// Simulates it.
    pub(crate) fn run(&self) -> GroupOutcome {
        let mut run = Run::new(self);
        let exponent = self.gamma;
        let ranks = Ranks::new(self.keys, Popularity::Zipf { exponent });
        let mut random = Random::new(self.seed);
        // Of its own, so that the requests are the same with and without a group.
        let mut switch = Random::new(self.seed ^ 1);
        for number in 0..self.requests {
            let writes = self.write_share > 0.0 && random.unit() < self.write_share;
            let rank = ranks.rank(&mut random);
            match rank < self.cached && !writes {
                true => run.read(rank, &mut switch, number),
                false => run.ask_back_end(rank, writes, number),
            }
        }
        run.outcome
    }

    fn hash(&self, rank: u64) -> RouteHash {
        RouteHash(mix(rank ^ mix(self.seed)))
    }

    fn owner(&self, hash: RouteHash) -> BackEndId {
        let product = u128::from(hash.0) * u128::from(self.back_ends);
        BackEndId((product >> 64) as u16)
    }

    /// The cache node to which a back end reports.
    fn home(&self, back_end: BackEndId) -> CacheId {
        CacheId((back_end.0 % u16::from(self.caches)) as u8)
    }
}

impl GroupOutcome {
    /// How much more the most loaded cache node has than all have on average.
    pub(crate) fn max_over_mean(&self) -> f64 {
        let all: u64 = self.caches.iter().sum();
        let mean = all as f64 / self.caches.len().max(1) as f64;
        let max = self.caches.iter().max().copied().unwrap_or(0);
        max as f64 / mean.max(f64::MIN_POSITIVE)
    }

    /// Requests a second at which the most loaded cache node is full.
    pub(crate) fn limit_qps(&self, model: &TierGroup) -> f64 {
        let max = self.caches.iter().max().copied().unwrap_or(0);
        model.cache_qps * model.requests as f64 / max.max(1) as f64
    }
}

impl<'a> Run<'a> {
    /// Every cache node has a lease of every back end, and the copies that it is to have.
    fn new(model: &'a TierGroup) -> Self {
        let config = BackEndConfig::with_lease(1, LEASE_NS);
        let back_end = |_| TierBackEnd::new(config, Instant { ns: 0 }, false);
        let cache = |_| TierCache::new(CacheConfig::with_lease(1, LEASE_NS));
        let mut run = Self {
            model,
            back_ends: (0..model.back_ends).map(back_end).collect(),
            caches: (0..model.caches).map(cache).collect(),
            network: VecDeque::new(),
            outcome: GroupOutcome {
                caches: vec![0; usize::from(model.caches)],
                ..GroupOutcome::default()
            },
        };
        for id in (0..model.back_ends).map(BackEndId) {
            run.at_back_end(id, BackEndEvent::Assign(model.home(id)));
            for cache in (0..model.caches).map(CacheId) {
                run.at_back_end(id, BackEndEvent::Join(cache));
                run.at_cache(cache, id, CacheEvent::Join(id));
            }
        }
        run.drain();
        for rank in 0..model.cached {
            let key = model.hash(rank);
            let owner = model.owner(key);
            let is_group = rank < model.group_keys;
            let all = (0..model.caches).map(CacheId);
            for cache in all.filter(|id| is_group || *id == model.home(owner)) {
                run.at_cache(cache, owner, CacheEvent::Fetch(owner, key));
            }
            run.drain();
        }
        run.outcome.messages = 0;
        run
    }

    fn read(&mut self, rank: u64, switch: &mut Random, number: u64) {
        let key = self.model.hash(rank);
        let owner = self.model.owner(key);
        let to = match rank < self.model.group_keys {
            true => switch.below(u64::from(self.model.caches)) as usize,
            false => usize::from(self.model.home(owner).0),
        };
        let (Some(cache), Some(load)) = (self.caches.get(to), self.outcome.caches.get_mut(to))
        else {
            return;
        };
        *load += 1;
        let session = cache.look(owner, key);
        if session.is_some_and(|session| cache.shows(owner, session, Instant { ns: 0 })) {
            self.outcome.hits += 1;
            self.outcome.answered += 1;
            return;
        }
        self.outcome.detours += 1;
        self.ask_back_end(rank, false, number);
    }

    fn ask_back_end(&mut self, rank: u64, writes: bool, number: u64) {
        let key = self.model.hash(rank);
        let owner = self.model.owner(key);
        let is_cached = self.back_ends.get(usize::from(owner.0));
        let is_cached = is_cached.is_some_and(|machine| machine.is_cached(key));
        self.outcome.writes += u64::from(writes && is_cached);
        let request = TierRequest {
            ticket: Ticket(number),
            key,
            access: match writes {
                true => Access::Replace,
                false => Access::Read,
            },
        };
        self.at_back_end(owner, BackEndEvent::Request(request));
        self.drain();
    }

    fn at_back_end(&mut self, id: BackEndId, event: BackEndEvent<'_>) {
        let mut desk = Desk {
            back_end: id,
            cache: CacheId(0),
            network: &mut self.network,
            outcome: &mut self.outcome,
        };
        if let Some(machine) = self.back_ends.get_mut(usize::from(id.0)) {
            machine.step(event, &mut desk);
        }
    }

    fn at_cache(&mut self, id: CacheId, from: BackEndId, event: CacheEvent<'_>) {
        let mut desk = Desk {
            back_end: from,
            cache: id,
            network: &mut self.network,
            outcome: &mut self.outcome,
        };
        if let Some(machine) = self.caches.get_mut(usize::from(id.0)) {
            machine.step(event, &mut desk);
        }
    }

    /// Delivers all that is on its way.
    fn drain(&mut self) {
        while let Some((is_to_cache, back_end, cache, message)) = self.network.pop_front() {
            self.outcome.messages += 1;
            match is_to_cache {
                true => self.at_cache(cache, back_end, CacheEvent::Message(back_end, &message)),
                false => self.at_back_end(back_end, BackEndEvent::Message(cache, &message)),
            }
        }
    }
}

impl BackEndHost for Desk<'_> {
    fn run(&mut self, request: &TierRequest) -> bool {
        request.access != Access::Read
    }

    fn clear(&mut self, _: &[Ticket]) {
        unreachable!("nothing is flushed here");
    }

    fn respond(&mut self, _: Ticket) {
        self.outcome.answered += 1;
    }

    fn refuse(&mut self, _: Ticket, refusal: TierRefusal) {
        // Nothing waits when a request comes.
        unreachable!("{refusal:?}");
    }

    fn has(&self, _: RouteHash) -> bool {
        true
    }

    fn send(&mut self, to: CacheId, message: &TierMessage) {
        self.network.push_back((true, self.back_end, to, *message));
    }

    fn now(&self) -> Instant {
        Instant { ns: 0 }
    }
}

impl CacheHost for Desk<'_> {
    fn send(&mut self, to: BackEndId, message: &TierMessage) {
        self.network.push_back((false, to, self.cache, *message));
    }

    fn admits(&mut self, _: BackEndId, _: RouteHash) -> bool {
        true
    }

    fn has_incoming(&self) -> bool {
        true
    }

    fn store(&mut self, _: BackEndId, _: RouteHash) {}

    fn remove(&mut self, _: BackEndId, _: RouteHash) {}

    fn now(&self) -> Instant {
        Instant { ns: 0 }
    }
}

const LEASE_NS: u64 = 500_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(group_keys: u64, write_share: f64) -> GroupOutcome {
        let model = TierGroup {
            requests: 200_000,
            write_share,
            ..TierGroup::paper(8, group_keys)
        };
        let outcome = model.run();
        assert_eq!(outcome.answered, model.requests);
        outcome
    }

    /// Goal: the group evens out the load of cache nodes that are unequal because a few keys are
    /// much hotter than others. Method: eight cache nodes with and without it, read only.
    #[test]
    fn a_group_evens_out_what_the_hottest_keys_make_uneven() {
        let (partitioned, group) = (outcome(0, 0.0), outcome(64, 0.0));
        assert_eq!((partitioned.detours, group.detours), (0, 0));
        assert!(partitioned.max_over_mean() > 1.3, "{partitioned:?}");
        assert!(group.max_over_mean() < 1.15, "{group:?}");
        assert_eq!(partitioned.hits, group.hits);
    }

    /// Goal: a write of a key of the group reaches all its cache nodes, and these have copies again
    /// afterwards. Method: writes beside reads; messages are counted, and no read finds no copy.
    #[test]
    fn a_write_reaches_the_whole_group() {
        let (partitioned, group) = (outcome(0, 0.05), outcome(64, 0.05));
        // An update and its acknowledgement.
        assert_eq!(partitioned.messages, 2 * partitioned.writes);
        // Besides, of each of seven: a revocation, its acknowledgement, the item.
        let extra = group.messages - 2 * group.writes;
        assert!(extra > 0 && extra.is_multiple_of(7 * 3), "{group:?}");
        assert_eq!(group.detours, 0);
    }
}
