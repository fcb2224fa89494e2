//! The lengths of the messages.

use curtail_consistency::replica::Model;

/// Lengths of messages on the wire in bytes, headers included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageBytes {
    /// What each packet costs whatever is in it.
    pub header: f64,
    /// A request that is sent to the key's home.
    pub request: f64,
    /// Its reply, with the value.
    pub reply: f64,
    /// The value of a hot write.
    pub update: f64,
    /// Its announcement (Lin).
    pub invalidation: f64,
    /// The announcement's acknowledgement (Lin).
    pub acknowledgement: f64,
}

impl MessageBytes {
    /// The paper's (CC-54) at 40-byte values (B_RR = 113, B_SC = 83, B_Lin = 183), stretched to
    /// values of `value_bytes`: each byte more is one more in a reply and in an update. The header
    /// is that of InfiniBand's unreliable datagrams (8 + 12 + 8 bytes before and 6 behind); how the
    /// paper's sums divide into messages is ours.
    pub fn paper(value_bytes: u32) -> Self {
        let value = f64::from(value_bytes);
        Self {
            header: 34.0,
            request: 38.0,
            reply: 35.0 + value,
            update: 43.0 + value,
            invalidation: 50.0,
            acknowledgement: 50.0,
        }
    }

    /// A transport of ours over UDP, IPv4 and Ethernet: 66 bytes around each message on the wire,
    /// a header of 24, keys of 8 (CC-57). That we send the value with the invalidation, as Hermes
    /// does, and end a write with a message that has none, leaves the sum of the three as it is.
    pub fn datagrams(value_bytes: u32) -> Self {
        let (around, value) = (66.0 + 24.0, f64::from(value_bytes));
        let (key, with_value) = (around + 8.0, around + 8.0 + value);
        Self {
            header: 66.0,
            request: key,
            reply: around + value,
            update: with_value,
            invalidation: key,
            acknowledgement: key,
        }
    }

    /// With `degree` requests, or replies, in a packet: each pays its part of the header.
    pub fn coalesced(&self, degree: f64) -> Self {
        let saved = self.header * (1.0 - 1.0 / degree);
        Self {
            request: self.request - saved,
            reply: self.reply - saved,
            ..*self
        }
    }

    /// A request and its reply: B_RR.
    pub fn remote(&self) -> f64 {
        self.request + self.reply
    }

    /// What a hot write sends to one other node: B_SC or B_Lin.
    pub fn hot_write(&self, model: Model) -> f64 {
        match model {
            Model::Sc => self.update,
            Model::Lin => self.update + self.invalidation + self.acknowledgement,
        }
    }
}

/// How many messages a hot write sends to or receives from one other node.
pub(crate) fn kinds(model: Model) -> f64 {
    match model {
        Model::Sc => 1.0,
        Model::Lin => 3.0,
    }
}
