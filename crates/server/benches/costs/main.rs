//! Measures what a request costs and prints the file of costs that the simulator's models of whole
//! systems read (`crates/simulator/costs.toml`).
//!
//! ```text
//! cargo bench -p curtail-server --bench costs > crates/simulator/costs.toml
//! ```
//!
//! Every number is the median of rounds in which all measurements take turns, so that a machine
//! which becomes slower for a while slows them all. The store holds 32 MiB of every size of value
//! and is asked at random, in batches of 16 with the server's prefetching: memory is cold, as in a
//! store of millions of items. What two cores do to each other is measured in lockstep: one
//! does one thing while the other waits, then the other does, so that only the movement of cache
//! lines is counted, and neither lock waits nor retried reads, which the simulator adds itself.

mod core_interference;
mod network;

use std::{
    collections::VecDeque,
    hint::black_box,
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_codec::memcached::{Decoded, Decoder, Limits, Request, Sink, encode};
use curtail_dispatch::{
    Access, Answers, Claim, Closing, CompactionConfig, Compactor, Deadline, Decision, Partition,
    Policy, RequestId, SharedWriters, Situation, Worker,
};
use curtail_runtime::{Events, Poller, Token, Waker};
use curtail_simulator::{Arrival, Completion, DispatchConfig, Dispatcher, Input};
use curtail_store::{COPY_BYTES_MAX, Hint, Store, StoreConfig, Writer};
use curtail_types::{Cas, Get, HashSeed, Instant, ItemStatus, Key, Now, Operation, Set, WriterId};

use crate::network::{FRAME_BYTES, Network};

/// Sizes of values.
const SIZES: [usize; 12] = [
    8,
    64,
    128,
    512,
    1_024,
    2_048,
    4_096,
    16_384,
    65_536,
    262_144,
    524_288,
    1 << 20,
];
/// Bytes of each size in the store.
const BYTES_OF_SIZE: usize = 32 << 20;
/// The longest value that the server receives before it asks the store for room.
const INLINE_BYTES_MAX: usize = 4_096;
/// Requests of a turn.
const BATCH: usize = 16;
/// Turns of one measurement.
const TURNS: usize = 1_000;
/// Medians are of so many rounds.
const ROUNDS: usize = 15;
/// Items, messages or connections in one lockstep.
const TOGETHER: usize = 64;

type Problem = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Problem> {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("# measured by `cargo bench` only");
        return Ok(());
    }
    let mut store = Filled::new()?;
    let mut network = Network::new()?;
    let mut turn = Turn::new()?;
    let mut table = Medians::default();
    for _ in 0..ROUNDS {
        // What the others left in the caches is not for the first size to clear away.
        store.gets(0);
        for (index, size) in SIZES.into_iter().enumerate() {
            table.add("get", size, store.gets(index));
            table.add("set", size, store.sets(index));
        }
        table.add("request", 1, turn.requests(1)?);
        table.add("request", BATCH, turn.requests(BATCH)?);
        core_interference::measure(&store.store, &mut table)?;
        table.add("decision", 0, decision());
        table.add("put aside", 0, put_aside());
        table.add("apply", 0, apply());
        table.add("call", 0, network.call()?);
        table.add("frame", 0, network.frame()?);
    }
    let (missed, reads) = (store.missed, store.reads);
    assert!(
        missed < reads / 20,
        "{missed} of {reads} items were evicted"
    );
    print(&mut table);
    Ok(())
}

/// What was measured, by name and size.
#[derive(Default)]
struct Medians(Vec<((&'static str, usize), Vec<f64>)>);

impl Medians {
    fn add(&mut self, name: &'static str, size: usize, ns: f64) {
        let key = (name, size);
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, all)) => all.push(ns),
            None => self.0.push((key, vec![ns])),
        }
    }

    /// To a tenth of a nanosecond, and never below nothing.
    fn of(&mut self, name: &str, size: usize) -> f64 {
        let found = self.0.iter_mut().find(|(known, _)| *known == (name, size));
        let Some((_, all)) = found else {
            return 0.0;
        };
        all.sort_by(f64::total_cmp);
        let median = all.get(all.len() / 2).copied().unwrap_or(0.0);
        ((median * 10.0).round() / 10.0).max(0.0)
    }
}

/// A store of items of all sizes.
struct Filled {
    store: Store,
    writer: Writer,
    writers: SharedWriters<PARTITIONS>,
    reply: Vec<u8>,
    value: Vec<u8>,
    random: u64,
    missed: u64,
    reads: u64,
}

