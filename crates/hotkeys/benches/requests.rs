//! The cost of a request that is skipped, of one that is counted, and of the end of a segment.
//!
//! `cargo bench -p curtail-hotkeys`; with a name (`heap`, `counted`...) only that one, so that
//! instructions can be counted: `valgrind --tool=callgrind BINARY --bench NAME`, with REQUESTS
//! less. The stream is skewed like 1 / rank over a million keys of 16 bytes. A binary heap is there
//! as the other way to find the least count.

use std::{collections::HashMap, env, hint::black_box, time::Instant as Clock};

use curtail_hotkeys::{Access, Counter, Parameters, Sampler, Tracker};
use curtail_types::{Instant, Key, KeyHash, LoadScale};

fn main() {
    let only = env::args().skip(1).find(|word| !word.starts_with("--"));
    let requests = env::var("REQUESTS").map_or(Ok(2_000_000), |text| text.parse());
    let requests: usize = requests.unwrap_or_else(|error| panic!("REQUESTS: {error}"));
    let stream = stream(requests);
    let run = |name: &str, bench: &mut dyn FnMut(&[Asked])| {
        if only.as_deref().is_none_or(|only| only == name) {
            let start = Clock::now();
            bench(&stream);
            let ns = start.elapsed().as_nanos() as f64 / stream.len() as f64;
            println!("{name:24} {ns:7.2} ns a request");
        }
    };
    run("nothing", &mut |stream| {
        for asked in stream {
            black_box(asked);
        }
    });
    run("passed by", &mut |stream| pass_by(stream, 1_000_000));
    run("sampled 1 in 64", &mut |stream| pass_by(stream, 64));
    for places in [32, 1024, 20_000] {
        let mut counter = Counter::new(places);
        run(&format!("counted {places}"), &mut |stream| {
            for asked in stream {
                counter.see(asked.hash, asked.key(), Access::Read);
            }
        });
        let mut heap = Heap::new(places as usize);
        run(&format!("heap {places}"), &mut |stream| {
            stream.iter().for_each(|asked| heap.see(asked));
        });
    }
    let mut tracker = tracker(1);
    run("counted 20000, logged", &mut |stream| {
        for asked in stream {
            black_box(tracker.see(asked.hash, asked.key(), Access::Read));
        }
    });
    let start = Clock::now();
    tracker.end_segment(Instant { ns: 1 });
    println!("end of a segment {:24} ns", start.elapsed().as_nanos());
}

struct Asked {
    hash: KeyHash,
    name: [u8; 16],
}

impl Asked {
    fn key(&self) -> Key<'_> {
        Key::new(&self.name).unwrap_or_else(|error| panic!("{error:?}"))
    }
}

fn stream(requests: usize) -> Vec<Asked> {
    let mut random = 1_u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        ((u128::from(random) * u128::from(bound)) >> 64) as u64
    };
    let mut next = || {
        let bound = 1 << below(21);
        let key = below(bound);
        let mut name = *b"key-............";
        name[8..].copy_from_slice(&key.to_be_bytes());
        let hash = KeyHash((key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Asked { hash, name }
    };
    (0..requests).map(|_| next()).collect()
}

fn tracker(sampled_every: u32) -> Tracker {
    let switchkv = Parameters::switchkv();
    let scale = LoadScale {
        sampled_every,
        ..switchkv.scale
    };
    let parameters = Parameters { scale, ..switchkv };
    let checked = parameters.check();
    let checked = checked.unwrap_or_else(|error| panic!("{error}"));
    Tracker::new(checked, Instant::default())
}

/// In batches of 16, as a server has them.
fn pass_by(stream: &[Asked], every: u32) {
    let mut sampler = Sampler::new(every, 1);
    let mut counter = Counter::new(1024);
    for batch in stream.chunks(16) {
        while let Some(place) = sampler.next_in(batch.len()) {
            if let Some(asked) = batch.get(place) {
                counter.see(asked.hash, asked.key(), Access::Read);
            }
        }
    }
    black_box(counter.seen());
}

/// The same promises by a binary heap of counts, the least on top.
struct Heap {
    entries: Vec<(u64, u64, [u8; 16])>,
    places: HashMap<u64, usize>,
    entries_max: usize,
}

impl Heap {
    fn new(entries_max: usize) -> Self {
        Self {
            entries: Vec::with_capacity(entries_max),
            places: HashMap::with_capacity(2 * entries_max),
            entries_max,
        }
    }

    fn see(&mut self, asked: &Asked) {
        let at = match self.places.get(&asked.hash.0) {
            Some(&at) => at,
            None if self.entries.len() < self.entries_max => {
                self.entries.push((1, asked.hash.0, asked.name));
                return self.rise(self.entries.len() - 1);
            }
            None => {
                self.places.remove(&self.entries[0].1);
                (self.entries[0].1, self.entries[0].2) = (asked.hash.0, asked.name);
                0
            }
        };
        self.entries[at].0 += 1;
        self.sink(at);
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.entries[at].0 < self.entries[(at - 1) / 2].0 {
            self.entries.swap(at, (at - 1) / 2);
            self.places.insert(self.entries[at].1, at);
            at = (at - 1) / 2;
        }
        self.places.insert(self.entries[at].1, at);
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter();
            let there = children.filter(|&child| child < self.entries.len());
            match there.min_by_key(|&child| self.entries[child].0) {
                Some(child) if self.entries[child].0 < self.entries[at].0 => {
                    self.entries.swap(at, child);
                    self.places.insert(self.entries[at].1, at);
                    at = child;
                }
                _ => break,
            }
        }
        self.places.insert(self.entries[at].1, at);
    }
}
