//! A tier's network for tests: a switch of some kind, and machines at its ports with plain sockets.
//!
//! ```text
//!   port 1: client     2, 3: cache nodes 0 and 1     4, 5, 6: back ends 0, 1 and 2
//! ```
//!
//! In memory there are no packets; with the forwarder the machines are sockets on loopback; with
//! XDP and Open vSwitch every machine is a network namespace, joined to the switch's by a veth
//! (SW-83).

pub(crate) mod machine;
pub(crate) mod topology;

use std::thread;
use std::time::{Duration, Instant};

use curtail_codec::tiered::{HostId, TierAddress, TieredDatagram, TieredHead, TieredOpcode};
use curtail_routing::{
    ControllerEndpoint, Destination, Encoding, MemoryTable, OpenFlowOptions, OpenFlowTable,
    OpenVswitch, OpenVswitchOptions, PortNumber, PortType, Switch, SwitchPort, UserForwarder,
    XdpTable, XdpTableOptions,
};
use curtail_runtime::{Attach, XdpError};
use curtail_types::{
    BackEndId, CacheId, Key, KeyAddress, KeyTag, Rule, RuleCookie, RuleError, SwitchEvent,
};

use machine::Machine;
use topology::Topology;

pub(crate) const CLIENT: usize = 0;
pub(crate) const CACHES: [usize; 2] = [1, 2];
pub(crate) const BACK_ENDS: [usize; 3] = [3, 4, 5];
pub(crate) const MACHINES: usize = 6;
/// The number of the client's host.
pub(crate) const CLIENT_HOST: HostId = HostId(0x1000);
/// Where all machines receive.
pub(crate) const PORT: u16 = 11_411;
/// Longer than any switch takes to do what it was told (SW-86).
pub(crate) const LAG_MAX: Duration = Duration::from_secs(20);

/// What forwards.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Memory,
    User,
    Xdp(Encoding),
    /// The program runs in the driver.
    XdpDriver(Encoding),
    OpenVswitch(Encoding),
}

pub(crate) const IPV6: Encoding = Encoding::Ipv6 {
    cluster: 0x0001_0002,
};
pub(crate) const MAC: Encoding = Encoding::Mac { network: [10, 77] };

/// The network.
pub(crate) struct Testbed {
    pub(crate) kind: Kind,
    /// Taken out while no controller is there.
    switch: Option<Box<dyn Switch>>,
    /// None in memory.
    pub(crate) machines: Vec<Machine>,
    capacity: usize,
    forwarder: Option<UserForwarder>,
    pub(crate) daemons: Option<OpenVswitch>,
    pub(crate) topology: Option<Topology>,
}

impl Testbed {
    /// `None`, said aloud, where tests of this kind are skipped; fails where it should be possible.
    pub(crate) fn new(kind: Kind, capacity: usize) -> Option<Self> {
        Self::with_limit(kind, capacity, None)
    }

    /// The same with an Open vSwitch that takes so many flows in its table of keys.
    pub(crate) fn with_limit(kind: Kind, capacity: usize, flows_max: Option<u32>) -> Option<Self> {
        let mut bed = Self {
            kind,
            switch: None,
            machines: Vec::new(),
            capacity,
            forwarder: None,
            daemons: None,
            topology: None,
        };
        match kind {
            Kind::Memory => bed.switch = Some(Box::new(MemoryTable::new(capacity))),
            Kind::User => bed.start_forwarder(),
            Kind::Xdp(encoding) | Kind::XdpDriver(encoding) => {
                bed.topology = Some(Topology::make(encoding)?);
                bed.machines = bed.topology.as_ref().unwrap().machines(encoding);
            }
            Kind::OpenVswitch(encoding) => {
                let topology = Topology::make(encoding)?;
                bed.machines = topology.machines(encoding);
                bed.daemons = Some(start_daemons(&topology, encoding, flows_max));
                bed.topology = Some(topology);
            }
        }
        bed.take_control();
        Some(bed)
    }

