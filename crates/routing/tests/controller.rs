//! The controller against switches that misbehave: strangers, silence, nonsense, refusals, and a
//! connection that is lost in the middle. The switch is a script of messages; it needs no
//! privilege.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what cannot be set up fails the test"
)]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use curtail_codec::openflow::{
    DecodedOpenFlow, FlowCommand, FlowMod, FlowStat, OpenFlowError, OpenFlowMessage as M,
    PortChange, PortDescription, encode,
};
use curtail_codec::tiered::HostId;
use curtail_routing::{
    ControllerEndpoint, Destination, Encoding, OpenFlowOptions, OpenFlowTable, PortNumber,
    Switch as _, SwitchPort,
};
use curtail_types::{
    BackEndId, CacheId, KeyAddress, KeyTag, Rule, RuleCookie, RuleError, RuleTable as _,
    SwitchEvent,
};

const DATAPATH: u64 = 7;
const TIMEOUT: Duration = Duration::from_secs(2);
const CACHE: Destination = Destination::Host(HostId(0));

fn controller() -> (OpenFlowTable, SocketAddr) {
    let port = |number| SwitchPort {
        number: PortNumber(number),
        interface: String::new(),
        mac: None,
    };
    let options = OpenFlowOptions {
        endpoint: ControllerEndpoint::ListenTcp(([127, 0, 0, 1], 0).into()),
        datapath: Some(DATAPATH),
        encoding: Encoding::Ipv6 { cluster: 1 },
        capacity: 100,
        ports: vec![port(1), port(2)],
        timeout: TIMEOUT,
    };
    let mut table = OpenFlowTable::open(options).unwrap();
    table.connect(CACHE, Some(PortNumber(1))).unwrap();
    let address = table.address().unwrap();
    (table, address)
}

fn rule(number: u64) -> Rule {
    Rule {
        key: KeyAddress {
            back_end: BackEndId(1),
            tag: KeyTag::from_bits(number),
        },
        cookie: RuleCookie {
            cache: CacheId(0),
            generation: 1,
            is_spread: false,
        },
    }
}

/// A switch that keeps flows and answers as it should, but for what its script says.
struct FakeSwitch {
    stream: TcpStream,
    inbox: Vec<u8>,
    datapath: u64,
    flows: Vec<FlowMod>,
    /// Flows that fit.
    flows_max: usize,
    /// After so many flows it hangs up.
    hangs_up_after: usize,
}

impl FakeSwitch {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self {
            stream,
            inbox: Vec::new(),
            datapath: DATAPATH,
            flows: Vec::new(),
            flows_max: usize::MAX,
            hangs_up_after: usize::MAX,
        }
    }

    /// Answers until the controller hangs up; the flows at the end.
    fn run(mut self) -> Vec<FlowMod> {
        let hello = M::Hello {
            is_compatible: true,
        };
        send(&mut self.stream, &hello, 1);
        let mut room = [0; 4096];
        loop {
            match self.stream.read(&mut room) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return self.flows,
                Ok(bytes) => self.inbox.extend_from_slice(&room[..bytes]),
            }
            while let DecodedOpenFlow::Complete {
                message,
                transaction,
                bytes,
            } = DecodedOpenFlow::of(&self.inbox.clone())
            {
                self.inbox.drain(..bytes);
                if !self.answer(&message, transaction) {
                    return self.flows;
                }
            }
        }
    }

    fn answer(&mut self, message: &M<'_>, transaction: u32) -> bool {
        let answer = match message {
            M::FeaturesRequest => M::FeaturesReply {
                datapath: self.datapath,
                tables: 254,
            },
            M::BarrierRequest => M::BarrierReply,
            M::PortsRequest => {
                // No ports: none of them is down.
                let empty = [4, 19, 0, 16, 0, 0, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0];
                let mut bytes = empty;
                bytes[4..8].copy_from_slice(&transaction.to_be_bytes());
                self.stream.write_all(&bytes).unwrap();
                return true;
            }
            M::FlowStatsRequest(selection) => {
                let its =
                    |flow: &&FlowMod| (flow.cookie ^ selection.cookie) & selection.cookie_mask == 0;
                let all: Vec<FlowMod> = self.flows.iter().filter(its).copied().collect();
                for flow in &all {
                    let flow = stat(flow);
                    let part = M::OneFlow { flow, more: true };
                    send(&mut self.stream, &part, transaction);
                }
                let mut end = [4, 19, 0, 16, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
                end[4..8].copy_from_slice(&transaction.to_be_bytes());
                self.stream.write_all(&end).unwrap();
                return true;
            }
            M::FlowMod(change) => {
                self.hangs_up_after -= 1;
                if self.hangs_up_after == 0 {
                    return false;
                }
                if change.command == FlowCommand::Add && self.flows.len() >= self.flows_max {
                    M::Error(OpenFlowError::TABLE_FULL)
                } else {
                    self.change(change);
                    return true;
                }
            }
            _ => return true,
        };
        send(&mut self.stream, &answer, transaction);
        true
    }

    fn change(&mut self, change: &FlowMod) {
        match change.command {
            FlowCommand::Add => {
                self.flows.retain(|flow| flow.matching != change.matching);
                self.flows.push(*change);
            }
            FlowCommand::DeleteStrict => self.flows.retain(|flow| flow.matching != change.matching),
            FlowCommand::Delete => {
                let mask = change.cookie_mask;
                self.flows
                    .retain(|flow| (flow.cookie ^ change.cookie) & mask != 0);
            }
        }
    }
}

