//! The switch's process: it owns the table of rules, and takes the changes of cache nodes (SW-18).
//!
//! It deletes all rules of a cache node that is silent, or begins again (SW-40): requests then go
//! to back ends. Each time that a cache's rules were lost its *life* rises, which tells the cache
//! to install them again. What an earlier controller left in the switch is deleted at the start.

use std::{collections::BTreeMap, io, net::SocketAddr, time::Duration};

use curtail_codec::tiered::{
    AddressClass, HostId, TierAddress, TieredDatagram, TieredHead, TieredOpcode, TieredStatus,
};
use curtail_routing::{
    Destination, Encoding, PortNumber, Switch, SwitchPort, UserForwarder, XdpTable, XdpTableOptions,
};
use curtail_runtime::{Attach, Clock};
use curtail_types::{
    BackEndId, CacheId, Cas, Instant, KeyAddress, KeyTag, Rule, RuleCookie, RuleError, SwitchEvent,
};

use crate::{
    incarnation,
    node_loop::{NodeError, TierInbox, TierNode},
    outbox::TierOutbox,
    rule_sender::{ADDRESS_BYTES, CHANGES_MAX},
    status,
    tier_file::{TierFile, TierFileNetwork},
};

/// What a switch's process is started with.
#[derive(Clone, Debug)]
pub struct SwitchOptions {
    /// Rules of keys that the table takes.
    pub capacity: usize,
}

/// An interface that is a port of a switch in the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct XdpPort {
    /// Its name.
    pub interface: String,
    /// What is there. Its interface has the MAC address that its address gives.
    pub destination: Destination,
}

/// The switch's process.
pub struct SwitchNode {
    inbox: TierInbox,
    outbox: TierOutbox,
    clock: Clock,
    table: Box<dyn Switch + Send>,
    /// In user space.
    _forwarder: Option<UserForwarder>,
    caches: BTreeMap<CacheId, RulesOfCache>,
    caches_max: usize,
    lives: u64,
    counts: SwitchNodeCounts,
}

/// What is known of a cache node.
#[derive(Clone, Copy, Debug)]
struct RulesOfCache {
    generation: u32,
    /// The last message that was taken, and what became of it.
    number: u64,
    status: TieredStatus,
    life: u64,
    heard: Instant,
    /// It has been silent, and has no rules.
    is_silent: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct SwitchNodeCounts {
    installed: u64,
    deleted: u64,
    silences: u64,
    restarts: u64,
    strays: u64,
    malformed: u64,
    failed: u64,
}

impl std::str::FromStr for XdpPort {
    type Err = String;

    /// `INTERFACE=back-end3`, `INTERFACE=cache0` or `INTERFACE=host300`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not INTERFACE=back-end0, =cache0 or =host300");
        let (interface, place) = text.split_once('=').ok_or_else(wrong)?;
        let number = |kind: &str| place.strip_prefix(kind)?.parse::<u32>().ok();
        let destination = if let Some(id) = number("back-end") {
            let id = u16::try_from(id).ok().filter(|id| *id < BackEndId::END);
            Destination::BackEnd(BackEndId(id.ok_or_else(wrong)?))
        } else if let Some(host) = number("cache").or_else(|| number("host")) {
            Destination::Host(HostId(host))
        } else {
            return Err(wrong());
        };
        Ok(Self {
            interface: interface.to_string(),
            destination,
        })
    }
}

