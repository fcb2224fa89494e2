//! The keys that are requested most: each worker's samples for `hotkeys`, and the merged list.
//!
//! ```text
//!   batch ---> one request in 64, at odd distances ---> tracker --- once a second ---> report
//! ```
//!
//! A turn compares two numbers; only a sampled request costs more. A key counts for what is certain
//! of its load, so that requests spread evenly make no key look hot. Memory is fixed; nobody but
//! its worker touches a tracker.

use curtail_codec::memcached::{KeyScratch, Request};
use curtail_hotkeys::{Access, CheckedParameters, Parameters, Sampler, Tracker};
use curtail_types::{Instant, KeyLoad, Load, LoadReport, Operation};

use crate::request::batch::{Batch, Entry, Work};

/// The tap of one worker.
#[derive(Debug)]
pub(crate) struct HotKeys {
    sampler: Sampler,
    tracker: Tracker,
}

/// What is shown of all workers together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hottest {
    /// The hottest first.
    pub(crate) keys: Vec<HotKey>,
}

/// A key that is shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HotKey {
    pub(crate) key: Box<[u8]>,
    /// Of all requests, 0 to 1.
    pub(crate) share: f64,
    /// Of its requests, 0 to 1, those that may write.
    pub(crate) writes: f64,
}

/// Keys that are shown.
const SHOWN_MAX: usize = 16;

/// A key with less is not shown: it may be chance.
const SHOWN_MIN: Load = Load::of(2);

const PARAMETERS: CheckedParameters = match Parameters::sampled().check() {
    Ok(checked) => checked,
    Err(_) => panic!("its own test says that these are within their bounds"),
};

impl HotKeys {
    pub(crate) fn new(worker: usize, now: Instant) -> Self {
        Self {
            sampler: Sampler::new(PARAMETERS.get().scale.sampled_every, worker as u64),
            tracker: Tracker::new(PARAMETERS, now),
        }
    }

    /// Looks at the requests of a turn.
    #[inline]
    pub(crate) fn look(&mut self, batch: &Batch<'_>, scratch: &mut KeyScratch) {
        while let Some(place) = self.sampler.next_in(batch.entries().len()) {
            self.sample(batch.entries().get(place), scratch);
        }
    }

    #[cold]
    fn sample(&mut self, entry: Option<&Entry<'_>>, scratch: &mut KeyScratch) {
        let Some(entry) = entry else { return };
        let (key, access) = match &entry.work {
            Work::Request(Request::Item { key, operation, .. }) => (key, access(operation)),
            Work::LargeSet { header, .. } => (&header.key, Access::Write),
            _ => return,
        };
        self.tracker.see(entry.hash, key.resolve(scratch), access);
    }

    /// Whether it is time to show it again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.tracker.deadline()
    }

    /// Ends the segment and writes the hottest keys into what was shown before.
    pub(crate) fn show(&mut self, now: Instant, shown: &mut Option<LoadReport>) {
        self.tracker.end_segment(now);
        match shown {
            Some(report) => self.tracker.report_into(report),
            None => *shown = Some(self.tracker.report()),
        }
    }
}

/// What an operation may do to its key; a read that touches or wins the item changes it.
fn access(operation: &Operation) -> Access {
    match operation {
        Operation::Get(get) if !get.changes() => Access::Read,
        _ => Access::Write,
    }
}

