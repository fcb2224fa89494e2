//! Attackers on the network of a server whose program acknowledges: forged sources, replayed,
//! truncated and damaged datagrams, and floods. Two clients count and read meanwhile, and find each
//! of their counts exact and no value that is not theirs.
//!
//! ```text
//!   victim    counts, writes, reads; publishes its datagrams once they are answered
//!   replayer  sends published datagrams again, from the victim's address and port
//!   forger    the victim's address and session with other tokens and higher sequence numbers
//!   thief     the victim's session with its token, from another address
//!   mangler   published datagrams cut, lengthened, in fragments or with a bit changed
//!   flooder   a session of its own that never waits; beside it random bytes
//! ```

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket},
    os::fd::OwnedFd,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use curtail_codec::native::{Head, Opcode, Reply, Request, Status};
use curtail_runtime::Attach;
use curtail_server::{Config, Fault, NativeMode, Server};
use curtail_testing::{
    Client as Memcached, PATIENCE, native_address, native_config, start, together,
};
use curtail_workload::Random;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

use crate::{
    support::{Answer, Ask, Client, RESEND, socket_at},
    veth::{CLIENTS, INTERFACE, Veth, in_a_thread},
    xdp_network::Network,
};

/// How long they attack.
const ATTACK: Duration = Duration::from_secs(4);

/// Between an attacker's bursts of 8 datagrams, and of 64 of the flood: all on this machine share a
/// few processors, and the victims are not to lose theirs.
const PAUSE: Duration = Duration::from_millis(1);

/// What of a datagram's headers is not as it should be.
#[derive(Clone, Copy, Default)]
struct Headers {
    /// Added to the length in the UDP header.
    udp_length: i16,
    /// Flags and offset of a fragment.
    fragment: u16,
}

/// A socket that sends from any address.
struct Forger(OwnedFd);

impl Forger {
    fn new() -> Self {
        let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW));
        Self(raw.unwrap())
    }

    /// The kernel writes length and checksum of the IP header.
    fn send(&self, from: SocketAddrV4, to: SocketAddrV4, headers: Headers, payload: &[u8]) {
        let udp_bytes = (payload.len() as i16 + 8 + headers.udp_length) as u16;
        let mut packet = vec![0x45, 0, 0, 0, 0, 0];
        packet.extend(headers.fragment.to_be_bytes());
        packet.extend([64, 17, 0, 0]);
        packet.extend(from.ip().octets());
        packet.extend(to.ip().octets());
        packet.extend(from.port().to_be_bytes());
        packet.extend(to.port().to_be_bytes());
        packet.extend(udp_bytes.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(payload);
        // What the kernel has no room for is not sent.
        let _ = sendto(&self.0, &packet, SendFlags::empty(), &to);
    }
}

/// What the attackers know, and do to whom.
struct Attack {
    to: SocketAddrV4,
    /// Answered datagrams of the victims, with their sources.
    published: Mutex<Vec<(SocketAddrV4, Vec<u8>)>>,
    is_over: AtomicBool,
    /// Attackers' datagrams that were answered to the attackers.
    refused: AtomicU64,
}

/// How a victim fared.
#[derive(Debug, Default)]
struct Fared {
    rounds: u64,
    /// Answers that were not those that were waited for.
    surplus: u64,
    /// Counts and values that were not the victim's.
    wrong: u64,
}

struct Victim<'a> {
    attack: &'a Attack,
    client: Client,
    own: SocketAddrV4,
    fared: Fared,
}

impl Victim<'_> {
    /// Asks until it is answered, and publishes the datagram then.
    fn ask(&mut self, slot: u8, ask: Ask<'_>) -> Answer {
        let bytes = self.client.bytes(slot, ask);
        let answer = self.exchange(&bytes);
        let mut published = self.attack.published.lock().unwrap();
        published.push((self.own, bytes));
        answer
    }

    fn exchange(&mut self, bytes: &[u8]) -> Answer {
        let head = Head::decode(bytes).unwrap();
        let started = Instant::now();
        loop {
            self.client.socket.send_to(bytes, self.client.to).unwrap();
            let sent = Instant::now();
            // Answers to what others send in its name come all the time.
            while sent.elapsed() < RESEND {
                let Some(answer) = self.client.receive() else {
                    break;
                };
                if answer.slot_and_sequence() != (head.slot, head.sequence) {
                    self.fared.surplus += 1;
                } else if answer.nack().is_none() {
                    return answer;
                }
            }
            assert!(started.elapsed() < PATIENCE, "no answer");
        }
    }

    /// Counts, writes and reads until the attack is over; what it was to count to.
    fn live(&mut self, number: usize) -> u64 {
        let (counter, own) = (format!("n{number}"), format!("own{number}"));
        let count = Ask::new(Opcode::Increment, counter.as_bytes()).argument(1);
        self.ask(0, Ask::set(counter.as_bytes(), b"0"));
        let mut expected = 0;
        while !self.attack.is_over.load(Ordering::Relaxed) {
            self.ask(1, count.nilext()).accepted();
            let Reply::Result { number: found, .. } = self.ask(2, count).reply() else {
                panic!("no count");
            };
            expected += 2;
            self.fared.wrong += u64::from(found != expected);
            let value = expected.to_string();
            self.ask(3, Ask::set(own.as_bytes(), value.as_bytes()).nilext());
            let (status, found) = self.ask(4, Ask::get(own.as_bytes())).result();
            let is_own = status == Status::Value && found == value.as_bytes();
            self.fared.wrong += u64::from(!is_own);
            self.fared.rounds += 1;
        }
        expected
    }
}

