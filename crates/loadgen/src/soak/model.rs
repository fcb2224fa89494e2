//! The expected contents of the keys of one owner.
//!
//! Nobody else writes an owned key, so that every reply has one right answer, with two exceptions
//! that are spelt out here: near an expiry either is right, because servers count in seconds; and
//! where misses are allowed (a cache may evict) a value may be gone, but then it is gone for good:
//! an older one must never come back.

use std::time::{Duration, Instant};

use super::tally::Fault;
use crate::self_checking_value::Piece;

/// Whether a missing value is a fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Mode {
    /// Nothing may be missing: for servers with room for everything.
    Strict,
    /// Values may be evicted; an older value must not come back.
    Cache,
}

/// What a key holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Content {
    #[default]
    Missing,
    Pieces(Vec<Piece>),
    Number(u64),
}

/// One owned key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) content: Content,
    pub(crate) flags: u32,
    /// The last version written, never reused.
    pub(crate) version: u64,
    /// When the content ends, if it does.
    pub(crate) ends: Option<Ends>,
    /// The version token of the last read, and whether nothing was written since.
    pub(crate) token: Option<(u64, bool)>,
}

/// Between these instants an item may be there or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ends {
    earliest: Instant,
    latest: Instant,
}

/// When a request was sent and its reply received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

/// Servers keep time in whole seconds and may have looked at the clock up to one second ago, so
/// that an item may end this much earlier than it was told to ...
const EARLY: Duration = Duration::from_millis(1300);

/// ... or this much later.
const LATE: Duration = Duration::from_millis(2200);

impl Ends {
    /// The end of an item that was given `seconds` in this request.
    pub(crate) fn after(seconds: u32, when: When) -> Self {
        let given = Duration::from_secs(u64::from(seconds));
        Self {
            earliest: when.sent + given.saturating_sub(EARLY),
            latest: when.received + given + LATE,
        }
    }
}

impl Slot {
    /// Whether the item ends by itself before long.
    pub(crate) fn ends_soon(&self, now: Instant) -> bool {
        const SOON: Duration = Duration::from_secs(15);
        self.ends.is_some_and(|ends| ends.latest < now + SOON)
    }

    /// A reply said whether the item was there when the request was carried out. Returns the fault
    /// that this is, if it is one, and forgets what is not there.
    pub(crate) fn settle(&mut self, was_there: bool, when: When, mode: Mode) -> Option<Fault> {
        let is_missing = self.content == Content::Missing;
        let is_past = self.ends.is_some_and(|ends| when.sent > ends.latest);
        let may_be_past = self.ends.is_some_and(|ends| when.received >= ends.earliest);
        let fault = match (was_there, is_missing) {
            (true, true) => Some(Fault::Stale),
            (true, false) if is_past => Some(Fault::Expired),
            (false, false) if mode == Mode::Strict && !may_be_past => Some(Fault::Lost),
            _ => None,
        };
        if !was_there {
            self.forget();
        }
        fault
    }

    /// The item is gone.
    pub(crate) fn forget(&mut self) {
        self.content = Content::Missing;
        self.ends = None;
        self.overwritten();
    }

    /// Something was stored.
    pub(crate) fn store(&mut self, content: Content, flags: u32, ends: Option<Ends>) {
        self.content = content;
        self.flags = flags;
        self.ends = ends;
        self.overwritten();
    }

    /// The content changed, flags and end stayed.
    pub(crate) fn overwritten(&mut self) {
        if let Some((_, is_current)) = &mut self.token {
            *is_current = false;
        }
    }

    /// Bytes of the content.
    pub(crate) fn bytes(&self) -> u32 {
        match &self.content {
            Content::Missing => 0,
            Content::Number(_) => 20,
            Content::Pieces(pieces) => pieces.iter().map(|piece| piece.bytes).sum(),
        }
    }

