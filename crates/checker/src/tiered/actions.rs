//! What may happen in a tier, and what comes of it.

use curtail_consistency::replica::Ticket;
use curtail_consistency::tiered::{BackEndEvent, CacheEvent, CacheId, CacheSession, TierRequest};
use curtail_types::Instant;

use super::host::{BACK_END, BackEndDesk, CacheDesk};
use super::world::{Stage, TierWorld};
use super::{DETOUR, HIT, SECOND, TierDriverMutant, TierSetup};
use crate::judge::Written;
use crate::requests::{Kind, Label};

/// Something that happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TierAction {
    /// A client asks the back end.
    Ask(u8),
    /// A reader at a cache looks at a copy.
    Look(u8, CacheId),
    /// It reads the clock and answers, or sends the request on to the back end.
    Confirm(u8),
    /// A message arrives, and may arrive once more.
    Deliver(usize, bool),
    /// It does not.
    Lose(usize),
    /// A cache wants a copy.
    Fetch(CacheId, usize),
    /// It wants it no more.
    Evict(CacheId, usize),
    /// A key bursts.
    Report(usize),
    /// The store removes an item by itself.
    Expire(usize),
    /// A client has every item removed.
    Flush,
    /// Time passes.
    Pass,
    /// The back end's timer rings.
    TickBackEnd,
    /// A cache's timer rings.
    TickCache(CacheId),
    /// The back end dies.
    CrashBackEnd,
    /// It starts again.
    RestartBackEnd,
    /// A cache dies.
    CrashCache(CacheId),
    /// It starts again, empty.
    RestartCache(CacheId),
    /// The back end is to report to the other cache.
    Reassign,
}

/// Steps a world.
pub(super) struct Stepper<'a> {
    pub(super) setup: &'a TierSetup,
    pub(super) world: &'a mut TierWorld,
}

