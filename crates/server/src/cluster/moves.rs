//! Keys on their way to their new holders, while reads and writes go on.
//!
//! ```text
//!   old holder (source)                          new home
//!   every thread acts on the new view            a request for a key that may still be there:
//!   scan: each key that leaves ---- Move ----->    install if newer --+
//!         <------------------ MoveRequest ------   waits <------------+
//!   the key, or that there is none -- Move --->    install, run what waited
//! ```
//!
//! A key is waited for by itself: nobody waits for the whole move. The source of a key is the first
//! of its old holders that lives. With one holder the source drops a key as it sends it, so there
//! is never an old copy to come back to; with several, the old holders take part in every write
//! until all has moved, and drop theirs then.
//!
//! Invariant: what moves out of a slice and what asks for it go through the one worker that sees to
//! the slice, on either side. All that moves, and the end of it, goes over one connection between
//! them, the one for large items: so the answer "there is none" is never faster than the key.

use std::collections::{HashMap, VecDeque};

use curtail_codec::{
    memcached::{Carried, KeyScratch},
    node::{self, BatchHead, Class, KeyMove, KeyRequest, Part},
};
use curtail_consistency::{placement::slice_of, symmetric::Access};
use curtail_dispatch::SharedState;
use curtail_types::{Cas, Key, NodeId, NodeSet, RouteHash};

use super::{
    MoveAsked, NodeWorker,
    jobs::{Job, Moved, Origin},
    place::route_of,
    reports::News,
};
use crate::{counts::Count, kit::Kit};

/// What a worker has to do with keys that move.
#[derive(Debug, Default)]
pub(super) struct Mover {
    phase: Phase,
    /// Keys found and not sent yet.
    found: VecDeque<Box<[u8]>>,
    /// Requests for keys that have not arrived.
    arrivals: HashMap<RouteHash, Vec<Waiter>>,
    /// Keys that other nodes ask for before this one may give them away.
    asked: Vec<MoveAsked>,
    /// Nodes that have not seen the end of what was sent.
    unseen: NodeSet,
    /// Keys of a view that this node has not come to.
    early: Vec<Moved>,
}

/// How far this worker is with its slices under the view in force.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Phase {
    /// There is nothing to move.
    #[default]
    Idle,
    /// Some thread may still act on the view before.
    Waiting { mark: u64 },
    /// Looking for keys that leave, from this bucket on; all have been looked at if there is none.
    Scanning {
        next: Option<usize>,
        clean: u32,
        found: bool,
    },
    /// All is sent.
    Sent,
    /// All has been taken in.
    Done,
    /// Looking for what does not belong here any more.
    Sweeping { next: usize },
}

impl Phase {
    const FIRST_SCAN: Self = Self::Scanning {
        next: Some(0),
        clean: 0,
        found: false,
    };
}

/// What became of a key that is to leave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Away {
    Sent,
    /// It need not leave.
    Stays,
    /// It is looked at again later.
    Again,
    /// So is this one, at once: links are full.
    NoRoom,
}

/// A request for a key that has not arrived.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) origin: Origin,
    pub(super) key: RouteHash,
    pub(super) access: Access,
    pub(super) after: Cas,
    pub(super) bytes: Vec<u8>,
}

/// Buckets that are looked at in one turn.
const BUCKETS_A_TURN: usize = 32;

/// Keys that are sent in one turn.
const KEYS_A_TURN: usize = 64;

/// Scans in a row that found nothing: an item that is displaced while a scan runs may slip by it.
const CLEAN_SCANS: u32 = 2;

impl NodeWorker {
    /// Another view is in force.
    pub(super) fn begin_moves(&mut self, kit: &mut Kit) {
        let Some(in_force) = self.in_force.clone() else {
            let mover = std::mem::take(&mut self.mover);
            for waiter in mover.arrivals.into_values().flatten() {
                self.refuse(waiter.origin, waiter.bytes);
            }
            return;
        };
        let view = &in_force.view;
        let is_source = view.moves() && view.placed_before.contains(self.cluster.me);
        let swept = self.mover.phase != Phase::Idle && !view.moves();
        self.mover.found.clear();
        self.mover.phase = match (is_source, swept) {
            (true, _) => Phase::Waiting {
                mark: self.cluster.marks.set(),
            },
            (false, true) => Phase::Sweeping { next: 0 },
            (false, false) => Phase::Idle,
        };
        let waiters = std::mem::take(&mut self.mover.arrivals);
        for waiter in waiters.into_values().flatten() {
            self.await_arrival(kit, waiter);
        }
        for moved in std::mem::take(&mut self.mover.early) {
            self.take_moved(moved);
        }
    }

