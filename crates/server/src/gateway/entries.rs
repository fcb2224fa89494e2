//! The requests that are under way: a table whose memory is allocated once. The number of an entry
//! stands in the low bits of its request's sequence, so a reply finds it without a search.

use curtail_codec::tiered::{BODY_BYTES_MAX, TierAddress, TieredHead, TieredOpcode};
use curtail_types::{Failure, Key, KeyAddress, Operation};

use crate::{completion::Token, gateway::PATIENCE_NS};

/// The table.
pub(super) struct Entries {
    entries: Box<[Entry]>,
    /// Keys and values, [`BODY_BYTES_MAX`] for each.
    bodies: Box<[u8]>,
    free: Vec<u16>,
    /// When each is due; [`NEVER`] of those that are free.
    due_ns: Box<[u64]>,
    /// Nothing is due before that.
    quiet_until_ns: u64,
    /// Where the round through the table is that looks for what is due.
    looked: usize,
    /// Of the last sequence, without the bits of the number.
    turn: u64,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) token: Token,
    pub(super) operation: Option<Operation>,
    pub(super) head: TieredHead,
    began_ns: u64,
    due_ns: u64,
    wait_ns: u64,
    key_bytes: usize,
    value_bytes: usize,
    /// Some attempt has neither an answer nor a refusal.
    is_open: bool,
    /// The last attempt was refused.
    is_pausing: bool,
}

impl Entries {
    /// Requests of a worker at most.
    pub(super) const ENTRIES_MAX: usize = 1 << NUMBER_BITS;

    /// An empty table, for sequences above `began`.
    pub(super) fn new(began: u64) -> Self {
        let none = Entry {
            token: Token {
                slot: usize::MAX,
                serial: 0,
                place: 0,
            },
            operation: None,
            head: TieredHead::new(TieredOpcode::Get, TierAddress::get(KeyAddress::default())),
            began_ns: 0,
            due_ns: NEVER,
            wait_ns: 0,
            key_bytes: 0,
            value_bytes: 0,
            is_open: false,
            is_pausing: false,
        };
        let last = (Self::ENTRIES_MAX - 1) as u16;
        Self {
            entries: vec![none; Self::ENTRIES_MAX].into_boxed_slice(),
            bodies: vec![0; Self::ENTRIES_MAX * BODY_BYTES_MAX].into_boxed_slice(),
            free: (0..=last).rev().collect(),
            due_ns: vec![NEVER; Self::ENTRIES_MAX].into_boxed_slice(),
            quiet_until_ns: NEVER,
            looked: 0,
            turn: began >> NUMBER_BITS,
        }
    }

    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// A new entry; `None` if the table is full. The body must fit.
    pub(super) fn begin(
        &mut self,
        (token, operation): (Token, Option<Operation>),
        mut head: TieredHead,
        (key, value): (Key<'_>, &[u8]),
        now_ns: u64,
    ) -> Option<usize> {
        let number = usize::from(self.free.pop()?);
        self.turn += 1;
        head.sequence = self.turn << NUMBER_BITS | number as u64;
        let (key, start) = (key.bytes(), number * BODY_BYTES_MAX);
        let body = self
            .bodies
            .get_mut(start..start + key.len() + value.len())?;
        let (key_room, value_room) = body.split_at_mut_checked(key.len())?;
        key_room.copy_from_slice(key);
        value_room.copy_from_slice(value);
        let entry = self.entries.get_mut(number)?;
        *entry = Entry {
            token,
            operation,
            head,
            began_ns: now_ns,
            due_ns: now_ns + FIRST_WAIT_NS,
            wait_ns: FIRST_WAIT_NS,
            key_bytes: key.len(),
            value_bytes: value.len(),
            is_open: false,
            is_pausing: false,
        };
        self.note_due(number);
        Some(number)
    }

    /// An entry, its key and its value.
    pub(super) fn get(&self, number: usize) -> Option<(&Entry, Key<'_>, &[u8])> {
        let entry = self.entries.get(number)?;
        let start = number * BODY_BYTES_MAX;
        let body = start..start + entry.key_bytes + entry.value_bytes;
        let (key, value) = self.bodies.get(body)?.split_at_checked(entry.key_bytes)?;
        Some((entry, Key::new(key).ok()?, value))
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut Entry> {
        self.entries.get_mut(number)
    }

    /// The entry whose request has this sequence, if it is under way.
    pub(super) fn find(&mut self, sequence: u64) -> Option<(usize, &mut Entry)> {
        let number = (sequence & (Self::ENTRIES_MAX as u64 - 1)) as usize;
        let is_free = *self.due_ns.get(number)? == NEVER;
        let entry = self.entries.get_mut(number)?;
        (!is_free && entry.head.sequence == sequence).then_some((number, entry))
    }

    /// The entry is free.
    pub(super) fn end(&mut self, number: usize) {
        if let Some(due_ns) = self.due_ns.get_mut(number) {
            *due_ns = NEVER;
            self.free.push(number as u16);
        }
    }

    /// The entry is due when it says so.
    pub(super) fn note_due(&mut self, number: usize) {
        if let (Some(due_ns), Some(entry)) = (self.due_ns.get_mut(number), self.entries.get(number))
        {
            *due_ns = entry.due_ns;
            self.quiet_until_ns = self.quiet_until_ns.min(entry.due_ns);
        }
    }

    /// An entry that is due, if there is one: each once a round, which ends with `None`.
    pub(super) fn next_due(&mut self, now_ns: u64) -> Option<usize> {
        if now_ns < self.quiet_until_ns {
            return None;
        }
        let rest = self.due_ns.get(self.looked..).unwrap_or_default();
        if let Some(behind) = rest.iter().position(|due_ns| *due_ns <= now_ns) {
            self.looked += behind + 1;
            return Some(self.looked - 1);
        }
        self.looked = 0;
        let first = self.due_ns.iter().min().copied().unwrap_or(NEVER);
        // Looking through the table takes time: not in every turn.
        self.quiet_until_ns = first.max(now_ns + LOOK_NS);
        None
    }

    pub(super) fn due_ns(&self) -> u64 {
        self.quiet_until_ns
    }
}

impl Entry {
    /// It was refused for now: it is sent again after a pause, if that is not too late.
    pub(super) const fn pause(&mut self, now_ns: u64) -> bool {
        self.is_pausing = true;
        self.due_ns = now_ns + self.wait_ns;
        self.due_ns < self.began_ns + PATIENCE_NS
    }

    /// It is due: it is sent again, if that is not too late.
    /// `head` is the request as it is sent again (SW-14).
    pub(super) fn again(&mut self, head: TieredHead, now_ns: u64) -> bool {
        self.is_open |= !self.is_pausing;
        self.is_pausing = false;
        if now_ns + self.wait_ns >= self.began_ns + PATIENCE_NS {
            return false;
        }
        if self.is_open {
            self.head = head;
        }
        self.wait_ns = (self.wait_ns * 2).min(WAIT_MAX_NS);
        self.due_ns = now_ns + self.wait_ns;
        true
    }

    /// What is known when nothing more is tried.
    pub(super) const fn failure(&self) -> Failure {
        match self.is_open {
            true => Failure::Late,
            false => Failure::Busy,
        }
    }
}

const NUMBER_BITS: u32 = 12;
const NEVER: u64 = u64::MAX;
/// Before a request is sent again for the first time, and later.
const FIRST_WAIT_NS: u64 = 20_000_000;
const WAIT_MAX_NS: u64 = 320_000_000;
/// Between two looks through the table.
const LOOK_NS: u64 = 1_000_000;
