//! The XDP program as a switch (SW-88): rules are entries of its maps, in force with the next
//! packet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use curtail_codec::tiered::{AddressClass, TierAddress};
use curtail_runtime::{Attach, LinkStates, SwitchNetwork, SwitchProgram, SwitchRule, XdpError};
use curtail_types::{
    CacheId, CountedRule, KeyAddress, KeyTag, Rule, RuleCookie, RuleError, RuleTable, SpreadSlots,
    SwitchEvent,
};

use crate::memory_table::{cache_of, check, host, nobody_shares};
use crate::network::{
    CountedRoute, Destination, Encoding, PortNumber, Switch, SwitchCounts, SwitchPort,
};

/// What the switch is made with.
#[derive(Clone, Debug)]
pub struct XdpTableOptions {
    /// How addresses stand in frames.
    pub encoding: Encoding,
    /// Rules of keys that there is room for.
    pub capacity: u32,
    /// The interfaces that are its ports.
    pub ports: Vec<SwitchPort>,
    /// Whether the driver or the kernel's stack runs the program. In the driver of a veth it needs
    /// GRO at the other ends, turned on while they are up: without, frames are lost.
    pub attach: Attach,
    /// Where program and rules are pinned, in a BPF file system; without, they end with the
    /// process.
    pub pins: Option<PathBuf>,
}

/// The switch.
#[derive(Debug)]
pub struct XdpTable {
    program: SwitchProgram,
    capacity: u32,
    ports: Vec<SwitchPort>,
    routes: BTreeMap<Destination, PortNumber>,
    /// Routes of an earlier process that this one has not confirmed.
    unconfirmed: BTreeSet<Destination>,
    links: LinkStates,
    /// Interfaces that were down.
    down: BTreeSet<PortNumber>,
    events: VecDeque<SwitchEvent>,
    /// Keys that have a rule.
    keys: BTreeSet<KeyAddress>,
    /// To whom spread rules lead, as far as this process said.
    sharing: Vec<CacheId>,
}

impl XdpTable {
    /// Loads the program and attaches it to all ports, or takes over what an earlier process left.
    pub fn start(options: &XdpTableOptions) -> Result<Self, XdpError> {
        let network = match options.encoding {
            Encoding::Ipv6 { cluster } => SwitchNetwork::Ipv6(cluster),
            Encoding::Mac { network } => SwitchNetwork::Mac(network),
        };
        let mut program = SwitchProgram::load(network, options.capacity, options.pins.as_deref())?;
        for port in &options.ports {
            program.add_port(port.number.0, &port.interface, port.mac, options.attach)?;
        }
        let links = LinkStates::new();
        let links = links.map_err(|error| XdpError::System {
            doing: "opening a socket",
            reason: error.to_string(),
        })?;
        let mut table = Self {
            program,
            capacity: options.capacity,
            ports: options.ports.clone(),
            routes: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            links,
            down: BTreeSet::new(),
            events: VecDeque::from([SwitchEvent::Restarted]),
            keys: BTreeSet::new(),
            sharing: Vec::new(),
        };
        table.take_over()?;
        Ok(table)
    }

    /// Removes the pins, for a planned stop: program and rules end with this value.
    pub fn unpin(&self) {
        self.program.unpin();
    }

    /// Reads what an earlier process has left.
    fn take_over(&mut self) -> Result<(), XdpError> {
        if self.program.is_fresh() {
            return Ok(());
        }
        for (word, _) in self.program.rules()? {
            self.keys
                .extend(TierAddress::from_word(word).map(|address| address.key));
        }
        for (word, rule) in self.program.routes()? {
            if let Some(destination) = destination_of(word) {
                self.routes.insert(destination, PortNumber(rule.port));
            }
        }
        self.unconfirmed = self.routes.keys().copied().collect();
        Ok(())
    }

    /// Compares the state of every port with the last one.
    fn look_at_ports(&mut self) {
        let ports = self.ports.iter();
        // One that is gone is down.
        let is_down = |port: &&SwitchPort| {
            let running = self.links.is_running(&port.interface);
            !running.unwrap_or(false)
        };
        let down: BTreeSet<PortNumber> = ports.filter(is_down).map(|port| port.number).collect();
        for (destination, port) in &self.routes {
            let Some(cache) = cache_of(*destination) else {
                continue;
            };
            match (self.down.contains(port), down.contains(port)) {
                (false, true) => self.events.push_back(SwitchEvent::CacheDown(cache)),
                (true, false) => self.events.push_back(SwitchEvent::CacheUp(cache)),
                _ => {}
            }
        }
        self.down = down;
    }
}

/// The word that a rule's `get`s have.
fn word_of(key: KeyAddress) -> u64 {
    TierAddress::get(key).to_word()
}

/// The word of a route in the program's map.
fn word_of_route(destination: Destination) -> u64 {
    match destination {
        Destination::Host(host) => TierAddress::host(host).to_word(),
        Destination::BackEnd(back_end) => {
            let tag = KeyTag::default();
            TierAddress::back_end(KeyAddress { back_end, tag }).to_word()
        }
    }
}

fn destination_of(word: u64) -> Option<Destination> {
    let address = TierAddress::from_word(word)?;
    Some(match address.to_host() {
        Some(host) => Destination::Host(host),
        None => Destination::BackEnd(address.key.back_end),
    })
}

fn cookie_to_word(cookie: RuleCookie) -> u64 {
    u64::from(cookie.generation) | u64::from(cookie.cache.0) << 32
}

fn cookie_from_word(word: u64) -> RuleCookie {
    RuleCookie {
        cache: CacheId((word >> 32) as u8),
        generation: word as u32,
        is_spread: false,
    }
}

