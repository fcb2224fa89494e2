//! What Space-Saving promises, held to plain counts of the same stream.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};

use curtail_workload::Random;

use super::*;

fn see(counter: &mut Counter, key: u64, access: Access) {
    let name = format!("key{key}");
    let key = Key::new(name.as_bytes()).unwrap();
    counter.see(hash_of(&name), key, access);
}

/// Any hash of a name will do: FNV-1a.
fn hash_of(name: &str) -> KeyHash {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    KeyHash(name.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

fn listed(counter: &Counter) -> Vec<(String, u64)> {
    let text = |name: &KeyName| String::from_utf8(name.bytes().to_vec()).unwrap();
    let keys = counter.hottest();
    keys.map(|key| (text(key.name), key.count)).collect()
}

/// Goal: the list of figure 2.5 of the paper: most visited first, of equals the latest. Method: a
/// stream that builds that figure.
#[test]
fn the_top_is_walked_from_the_last_bucket_the_newest_first() {
    let mut counter = Counter::new(8);
    // x1, x2 and x3 once, x4 twice, x5 and x6 three times, x7 four times.
    for key in [7, 7, 7, 5, 6, 4, 5, 6, 4, 5, 6, 7, 1, 2, 3] {
        see(&mut counter, key, Access::Read);
    }
    let expected = [(7, 4), (6, 3), (5, 3), (4, 2), (3, 1), (2, 1), (1, 1)];
    let expected = expected.map(|(key, count)| (format!("key{key}"), count));
    assert_eq!(listed(&counter), expected);
    assert_eq!(counter.absent_max(), 0);
}

/// Goal: who gives way is the least visited, of equals the one not seen for longest, and its count
/// is taken over. Method: four keys in three places.
#[test]
fn the_least_and_longest_unseen_gives_way_with_its_count() {
    let mut counter = Counter::new(3);
    for key in [1, 2, 2, 3, 3, 1, 4] {
        see(&mut counter, key, Access::Write);
    }
    // All had 2; key 2 was seen before 3 and 1.
    let expected = [(4, 3), (1, 2), (3, 2)].map(|(key, count)| (format!("key{key}"), count));
    assert_eq!(listed(&counter), expected);
    let newest = counter.hottest().next().unwrap();
    assert_eq!((newest.error, newest.writes), (2, 1));
    assert_eq!((counter.absent_max(), counter.seen()), (2, 7));
}

/// A key of a stream in which shares fall about like 1 / rank: below a power of two that is drawn.
fn skewed(random: &mut Random, keys: u64) -> u64 {
    let powers = u64::from(keys.ilog2()) + 1;
    let bound = 1 << random.below(powers);
    random.below(bound)
}

/// Plain counts: requests and writes by key.
type Truth = BTreeMap<String, (u64, u64)>;

/// What SW-51 demands, after any stream.
fn hold(counter: &Counter, truth: &Truth, seen: u64, places: usize) {
    let listed: Vec<_> = counter.hottest().collect();
    let sum: u64 = listed.iter().map(|key| key.count).sum();
    assert_eq!((sum, counter.seen()), (seen, seen), "counts sum up");
    let counts = listed.iter().map(|key| key.count);
    assert!(counts.rev().is_sorted(), "the most seen first");
    let least = listed.last().map_or(0, |key| key.count);
    for key in &listed {
        let name = core::str::from_utf8(key.name.bytes()).unwrap();
        assert_eq!(key.hash, hash_of(name), "the name is that of the hash");
        let (count, writes) = truth[name];
        assert!(count <= key.count, "never below the truth");
        assert!(key.count - key.error <= count, "what is certain is");
        assert!(
            key.count - count <= least,
            "never more than the least above"
        );
        assert!(key.writes <= writes && key.writes <= key.count - key.error);
    }
    let full = listed.len() == places;
    assert_eq!(counter.absent_max(), if full { least } else { 0 });
    for (name, (count, _)) in truth {
        let is_listed = listed.iter().any(|key| key.name.bytes() == name.as_bytes());
        assert!(is_listed || *count <= counter.absent_max(), "{name}");
        assert!(is_listed || count * places as u64 <= seen, "{name}");
    }
}

/// Goal: the promises of SW-51 hold for any stream. Method: streams of several skews and numbers of
/// keys, in counters from one place to more than there are keys; checked on the way and after the
/// counter was cleared and used again.
#[test]
fn bounds_hold_for_any_stream() {
    let mut random = Random::new(1);
    for places in [1, 2, 3, 10, 100, 700] {
        let mut counter = Counter::new(places);
        for keys in [1, 5, 99, 600, 20_000] {
            let mut truth = Truth::new();
            for seen in 1..=3000 {
                let key = match keys % 2 {
                    0 => random.below(keys),
                    _ => skewed(&mut random, keys),
                };
                let access = match random.below(3) {
                    0 => Access::Write,
                    _ => Access::Read,
                };
                see(&mut counter, key, access);
                let count = truth.entry(format!("key{key}")).or_default();
                *count = (count.0 + 1, count.1 + u64::from(access == Access::Write));
                if seen % 500 == 0 || seen < 10 {
                    hold(&counter, &truth, seen, places as usize);
                }
            }
            counter.clear();
            hold(&counter, &Truth::new(), 0, places as usize);
        }
    }
}

/// Goal: the top k of a skewed stream is found. Method: a stream like 1 / rank over 8,192 keys in
/// 200 places; the ten most frequent must be among the first 20, with at most n / N of error.
#[test]
fn the_top_of_a_skewed_stream_is_found() {
    let (mut counter, mut random) = (Counter::new(200), Random::new(7));
    let mut truth = Truth::new();
    for _ in 0..200_000 {
        let key = skewed(&mut random, 10_000);
        see(&mut counter, key, Access::Read);
        truth.entry(format!("key{key}")).or_default().0 += 1;
    }
    hold(&counter, &truth, 200_000, 200);
    let mut ranked: Vec<_> = truth.into_iter().collect();
    ranked.sort_by_key(|(_, count)| core::cmp::Reverse(count.0));
    let found: Vec<_> = counter.hottest().take(20).collect();
    for (name, (count, _)) in &ranked[..10] {
        let key = found.iter().find(|key| key.name.bytes() == name.as_bytes());
        let key = key.unwrap_or_else(|| panic!("{name} with {count}"));
        assert!(
            key.count - count <= 200_000 / 200,
            "{name}: {key:?}, {count}"
        );
    }
}
