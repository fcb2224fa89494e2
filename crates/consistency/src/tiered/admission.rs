//! Which reported keys the cache takes, and which it gives up for them (SW-53..55, SW-61, SW-62).
//!
//! ```text
//!   report --> wants? --fetch--> Item --> admits? --> held, with the load that was reported
//!                 |                                     |
//!            threshold: a low percentile          counts its hits; the least
//!            of sampled loads                     of a sample is the next victim
//! ```
//!
//! Loads are measured as the back ends measure theirs: requests of a segment, averaged over
//! segments with weights that fall. The cache may hold more keys than its capacity for as long as
//! evictions may wait; a key that comes does not wait for one that goes.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use curtail_types::{Instant, Load, LoadScale, RouteHash};

/// What it is made with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AdmissionConfig {
    /// Keys that the cache shall hold.
    pub capacity: usize,
    /// Keys beyond, for as long as evictions wait.
    pub excess_max: usize,
    /// How long an eviction may wait for admissions.
    pub delay_max_ns: u64,
    /// How loads are measured; the same at the back ends.
    pub scale: LoadScale,
    /// Keys that a sample has.
    pub sample: usize,
    /// The threshold's rank among the sampled loads, from the lowest, in per cent.
    pub rank_percent: usize,
    /// The threshold while there is room.
    pub load_min: Load,
    /// Keys that may be on their way.
    pub fetches_max: usize,
    /// Of all random choices.
    pub seed: u64,
}

impl AdmissionConfig {
    /// The paper's numbers, and ours where it has none (SW-56).
    pub const fn new(capacity: usize, scale: LoadScale) -> Self {
        Self {
            capacity,
            excess_max: 0,
            delay_max_ns: 0,
            scale,
            sample: 256,
            rank_percent: 10,
            load_min: Load(0),
            fetches_max: 4096,
            seed: 1,
        }
    }
}

/// The keys that the cache holds, with their loads.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Admission {
    config: AdmissionConfig,
    random: u64,
    held: Vec<Held>,
    /// Places of `held` that are not used.
    free: Vec<u32>,
    places: BTreeMap<RouteHash, u32>,
    /// Keys that were asked for, and the loads that were reported.
    wanted: BTreeMap<RouteHash, Load>,
    /// Keys that were reported and may be asked for.
    offers: Vec<(Load, RouteHash)>,
    /// Since when each key beyond the capacity is there.
    excess: VecDeque<Instant>,
    threshold: Load,
    period: u32,
    began: Instant,
}

/// Where the hits of a key are counted.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Admitted(pub u32);

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Held {
    key: RouteHash,
    load: Load,
    hits: u64,
    /// The period in which it came.
    since: u32,
    is_used: bool,
}

impl Admission {
    /// An empty cache, whose first period begins `now`.
    pub fn new(config: AdmissionConfig, now: Instant) -> Self {
        let most = config.capacity + config.excess_max;
        Self {
            config,
            random: config.seed,
            held: Vec::with_capacity(most),
            free: Vec::new(),
            places: BTreeMap::new(),
            wanted: BTreeMap::new(),
            offers: Vec::with_capacity(config.fetches_max),
            excess: VecDeque::new(),
            threshold: config.load_min,
            period: 0,
            began: now,
        }
    }

    /// Keys that it holds.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether it holds this key.
    pub fn holds(&self, key: RouteHash) -> bool {
        self.places.contains_key(&key)
    }

    /// The load above which a key is wanted.
    pub const fn threshold(&self) -> Load {
        self.threshold
    }

    /// The load of a key at the end of the last period, or as it was reported.
    pub fn load(&self, key: RouteHash) -> Option<Load> {
        let place = self.places.get(&key)?;
        self.held.get(*place as usize).map(|held| held.load)
    }

    /// A copy was read. Costs an addition.
    #[inline]
    pub fn hit(&mut self, at: Admitted) {
        if let Some(held) = self.held.get_mut(at.0 as usize) {
            held.hits += 1;
        }
    }

