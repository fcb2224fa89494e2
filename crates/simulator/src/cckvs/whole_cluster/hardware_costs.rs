//! What the work of a cluster costs, in a file that says where each number comes from.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::costs::{CostsError, built_in, check, parse};

/// The nodes and the network between them.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Request threads of a node, and as many store threads.
    pub threads: u16,
    /// What the switch passes from a node, and to it.
    pub packets_per_second: f64,
    /// What a node's link carries in each direction.
    pub bytes_per_second: f64,
    /// A packet received and one sent, in nanoseconds of a thread.
    pub packet_ns: f64,
    /// An item looked up in a cache or the store, or written there.
    pub item_ns: f64,
    /// Requests, or replies, that a packet holds where they share packets.
    pub requests_per_packet: u16,
    /// From port to port.
    pub wire_ns: f64,
    /// Requests under way from a request thread to a node.
    pub requests_outstanding: u16,
    /// Updates under way from a request thread to a node (SC).
    pub sc_credits: u16,
    /// Updates after which their receiver gives room for as many.
    pub sc_credits_per_message: u16,
    /// Messages of each class under way from a request thread to a node (Lin).
    pub lin_credits: u16,
    /// Messages of a class after which their receiver gives room for as many.
    pub lin_credits_per_message: u16,
}

impl Hardware {
    /// The paper's.
    pub fn paper() -> &'static Self {
        static PAPER: LazyLock<Hardware> =
            LazyLock::new(|| built_in(Hardware::parse(include_str!("../../../cckvs-paper.toml"))));
        &PAPER
    }

    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Self, CostsError> {
        parse(text, Self::check)
    }

    fn check(&self) -> Result<(), CostsError> {
        let (rate, time, count) = (1e3..=1e12, 1.0..=1e9, 1.0..=256.0);
        let (sc, lin) = (self.sc_credits_per_message, self.lin_credits_per_message);
        let (together, outstanding) = (self.requests_per_packet, self.requests_outstanding);
        let ranges = [
            ("packets_per_second", self.packets_per_second, &rate),
            ("bytes_per_second", self.bytes_per_second, &rate),
            ("packet_ns", self.packet_ns, &time),
            ("item_ns", self.item_ns, &time),
            ("wire_ns", self.wire_ns, &time),
            ("threads", self.threads.into(), &count),
            ("requests_per_packet", together.into(), &count),
            ("requests_outstanding", outstanding.into(), &count),
            ("sc_credits_per_message", sc.into(), &count),
            ("lin_credits_per_message", lin.into(), &count),
        ];
        for (name, number, range) in ranges {
            check(name, range.contains(&number))?;
        }
        // Room that is given back only when more was used than there is would stop everything.
        check("sc_credits", self.sc_credits >= sc)?;
        check("lin_credits", self.lin_credits >= lin)
    }
}
