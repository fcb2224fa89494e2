//! Whether every key stays linearizable when native clients, memcached's clients and large values
//! meet on it; and that the judge notices when the server has a bug.
//!
//! Clients ask for a few keys, each one thing at a time: half of them by datagram, marked and
//! unmarked, with copies of what they send; the others as memcached's clients or over native
//! streams. Executions take a while, so that queues are seldom empty. Each request is recorded from
//! when it was first sent to when its answer was read.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant as Clock,
};

use curtail_codec::native::{ErrorCode, Opcode, Reply, Status};
use curtail_history::{Action, Entry, History, Outcome, Verdict, check_linearizable};
use curtail_server::{Config, Fault, NativeChoice, NativeMode, NativePlacement, Server};
use curtail_testing::{Client as Memcached, native_address, set, start, together};
use curtail_types::Instant;
use curtail_workload::Random;

use crate::{
    faults::BadNetwork,
    support::{Answer, Ask, Client, Line, config_with},
    xdp_network::Network,
};

/// Clients of each of the three kinds.
const CLIENTS: usize = 3;

/// Steps that the checker may take for one key.
const STEPS_MAX: u64 = 2_000_000;

/// Runs in which everything has to take part at least once, or a bug has to show.
pub(crate) const RUNS_MAX: usize = 40;

#[derive(Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) rounds: usize,
    pub(crate) keys: u64,
}

struct Run<'a> {
    server: &'a Server,
    started: Clock,
    next_value: AtomicU64,
    amount: Amount,
    network: Option<&'a Network<'a>>,
}

/// Who asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Datagrams,
    Stream,
    Memcached,
}

/// A client of any kind.
enum Asker {
    Datagrams(Box<DatagramAsker>),
    Stream(Box<Client>, Line),
    Memcached(Memcached),
}

/// A client that asks by datagram, and by stream for what fits none.
struct DatagramAsker {
    client: Client,
    stream: Line,
    /// Lengths of the values that it writes.
    lengths: &'static [usize],
    /// What its datagrams pass, if that loses some.
    _bad: Option<BadNetwork>,
}

impl DatagramAsker {
    /// The number is of a client.
    fn connect(server: &Server, network: Option<&Network<'_>>, number: u32) -> Self {
        let is_lossy = network.is_some_and(|network| network.is_lossy);
        let bad = is_lossy.then(|| BadNetwork::new(native_address(server), number.into()));
        let to = bad.as_ref().map(|bad| bad.address);
        Self {
            client: Client::connect_to(to.unwrap_or_else(|| native_address(server))),
            stream: Line::connect(server),
            // A datagram of two packets is dropped.
            lengths: match network {
                Some(_) => &[12, 12, 900, 1300],
                None => &[12, 12, 900, 1500],
            },
            _bad: bad,
        }
    }

    fn ask(&mut self, name: &str, action: Action, random: &mut Random) -> Outcome {
        let value = value_of(action, self.lengths, random);
        let ask = spell(name.as_bytes(), action, &value, random);
        let slot = random.below(8) as u8;
        let client = &mut self.client;
        let bytes = client.bytes(slot, ask);
        // A copy that the network made, and now and then one that comes late.
        for _ in 0..random.below(3) {
            client.socket.send_to(&bytes, client.to).unwrap();
        }
        let mut answer = client.exchange(&bytes);
        if let Reply::Error(error) = answer.reply() {
            assert_eq!(error.code, ErrorCode::TooLarge);
            answer = self.stream.exchange(&bytes);
        }
        if random.below(4) == 0 {
            client.socket.send_to(&bytes, client.to).unwrap();
        }
        outcome_of(action, &answer)
    }
}