    /// Whether there is something to do for moves at once.
    pub(super) fn is_moving(&self) -> bool {
        !matches!(self.mover.phase, Phase::Idle | Phase::Done | Phase::Sent)
    }

    /// A bounded part of the moves.
    pub(super) fn move_some(&mut self, kit: &mut Kit) {
        match self.mover.phase {
            Phase::Idle | Phase::Done | Phase::Sent => {}
            Phase::Waiting { mark } => {
                if self.cluster.marks.is_passed(mark) {
                    self.mover.phase = Phase::FIRST_SCAN;
                    for asked in std::mem::take(&mut self.mover.asked) {
                        self.take_move_request(kit, asked);
                    }
                }
            }
            Phase::Scanning { next, clean, found } => self.scan(kit, next, clean, found),
            Phase::Sweeping { next } => self.sweep(kit, next),
        }
    }

    /// Looks for keys that leave, and sends them.
    fn scan(&mut self, kit: &mut Kit, next: Option<usize>, clean: u32, mut found: bool) {
        for _ in 0..KEYS_A_TURN {
            let Some(key) = self.mover.found.pop_front() else {
                break;
            };
            match self.send_away(kit, &key) {
                Away::Sent | Away::Again => found = true,
                Away::Stays => {}
                Away::NoRoom => {
                    self.mover.found.push_front(key);
                    break;
                }
            }
        }
        if !self.mover.found.is_empty() {
            self.mover.phase = Phase::Scanning { next, clean, found };
            return;
        }
        self.mover.phase = match next {
            Some(next) => Phase::Scanning {
                next: self.look_for_leavers(kit, next),
                clean,
                found,
            },
            // With several holders keys stay here, so they are found again and again.
            None if found && self.cluster.replicas == 1 => Phase::FIRST_SCAN,
            None if clean + 1 < CLEAN_SCANS => Phase::Scanning {
                next: Some(0),
                clean: clean + 1,
                found: false,
            },
            None => {
                self.end_moves();
                Phase::Sent
            }
        };
    }