    fn start_forwarder(&mut self) {
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let forwarder = UserForwarder::start(any, self.capacity).unwrap();
        for at in 0..MACHINES {
            let machine = Machine::on_loopback(at, forwarder.address());
            forwarder.add_port(port(at), machine.address());
            self.machines.push(machine);
        }
        self.forwarder = Some(forwarder);
    }

    pub(crate) fn encoding(&self) -> Encoding {
        match self.kind {
            Kind::Xdp(encoding) | Kind::XdpDriver(encoding) => encoding,
            Kind::OpenVswitch(encoding) => encoding,
            _ => IPV6,
        }
    }

    /// A controller begins: it connects all machines, and sees that the switch has just been found.
    pub(crate) fn take_control(&mut self) {
        let switch: Box<dyn Switch> = match self.kind {
            Kind::Memory => self.switch.take().unwrap(),
            Kind::User => Box::new(self.forwarder.as_ref().unwrap().table()),
            Kind::Xdp(encoding) | Kind::XdpDriver(encoding) => {
                let topology = self.topology.as_ref().unwrap();
                let options = XdpTableOptions {
                    encoding,
                    capacity: self.capacity as u32,
                    ports: topology.ports(),
                    attach: match self.kind {
                        Kind::XdpDriver(_) => Attach::Native,
                        _ => Attach::Any,
                    },
                    pins: Some(topology.pins().join("switch")),
                };
                Box::new(start_xdp(&options).unwrap_or_else(|error| {
                    panic!("{error}; CURTAIL_WITHOUT_XDP=1 skips what needs the program")
                }))
            }
            Kind::OpenVswitch(encoding) => {
                let topology = self.topology.as_ref().unwrap();
                let options = OpenFlowOptions {
                    endpoint: match calls_controller(encoding) {
                        true => ControllerEndpoint::ListenUnix(OpenVswitch::controller_socket(
                            &topology.directory().join("ovs"),
                        )),
                        false => ControllerEndpoint::ConnectUnix(
                            self.daemons.as_ref().unwrap().management_socket(),
                        ),
                    },
                    datapath: Some(DATAPATH),
                    encoding,
                    capacity: self.capacity,
                    ports: topology.ports(),
                    timeout: Duration::from_secs(5),
                };
                Box::new(OpenFlowTable::open(options).unwrap())
            }
        };
        self.switch = Some(switch);
        for at in 0..MACHINES {
            let destination = destination(at);
            self.switch().connect(destination, Some(port(at))).unwrap();
        }
        self.expect_event(SwitchEvent::Restarted);
    }

    /// The controller is gone; the switch goes on.
    pub(crate) fn lose_control(&mut self) {
        if self.kind != Kind::Memory {
            self.switch = None;
        }
    }

    /// The switch loses its rules, as if it had been replaced.
    pub(crate) fn forget(&mut self) {
        match self.kind {
            Kind::Memory => {
                let mut table = MemoryTable::new(self.capacity);
                for at in 0..MACHINES {
                    table.connect(destination(at), Some(port(at))).unwrap();
                }
                self.switch = Some(Box::new(table));
            }
            Kind::User => self.forwarder.as_ref().unwrap().forget(),
            Kind::Xdp(_) | Kind::XdpDriver(_) => {
                // The pins are gone after a reboot; the new program finds nothing.
                self.switch = None;
                let pins = self.topology.as_ref().unwrap().pins().join("switch");
                for entry in std::fs::read_dir(&pins).unwrap() {
                    std::fs::remove_file(entry.unwrap().path()).unwrap();
                }
                self.take_control();
                return;
            }
            Kind::OpenVswitch(_) => {
                let daemons = self.daemons.as_mut().unwrap();
                let topology = self.topology.as_ref().unwrap();
                topology.at_switch(|| daemons.restart()).unwrap();
            }
        }
        self.expect_event(SwitchEvent::Restarted);
    }

    pub(crate) fn switch(&mut self) -> &mut dyn Switch {
        self.switch.as_deref_mut().unwrap()
    }