fn stat(flow: &FlowMod) -> FlowStat {
    FlowStat {
        table: flow.table,
        priority: flow.priority,
        cookie: flow.cookie,
        packets: 3,
        matching: Some(flow.matching),
    }
}

fn send(stream: &mut TcpStream, message: &M<'_>, transaction: u32) {
    let mut room = [0; 512];
    let bytes = encode(message, transaction, &mut room).unwrap();
    // A controller that has hung up does not read it.
    let _ = stream.write_all(&room[..bytes]);
}

/// Polls until this is told.
fn expect(table: &mut OpenFlowTable, expected: SwitchEvent) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match table.poll() {
            Ok(Some(event)) => {
                assert_eq!(event, expected);
                return;
            }
            Ok(None) | Err(RuleError::Disconnected) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "{expected:?} was not told");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Without a switch every change says so at once, and the routes are kept for one that comes. A
/// switch that is as it should be gets them, then rules; both are read back.
#[test]
fn a_switch_that_comes_gets_the_routes() {
    let (mut table, address) = controller();
    assert_eq!(table.install(&[rule(1)]), Err(RuleError::Disconnected));
    assert_eq!(table.poll(), Err(RuleError::Disconnected));
    let switch = thread::spawn(move || FakeSwitch::new(address).run());
    expect(&mut table, SwitchEvent::Restarted);
    assert_eq!(table.datapath(), Some(DATAPATH));
    table.install(&[rule(1), rule(2)]).unwrap();
    table.delete(&[rule(1).key]).unwrap();
    let dumped = table.dump().unwrap();
    assert_eq!(dumped.len(), 1);
    assert_eq!((dumped[0].rule, dumped[0].packets), (rule(2), 3));
    let counts = table.counts().unwrap();
    assert_eq!(counts.routes.len(), 1);
    assert_eq!(counts.routes[0].destination, CACHE);
    drop(table);
    let flows = switch.join().unwrap();
    assert_eq!(flows.len(), 3, "nobody, the route, the rule: {flows:?}");
}

/// A connection that is not the switch's is refused and changes nothing: another datapath, another
/// version, nonsense, one that says nothing, one that hangs up. The switch is taken after all of
/// them.
#[test]
fn strangers_are_refused() {
    let (mut table, address) = controller();
    let first_words: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[1, 0, 0, 8, 0, 0, 0, 1],
        &[4, 0, 0, 3, 0, 0, 0, 1],
        b"",
    ];
    let mut connections = Vec::new();
    for words in first_words {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(words).unwrap();
        connections.push(stream);
    }
    drop(TcpStream::connect(address).unwrap());
    let other = thread::spawn(move || {
        let mut other = FakeSwitch::new(address);
        other.datapath = DATAPATH + 1;
        other.run()
    });
    // It is in line behind the others.
    thread::sleep(Duration::from_millis(50));
    let switch = thread::spawn(move || FakeSwitch::new(address).run());
    expect(&mut table, SwitchEvent::Restarted);
    assert_eq!(table.refused_connections(), 6);
    assert_eq!(other.join().unwrap(), [], "told nothing");
    table.install(&[rule(1)]).unwrap();
    drop(table);
    assert_eq!(switch.join().unwrap().len(), 3);
}

