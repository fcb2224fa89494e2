//! A few keys hammered by several clients at once, and the recorded histories judged.
//!
//! Every round takes fresh keys, so that a history starts from an empty register and stays short
//! enough to be judged whole. Each written number is written once; the values are padded to
//! lengths from a few bytes to many kilobytes, so that small values overwritten in place and large
//! ones in memory of their own are both under test.

use std::time::Instant as Clock;

use curtail_history::{Action, Entry, History, Outcome, Verdict, check_linearizable};
use curtail_types::Instant;
use curtail_workload::{Random, mix};

use super::{
    SoakArgs,
    tally::{Fault, Tally},
    value_reading_connection::Connection,
};
use crate::error::LoadError;

/// Clients of a round.
const CLIENTS: u32 = 4;

/// Operations of a client in a round.
const OPERATIONS: u64 = 800;

/// Bound of the search for one key.
const STEPS_MAX: u64 = 20_000_000;

/// One client of a round.
struct Client<'a> {
    connection: Connection,
    random: Random,
    id: u32,
    round: u64,
    keys: u64,
    origin: Clock,
    /// Per key, the number and token of the last read.
    tokens: Vec<Option<(u64, u64)>>,
    written: u64,
    tally: &'a Tally,
}

/// Rounds until time is up.
pub(super) fn run(args: &SoakArgs, tally: &Tally) -> Result<(), LoadError> {
    let origin = Clock::now();
    // Rounds of different soaks on one server must not meet.
    let first = u64::from(std::process::id()) << 32;
    let mut round = first;
    while !tally.is_over() {
        round += 1;
        let history = record(args, tally, origin, round)?;
        let operations = history.len() as u64;
        let verdict = check_linearizable(&history, STEPS_MAX);
        tally.add(|totals| {
            totals.histories += args.register_keys();
            totals.history_operations += operations;
            totals.operations += operations;
            totals.too_hard += u64::from(matches!(verdict, Verdict::TooHard { .. }));
        });
        if let Verdict::Violation(violation) = verdict {
            tally.fault(Fault::NotLinearizable, || violation.to_string());
        }
    }
    Ok(())
}

fn record(args: &SoakArgs, tally: &Tally, origin: Clock, round: u64) -> Result<History, LoadError> {
    let client = |id: u32| -> Result<_, LoadError> {
        Ok(Client {
            connection: Connection::open(&args.target)?,
            random: Random::new(args.seed ^ mix(round) ^ u64::from(id)),
            id,
            round,
            keys: args.register_keys(),
            origin,
            tokens: vec![None; args.register_keys() as usize],
            written: 0,
            tally,
        })
    };
    let clients: Result<Vec<_>, _> = (0..CLIENTS).map(client).collect();
    let clients = clients?;
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(move || client.run()))
            .collect();
        running.into_iter().map(|thread| thread.join()).collect()
    });
    let mut history = History::new();
    for result in results {
        let panicked = |_| LoadError::Protocol("a recording thread panicked".into());
        history.extend(result.map_err(panicked)??);
    }
    let mut connection = Connection::open(&args.target)?;
    for key in 0..args.register_keys() {
        connection.send(format!("delete {}\r\n", name(round, key)).as_bytes())?;
        connection.line()?;
    }
    Ok(history)
}

fn name(round: u64, key: u64) -> String {
    format!("register-{round}-{key}")
}

impl Client<'_> {
    fn run(mut self) -> Result<Vec<Entry>, LoadError> {
        let mut entries = Vec::new();
        for _ in 0..OPERATIONS {
            let key = self.random.below(self.keys);
            entries.extend(self.operate(key)?);
        }
        Ok(entries)
    }

    /// One operation; nothing if the server refused it for want of memory.
    fn operate(&mut self, key: u64) -> Result<Option<Entry>, LoadError> {
        let name = name(self.round, key);
        let (action, request) = self.choose(key, &name);
        let invoked = self.now();
        self.connection.send(&request)?;
        let outcome = if action == Action::Read {
            Some(self.read(key, &name)?)
        } else {
            self.outcome(action)?
        };
        let returned = self.now();
        Ok(Some(Entry {
            client: self.id,
            key,
            invoked,
            action,
            // A refused write may have removed what was there: then nothing can be said at all.
            returned: outcome.map(|outcome| (returned, outcome)),
        }))
    }

    fn choose(&mut self, key: u64, name: &str) -> (Action, Vec<u8>) {
        let token = self.tokens[key as usize];
        let dice = self.random.below(20);
        let (action, line) = match (dice, token) {
            (0..=8, _) => (Action::Read, format!("gets {name}\r\n")),
            (9..=13, _) => (Action::Write(self.number()), "set".into()),
            (14, _) => (Action::Insert(self.number()), "add".into()),
            (15, _) => (Action::Delete, format!("delete {name}\r\n")),
            (_, Some((expected, token))) => {
                let new = self.number();
                (Action::CompareAndSet { expected, new }, token.to_string())
            }
            (_, None) => (Action::Read, format!("gets {name}\r\n")),
        };
        let request = match action {
            Action::Read | Action::Delete | Action::Clear => line.into_bytes(),
            Action::Write(number) | Action::Insert(number) => store(&line, name, number, ""),
            Action::CompareAndSet { new, .. } => store("cas", name, new, &format!(" {line}")),
        };
        (action, request)
    }

    fn number(&mut self) -> u64 {
        self.written += 1;
        u64::from(self.id + 1) << 32 | self.written
    }

    fn read(&mut self, key: u64, name: &str) -> Result<Outcome, LoadError> {
        let Some(found) = self.connection.value(name)? else {
            return Ok(Outcome::Missing);
        };
        let body = &self.connection.body;
        let head = body.first_chunk::<8>();
        let number = head.map_or(0, |head| u64::from_le_bytes(*head));
        if padded(number) != *body {
            self.tally
                .fault(Fault::Torn, || format!("{name}: {number:#x}"));
        }
        self.tokens[key as usize] = Some((number, found.token));
        Ok(Outcome::Value(number))
    }

    /// The outcome that a line tells; `None` if the server refused for want of memory.
    fn outcome(&mut self, action: Action) -> Result<Option<Outcome>, LoadError> {
        let line = self.connection.line()?;
        let outcome = match (action, line) {
            (_, "STORED" | "DELETED") => Outcome::Done,
            (_, "NOT_STORED" | "EXISTS") => Outcome::Refused,
            (_, "NOT_FOUND") => Outcome::Missing,
            (_, line) if line.starts_with("SERVER_ERROR") => return Ok(None),
            (action, line) => {
                return Err(LoadError::Protocol(format!("{line:?} to {action}")));
            }
        };
        Ok(Some(outcome))
    }

    fn now(&self) -> Instant {
        Instant {
            ns: self.origin.elapsed().as_nanos() as u64,
        }
    }
}

fn store(verb: &str, name: &str, number: u64, token: &str) -> Vec<u8> {
    let value = padded(number);
    let mut request = format!("{verb} {name} 0 0 {}{token}\r\n", value.len()).into_bytes();
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    request
}

/// The number, and behind it as many bytes made of it as it says.
fn padded(number: u64) -> Vec<u8> {
    let spread = mix(number);
    let words = match spread % 16 {
        0..=9 => spread >> 8 & 0x7,
        10..=13 => spread >> 8 & 0xff,
        _ => spread >> 8 & 0xfff,
    };
    let pad = (1..=words).flat_map(|word| mix(number ^ word << 48).to_le_bytes());
    number.to_le_bytes().into_iter().chain(pad).collect()
}
