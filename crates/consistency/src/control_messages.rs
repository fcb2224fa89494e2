//! Messages between nodes that are not about a key: heartbeats, the clock, what a view is to
//! change, and the hot list.
//!
//! ```text
//!   Beat, Call --------> every member, several times in a lease; a Call comes back as an Echo,
//!                        with what the cluster's clock shows
//!   Proposals ---------> the member that writes the view
//!   Hot ---------------> reports to the coordinator, and its list to every member
//! ```

use alloc::{boxed::Box, vec::Vec};

use curtail_types::{Instant, NodeSet, ViewNumber};

use crate::{
    cluster_clock::Reading,
    members::{Heartbeat, Incarnation},
    slice_view::RowChange,
    wire::{Wire, wire_enum, wire_structs},
};

/// A control message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ControlMessage {
    /// The sender is there.
    Beat(Heartbeat),
    /// The sender's clock, to be echoed.
    Call {
        /// 0.
        epoch: ViewNumber,
        /// What it shows, in microseconds.
        sent_us: u32,
    },
    /// What a call said, and the clock: so its sender learns how long a round trip takes, and what
    /// time it is.
    Echo((u32, Reading)),
    /// What the sender wants changed in the view.
    Proposals(Box<[RowChange]>),
    /// A message about hot keys.
    Hot(Box<[u8]>),
}

wire_enum! {
    ControlMessage {
        5 = Beat(heartbeat),
        6 = Call { epoch, sent_us },
        8 = Echo(echo),
        9 = Proposals(changes),
        10 = Hot(message),
    }
}

wire_structs! {
    Heartbeat { view, items, adopted, hears, life, to_life, sent, answers }
    Incarnation { 0 }
    Instant { ns }
}

impl Wire for (u32, Reading) {
    fn put(&self, bytes: &mut Vec<u8>) {
        let (sent_us, clock) = self;
        clock.epoch.put(bytes);
        sent_us.put(bytes);
        clock.unix_ns.put(bytes);
        clock.error_ns.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (epoch, sent_us) = (Wire::take(bytes)?, Wire::take(bytes)?);
        let clock = Reading {
            epoch,
            unix_ns: Wire::take(bytes)?,
            error_ns: Wire::take(bytes)?,
        };
        Some((sent_us, clock))
    }
}

impl Wire for NodeSet {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.to_bits().put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        u64::take(bytes).map(Self::from_bits)
    }
}

impl ControlMessage {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        bytes
    }

    /// The message that `bytes` are, all of them; `None` if they are none.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let news = Self::take(&mut bytes)?;
        bytes.is_empty().then_some(news)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use curtail_types::NodeId;

    use super::*;
    use crate::slice_view::{RowStep, SliceId};

    /// Goal: what one version of the server sends, another understands. Method: every kind, encoded
    /// and decoded, with its length and with lengths that no message has.
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
            items: 1 << 20,
        };
        let (sent_us, epoch) = (u32::MAX, view);
        let clock = Reading {
            epoch,
            unix_ns: 1 << 60,
            error_ns: 1,
        };
        for (news, length) in [
            (ControlMessage::Beat(heartbeat), 53),
            (ControlMessage::Call { epoch, sent_us }, 9),
            (ControlMessage::Echo((sent_us, clock)), 25),
        ] {
            let mut bytes = news.encode();
            assert_eq!(
                (bytes.len(), ControlMessage::decode(&bytes)),
                (length, Some(news))
            );
            bytes.push(0);
            assert_eq!(ControlMessage::decode(&bytes), None);
            assert_eq!(ControlMessage::decode(&bytes[..length - 1]), None);
        }
        assert_eq!(ControlMessage::decode(&[7; 9]), None);
        assert_eq!(ControlMessage::decode(&[1]), None);
        let hot = ControlMessage::Hot(vec![1, 2, 3].into());
        assert_eq!(ControlMessage::decode(&hot.encode()), Some(hot));
    }

    /// What another node wants changed is at most what arrived, 8 bytes each.
    #[test]
    fn changes_decode_to_what_was_encoded() {
        let node = NodeId(63);
        let steps = [
            RowStep::Hold(node),
            RowStep::Enter(NodeId(0)),
            RowStep::Exit(node),
            RowStep::HandOver(node),
        ];
        let changes = steps.map(|step| RowChange {
            slice: SliceId(u16::MAX),
            view: ViewNumber(70_000),
            step,
        });
        for changes in [&changes[..], &[]] {
            let news = ControlMessage::Proposals(changes.into());
            let bytes = news.encode();
            assert_eq!(bytes.len(), 1 + 8 * changes.len());
            assert_eq!(ControlMessage::decode(&bytes), Some(news));
        }
        let bytes = ControlMessage::Proposals(changes.into()).encode();
        assert_eq!(ControlMessage::decode(&bytes[..bytes.len() - 1]), None);
        for (at, byte) in [(7, 4), (8, 64)] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert_eq!(ControlMessage::decode(&wrong), None);
        }
    }
}