/// A switch that refuses flows for want of room: what fits is there, and the caller is told.
#[test]
fn a_full_switch_is_told() {
    let (mut table, address) = controller();
    let switch = thread::spawn(move || {
        let mut switch = FakeSwitch::new(address);
        switch.flows_max = 2 + 3; // nobody, the route, three rules
        switch.run()
    });
    expect(&mut table, SwitchEvent::Restarted);
    let rules: Vec<Rule> = (0..5).map(rule).collect();
    let full = Err(RuleError::Full { capacity: 100 });
    assert_eq!(table.install(&rules), full);
    assert_eq!(table.dump().unwrap().len(), 3);
    table.delete(&[rule(0).key]).unwrap();
    table.install(&[rule(4)]).unwrap();
    drop(table);
    switch.join().unwrap();
}

/// A connection that is lost in the middle of a change: the caller is told, and with the next
/// connection it reconciles; what had arrived is kept.
#[test]
fn a_lost_connection_is_reconciled() {
    let (mut table, address) = controller();
    let first = thread::spawn(move || {
        let mut switch = FakeSwitch::new(address);
        switch.hangs_up_after = 2 + 4; // the structure, the route, and the fourth rule is lost
        switch.run()
    });
    expect(&mut table, SwitchEvent::Restarted);
    let rules: Vec<Rule> = (0..10).map(rule).collect();
    assert_eq!(table.install(&rules), Err(RuleError::Disconnected));
    let flows = first.join().unwrap();
    assert_eq!(flows.len(), 2 + 3);
    let second = thread::spawn(move || {
        let mut switch = FakeSwitch::new(address);
        switch.flows = flows;
        switch.run()
    });
    expect(&mut table, SwitchEvent::Restarted);
    let done = table.replace_all(&rules).unwrap();
    assert_eq!((done.kept, done.installed, done.deleted), (3, 7, 0));
    drop(table);
    assert_eq!(second.join().unwrap().len(), 2 + 10);
}

/// A switch that stops answering is given up after the time that an answer may take.
#[test]
fn a_silent_switch_is_given_up() {
    let (mut table, address) = controller();
    let (given_up, is_given_up) = mpsc::channel();
    let switch = thread::spawn(move || {
        let mut switch = FakeSwitch::new(address);
        switch.hangs_up_after = 3;
        let _open = switch.stream.try_clone().unwrap();
        switch.run();
        is_given_up.recv_timeout(10 * TIMEOUT).is_ok()
    });
    expect(&mut table, SwitchEvent::Restarted);
    let begun = Instant::now();
    assert_eq!(table.install(&[rule(1)]), Err(RuleError::Disconnected));
    let waited = begun.elapsed();
    assert!(waited >= TIMEOUT / 2, "{waited:?}");
    given_up.send(()).unwrap();
    assert!(switch.join().unwrap(), "not before the switch hangs up");
    assert_eq!(table.poll(), Err(RuleError::Disconnected));
}

/// Ports of cache nodes that go down and come up are told once each; others are not.
#[test]
fn ports_of_caches_are_told() {
    let (mut table, address) = controller();
    table
        .connect(Destination::BackEnd(BackEndId(1)), Some(PortNumber(2)))
        .unwrap();
    let switch = thread::spawn(move || {
        let switch = FakeSwitch::new(address);
        let mut tells = switch.stream.try_clone().unwrap();
        let runs = thread::spawn(move || switch.run());
        thread::sleep(Duration::from_millis(200));
        let mut tell = |port, is_down, change| {
            let port = PortDescription { port, is_down };
            send(&mut tells, &M::PortStatus(change, port), 0);
        };
        tell(2, true, PortChange::Modified);
        tell(1, true, PortChange::Modified);
        tell(1, true, PortChange::Removed);
        tell(1, false, PortChange::Added);
        send(&mut tells, &M::EchoRequest(b"alive"), 9);
        runs.join().unwrap();
    });
    expect(&mut table, SwitchEvent::Restarted);
    expect(&mut table, SwitchEvent::CacheDown(CacheId(0)));
    expect(&mut table, SwitchEvent::CacheUp(CacheId(0)));
    thread::sleep(Duration::from_millis(50));
    assert_eq!(table.poll(), Ok(None));
    drop(table);
    switch.join().unwrap();
}

/// A controller's Unix socket is its user's alone, and goes with it.
#[test]
fn a_unix_socket_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("controller");
    let options = OpenFlowOptions {
        endpoint: ControllerEndpoint::ListenUnix(path.clone()),
        datapath: None,
        encoding: Encoding::Ipv6 { cluster: 1 },
        capacity: 1,
        ports: Vec::new(),
        timeout: TIMEOUT,
    };
    let table = OpenFlowTable::open(options).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(table);
    assert!(!path.exists());
}