    /// Finds the keys of a few buckets that leave, and says where to go on.
    fn look_for_leavers(&mut self, kit: &mut Kit, next: usize) -> Option<usize> {
        let in_force = self.in_force.clone()?;
        let (me, workers, index) = (self.cluster.me, self.cluster.workers, self.index);
        let queue = &mut self.mover.found;
        let each = |key: Key<'_>, _: &curtail_types::ItemStatus| {
            let route = route_of(key.bytes());
            let leaves = in_force.targets(route, me);
            if slice_of(route) % workers == index && !leaves.is_empty() {
                queue.push_back(key.bytes().into());
            }
        };
        let store = &kit.store;
        store.list(&mut kit.writer, kit.now, next, BUCKETS_A_TURN, each)
    }

    /// Sends a key to its new holders.
    fn send_away(&mut self, kit: &mut Kit, key: &[u8]) -> Away {
        let Some(in_force) = self.in_force.clone() else {
            return Away::Stays;
        };
        let route = route_of(key);
        if self.cluster.keys.look(route).state != SharedState::Ordinary {
            // A hot key is everywhere already. One that is about to be is not, and will not be: its
            // home is another.
            let slice = self.cluster.slices.get(slice_of(route));
            return match slice.is_some_and(|slice| slice.is_preparing(route)) {
                true => Away::Again,
                false => Away::Stays,
            };
        }
        let targets = in_force.targets(route, self.cluster.me);
        let all = targets
            .into_iter()
            .all(|node| self.send_key(kit, node, route, key, false));
        if all { Away::Sent } else { Away::NoRoom }
    }

    /// Sends what another node asks for, or that there is none.
    fn give_away(&mut self, kit: &mut Kit, asked: MoveAsked) {
        let (route, me) = (route_of(&asked.key), self.cluster.me);
        let targets = self.in_force.as_ref().map(|now| now.targets(route, me));
        if !targets.is_some_and(|targets| targets.contains(asked.node)) {
            // It asked under a view that is over, and asks again, if need be, under its next.
            return;
        }
        if !self.send_key(kit, asked.node, route, &asked.key, true) {
            self.mover.asked.push(asked);
        }
    }

    fn send_key(
        &mut self,
        kit: &mut Kit,
        node: NodeId,
        route: RouteHash,
        bytes: &[u8],
        even_none: bool,
    ) -> bool {
        let (Ok(key), Some(in_force)) = (Key::new(bytes), &self.in_force) else {
            return true;
        };
        let hash = kit.store.hash(bytes);
        let taken = self.bench.take_image(kit, key, hash);
        if taken.is_none() && !even_none {
            return true;
        }
        let image = taken.map(|(image, value)| node::Image {
            client_flags: image.flags,
            expiry: image.expiry,
            stale: image.stale,
            won: image.won,
            value,
        });
        let head = BatchHead {
            number: 0,
            view: in_force.view.number,
        };
        let part = Part::Move(
            head,
            KeyMove {
                route,
                ts: taken.map_or(Cas(0), |(image, _)| image.cas),
                key,
                image,
            },
        );
        let Some(to) = self.links.endpoint(node) else {
            return false;
        };
        let sent = self.links.send(to, Class::LargeDemand, &part).is_ok();
        kit.counts
            .add(Count::ClusterKeysSent, u64::from(sent && !even_none));
        if sent && self.cluster.replicas == 1 {
            kit.remove(key, hash);
        }
        sent
    }

    /// Tells everybody that nothing more comes from this worker's slices.
    fn end_moves(&mut self) {
        let Some(in_force) = self.in_force.clone() else {
            return;
        };
        let others = in_force.view.live.without(self.cluster.me);
        self.mover.unseen = others;
        let news = News::MovesEnd {
            view: in_force.view.number,
            worker: self.index as u16,
        };
        for node in others {
            self.tell(node, news);
        }
        self.note_seen(NodeSet::NONE);
    }

    /// Tells a node; it is told again if there is no room now.
    pub(super) fn tell(&mut self, node: NodeId, news: News) {
        let sent = self.links.endpoint(node).is_some_and(|to| {
            let bytes = news.to_bytes();
            let class = match news {
                News::MovesEnd { .. } => Class::LargeDemand,
                _ => Class::Demand,
            };
            self.links.send(to, class, &Part::Report(&bytes)).is_ok()
        });
        if !sent {
            self.untold.push((node, news));
        }
    }

    pub(super) fn take_news(&mut self, from: NodeId, news: News) {
        let now = self.in_force.as_ref().map(|now| now.view.number);
        match news {
            News::MovesEnd { view, worker } => {
                self.tell(from, News::MovesSeen { view, worker });
            }
            News::MovesSeen { view, worker } => {
                if now == Some(view) && usize::from(worker) == self.index {
                    self.note_seen(NodeSet::only(from));
                }
            }
            News::MovesDone { view } => self.cluster.moves_done(from, view),
            News::Filled { view } => self.cluster.note_filled(from, view),
            News::Beat { view } => {
                if let Some(incarnation) = self.links.incarnation(from) {
                    self.cluster.heard(from, incarnation, view);
                }
            }
        }
    }

    fn note_seen(&mut self, by: NodeSet) {
        self.mover.unseen = self.mover.unseen.difference(by);
        let Some(in_force) = self.in_force.clone() else {
            return;
        };
        if !self.mover.unseen.is_empty() || self.mover.phase == Phase::Done {
            return;
        }
        self.mover.phase = Phase::Done;
        let view = in_force.view.number;
        if self.cluster.worker_has_moved(view) {
            self.cluster.moves_done(self.cluster.me, view);
            for node in in_force.view.followers().without(self.cluster.me) {
                self.tell(node, News::MovesDone { view });
            }
        }
    }

    /// Removes what this node does not hold any more.
    fn sweep(&mut self, kit: &mut Kit, next: usize) {
        let Some(in_force) = self.in_force.clone() else {
            return;
        };
        let (me, workers, index) = (self.cluster.me, self.cluster.workers, self.index);
        let queue = &mut self.mover.found;
        let each = |key: Key<'_>, _: &curtail_types::ItemStatus| {
            let route = route_of(key.bytes());
            if slice_of(route) % workers == index && !in_force.holders(route).contains(me) {
                queue.push_back(key.bytes().into());
            }
        };
        let store = &kit.store;
        let after = store.list(&mut kit.writer, kit.now, next, BUCKETS_A_TURN, each);
        for bytes in std::mem::take(&mut self.mover.found) {
            let is_ordinary =
                self.cluster.keys.look(route_of(&bytes)).state == SharedState::Ordinary;
            if let (Ok(key), true) = (Key::new(&bytes), is_ordinary) {
                let hash = kit.store.hash(&bytes);
                kit.remove(key, hash);
            }
        }
        self.mover.phase = match after {
            Some(next) => Phase::Sweeping { next },
            None => Phase::Idle,
        };
    }

    // ---- at the new home ----

    /// Runs a request for a key that may not have arrived, when it has.
    pub(super) fn await_arrival(&mut self, kit: &mut Kit, waiter: Waiter) {
        let Some(in_force) = self.in_force.clone() else {
            return;
        };
        let key = waiter.key;
        let source = in_force.sources(key).first();
        let waits = self.mover.arrivals.contains_key(&key);
        let mut scratch = KeyScratch::default();
        let bytes = Carried::read(&waiter.bytes)
            .map(|(carried, _)| carried.resolve(&mut scratch).bytes().to_vec());
        let (Some(source), Some(bytes)) = (source, bytes) else {
            return self.run_waiter(waiter);
        };
        let hash = kit.store.hash(&bytes);
        let is_here = Key::new(&bytes).is_ok_and(|key| kit.version_of(key, hash).is_some());
        let is_ordinary = self.cluster.keys.look(key).state == SharedState::Ordinary;
        if is_here || !is_ordinary {
            return self.run_waiter(waiter);
        }
        self.mover.arrivals.entry(key).or_default().push(waiter);
        if !waits {
            self.ask_for(source, key, &bytes);
        }
    }

    fn ask_for(&mut self, source: NodeId, route: RouteHash, bytes: &[u8]) {
        let (Ok(key), Some(in_force)) = (Key::new(bytes), &self.in_force) else {
            return;
        };
        let head = BatchHead {
            number: 0,
            view: in_force.view.number,
        };
        let part = Part::MoveRequest(head, KeyRequest { route, key });
        let to = self.links.endpoint(source);
        if to.is_none_or(|to| self.links.send(to, Class::Demand, &part).is_err()) {
            self.unasked.push((source, route, bytes.into()));
        }
    }

    /// A key is here, or is known to be nowhere: what waited for it goes to its machine, behind it.
    pub(super) fn take_moved(&mut self, moved: Moved) {
        let view = self.in_force.as_ref().map(|now| now.view);
        let view = view.unwrap_or_default();
        if moved.view > view.number {
            return self.mover.early.push(moved);
        }
        // The view may have changed since it was sent, which has nothing to do with this key: who
        // had it has it no more. But what nobody awaits may have been given up, and written anew.
        let (key, me) = (moved.route, self.cluster.me);
        let in_force = self.in_force.as_ref();
        if !in_force.is_some_and(|now| now.awaits(key, moved.from, me)) {
            return;
        }
        self.give(slice_of(key), Job::Install(Box::new(moved)));
        for waiter in self.mover.arrivals.remove(&key).into_iter().flatten() {
            self.run_waiter(waiter);
        }
    }

    pub(super) fn run_waiter(&mut self, waiter: Waiter) {
        let Waiter {
            origin,
            key,
            access,
            after,
            bytes,
        } = waiter;
        self.give_request(origin, key, (access, after), bytes);
    }

    /// A node asks for a key that it has become the home of.
    pub(super) fn take_move_request(&mut self, kit: &mut Kit, asked: MoveAsked) {
        let now = self.in_force.as_ref().map(|now| now.view.number);
        let may = !matches!(self.mover.phase, Phase::Waiting { .. }) && now >= Some(asked.view);
        match may {
            true => self.give_away(kit, asked),
            false => self.mover.asked.push(asked),
        }
    }

    /// Says again what found no room.
    pub(super) fn tell_again(&mut self, kit: &mut Kit) {
        for (node, news) in std::mem::take(&mut self.untold) {
            self.tell(node, news);
        }
        for (source, route, key) in std::mem::take(&mut self.unasked) {
            self.ask_for(source, route, &key);
        }
        for asked in std::mem::take(&mut self.mover.asked) {
            self.take_move_request(kit, asked);
        }
    }
}
