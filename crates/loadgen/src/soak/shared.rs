//! Keys that all threads write: nobody knows what is there, but much that cannot be.
//!
//! * A value must be whole and this key's own: torn and foreign values show.
//! * A writer's versions of a key rise. Who has seen one of them must never see an older one of
//!   the same writer again: stale values show.
//! * Counters (where nothing may be missing) must give each thread rising numbers, and in the end
//!   the sum of all increments: lost updates show. Half of them count with `incr`, half with
//!   `gets` and `cas`.

use curtail_workload::Random;

use super::{
    SoakArgs,
    model::Mode,
    tally::{Fault, Tally, Totals},
    value_reading_connection::Connection,
};
use crate::{
    error::LoadError,
    self_checking_value::{HEAD_BYTES, Piece},
};

/// One thread's view of the shared keys.
pub(super) struct Sharer<'a> {
    args: &'a SoakArgs,
    tally: &'a Tally,
    thread: u64,
    /// Per key and writer, the highest version seen.
    seen: Vec<Vec<u64>>,
    version: u64,
    /// Per counter, the highest number seen.
    numbers: Vec<u64>,
    counted: Counted,
}

/// Increments that were carried out, per counter.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) by_increment: Vec<u64>,
    pub(super) by_compare_and_set: Vec<u64>,
}

/// One request on a shared key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Get { key: usize },
    Set { key: usize, version: u64 },
    Delete,
    Increment { counter: usize },
}

/// Counters of each kind.
pub(super) const COUNTERS: usize = 4;

/// Version numbers of one writer; the writer is above them.
const WRITER_SHIFT: u32 = 48;

/// Every so many batches one compare-and-set increment is tried.
const COMPARE_AND_SET_SHARE: f64 = 0.1;

impl<'a> Sharer<'a> {
    pub(super) fn new(args: &'a SoakArgs, tally: &'a Tally, thread: u64) -> Self {
        Self {
            args,
            tally,
            thread,
            seen: vec![vec![0; args.threads]; args.shared_keys],
            version: 0,
            numbers: vec![0; COUNTERS],
            counted: Counted {
                by_increment: vec![0; COUNTERS],
                by_compare_and_set: vec![0; COUNTERS],
            },
        }
    }

    pub(super) fn counted(self) -> Counted {
        self.counted
    }

    /// Appends a request; also returns about how long its reply will be.
    pub(super) fn ask(&mut self, random: &mut Random, request: &mut Vec<u8>) -> (Step, u64) {
        let key = random.below(self.args.shared_keys as u64) as usize;
        match random.below(20) {
            0..=1 if self.args.mode == Mode::Strict => {
                let counter = random.below(COUNTERS as u64) as usize;
                put(request, &format!("incr {} 1", counter_key(counter)));
                (Step::Increment { counter }, 24)
            }
            0..=12 => {
                put(request, &format!("get {}", shared_key(key)));
                (Step::Get { key }, u64::from(bytes_of(key)))
            }
            13..=18 => {
                self.version += 1;
                let version = self.thread << WRITER_SHIFT | self.version;
                let piece = Piece {
                    key: key as u64,
                    version,
                    bytes: bytes_of(key) + random.below(200) as u32,
                };
                put(
                    request,
                    &format!("set {} 0 0 {}", shared_key(key), piece.bytes),
                );
                piece.put(request);
                request.extend_from_slice(b"\r\n");
                (Step::Set { key, version }, 8)
            }
            _ => {
                put(request, &format!("delete {}", shared_key(key)));
                (Step::Delete, 12)
            }
        }
    }

    pub(super) fn settle(
        &mut self,
        step: &Step,
        connection: &mut Connection,
        sums: &mut Totals,
    ) -> Result<(), LoadError> {
        match *step {
            Step::Get { key } => {
                if connection.value(&shared_key(key))?.is_none() {
                    sums.misses += 1;
                    return Ok(());
                }
                sums.hits += 1;
                sums.bytes_checked += connection.body.len() as u64;
                self.judge(key, &connection.body);
            }
            Step::Set { key, version } => match connection.line()? {
                "STORED" => self.saw(key, version),
                line if line.starts_with("SERVER_ERROR") => sums.refused += 1,
                line => self.wrong(line, step),
            },
            Step::Delete => match connection.line()? {
                "DELETED" | "NOT_FOUND" => {}
                line => self.wrong(line, step),
            },
            Step::Increment { counter } => {
                let line = connection.line()?;
                match line.parse::<u64>() {
                    Ok(number) => self.counted_to(counter, number),
                    Err(_) => self.wrong(line, step),
                }
            }
        }
        Ok(())
    }

