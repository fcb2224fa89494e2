//! Control messages between nodes that are not about a key: progress of moves and joins,
//! heartbeats.
//!
//! ```text
//!   source of moves            target                    everybody
//!   all its keys are sent --- MovesEnd(view, worker) -->
//!          <------------- MovesSeen(view, worker) --- every worker has taken them in
//!   MovesDone(view) ------------------------------------------> its membership
//!   Filled(view) ------> a node that joins: it has all hot keys whose home this node is
//!   Beat, Call --------> every member, several times in a lease; a Call comes back as an Echo,
//!                        with what the cluster's clock shows
//! ```
//!
//! Moves and these messages share one ordered link, so an end arrives after everything before it.

use curtail_consistency::{
    cluster_clock::Reading,
    membership::{Heartbeat, Incarnation},
};
use curtail_types::{Instant, NodeSet, ViewNumber};

/// A control message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum News {
    /// Worker `worker` of the sender has sent all keys that leave its slices under the view.
    MovesEnd { view: ViewNumber, worker: u16 },
    /// They have been taken in.
    MovesSeen { view: ViewNumber, worker: u16 },
    /// All keys that leave the sender have been taken in where they belong.
    MovesDone { view: ViewNumber },
    /// The sender is there, and has so many items.
    Beat { heartbeat: Heartbeat, items: u32 },
    /// The receiver, which is joining, follows all hot keys whose home the sender is.
    Filled { view: ViewNumber },
    /// The sender's clock, in microseconds, to be echoed.
    Call { sent_us: u32 },
    /// What a call said, and the clock: so its sender learns how long a round trip takes, and what
    /// time it is.
    Echo { sent_us: u32, clock: Reading },
}

/// A key shall become hot, or cease to be: the kind, then the key's bytes.
const PROMOTE: u8 = 16;
const DEMOTE: u8 = 17;

/// The kind of [`News::Beat`], which is longer than the others: behind the view and the items come
/// `adopted`, a set, two lives and two instants, each as the receiver gets it back.
const BEAT: u8 = 5;

/// The kind of [`News::Echo`]: its view is that of the clock's reading, and behind its number are
/// the time and how wrong it may be, in nanoseconds.
const ECHO: u8 = 8;

/// Bytes of a piece of news, and of a heartbeat.
const NEWS_BYTES: usize = 9;
const BEAT_BYTES: usize = NEWS_BYTES + 4 + 5 * 8;

impl News {
    /// A proposal to the home of a key.
    pub(super) fn proposal(key: &[u8], hot: bool) -> Vec<u8> {
        let mut bytes = vec![if hot { PROMOTE } else { DEMOTE }];
        bytes.extend_from_slice(key);
        bytes
    }

