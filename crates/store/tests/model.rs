//! Every command against a model: a `HashMap` that does what memcached's documentation says.
#![allow(clippy::expect_used, clippy::unwrap_used)] // in a test a panic is the report

mod asking;

use std::collections::HashMap;

use curtail_store::{Store, StoreConfig, Writer};
use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, DeleteOutcome, Direction, Exptime, Get, HashSeed,
    ItemStatus, Now, Set, SetMode, SetOutcome, WriterId,
};
use curtail_workload::Random;

use crate::asking::{START, at, named, value_of};

#[derive(Clone, Debug)]
struct Entry {
    value: Vec<u8>,
    flags: u32,
    cas: Cas,
    expiry: u64,
    stale: bool,
    won: bool,
    fetched: bool,
}

/// The model: what is there, in seconds of its own clock.
#[derive(Default)]
struct Model {
    entries: HashMap<Vec<u8>, Entry>,
    seconds: u64,
}

impl Model {
    fn now(&self) -> Now {
        at(self.seconds)
    }

    fn expiry(&self, exptime: Exptime) -> u64 {
        match exptime.0 {
            0 => u64::MAX,
            ..0 => 0,
            1..=2_592_000 => START + self.seconds + exptime.0 as u64,
            absolute => absolute as u64,
        }
    }

    fn present(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = START + self.seconds;
        if self
            .entries
            .get(key)
            .is_some_and(|entry| entry.expiry <= now)
        {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }
}

struct Run {
    store: Store,
    writer: Writer,
    model: Model,
    random: Random,
    value_bytes_max: u64,
    /// Reads that the short way answered.
    plain: u64,
}

impl Run {
    fn new(seed: u64, value_bytes_max: u64) -> Self {
        let store = Store::new(StoreConfig {
            memory_bytes_max: 64 << 20,
            hash_seed: HashSeed([seed, 7]),
            ..StoreConfig::default()
        })
        .expect("a store");
        Self {
            writer: store.writer(WriterId(3)),
            store,
            model: Model::default(),
            random: Random::new(seed),
            value_bytes_max,
            plain: 0,
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(40);
        let mut key = format!("key-{number}").into_bytes();
        key.resize(key.len() + (number * 6) as usize, b'k');
        key.truncate(250);
        key
    }

    fn value(&mut self) -> Vec<u8> {
        if self.random.one_in(4) {
            let number = self.random.below(100_000);
            return match self.random.one_in(8) {
                true => format!("{number:0width$}", width = self.random.below(60) as usize),
                false => number.to_string(),
            }
            .into_bytes();
        }
        let length = match self.random.below(8) {
            0 => self.random.below(self.value_bytes_max),
            _ => self.random.below(100),
        };
        let first = self.random.next() as u8;
        (0..length).map(|i| (i as u8).wrapping_add(first)).collect()
    }

    fn exptime(&mut self) -> Exptime {
        Exptime(match self.random.below(8) {
            0 => -1,
            1 => 1 + self.random.below(3) as i64,
            2 => 1 + self.random.below(2000) as i64,
            3 => (START + self.model.seconds + self.random.below(100_000_000)) as i64,
            _ => 0,
        })
    }

    fn maybe_exptime(&mut self, one_in: u64) -> Option<Exptime> {
        self.random.one_in(one_in).then(|| self.exptime())
    }

    /// A version: often the right one, sometimes a lower or another one.
    fn compare(&mut self, key: &[u8]) -> Option<Cas> {
        let current = self
            .model
            .entries
            .get(key)
            .map_or(Cas(77), |entry| entry.cas);
        match self.random.below(6) {
            0 => Some(current),
            1 => Some(Cas(current.0.wrapping_sub(1))),
            2 => Some(Cas(current.0.wrapping_add(1))),
            _ => None,
        }
    }

    fn new_cas(&mut self) -> Option<Cas> {
        self.random
            .one_in(20)
            .then(|| Cas(1 + self.random.below(1 << 60)))
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=6 => self.set(),
            7..=12 => self.get(),
            13..=14 => self.delete(),
            15..=17 => self.arithmetic(),
            18 => self.model.seconds += self.random.below(3),
            _ => self.others(),
        }
    }

    fn others(&mut self) {
        let now = self.model.now();
        if self.random.one_in(100) {
            self.store.flush_all(now, Exptime(0));
            self.model.entries.clear();
        }
        self.store.maintain(&mut self.writer, now, 64);
    }

