//! The simulators on traces short enough to work out by hand; run before any table, and alone when
//! the bench runs as a test.

use crate::contenders::{Contender, policies, variations};
use crate::ghost::Ghost;
use crate::trace::Trace;

/// Panics if a simulator does not do what its paper says.
pub(crate) fn run() {
    textbook_sequences();
    one_hit_wonders_do_not_wash_out_what_is_used();
    everything_fits_means_no_misses_but_the_first();
    a_ghost_remembers_its_age();
}

/// Each letter is a request; the answer is `h` or `m`, worked out on paper for a cache of three.
fn textbook_sequences() {
    let expected = [
        ("FIFO", "abcadaeb", "mmmhmmmm"),
        ("LRU", "abcadaeb", "mmmhmhmm"),
        ("CLOCK", "abcadaeb", "mmmhmhmm"),
        ("CLOCK", "abcadbeba", "mmmhmmmhm"),
        ("SIEVE", "abcadaeb", "mmmhmhmm"),
        ("SIEVE", "abacdacea", "mmhmmhhmh"),
        ("ARC", "aabcbd", "mhmmhm"),
        ("OPT", "abcadabc", "mmmhmhhh"),
    ];
    for (name, requests, answers) in expected {
        let contender = find(name);
        assert_eq!(
            answer(&contender, requests, 3),
            answers,
            "{name} on {requests}"
        );
    }
}

/// Twenty objects are asked for again and again between objects that are asked for once.
fn one_hit_wonders_do_not_wash_out_what_is_used() {
    let mut requests = Vec::new();
    for round in 0..400_u32 {
        requests.extend(0..20);
        requests.extend(20 + round * 40..20 + (round + 1) * 40);
    }
    let objects = 20 + 400 * 40;
    let trace = Trace {
        name: "scan",
        requests,
        sizes: vec![1; objects],
    };
    let hits = |name: &str| {
        let mut cache = find(name).cache(&trace, 50);
        trace
            .requests
            .iter()
            .filter(|&&object| cache.request(object))
            .count()
    };
    assert_eq!(hits("LRU"), 0, "the loop is longer than the cache");
    for name in ["S3-FIFO", "W-TinyLFU", "ours"] {
        assert!(
            hits(name) > 380 * 20,
            "{name} keeps the twenty: {}",
            hits(name)
        );
    }
}

/// A cache larger than the footprint, with room for what open segments waste, never evicts.
fn everything_fits_means_no_misses_but_the_first() {
    let requests: Vec<u32> = (0..1000).chain(0..1000).collect();
    let trace = Trace {
        name: "fits",
        requests,
        sizes: vec![1; 1000],
    };
    for contender in policies().iter().chain(&variations()) {
        let mut cache = contender.cache(&trace, 8000);
        let hits = trace
            .requests
            .iter()
            .filter(|&&object| cache.request(object))
            .count();
        let name = &contender.name;
        assert!(
            hits == 1000 || name == "W-TinyLFU",
            "{name}: {hits} hits of 1000"
        );
    }
}

/// What was dropped last is young, what was dropped long ago is old or gone, and a ghost is taken
/// once.
fn a_ghost_remembers_its_age() {
    let mut ghost = Ghost::new(32 * 64);
    (0..4096).for_each(|object| ghost.insert(object));
    let known = (0..1024)
        .filter(|&object| ghost.take(object).is_some())
        .count();
    assert!(known < 64, "the first quarter fell out: {known}");
    let ages: Vec<u64> = (3072..4096)
        .filter_map(|object| ghost.take(object))
        .collect();
    assert!(
        ages.len() >= 1000,
        "a few fall to chance at most: {}",
        ages.len()
    );
    let mean = ages.iter().sum::<u64>() / ages.len() as u64;
    assert!(
        (300..800).contains(&mean),
        "512 drops ago in the mean: {mean}"
    );
    assert_eq!(ghost.take(4095), None);
}

fn find(name: &str) -> Contender {
    let mut all = policies().into_iter();
    let found = all.find(|contender| contender.name == name);
    found.unwrap_or_else(|| panic!("no policy is called {name}"))
}

fn answer(contender: &Contender, letters: &str, capacity: u64) -> String {
    let requests: Vec<u32> = letters
        .bytes()
        .map(|letter| u32::from(letter - b'a'))
        .collect();
    let trace = Trace {
        name: "letters",
        requests,
        sizes: vec![1; 26],
    };
    let mut cache = contender.cache(&trace, capacity);
    let hits = trace.requests.iter().map(|&object| cache.request(object));
    hits.map(|hit| if hit { 'h' } else { 'm' }).collect()
}
