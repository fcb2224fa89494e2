//! A cache node as one of several: the keys of its own that all are to have, the copies that it has
//! of others' keys, and the messages about them (CC-81).

use std::collections::BTreeSet;

use curtail_codec::tiered::{
    HostId, PartitionMap, TierAddress, TieredDatagram, TieredHead, TieredOpcode,
};
use curtail_consistency::tiered::{Admission, BackEndId, CacheId, GroupKeys, GuestKeys};
use curtail_types::{Instant, Key, KeyLoad, KeyName, Load, LoadScale, RouteHash};

use crate::{
    cache_copies::CachedCopies,
    outbox::TierOutbox,
    report_encoding,
    tier_file::{TierFile, home_of},
};

/// What a cache node has to do with the others.
pub(crate) struct CacheGroup {
    own: CacheId,
    /// The last cache node of the tier; 0 if each is to be alone.
    last: u8,
    map: PartitionMap,
    scale: LoadScale,
    pub(crate) shared: GroupKeys,
    pub(crate) guests: GuestKeys,
    /// Back ends that grant leases because of guests.
    pub(crate) lessors: BTreeSet<BackEndId>,
    /// Those of them that had no guest at the end of the last period.
    idle: BTreeSet<BackEndId>,
    /// From then on rules that are spread may lead here: it has heard every list.
    shares_from: Instant,
    value: Vec<u8>,
    counts: GroupCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct GroupCounts {
    guest_hits: u64,
    hits_elsewhere: u64,
    unlike_lists: u64,
}

impl CacheGroup {
    pub(crate) fn new(file: &TierFile, own: CacheId, now: Instant) -> Self {
        let last = file.group().map(|id| id.0).max();
        let scale = file.scale();
        let heard_ns = PERIODS_HEARD * scale.segment_ns;
        Self {
            own,
            last: last.unwrap_or(0),
            map: file.map(),
            scale,
            shared: GroupKeys::new(
                own,
                match last {
                    None => 0,
                    Some(_) => usize::from(file.group_keys),
                },
            ),
            guests: GuestKeys::default(),
            lessors: BTreeSet::new(),
            idle: BTreeSet::new(),
            shares_from: now.later(heard_ns),
            value: Vec::new(),
            counts: GroupCounts::default(),
        }
    }

    /// Whether there are other cache nodes that copies are to be at.
    pub(crate) const fn is_on(&self) -> bool {
        self.last > 0
    }

    /// Whether rules that are spread may lead here.
    pub(crate) fn shares(&self, now: Instant) -> bool {
        self.is_on() && now >= self.shares_from
    }

    fn others(&self) -> impl Iterator<Item = CacheId> {
        let own = self.own;
        (0..=self.last).map(CacheId).filter(move |id| *id != own)
    }

    /// Whether a message may come from this cache node.
    pub(crate) fn other(&self, sender: u32) -> Option<CacheId> {
        let id = u8::try_from(sender).ok().map(CacheId)?;
        (self.is_on() && id.0 <= self.last && id != self.own).then_some(id)
    }

    fn is_of(&self, home: CacheId, key: RouteHash) -> bool {
        home_of(self.map.owner(key), usize::from(self.last) + 1) == Some(home)
    }

    /// A copy of another cache node's key was read.
    pub(crate) fn hit_guest(&mut self, key: RouteHash) {
        self.counts.guest_hits += 1;
        self.guests.hit(key);
    }

    // ---- own keys ----

    /// At the end of a period: chooses the keys, and tells the others.
    pub(crate) fn tell_others(
        &mut self,
        (admission, copies): (&Admission, &CachedCopies),
        outbox: &mut TierOutbox,
    ) {
        if !self.is_on() {
            return;
        }
        let number = self.shared.choose(admission.loads());
        let keys = self.shared.keys();
        let named = keys.iter().filter_map(|(key, load)| {
            let name = Key::new(&copies.get(*key)?.key).ok()?;
            Some(load_of(name, *load))
        });
        let named: Vec<KeyLoad> = named.collect();
        report_encoding::encode(self.scale, &named, &mut self.value);
        let others: Vec<CacheId> = self.others().collect();
        for to in others {
            self.tell(to, TieredOpcode::Shared, number, outbox);
        }
    }

    /// Another cache node says what it holds. Its hits count as if they had been here.
    pub(crate) fn take_hits(
        &mut self,
        from: CacheId,
        datagram: &TieredDatagram<'_>,
        admission: &mut Admission,
    ) {
        let Some(keys) = report_encoding::decode(datagram.value, self.scale) else {
            self.counts.unlike_lists += 1;
            return;
        };
        let keys = keys.into_iter();
        let held: Vec<_> = keys
            .map(|(name, hits)| (PartitionMap::route(name), hits))
            .collect();
        let routes: Vec<RouteHash> = held.iter().map(|(key, _)| *key).collect();
        self.shared.take_answer(from, datagram.head.number, &routes);
        for (key, Load(hits)) in held {
            self.counts.hits_elsewhere += hits;
            admission.hit_elsewhere(key, hits);
        }
    }

