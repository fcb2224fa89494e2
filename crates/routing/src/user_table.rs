//! A switch in user space: a thread with a UDP socket that forwards datagrams by the address in
//! their header. It needs no privilege, and is no fast path: it is for trials, tests and machines
//! where neither XDP nor a switch is to be had.
//!
//! ```text
//!   client --datagram--> forwarder --datagram--> cache node or back end
//!      ^                                                |
//!      +----------------- reply, directly --------------+
//! ```
//!
//! It forwards what it is sent by anybody, once, to the ports that its controller has connected; it
//! reads nothing but magic, version and address, and the sender's port for rules that are spread.
//! Rules are changed by this process alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use curtail_codec::tiered::{DATAGRAM_BYTES_MAX, TieredDatagram};
use curtail_runtime::lock;
use curtail_types::{CacheId, CountedRule, KeyAddress, Rule, RuleError, RuleTable, SwitchEvent};

use crate::memory_table::MemoryTable;
use crate::network::{Destination, PortNumber, Switch, SwitchCounts};

/// The thread that forwards; it ends with this value.
#[derive(Debug)]
pub struct UserForwarder {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

/// A controller's hold on a forwarder.
#[derive(Clone, Debug)]
pub struct UserTable {
    shared: Arc<Shared>,
    /// What this controller has connected, until it has called `poll`.
    connected: Option<BTreeSet<Destination>>,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    table: Mutex<MemoryTable>,
    /// Where ports lead.
    ports: Mutex<BTreeMap<PortNumber, SocketAddr>>,
    stops: AtomicBool,
}

/// Rules that are changed under one hold of the lock, so that no datagram waits long.
const RULES_AT_A_TIME: usize = 64;
/// How often the thread looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl UserForwarder {
    /// Forwards what arrives at this address from now on, with room for so many rules.
    pub fn start(address: SocketAddr, capacity: usize) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(LOOK_EVERY))?;
        let address = socket.local_addr()?;
        let shared = Arc::new(Shared {
            socket,
            table: Mutex::new(MemoryTable::new(capacity)),
            ports: Mutex::new(BTreeMap::new()),
            stops: AtomicBool::new(false),
        });
        let named = thread::Builder::new().name("forwarder".to_string());
        let its = Arc::clone(&shared);
        let thread = Some(named.spawn(move || its.run())?);
        Ok(Self {
            shared,
            address,
            thread,
        })
    }

    /// Where it receives.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where a port leads.
    pub fn add_port(&self, port: PortNumber, address: SocketAddr) {
        lock(&self.shared.ports).insert(port, address);
    }

    /// A hold on its table, for a controller.
    pub fn table(&self) -> UserTable {
        UserTable {
            shared: Arc::clone(&self.shared),
            connected: Some(BTreeSet::new()),
        }
    }

    /// Loses all rules of keys, as a switch does that restarts.
    pub fn forget(&self) {
        lock(&self.shared.table).forget();
    }
}

impl Drop for UserForwarder {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing with it.
        self.shared.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut room = [0; DATAGRAM_BYTES_MAX + 1];
        while !self.stops.load(Ordering::Relaxed) {
            match self.socket.recv_from(&mut room) {
                Ok((bytes, from)) => {
                    self.forward(room.get(..bytes).unwrap_or_default(), from.port());
                }
                Err(error) if is_passing(error.kind()) => {}
                // Whatever it is, it must not take a processor.
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }

    fn forward(&self, datagram: &[u8], sender: u16) {
        let address = TieredDatagram::address(datagram);
        let fits = datagram.len() <= DATAGRAM_BYTES_MAX;
        let mut table = lock(&self.table);
        let Some(address) = address.filter(|_| fits) else {
            table.count_unknown();
            return;
        };
        let port = table.forward(address, sender);
        drop(table);
        let to = port.and_then(|port| lock(&self.ports).get(&port).copied());
        if let Some(to) = to {
            // What cannot be sent is lost, as on any network.
            let _ = self.socket.send_to(datagram, to);
        }
    }
}

/// A time-out, or that an earlier datagram found nobody.
fn is_passing(error: io::ErrorKind) -> bool {
    use io::ErrorKind as K;
    matches!(
        error,
        K::WouldBlock | K::TimedOut | K::Interrupted | K::ConnectionRefused
    )
}

impl RuleTable for UserTable {
    fn capacity(&self) -> usize {
        lock(&self.shared.table).capacity()
    }

    fn install(&mut self, rules: &[Rule]) -> Result<(), RuleError> {
        let mut some = rules.chunks(RULES_AT_A_TIME);
        some.try_for_each(|rules| lock(&self.shared.table).install(rules))
    }

    fn delete(&mut self, keys: &[KeyAddress]) -> Result<(), RuleError> {
        let mut some = keys.chunks(RULES_AT_A_TIME);
        some.try_for_each(|keys| lock(&self.shared.table).delete(keys))
    }

    fn delete_cache(&mut self, cache: CacheId) -> Result<(), RuleError> {
        lock(&self.shared.table).delete_cache(cache)
    }

    fn spread(&mut self, caches: &[CacheId]) -> Result<(), RuleError> {
        lock(&self.shared.table).spread(caches)
    }

    fn dump(&mut self) -> Result<Vec<CountedRule>, RuleError> {
        lock(&self.shared.table).dump()
    }

    fn poll(&mut self) -> Result<Option<SwitchEvent>, RuleError> {
        let mut table = lock(&self.shared.table);
        let Some(connected) = self.connected.take() else {
            return table.poll();
        };
        for route in table.counts()?.routes {
            if !connected.contains(&route.destination) {
                table.connect(route.destination, None)?;
            }
        }
        while table.poll()?.is_some() {}
        Ok(Some(SwitchEvent::Restarted))
    }
}

impl Switch for UserTable {
    fn connect(
        &mut self,
        destination: Destination,
        port: Option<PortNumber>,
    ) -> Result<(), RuleError> {
        if let Some(connected) = &mut self.connected {
            connected.insert(destination);
        }
        lock(&self.shared.table).connect(destination, port)
    }

    fn counts(&mut self) -> Result<SwitchCounts, RuleError> {
        lock(&self.shared.table).counts()
    }
}