impl Stepper<'_> {
    pub(super) fn act(&mut self, action: &TierAction) {
        match *action {
            TierAction::Ask(label) => self.ask(Label(label)),
            TierAction::Look(label, cache) => self.look(Label(label), cache),
            TierAction::Confirm(label) => self.confirm(Label(label)),
            TierAction::Deliver(index, again) => self.deliver(index, again),
            TierAction::Lose(index) => {
                self.world.left.losses -= 1;
                self.world.parcels.remove(index);
            }
            TierAction::Fetch(cache, key) => {
                self.world.left.fetches -= 1;
                let event = CacheEvent::Fetch(BACK_END, self.setup.keys[key]);
                self.step_cache(cache, event, None);
            }
            TierAction::Evict(cache, key) => {
                self.world.left.evictions -= 1;
                let event = CacheEvent::Evict(BACK_END, self.setup.keys[key]);
                self.step_cache(cache, event, None);
            }
            TierAction::Report(key) => {
                self.world.left.reports -= 1;
                self.step_back_end(BackEndEvent::Report(self.setup.keys[key]), None);
            }
            TierAction::Expire(key) => self.expire(key),
            TierAction::Flush => {
                self.world.left.flushes -= 1;
                self.world.begin_flush();
                let ticket = Ticket(u64::from(Label::FLUSH.0));
                self.step_back_end(BackEndEvent::Flush(ticket), None);
            }
            TierAction::Pass => {
                self.world.left.time = self.world.left.time.saturating_sub(1);
                self.world.clocks.iter_mut().for_each(|clock| *clock += 1);
            }
            TierAction::TickBackEnd => self.step_back_end(BackEndEvent::Tick, None),
            TierAction::TickCache(cache) => self.step_cache(cache, CacheEvent::Tick, None),
            TierAction::CrashBackEnd => self.crash_back_end(),
            TierAction::RestartBackEnd => self.restart_back_end(),
            TierAction::CrashCache(cache) => self.crash_cache(cache),
            TierAction::RestartCache(cache) => self.restart_cache(cache),
            TierAction::Reassign => {
                self.world.left.reassigns -= 1;
                let node = self.world.back_end.edit();
                node.cache = CacheId(1 - node.cache.0);
                let cache = node.cache;
                self.step_back_end(BackEndEvent::Assign(cache), None);
            }
        }
    }

    pub(super) fn step_back_end(&mut self, event: BackEndEvent<'_>, clock: Option<u64>) {
        let now = clock.unwrap_or(self.world.clocks[0]);
        let node = self.world.back_end.edit();
        if self.setup.has(TierDriverMutant::ReceivesByOldClock) {
            node.clock_read = self.world.clocks[0];
        }
        let Some(mut machine) = node.machine.take() else {
            return;
        };
        let mut desk = BackEndDesk {
            setup: self.setup,
            world: &mut *self.world,
            now,
        };
        machine.step(event, &mut desk);
        self.world.back_end.edit().machine = Some(machine);
    }

    /// The other cache nodes may have copies.
    pub(super) fn join_group(&mut self) {
        let others = 1..self.setup.caches;
        for id in others.filter(|_| self.setup.is_group).map(CacheId) {
            self.step_back_end(BackEndEvent::Join(id), None);
        }
    }

    pub(super) fn step_cache(
        &mut self,
        me: CacheId,
        event: CacheEvent<'_>,
        incoming: Option<Written>,
    ) {
        let Some(mut machine) = self.world.edit_cache(me).machine.take() else {
            return;
        };
        let mut desk = CacheDesk {
            world: &mut *self.world,
            me,
            incoming,
        };
        machine.step(event, &mut desk);
        self.world.edit_cache(me).machine = Some(machine);
    }

    // ---- requests ----

    fn ask(&mut self, label: Label) {
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        self.world.judges.edit()[key].begun(label, kind);
        self.send_to_back_end(label);
    }

    fn send_to_back_end(&mut self, label: Label) {
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        self.world.operations[usize::from(label.0)] = Stage::Asked;
        if self.world.back_end.machine.is_none() {
            return self.world.refuse(key, label, None);
        }
        let request = TierRequest {
            ticket: Ticket(u64::from(label.0)),
            key: self.setup.keys[key],
            access: kind.access(),
        };
        self.step_back_end(BackEndEvent::Request(request), None);
    }

    fn look(&mut self, label: Label, cache: CacheId) {
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        let node = 1 + usize::from(cache.0);
        if self.setup.has(TierDriverMutant::ReadsByOldClock) {
            let now = self.world.clocks[node];
            self.world.operations[usize::from(label.0)] = Stage::Clock(cache, now);
            return;
        }
        self.world.judges.edit()[key].begun(label, kind);
        match self.value_of(cache, key) {
            Some((session, value)) => {
                let looked = Stage::Looked(cache, session, value);
                self.world.operations[usize::from(label.0)] = looked;
            }
            None => self.send_to_back_end(label),
        }
    }

    fn value_of(&self, cache: CacheId, key: usize) -> Option<(CacheSession, Written)> {
        let (node, key) = (self.world.cache(cache), self.setup.keys[key]);
        let session = node.machine.as_ref()?.look(BACK_END, key)?;
        Some((session, node.copies.get(&key).copied()?))
    }

    fn confirm(&mut self, label: Label) {
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        let (cache, looked, now) = match self.world.operations[usize::from(label.0)] {
            Stage::Looked(cache, session, value) => {
                let now = self.world.clocks[1 + usize::from(cache.0)];
                (cache, Some((session, value)), now)
            }
            Stage::Clock(cache, now) => {
                // Only now does the request come.
                self.world.judges.edit()[key].begun(label, kind);
                (cache, self.value_of(cache, key), now)
            }
            _ => return,
        };
        let Some(machine) = &self.world.cache(cache).machine else {
            // The client tries again, at the back end.
            return self.send_to_back_end(label);
        };
        let shown = looked.filter(|(session, _)| {
            let own = machine.look(BACK_END, self.setup.keys[key]);
            let session = match self.setup.has(TierDriverMutant::SessionUnchecked) {
                true => own.or(machine.session(BACK_END)).unwrap_or(*session),
                false => *session,
            };
            machine.shows(BACK_END, session, Instant { ns: now })
        });
        match shown {
            Some((_, value)) => {
                let is_second = if cache.0 > 0 { SECOND } else { 0 };
                self.world.notes.seen |= HIT | is_second;
                self.world.answer(key, (label, kind), value);
            }
            None => {
                self.world.notes.seen |= DETOUR;
                let notes = &mut self.world.notes;
                notes.add(|| format!("the cache node passes {label} on to the back end"));
                self.send_to_back_end(label);
            }
        }
    }

    fn expire(&mut self, key: usize) {
        self.world.left.expiries -= 1;
        let hash = self.setup.keys[key];
        self.world.back_end.edit().items.remove(&hash);
        let judge = &mut self.world.judges.edit()[key];
        judge.asked_once(Label::EVICTION, Kind::Delete);
        self.step_back_end(BackEndEvent::Changed(hash), None);
    }

    // ---- the network ----

    fn deliver(&mut self, index: usize, again: bool) {
        let parcel = match again {
            true => {
                self.world.left.duplicates -= 1;
                self.world.parcels[index].clone()
            }
            false => self.world.parcels.remove(index),
        };
        if parcel.is_to_cache {
            let event = CacheEvent::Message(BACK_END, &parcel.message);
            self.step_cache(parcel.cache, event, parcel.image);
        } else {
            let is_old = self.setup.has(TierDriverMutant::ReceivesByOldClock);
            let clock = is_old.then_some(self.world.back_end.clock_read);
            self.step_back_end(BackEndEvent::Message(parcel.cache, &parcel.message), clock);
        }
    }

    // ---- crashes ----

    fn crash_back_end(&mut self) {
        self.world.left.back_end_crashes -= 1;
        let node = self.world.back_end.edit();
        node.machine = None;
        node.results.clear();
        for stage in &mut self.world.operations {
            if *stage == Stage::Asked {
                *stage = Stage::Unknown;
            }
        }
    }

    fn restart_back_end(&mut self) {
        let now = self.world.now(0);
        let node = self.world.back_end.edit();
        node.incarnation += 1;
        node.machine = Some(self.setup.back_end(node.incarnation, now));
        let cache = node.cache;
        self.step_back_end(BackEndEvent::Assign(cache), None);
        self.join_group();
    }

    fn crash_cache(&mut self, cache: CacheId) {
        self.world.left.cache_crashes -= 1;
        let node = self.world.edit_cache(cache);
        node.machine = None;
        node.copies.clear();
    }

    fn restart_cache(&mut self, cache: CacheId) {
        let node = self.world.edit_cache(cache);
        node.incarnation += 1;
        node.machine = Some(self.setup.cache(node.incarnation));
        self.step_cache(cache, CacheEvent::Join(BACK_END), None);
    }
}