impl SwitchNode {
    /// Starts a forwarder in user space, with the nodes of the file as its ports.
    ///
    /// # Errors
    /// Each says what is in the way.
    pub fn start(file: &TierFile, options: &SwitchOptions) -> Result<Self, NodeError> {
        let TierFileNetwork::Forwarder(address) = file.network else {
            let why = "the file is for a switch in the kernel: name its interfaces";
            return Err(NodeError::Refused(why.to_string()));
        };
        let forwarder = UserForwarder::start(address, options.capacity)
            .map_err(|error| NodeError::Refused(format!("cannot forward at {address}: {error}")))?;
        let mut table = forwarder.table();
        let back_ends = file.back_ends.iter().enumerate();
        let back_ends = back_ends.map(|(id, at)| (back_end(id), *at));
        let caches = file.caches.iter().enumerate();
        let caches = caches.map(|(id, at)| (cache(id), *at));
        for ((destination, address), port) in back_ends.chain(caches).zip(1..) {
            forwarder.add_port(PortNumber(port), address);
            let connected = table.connect(destination, Some(PortNumber(port)));
            connected.map_err(|error| NodeError::Refused(error.to_string()))?;
        }
        Self::control(file, Box::new(table), Some(forwarder))
    }

    /// Loads the XDP switch into these interfaces of this process's network namespace. The
    /// controller's socket is bound after `moves`, which may enter another namespace.
    ///
    /// # Errors
    /// Each says what is in the way.
    pub fn start_xdp(
        file: &TierFile,
        options: &SwitchOptions,
        ports: &[XdpPort],
        moves: impl FnOnce() -> io::Result<()>,
    ) -> Result<Self, NodeError> {
        let TierFileNetwork::Ipv6 { cluster, .. } = file.network else {
            let why = "the file is for a forwarder in user space";
            return Err(NodeError::Refused(why.to_string()));
        };
        let switch_ports = ports.iter().zip(1..).map(|(port, number)| SwitchPort {
            number: PortNumber(number),
            interface: port.interface.clone(),
            mac: Some(own_address(port.destination).to_mac()),
        });
        let xdp = XdpTableOptions {
            encoding: Encoding::Ipv6 { cluster },
            capacity: u32::try_from(options.capacity).unwrap_or(u32::MAX),
            ports: switch_ports.collect(),
            attach: Attach::Any,
            pins: None,
        };
        let refused = |error: &dyn std::fmt::Display| NodeError::Refused(error.to_string());
        let mut table = XdpTable::start(&xdp).map_err(|error| refused(&error))?;
        for (port, number) in ports.iter().zip(1..) {
            let connected = table.connect(port.destination, Some(PortNumber(number)));
            connected.map_err(|error| refused(&error))?;
        }
        moves().map_err(|error| NodeError::Io("the controller's namespace", error))?;
        Self::control(file, Box::new(table), None)
    }

    fn control(
        file: &TierFile,
        table: Box<dyn Switch + Send>,
        forwarder: Option<UserForwarder>,
    ) -> Result<Self, NodeError> {
        let inbox = TierInbox::bind(file.bound(file.control))?;
        let incarnation =
            incarnation::next(None).map_err(|error| NodeError::Io("its incarnation", error))?;
        let ways = (file.network(), file.secret());
        let outbox = TierOutbox::new(inbox.socket(), ways, u32::MAX, incarnation)
            .map_err(|error| NodeError::Io("its socket", error))?;
        let mut node = Self {
            inbox,
            outbox,
            clock: Clock::start(),
            table,
            _forwarder: forwarder,
            caches: BTreeMap::new(),
            caches_max: file.caches.len(),
            lives: u64::from(incarnation) << 32,
            counts: SwitchNodeCounts::default(),
        };
        node.table
            .replace_all(&[])
            .map_err(|error| NodeError::Refused(error.to_string()))?;
        Ok(node)
    }

    fn now(&self) -> Instant {
        self.clock.now().instant
    }

