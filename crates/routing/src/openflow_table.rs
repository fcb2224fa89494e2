//! A switch that is controlled by OpenFlow 1.3: Open vSwitch, or hardware (SW-84).
//!
//! The controller knows the routes and installs them with every connection. Rules of keys are the
//! caller's: with every connection it is told `Restarted`, and reconciles them by their cookies.
//! What the switch has of others, by their cookies, is left alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use curtail_codec::openflow::{
    FlowMod, FlowSelection, OpenFlowError, PortChange, PortDescription, TABLES_ALL,
};
use curtail_types::{CacheId, CountedRule, KeyAddress, Rule, RuleError, RuleTable, SwitchEvent};

use crate::controller_stream::{ControllerEndpoint, StreamSource};
use crate::memory_table::{cache_of, check, host, nobody_shares};
use crate::network::{
    CountedRoute, Destination, Encoding, PortNumber, Switch, SwitchCounts, SwitchPort,
};
use crate::openflow_session::{OpenFlowSession, SessionLost};
use crate::{openflow_cookie as cookie, openflow_flows as flows};

/// What the table is made with.
#[derive(Clone, Debug)]
pub struct OpenFlowOptions {
    /// Where controller and switch meet.
    pub endpoint: ControllerEndpoint,
    /// The switch's name; others are refused. Without, the first that comes is taken.
    pub datapath: Option<u64>,
    /// How addresses stand in frames.
    pub encoding: Encoding,
    /// Rules of keys that the switch has room for beside the routes.
    pub capacity: usize,
    /// Its ports.
    pub ports: Vec<SwitchPort>,
    /// How long an answer of the switch may take.
    pub timeout: Duration,
}

/// The controller's side of a switch. [`poll`](RuleTable::poll) has to be called every second or
/// so, since the switch takes a controller for dead that does not answer its echoes.
#[derive(Debug)]
pub struct OpenFlowTable {
    options: OpenFlowOptions,
    source: StreamSource,
    session: Option<OpenFlowSession>,
    datapath: Option<u64>,
    routes: BTreeMap<Destination, PortNumber>,
    /// Keys that the switch has a rule for, as far as is known.
    keys: BTreeSet<KeyAddress>,
    /// To whom spread rules lead, as far as this connection said.
    sharing: Vec<CacheId>,
    /// Ports that are down.
    down: BTreeSet<PortNumber>,
    events: VecDeque<SwitchEvent>,
    refused_connections: u64,
}

impl OpenFlowTable {
    /// Waits for the switch, or connects to it, from now on; nobody need be there yet.
    pub fn open(options: OpenFlowOptions) -> io::Result<Self> {
        let source = StreamSource::open(&options.endpoint)?;
        Ok(Self {
            source,
            options,
            session: None,
            datapath: None,
            routes: BTreeMap::new(),
            keys: BTreeSet::new(),
            sharing: Vec::new(),
            down: BTreeSet::new(),
            events: VecDeque::new(),
            refused_connections: 0,
        })
    }

