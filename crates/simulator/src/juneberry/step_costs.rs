//! What each step of a datagram's way costs, and the committed table of it.
//!
//! The tables are a file in TOML, `juneberry.toml`, whose comments say of every number where it
//! comes from: stated by the paper, set so that a number of the paper is met, measured by us, or
//! an estimate. Another file can be given on the command line.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::costs::{
    CostsError, FullCosts, SizeCosts, between, built_in, check, check_times, parse,
};

/// The three sets of prices.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DatagramTable {
    /// The paper's Memcached.
    pub paper: DatagramPrices,
    /// The paper's PMemKV.
    pub pmemkv: DatagramPrices,
    /// Our own path.
    pub measured: DatagramPrices,
}

/// What each step costs, in nanoseconds unless said otherwise.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DatagramPrices {
    /// A client's sending and receiving.
    pub client_ns: f64,
    /// Giving a request to the thread that owns the connection, and being told.
    pub delegation_ns: f64,
    /// Client to server and back, without either's software.
    pub wire_ns: f64,
    /// Each byte on the wire.
    pub byte_ns: f64,
    /// A request's bytes before its key.
    pub header_bytes: u32,
    /// The card's time for a packet.
    pub card_ns: f64,
    /// The card's time for each byte.
    pub card_byte_ns: f64,
    /// The card's time to fetch a descriptor.
    pub descriptor_ns: f64,
    /// The least time between two descriptors of one queue.
    pub descriptor_queue_ns: f64,
    /// The card's time to fetch a connection's state.
    pub connection_ns: f64,
    /// Connections whose state the card keeps.
    pub connections_cached: f64,
    /// The card's time to make a write durable.
    pub flush_card_ns: f64,
    /// Giving a write its place in the queue, where a packet is received.
    pub admit_ns: f64,
    /// The same, for each byte.
    pub admit_byte_ns: f64,
    /// Cards, or cores that receive, between which connections are divided.
    pub rx_cores: u16,
    /// Receiving a request in a worker or an input thread.
    pub receive_ns: f64,
    /// Sending an answer from there.
    pub reply_ns: f64,
    /// Taking an entry from the queue.
    pub take_ns: f64,
    /// Giving a write its place in the queue, in an input thread.
    pub reserve_ns: f64,
    /// Answering a read from the queue.
    pub forward_ns: f64,
    /// Input threads of IoAck.
    pub io_threads: u16,
    /// What eRPC costs beyond that, a request.
    pub erpc_ns: f64,
    /// Execution of a read, by bytes of value; our own store's if there is none.
    #[serde(default)]
    pub get: Vec<(f64, f64)>,
    /// Execution of a write, by bytes of value; our own store's if there is none.
    #[serde(default)]
    pub set: Vec<(f64, f64)>,
    /// Work beside the store.
    #[serde(default)]
    pub work_ns: f64,
    /// By how much of its mean an execution is shorter or longer, 0 to 1.
    pub spread: f64,
    /// What a sender waits that finds no buffer ready.
    pub not_ready_ns: u64,
    /// What a sender waits for an answer.
    pub resend_ns: u64,
    /// Persistent memory, where there is any.
    #[serde(default)]
    pub persistent: Option<PersistentCosts>,
}

/// Persistent memory behind a store and behind receive buffers.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PersistentCosts {
    /// Each byte written.
    pub byte_ns: f64,
    /// Bytes that the store writes for a byte of an object.
    pub amplification: f64,
    /// What an answer that was executed comes later if the buffers are persistent.
    pub fetch_ns: f64,
    /// What of that a worker spends.
    pub fetch_worker_ns: f64,
    /// What a worker spends on a write beside it.
    pub put_worker_ns: f64,
    /// What an acknowledgement comes later that waits for the write to be flushed.
    pub flush_ns: f64,
}