impl Hottest {
    /// All workers' together. They measure alike, so that their reports can be merged.
    pub(crate) fn of_all<'a>(all: impl Iterator<Item = &'a LoadReport>) -> Self {
        let Ok(Some(merged)) = LoadReport::merged(all, SHOWN_MAX) else {
            return Self::default();
        };
        let shown = merged.keys.iter().filter(|key| key.load >= SHOWN_MIN);
        let share = |key: &KeyLoad| f64::from(merged.share_millionths(key.load)) / 1e6;
        let hot = shown.map(|key| HotKey {
            key: key.key.bytes().into(),
            share: share(key),
            writes: key.writes.0 as f64 / key.load.0 as f64,
        });
        Self {
            keys: hot.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::{Get, Key, KeyHash};

    use super::*;

    fn asked(tap: &mut HotKeys, key: u64, access: Access) {
        let name = format!("key{key}");
        let key_of = Key::new(name.as_bytes()).unwrap();
        tap.tracker.see(KeyHash(key | 1 << 63), key_of, access);
    }

    fn at(second: u64) -> Instant {
        Instant {
            ns: second * 1_000_000_000,
        }
    }

    fn tap(worker: usize) -> HotKeys {
        HotKeys::new(worker, at(0))
    }

    fn shown(taps: &mut [&mut HotKeys], second: u64) -> Vec<HotKey> {
        let reports: Vec<_> = taps
            .iter_mut()
            .map(|tap| {
                assert!(tap.is_due(at(second)));
                let mut report = None;
                tap.show(at(second), &mut report);
                assert!(!tap.is_due(at(second)));
                report.unwrap()
            })
            .collect();
        Hottest::of_all(reports.iter()).keys
    }

    /// A stream of keys that looks random: each of `keys` as often.
    fn even(step: u64, keys: u64) -> u64 {
        step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys
    }

    /// Goal: hot keys are found among very many others, with shares that are right within a few
    /// per cent, and with those of their writes. Method: two keys with a quarter and an eighth of
    /// the requests, of which the second writes, and 10,000 others.
    #[test]
    fn the_hottest_keys_are_found_with_their_shares() {
        let mut tap = tap(0);
        for step in 0..40_000 {
            match step % 8 {
                0 | 4 => asked(&mut tap, 1_000_001, Access::Read),
                2 => asked(&mut tap, 1_000_002, Access::Write),
                _ => asked(&mut tap, even(step, 10_000), Access::Read),
            }
        }
        let keys = shown(&mut [&mut tap], 1);
        assert_eq!(&*keys[0].key, b"key1000001");
        assert_eq!(&*keys[1].key, b"key1000002");
        let shares = (keys[0].share, keys[1].share);
        assert!((0.249..=0.25).contains(&shares.0), "{shares:?}");
        assert!((0.124..=0.125).contains(&shares.1), "{shares:?}");
        assert_eq!((keys[0].writes, keys[1].writes), (0.0, 1.0));
    }

    #[test]
    fn no_key_is_hot_when_all_are_alike() {
        let mut tap = tap(0);
        (0..40_000).for_each(|step| asked(&mut tap, even(step, 10_000), Access::Read));
        let most = shown(&mut [&mut tap], 1);
        let most = most.first().map_or(0.0, |key| key.share);
        assert!(most < 0.005, "{most}");
    }

    #[test]
    fn workers_are_added_up_and_the_past_is_forgotten() {
        let (mut one, mut other) = (tap(0), tap(1));
        for _ in 0..10 {
            asked(&mut one, 1, Access::Read);
            asked(&mut other, 1, Access::Write);
            asked(&mut other, 2, Access::Read);
        }
        let keys = shown(&mut [&mut one, &mut other], 1);
        let told: Vec<_> = keys.iter().map(|key| (&*key.key, key.writes)).collect();
        assert_eq!(told, [(&b"key1"[..], 0.5), (&b"key2"[..], 0.0)]);
        assert!((keys[0].share - 2.0 / 3.0).abs() < 1e-4);
        assert_eq!(shown(&mut [&mut one, &mut other], 8), []);
    }

    #[test]
    fn reads_that_change_their_item_count_as_writes() {
        let get = Get::default();
        assert_eq!(access(&Operation::Get(get)), Access::Read);
        let touch = Get {
            touch: Some(curtail_types::Exptime::NEVER),
            ..get
        };
        assert_eq!(access(&Operation::Get(touch)), Access::Write);
        assert_eq!(
            access(&Operation::Delete(Default::default())),
            Access::Write
        );
    }
}