    // ---- keys of others ----

    /// A list of another cache node came, and is answered: which guests go, and what to fetch.
    pub(crate) fn take_list(
        &mut self,
        from: CacheId,
        datagram: &TieredDatagram<'_>,
        (outbox, now): (&mut TierOutbox, Instant),
    ) -> (Vec<RouteHash>, Vec<RouteHash>) {
        let Some(keys) = report_encoding::decode(datagram.value, self.scale) else {
            self.counts.unlike_lists += 1;
            return (Vec::new(), Vec::new());
        };
        let keys = keys.into_iter();
        let named = keys.map(|(name, _)| (PartitionMap::route(name), name.bytes()));
        let named: Vec<_> = named.filter(|(key, _)| self.is_of(from, *key)).collect();
        let changes = self.guests.take_list(from, named.into_iter(), now);
        self.answer(from, datagram.head.number, outbox);
        changes
    }

    /// The keys of a back end that are to be guests and have no copy.
    pub(crate) fn missing_of(&self, back_end: BackEndId) -> Vec<RouteHash> {
        let missing = self.guests.missing();
        missing
            .filter(|key| self.map.owner(*key) == back_end)
            .collect()
    }

    /// The back ends that have had no guest for a period: so long they may ask again whether the
    /// last copies were dropped.
    pub(crate) fn idle_lessors(&mut self) -> BTreeSet<BackEndId> {
        let owners = self.guests.keys().map(|key| self.map.owner(key));
        let owners: BTreeSet<BackEndId> = owners.collect();
        let idle = &self.lessors - &owners;
        let leaving = &idle & &self.idle;
        self.lessors = &self.lessors - &leaving;
        self.idle = &idle - &leaving;
        leaving
    }

    fn answer(&mut self, home: CacheId, number: u64, outbox: &mut TierOutbox) {
        let hits = self.guests.take_hits(home);
        let held = hits.into_iter().filter_map(|(key, hits)| {
            let name = Key::new(self.guests.name(key)?).ok()?;
            Some(load_of(name, Load(hits)))
        });
        let held: Vec<KeyLoad> = held.collect();
        report_encoding::encode(self.scale, &held, &mut self.value);
        self.tell(home, TieredOpcode::SharedHits, number, outbox);
    }

    /// The keys of cache nodes that have been silent; their copies are to go.
    pub(crate) fn outlived(&mut self, now: Instant) -> Vec<RouteHash> {
        self.guests
            .outlived(now, PERIODS_SILENT * self.scale.segment_ns)
    }

    fn tell(&self, to: CacheId, opcode: TieredOpcode, number: u64, outbox: &mut TierOutbox) {
        let to = u32::from(to.0);
        let head = TieredHead {
            number,
            ..TieredHead::new(opcode, TierAddress::host(HostId(to)))
        };
        let message = TieredDatagram {
            head,
            key: None,
            value: &self.value,
        };
        outbox.tell(peer(to), &message);
    }

    pub(crate) fn counters(&self) -> [(&'static str, u64); 7] {
        let (shared, spread) = self.shared.counts();
        let (guests, held) = self.guests.counts();
        [
            ("group_keys", shared as u64),
            ("group_keys_spread", spread as u64),
            ("group_hits_elsewhere", self.counts.hits_elsewhere),
            ("guest_keys", guests as u64),
            ("guest_copies", held as u64),
            ("guest_hits", self.counts.guest_hits),
            ("unlike_lists", self.counts.unlike_lists),
        ]
    }

    /// The keys that all are to have, the hottest first, with their loads in requests of a period.
    pub(crate) fn named_loads(&self, copies: &CachedCopies) -> Vec<(String, u64)> {
        let keys = self.shared.keys().into_iter().take(NAMED_MAX);
        let named = keys.filter_map(|(key, load)| {
            let name = copies
                .get(key)?
                .key
                .escape_ascii()
                .to_string()
                .replace(' ', "\\x20");
            Some((format!("{GROUP_KEY}{name}"), load.requests()))
        });
        named.collect()
    }
}

fn load_of(name: Key<'_>, load: Load) -> KeyLoad {
    KeyLoad {
        key: KeyName::of(name),
        load,
        ..KeyLoad::default()
    }
}

/// Another cache node among the peers of a cache node, beyond all back ends.
pub(crate) const fn peer(cache: u32) -> u32 {
    FIRST_CACHE_PEER + cache
}

const FIRST_CACHE_PEER: u32 = 1 << 16;
/// Before the name of a key of the group, among a cache node's counters.
pub const GROUP_KEY: &str = "group_key:";
/// Keys that the status names.
const NAMED_MAX: usize = 8;
/// A list comes once a period; after the second the copies of the first are there.
const PERIODS_HEARD: u64 = 2;
/// Periods without a list after which a cache node's keys are guests no more.
const PERIODS_SILENT: u64 = 3;