impl Filled {
    fn new() -> Result<Self, Problem> {
        let config = StoreConfig {
            memory_bytes_max: BYTES_OF_SIZE * SIZES.len() * 3,
            item_bytes_max: 2 << 20,
            hash_seed: HashSeed([0x1234, 0x5678]),
            writers_max: 3,
            ..StoreConfig::default()
        };
        let store = Store::new(config)?;
        let mut filled = Self {
            writer: store.writer(WriterId(0)),
            store,
            writers: SharedWriters::new(63),
            reply: vec![0; COPY_BYTES_MAX],
            value: vec![7; 1 << 20],
            random: 1,
            missed: 0,
            reads: 0,
        };
        // Over and over, until all of the memory was in use: a first touch is a page fault.
        for _ in 0..6 {
            for index in 0..SIZES.len() {
                for number in 0..items(index) {
                    filled.set(index, number);
                    if number % 64 == 0 {
                        filled.store.maintain(&mut filled.writer, now(), 64);
                    }
                }
            }
        }
        Ok(filled)
    }

    /// Nanoseconds of a read: hashed, prefetched, looked up, and copied or leased.
    fn gets(&mut self, index: usize) -> f64 {
        timed(BATCH * TURNS, || {
            for _ in 0..TURNS {
                let keys = self.keys(index);
                let hashes = keys.map(|key| self.store.hash(&key));
                hashes.iter().for_each(|hash| self.store.prefetch(*hash));
                let hints = hashes.map(|hash| self.store.prefetch_item(hash));
                for (number, key) in keys.iter().enumerate() {
                    if let Some(ahead) = hints.get(number + 6) {
                        self.store.prefetch_value(*ahead);
                    }
                    self.get(key, hints[number]);
                }
            }
        })
    }

    /// A short value is copied, a long one leased; the kernel copies that while it sends.
    fn get(&mut self, key: &[u8; 16], hint: Hint) {
        let Ok(handle) = Key::new(key) else { return };
        let hash = self.store.hash(key);
        let get = Get::default();
        let reply = &mut self.reply;
        let found =
            self.store
                .get_hinted(
                    &mut self.writer,
                    now(),
                    handle,
                    hash,
                    hint,
                    &get,
                    |view| match view.value_bytes() <= COPY_BYTES_MAX {
                        true => (view.copy_value(0, reply), None),
                        false => (0, view.lease_value()),
                    },
                );
        self.reads += 1;
        self.missed += u64::from(black_box(found).is_none());
    }

    /// Nanoseconds of a write, with the claim of its partition.
    fn sets(&mut self, index: usize) -> f64 {
        timed(BATCH * TURNS, || {
            for _ in 0..TURNS {
                let numbers: [u64; BATCH] = std::array::from_fn(|_| self.draw(items(index)));
                for number in numbers {
                    self.store.prefetch(self.store.hash(&key(index, number)));
                }
                for number in numbers {
                    let hash = self.store.hash(&key(index, number));
                    self.store.prefetch_item(hash);
                }
                for number in numbers {
                    self.set(index, number);
                }
            }
            self.store.maintain(&mut self.writer, now(), 64);
        })
    }

    /// The bytes of a long value are received by the kernel straight into the store.
    fn set(&mut self, index: usize, number: u64) {
        let (bytes, size) = (key(index, number), SIZES[index]);
        let Ok(handle) = Key::new(&bytes) else { return };
        let hash = self.store.hash(&bytes);
        let partition = Partition(hash.0 as u32);
        let claim = self.writers.claim(partition, Worker(0));
        let (writer, set) = (&mut self.writer, Set::default());
        if size <= INLINE_BYTES_MAX {
            let value = &self.value[..size];
            black_box(self.store.set(writer, now(), handle, hash, &set, value));
        } else if let Ok(mut room) = self.store.reserve(writer, now(), handle, hash, &set, size) {
            while !room.is_full() {
                let length = room.spare().len();
                room.advance(length);
            }
            black_box(self.store.commit(writer, now(), room));
        }
        if let Claim::Granted(_, ticket) = claim {
            assert!(self.writers.release(ticket).is_ok());
        }
    }

    fn keys(&mut self, index: usize) -> [[u8; 16]; BATCH] {
        std::array::from_fn(|_| key(index, self.draw(items(index))))
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((u128::from(self.random) * u128::from(below)) >> 64) as u64
    }
}

/// What a turn does without store and network: waits for readiness, reads the clock, decodes,
/// answers.
struct Turn {
    poller: Poller,
    waker: Waker,
    events: Events,
    clock: curtail_runtime::Clock,
    input: Vec<u8>,
    reply: Vec<u8>,
}

impl Turn {
    fn new() -> Result<Self, Problem> {
        let poller = Poller::new()?;
        let mut input = Vec::new();
        for number in 0..BATCH as u64 {
            input.extend_from_slice(b"get ");
            input.extend_from_slice(&key(0, number * 7_919));
            input.extend_from_slice(b"\r\n");
        }
        Ok(Self {
            waker: poller.waker(Token(0))?,
            poller,
            events: Events::with_capacity(64),
            clock: curtail_runtime::Clock::start(),
            input,
            reply: vec![0; 1 << 14],
        })
    }

