//! `curtail tier load`: as many requests as a tier serves, and which node served them.
//!
//! An open loop whose rate follows the loss, as the paper's client does (section 2.4): while more
//! than 1 % of the requests are refused or lost it falls, below 0.5 % it rises. With `--rate` it is
//! constant. With `--change` other keys become hot while it runs, and each second is shown.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use curtail_client::tier::{TierClientError, TierSession, TierSocket};
use curtail_codec::tiered::{
    DATAGRAM_BYTES_MAX, TierRequests, TierTarget, TieredDatagram, TieredFlags, TieredHead,
    TieredOpcode, TieredStatus,
};
use curtail_tier::TierFile;
use curtail_types::{BackEndId, Key};
use curtail_workload::{Change, HotSet, Popularity, Random, Ranks, Scramble};

use super::{load_series::LoadSeries, socket_to};

/// What load.
#[derive(Args, Debug)]
pub(super) struct LoadOptions {
    /// Number of keys, which are stored first
    #[arg(long, value_name = "NUM", default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: u64,
    /// Zipf exponent of key popularity; 0 is uniform
    #[arg(long, value_name = "NUM", default_value_t = 0.99)]
    zipf: f64,
    /// Length of the values in bytes
    #[arg(long, value_name = "NUM", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=1024))]
    value_bytes: u16,
    /// Share of writes, in percent
    #[arg(long, value_name = "NUM", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    writes: u8,
    /// Seconds of load before the measurement, while the rate and the set of cached keys become
    /// stable
    #[arg(long, value_name = "NUM", default_value_t = 15)]
    warm_up: u64,
    /// Seconds of the measurement
    #[arg(long, value_name = "NUM", default_value_t = 15)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Requests a second; without this flag, the rate at which 1 % are refused or lost
    #[arg(long, value_name = "NUM", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: Option<u32>,
    /// What changes during the measurement, and how often: hot-in@N/TIME (the N coldest keys become
    /// the hottest), hot-out@N/TIME (the N hottest become the coldest) or random@NofK/TIME (N of
    /// the K hottest are replaced by cold ones), for example hot-in@10/10s
    #[arg(long, value_name = "CHANGE")]
    change: Option<Change>,
    /// Number of UDP sockets that send requests. Each has a port of its own, by which the switch
    /// selects the cache node for a key that all cache nodes share
    #[arg(long, value_name = "NUM", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=512))]
    sockets: u16,
    /// Do not store the keys first, because they are stored already
    #[arg(long)]
    no_preload: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "NUM", default_value_t = 1)]
    seed: u64,
}

/// Loads a tier and prints what it served.
pub(super) fn run(file: &TierFile, options: &LoadOptions) -> anyhow::Result<()> {
    ensure!(
        (0.0..=5.0).contains(&options.zipf),
        "--zipf {}: give 0 to 5",
        options.zipf
    );
    if let Some(change) = options.change {
        let checked = change.check(options.keys);
        checked.map_err(|why| anyhow!("--change {change}: {why}"))?;
    }
    let mut load = TierLoad::new(file, options)?;
    if !options.no_preload {
        load.preload()?;
    }
    load.run_for(Duration::from_secs(options.warm_up));
    load.counts = LoadCounts::new(file.back_ends.len());
    let (seed, keys) = (options.seed, options.keys);
    load.hot_set = options.change.map(|one| HotSet::new(one, keys, seed));
    load.series = options.change.map(|_| LoadSeries::default());
    load.began = Instant::now();
    load.run_for(Duration::from_secs(options.seconds));
    print!("{}", load.describe(load.began.elapsed().as_secs_f64()));
    if let Some(series) = &load.series {
        print!("\n{series}");
    }
    Ok(())
}