    fn set(&mut self) {
        let (key, value) = (self.key(), self.value());
        let set = Set {
            mode: match self.random.below(8) {
                0 => SetMode::Add,
                1 => SetMode::Replace,
                2 => SetMode::Append,
                3 => SetMode::Prepend,
                _ => SetMode::Set,
            },
            flags: if self.random.one_in(3) {
                self.random.next() as u32
            } else {
                0
            },
            exptime: self.exptime(),
            compare: self.compare(&key),
            invalidate: self.random.one_in(3),
            vivify: self.maybe_exptime(4),
            new_cas: self.new_cas(),
        };
        let now = self.model.now();
        let (handle, hash) = named(&self.store, &key);
        let outcome = if self.random.one_in(3) {
            match self
                .store
                .reserve(&mut self.writer, now, handle, hash, &set, value.len())
            {
                Ok(mut reservation) => {
                    let mut rest = &value[..];
                    while !reservation.is_full() {
                        let spare = reservation.spare();
                        let length = spare.len().min(1 + self.random.below(5000) as usize);
                        spare[..length].copy_from_slice(&rest[..length]);
                        rest = &rest[length..];
                        reservation.advance(length);
                    }
                    self.store.commit(&mut self.writer, now, reservation)
                }
                Err(outcome) => outcome,
            }
        } else {
            self.store
                .set(&mut self.writer, now, handle, hash, &set, &value)
        };
        let expected = self.model_set(&key, &value, &set);
        match (outcome, expected) {
            (SetOutcome::Stored(cas), None) => {
                assert!(set.new_cas.is_none_or(|wanted| wanted == cas));
                self.model.entries.get_mut(&key).expect("just stored").cas = cas;
            }
            (outcome, Some(expected)) => assert_eq!(outcome, expected, "{set:?}"),
            (outcome, None) => panic!("{outcome:?} instead of stored, {set:?}"),
        }
    }

    /// `None` when it is stored.
    fn model_set(&mut self, key: &[u8], value: &[u8], set: &Set) -> Option<SetOutcome> {
        let joins = matches!(set.mode, SetMode::Append | SetMode::Prepend);
        let exptime = if joins {
            set.vivify.unwrap_or(set.exptime)
        } else {
            set.exptime
        };
        let mut entry = Entry {
            value: value.to_vec(),
            flags: set.flags,
            cas: Cas(0),
            expiry: self.model.expiry(exptime),
            stale: false,
            won: false,
            fetched: false,
        };
        match self.model.present(key) {
            None => match set.mode {
                SetMode::Set | SetMode::Replace if set.compare.is_some() => {
                    return Some(SetOutcome::NotFound);
                }
                SetMode::Replace => return Some(SetOutcome::NotStored),
                SetMode::Append | SetMode::Prepend if set.vivify.is_none() => {
                    return Some(SetOutcome::NotStored);
                }
                _ => {}
            },
            Some(_) if set.mode == SetMode::Add => return Some(SetOutcome::NotStored),
            Some(old) => {
                if let Some(compare) = set.compare
                    && compare != old.cas
                {
                    if joins || !set.invalidate || compare > old.cas {
                        return Some(SetOutcome::Exists);
                    }
                    entry.stale = true;
                    entry.won = old.won;
                    entry.expiry = old.expiry;
                }
                if joins {
                    let joined = match set.mode {
                        SetMode::Append => [&old.value[..], value].concat(),
                        _ => [value, &old.value[..]].concat(),
                    };
                    entry = Entry {
                        value: joined,
                        stale: false,
                        won: false,
                        fetched: false,
                        ..old.clone()
                    };
                }
            }
        }
        self.model.entries.insert(key.to_vec(), entry);
        None
    }

    fn get(&mut self) {
        let key = self.key();
        if self.random.one_in(2) {
            self.get_plain(&key);
        }
        let get = Get {
            touch: self.maybe_exptime(6),
            vivify: self.maybe_exptime(6),
            recache: self.random.one_in(6).then_some(Exptime(500)),
            quiet_access: self.random.one_in(6),
            new_cas: self.new_cas(),
            keep_token: self.random.one_in(6),
        };
        let now = self.model.now();
        let (handle, hash) = named(&self.store, &key);
        let by_lease = self.random.one_in(2);
        let seen = self
            .store
            .get(&mut self.writer, now, handle, hash, &get, |view| {
                let lease = by_lease.then(|| view.lease_value()).flatten();
                let value = match lease {
                    None => value_of(view),
                    Some(_) => Vec::new(),
                };
                (view.status(), value, lease)
            });
        let seen = seen.map(|(status, mut value, lease)| {
            if let Some(lease) = lease {
                while value.len() < lease.value_bytes() {
                    let part = lease.part(value.len());
                    assert!(!part.is_empty());
                    value.extend_from_slice(part);
                }
            }
            (status, value)
        });
        let expected = self.model_get(&key, &get, seen.as_ref().map(|seen| seen.0.cas));
        match (seen, expected) {
            (None, None) => {}
            (Some((status, value)), Some((expected, expected_value))) => {
                assert!(value == expected_value, "another value, {get:?}");
                let idle_seconds = status.idle_seconds;
                assert_eq!(
                    ItemStatus {
                        idle_seconds,
                        ..expected
                    },
                    status,
                    "{get:?}"
                );
            }
            (seen, expected) => panic!("{seen:?} instead of {expected:?}, {get:?}"),
        }
    }