    /// Nanoseconds of a request in a turn of `count`.
    fn requests(&mut self, count: usize) -> Result<f64, Problem> {
        let mut whole = Duration::ZERO;
        for _ in 0..TURNS {
            self.waker.wake();
            let start = Clock::now();
            self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
            let mut ready = 0;
            self.events.for_each(|_, _| ready += 1);
            black_box((ready, self.clock.now()));
            self.answer(count);
            whole += start.elapsed();
        }
        let nothing = timer_ns() * TURNS as f64;
        Ok((whole.as_nanos() as f64 - nothing) / (TURNS * count) as f64)
    }

    fn answer(&mut self, count: usize) {
        let mut input = &black_box(&self.input)[..count * self.input.len() / BATCH];
        let mut sink = Sink::new(&mut self.reply);
        let mut decoder = Decoder::new(false);
        let mut answered = 0;
        let status = ItemStatus {
            value_bytes: 64,
            cas: Cas(1_234_567_890_123),
            ..ItemStatus::default()
        };
        while let Decoded::Complete { request, consumed } = decoder.decode(input, &LIMITS) {
            if let Request::Item {
                key,
                operation: Operation::Get(_),
                form,
                ..
            } = &request
                && encode::hit(&mut sink, key, form, black_box(&status))
            {
                sink.advance(status.value_bytes as usize);
                encode::value_end(&mut sink, form);
                answered += 1;
            }
            input = &input[consumed..];
        }
        assert_eq!(answered, count);
        black_box(sink.written());
    }
}

/// Nanoseconds that a dispatcher of 64 workers under d-CREW takes to decide about a request when it
/// comes and when it is done; half of them write, to a million partitions.
fn decision() -> f64 {
    let config = DispatchConfig::new(Policy::DynamicCrew, 64);
    let mut dispatcher = Dispatcher::new(config);
    let mut under_way = VecDeque::new();
    let requests = (TURNS * BATCH) as u32;
    timed(requests as usize, || {
        for number in 0..requests {
            let word = number.wrapping_mul(0x9e37_79b9);
            let access = if word & 1 == 0 {
                Access::Read
            } else {
                Access::Write
            };
            let request = Arrival {
                id: RequestId(number),
                partition: Partition(word >> 12),
                access,
            };
            dispatcher.step(Input::Arrive(request), |request, worker| {
                under_way.push_back((request, worker));
            });
            // As many are under way as the workers have at a load of one half.
            if under_way.len() <= 32 {
                continue;
            }
            let Some((request, worker)) = under_way.pop_front() else {
                continue;
            };
            let completion = Completion {
                worker,
                partition: request.partition,
                access: request.access,
                deferred: false,
            };
            dispatcher.step(Input::Complete(completion), |request, worker| {
                black_box((request, worker));
            });
        }
    })
}

/// Nanoseconds that the machine takes to put a write aside, and to answer it later.
fn put_aside() -> f64 {
    const WRITES: u32 = 32;
    let mut compactor = compactor();
    let mut clock = 0;
    timed(TURNS * WRITES as usize, || {
        for _ in 0..TURNS {
            clock += 1;
            let now = Instant { ns: clock };
            for number in 0..WRITES {
                let decision = compactor.write(now, 7, RequestId(number), now, || true);
                assert_eq!(decision, Decision::PutAside);
                compactor.step(now, Situation::PutAside(7), |_| true, |_| {});
            }
            compactor.close_all(|effect| {
                black_box(effect);
            });
        }
    })
}

/// Nanoseconds that opening and closing a window takes.
fn apply() -> f64 {
    let mut compactor = compactor();
    let mut clock = 0;
    timed(TURNS * BATCH, || {
        for number in 0..(TURNS * BATCH) as u32 {
            clock += 1;
            let now = Instant { ns: clock };
            compactor.write(now, u64::from(number), RequestId(number), now, || true);
            compactor.close_all(|effect| {
                black_box(effect);
            });
        }
    })
}

fn compactor() -> Compactor {
    Compactor::new(CompactionConfig {
        closing: Closing::Adaptive,
        deadline: Deadline::AfterOpening { ns: 1_000_000 },
        answers: Answers::AfterApply,
        windows_max: 4,
        writes_max: 62,
    })
}