    /// Waits until the switch tells this, and no other thing after it.
    pub(crate) fn expect_event(&mut self, expected: SwitchEvent) {
        let deadline = Instant::now() + LAG_MAX;
        loop {
            match self.switch().poll() {
                Ok(Some(event)) => {
                    assert_eq!(event, expected);
                    return;
                }
                Ok(None) | Err(RuleError::Disconnected) => {}
                Err(error) => panic!("{error}"),
            }
            assert!(Instant::now() < deadline, "{expected:?} was not told");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a datagram from a machine; who receives it first, and what. `None` if nobody does
    /// within `patience`.
    pub(crate) fn send(
        &mut self,
        from: usize,
        datagram: &[u8],
        patience: Duration,
    ) -> Option<(usize, Vec<u8>)> {
        let address = TieredDatagram::address(datagram).unwrap();
        if self.kind == Kind::Memory {
            let port = memory(self.switch(), address, PORT)?;
            return Some((port.0 as usize - 1, datagram.to_vec()));
        }
        while self.receive().is_some() {} // what came late
        let from = &self.machines[from];
        from.send(address, datagram);
        let deadline = Instant::now() + patience;
        loop {
            match self.receive() {
                // One that was sent before may come late.
                Some((at, received)) if received == datagram => return Some((at, received)),
                Some(_) => continue,
                None => {}
            }
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// The same until somebody receives it: Open vSwitch drops a packet now and then.
    pub(crate) fn deliver(&mut self, from: usize, datagram: &[u8]) -> (usize, Vec<u8>) {
        let mut tries = (0..5).map(|_| self.send(from, datagram, Duration::from_secs(2)));
        tries.find_map(|received| received).expect("it arrives")
    }

    /// The UDP port that the client sends from.
    pub(crate) fn client_port(&self) -> u16 {
        let client = self.machines.get(CLIENT);
        client.map_or(PORT, Machine::port)
    }

    /// The next datagram at any machine, if there is one.
    pub(crate) fn receive(&mut self) -> Option<(usize, Vec<u8>)> {
        let mut all = self.machines.iter().enumerate();
        all.find_map(|(at, machine)| Some((at, machine.receive()?)))
    }

    /// Whether a datagram of the client's reaches this machine, at last: switches may lag.
    pub(crate) fn expect(&mut self, datagram: &[u8], expected: usize) {
        self.expect_from(CLIENT, datagram, expected);
    }

    pub(crate) fn expect_from(&mut self, from: usize, datagram: &[u8], expected: usize) {
        let deadline = Instant::now() + LAG_MAX;
        loop {
            let received = self.send(from, datagram, Duration::from_millis(500));
            let to = received.as_ref().map(|(at, _)| *at);
            if to == Some(expected) {
                return;
            }
            assert!(Instant::now() < deadline, "{to:?} got it, not {expected}");
        }
    }

    /// Whether nobody gets the datagram, and the switch counts it.
    pub(crate) fn expect_nobody(&mut self, datagram: &[u8]) {
        let before = self.switch().counts().unwrap().unknown;
        let received = self.send(CLIENT, datagram, Duration::from_millis(100));
        assert_eq!(received, None);
        self.eventually("the datagram is counted", |bed| {
            bed.switch().counts().unwrap().unknown > before
        });
    }

    /// Waits until something is so: counters of switches may lag as well.
    pub(crate) fn eventually(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + LAG_MAX;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "not so: {what}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) const fn has_links(&self) -> bool {
        !matches!(self.kind, Kind::Memory | Kind::User)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // The switch lets go of its interfaces before they end.
        self.switch = None;
        self.daemons = None;
    }
}

/// The table in memory has no packets: asks it where one would go.
fn memory(switch: &mut dyn Switch, address: TierAddress, from: u16) -> Option<PortNumber> {
    let switch: &mut dyn std::any::Any = switch;
    switch
        .downcast_mut::<MemoryTable>()
        .unwrap()
        .forward(address, from)
}

/// Starts the XDP switch after another of this process has ended. A process that another test forks
/// has its lock until it runs its program, so that the lock may be free a moment later.
pub(crate) fn start_xdp(options: &XdpTableOptions) -> Result<XdpTable, XdpError> {
    let deadline = Instant::now() + LAG_MAX;
    loop {
        match XdpTable::start(options) {
            Err(XdpError::InUse { .. }) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            started => return started,
        }
    }
}

/// The private Open vSwitch of a topology.
pub(crate) fn start_daemons(
    topology: &Topology,
    encoding: Encoding,
    flows_max: Option<u32>,
) -> OpenVswitch {
    assert!(
        OpenVswitch::is_installed(),
        "Open vSwitch is missing: `cargo xtask test packages` installs openvswitch-switch"
    );
    let options = OpenVswitchOptions {
        directory: topology.directory().join("ovs"),
        ports: topology.ports(),
        port_type: PortType::System,
        encoding,
        datapath: DATAPATH,
        calls_controller: calls_controller(encoding),
        flows_max,
        ends_with_thread: false,
    };
    topology.at_switch(|| OpenVswitch::start(options)).unwrap()
}

/// Whether the switch connects to its controller; with encoding `ipv6` the controller connects, so
/// that both ways are tested.
fn calls_controller(encoding: Encoding) -> bool {
    encoding == MAC
}

pub(crate) const DATAPATH: u64 = 0x00c0_ffee;

/// The port that a machine is at.
pub(crate) fn port(machine: usize) -> PortNumber {
    PortNumber(machine as u32 + 1)
}

/// What a machine is to the switch.
pub(crate) fn destination(machine: usize) -> Destination {
    match machine {
        CLIENT => Destination::Host(CLIENT_HOST),
        1 | 2 => Destination::Host(HostId(machine as u32 - 1)),
        _ => Destination::BackEnd(back_end(machine)),
    }
}

pub(crate) fn back_end(machine: usize) -> BackEndId {
    BackEndId(machine as u16 - BACK_ENDS[0] as u16)
}

/// The ports of the switch in a network of namespaces.
pub(crate) fn switch_port(machine: usize, mac: Option<[u8; 6]>) -> SwitchPort {
    SwitchPort {
        number: port(machine),
        interface: format!("port{}", port(machine).0),
        mac,
    }
}

/// Key number `number` of a back end.
pub(crate) fn key(machine: usize, number: u64) -> KeyAddress {
    KeyAddress {
        back_end: back_end(machine),
        tag: KeyTag::from_bits(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24),
    }
}

pub(crate) fn rule(key: KeyAddress, cache: u8, generation: u32) -> Rule {
    let cache = CacheId(cache);
    let cookie = RuleCookie {
        cache,
        generation,
        is_spread: false,
    };
    Rule { key, cookie }
}

/// A datagram of a client.
pub(crate) fn request(opcode: TieredOpcode, address: TierAddress) -> Vec<u8> {
    let head = TieredHead {
        sender: CLIENT_HOST.0,
        sequence: 1,
        ..TieredHead::new(opcode, address)
    };
    encoded(head, b"key", None)
}

pub(crate) fn encoded(
    head: TieredHead,
    key: &[u8],
    secret: Option<&curtail_codec::tiered::TierSecret>,
) -> Vec<u8> {
    let datagram = TieredDatagram {
        head,
        key: Key::new(key).ok(),
        value: b"",
    };
    let mut out = [0; curtail_codec::tiered::DATAGRAM_BYTES_MAX];
    let bytes = datagram.encode(&mut out, secret).unwrap();
    out[..bytes].to_vec()
}

/// A client's first `get` of a key.
pub(crate) fn get(key: KeyAddress) -> Vec<u8> {
    request(TieredOpcode::Get, TierAddress::get(key))
}

/// A client's `put`.
pub(crate) fn put(key: KeyAddress) -> Vec<u8> {
    request(TieredOpcode::Put, TierAddress::back_end(key))
}
