//! Items that move when nodes come and go.
//!
//! While keys move, whoever held a key before pushes its item to each new holder: the lowest live
//! one of the old holders does, once it follows the new view and its machine is done with the key:
//! some time later, as if it had many, or at once if the new home asks for it, or is sent a request
//! for it. If none of them lives, all new holders do that for each other. A new home lets requests
//! wait until then. With one holder the source forgets what it
//! sends at once: the new home writes, and if it dies the old item must not come back.

use curtail_consistency::{membership, moves::InForce, symmetric::Input};
use curtail_types::{NodeId, NodeSet, View, ViewNumber};
use curtail_workload::mix;

use super::{Node, Packet};
use crate::cluster::{mutant::Mutant, packet::Item};

/// What a node has, awaits and gives away.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    /// Of each key: whether its item, or that there is none, is here.
    has: Vec<bool>,
    /// Of each key: who may still have it for this node.
    awaited: Vec<NodeSet>,
    pushes: Vec<Push>,
    /// Items that came while the machine was not done with their keys, and from whom.
    early: Vec<(NodeId, usize, Item)>,
    /// Whether the others have been told that nothing is left to push.
    pub(super) told: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Push {
    key: usize,
    to: NodeId,
    is_sent: bool,
    /// The other node asks for it.
    is_wanted: bool,
    /// When it is its turn, in the world's time; 0 once it is.
    due: u64,
}

impl Push {
    fn new(key: usize, to: NodeId, due: u64) -> Self {
        Self {
            key,
            to,
            is_sent: false,
            is_wanted: false,
            due,
        }
    }
}

impl Moves {
    pub(super) fn new(keys: usize) -> Self {
        Self {
            has: vec![false; keys],
            awaited: vec![NodeSet::NONE; keys],
            pushes: Vec::new(),
            early: Vec::new(),
            told: true,
        }
    }

    /// Whether the key's item is on its way to this node.
    pub(super) fn is_awaited(&self, key: usize) -> bool {
        !self.awaited[key].is_empty()
    }

    /// When the next item is to be pushed that waits for its turn.
    pub(super) fn due(&self) -> Option<u64> {
        let dues = self.pushes.iter().map(|push| push.due);
        dues.filter(|due| *due > 0).min()
    }

    /// Whether nothing is awaited and nothing is left to push.
    pub(super) fn is_over(&self) -> bool {
        self.told && self.awaited.iter().all(|from| from.is_empty())
    }
}