fn refused(error: XdpError) -> RuleError {
    RuleError::Refused(error.to_string())
}

impl RuleTable for XdpTable {
    fn capacity(&self) -> usize {
        self.capacity as usize
    }

    fn install(&mut self, rules: &[Rule]) -> Result<(), RuleError> {
        let full = Err(RuleError::Full {
            capacity: self.capacity(),
        });
        let mut entries = Vec::with_capacity(rules.len());
        let mut refusal = Ok(());
        for rule in rules {
            let cache = rule.cookie.cache;
            let Some(port) = self.routes.get(&host(cache)) else {
                refusal = Err(RuleError::NoPort(cache));
                break;
            };
            if rule.cookie.is_spread && self.sharing.is_empty() {
                refusal = Err(nobody_shares());
                break;
            }
            if !self.keys.contains(&rule.key) && self.keys.len() >= self.capacity() {
                refusal = full.clone();
                break;
            }
            self.keys.insert(rule.key);
            let entry = SwitchRule {
                cookie: cookie_to_word(rule.cookie),
                port: match rule.cookie.is_spread {
                    true => port.0 | SwitchProgram::SPREAD,
                    false => port.0,
                },
                packets: 0,
            };
            entries.push((word_of(rule.key), entry));
        }
        if self.program.install(&entries).map_err(refused)? {
            return refusal;
        }
        self.dump()?; // not all of them are there
        full
    }

    fn delete(&mut self, keys: &[KeyAddress]) -> Result<(), RuleError> {
        let words: Vec<u64> = keys.iter().map(|key| word_of(*key)).collect();
        self.program.delete(&words).map_err(refused)?;
        for key in keys {
            self.keys.remove(key);
        }
        Ok(())
    }

    fn delete_cache(&mut self, cache: CacheId) -> Result<(), RuleError> {
        let all = self.dump()?.into_iter().map(|counted| counted.rule);
        let its = all.filter(|rule| rule.cookie.cache == cache);
        let keys: Vec<KeyAddress> = its.map(|rule| rule.key).collect();
        self.delete(&keys)
    }

    fn spread(&mut self, caches: &[CacheId]) -> Result<(), RuleError> {
        let missing = caches
            .iter()
            .find(|id| !self.routes.contains_key(&host(**id)));
        if let Some(missing) = missing {
            return Err(RuleError::NoPort(*missing));
        }
        let port = |slot| {
            let cache = SpreadSlots::owner(slot, caches)?;
            self.routes.get(&host(*cache)).map(|port| port.0)
        };
        let ports = (0..SpreadSlots::COUNT).map(|slot| port(slot).unwrap_or(0));
        let ports: Vec<u32> = ports.collect();
        self.program.set_slots(ports).map_err(refused)?;
        self.sharing = caches.to_vec();
        Ok(())
    }

    fn dump(&mut self) -> Result<Vec<CountedRule>, RuleError> {
        let rules = self.program.rules().map_err(refused)?.into_iter();
        let rules = rules.filter_map(|(word, entry)| {
            let address = TierAddress::from_word(word)?;
            let is_get = address.class == AddressClass::CachedGet;
            let rule = Rule {
                key: address.key,
                cookie: RuleCookie {
                    is_spread: entry.port & SwitchProgram::SPREAD != 0,
                    ..cookie_from_word(entry.cookie)
                },
            };
            let packets = entry.packets;
            is_get.then_some(CountedRule { rule, packets })
        });
        let rules: Vec<CountedRule> = rules.collect();
        self.keys = rules.iter().map(|counted| counted.rule.key).collect();
        Ok(rules)
    }

    fn poll(&mut self) -> Result<Option<SwitchEvent>, RuleError> {
        for destination in std::mem::take(&mut self.unconfirmed) {
            self.connect(destination, None)?;
        }
        if self.events.is_empty() {
            self.look_at_ports();
        }
        Ok(self.events.pop_front())
    }
}

impl Switch for XdpTable {
    fn connect(
        &mut self,
        destination: Destination,
        port: Option<PortNumber>,
    ) -> Result<(), RuleError> {
        check(destination)?;
        if let Some(port) = port
            && !self.ports.iter().any(|one| one.number == port)
        {
            let reason = format!("there is no port {}", port.0);
            return Err(RuleError::Refused(reason));
        }
        self.unconfirmed.remove(&destination);
        let before = self.routes.get(&destination).copied();
        if before == port {
            return Ok(());
        }
        if let Some(cache) = cache_of(destination).filter(|_| before.is_some()) {
            self.delete_cache(cache)?;
            if self.sharing.contains(&cache) {
                let rest = self.sharing.iter().copied().filter(|id| *id != cache);
                self.spread(&rest.collect::<Vec<_>>())?;
            }
        }
        let rule = SwitchRule {
            port: port.map_or(0, |port| port.0),
            ..SwitchRule::default()
        };
        let set = self.program.set_route(word_of_route(destination), rule);
        set.map_err(refused)?;
        match port {
            Some(port) => self.routes.insert(destination, port),
            None => self.routes.remove(&destination),
        };
        Ok(())
    }

    fn counts(&mut self) -> Result<SwitchCounts, RuleError> {
        let all = self.program.routes().map_err(refused)?.into_iter();
        let routes = all.filter_map(|(word, rule)| {
            Some(CountedRoute {
                destination: destination_of(word)?,
                port: PortNumber(rule.port),
                packets: rule.packets,
            })
        });
        let mut routes: Vec<CountedRoute> = routes.collect();
        routes.sort_by_key(|route| route.destination);
        let unknown = self.program.unknown().map_err(refused)?;
        Ok(SwitchCounts { routes, unknown })
    }
}
