//! A switch in memory: the twin that the others are compared with, and the heart of the one that
//! forwards in user space.

use std::collections::{BTreeMap, HashMap, VecDeque};

use curtail_codec::tiered::{AddressClass, HostId, TierAddress};
use curtail_types::{
    BackEndId, CacheId, CountedRule, KeyAddress, Rule, RuleError, RuleTable, SpreadSlots,
    SwitchEvent,
};

use crate::network::{CountedRoute, Destination, Encoding, PortNumber, Switch, SwitchCounts};

/// Rules and routes, and what they have counted.
#[derive(Clone, Debug)]
pub struct MemoryTable {
    capacity: usize,
    rules: HashMap<KeyAddress, CountedRule>,
    routes: BTreeMap<Destination, CountedRoute>,
    /// To whom spread rules lead.
    sharing: Vec<CacheId>,
    unknown: u64,
    events: VecDeque<SwitchEvent>,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FrameVerdict {
    /// It goes to a port.
    Forward(PortNumber),
    /// It is addressed to the tier and has nowhere to go.
    Drop,
    /// It is not the switch's.
    Pass,
}

impl MemoryTable {
    /// An empty one with room for so many rules.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            rules: HashMap::new(),
            routes: BTreeMap::new(),
            sharing: Vec::new(),
            unknown: 0,
            events: VecDeque::from([SwitchEvent::Restarted]),
        }
    }

    /// Where a packet of a sender with this UDP port goes; counts it.
    pub fn forward(&mut self, address: TierAddress, sender: u16) -> Option<PortNumber> {
        let port = self.route(address, sender);
        self.unknown += u64::from(port.is_none());
        port
    }

    /// What becomes of a frame; counts it.
    pub fn forward_frame(&mut self, encoding: Encoding, frame: &[u8]) -> FrameVerdict {
        match encoding.read(frame) {
            None => FrameVerdict::Pass,
            Some(address) => {
                match address.and_then(|address| self.route(address, encoding.sender(frame))) {
                    Some(port) => FrameVerdict::Forward(port),
                    None => {
                        self.unknown += 1;
                        FrameVerdict::Drop
                    }
                }
            }
        }
    }

    /// Counts a packet that no address could be read from.
    pub fn count_unknown(&mut self) {
        self.unknown += 1;
    }

    /// Loses all rules of keys, as a switch does that restarts.
    pub fn forget(&mut self) {
        self.rules.clear();
        self.sharing.clear();
        self.events.push_back(SwitchEvent::Restarted);
    }

    fn route(&mut self, address: TierAddress, sender: u16) -> Option<PortNumber> {
        let destination = match address.class {
            AddressClass::CachedGet => {
                let rule = self.rules.get_mut(&address.key);
                if let Some(rule) = rule {
                    rule.packets += 1;
                    let cookie = rule.rule.cookie;
                    let slot = SpreadSlots::of(sender);
                    let shared = SpreadSlots::owner(slot, &self.sharing).copied();
                    let shared = shared.filter(|_| cookie.is_spread);
                    return self.port(shared.unwrap_or(cookie.cache));
                }
                Destination::BackEnd(address.key.back_end)
            }
            AddressClass::BackEnd => Destination::BackEnd(address.key.back_end),
            AddressClass::Host => Destination::Host(address.to_host()?),
        };
        let route = self.routes.get_mut(&destination)?;
        route.packets += 1;
        Some(route.port)
    }

    fn port(&self, cache: CacheId) -> Option<PortNumber> {
        self.routes.get(&host(cache)).map(|route| route.port)
    }
}

/// The host that a cache node is.
pub(crate) fn host(cache: CacheId) -> Destination {
    Destination::Host(HostId(u32::from(cache.0)))
}

/// The cache node that a destination is, if it is one.
pub(crate) fn cache_of(destination: Destination) -> Option<CacheId> {
    match destination {
        Destination::Host(HostId(number)) => u8::try_from(number).ok().map(CacheId),
        Destination::BackEnd(_) => None,
    }
}

/// What a switch says to a spread rule that would lead nowhere.
pub(crate) fn nobody_shares() -> RuleError {
    RuleError::Refused("a rule is spread, and no cache node shares".to_owned())
}

/// Whether a back end may have this number; those that may not are the caller's fault.
pub(crate) fn check(destination: Destination) -> Result<(), RuleError> {
    match destination {
        Destination::BackEnd(BackEndId(number)) if number >= BackEndId::END => Err(
            RuleError::Refused(format!("no back end has the number {number}")),
        ),
        _ => Ok(()),
    }
}

impl RuleTable for MemoryTable {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn install(&mut self, rules: &[Rule]) -> Result<(), RuleError> {
        for rule in rules {
            let cache = rule.cookie.cache;
            self.port(cache).ok_or(RuleError::NoPort(cache))?;
            if rule.cookie.is_spread && self.sharing.is_empty() {
                return Err(nobody_shares());
            }
            let is_new = !self.rules.contains_key(&rule.key);
            if is_new && self.rules.len() >= self.capacity {
                let capacity = self.capacity;
                return Err(RuleError::Full { capacity });
            }
            let (rule, packets) = (*rule, 0);
            self.rules.insert(rule.key, CountedRule { rule, packets });
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[KeyAddress]) -> Result<(), RuleError> {
        for key in keys {
            self.rules.remove(key);
        }
        Ok(())
    }

    fn delete_cache(&mut self, cache: CacheId) -> Result<(), RuleError> {
        self.rules.retain(|_, rule| rule.rule.cookie.cache != cache);
        Ok(())
    }

    fn spread(&mut self, caches: &[CacheId]) -> Result<(), RuleError> {
        let missing = caches.iter().find(|id| self.port(**id).is_none());
        if let Some(missing) = missing {
            return Err(RuleError::NoPort(*missing));
        }
        self.sharing = caches.to_vec();
        Ok(())
    }

    fn dump(&mut self) -> Result<Vec<CountedRule>, RuleError> {
        Ok(self.rules.values().copied().collect())
    }

    fn poll(&mut self) -> Result<Option<SwitchEvent>, RuleError> {
        Ok(self.events.pop_front())
    }
}

impl Switch for MemoryTable {
    fn connect(
        &mut self,
        destination: Destination,
        port: Option<PortNumber>,
    ) -> Result<(), RuleError> {
        check(destination)?;
        let before = self.routes.get(&destination).map(|route| route.port);
        if before == port {
            return Ok(());
        }
        if let Some(cache) = cache_of(destination).filter(|_| before.is_some()) {
            self.delete_cache(cache)?;
            self.sharing.retain(|id| *id != cache);
        }
        self.routes.remove(&destination);
        let route = port.map(|port| CountedRoute {
            destination,
            port,
            packets: 0,
        });
        self.routes.extend(route.map(|route| (destination, route)));
        Ok(())
    }

    fn counts(&mut self) -> Result<SwitchCounts, RuleError> {
        Ok(SwitchCounts {
            routes: self.routes.values().copied().collect(),
            unknown: self.unknown,
        })
    }
}