    fn next_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    fn take_rules(&mut self, datagram: &TieredDatagram<'_>, from: SocketAddr) {
        let head = datagram.head;
        let id = u8::try_from(head.sender).map(CacheId).ok();
        let known = id.filter(|id| usize::from(id.0) < self.caches_max);
        let generation = u32::try_from(head.generation).ok();
        let (Some(id), Some(generation)) = (known, generation) else {
            self.counts.strays += 1;
            return;
        };
        if !self.outbox.admits(head.sender, head.sequence) {
            self.counts.strays += 1;
            return;
        }
        let now = self.now();
        let begins = match self.caches.get(&id) {
            Some(known) if generation < known.generation => {
                self.counts.strays += 1;
                return;
            }
            Some(known) => known.is_silent || generation > known.generation,
            None => true,
        };
        if begins {
            self.begin_again(id, generation, now);
        }
        let Some(mut known) = self.caches.get(&id).copied() else {
            return;
        };
        known.heard = now;
        if head.number > known.number {
            let status = self.apply(id, generation, datagram.value);
            // A switch that does not answer has taken nothing: the cache sends it again.
            if status != TieredStatus::Busy {
                known.number = head.number;
            }
            known.status = status;
        }
        self.caches.insert(id, known);
        self.answer(from, id, &head, &known);
    }

    /// The cache node has no rules from now on, and is told so.
    fn begin_again(&mut self, id: CacheId, generation: u32, now: Instant) {
        let life = self.next_life();
        self.counts.restarts += 1;
        // Rules that stay cost detours.
        let deleted = self.table.delete_cache(id);
        self.counts.failed += u64::from(deleted.is_err());
        let cache = RulesOfCache {
            generation,
            number: 0,
            status: TieredStatus::Done,
            life,
            heard: now,
            is_silent: false,
        };
        self.caches.insert(id, cache);
    }

    fn apply(&mut self, id: CacheId, generation: u32, value: &[u8]) -> TieredStatus {
        let (words, rest) = value.as_chunks::<ADDRESS_BYTES>();
        if !rest.is_empty() || words.len() > CHANGES_MAX {
            self.counts.malformed += 1;
            return TieredStatus::Done;
        }
        let cookie = RuleCookie {
            cache: id,
            generation,
        };
        // In order: of two changes of one rule the later counts. There are no two in a message,
        // because the cache's queue has one change of a key at a time; deletes go first, for room.
        let (mut installs, mut deletes) = (Vec::new(), Vec::<KeyAddress>::new());
        for word in words {
            match TierAddress::from_word(u64::from_le_bytes(*word)) {
                Some(address) if address.class == AddressClass::CachedGet => {
                    let key = address.key;
                    deletes.retain(|deleted| *deleted != key);
                    installs.push(Rule { key, cookie });
                }
                Some(address) if address.class == AddressClass::BackEnd => {
                    installs.retain(|rule| rule.key != address.key);
                    deletes.push(address.key);
                }
                _ => self.counts.malformed += 1,
            }
        }
        let done = self
            .table
            .delete(&deletes)
            .and_then(|()| self.table.install(&installs));
        match done {
            Ok(()) => {
                self.counts.installed += installs.len() as u64;
                self.counts.deleted += deletes.len() as u64;
                TieredStatus::Done
            }
            Err(RuleError::Disconnected) => TieredStatus::Busy,
            Err(_) => {
                self.counts.failed += 1;
                TieredStatus::Refused
            }
        }
    }

    fn answer(&mut self, to: SocketAddr, id: CacheId, head: &TieredHead, known: &RulesOfCache) {
        let host = HostId(u32::from(id.0));
        let head = TieredHead {
            generation: u64::from(known.generation),
            number: head.number,
            version: Cas(known.life),
            status: known.status,
            ..TieredHead::new(TieredOpcode::RulesTaken, TierAddress::host(host))
        };
        let (key, value) = (None, &[][..]);
        let answer = TieredDatagram { head, key, value };
        self.outbox.tell_at(to, u32::from(id.0), &answer);
    }