impl Asker {
    fn connect(kind: Kind, run: &Run<'_>, number: u32) -> Self {
        let server = run.server;
        let client = || Box::new(Client::connect(server));
        let stream = || Line::connect(server);
        match kind {
            Kind::Datagrams => {
                let asker = DatagramAsker::connect(server, run.network, number);
                Self::Datagrams(Box::new(asker))
            }
            Kind::Stream => Self::Stream(client(), stream()),
            Kind::Memcached => Self::Memcached(Memcached::connect(server)),
        }
    }

    fn ask(&mut self, key: u64, action: Action, random: &mut Random) -> Outcome {
        let name = format!("k{key}");
        match self {
            Self::Datagrams(asker) => asker.ask(&name, action, random),
            Self::Stream(client, stream) => {
                let value = value_of(action, &[12, 3000, 6000, 20_000], random);
                let ask = spell(name.as_bytes(), action, &value, random);
                let bytes = client.bytes(0, ask);
                outcome_of(action, &stream.exchange(&bytes))
            }
            Self::Memcached(memcached) => ask_memcached(memcached, &name, action, random),
        }
    }
}

/// The number that an action writes, spread over one of these lengths.
fn value_of(action: Action, lengths: &[usize], random: &mut Random) -> Vec<u8> {
    let (Action::Write(number) | Action::Insert(number)) = action else {
        return Vec::new();
    };
    let bytes = random.one_of(lengths);
    format!("{number:0bytes$}").into_bytes()
}

fn spell<'a>(key: &'a [u8], action: Action, value: &'a [u8], random: &mut Random) -> Ask<'a> {
    let ask = match action {
        Action::Read => return Ask::get(key),
        Action::Write(_) => Ask::set(key, value),
        Action::Insert(_) => {
            return Ask::store(Opcode::Add, key, value);
        }
        Action::Delete => return Ask::new(Opcode::Delete, key),
        Action::CompareAndSet { .. } | Action::Clear => unreachable!("not asked here"),
    };
    match random.below(4) {
        0 => ask,
        _ => ask.nilext(),
    }
}

fn outcome_of(action: Action, answer: &Answer) -> Outcome {
    match answer.reply() {
        Reply::Ack(_) => Outcome::Done,
        Reply::Result { status, value, .. } => match (action, status) {
            (_, Status::Value) => {
                let text = std::str::from_utf8(value).unwrap();
                Outcome::Value(text.parse().unwrap())
            }
            (_, Status::NotFound) => Outcome::Missing,
            (_, Status::NotStored) => Outcome::Refused,
            (_, Status::Done) => Outcome::Done,
            other => panic!("{other:?}"),
        },
        other => panic!("{action:?}: {other:?}"),
    }
}

fn ask_memcached(
    memcached: &mut Memcached,
    name: &str,
    action: Action,
    random: &mut Random,
) -> Outcome {
    let mut value = || value_of(action, &[12, 12, 900, 1700, 5000], random);
    let request = match action {
        Action::Read => {
            return match memcached.get(name) {
                Some(text) => Outcome::Value(text.parse().unwrap()),
                None => Outcome::Missing,
            };
        }
        Action::Write(_) => set(name, 0, value()),
        Action::Insert(_) => [b"add", &set(name, 0, value())[3..]].concat(),
        Action::Delete => format!("delete {name}\r\n").into_bytes(),
        Action::CompareAndSet { .. } | Action::Clear => unreachable!("not asked here"),
    };
    match memcached.ask(request).as_str() {
        "STORED" | "DELETED" => Outcome::Done,
        "NOT_STORED" => Outcome::Refused,
        "NOT_FOUND" => Outcome::Missing,
        other => panic!("{other}"),
    }
}