    /// The short way of a read: it need not find anything, but what it finds is right, and it says
    /// nothing of items that have more to tell than their value.
    fn get_plain(&mut self, key: &[u8]) {
        let now = self.model.now();
        let (handle, hash) = named(&self.store, &key);
        let hint = self.store.prefetch_item(hash);
        let mut room = vec![b'#'; 3 + 1024 + 7];
        let head = |room: &mut [u8], value_bytes: usize| {
            room[..3].copy_from_slice(b"VA ");
            (value_bytes != 77).then_some(3)
        };
        let found = self
            .store
            .get_plain(now, handle, hash, hint, &mut room, head);
        let Some((bytes, value_bytes)) = found else {
            return;
        };
        self.plain += 1;
        let entry = self.model.present(key).expect("something is there");
        assert!(!entry.stale && !entry.won && entry.flags == 0 && entry.expiry == u64::MAX);
        assert_eq!(bytes, 3 + value_bytes);
        assert_eq!(value_bytes, entry.value.len());
        assert_ne!(value_bytes, 77, "the head refused it");
        assert!(room[..3] == *b"VA " && room[3..bytes] == entry.value);
        entry.fetched = true;
    }

    fn model_get(
        &mut self,
        key: &[u8],
        get: &Get,
        created: Option<Cas>,
    ) -> Option<(ItemStatus, Vec<u8>)> {
        let now = START + self.model.seconds;
        let touched = get.touch.map(|touch| self.model.expiry(touch));
        let vivified = get.vivify.map(|vivify| self.model.expiry(vivify));
        let recache = get.recache.map(|within| self.model.expiry(within));
        let status = |entry: &Entry, won| ItemStatus {
            flags: entry.flags,
            cas: entry.cas,
            value_bytes: entry.value.len() as u32,
            ttl_seconds: (entry.expiry != u64::MAX)
                .then(|| entry.expiry.saturating_sub(now) as u32),
            idle_seconds: 0,
            fetched: entry.fetched,
            won,
            stale: entry.stale,
            contended: entry.won,
        };
        let Some(entry) = self.model.present(key) else {
            let entry = Entry {
                value: Vec::new(),
                flags: 0,
                cas: get.new_cas.unwrap_or(created?),
                expiry: vivified?,
                stale: false,
                won: false,
                fetched: false,
            };
            let shown = status(&entry, true);
            self.model.entries.insert(
                key.to_vec(),
                Entry {
                    won: true,
                    fetched: !get.quiet_access,
                    ..entry
                },
            );
            return Some((shown, Vec::new()));
        };
        let due = recache.is_some_and(|limit| entry.expiry < limit);
        if let Some(expiry) = touched {
            entry.expiry = expiry;
        }
        let won = !get.keep_token && !entry.won && (entry.stale || due);
        let shown = (status(entry, won), entry.value.clone());
        entry.won |= won;
        entry.fetched |= !get.quiet_access;
        Some(shown)
    }

    fn delete(&mut self) {
        let key = self.key();
        let delete = Delete {
            compare: self.compare(&key),
            invalidate: self.random.one_in(2),
            touch: self.maybe_exptime(2),
            drop_value: self.random.one_in(4),
            new_cas: self.new_cas(),
        };
        let now = self.model.now();
        let (handle, hash) = named(&self.store, &key);
        let outcome = self
            .store
            .delete(&mut self.writer, now, handle, hash, &delete);
        let expiry = delete.touch.map(|touch| self.model.expiry(touch));
        let Some(entry) = self.model.present(&key) else {
            assert_eq!(outcome, DeleteOutcome::NotFound);
            return;
        };
        if delete.compare.is_some_and(|compare| compare != entry.cas) {
            assert_eq!(outcome, DeleteOutcome::Exists);
            return;
        }
        assert_eq!(outcome, DeleteOutcome::Deleted);
        if !delete.invalidate && !delete.drop_value {
            self.model.entries.remove(&key);
            return;
        }
        if delete.drop_value {
            *entry = Entry {
                value: Vec::new(),
                flags: 0,
                cas: delete.new_cas.unwrap_or(entry.cas),
                expiry: expiry.unwrap_or(u64::MAX),
                stale: false,
                won: false,
                fetched: false,
            };
        }
        if delete.invalidate {
            entry.stale = true;
            entry.won = false;
            if let Some(expiry) = expiry {
                entry.expiry = expiry;
            }
            self.learn_cas(&key, delete.new_cas);
        }
    }

