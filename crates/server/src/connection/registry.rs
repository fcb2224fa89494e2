//! The registry of open connections: `stats conns` reads it without asking their workers.
//!
//! Each connection belongs to one worker, which alone touches its socket. What `stats conns` shows
//! of it lies here: addresses that never change, and two words that the worker stores as it goes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use curtail_runtime::PeerAddress;

use crate::sync::{AtomicU8, AtomicU32, Relaxed, lock};

/// What a connection is doing; named as memcached names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum ConnectionState {
    /// Waiting for a request.
    Read,
    /// A request is being carried out.
    Parse,
    /// The value of a write is on its way.
    Receive,
    /// The client has not taken its replies yet.
    Send,
    /// Waiting for new connections.
    Listen,
}

/// One connection or listener.
#[derive(Debug)]
pub(crate) struct Visible {
    /// The descriptor's number.
    pub(crate) number: i32,
    /// The peer, or for a listener and a Unix socket where it listens.
    pub(crate) address: String,
    /// The listener that accepted it; none for a listener.
    pub(crate) listener: Option<Arc<str>>,
    state: AtomicU8,
    last_command_seconds: AtomicU32,
}

/// All connections and listeners of the server, by descriptor. An entry leaves before its socket is
/// closed, so that no two have one number.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    entries: Mutex<BTreeMap<i32, Arc<Visible>>>,
}

impl Visible {
    pub(crate) fn listener(number: i32, address: Arc<str>, unix_seconds: u32) -> Self {
        Self {
            number,
            address: address.to_string(),
            listener: None,
            state: AtomicU8::new(ConnectionState::Listen as u8),
            last_command_seconds: AtomicU32::new(unix_seconds),
        }
    }

    pub(crate) fn connection(
        number: i32,
        peer: PeerAddress,
        listener: Arc<str>,
        unix_seconds: u32,
    ) -> Self {
        let address = match peer {
            PeerAddress::Tcp(address) => format!("tcp:{address}"),
            // The peer of a Unix socket has no name: memcached shows the path here too.
            PeerAddress::Unix => listener.to_string(),
        };
        Self {
            number,
            address,
            listener: Some(listener),
            state: AtomicU8::new(ConnectionState::Read as u8),
            last_command_seconds: AtomicU32::new(unix_seconds),
        }
    }

    /// The peer's address and port, and the transport, as log lines name them.
    pub(crate) fn endpoint(&self) -> (&str, &str, &'static str) {
        let tcp = self.address.strip_prefix("tcp:");
        match tcp.and_then(|address| address.rsplit_once(':')) {
            Some((address, port)) => (address.trim_matches(['[', ']']), port, "tcp"),
            None => ("unix", "0", "local"),
        }
    }

    pub(crate) fn show(&self, state: ConnectionState) {
        self.state.store(state as u8, Relaxed);
    }

    /// Notes that a command arrived at `unix_seconds`.
    pub(crate) fn touch(&self, unix_seconds: u32) {
        self.last_command_seconds.store(unix_seconds, Relaxed);
    }

    /// When the last command arrived, in Unix seconds.
    pub(crate) fn last_command_seconds(&self) -> u32 {
        self.last_command_seconds.load(Relaxed)
    }

    /// The state as `stats conns` spells it.
    pub(crate) fn state_text(&self) -> &'static str {
        let state = self.state.load(Relaxed);
        [
            (ConnectionState::Read, "conn_read"),
            (ConnectionState::Parse, "conn_parse_cmd"),
            (ConnectionState::Receive, "conn_nread"),
            (ConnectionState::Send, "conn_mwrite"),
            (ConnectionState::Listen, "conn_listening"),
        ]
        .iter()
        .find(|(named, _)| *named as u8 == state)
        .map_or("conn_read", |(_, text)| text)
    }
}

impl Registry {
    pub(crate) fn add(&self, visible: &Arc<Visible>) {
        lock(&self.entries).insert(visible.number, Arc::clone(visible));
    }

    pub(crate) fn remove(&self, visible: &Visible) {
        lock(&self.entries).remove(&visible.number);
    }

    /// Everything that is open, by descriptor.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Visible>> {
        lock(&self.entries).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_appear_by_descriptor_and_leave() {
        let registry = Registry::default();
        let listener: Arc<str> = "unix:/tmp/x".into();
        let nine = Arc::new(Visible::connection(
            9,
            PeerAddress::Unix,
            Arc::clone(&listener),
            5,
        ));
        let eight = Arc::new(Visible::listener(8, listener, 5));
        registry.add(&nine);
        registry.add(&eight);
        nine.show(ConnectionState::Receive);
        let numbers: Vec<i32> = registry
            .snapshot()
            .iter()
            .map(|entry| entry.number)
            .collect();
        assert_eq!(numbers, [8, 9]);
        assert_eq!(nine.state_text(), "conn_nread");
        assert_eq!(nine.address, "unix:/tmp/x");
        registry.remove(&eight);
        assert_eq!(registry.snapshot().len(), 1);
    }
}