    /// Deletes the rules of cache nodes from which nothing is heard.
    fn watch_silence(&mut self, now: Instant) {
        let is_late = |known: &RulesOfCache| now.ns.saturating_sub(known.heard.ns) >= SILENCE_NS;
        let caches = self.caches.iter();
        let late = caches.filter(|(_, known)| !known.is_silent && is_late(known));
        let late: Vec<CacheId> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.counts.silences += 1;
            let deleted = self.table.delete_cache(id);
            self.counts.failed += u64::from(deleted.is_err());
            if let Some(known) = self.caches.get_mut(&id) {
                known.is_silent = true;
            }
        }
    }

    /// What the switch itself has to say.
    fn take_events(&mut self) {
        for _ in 0..EVENTS_MAX {
            match self.table.poll() {
                Ok(Some(SwitchEvent::Restarted)) => {
                    let (mut caches, mut lives) = (std::mem::take(&mut self.caches), Vec::new());
                    lives.resize_with(caches.len(), || self.next_life());
                    for (known, life) in caches.values_mut().zip(lives) {
                        known.life = life;
                    }
                    self.caches = caches;
                    // Caches install theirs again as soon as they hear of the new life.
                    let cleared = self.table.replace_all(&[]);
                    self.counts.failed += u64::from(cleared.is_err());
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let rules = self.table.dump().unwrap_or_default();
        let switch = self.table.counts().unwrap_or_default();
        let routed = |is: fn(&Destination) -> bool| -> u64 {
            let routes = switch.routes.iter();
            let its = routes.filter(|route| is(&route.destination));
            its.map(|route| route.packets).sum()
        };
        let to_back_ends = routed(|to| matches!(to, Destination::BackEnd(_)));
        let to_hosts = routed(|to| matches!(to, Destination::Host(_)));
        let silent = self.caches.values().filter(|known| known.is_silent).count();
        vec![
            ("rules", rules.len() as u64),
            ("rules_max", self.table.capacity() as u64),
            ("by_rules", rules.iter().map(|rule| rule.packets).sum()),
            ("to_back_ends", to_back_ends),
            ("to_hosts", to_hosts),
            ("unknown", switch.unknown),
            ("caches", self.caches.len() as u64),
            ("caches_silent", silent as u64),
            ("installed", self.counts.installed),
            ("deleted", self.counts.deleted),
            ("silences", self.counts.silences),
            ("cache_restarts", self.counts.restarts),
            ("strays", self.counts.strays),
            ("malformed", self.counts.malformed),
            ("failed", self.counts.failed),
        ]
    }
}

impl TierNode for SwitchNode {
    fn receive(&mut self, datagram: &[u8], from: SocketAddr) {
        let secret = *self.outbox.secret();
        let Ok(decoded) = TieredDatagram::decode(datagram, Some(&secret)) else {
            self.counts.malformed += 1;
            return;
        };
        match decoded.head.opcode {
            TieredOpcode::Rules => self.take_rules(&decoded, from),
            TieredOpcode::Status => {
                let counters = self.counters();
                status::answer(&mut self.outbox, &decoded.head, &counters);
            }
            _ => self.counts.strays += 1,
        }
    }

    fn turn(&mut self) -> Duration {
        let now = self.now();
        self.take_events();
        self.watch_silence(now);
        self.outbox.flush();
        LOOK_EVERY
    }

    fn inbox(&mut self) -> &mut TierInbox {
        &mut self.inbox
    }
}

/// A machine's own address: a host's, or a back end's with tag 0.
const fn own_address(destination: Destination) -> TierAddress {
    match destination {
        Destination::Host(host) => TierAddress::host(host),
        Destination::BackEnd(back_end) => TierAddress::back_end(KeyAddress {
            back_end,
            tag: KeyTag::from_bits(0),
        }),
    }
}

fn back_end(id: usize) -> Destination {
    Destination::BackEnd(BackEndId(u16::try_from(id).unwrap_or(BackEndId::END)))
}

fn cache(id: usize) -> Destination {
    Destination::Host(HostId(u32::try_from(id).unwrap_or(u32::MAX)))
}

/// After how long without a message the rules of a cache node are deleted.
const SILENCE_NS: u64 = 500_000_000;
const LOOK_EVERY: Duration = Duration::from_millis(50);
const EVENTS_MAX: usize = 64;