    /// Where it listens, if that is a TCP port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.source.address()
    }

    /// The name of the switch that is connected.
    pub fn datapath(&self) -> Option<u64> {
        self.session.as_ref().and(self.datapath)
    }

    /// Connections that were refused: not OpenFlow 1.3, another switch, silent.
    pub const fn refused_connections(&self) -> u64 {
        self.refused_connections
    }

    /// Takes the next connection, if there is one and none is in use.
    fn look_for_switch(&mut self) {
        while self.session.is_none() {
            let Ok(Some(stream)) = self.source.next(self.options.timeout) else {
                return;
            };
            let expected = self.options.datapath;
            let greeted = OpenFlowSession::greet(stream, self.options.timeout, expected);
            match greeted.and_then(|(session, datapath)| Ok((self.take_over(session)?, datapath))) {
                Ok((session, datapath)) => {
                    self.session = Some(session);
                    self.datapath = Some(datapath);
                    self.events.push_back(SwitchEvent::Restarted);
                }
                Err(SessionLost) => {
                    self.refused_connections += 1;
                    // One that is connected to would be tried again at once.
                    if matches!(self.source, StreamSource::Connect(_)) {
                        return;
                    }
                }
            }
        }
    }

    /// Sees to it that a switch has the flows that do not depend on keys, and learns what it has.
    fn take_over(&mut self, mut session: OpenFlowSession) -> Result<OpenFlowSession, SessionLost> {
        let encoding = self.options.encoding;
        self.sharing.clear();
        let all = session.flows(select(0, 0))?;
        let mut changes = Vec::new();
        let there = all.iter().filter_map(|flow| cookie::to_route(flow.cookie));
        for destination in there.filter(|one| !self.routes.contains_key(one)) {
            changes.push(flows::route(encoding, destination, None));
        }
        changes.extend(flows::structure(encoding));
        for (destination, port) in &self.routes {
            let port = self.options.ports.iter().find(|one| one.number == *port);
            changes.push(flows::route(encoding, *destination, port));
        }
        if !session.change(&changes)?.is_empty() {
            return Err(SessionLost);
        }
        let rules = all.iter().filter_map(|flow| self.rule_of(flow));
        self.keys = rules.map(|counted| counted.rule.key).collect();
        for port in session.ports()? {
            self.see_port(PortChange::Modified, port);
        }
        Ok(session)
    }

    fn rule_of(&self, flow: &curtail_codec::openflow::FlowStat) -> Option<CountedRule> {
        let (cookie, back_end) = cookie::to_rule(flow.cookie)?;
        let matching = flow.matching.as_ref()?;
        let key = flows::key_of(self.options.encoding, matching, back_end)?;
        Some(CountedRule {
            rule: Rule { key, cookie },
            packets: flow.packets,
        })
    }

    /// What it means that a port is or became as it is.
    fn see_port(&mut self, change: PortChange, port: PortDescription) {
        let number = PortNumber(port.port);
        let is_down = port.is_down || change == PortChange::Removed;
        let changed = match is_down {
            true => self.down.insert(number),
            false => self.down.remove(&number),
        };
        let there = self.routes.iter().filter(|(_, port)| **port == number);
        for cache in there.filter_map(|(destination, _)| cache_of(*destination)) {
            match (changed, is_down) {
                (true, true) => self.events.push_back(SwitchEvent::CacheDown(cache)),
                (true, false) => self.events.push_back(SwitchEvent::CacheUp(cache)),
                _ => {}
            }
        }
    }

    /// Does something with the connection. One that fails is given up, and the switch is as gone
    /// until `poll` takes another.
    fn with<T>(
        &mut self,
        does: impl FnOnce(&mut OpenFlowSession) -> Result<T, SessionLost>,
    ) -> Result<T, RuleError> {
        let session = self.session.as_mut().ok_or(RuleError::Disconnected)?;
        let done = does(session);
        done.map_err(|SessionLost| {
            self.session = None;
            RuleError::Disconnected
        })
    }

    /// Makes changes; the first refusal, if there is one.
    fn change(&mut self, changes: &[FlowMod]) -> Result<Vec<usize>, RuleError> {
        let refused = self.with(|session| session.change(changes))?;
        let other = refused
            .iter()
            .find(|(_, error)| *error != OpenFlowError::TABLE_FULL);
        match other {
            Some((_, error)) => Err(RuleError::Refused(format!(
                "OpenFlow error of type {}, code {}",
                error.kind, error.code
            ))),
            None => Ok(refused.into_iter().map(|(at, _)| at).collect()),
        }
    }

    fn port(&self, number: PortNumber) -> Option<&SwitchPort> {
        self.options.ports.iter().find(|one| one.number == number)
    }
}

const fn select(cookie: u64, cookie_mask: u64) -> FlowSelection {
    FlowSelection {
        table: TABLES_ALL,
        cookie,
        cookie_mask,
    }
}

impl RuleTable for OpenFlowTable {
    fn capacity(&self) -> usize {
        self.options.capacity
    }

    fn install(&mut self, rules: &[Rule]) -> Result<(), RuleError> {
        let mut added = BTreeSet::new();
        let full = Err(RuleError::Full {
            capacity: self.capacity(),
        });
        let mut refusal = Ok(());
        let mut changes = Vec::with_capacity(rules.len());
        for rule in rules {
            let cache = rule.cookie.cache;
            let port = self.routes.get(&host(cache));
            let Some(port) = port.and_then(|port| self.port(*port)) else {
                refusal = Err(RuleError::NoPort(cache));
                break;
            };
            if rule.cookie.is_spread && self.sharing.is_empty() {
                refusal = Err(nobody_shares());
                break;
            }
            if !self.keys.contains(&rule.key) && !added.contains(&rule.key) {
                if self.keys.len() + added.len() >= self.capacity() {
                    refusal = full.clone();
                    break;
                }
                added.insert(rule.key);
            }
            changes.push(flows::rule(self.options.encoding, rule, port));
        }
        let refused = self.change(&changes)?;
        for at in &refused {
            if let Some(rule) = rules.get(*at) {
                added.remove(&rule.key);
            }
        }
        self.keys.extend(added);
        match refused.is_empty() {
            true => refusal,
            false => full,
        }
    }

