//! The clients of the histories: their requests, and what they record of the replies.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant as Clock,
};

use curtail_history::{Action, Entry, Outcome};
use curtail_server::Server;
use curtail_testing::Client;
use curtail_types::Instant;
use curtail_workload::Random;

/// Requests in a pipeline.
const DEPTH: usize = 12;

/// Lengths of values. From 4500 on they are large in the static plan, above 32768 in a learned one,
/// too; these are few because moving them takes most of a run's time.
const LENGTHS: [usize; 16] = [
    12, 12, 12, 12, 12, 12, 12, 12, 900, 2000, 3000, 4400, 4600, 4600, 5000, 9000,
];

/// One value in so many is really long.
const LONG_EVERY: u64 = 256;

/// And has so many bytes.
const LONG_BYTES: usize = 70_000;

/// Digits of a value's number, which fills the value again and again: so a torn one is seen.
const DIGITS: usize = 12;

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) rounds: usize,
    pub(super) keys: u64,
}

/// What all clients of a run share.
pub(super) struct Run<'a> {
    pub(super) server: &'a Server,
    pub(super) seed: u64,
    pub(super) started: Clock,
    pub(super) next_value: AtomicU64,
    /// Some client read what it had overwritten.
    pub(super) old: AtomicBool,
    pub(super) amount: Amount,
}

impl Run<'_> {
    fn now(&self) -> Instant {
        let ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap();
        Instant { ns }
    }

    /// One client's requests.
    pub(super) fn client(&self, number: u32) -> Vec<Entry> {
        let mut client = Client::connect(self.server);
        let mut random = Random::of_stream(self.seed, u64::from(number));
        let mut entries = Vec::new();
        let mut packet = Vec::new();
        let mut asked: Vec<(u64, Action)> = Vec::new();
        let mut wrote: Vec<(u64, u64)> = Vec::new();
        for _ in 0..self.amount.rounds {
            let depth = 1 + random.below(DEPTH as u64);
            packet.clear();
            // Often one key alone, so that runs of writes to it are many.
            let alone = (random.below(3) == 0).then(|| random.below(self.amount.keys));
            for _ in 0..depth {
                let key = alone.unwrap_or_else(|| random.below(self.amount.keys));
                let action = self.choose(&mut random);
                spell(&mut packet, key, action, &mut random);
                asked.push((key, action));
            }
            let invoked = self.now();
            client.send(&packet);
            wrote.clear();
            for (position, (key, action)) in asked.drain(..).enumerate() {
                let outcome = read_reply(&mut client, action);
                let old = is_own_and_old(&mut wrote, key, action, outcome);
                self.old.fetch_or(old, Ordering::Relaxed);
                entries.push(Entry {
                    client: number * DEPTH as u32 + position as u32,
                    key,
                    invoked,
                    action,
                    returned: Some((self.now(), outcome)),
                });
            }
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

fn spell(packet: &mut Vec<u8>, key: u64, action: Action, random: &mut Random) {
    let mut write = |verb: &str, number: u64| {
        let bytes = match random.below(LONG_EVERY) {
            0 => LONG_BYTES,
            _ => random.one_of(&LENGTHS),
        };
        packet.extend(format!("{verb} k{key} 0 0 {bytes}\r\n").bytes());
        let block = format!("{number:0DIGITS$}");
        let blocks = packet.len();
        while packet.len() < blocks + bytes {
            packet.extend(block.bytes());
        }
        packet.truncate(blocks + bytes);
        packet.extend(b"\r\n");
    };
    match action {
        Action::Read => packet.extend(format!("mg k{key} v\r\n").bytes()),
        Action::Write(number) => write("set", number),
        Action::Insert(number) => write("add", number),
        Action::Delete => packet.extend(format!("delete k{key}\r\n").bytes()),
        Action::CompareAndSet { .. } | Action::Clear => unreachable!("not asked here"),
    }
}

fn read_reply(client: &mut Client, action: Action) -> Outcome {
    let line = client.line();
    match (action, line.as_str()) {
        (Action::Read, "EN") | (Action::Delete, "NOT_FOUND") => Outcome::Missing,
        (Action::Read, _) => {
            let bytes: usize = line.strip_prefix("VA ").unwrap().parse().unwrap();
            Outcome::Value(number_of(&client.take(bytes + 2)))
        }
        (Action::Insert(_), "NOT_STORED") => Outcome::Refused,
        (Action::Delete, "DELETED") | (_, "STORED") => Outcome::Done,
        _ => panic!("{action:?}: {line}"),
    }
}

/// The number that fills a value, which ends with a line end.
fn number_of(value: &[u8]) -> u64 {
    let (value, end) = value.split_at(value.len() - 2);
    let is_whole = value[DIGITS..] == value[..value.len() - DIGITS];
    assert!(is_whole && end == b"\r\n", "a torn value");
    str::from_utf8(&value[..DIGITS]).unwrap().parse().unwrap()
}

/// What one client may not see in its own pipeline: a value of its own that it had overwritten
/// before.
fn is_own_and_old(wrote: &mut Vec<(u64, u64)>, key: u64, action: Action, outcome: Outcome) -> bool {
    match (action, outcome) {
        (Action::Write(value), Outcome::Done) => {
            wrote.push((key, value));
            false
        }
        (Action::Read, Outcome::Value(value)) => {
            let mut own = wrote.iter().filter(|own| own.0 == key);
            let found = own.position(|own| own.1 == value);
            found.is_some() && own.next().is_some()
        }
        _ => false,
    }
}