    /// Copies of a key that other cache nodes have were read so often.
    pub fn hit_elsewhere(&mut self, key: RouteHash, hits: u64) {
        let place = self.places.get(&key).map(|place| *place as usize);
        if let Some(held) = place.and_then(|place| self.held.get_mut(place)) {
            held.hits = held.hits.saturating_add(hits);
        }
    }

    /// The keys that it holds, with their loads.
    pub fn loads(&self) -> impl Iterator<Item = (RouteHash, Load)> {
        let held = self.held.iter().filter(|held| held.is_used);
        held.map(|held| (held.key, held.load))
    }

    /// A back end reported a key with its load; whether to fetch it.
    pub fn wants(&mut self, key: RouteHash, load: Load) -> bool {
        let has_room = self.len() + self.wanted.len() < self.config.capacity;
        let threshold = match has_room {
            true => self.config.load_min,
            false => self.threshold,
        };
        if self.holds(key) || load <= threshold {
            return false;
        }
        if self.wanted.len() >= self.config.fetches_max && !self.wanted.contains_key(&key) {
            return false;
        }
        self.wanted.insert(key, load);
        true
    }

    /// A back end reported a key with its load; [`chosen`](Self::chosen) says whether to fetch it.
    pub fn offer(&mut self, key: RouteHash, load: Load) {
        if self.offers.len() < self.config.fetches_max {
            self.offers.push((load, key));
        }
    }

    /// Of the keys that were offered since the last time, those to fetch: the hottest, `budget` at
    /// most, which is what the rules' budget leaves (SW-60).
    pub fn chosen(&mut self, budget: usize) -> Vec<RouteHash> {
        let mut offers = core::mem::take(&mut self.offers);
        offers.sort_unstable_by(|one, other| other.cmp(one));
        let mut chosen = Vec::new();
        for (load, key) in offers.drain(..) {
            if chosen.len() < budget && self.wants(key, load) {
                chosen.push(key);
            }
        }
        self.offers = offers;
        chosen
    }

    /// Keys that may be admitted before others are evicted.
    pub fn room(&self) -> usize {
        let most = self.config.capacity + self.config.excess_max;
        most.saturating_sub(self.len() + self.wanted.len())
    }

    /// Whether this key was asked for and has not come.
    pub fn is_wanted(&self, key: RouteHash) -> bool {
        self.wanted.contains_key(&key)
    }