    fn judge(&mut self, key: usize, body: &[u8]) {
        let name = shared_key(key);
        let Some(piece) = Piece::identify(body) else {
            return self.tally.fault(Fault::Torn, || format!("{name}: no head"));
        };
        if piece.key != key as u64 {
            return self
                .tally
                .fault(Fault::Foreign, || format!("{name}: {piece:?}"));
        }
        if !piece.is(body) {
            return self
                .tally
                .fault(Fault::Torn, || format!("{name}: {piece:?}"));
        }
        let writer = (piece.version >> WRITER_SHIFT) as usize;
        let seen = self.seen[key].get(writer).copied();
        if seen.is_none_or(|seen| piece.version < seen) {
            let text = || format!("{name}: {piece:?} after version {seen:?} of the same writer");
            self.tally.fault(Fault::Stale, text);
        }
        self.saw(key, piece.version);
    }

    fn saw(&mut self, key: usize, version: u64) {
        if let Some(seen) = self.seen[key].get_mut((version >> WRITER_SHIFT) as usize) {
            *seen = version.max(*seen);
        }
    }

    fn counted_to(&mut self, counter: usize, number: u64) {
        self.counted.by_increment[counter] += 1;
        let before = std::mem::replace(&mut self.numbers[counter], number);
        if number <= before {
            let text = || format!("{}: {number} after {before}", counter_key(counter));
            self.tally.fault(Fault::Miscounted, text);
        }
    }

    fn wrong(&self, line: &str, step: &Step) {
        self.tally
            .fault(Fault::WrongReply, || format!("{line:?} to {step:?}"));
    }

    /// Now and then: reads a counter, and writes one more if nobody else did.
    pub(super) fn count_by_compare_and_set(
        &mut self,
        connection: &mut Connection,
        random: &mut Random,
    ) -> Result<(), LoadError> {
        if self.args.mode == Mode::Cache || random.unit() >= COMPARE_AND_SET_SHARE {
            return Ok(());
        }
        let counter = random.below(COUNTERS as u64) as usize;
        let key = compared_key(counter);
        connection.send(format!("gets {key}\r\n").as_bytes())?;
        let Some(found) = connection.value(&key)? else {
            self.tally.fault(Fault::Lost, || key.clone());
            return Ok(());
        };
        let text = String::from_utf8_lossy(&connection.body).into_owned();
        let Ok(number) = text.trim_end().parse::<u64>() else {
            self.tally.fault(Fault::Torn, || format!("{key}: {text:?}"));
            return Ok(());
        };
        let next = (number + 1).to_string();
        let request = format!("cas {key} 0 0 {} {}\r\n{next}\r\n", next.len(), found.token);
        connection.send(request.as_bytes())?;
        match connection.line()? {
            "STORED" => self.counted.by_compare_and_set[counter] += 1,
            "EXISTS" => {}
            line => {
                let text = format!("{key}: {line:?} to cas");
                self.tally.fault(Fault::WrongReply, || text);
            }
        }
        Ok(())
    }
}

fn put(request: &mut Vec<u8>, line: &str) {
    request.extend_from_slice(line.as_bytes());
    request.extend_from_slice(b"\r\n");
}

fn shared_key(key: usize) -> String {
    format!("shared-{key}")
}

fn counter_key(counter: usize) -> String {
    format!("counter-{counter}")
}

fn compared_key(counter: usize) -> String {
    format!("compared-{counter}")
}

/// Half of the shared keys are small enough to be overwritten in place, some are large.
fn bytes_of(key: usize) -> u32 {
    match key % 8 {
        0..=3 => HEAD_BYTES + 40 * (key as u32 % 20),
        4..=5 => 1024 + 300 * (key as u32 % 10),
        6 => 20_000,
        _ => 150_000,
    }
}

/// Sets all counters to 0 before the threads start, and removes shared values of an earlier soak.
pub(super) fn prepare(args: &SoakArgs) -> Result<(), LoadError> {
    let mut connection = Connection::open(&args.target)?;
    for counter in 0..COUNTERS {
        for key in [counter_key(counter), compared_key(counter)] {
            connection.send(format!("set {key} 0 0 1\r\n0\r\n").as_bytes())?;
            connection.line()?;
        }
    }
    for key in 0..args.shared_keys {
        connection.send(format!("delete {}\r\n", shared_key(key)).as_bytes())?;
        connection.line()?;
    }
    Ok(())
}

/// Holds the counters against the sums of all threads' increments.
pub(super) fn check_counters(
    args: &SoakArgs,
    tally: &Tally,
    counted: &[Counted],
) -> Result<(), LoadError> {
    let mut connection = Connection::open(&args.target)?;
    for counter in 0..COUNTERS {
        let sum = |of: &dyn Fn(&Counted) -> u64| counted.iter().map(of).sum::<u64>();
        let expected = [
            (counter_key(counter), sum(&|one| one.by_increment[counter])),
            (
                compared_key(counter),
                sum(&|one| one.by_compare_and_set[counter]),
            ),
        ];
        for (key, expected) in expected {
            connection.send(format!("get {key}\r\n").as_bytes())?;
            let found = connection.value(&key)?;
            if found.is_none() || !super::model::is_number(&connection.body, expected) {
                let seen = String::from_utf8_lossy(&connection.body).into_owned();
                tally.fault(Fault::Miscounted, || {
                    format!("{key}: {seen}, not {expected}")
                });
            }
        }
    }
    Ok(())
}
