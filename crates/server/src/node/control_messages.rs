//! Control messages between nodes that are not about a key: heartbeats, the clock, what a view is
//! to change, and the hot list.
//!
//! ```text
//!   Beat, Call --------> every member, several times in a lease; a Call comes back as an Echo,
//!                        with what the cluster's clock shows
//!   Proposals ---------> the member that writes the view
//!   Hot ---------------> reports to the coordinator, and its list to every member
//! ```

use curtail_consistency::{
    cluster_clock::Reading,
    members::{Heartbeat, Incarnation, decode_changes, encode_changes},
    slice_view::RowChange,
};
use curtail_types::{Instant, NodeSet, ViewNumber};

/// A control message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum News {
    /// The sender is there, and has so many items.
    Beat { heartbeat: Heartbeat, items: u32 },
    /// The sender's clock, in microseconds, to be echoed.
    Call { sent_us: u32 },
    /// What a call said, and the clock: so its sender learns how long a round trip takes, and what
    /// time it is.
    Echo { sent_us: u32, clock: Reading },
    /// What the sender wants changed in the view.
    Proposals(Vec<RowChange>),
    /// A message about hot keys.
    Hot(Vec<u8>),
}

/// The kinds of [`News::Call`], [`News::Proposals`] and [`News::Hot`].
const CALL: u8 = 6;
const PROPOSALS: u8 = 9;
const HOT: u8 = 10;

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
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (kind, view, number) = match self {
            Self::Beat { heartbeat, items } => (BEAT, heartbeat.view, *items),
            Self::Call { sent_us } => (CALL, ViewNumber(0), *sent_us),
            Self::Echo { sent_us, clock } => (ECHO, clock.epoch, *sent_us),
            Self::Proposals(changes) => {
                let mut bytes = vec![PROPOSALS];
                encode_changes(changes, &mut bytes);
                return bytes;
            }
            Self::Hot(message) => {
                let mut bytes = vec![HOT];
                bytes.extend_from_slice(message);
                return bytes;
            }
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
        match *kind {
            PROPOSALS => return decode_changes(rest).map(Self::Proposals),
            HOT => return Some(Self::Hot(rest.to_vec())),
            _ => {}
        }
        let rest = &mut &*rest;
        let view = ViewNumber(u32::from_le_bytes(next(rest)?));
        let number = u32::from_le_bytes(next(rest)?);
        let news = match *kind {
            BEAT => {
                let adopted = ViewNumber(u32::from_le_bytes(next(rest)?));
                let mut word = || next(rest).map(u64::from_le_bytes);
                // The fields are read in this order.
                let heartbeat = Heartbeat {
                    view,
                    adopted,
                    hears: NodeSet::from_bits(word()?),
                    life: Incarnation(word()?),
                    to_life: Incarnation(word()?),
                    sent: Instant { ns: word()? },
                    answers: Instant { ns: word()? },
                };
                let items = number;
                Self::Beat { heartbeat, items }
            }
            ECHO => {
                let clock = Reading {
                    epoch: view,
                    unix_ns: u64::from_le_bytes(next(rest)?),
                    error_ns: u64::from_le_bytes(next(rest)?),
                };
                let sent_us = number;
                Self::Echo { sent_us, clock }
            }
            CALL => Self::Call { sent_us: number },
            _ => return None,
        };
        rest.is_empty().then_some(news)
    }
}

/// Takes the first `N` bytes.
fn next<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use curtail_consistency::slice_view::{RowStep, SliceId};
    use curtail_types::NodeId;

    use super::*;

    #[test]
    fn control_messages_decode_to_what_was_encoded() {
        let view = ViewNumber(70_000);
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
        let change = RowChange {
            slice: SliceId(7),
            view,
            step: RowStep::Hold(NodeId(2)),
        };
        for news in [News::Proposals(vec![change]), News::Hot(vec![1, 2, 3])] {
            assert_eq!(News::from_bytes(&news.to_bytes()), Some(news));
        }
        assert_eq!(News::from_bytes(&[7; NEWS_BYTES]), None);
        assert_eq!(News::from_bytes(&[1]), None);
    }
}