struct TierLoad<'a> {
    options: &'a LoadOptions,
    target: TierTarget,
    clients: Vec<LoadClient>,
    random: Random,
    ranks: Ranks,
    /// Which key has which rank.
    scramble: Scramble,
    value: Vec<u8>,
    room: Box<[u8]>,
    /// Requests that are under way.
    open: HashMap<u64, OpenRequest>,
    per_s: f64,
    counts: LoadCounts,
    /// Which keys are hot now.
    hot_set: Option<HotSet>,
    series: Option<LoadSeries>,
    /// The measurement.
    began: Instant,
    /// Of the interval: sent, and refused or lost.
    sent: u64,
    lost: u64,
}

/// A socket, and what is sent from it.
struct LoadClient {
    socket: TierSocket,
    requests: TierRequests,
}

impl LoadClient {
    fn open(target: &TierTarget, number: u16) -> anyhow::Result<Self> {
        let socket = socket_to(target).context("cannot open a socket to the tier")?;
        socket.socket().set_nonblocking(true)?;
        let id = std::process::id().saturating_add(super::FIRST_CLIENT);
        let id = id.saturating_add(number.into());
        // Numbers of requests that no other client of this process has.
        let first = now_ns().saturating_add(u64::from(number) << REQUESTS_BITS);
        Ok(Self {
            requests: TierRequests::new(*target, id, socket.own(), first),
            socket,
        })
    }
}

struct OpenRequest {
    client: usize,
    sent: Instant,
    head: TieredHead,
    /// The number of its key.
    key: u64,
}

struct LoadCounts {
    /// Clients of a baseline that were told to ask the back end.
    not_cached: u64,
    by_back_end: Vec<u64>,
    from_cache: u64,
    sent: u64,
    lost: u64,
}

impl LoadCounts {
    fn new(back_ends: usize) -> Self {
        Self {
            by_back_end: vec![0; back_ends],
            not_cached: 0,
            from_cache: 0,
            sent: 0,
            lost: 0,
        }
    }
}

impl<'a> TierLoad<'a> {
    fn new(file: &TierFile, options: &'a LoadOptions) -> anyhow::Result<Self> {
        let target = file.target();
        let clients = (0..options.sockets).map(|number| LoadClient::open(&target, number));
        let popularity = Popularity::Zipf {
            exponent: options.zipf,
        };
        Ok(Self {
            options,
            target,
            clients: clients.collect::<anyhow::Result<_>>()?,
            random: Random::new(options.seed),
            ranks: Ranks::new(options.keys, popularity),
            scramble: Scramble::new(options.keys, options.seed),
            value: vec![b'v'; options.value_bytes.into()],
            room: vec![0; DATAGRAM_BYTES_MAX + 1].into_boxed_slice(),
            open: HashMap::new(),
            per_s: options.rate.map_or(FIRST_PER_S, f64::from),
            counts: LoadCounts::new(file.back_ends.len()),
            hot_set: None,
            series: None,
            began: Instant::now(),
            sent: 0,
            lost: 0,
        })
    }