    /// Takes over the version that the store gave, which must be the one asked for, if one was.
    fn learn_cas(&mut self, key: &[u8], wanted: Option<Cas>) {
        let unnoticed = Get {
            quiet_access: true,
            keep_token: true,
            ..Get::default()
        };
        let (handle, hash) = named(&self.store, &key);
        let now = self.model.now();
        let cas = self
            .store
            .get(&mut self.writer, now, handle, hash, &unnoticed, |view| {
                view.status().cas
            });
        if let Some(entry) = self.model.present(key) {
            let cas = cas.expect("it is there");
            assert!(wanted.is_none_or(|wanted| wanted == cas));
            assert_ne!(cas, Cas(0));
            entry.cas = cas;
        }
    }

    fn arithmetic(&mut self) {
        let key = self.key();
        let arithmetic = Arithmetic {
            direction: match self.random.one_in(2) {
                true => Direction::Decrement,
                false => Direction::Increment,
            },
            delta: match self.random.one_in(9) {
                true => u64::MAX,
                false => self.random.below(100_000),
            },
            vivify: self.maybe_exptime(3),
            initial: self.random.below(1000),
            touch: self.maybe_exptime(5),
            compare: self.compare(&key),
            new_cas: self.new_cas(),
        };
        let now = self.model.now();
        let (handle, hash) = named(&self.store, &key);
        let outcome = self
            .store
            .arithmetic(&mut self.writer, now, handle, hash, &arithmetic);
        let was_there = self.model.present(&key).is_some();
        match self.model_arithmetic(&key, &arithmetic) {
            Ok(number) => {
                let ArithmeticOutcome::Counted {
                    number: counted,
                    status,
                    created,
                } = outcome
                else {
                    panic!("{outcome:?} instead of {number}");
                };
                assert_eq!(counted, number);
                assert_eq!(created, !was_there);
                let entry = self.model.entries.get_mut(&key).expect("just counted");
                entry.cas = status.cas;
            }
            Err(expected) => assert_eq!(outcome, expected),
        }
    }

    /// The number, if it is counted.
    fn model_arithmetic(
        &mut self,
        key: &[u8],
        arithmetic: &Arithmetic,
    ) -> Result<u64, ArithmeticOutcome> {
        let touched = arithmetic.touch.map(|touch| self.model.expiry(touch));
        let vivified = arithmetic.vivify.map(|vivify| self.model.expiry(vivify));
        let Some(entry) = self.model.present(key) else {
            let entry = Entry {
                value: arithmetic.initial.to_string().into_bytes(),
                flags: 0,
                cas: Cas(0),
                expiry: vivified.ok_or(ArithmeticOutcome::NotFound)?,
                stale: false,
                won: false,
                fetched: false,
            };
            self.model.entries.insert(key.to_vec(), entry);
            return Ok(arithmetic.initial);
        };
        let differs = arithmetic
            .compare
            .is_some_and(|compare| compare != entry.cas);
        if differs && !entry.value.is_empty() {
            return Err(ArithmeticOutcome::Exists);
        }
        let old = number_at_start(&entry.value).ok_or(ArithmeticOutcome::NotANumber)?;
        let number = match arithmetic.direction {
            Direction::Increment => old.wrapping_add(arithmetic.delta),
            Direction::Decrement => old.saturating_sub(arithmetic.delta),
        };
        let mut digits = number.to_string().into_bytes();
        if digits.len() > entry.value.len() {
            entry.fetched = false;
            entry.stale = false;
            entry.won = false;
        }
        digits.resize(digits.len().max(entry.value.len()), b' ');
        entry.value = digits;
        entry.expiry = touched.unwrap_or(entry.expiry);
        Ok(number)
    }
}

/// The number that a value starts with: up to white space, as memcached reads it.
fn number_at_start(value: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(value);
    let is_space = |c: char| c.is_ascii_whitespace() || c == '\x0b';
    let word = text.trim_start_matches(is_space).split(is_space).next()?;
    // More digits than are looked at are no number.
    word.parse()
        .ok()
        .filter(|_| value.len() <= 40 || word.len() < 40)
}

/// Goal: each command does what memcached's does, whatever came before it. Method: random commands
/// on forty keys against the model, small values, several seeds.
#[test]
fn small_values_agree_with_the_model() {
    for seed in 1..=6 {
        let mut run = Run::new(seed, 1500);
        for _ in 0..10_000 {
            run.step();
        }
        assert!(run.store.counters().in_place > 0);
        assert!(run.plain > 200, "{}", run.plain);
    }
}

/// The same with values that are cut into pieces.
#[test]
fn large_values_agree_with_the_model() {
    for seed in 11..=12 {
        let mut run = Run::new(seed, 300_000);
        for _ in 0..2_500 {
            run.step();
        }
        assert_eq!(run.store.counters().evictions, 0);
    }
}