    /// The fault of a value that came back for this slot, if it is one.
    pub(crate) fn judge(&self, bytes: &[u8], flags: u32) -> Option<Fault> {
        let is_right = match &self.content {
            Content::Missing => return Some(Fault::Stale),
            Content::Number(number) => is_number(bytes, *number),
            Content::Pieces(pieces) => are(pieces, bytes),
        };
        if is_right {
            return (flags != self.flags).then_some(Fault::WrongReply);
        }
        let expected = match &self.content {
            Content::Pieces(pieces) => pieces.first().copied(),
            _ => None,
        };
        Some(match (Piece::identify(bytes), expected) {
            (Some(found), Some(expected)) if found.key != expected.key => Fault::Foreign,
            (Some(found), _) if found.is(bytes) && found.version <= self.version => Fault::Stale,
            _ => Fault::Torn,
        })
    }
}

/// A counted number: digits, behind which a decrement may have left blanks.
pub(crate) fn is_number(bytes: &[u8], number: u64) -> bool {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.trim_end_matches(' ').parse() == Ok(number)
}

fn are(pieces: &[Piece], bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for piece in pieces {
        let Some((own, others)) = rest.split_at_checked(piece.bytes as usize) else {
            return false;
        };
        if !piece.is(own) {
            return false;
        }
        rest = others;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, from_ms: u64, to_ms: u64) -> When {
        When {
            sent: start + Duration::from_millis(from_ms),
            received: start + Duration::from_millis(to_ms),
        }
    }

    fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
        let mut bytes = Vec::new();
        pieces.iter().for_each(|piece| piece.put(&mut bytes));
        bytes
    }

    fn piece(key: u64, version: u64, bytes: u32) -> Piece {
        Piece {
            key,
            version,
            bytes,
        }
    }

    #[test]
    fn a_missing_value_is_lost_only_where_nothing_may_be_missing() {
        let now = at(Instant::now(), 0, 1);
        let full = Slot {
            content: Content::Number(7),
            ..Slot::default()
        };
        assert_eq!(full.clone().settle(true, now, Mode::Strict), None);
        assert_eq!(
            full.clone().settle(false, now, Mode::Strict),
            Some(Fault::Lost)
        );
        let mut slot = full.clone();
        assert_eq!(slot.settle(false, now, Mode::Cache), None);
        // Gone for good: coming back is a fault in both modes.
        assert_eq!(slot.settle(true, now, Mode::Cache), Some(Fault::Stale));
    }

    #[test]
    fn near_its_end_an_item_may_be_there_or_not() {
        let start = Instant::now();
        let slot = Slot {
            content: Content::Number(7),
            ends: Some(Ends::after(3, at(start, 0, 10))),
            ..Slot::default()
        };
        let settle = |was_there, ms| {
            slot.clone()
                .settle(was_there, at(start, ms, ms + 1), Mode::Strict)
        };
        assert_eq!(settle(false, 1000), Some(Fault::Lost));
        assert_eq!((settle(true, 2500), settle(false, 2500)), (None, None));
        assert_eq!((settle(true, 5000), settle(false, 5000)), (None, None));
        assert_eq!(
            (settle(true, 5300), settle(false, 5300)),
            (Some(Fault::Expired), None)
        );
    }

    #[test]
    fn wrong_values_are_called_by_their_names() {
        let current = [piece(1, 8, 40), piece(1, 9, 10)];
        let slot = Slot {
            content: Content::Pieces(current.to_vec()),
            version: 9,
            flags: 5,
            ..Slot::default()
        };
        let right = bytes_of(&current);
        assert_eq!(slot.judge(&right, 5), None);
        assert_eq!(slot.judge(&right, 6), Some(Fault::WrongReply));
        assert_eq!(slot.judge(&right[..49], 5), Some(Fault::Torn));
        assert_eq!(
            slot.judge(&bytes_of(&[piece(1, 7, 50)]), 5),
            Some(Fault::Stale)
        );
        assert_eq!(
            slot.judge(&bytes_of(&[piece(2, 9, 50)]), 5),
            Some(Fault::Foreign)
        );
        assert_eq!(Slot::default().judge(&right, 5), Some(Fault::Stale));
    }

    #[test]
    fn decrements_leave_blanks() {
        assert!(is_number(b"99 ", 99) && is_number(b"0", 0));
        assert!(!is_number(b" 99", 99) && !is_number(b"", 0) && !is_number(b"98", 99));
    }
}