    /// Stores every key; back ends that are limited set the pace.
    fn preload(&mut self) -> anyhow::Result<()> {
        let (keys, target) = (self.options.keys, self.target);
        eprintln!("storing {keys} keys");
        let value = &self.value;
        let threads: Vec<_> = std::thread::scope(|scope| {
            let store = |part: u64| {
                move || -> Result<(), TierClientError> {
                    let number = std::process::id().saturating_add(super::FIRST_CLIENT);
                    let socket = socket_to(&target).map_err(TierClientError::Io)?;
                    let mut session = TierSession::with_socket(socket, target, number);
                    for number in (part..keys).step_by(PRELOADERS as usize) {
                        store_until_done(&mut session, &name_of(number), value)?;
                    }
                    Ok(())
                }
            };
            let threads: Vec<_> = (0..PRELOADERS)
                .map(|part| scope.spawn(store(part)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().ok())
                .collect()
        });
        for done in threads {
            done.context("a thread")?.context("storing the keys")?;
        }
        Ok(())
    }

    fn run_for(&mut self, time: Duration) {
        let (began, mut interval) = (Instant::now(), Instant::now());
        let (mut last, mut due) = (began, 0.0);
        while began.elapsed() < time {
            let now = Instant::now();
            self.change(now);
            due += now.duration_since(last).as_secs_f64() * self.per_s;
            last = now;
            // What a pause of this process has held up is not sent at once.
            due = due.min(self.per_s * 0.02 + 1.0);
            while due >= 1.0 {
                self.send();
                due -= 1.0;
            }
            self.receive();
            if interval.elapsed() >= INTERVAL {
                interval = now;
                self.end_interval(now);
            }
            std::thread::sleep(SLOT);
        }
    }

    /// Makes the changes of popularity that are due.
    fn change(&mut self, now: Instant) {
        let (Some(hot_set), Some(series)) = (&mut self.hot_set, &mut self.series) else {
            return;
        };
        let at = now.duration_since(self.began);
        series.go_to(at);
        let ns = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        series.now().changes += hot_set.advance(ns, self.counts.sent + self.sent);
    }

    fn send(&mut self) {
        let rank = self.ranks.rank(&mut self.random);
        let place = self.hot_set.as_ref().map_or(rank, |set| set.place(rank));
        let number = self.scramble.key(place);
        let name = name_of(number);
        let Ok(key) = Key::new(name.as_bytes()) else {
            return;
        };
        let writes = self.random.below(100) < u64::from(self.options.writes);
        let (opcode, value) = match writes {
            true => (TieredOpcode::Put, &self.value[..]),
            false => (TieredOpcode::Get, &[][..]),
        };
        let at = self.random.below(self.clients.len() as u64) as usize;
        let Some(client) = self.clients.get_mut(at) else {
            return;
        };
        let head = client.requests.head(opcode, key);
        let datagram = TieredDatagram {
            head,
            key: Some(key),
            value,
        };
        let Ok(bytes) = datagram.encode(&mut self.room, None) else {
            return;
        };
        let to = client.requests.destination(&head);
        let _ = client.socket.send(to, &self.room[..bytes]);
        let open = OpenRequest {
            client: at,
            sent: Instant::now(),
            head,
            key: number,
        };
        self.open.insert(head.sequence, open);
        self.sent += 1;
        if let Some(series) = &mut self.series {
            series.now().sent += 1;
        }
    }

    fn receive(&mut self) {
        (0..self.clients.len()).for_each(|at| self.receive_at(at));
    }

    fn receive_at(&mut self, at: usize) {
        while let Some(client) = self.clients.get(at) {
            let bytes = match client.socket.socket().recv(&mut self.room) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => continue,
            };
            let Some(reply) = client.requests.reply(&self.room[..bytes]) else {
                continue;
            };
            let Some(open) = self.open.get(&reply.head.sequence) else {
                continue;
            };
            if !TierRequests::answers(&open.head, &reply.head) {
                continue;
            }
            if reply.head.status == TieredStatus::NotCached {
                let sequence = reply.head.sequence;
                self.ask_back_end(sequence);
                continue;
            }
            let name = name_of(open.key);
            let back_end = Key::new(name.as_bytes()).map(|key| client.requests.owner(key));
            self.open.remove(&reply.head.sequence);
            let is_served = matches!(
                reply.head.status,
                TieredStatus::Done | TieredStatus::NotFound
            );
            if let Some(series) = &mut self.series {
                let from_cache = reply.head.flags.has(TieredFlags::FROM_CACHE);
                series.now().served += u64::from(is_served);
                series.now().from_cache += u64::from(is_served && from_cache);
            }
            if !is_served {
                self.lost += 1;
            } else if reply.head.flags.has(TieredFlags::FROM_CACHE) {
                self.counts.from_cache += 1;
            } else if let Ok(BackEndId(id)) = back_end
                && let Some(served) = self.counts.by_back_end.get_mut(usize::from(id))
            {
                *served += 1;
            }
        }
    }

