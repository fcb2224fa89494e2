//! Reads the counters of each node from the node.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::top::{
    address::Address,
    connection::Connection,
    reported_cluster::{events, member},
};

/// A node's numbers since its start, but for what it has now.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Numbers {
    /// Keys that it shares with all others, now.
    pub(super) hot_keys: u64,
    /// Reads that it answered because their key is hot.
    pub(super) hot_reads: u64,
    /// Requests that it had another node carry out.
    pub(super) relayed: u64,
    /// Requests that it carried out for another.
    pub(super) answered: u64,
    /// Keys that it sent to others because they moved.
    pub(super) keys_sent: u64,
    /// Items that were lost with nodes that died, about.
    pub(super) items_lost: u64,
    /// How long a word to each other node and back takes, in microseconds.
    pub(super) round_trips_us: BTreeMap<u64, u64>,
    /// What happened to the cluster, the last first, and how many seconds ago.
    pub(super) events: Vec<(u64, String)>,
}

impl Numbers {
    /// Asks the node that answers clients at `address`; nothing if it does not answer.
    pub(super) fn ask(address: &str) -> Option<Self> {
        let address: Address = address.parse().ok()?;
        let mut connection = Connection::open(&address, None).ok()?;
        let told = connection.ask("stats curtail").ok()??;
        let general = connection.ask("stats").ok()??;
        let now = general.number("uptime").unwrap_or(0);
        let number = |name| told.number(name).unwrap_or(0);
        Some(Self {
            hot_keys: number("cluster_hot_keys"),
            hot_reads: number("cluster_hot_reads"),
            relayed: number("cluster_relayed"),
            answered: number("cluster_answered"),
            keys_sent: number("cluster_keys_sent"),
            items_lost: number("cluster_items_lost"),
            round_trips_us: told
                .behind("cluster_member:")
                .filter_map(|(id, row)| Some((id.parse().ok()?, member((id, row))?.round_trip_us?)))
                .collect(),
            events: events(&told)
                .into_iter()
                .map(|event| (now.saturating_sub(event.at_seconds), event.what))
                .collect(),
        })
    }
}
