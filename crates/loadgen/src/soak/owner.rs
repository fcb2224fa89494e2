//! A thread with keys of its own: it knows what must be there, to the byte.
//!
//! Requests go out in batches over distinct keys, so that the server's pipelining is used and no
//! reply depends on another one of its batch. Each reply is held against the key's [`Slot`].

use std::{fmt::Write as _, time::Instant};

use curtail_workload::Random;

use super::{
    SoakArgs,
    model::{Content, Ends, Slot, When},
    owned_key_operations::{Ask, Verb},
    shared::Sharer,
    tally::{Fault, Tally, Totals},
    value_reading_connection::{Connection, Found},
};
use crate::{
    error::LoadError,
    self_checking_value::{HEAD_BYTES, Piece},
};

/// One thread's state.
pub(super) struct Owner<'a> {
    args: &'a SoakArgs,
    tally: &'a Tally,
    thread: u64,
    connection: Connection,
    random: Random,
    slots: Vec<Slot>,
    sharer: Sharer<'a>,
    /// The batch that is being built or answered.
    request: Vec<u8>,
    steps: Vec<Step>,
    /// Per slot, the batch it was last part of.
    used_in: Vec<u64>,
    batch: u64,
    /// Slots whose write was refused: what they hold now is unknown.
    doubtful: Vec<usize>,
}

/// One request of a batch.
#[derive(Debug)]
enum Step {
    /// On one owned key.
    Own { slot: usize, ask: Ask },
    /// A text `get` of several owned keys.
    Several { slots: Vec<usize> },
    /// On keys that all threads share.
    Shared(super::shared::Step),
}

/// A batch has at most this many requests ...
const STEPS_MAX: u64 = 24;

/// ... and ends when it is this long: both directions must fit into socket buffers, or client and
/// server would wait for each other.
const REQUEST_BYTES_MAX: usize = 48 << 10;

/// The same for replies expected.
const REPLY_BYTES_MAX: u64 = 256 << 10;

/// One slot in this many is not written to while its item ends.
const QUIET_EVERY: usize = 4;

/// Pieces of a value that was appended to.
const PIECES_MAX: usize = 4;

/// A connection is replaced after this many batches.
const BATCHES_PER_CONNECTION: u64 = 2000;