impl Run<'_> {
    fn now(&self) -> Instant {
        let ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap();
        Instant { ns }
    }

    fn client(&self, number: u32, kind: Kind) -> Vec<Entry> {
        let mut asker = Asker::connect(kind, self, number);
        let seed = self.started.elapsed().subsec_nanos();
        let mut random = Random::of_stream(u64::from(seed), u64::from(number));
        let mut entries = Vec::new();
        for _ in 0..self.amount.rounds {
            let key = random.below(self.amount.keys);
            let action = self.choose(&mut random);
            let invoked = self.now();
            let outcome = asker.ask(key, action, &mut random);
            entries.push(Entry {
                client: number,
                key,
                invoked,
                action,
                returned: Some((self.now(), outcome)),
            });
        }
        entries
    }

    fn choose(&self, random: &mut Random) -> Action {
        let value = || self.next_value.fetch_add(1, Ordering::Relaxed);
        match random.below(16) {
            0..7 => Action::Read,
            7..14 => Action::Write(value()),
            14 => Action::Insert(value()),
            _ => Action::Delete,
        }
    }
}

/// How a server spreads requests over its workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    mode: NativeMode,
    workers: usize,
    placement: NativePlacement,
    choice: NativeChoice,
}

impl Spread {
    pub(crate) fn new(mode: NativeMode, workers: usize) -> Self {
        Self {
            mode,
            workers,
            placement: NativePlacement::default(),
            choice: NativeChoice::default(),
        }
    }
}

/// What came of a run.
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    requests: usize,
    /// What took part: early acknowledgements, reads answered from a queue, reads and writes that
    /// waited or helped, copies that were answered again.
    parts: [u64; 4],
}

/// Runs clients against a server, on loopback or over a network.
pub(crate) fn judge(
    network: Option<&Network<'_>>,
    spread: Spread,
    amount: Amount,
    fault: Fault,
) -> Judgement {
    let Spread { mode, workers, .. } = spread;
    let mut config = config_with(mode, |native| {
        native.placement = spread.placement;
        native.choice = spread.choice;
        native.slots = Some(64);
        native.backlog_max = 32;
        native.service_ns = 15_000;
    });
    if let Some(network) = network {
        network.configure(&mut config);
    }
    let server = start(Config {
        workers,
        faults: fault.into(),
        ..config
    });
    let run = Run {
        network,
        server: &server,
        started: Clock::now(),
        next_value: AtomicU64::new(1),
        amount,
    };
    let kinds = [Kind::Datagrams, Kind::Stream, Kind::Memcached];
    let ask = || {
        together(CLIENTS * kinds.len(), |number| {
            run.client(number as u32, kinds[number % kinds.len()])
        })
    };
    let entries = match network {
        Some(network) => network.link.at_client(ask),
        None => ask(),
    };
    let history: History = entries.into_iter().flatten().collect();
    let mut memcached = Memcached::connect(&server);
    // Where each key's reads come to the worker that executes each of its writes before the next
    // request, there is hardly ever an entry to answer them from.
    let one_by_one = matches!(mode, NativeMode::Raw | NativeMode::Deferred)
        && matches!(
            spread.placement,
            NativePlacement::Any | NativePlacement::Arrival
        );
    let by_key = workers == 1 || matches!(spread.choice, NativeChoice::Key);
    let forwards = !(one_by_one && by_key);
    let mut stat = |name: &str| memcached.stat("curtail", &format!("native:{name}"));
    Judgement {
        requests: history.len(),
        verdict: check_linearizable(&history, STEPS_MAX),
        parts: [
            stat("accepted") + u64::from(mode == NativeMode::Raw),
            stat("forwarded") + u64::from(!forwards),
            stat("helped") + stat("parked"),
            stat("reacknowledged") + stat("replayed"),
        ],
    }
}

#[track_caller]
pub(crate) fn judge_right(network: Option<&Network<'_>>, spread: Spread, amount: Amount) -> usize {
    let (mut requests, mut parts) = (0, [0; 4]);
    for _ in 0..RUNS_MAX {
        let judged = judge(network, spread, amount, Fault::Nothing);
        // A history that is too hard to judge says nothing; another has to.
        if matches!(judged.verdict, Verdict::TooHard { .. }) {
            continue;
        }
        assert_eq!(judged.verdict, Verdict::Consistent, "{spread:?}");
        requests += judged.requests;
        for (sum, part) in parts.iter_mut().zip(judged.parts) {
            *sum += part;
        }
        if parts.iter().all(|part| *part > 0) {
            return requests;
        }
    }
    panic!("{spread:?}: not everything took part: {parts:?}");
}

