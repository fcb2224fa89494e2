//! What the work of a cluster costs, in a file that says where each number comes from.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::costs::CostsError;

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
        static PAPER: LazyLock<Hardware> = LazyLock::new(|| match Hardware::parse(BUILT_IN) {
            Ok(hardware) => hardware,
            Err(error) => unreachable!("cckvs-paper.toml: {error}"),
        });
        &PAPER
    }

    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Self, CostsError> {
        let own: Self =
            toml::from_str(text).map_err(|error| CostsError::Syntax(error.to_string()))?;
        own.checked()
    }

    fn checked(self) -> Result<Self, CostsError> {
        let rates = [
            ("packets_per_second", self.packets_per_second),
            ("bytes_per_second", self.bytes_per_second),
        ];
        let times = [
            ("packet_ns", self.packet_ns),
            ("item_ns", self.item_ns),
            ("wire_ns", self.wire_ns),
        ];
        let counts = [
            ("threads", self.threads),
            ("requests_per_packet", self.requests_per_packet),
            ("requests_outstanding", self.requests_outstanding),
            ("sc_credits_per_message", self.sc_credits_per_message),
            ("lin_credits_per_message", self.lin_credits_per_message),
        ];
        let rate = rates.iter().find(|(_, rate)| !(1e3..=1e12).contains(rate));
        let time = times.iter().find(|(_, ns)| !(1.0..=1e9).contains(ns));
        let count = counts.iter().find(|(_, count)| !(1..=256).contains(count));
        let name = rate.or(time).map(|(name, _)| *name);
        if let Some(name) = name.or(count.map(|(name, _)| *name)) {
            return Err(CostsError::Number(name));
        }
        // Room that is given back only when more was used than there is would stop everything.
        if self.sc_credits < self.sc_credits_per_message {
            return Err(CostsError::Number("sc_credits"));
        }
        if self.lin_credits < self.lin_credits_per_message {
            return Err(CostsError::Number("lin_credits"));
        }
        Ok(self)
    }
}

const BUILT_IN: &str = include_str!("../../../cckvs-paper.toml");