impl DatagramTable {
    /// The built-in one.
    pub fn built_in() -> &'static Self {
        static TABLE: LazyLock<DatagramTable> =
            LazyLock::new(|| built_in(DatagramTable::parse(BUILT_IN)));
        &TABLE
    }

    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Self, CostsError> {
        let mut table = parse(text, Self::check)?;
        for prices in [&mut table.paper, &mut table.pmemkv, &mut table.measured] {
            let ours = FullCosts::measured();
            fill(&mut prices.get, &ours.get, ours.request.base_ns);
            fill(&mut prices.set, &ours.set, ours.request.base_ns);
        }
        Ok(table)
    }

    fn check(&self) -> Result<(), CostsError> {
        check_times(self)?;
        [&self.paper, &self.pmemkv, &self.measured]
            .into_iter()
            .try_for_each(|prices| {
                check("spread", prices.spread <= 1.0)?;
                check("rx_cores", prices.rx_cores > 0)?;
                check("io_threads", prices.io_threads > 0)
            })
    }
}

/// Our store's curve, with what is done around it for a request in a full turn.
fn fill(own: &mut Vec<(f64, f64)>, store: &SizeCosts, around_ns: f64) {
    if own.is_empty() {
        let points = store.points.iter();
        own.extend(points.map(|(bytes, ns)| (*bytes, ns + around_ns)));
    }
}

impl DatagramPrices {
    /// Nothing but a round trip and executions costs anything: the example of section 4.
    pub fn bare(wire_ns: f64, get_ns: f64, set_ns: f64) -> Self {
        Self {
            wire_ns,
            rx_cores: 1,
            forward_ns: get_ns,
            io_threads: 1,
            get: vec![(8.0, get_ns)],
            set: vec![(8.0, set_ns)],
            ..Self::default()
        }
    }

    /// Mean time of executing a request for a value of so many bytes.
    pub fn execution_ns(&self, write: bool, value_bytes: u32) -> f64 {
        let points = if write { &self.set } else { &self.get };
        between(points, u64::from(value_bytes)) + self.work_ns
    }

    /// Mean time of a worker for a request that it receives, executes and answers.
    pub fn rpc_ns(&self, write: bool, value_bytes: u32) -> f64 {
        self.receive_ns + self.execution_ns(write, value_bytes) + self.reply_ns
    }

    /// The card's time for a packet of so many bytes, if `connections` come by it and a buffer
    /// takes `requests_per_buffer`.
    pub fn card_packet_ns(&self, bytes: u32, connections: f64, requests_per_buffer: f64) -> f64 {
        let uncached = (1.0 - self.connections_cached / connections.max(1.0)).max(0.0);
        self.card_ns
            + f64::from(bytes) * self.card_byte_ns
            + self.descriptor_ns / requests_per_buffer
            + self.connection_ns * uncached
    }
}

const BUILT_IN: &str = include_str!("../../juneberry.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_whole() {
        let table = DatagramTable::built_in();
        assert!(table.pmemkv.persistent.is_some() && table.paper.persistent.is_none());
        assert!(table.measured.execution_ns(true, 64) > table.measured.work_ns);
        assert_eq!(table.paper.execution_ns(false, 8), 2_900.0);
    }

    /// Goal: nonsense is told. Method: the built-in file with one line changed.
    #[test]
    fn what_is_no_price_is_refused() {
        for (from, to) in [
            ("wire_ns = 2000", "wire_ns = -1"),
            ("io_threads = 2", "io_threads = 0"),
            ("spread = 0.5", "spread = 1.5"),
            ("get = [[8, 2900], [1024, 3000]]", "get = [[8, 1], [8, 2]]"),
        ] {
            assert!(BUILT_IN.contains(from), "{from}");
            let parsed = DatagramTable::parse(&BUILT_IN.replacen(from, to, 1));
            assert!(matches!(parsed, Err(CostsError::Number(_))), "{to}");
        }
        let unknown = BUILT_IN.replacen("\nspread", "\nspred", 1);
        let parsed = DatagramTable::parse(&unknown);
        assert!(matches!(parsed, Err(CostsError::Syntax(_))));
    }
}
