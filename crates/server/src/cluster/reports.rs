//! Small news from node to node that is about no key: how far moves and joins have come.
//!
//! ```text
//!   source of moves            target                    everybody
//!   all its keys are sent --- MovesEnd(view, worker) -->
//!          <------------- MovesSeen(view, worker) --- every worker has taken them in
//!   MovesDone(view) ------------------------------------------> its membership
//!   Filled(view) ------> a node that joins: it has all hot keys whose home this node is
//!   Beat, Call --------> every member, several times in a lease; a Call comes back as an Echo
//! ```
//!
//! What moves and this news travel one link in order, so an end is seen after everything before it.

use curtail_types::{NodeSet, ViewNumber};

/// Something to tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum News {
    /// Worker `worker` of the sender has sent all keys that leave its slices under the view.
    MovesEnd { view: ViewNumber, worker: u16 },
    /// They have been taken in.
    MovesSeen { view: ViewNumber, worker: u16 },
    /// All keys that leave the sender have been taken in where they belong.
    MovesDone { view: ViewNumber },
    /// The sender is there, knows of this view, and has so many items.
    Beat { view: ViewNumber, items: u32 },
    /// The receiver, which is joining, follows all hot keys whose home the sender is.
    Filled { view: ViewNumber },
    /// Whom the sender hears.
    Hears { nodes: NodeSet },
    /// The sender's clock, in microseconds, to be said back.
    Call { sent_us: u32 },
    /// What a call said: so its sender learns how long a round trip takes.
    Echo { sent_us: u32 },
}

/// A key shall become hot, or cease to be: the kind, then the key's bytes.
const PROMOTE: u8 = 16;
const DEMOTE: u8 = 17;

/// The kind of [`News::Hears`], whose eight bytes are a set.
const HEARS: u8 = 8;

/// Bytes of a piece of news.
pub(super) const NEWS_BYTES: usize = 9;

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

    pub(super) fn to_bytes(self) -> [u8; NEWS_BYTES] {
        if let Self::Hears { nodes } = self {
            let mut bytes = [HEARS; NEWS_BYTES];
            bytes[1..].copy_from_slice(&nodes.to_bits().to_le_bytes());
            return bytes;
        }
        let (kind, view, number) = match self {
            Self::MovesEnd { view, worker } => (1, view, u32::from(worker)),
            Self::MovesSeen { view, worker } => (2, view, u32::from(worker)),
            Self::MovesDone { view } => (3, view, 0),
            Self::Filled { view } => (4, view, 0),
            Self::Beat { view, items } => (5, view, items),
            Self::Hears { .. } => (HEARS, ViewNumber(0), 0),
            Self::Call { sent_us } => (6, ViewNumber(0), sent_us),
            Self::Echo { sent_us } => (7, ViewNumber(0), sent_us),
        };
        let mut bytes = [kind; NEWS_BYTES];
        bytes[1..5].copy_from_slice(&view.0.to_le_bytes());
        bytes[5..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let &[kind, v0, v1, v2, v3, n0, n1, n2, n3] = bytes else {
            return None;
        };
        let view = ViewNumber(u32::from_le_bytes([v0, v1, v2, v3]));
        let number = u32::from_le_bytes([n0, n1, n2, n3]);
        let worker = u16::try_from(number).unwrap_or(u16::MAX);
        Some(match kind {
            1 => Self::MovesEnd { view, worker },
            2 => Self::MovesSeen { view, worker },
            3 => Self::MovesDone { view },
            4 => Self::Filled { view },
            5 => Self::Beat {
                view,
                items: number,
            },
            6 => Self::Call { sent_us: number },
            HEARS => Self::Hears {
                nodes: NodeSet::from_bits(u64::from_le_bytes([v0, v1, v2, v3, n0, n1, n2, n3])),
            },
            7 => Self::Echo { sent_us: number },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_arrive_as_they_were_sent() {
        let (view, worker) = (ViewNumber(70_000), 300);
        for news in [
            News::MovesEnd { view, worker },
            News::MovesSeen { view, worker },
            News::MovesDone { view },
            News::Filled { view },
            News::Beat {
                view,
                items: 1 << 20,
            },
            News::Call { sent_us: u32::MAX },
            News::Echo { sent_us: 9 },
            News::Hears {
                nodes: NodeSet::from_bits(1 << 63 | 5),
            },
        ] {
            assert_eq!(News::from_bytes(&news.to_bytes()), Some(news));
        }
        let proposal = News::proposal(b"key", true);
        assert_eq!(News::as_proposal(&proposal), Some((&b"key"[..], true)));
        assert_eq!(News::from_bytes(&[9; NEWS_BYTES]), None);
        assert_eq!(News::from_bytes(&[1]), None);
    }
}