impl<'a> Owner<'a> {
    pub(super) fn new(
        args: &'a SoakArgs,
        tally: &'a Tally,
        thread: u64,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            args,
            tally,
            thread,
            connection: Connection::open(&args.target)?,
            random: Random::new(args.seed ^ (thread + 1) << 40),
            slots: vec![Slot::default(); args.keys],
            sharer: Sharer::new(args, tally, thread),
            request: Vec::new(),
            steps: Vec::new(),
            used_in: vec![0; args.keys],
            batch: 0,
            doubtful: Vec::new(),
        })
    }

    /// Works until time is up. Keys of an earlier soak are removed first.
    pub(super) fn run(mut self) -> Result<super::shared::Counted, LoadError> {
        self.clear()?;
        while !self.tally.is_over() {
            if self.batch % BATCHES_PER_CONNECTION == BATCHES_PER_CONNECTION - 1 {
                self.connection = Connection::open(&self.args.target)?;
                self.tally.add(|totals| totals.reconnects += 1);
            }
            self.build();
            let sent = Instant::now();
            self.connection.send(&self.request)?;
            self.settle_batch(sent)?;
            self.delete_doubtful()?;
            self.sharer
                .count_by_compare_and_set(&mut self.connection, &mut self.random)?;
        }
        Ok(self.sharer.counted())
    }

    fn clear(&mut self) -> Result<(), LoadError> {
        for from in (0..self.slots.len()).step_by(256) {
            let to = self.slots.len().min(from + 256);
            self.request.clear();
            (from..to).for_each(|slot| self.line(slot, "delete ", ""));
            self.connection.send(&self.request)?;
            for _ in from..to {
                self.connection.line()?;
            }
        }
        Ok(())
    }

    fn build(&mut self) {
        self.batch += 1;
        self.request.clear();
        self.steps.clear();
        let steps = 1 + self.random.below(STEPS_MAX);
        let mut reply_bytes = 0;
        for _ in 0..steps {
            if self.request.len() > REQUEST_BYTES_MAX || reply_bytes > REPLY_BYTES_MAX {
                break;
            }
            if self.random.unit() < 0.2 {
                let (step, bytes) = self.sharer.ask(&mut self.random, &mut self.request);
                reply_bytes += bytes;
                self.steps.push(Step::Shared(step));
                continue;
            }
            if self.random.unit() < 0.05 {
                reply_bytes += self.ask_several();
                continue;
            }
            let Some(slot) = self.free_slot() else {
                continue;
            };
            reply_bytes += u64::from(self.slots[slot].bytes());
            let ask = self.choose(slot);
            self.put(slot, &ask);
            self.steps.push(Step::Own { slot, ask });
        }
    }

    /// A slot that is not part of this batch yet; `None` if a try or two found none.
    fn free_slot(&mut self) -> Option<usize> {
        let slot = self.random.below(self.slots.len() as u64) as usize;
        let is_free = self.used_in[slot] != self.batch;
        self.used_in[slot] = self.batch;
        is_free.then_some(slot)
    }

    fn ask_several(&mut self) -> u64 {
        let count = 2 + self.random.below(6);
        let slots: Vec<usize> = (0..count).filter_map(|_| self.free_slot()).collect();
        if slots.is_empty() {
            return 0;
        }
        self.request.extend_from_slice(b"get");
        for &slot in &slots {
            let key = self.key(slot);
            self.request.push(b' ');
            self.request.extend_from_slice(key.as_bytes());
        }
        self.request.extend_from_slice(b"\r\n");
        let bytes = slots
            .iter()
            .map(|&slot| u64::from(self.slots[slot].bytes()));
        let sum = bytes.sum();
        self.steps.push(Step::Several { slots });
        sum
    }

    fn choose(&mut self, slot: usize) -> Ask {
        let is_number = matches!(self.slots[slot].content, Content::Number(_));
        let is_missing = self.slots[slot].content == Content::Missing;
        // Some items are left to end by themselves: only reads, until one finds nothing.
        if slot.is_multiple_of(QUIET_EVERY) && self.slots[slot].ends_soon(Instant::now()) {
            return if self.random.unit() < 0.5 {
                Ask::Get { touch: None }
            } else {
                Ask::MetaGet
            };
        }
        match self.random.below(100) {
            0..=24 => Ask::Get { touch: None },
            25..=33 => Ask::MetaGet,
            34..=41 => Ask::Gets,
            42..=43 => Ask::Get {
                touch: Some(self.seconds_long()),
            },
            44..=47 => self.compare_and_set(slot),
            48..=60 => self.store(slot, Verb::Set),
            61..=65 => self.store(slot, Verb::MetaSet),
            66..=69 => self.store(slot, Verb::Add),
            70..=73 => self.store(slot, Verb::Replace),
            74..=80 if !is_number => self.extend(slot),
            74..=83 if is_number || is_missing => Ask::Count {
                delta: self.random.below(1000),
                is_up: self.random.unit() < 0.6,
            },
            84..=87 => self.store_number(slot),
            88..=95 => Ask::Delete {
                is_meta: self.random.unit() < 0.5,
            },
            96..=98 => Ask::Touch {
                seconds: self.seconds_long(),
            },
            _ => Ask::Gets,
        }
    }

    /// Long enough not to end by itself in the middle of everything, short enough to end.
    fn seconds_long(&mut self) -> u32 {
        [0, 2, 5, 30, 1000][self.random.below(5) as usize]
    }

    fn seconds(&mut self) -> u32 {
        if self.random.unit() < 0.15 {
            1 + self.random.below(6) as u32
        } else {
            0
        }
    }

    fn store(&mut self, slot: usize, verb: Verb) -> Ask {
        let piece = self.piece(slot, self.args.value_bytes_max);
        Ask::Store {
            verb,
            content: Content::Pieces(vec![piece]),
            flags: self.random.below(1 << 32) as u32,
            seconds: self.seconds(),
        }
    }

    fn store_number(&mut self, slot: usize) -> Ask {
        self.slots[slot].version += 1;
        // Not above 2^62: memcached looks for a sign behind the end of greater numbers, in whatever
        // memory is there, and refuses them when it finds one.
        let shift = 2 + self.random.below(62);
        Ask::Store {
            verb: Verb::Set,
            content: Content::Number(self.random.next() >> shift),
            flags: self.random.below(1 << 16) as u32,
            seconds: self.seconds(),
        }
    }

    /// With the token of the last read if there is one: current or not.
    fn compare_and_set(&mut self, slot: usize) -> Ask {
        match self.slots[slot].token {
            None => Ask::Gets,
            Some((token, is_current)) => self.store(slot, Verb::Cas { token, is_current }),
        }
    }

    fn extend(&mut self, slot: usize) -> Ask {
        let Slot { content, .. } = &self.slots[slot];
        let room = self.args.value_bytes_max - self.slots[slot].bytes();
        if matches!(content, Content::Pieces(pieces) if pieces.len() >= PIECES_MAX) || room == 0 {
            return Ask::Get { touch: None };
        }
        Ask::Extend {
            piece: self.piece(slot, room.min(1000)),
            at_front: self.random.unit() < 0.4,
        }
    }

    /// A new version of at most this length: mostly small, now and then large, each octave alike.
    fn piece(&mut self, slot: usize, bytes_max: u32) -> Piece {
        let (low, high) = if self.random.unit() < self.args.large_share {
            (1024, self.args.value_bytes_max)
        } else {
            (1, 1024)
        };
        let span = f64::from(high.max(low + 1)) / f64::from(low);
        let bytes = (f64::from(low) * span.powf(self.random.unit())) as u32;
        self.slots[slot].version += 1;
        Piece {
            key: self.thread << 32 | slot as u64,
            version: self.slots[slot].version,
            bytes: bytes.min(bytes_max),
        }
    }

    /// Keys of many lengths, up to the longest.
    fn key(&self, slot: usize) -> String {
        let mut key = format!("own-{}-{slot}", self.thread);
        let wanted = match slot % 50 {
            0 => 250,
            1..=9 => 30 + slot % 40,
            _ => 0,
        };
        while key.len() < wanted {
            key.push('.');
        }
        key
    }

    fn line(&mut self, slot: usize, before: &str, after: &str) {
        let key = self.key(slot);
        for part in [before, &key, after, "\r\n"] {
            self.request.extend_from_slice(part.as_bytes());
        }
    }

    fn put(&mut self, slot: usize, ask: &Ask) {
        let key = self.key(slot);
        ask.put(&key, &mut self.request);
    }

    fn settle_batch(&mut self, sent: Instant) -> Result<(), LoadError> {
        let steps = std::mem::take(&mut self.steps);
        let mut sums = Totals::default();
        for step in &steps {
            sums.operations += 1;
            match step {
                Step::Own { slot, ask } => self.settle(*slot, ask, sent, &mut sums)?,
                Step::Several { slots } => self.settle_several(slots, sent, &mut sums)?,
                Step::Shared(step) => {
                    self.sharer.settle(step, &mut self.connection, &mut sums)?;
                }
            }
        }
        self.steps = steps;
        self.tally.add(|totals| {
            totals.operations += sums.operations;
            totals.hits += sums.hits;
            totals.misses += sums.misses;
            totals.refused += sums.refused;
            totals.bytes_checked += sums.bytes_checked;
        });
        Ok(())
    }

    fn settle(
        &mut self,
        slot: usize,
        ask: &Ask,
        sent: Instant,
        sums: &mut Totals,
    ) -> Result<(), LoadError> {
        match ask {
            Ask::Get { .. } | Ask::Gets | Ask::MetaGet => {
                let key = self.key(slot);
                let found = self.connection.value(&key)?;
                self.settle_read(slot, found, sent, sums);
                if let (
                    Some(_),
                    Ask::Get {
                        touch: Some(seconds),
                    },
                ) = (found, ask)
                {
                    self.slots[slot].ends = ends(*seconds, sent);
                }
                let has_token = matches!(ask, Ask::Gets | Ask::MetaGet);
                if let (Some(found), true) = (found, has_token) {
                    self.slots[slot].token = Some((found.token, true));
                }
                Ok(())
            }
            _ => {
                let line = self.connection.line()?.to_owned();
                if line.starts_with("SERVER_ERROR") {
                    sums.refused += 1;
                    self.doubtful.push(slot);
                    return Ok(());
                }
                self.settle_line(slot, ask, &line, sent);
                Ok(())
            }
        }
    }

    /// Holds a value that came back, or a miss, against the slot.
    fn settle_read(&mut self, slot: usize, found: Option<Found>, sent: Instant, sums: &mut Totals) {
        if found.is_some() {
            sums.hits += 1;
            sums.bytes_checked += self.connection.body.len() as u64;
        } else {
            sums.misses += 1;
        }
        let state = &mut self.slots[slot];
        let before = state.clone();
        let mut fault = state.settle(found.is_some(), now(sent), self.args.mode);
        if let (None, Some(found)) = (fault, found) {
            fault = state.judge(&self.connection.body, found.flags);
        }
        if let Some(fault) = fault {
            let body = &self.connection.body[..self.connection.body.len().min(HEAD_BYTES as usize)];
            let seen = found.map(|_| Piece::identify(body));
            self.report(fault, slot, &before, &format!("read {seen:?}"));
        }
    }

    fn settle_several(
        &mut self,
        slots: &[usize],
        sent: Instant,
        sums: &mut Totals,
    ) -> Result<(), LoadError> {
        let keys: Vec<String> = slots.iter().map(|&slot| self.key(slot)).collect();
        let mut next = 0;
        loop {
            let from = next;
            let is_expected = |key: &str| {
                let position = keys[from..].iter().position(|other| other == key);
                next = from + position.unwrap_or(0);
                position.is_some()
            };
            let found = self.connection.next_value(is_expected)?;
            let until = if found.is_some() { next } else { slots.len() };
            for &slot in &slots[from..until] {
                self.settle_read(slot, None, sent, sums);
            }
            let Some((found, _)) = found else {
                return Ok(());
            };
            self.settle_read(slots[next], Some(found), sent, sums);
            next += 1;
        }
    }

    /// Holds a one-line reply against the slot and carries out on it what the server did.
    fn settle_line(&mut self, slot: usize, ask: &Ask, line: &str, sent: Instant) {
        let state = &mut self.slots[slot];
        let before = state.clone();
        let when = now(sent);
        let mode = self.args.mode;
        let Some(was_there) = ask.was_there(line, &before) else {
            let text = format!("{ask:?} -> {line:?}");
            return self.report(Fault::WrongReply, slot, &before, &text);
        };
        let fault = was_there.and_then(|was_there| state.settle(was_there, when, mode));
        ask.apply(state, line, when);
        let wrong = fault.or_else(|| ask.number_fault(line, &before));
        if let Some(fault) = wrong {
            self.report(fault, slot, &before, &format!("{ask:?} -> {line:?}"));
        }
    }

    fn report(&self, fault: Fault, slot: usize, before: &Slot, what: &str) {
        let what: String = what.chars().take(300).collect();
        self.tally.fault(fault, || {
            let mut text = String::new();
            // Writing to a String cannot fail.
            let _ = write!(text, "{}: {what}; expected {before:?}", self.key(slot));
            text
        });
    }

    /// A refused write may or may not have removed what was there: removes it for certain.
    fn delete_doubtful(&mut self) -> Result<(), LoadError> {
        for slot in std::mem::take(&mut self.doubtful) {
            self.request.clear();
            self.line(slot, "delete ", "");
            self.connection.send(&self.request)?;
            self.connection.line()?;
            self.slots[slot].forget();
        }
        Ok(())
    }
}

fn now(sent: Instant) -> When {
    When {
        sent,
        received: Instant::now(),
    }
}

fn ends(seconds: u32, sent: Instant) -> Option<Ends> {
    (seconds > 0).then(|| Ends::after(seconds, now(sent)))
}