impl Node<'_> {
    /// A view is about to come into force, of a move whose beginning this node has not seen: the
    /// last one has ended, unheard. What did not belong here then has missed writes, and must not
    /// be taken for what arrives. With one holder nothing is left behind, but what is not sent.
    pub(super) fn end_last_move(&mut self, next: Option<&InForce>) {
        let (Some(last), Some(next)) = (self.in_force.clone(), next) else {
            return;
        };
        if !next.has_ended(&last) {
            return;
        }
        self.moves.pushes.clear();
        for key in 0..self.items.len() {
            let place = last.place_in_the_end(self.keys.route(key));
            let belongs = place.holders.contains(self.me);
            self.moves.has[key] = belongs;
            self.moves.awaited[key] = NodeSet::NONE;
            if belongs {
                continue;
            }
            if self.machine_knows(key) {
                let route = self.keys.route(key);
                self.tell(key, Input::Placed { key: route, place });
            } else {
                self.forget_item(key);
            }
        }
    }

    /// Whether the key's item is on its way to this node.
    pub(super) fn is_awaited(&self, key: usize) -> bool {
        self.moves.is_awaited(key) && self.run.mutant != Some(Mutant::Unmoved)
    }

    /// A view is in force: what has to move under it?
    pub(super) fn plan_moves(&mut self, before: &View) {
        let view = self.view;
        self.moves.pushes.clear();
        let early = std::mem::take(&mut self.moves.early);
        let awaited = |(from, key, _): &(NodeId, usize, Item)| self.may_come(*from, *key);
        self.moves.early = early.into_iter().filter(awaited).collect();
        self.moves.told = !view.moves();
        let new_ring = before.placed != view.placed || before.placed_before != view.placed_before;
        for key in 0..self.items.len() {
            let after = self.keys.place(key, view.placed).holders;
            let named = self.keys.place(key, view.placed_before).holders;
            let mine = after.contains(self.me);
            self.trace(key, || {
                let item = self.items[key];
                format!("under {view:?} at {after:?}, from {named:?}; {item:?} is here")
            });
            if !view.moves() {
                self.moves.has[key] = mine;
                self.moves.awaited[key] = NodeSet::NONE;
                if !mine && self.index[key].is_none() && new_ring {
                    self.forget_item(key);
                }
                continue;
            }
            let comes = self.comes_from(key);
            self.moves.has[key] |= named.contains(self.me) || (mine && comes.is_empty());
            self.moves.awaited[key] = match self.moves.has[key] || self.index[key].is_some() {
                true => NodeSet::NONE,
                false => comes,
            };
            self.plan_pushes(key);
        }
    }

    /// The nodes that a key's item may still have to come from.
    fn comes_from(&self, key: usize) -> NodeSet {
        let others = self.view.live.into_iter();
        others.filter(|from| self.may_come(*from, key)).collect()
    }

    /// The nodes that a key's item is to be sent to.
    fn targets(&self, key: usize) -> NodeSet {
        let now = self.in_force.as_ref();
        now.map_or(NodeSet::NONE, |now| {
            now.targets(self.keys.route(key), self.me)
        })
    }

    /// Asks who may have a key's item: one after the other, if nobody is certain to.
    pub(super) fn ask_for_item(&mut self, key: usize) {
        let (view, route) = (self.view.number, self.keys.route(key));
        let awaited = self.moves.awaited[key];
        let Some(now) = &self.in_force else {
            return;
        };
        let denied = match now.is_bereft(route) {
            true => now.sources(route).difference(awaited),
            false => NodeSet::NONE,
        };
        if let Some(source) = now.asks(route, denied, (false, false)) {
            self.send(source, Packet::Wanted { key, view });
        }
    }

    /// Whether a key's item may still have to come from there: as long as the move goes on that it
    /// was sent for, whatever views come meanwhile.
    fn may_come(&self, from: NodeId, key: usize) -> bool {
        let now = self.in_force.as_ref();
        now.is_some_and(|now| now.awaits(self.keys.route(key), from, self.me))
    }

    /// Whether an item stays here that the machine does not look after any more.
    pub(super) fn keeps(&self, key: usize) -> bool {
        let pushed = self.moves.pushes.iter().any(|push| push.key == key);
        let leaves = pushed && self.run.mutant != Some(Mutant::SourceForgets);
        leaves || self.places[key].holders.contains(self.me)
    }

    /// What the machine had of the key is worth nothing: the key has still to come from those who
    /// held it before, if somebody does.
    pub(super) fn await_again(&mut self, key: usize) {
        let comes = self.comes_from(key);
        if !comes.is_empty() {
            self.moves.has[key] = false;
            self.moves.awaited[key] = comes;
        }
    }

    /// Half of them at once, as if they were found first.
    fn plan_pushes(&mut self, key: usize) {
        let drawn = mix(self.now ^ mix(key as u64) ^ self.clock.instant(self.now).ns);
        let due = match drawn.is_multiple_of(2) {
            true => 0,
            false => self.now + drawn % LATEST_NS,
        };
        let targets = self.targets(key).into_iter();
        let pushes = targets.map(|to| Push::new(key, to, due));
        self.moves.pushes.extend(pushes);
    }

    /// Another node waits for a key of which this one has the item, or knows that there is none.
    pub(super) fn wanted(&mut self, to: NodeId, key: usize) {
        if !self.targets(key).contains(to) {
            return;
        }
        let planned = |push: &&mut Push| (push.key, push.to) == (key, to);
        match self.moves.pushes.iter_mut().find(planned) {
            Some(push) => (push.is_wanted, push.due) = (true, 0),
            None => self.moves.pushes.push(Push {
                is_wanted: true,
                ..Push::new(key, to, 0)
            }),
        }
        self.moves.told = false;
    }

    /// Sends a key along with a request for it, ahead of it.
    pub(super) fn send_ahead(&mut self, key: usize, to: NodeId) {
        let found = |push: &Push| (push.key, push.to, push.is_sent) == (key, to, false);
        if self.run.replicas == 1
            && let Some(index) = self.moves.pushes.iter().position(found)
            && !self.is_busy(key)
        {
            self.push(index);
        }
    }

    /// Whether the machine is not done with the key.
    fn is_busy(&self, key: usize) -> bool {
        self.index[key].is_some() || self.machine_knows(key)
    }

    /// Sends an item to where it belongs.
    fn push(&mut self, index: usize) {
        let Push { key, to, .. } = self.moves.pushes[index];
        self.moves.pushes[index].is_sent = true;
        self.moves.pushes[index].due = 0;
        let (view, item) = (self.view.number, self.items[key]);
        self.trace(key, || format!("moves {item:?} to {to:?}"));
        self.send(to, Packet::Move { key, view, item });
        let here = self.places[key].holders.contains(self.me);
        if self.run.replicas == 1 && !here && self.index[key].is_none() {
            self.forget_item(key);
        }
    }

    /// Takes in what came too early, sends what can be sent, and says so when nothing is left.
    pub(in crate::cluster) fn settle(&mut self) {
        for (from, key, item) in std::mem::take(&mut self.moves.early) {
            let view = self.view.number;
            self.moved_in(from, (key, view, item));
        }
        if self.moves.told {
            return;
        }
        // A key that every node answers for is everywhere. With several holders this may be its
        // home, which shows it while the others are only being told.
        let (index, is_alone) = (&self.index, self.run.replicas == 1);
        let is_everywhere = |push: &Push| is_alone && index[push.key] == Some(true);
        (self.moves.pushes).retain(|push| push.is_wanted || !is_everywhere(push));
        let view = self.view.number;
        for index in 0..self.moves.pushes.len() {
            let Push {
                key, is_sent, due, ..
            } = self.moves.pushes[index];
            if due > self.now {
                continue;
            }
            self.moves.pushes[index].due = 0;
            let is_shown = self.run.replicas > 1 && self.index[key] == Some(true);
            if !is_sent && (is_shown || !self.is_busy(key)) {
                self.push(index);
            }
        }
        let (index, pushes) = (&self.index, &self.moves.pushes);
        let is_everywhere = |push: &Push| self.run.replicas == 1 && index[push.key] == Some(true);
        if pushes.iter().all(is_everywhere) {
            self.moves.told = true;
            if self.tell_moves_done() {
                let from = self.me;
                self.member(membership::Input::MovesDone { from, view });
            }
        }
    }

    /// Says that all has been sent, if this node had something to send; whether it had.
    pub(super) fn tell_moves_done(&mut self) -> bool {
        let is_source = self.moves.told && self.view.sources().contains(self.me);
        if is_source {
            let view = self.view.number;
            for to in self.view.live.without(self.me) {
                self.send(to, Packet::MovesDone { view });
            }
        }
        is_source
    }

    /// An item arrived from one of its old holders.
    pub(super) fn moved_in(&mut self, from: NodeId, (key, view, item): (usize, ViewNumber, Item)) {
        self.observe(item.version);
        let known = self.index[key].is_some() || self.machine_knows(key);
        if known && self.index[key] != Some(true) && self.may_come(from, key) {
            // The machine may yet come to the end that what it has is worth nothing, and who sent
            // it, maybe under the view before, has it no more.
            return self.moves.early.push((from, key, item));
        }
        let others = self.moves.awaited[key].without(from);
        // Who sent it may be gone: then all new holders take it for lost, or none.
        let comes = self.may_come(from, key);
        let awaited = comes && std::mem::take(&mut self.moves.awaited[key]) != NodeSet::NONE;
        let now = self.in_force.as_ref();
        let is_bereft = now.is_some_and(|now| now.is_bereft(self.keys.route(key)));
        if awaited && is_bereft && item.value.is_none() {
            self.moves.awaited[key] = others;
        }
        // What nobody waits for any more may come late, from a life of its sender that is over.
        if awaited && !known && item.version > self.items[key].version {
            self.items[key] = item;
            self.note_deleted(key);
        }
        self.trace(key, || {
            format!("{item:?} moved here, awaited {awaited}, known {known}")
        });
        let is_there = awaited && !self.moves.is_awaited(key);
        self.moves.has[key] |= is_there;
        self.send(from, Packet::Moved { key, view });
        if is_there {
            self.resume(key);
        } else if awaited && self.waits_for_item(key) {
            self.ask_for_item(key);
        }
    }

    /// It is where it belongs.
    pub(super) fn moved_out(&mut self, from: NodeId, key: usize, view: ViewNumber) {
        if view != self.view.number {
            return;
        }
        self.moves
            .pushes
            .retain(|push| (push.key, push.to) != (key, from));
    }
}

/// The latest that an item is sent, if nobody asks for it.
const LATEST_NS: u64 = 4_000_000;