pub(crate) const FEW: Amount = Amount {
    rounds: 120,
    keys: 5,
};

#[test]
fn a_thread_that_acknowledges_keeps_every_key_linearizable() {
    for workers in [1, 3] {
        judge_right(None, Spread::new(NativeMode::IoAck, workers), FEW);
    }
}

#[test]
fn workers_that_acknowledge_keep_every_key_linearizable() {
    for mode in [NativeMode::Deferred, NativeMode::Raw] {
        judge_right(None, Spread::new(mode, 2), FEW);
    }
}

/// Who takes a request decides no answer (MI-12).
#[test]
fn every_placement_keeps_every_key_linearizable() {
    use {NativeChoice as Choice, NativeMode as Mode, NativePlacement as Place};
    for (mode, placement, choice) in [
        (Mode::Raw, Place::Owner, Choice::Random),
        (Mode::Raw, Place::Arrival, Choice::Writes),
        (Mode::Deferred, Place::Arrival, Choice::Key),
        (Mode::Raw, Place::Stealing, Choice::Writes),
        (Mode::Deferred, Place::Stealing, Choice::Random),
        (Mode::Raw, Place::HandOff, Choice::Flow),
        (Mode::Deferred, Place::HandOff, Choice::Flow),
        (Mode::IoAck, Place::HandOff, Choice::Flow),
    ] {
        let spread = Spread {
            placement,
            choice,
            ..Spread::new(mode, 3)
        };
        judge_right(None, spread, FEW);
    }
}

/// The judge notices each bug, within a few runs on a busy machine.
#[test]
#[cfg(debug_assertions)]
fn planted_bugs_are_caught() {
    for fault in [
        Fault::AcceptsAhead,
        Fault::SkipsStamps,
        Fault::ForgetsRequests,
        Fault::RedoesWrites,
    ] {
        let caught = (0..RUNS_MAX).any(|_| {
            let judged = judge(None, Spread::new(NativeMode::IoAck, 2), FEW, fault);
            matches!(judged.verdict, Verdict::Violation(_))
        });
        assert!(caught, "{fault:?} went unnoticed");
    }
}

/// Judges a million requests, or as many as `CURTAIL_HISTORY_REQUESTS` says.
pub(crate) fn judge_many(network: Option<&Network<'_>>, mode: NativeMode) {
    let much = Amount {
        rounds: 1500,
        keys: 6,
    };
    let wanted = std::env::var("CURTAIL_HISTORY_REQUESTS").ok();
    let wanted = wanted.map_or(1_000_000, |text| text.parse().unwrap());
    let (started, mut requests, mut run) = (Clock::now(), 0, 0);
    while requests < wanted {
        requests += judge_right(network, Spread::new(mode, 1 + run % 4), much);
        run += 1;
    }
    let seconds = started.elapsed().as_secs();
    println!("{mode:?}: {run} histories, {requests} requests judged in {seconds} s");
}

#[test]
#[ignore = "minutes: run by cargo xtask test --all"]
fn a_million_requests_of_io_ack_stay_linearizable() {
    judge_many(None, NativeMode::IoAck);
}

#[test]
#[ignore = "minutes: run by cargo xtask test --all"]
fn a_million_requests_of_deferred_stay_linearizable() {
    judge_many(None, NativeMode::Deferred);
}

#[test]
#[ignore = "minutes: run by cargo xtask test --all"]
fn a_million_requests_of_raw_stay_linearizable() {
    judge_many(None, NativeMode::Raw);
}