impl Attack {
    /// A datagram of a victim, not always the newest.
    fn stolen(&self, random: &mut Random) -> Option<(SocketAddrV4, Vec<u8>)> {
        let published = self.published.lock().unwrap();
        let count = published.len() as u64;
        let latest = (count > 0).then(|| random.below(count.min(40)))?;
        published.get((count - 1 - latest) as usize).cloned()
    }

    /// Has an attacker act, with what it stole, until the attack is over.
    fn act(&self, seed: u64, mut act: impl FnMut(&mut Random, SocketAddrV4, &[u8])) {
        let mut random = Random::new(seed);
        while !self.is_over.load(Ordering::Relaxed) {
            for _ in 0..8 {
                if let Some((from, bytes)) = self.stolen(&mut random) {
                    act(&mut random, from, &bytes);
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn replay(&self) {
        let forger = Forger::new();
        self.act(1, |_, from, bytes| {
            forger.send(from, self.to, Headers::default(), bytes);
        });
    }

    /// Guesses tokens of a victim's session.
    fn forge(&self) {
        let forger = Forger::new();
        self.act(2, |random, from, bytes| {
            let mut session = Head::decode(bytes).unwrap().session;
            session.token ^= 1 << random.below(64);
            let forged = theirs(random).bytes(session, 1, FAR_AHEAD + random.below(1000));
            forger.send(from, self.to, Headers::default(), &forged);
        });
    }

    /// Uses a victim's session, token and all, from another address or port.
    fn steal(&self) {
        let sockets = CLIENTS.map(|address| socket_at(SocketAddr::from((address, 0))));
        for socket in &sockets {
            socket.set_nonblocking(true).unwrap();
        }
        let forger = Forger::new();
        self.act(3, |random, from, bytes| {
            let session = Head::decode(bytes).unwrap().session;
            let stolen = theirs(random).bytes(session, 1, FAR_AHEAD + random.below(1000));
            for socket in &sockets {
                let _ = socket.send_to(&stolen, self.to);
                self.count_refusals(socket);
            }
            let elsewhere = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 77), from.port());
            forger.send(elsewhere, self.to, Headers::default(), &stolen);
        });
    }

    fn count_refusals(&self, socket: &UdpSocket) {
        let mut buffer = [0; 2048];
        while let Ok(bytes) = socket.recv(&mut buffer) {
            let reply = Reply::decode(&buffer[..bytes]).unwrap();
            assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends what a victim sent with a higher sequence number, but never whole.
    fn mangle(&self) {
        let forger = Forger::new();
        self.act(4, |random, from, bytes| {
            let session = Head::decode(bytes).unwrap().session;
            let mut wrong = theirs(random).bytes(session, 1, FAR_AHEAD + random.below(1000));
            let mut headers = Headers::default();
            let some = 1 + random.below(wrong.len() as u64 - 1);
            match random.below(6) {
                0 => wrong.truncate(some as usize),
                1 => headers.udp_length = 1 + (some as i16),
                2 => headers.udp_length = -(some as i16),
                3 => headers.fragment = 0x2000, // the first of several
                4 => headers.fragment = 1 + random.below(100) as u16,
                _ => flip(&mut wrong, random),
            }
            forger.send(from, self.to, headers, &wrong);
        });
    }

    /// Writes without waiting, in a session of its own; how many writes were sent, and accepted.
    fn flood(&self) -> (u64, u64) {
        let mut client = Client::connect_to(self.to.into());
        client.socket.set_nonblocking(true).unwrap();
        let count = Ask::new(Opcode::Increment, b"flood").argument(1).nilext();
        let mut random = Random::new(5);
        let (mut sent, mut accepted) = (0, 0);
        let mut newest = [0; 32];
        while !self.is_over.load(Ordering::Relaxed) {
            for slot in 0..32 {
                let bytes = client.bytes(slot, count);
                sent += u64::from(client.socket.send_to(&bytes, client.to).is_ok());
                let garbage: Vec<u8> = (0..random.below(300))
                    .map(|_| random.next() as u8)
                    .collect();
                let _ = client.socket.send_to(&garbage, client.to);
            }
            accepted += accepted_of(&client, &mut newest);
            std::thread::sleep(PAUSE);
        }
        let ends = Instant::now() + Duration::from_millis(300);
        while Instant::now() < ends {
            accepted += accepted_of(&client, &mut newest);
        }
        (sent, accepted)
    }
}

/// The writes whose acknowledgements came, each once.
fn accepted_of(client: &Client, newest: &mut [u64; 32]) -> u64 {
    let mut accepted = 0;
    while let Some(answer) = client.receive() {
        let (slot, sequence) = answer.slot_and_sequence();
        let newest = &mut newest[usize::from(slot) % 32];
        if matches!(answer.reply(), Reply::Ack(_)) && sequence > *newest {
            *newest = sequence;
            accepted += 1;
        }
    }
    accepted
}

/// A write that would be noticed.
fn theirs(random: &mut Random) -> Ask<'static> {
    let victim = random.below(2) as usize;
    match random.below(2) {
        0 => Ask::new(Opcode::Increment, [b"n0", b"n1"][victim]).argument(1_000_000),
        _ => Ask::set([b"own0", b"own1"][victim], b"theirs"),
    }
    .nilext()
}

/// Changes a bit that the checksum covers, or the checksum.
fn flip(bytes: &mut [u8], random: &mut Random) {
    let at = 8 + random.below(bytes.len() as u64 - 8) as usize;
    bytes[at] ^= 1 << random.below(8);
    let is_whole = Request::checksum(bytes).is_some_and(|sum| bytes[8..16] == sum.to_le_bytes());
    assert!(!is_whole);
}

/// Far above the sequence numbers of the victims.
const FAR_AHEAD: u64 = 1 << 40;

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => panic!("{address}"),
    }
}

/// Two victims and all attackers; how the victims fared.
fn attacked(server: &Server) -> Vec<Fared> {
    let attack = Attack {
        to: v4(native_address(server)),
        published: Mutex::default(),
        is_over: AtomicBool::new(false),
        refused: AtomicU64::new(0),
    };
    let fared = Mutex::new(Vec::new());
    let flooded = Mutex::new((0, 0));
    together(8, |number| match number {
        0 | 1 => {
            let client = Client::connect_to(attack.to.into());
            let port = client.socket.local_addr().unwrap().port();
            let mut victim = Victim {
                attack: &attack,
                client,
                own: SocketAddrV4::new(CLIENTS[0], port),
                fared: Fared::default(),
            };
            let expected = victim.live(number);
            let found = Memcached::connect(server).get(&format!("n{number}"));
            victim.fared.wrong += u64::from(found != Some(expected.to_string()));
            fared.lock().unwrap().push(victim.fared);
        }
        2 => attack.replay(),
        3 => attack.forge(),
        4 => attack.steal(),
        5 => attack.mangle(),
        6 => {
            let mut memcached = Memcached::connect(server);
            memcached.set("flood", "0");
            *flooded.lock().unwrap() = attack.flood();
        }
        _ => {
            std::thread::sleep(ATTACK);
            attack.is_over.store(true, Ordering::Relaxed);
        }
    });
    let mut memcached = Memcached::connect(server);
    let (sent, accepted) = flooded.into_inner().unwrap();
    let found: u64 = memcached.get("flood").unwrap().trim().parse().unwrap();
    assert!(
        (accepted..=sent).contains(&found),
        "{accepted} {found} {sent}"
    );
    assert!(accepted > 100, "the flood got {accepted} writes through");
    assert!(
        attack.refused.into_inner() > 50,
        "nobody tried another's session"
    );
    let foreign = memcached.stat("curtail", "native:dropped_foreign");
    assert!(foreign > 100, "{foreign} dropped");
    assert_eq!(memcached.stat("curtail", "native:corrupt_after_ack"), 0);
    fared.into_inner().unwrap()
}

fn attack_server(link: &Veth, attach: Attach, fault: Fault) -> Vec<Fared> {
    // Replies to forged sources that no host has wait in the kernel until it gives up looking for
    // one, and fill the socket's buffer meanwhile (docs/operations/security.md).
    let waiting = format!("/proc/sys/net/ipv4/neigh/{INTERFACE}/unres_qlen_bytes");
    std::fs::write(waiting, "4096").unwrap();
    let network = Network::new(link, attach, false);
    let mut config = native_config(NativeMode::Xdp);
    network.configure(&mut config);
    let server = start(Config {
        workers: 2,
        faults: fault.into(),
        ..config
    });
    link.at_client(|| attacked(&server))
}

#[test]
fn attackers_change_nothing() {
    in_a_thread(|| {
        let Some(link) = Veth::join() else {
            return;
        };
        for attach in [Attach::Generic, Attach::Native] {
            for fared in attack_server(&link, attach, Fault::Nothing) {
                assert_eq!(fared.wrong, 0, "{attach:?}: {fared:?}");
                assert!(fared.rounds >= 10, "{attach:?}: starved: {fared:?}");
                assert!(
                    fared.surplus > 20,
                    "{attach:?}: no replay arrived: {fared:?}"
                );
            }
        }
    });
}

/// The victims would notice: a server that executes repeated requests again is found out.
#[test]
#[cfg(debug_assertions)]
fn replays_that_have_an_effect_are_noticed() {
    in_a_thread(|| {
        let Some(link) = Veth::join() else {
            return;
        };
        let fared = attack_server(&link, Attach::Generic, Fault::ForgetsRequests);
        assert!(fared.iter().any(|fared| fared.wrong > 0), "{fared:?}");
    });
}