    /// The item of a key came, with the load if it was not asked for: takes it if it is wanted and
    /// there is room; where its hits are counted.
    pub fn admit(
        &mut self,
        key: RouteHash,
        instant: Option<Load>,
        now: Instant,
    ) -> Option<Admitted> {
        let asked = self.wanted.remove(&key);
        if let Some(place) = self.places.get(&key) {
            return Some(Admitted(*place));
        }
        let load = asked.or(instant)?;
        if self.len() >= self.config.capacity + self.config.excess_max {
            return None;
        }
        let held = Held {
            key,
            load,
            // What it would have had since the period began.
            hits: self.elapsed(load.requests(), now),
            since: self.period,
            is_used: true,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.held[place as usize] = held;
                place
            }
            None => {
                self.held.push(held);
                (self.held.len() - 1) as u32
            }
        };
        self.places.insert(key, place);
        if self.len() > self.config.capacity {
            self.excess.push_back(now);
        }
        Some(Admitted(place))
    }

    /// A key was removed, for any reason.
    pub fn remove(&mut self, key: RouteHash) {
        self.wanted.remove(&key);
        let Some(place) = self.places.remove(&key) else {
            return;
        };
        self.held[place as usize] = Held::default();
        self.free.push(place);
        if self.len() < self.config.capacity + self.excess.len() {
            self.excess.pop_front();
        }
    }

    /// The key to evict now, and since when its eviction waits: if there are more than the capacity
    /// and nothing is to be installed, or the oldest has waited for its time.
    pub fn victim(&mut self, is_idle: bool, now: Instant) -> Option<(RouteHash, Instant)> {
        let since = *self.excess.front()?;
        let is_late = now.ns.saturating_sub(since.ns) >= self.config.delay_max_ns;
        if !is_idle && !is_late {
            return None;
        }
        Some((self.coldest()?, since))
    }

    /// The key to evict for another one before that is admitted; `None` if there is room, or all
    /// keys came in this period.
    pub fn replaced(&mut self) -> Option<RouteHash> {
        let is_full = self.len() >= self.config.capacity + self.config.excess_max;
        is_full.then(|| self.coldest()).flatten()
    }

    /// When [`end_period`](Self::end_period) is due.
    pub const fn deadline(&self) -> Instant {
        self.began.later(self.config.scale.segment_ns)
    }

    /// Averages the hits of the period into the loads, and samples the threshold. Takes time in
    /// proportion to the keys.
    pub fn end_period(&mut self, now: Instant) {
        let alpha = u128::from(self.config.scale.alpha);
        let one = u128::from(LoadScale::ALPHA_ONE);
        for held in self.held.iter_mut().filter(|held| held.is_used) {
            let hits = u128::from(Load::of(held.hits).0);
            let sum = alpha * hits + (one - alpha) * u128::from(held.load.0);
            held.load = Load((sum / one) as u64);
            held.hits = 0;
        }
        // What was asked for and has not come is asked for again when it is reported again.
        self.wanted.clear();
        self.period += 1;
        self.began = now;
        let mut sample = self.sample(|_| true);
        sample.sort_unstable();
        let rank = sample.len() * self.config.rank_percent / 100;
        let is_full = self.len() >= self.config.capacity;
        self.threshold = match sample.get(rank) {
            Some((load, _)) if is_full => (*load).max(self.config.load_min),
            _ => self.config.load_min,
        };
    }

    /// The key with the least load of a sample, none that came in this period.
    fn coldest(&mut self) -> Option<RouteHash> {
        let period = self.period;
        let sample = self.sample(|held| held.since != period);
        sample.into_iter().min().map(|(_, key)| key)
    }

    fn sample(&mut self, is_right: impl Fn(&Held) -> bool) -> Vec<(Load, RouteHash)> {
        let mut sample = Vec::with_capacity(self.config.sample);
        for _ in 0..self.config.sample.min(4 * self.held.len()) {
            let at = self.below(self.held.len() as u64) as usize;
            let held = self.held.get(at).filter(|held| held.is_used);
            if let Some(held) = held.filter(|held| is_right(held)) {
                sample.push((held.load, held.key));
            }
        }
        sample
    }

    fn elapsed(&self, requests: u64, now: Instant) -> u64 {
        let segment_ns = self.config.scale.segment_ns.max(1);
        let elapsed_ns = now.ns.saturating_sub(self.began.ns).min(segment_ns);
        (u128::from(requests) * u128::from(elapsed_ns) / u128::from(segment_ns)) as u64
    }

    /// SplitMix64, scaled by a multiplication.
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        ((u128::from(word) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: LoadScale = LoadScale {
        segment_ns: 1_000_000_000,
        alpha: LoadScale::ALPHA_ONE / 2,
        sampled_every: 1,
    };

    fn at(ms: u64) -> Instant {
        Instant { ns: ms * 1_000_000 }
    }

    fn admission(capacity: usize, excess_max: usize) -> Admission {
        let config = AdmissionConfig {
            excess_max,
            delay_max_ns: 2_000_000_000,
            ..AdmissionConfig::new(capacity, SCALE)
        };
        Admission::new(config, at(0))
    }

    fn fill(admission: &mut Admission, keys: u64) {
        for key in 0..keys {
            let load = Load::of(100 + key);
            assert!(admission.wants(RouteHash(key), load));
            assert!(admission.admit(RouteHash(key), None, at(0)).is_some());
        }
    }

    /// Goal: a full cache wants what is hotter than a tenth of its keys, and gives up one of the
    /// coldest. Method: loads of 100 to 1099; the bounds are those of a sample of 256.
    #[test]
    fn the_threshold_is_a_low_percentile_and_the_victim_is_cold() {
        let mut admission = admission(1000, 10);
        fill(&mut admission, 1000);
        (0..1000).for_each(|place| {
            // As many hits as the load says.
            (0..100 + place).for_each(|_| admission.hit(Admitted(place)));
        });
        admission.end_period(at(1_000));
        let threshold = admission.threshold().requests();
        assert!((140..280).contains(&threshold), "{threshold}");
        assert!(!admission.wants(RouteHash(5_000), Load::of(threshold)));
        assert!(admission.wants(RouteHash(5_001), Load::of(threshold + 1)));
        assert!(admission.admit(RouteHash(5_001), None, at(1_100)).is_some());
        let (victim, _) = admission.victim(true, at(1_100)).unwrap();
        assert!(victim.0 < 60, "{victim:?}");
    }

    #[test]
    fn who_comes_inherits_its_load_and_is_no_victim_in_its_period() {
        let mut admission = admission(2, 2);
        fill(&mut admission, 2);
        assert_eq!(admission.victim(true, at(0)), None);
        assert!(
            admission
                .admit(RouteHash(9), Some(Load::of(1)), at(0))
                .is_some()
        );
        assert_eq!(
            admission.victim(true, at(0)),
            None,
            "all came in this period"
        );
        admission.end_period(at(1_000));
        assert!(
            admission
                .admit(RouteHash(10), Some(Load::of(40)), at(1_500))
                .is_some()
        );
        let (victim, since) = admission.victim(true, at(1_600)).unwrap();
        assert_eq!((victim, since), (RouteHash(9), at(0)));
        admission.remove(victim);
        assert_eq!(admission.load(RouteHash(10)), Some(Load::of(40)));
        admission.end_period(at(2_000));
        // Half of the period at 40 in a second, and nothing since: 40 / 2 + 20 / 2.
        assert_eq!(admission.load(RouteHash(10)), Some(Load::of(30)));
    }

    /// Goal: evictions wait for admissions, for their time at most, and what is beyond capacity and
    /// buffer is declined.
    #[test]
    fn keys_are_added_before_others_are_evicted() {
        let mut admission = admission(4, 2);
        fill(&mut admission, 4);
        admission.end_period(at(1_000));
        for key in 10..12 {
            assert!(
                admission
                    .admit(RouteHash(key), Some(Load::of(500)), at(1_100))
                    .is_some()
            );
        }
        assert!(
            admission
                .admit(RouteHash(12), Some(Load::of(500)), at(1_100))
                .is_none()
        );
        assert_eq!(admission.victim(false, at(3_099)), None);
        let mut evicted = 0;
        while let Some((key, _)) = admission.victim(false, at(3_100)) {
            admission.remove(key);
            evicted += 1;
        }
        assert_eq!((evicted, admission.len()), (2, 4));
        assert!(admission.holds(RouteHash(10)) && admission.holds(RouteHash(11)));
    }

    #[test]
    fn the_hottest_offers_are_chosen_within_the_budget() {
        let mut admission = admission(10, 0);
        for key in 0..8 {
            admission.offer(RouteHash(key), Load::of(key));
        }
        assert_eq!(admission.chosen(2), [RouteHash(7), RouteHash(6)]);
        assert_eq!(
            (admission.room(), admission.is_wanted(RouteHash(6))),
            (8, true)
        );
        assert!(admission.chosen(9).is_empty(), "they are offered anew");
    }

    #[test]
    fn what_is_held_or_was_not_asked_for_is_not_taken_twice() {
        let mut admission = admission(4, 0);
        assert!(
            admission.admit(RouteHash(1), None, at(0)).is_none(),
            "nobody asked"
        );
        assert!(admission.wants(RouteHash(1), Load::of(3)));
        let place = admission.admit(RouteHash(1), None, at(0));
        assert_eq!(admission.admit(RouteHash(1), None, at(0)), place);
        assert!(!admission.wants(RouteHash(1), Load::of(9)));
        assert!(
            !admission.wants(RouteHash(2), Load(0)),
            "a load above the least"
        );
        admission.remove(RouteHash(1));
        assert!(admission.is_empty() && !admission.holds(RouteHash(1)));
    }
}