    /// A cache node has no copy, and passes nothing on.
    fn ask_back_end(&mut self, sequence: u64) {
        let Some(open) = self.open.get_mut(&sequence) else {
            return;
        };
        let name = name_of(open.key);
        let Ok(key) = Key::new(name.as_bytes()) else {
            return;
        };
        let Some(client) = self.clients.get_mut(open.client) else {
            return;
        };
        open.head = client.requests.past_caches(open.head, key);
        self.counts.not_cached += 1;
        let to = client.requests.destination(&open.head);
        let (head, key, value) = (open.head, Some(key), &[][..]);
        let asked = TieredDatagram { head, key, value };
        if let Ok(bytes) = asked.encode(&mut self.room, None) {
            let _ = client.socket.send(to, &self.room[..bytes]);
        }
    }

    fn end_interval(&mut self, now: Instant) {
        let before = self.open.len();
        self.open
            .retain(|_, open| now.duration_since(open.sent) < LOST_AFTER);
        self.lost += (before - self.open.len()) as u64;
        let loss = self.lost as f64 / self.sent.max(1) as f64;
        if self.options.rate.is_none() {
            self.adapt(loss);
        }
        self.counts.sent += self.sent;
        self.counts.lost += self.lost;
        (self.sent, self.lost) = (0, 0);
    }

    fn adapt(&mut self, loss: f64) {
        if loss > LOSS_MAX {
            self.per_s *= (1.0 - loss).max(0.5);
        } else if loss < LOSS_MIN {
            self.per_s *= 1.0 + 4.0 * (LOSS_MAX - loss);
        }
        self.per_s = self.per_s.max(10.0);
    }

    fn describe(&self, seconds: f64) -> String {
        let counts = &self.counts;
        let served: u64 = counts.by_back_end.iter().sum();
        let total = (served + counts.from_cache) as f64;
        let mut text = String::new();
        let rate = |count: u64| count as f64 / seconds;
        let most = counts.by_back_end.iter().copied().max().unwrap_or(0);
        let mean = served as f64 / counts.by_back_end.len() as f64;
        let _ = writeln!(
            text,
            "{:.0} requests a second, {:.1} % of them from the cache; {:.2} % refused or lost\n\
             the most loaded back end has {:.2} times the mean\n\n\
             | back end | requests/s |\n|---|---|",
            total / seconds,
            100.0 * counts.from_cache as f64 / total.max(1.0),
            100.0 * counts.lost as f64 / counts.sent.max(1) as f64,
            most as f64 / mean.max(f64::MIN_POSITIVE),
        );
        for (id, served) in counts.by_back_end.iter().enumerate() {
            let _ = writeln!(text, "| {id} | {:.0} |", rate(*served));
        }
        if counts.not_cached > 0 {
            let asked = rate(counts.not_cached);
            let _ = writeln!(
                text,
                "\n{asked:.0} reads a second went first to a cache node that had no copy"
            );
        }
        text
    }
}

/// A limited back end refuses what is too much for now.
fn store_until_done(
    session: &mut TierSession,
    key: &str,
    value: &[u8],
) -> Result<(), TierClientError> {
    let began = Instant::now();
    loop {
        match session.put(key.as_bytes(), value, 0, None) {
            Err(TierClientError::Busy | TierClientError::Unanswered)
                if began.elapsed() < STORE_PATIENCE => {}
            done => return done.map(|_| ()),
        }
    }
}

fn name_of(key: u64) -> String {
    format!("key:{key:012}")
}

fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(1)
}

/// Requests of a client at most, as a power of two.
const REQUESTS_BITS: u32 = 36;
const PRELOADERS: u64 = 8;
const STORE_PATIENCE: Duration = Duration::from_secs(20);
const FIRST_PER_S: f64 = 1000.0;
const SLOT: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(200);
const LOST_AFTER: Duration = Duration::from_secs(1);
const LOSS_MIN: f64 = 0.005;
const LOSS_MAX: f64 = 0.01;