    /// The key of a proposal, and whether it shall be hot.
    pub(super) fn as_proposal(bytes: &[u8]) -> Option<(&[u8], bool)> {
        match bytes.split_first()? {
            (&PROMOTE, key) => Some((key, true)),
            (&DEMOTE, key) => Some((key, false)),
            _ => None,
        }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (kind, view, number) = match self {
            Self::MovesEnd { view, worker } => (1, view, u32::from(worker)),
            Self::MovesSeen { view, worker } => (2, view, u32::from(worker)),
            Self::MovesDone { view } => (3, view, 0),
            Self::Filled { view } => (4, view, 0),
            Self::Beat { heartbeat, items } => (BEAT, heartbeat.view, items),
            Self::Call { sent_us } => (6, ViewNumber(0), sent_us),
            Self::Echo { sent_us, clock } => (ECHO, clock.epoch, sent_us),
        };
        let mut bytes = Vec::with_capacity(BEAT_BYTES);
        bytes.push(kind);
        bytes.extend_from_slice(&view.0.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        if let Self::Beat { heartbeat, .. } = self {
            bytes.extend_from_slice(&heartbeat.adopted.0.to_le_bytes());
            for word in [
                heartbeat.hears.to_bits(),
                heartbeat.life.0,
                heartbeat.to_life.0,
                heartbeat.sent.ns,
                heartbeat.answers.ns,
            ] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        if let Self::Echo { clock, .. } = self {
            bytes.extend_from_slice(&clock.unix_ns.to_le_bytes());
            bytes.extend_from_slice(&clock.error_ns.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (view, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let view = ViewNumber(u32::from_le_bytes(*view));
        let number = u32::from_le_bytes(*number);
        if *kind == BEAT {
            let heartbeat = heartbeat_of(view, rest)?;
            let items = number;
            return Some(Self::Beat { heartbeat, items });
        }
        if *kind == ECHO {
            let clock = reading_of(view, rest)?;
            let sent_us = number;
            return Some(Self::Echo { sent_us, clock });
        }
        let worker = u16::try_from(number).unwrap_or(u16::MAX);
        rest.is_empty().then_some(())?;
        Some(match kind {
            1 => Self::MovesEnd { view, worker },
            2 => Self::MovesSeen { view, worker },
            3 => Self::MovesDone { view },
            4 => Self::Filled { view },
            6 => Self::Call { sent_us: number },
            _ => return None,
        })
    }
}

/// What a [`News::Echo`] has behind its number.
fn reading_of(epoch: ViewNumber, bytes: &[u8]) -> Option<Reading> {
    let (words, rest) = bytes.as_chunks::<8>();
    let &[unix_ns, error_ns] = words else {
        return None;
    };
    rest.is_empty().then_some(Reading {
        epoch,
        unix_ns: u64::from_le_bytes(unix_ns),
        error_ns: u64::from_le_bytes(error_ns),
    })
}

/// What a [`News::Beat`] has behind its items.
fn heartbeat_of(view: ViewNumber, bytes: &[u8]) -> Option<Heartbeat> {
    let (adopted, rest) = bytes.split_first_chunk()?;
    let (words, rest) = rest.as_chunks::<8>();
    let &[hears, life, to_life, sent, answers] = words else {
        return None;
    };
    rest.is_empty().then_some(Heartbeat {
        life: Incarnation(u64::from_le_bytes(life)),
        view,
        adopted: ViewNumber(u32::from_le_bytes(*adopted)),
        sent: Instant {
            ns: u64::from_le_bytes(sent),
        },
        to_life: Incarnation(u64::from_le_bytes(to_life)),
        answers: Instant {
            ns: u64::from_le_bytes(answers),
        },
        hears: NodeSet::from_bits(u64::from_le_bytes(hears)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_decode_to_what_was_encoded() {
        let (view, worker) = (ViewNumber(70_000), 300);
        let heartbeat = Heartbeat {
            life: Incarnation(u64::MAX),
            view,
            adopted: ViewNumber(69_999),
            sent: Instant { ns: 1 << 50 },
            to_life: Incarnation(3),
            answers: Instant { ns: 4 },
            hears: NodeSet::from_bits(1 << 63 | 5),
        };
        for news in [
            News::MovesEnd { view, worker },
            News::MovesSeen { view, worker },
            News::MovesDone { view },
            News::Filled { view },
            News::Beat {
                heartbeat,
                items: 1 << 20,
            },
            News::Call { sent_us: u32::MAX },
            News::Echo {
                sent_us: 9,
                clock: Reading {
                    epoch: view,
                    unix_ns: 1 << 60,
                    error_ns: 1,
                },
            },
        ] {
            let mut bytes = news.to_bytes();
            assert_eq!(News::from_bytes(&bytes), Some(news));
            bytes.push(0);
            assert_eq!(News::from_bytes(&bytes), None);
            assert_eq!(News::from_bytes(&bytes[..bytes.len() - 2]), None);
        }
        let proposal = News::proposal(b"key", true);
        assert_eq!(News::as_proposal(&proposal), Some((&b"key"[..], true)));
        assert_eq!(News::from_bytes(&[9; NEWS_BYTES]), None);
        assert_eq!(News::from_bytes(&[1]), None);
    }
}