fn print(table: &mut Medians) {
    let points = |table: &mut Medians, name| {
        let one = |size| format!("[{size}, {}]", table.of(name, size));
        let all: Vec<String> = SIZES.into_iter().map(one).collect();
        all.join(", ")
    };
    println!("{HEAD}");
    println!("# Measured on {}.\n", machine());
    let (base, alone) = (table.of("request", BATCH), table.of("request", 1));
    println!("{REQUEST}\n[request]\nbatch = {BATCH}\nbase_ns = {base}\nalone_ns = {alone}\n");
    println!("{STORE}\n[get]\npoints = [{}]\n", points(table, "get"));
    println!("[set]\npoints = [{}]\n", points(table, "set"));
    let (read, write) = (table.of("read", 1), table.of("write", 1));
    let after = table.of("write after write", 1);
    println!(
        "{CONTENDED}\n# After another's write instead of its read, a write gained {after} ns."
    );
    println!("[contended]\nread = [[1, {read}]]\nwrite = [[1, {write}]]\n");
    let delegated = table.of("delegated", 1);
    println!("{DELEGATED}\n[delegated_write]\nns = {delegated}\n");
    println!("{HAND_OFF}\n[hand_off]\nns = {}\n", table.of("hand off", 1));
    println!("{DECISION}\n[decision]\nns = {}\n", table.of("decision", 0));
    println!("{ASIDE}\n[put_aside]\nns = {}\n", table.of("put aside", 0));
    println!("{APPLY}\n[apply]\nns = {}\n", table.of("apply", 0));
    let (call, frame) = (table.of("call", 0), table.of("frame", 0));
    println!(
        "{NETWORK}\n[network]\ncall_ns = {call}\nframe_ns = {frame}\nmtu_bytes = {FRAME_BYTES}"
    );
}

/// The processor's name and how many there are.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|line| line.starts_with("model name"));
    let name = name.and_then(|line| line.split(':').nth(1));
    let cores = thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{cores} cores of a virtual machine ({})",
        name.map_or("of an unknown kind", str::trim)
    )
}

/// Nanoseconds of one of `count` things.
fn timed(count: usize, work: impl FnOnce()) -> f64 {
    let start = Clock::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// What reading the time twice takes.
fn timer_ns() -> f64 {
    let mut times: Vec<f64> = (0..64).map(|_| timed(1, || {})).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn items(index: usize) -> u64 {
    (BYTES_OF_SIZE / (SIZES[index] + 64)) as u64
}

fn key(index: usize, number: u64) -> [u8; 16] {
    let mut bytes = *b"k00:000000000000";
    bytes[1] = b'0' + (index / 10) as u8;
    bytes[2] = b'0' + (index % 10) as u8;
    let mut rest = number;
    for digit in bytes[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}

fn now() -> Now {
    Now {
        unix_ns: 1_800_000_000_000_000_000,
        ..Now::default()
    }
}

const LIMITS: Limits = Limits {
    value_bytes_max: 1 << 20,
    inline_value_bytes_max: INLINE_BYTES_MAX as u32,
};
const PARTITIONS: usize = 1 << 20;
/// Odd, so that there is a median.
const STEPS: usize = 401;

const HEAD: &str = "\
# What a request costs on our own server and store, in nanoseconds of one core: what the models of
# whole systems (`curtail simulate`, docs/guide/simulate.md) take for granted. Printed by
# `cargo bench -p curtail-server --bench costs`; every number is a median of rounds that take turns.
#";
const REQUEST: &str = "\
# A small request without the store and the network: its turn waits for readiness and reads the
# clock; the request is decoded and answered. In a turn of `batch` requests, and alone in one.";
const STORE: &str = "\
# The store, by the size of the value: [bytes, ns], straight lines between. Hashed, prefetched in
# batches of 16, looked up in cold memory, and copied up to 1 KiB or leased above; a write with the
# claim of its partition, a value above 4 KiB received straight into the store. What the kernel
# copies of long values is in `network`.";
const CONTENDED: &str = "\
# What is added when other cores touch the same bucket and item (512 bytes) at the same time:
# [cores, ns], measured with one other core in lockstep, so that only cache lines move. More than
# one other core could not be measured on two: a line is in one place at a time, so its journeys
# queue, and the straight line through the origin goes on.";
const DELEGATED: &str = "\
# A write that another worker holds the partition of: claimed, left in a ring, taken out there; both
# cores' parts, without the store.";
const HAND_OFF: &str = "\
# A connection or request that goes to another worker over a ring: both cores' parts. A
# receiver that sleeps is not woken here.";
const DECISION: &str = "\
# What a dispatcher of 64 workers decides about a request, under d-CREW: when it comes, and when it
# is done. A core that balances also pays the other ends of the workers' rings: one hand-off.";
const ASIDE: &str = "\
# A write that waits for the last one to its key, and is answered with it: the machine's part.";
const APPLY: &str = "\
# Opening and closing a window, beyond an ordinary write.";
const NETWORK: &str = "\
# TCP over loopback: a call that receives or sends one small frame (a turn's requests share it; a
# send over loopback does the peer's receiving too), every further frame of a long value with its
# copying from and to cold memory, and the bytes that a frame carries. No network card could be
# measured; loopback hands 64 KiB on at once, as cards that segment do.";