    fn delete(&mut self, keys: &[KeyAddress]) -> Result<(), RuleError> {
        let encoding = self.options.encoding;
        let changes = keys.iter().map(|key| flows::no_rule(encoding, *key));
        self.change(&changes.collect::<Vec<_>>())?;
        for key in keys {
            self.keys.remove(key);
        }
        Ok(())
    }

    fn delete_cache(&mut self, cache: CacheId) -> Result<(), RuleError> {
        let all = flows::none_of(cookie::of_cache(cache), cookie::CACHE_MASK);
        self.change(&[all])?;
        self.dump().map(|_| ())
    }

    fn spread(&mut self, caches: &[CacheId]) -> Result<(), RuleError> {
        let port = |id: &CacheId| {
            let port = self.routes.get(&host(*id));
            let port = port.and_then(|port| self.port(*port)).cloned();
            port.map(|port| (*id, port)).ok_or(RuleError::NoPort(*id))
        };
        let ports = caches.iter().map(port).collect::<Result<Vec<_>, _>>()?;
        let slots = flows::slots(self.options.encoding, &ports);
        if !self.change(&slots)?.is_empty() {
            let capacity = self.capacity();
            return Err(RuleError::Full { capacity });
        }
        self.sharing = caches.to_vec();
        Ok(())
    }

    fn dump(&mut self) -> Result<Vec<CountedRule>, RuleError> {
        let selection = select(cookie::KEY, cookie::KEY_MASK);
        let all = self.with(|session| session.flows(selection))?;
        let rules: Vec<_> = all.iter().filter_map(|flow| self.rule_of(flow)).collect();
        self.keys = rules.iter().map(|counted| counted.rule.key).collect();
        Ok(rules)
    }

    fn poll(&mut self) -> Result<Option<SwitchEvent>, RuleError> {
        if let Some(session) = &mut self.session
            && session.look().is_err()
        {
            self.session = None;
        }
        self.look_for_switch();
        let told = self.session.as_mut().map(OpenFlowSession::take_ports);
        for (change, port) in told.into_iter().flatten() {
            self.see_port(change, port);
        }
        match self.events.pop_front() {
            Some(event) => Ok(Some(event)),
            None if self.session.is_none() => Err(RuleError::Disconnected),
            None => Ok(None),
        }
    }
}

impl Switch for OpenFlowTable {
    /// Without a switch the route is kept for the next connection.
    fn connect(
        &mut self,
        destination: Destination,
        port: Option<PortNumber>,
    ) -> Result<(), RuleError> {
        check(destination)?;
        let before = self.routes.get(&destination).copied();
        if before == port {
            return Ok(());
        }
        let at = port.map(|port| {
            let missing = || RuleError::Refused(format!("there is no port {}", port.0));
            self.port(port).cloned().ok_or_else(missing)
        });
        let at = at.transpose()?;
        match port {
            Some(port) => self.routes.insert(destination, port),
            None => self.routes.remove(&destination),
        };
        let route = flows::route(self.options.encoding, destination, at.as_ref());
        let mut changes = vec![route];
        if let Some(cache) = cache_of(destination).filter(|_| before.is_some()) {
            changes.push(flows::none_of(cookie::of_cache(cache), cookie::CACHE_MASK));
        }
        let shared = cache_of(destination).filter(|id| self.sharing.contains(id));
        if let Some(cache) = shared.filter(|_| self.session.is_some()) {
            let rest = self.sharing.iter().copied().filter(|id| *id != cache);
            self.spread(&rest.collect::<Vec<_>>())?;
        }
        match self.change(&changes) {
            Ok(_) if changes.len() > 1 => self.dump().map(|_| ()),
            Ok(_) | Err(RuleError::Disconnected) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn counts(&mut self) -> Result<SwitchCounts, RuleError> {
        let all = self.with(|session| session.flows(select(0, 0)))?;
        let unknown = all.iter().filter(|flow| flow.cookie == cookie::UNKNOWN);
        let unknown = unknown.map(|flow| flow.packets).sum();
        let routes = all.iter().filter_map(|flow| {
            let destination = cookie::to_route(flow.cookie)?;
            let port = *self.routes.get(&destination)?;
            let packets = flow.packets;
            Some(CountedRoute {
                destination,
                port,
                packets,
            })
        });
        let mut routes: Vec<CountedRoute> = routes.collect();
        routes.sort_by_key(|route| route.destination);
        Ok(SwitchCounts { routes, unknown })
    }
}
