//! A key whose holders change because a node is added, removed or asked to leave.
//!
//! What decides is `consistency`'s `InForce`, as on a server; what is here is what the server's
//! workers do about it (its `node::migration` and `node::request_placement`), for one key and with
//! threads that may be slow to hear of a view:
//!
//! ```text
//!   Place      the view says where keys belong, and where they were
//!   Adopt      a node's threads begin to act on a view, but for the slow ones
//!   AllAct     all of them do: only now the node may send
//!   Scan       a source sends the key if it has it; it has ended when all has arrived
//!   Arrive     what it sent arrives, in order, once: links neither lose nor repeat moves
//!   Settle     all sources have ended: keys are where they belong
//!   Depart     a node that is to leave, and has nothing any more, does
//! ```

mod actions;
mod requests;

use curtail_consistency::membership;
use curtail_consistency::moves::{Arrived, Due, Duty, InForce, Leaving, Scan};
use curtail_consistency::symmetric::{Input, Visibility};
use curtail_types::{Cas, NodeId, ViewNumber};

use crate::mutants::DriverMutant;
use crate::outputs::Driver;
use crate::setup::{Setup, Witness};
use crate::world::{Content, Item, KEY, Label, Node, Parcel, World};

/// What a node has to do with the key while it moves.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Mover {
    /// The earliest view that a thread of it acts on.
    pub(crate) behind: ViewNumber,
    /// Requests that wait for the key, and what their sessions have seen.
    pub(crate) arrivals: Vec<(Label, Cas)>,
    /// What has come while the machine was not done with the key.
    pub(crate) late: Vec<Option<Item>>,
    /// The last version that is known to have been removed while the key was to come.
    pub(crate) gone: Cas,
    /// Its looking for the key under its view; `None` when that has ended.
    scan: Option<Scan>,
    /// The view under which all that it sent has arrived.
    ended: ViewNumber,
    /// It may have what it does not hold any more.
    is_unswept: bool,
}

/// The key, or that there is none, on its way.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Moving {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) view: ViewNumber,
    pub(crate) item: Option<Item>,
}

impl World {
    /// Who the members are, and may be next.
    fn members(&self, setup: &Setup) -> membership::Members {
        let mut members = membership::Members::NOBODY;
        members.view = self.newest();
        for node in members.view.followers() {
            let life = membership::Incarnation(1);
            members = members.with_incarnation(node, life);
        }
        members.leaving = setup.leaving().intersection(members.view.live);
        members
    }

    /// Whether `change` makes a difference now.
    pub(crate) fn may_change(&self, setup: &Setup, change: membership::Change) -> bool {
        let me = self.newest().live.first().unwrap_or_default();
        let next = self.members(setup).after(change, me, setup.replicas.into());
        next.is_some()
    }

    /// The next view, as the membership makes it.
    pub(crate) fn change_members(&mut self, setup: &Setup, change: membership::Change, by: NodeId) {
        let members = self.members(setup);
        // Where keys do not move, nobody comes in the place of a holder that goes.
        let replicas = if setup.moves() { setup.replicas } else { 1 };
        if let Some(next) = members.after(change, by, replicas.into()) {
            self.views.edit().push(next.view);
        }
    }

    /// Whether all who send keys have said that they have ended, under the views since the last
    /// that changed where keys are.
    pub(crate) fn may_settle(&self, setup: &Setup) -> bool {
        let view = self.newest();
        let ring = |number| {
            let view = self.view(number);
            (view.placed, view.placed_before)
        };
        let is_same = |number: &u32| ring(ViewNumber(*number)) == ring(view.number);
        let numbers = (1..=view.number.0).rev();
        let placement = numbers.take_while(is_same).last();
        let has_ended = |node: NodeId| Some(self.node(node).mover.ended.0) >= placement;
        let members = self.members(setup);
        view.moves() && members.sources().into_iter().all(has_ended)
    }

    /// Whether nothing that was sent to or by a node is on its way but what nobody awaits.
    fn has_arrived_from(&self, setup: &Setup, from: NodeId, blindly: bool) -> bool {
        let view = self.node(from).view;
        let mut others = self.view(view).live.without(from).into_iter();
        others.all(|to| {
            let reached = self.node(to).view;
            let sees = self.in_force(setup, reached).sees_end(view) == Due::Now;
            let is_under_way = |one: &Moving| (one.from, one.to) == (from, to);
            // What is of a view to come is kept back, which is no arrival.
            let is_held = |one: &Moving| blindly && one.view > reached;
            let mut moving = self.moving.iter().filter(|one| is_under_way(one));
            (sees || blindly) && moving.all(is_held)
        })
    }
}

impl Node {
    /// Whether the threads that are slow to hear of views have all heard of this one.
    pub(crate) fn all_act(&self) -> bool {
        self.mover.behind == self.view
    }

    /// What is known of the key, as those say it who decide about moves.
    fn visibility(&self) -> Visibility {
        self.state.unwrap_or(Visibility::Ordinary)
    }
}

impl Driver<'_> {
    /// Some thread may act on the view before this one for a while; what belonged elsewhere under
    /// that is swept out first.
    pub(crate) fn begin_moves(&mut self, at: NodeId, before: ViewNumber) {
        let slow = self.setup.slow_threads;
        let (from, now) = (self.in_force(before), self.in_force(self.view_of(at)));
        let node = self.world.edit(at);
        node.mover.behind = match (slow, node.mover.behind) {
            (true, ViewNumber(0)) | (false, _) => node.view,
            (true, behind) => behind,
        };
        let duty = now.duty(at, from.view.moves());
        let ends = duty == Duty::Sweeps;
        // Who sends the key to nobody finds nothing, whenever it looks.
        let looks = self.keeps_past || !now.targets(self.setup.route(), at).is_empty();
        node.mover.scan = (looks && duty == Duty::Sends).then(Scan::default);
        node.mover.is_unswept = ends;
        if !now.view.moves() {
            node.mover.gone = Cas(0);
        }
        if ends {
            self.world.see(Witness::Settled);
        }
        self.await_again(at);
    }

    /// Before a node comes to view `next`: what did not belong to it when an earlier move ended
    /// goes before keys move again, or it would be taken for what has arrived.
    pub(crate) fn end_last_move(&mut self, at: NodeId, next: ViewNumber) {
        let (last, next) = (self.in_force(self.view_of(at)), self.in_force(next));
        let node = self.world.node(at);
        if self.is(DriverMutant::SweepsNever) || !next.sweeps_first(&last, node.mover.is_unswept) {
            return;
        }
        let has_ended = next.has_ended(&last);
        let knows = node.machine.knows(KEY);
        if has_ended && knows {
            self.world.see(Witness::SettledUnseen);
            let place = last.place_in_the_end(self.setup.route());
            self.step(at, Input::Placed { key: KEY, place }, None);
        }
        self.world.edit(at).mover.is_unswept |= has_ended;
        self.sweep(at);
    }

    /// Requests that wait are looked at again: the key may be to come from elsewhere, or not at
    /// all.
    fn await_again(&mut self, at: NodeId) {
        let waiting = core::mem::take(&mut self.world.edit(at).mover.arrivals);
        for (label, after) in waiting {
            self.await_arrival(label, at, after);
        }
    }

    /// What is not to be here when all has moved goes.
    pub(crate) fn sweep(&mut self, at: NodeId) {
        let place = self
            .in_force(self.view_of(at))
            .place_in_the_end(self.setup.route());
        let keeps = place.holders.contains(at);
        let node = self.world.edit(at);
        if core::mem::take(&mut node.mover.is_unswept) && node.state.is_none() && !keeps {
            node.item = None;
        }
    }

    pub(crate) fn all_act(&mut self, at: NodeId) {
        let node = self.world.edit(at);
        node.mover.behind = node.view;
    }

    /// A source looks for the key, and sends it if it is there.
    pub(crate) fn scan(&mut self, at: NodeId) {
        let (in_force, key) = (self.in_force(self.view_of(at)), self.setup.route());
        let node = self.world.edit(at);
        let (mut scan, state) = (node.mover.scan.unwrap_or_default(), node.visibility());
        let takes_shown = self.mutant == Some(DriverMutant::TakesShownForSent);
        let leaving = match takes_shown && state == Visibility::Valid {
            true => Leaving::Stays,
            false => in_force.leaving(key, at, state),
        };
        let is_there = node.item.is_some();
        if let (true, Leaving::Goes(targets)) = (is_there, leaving) {
            for to in targets {
                self.give(at, to);
            }
            scan.note_sent();
        }
        self.world.edit(at).mover.scan = scan.again(&in_force);
    }

    /// Sends the key, or that there is none, to a node that is to have it.
    pub(crate) fn give(&mut self, from: NodeId, to: NodeId) {
        let in_force = self.in_force(self.view_of(from));
        let keeps = self.is(DriverMutant::KeepsWhatItSent) || !in_force.forgets_sent();
        let node = self.world.edit(from);
        let item = match keeps {
            true => node.item,
            false => node.item.take(),
        };
        let view = node.view;
        let link = (from, to);
        let behind = |other: &Moving| (other.from, other.to) <= link;
        let place = self.world.moving.partition_point(behind);
        let is_up = self.world.node(to).is_up;
        if !is_up && !keeps {
            // It dies with its home.
            self.evict();
        }
        if is_up {
            let moving = Moving {
                from,
                to,
                view,
                item,
            };
            self.world.moving.insert(place, moving);
        }
    }

    /// What nobody sees the difference of is done at once. Sources of which all that they sent has
    /// arrived, and been seen by everybody, have ended: to wait with that would make nothing
    /// possible, it only lets the whole move end. Who has nothing that does not belong to it has
    /// swept: in that view it gets nothing such any more, for what a hot key leaves goes with it.
    pub(crate) fn end_moves(&mut self) {
        let nodes = (0..self.world.nodes.len() as u8).map(NodeId);
        for at in nodes.filter(|_| self.setup.moves()) {
            if self.has_sent_all(at) {
                self.end_moves_of(at);
            }
            let node = self.world.node(at);
            if node.mover.is_unswept && node.late.is_empty() && !self.has_to_sweep(at) {
                self.world.edit(at).mover.is_unswept = false;
            }
        }
    }

    fn has_to_sweep(&self, at: NodeId) -> bool {
        let in_force = self.in_force(self.view_of(at));
        let holders = in_force.place_in_the_end(self.setup.route()).holders;
        let has_item = self.world.node(at).item.is_some();
        has_item && !holders.contains(at)
    }

    pub(crate) fn end_moves_of(&mut self, at: NodeId) {
        let node = self.world.edit(at);
        node.mover.ended = node.view;
    }

    pub(crate) fn has_sent_all(&self, at: NodeId) -> bool {
        let node = self.world.node(at);
        let acts = node.all_act() || self.is(DriverMutant::GivesWhileServing);
        let is_left = node.mover.scan.is_some() || node.mover.ended == node.view;
        // What came with the view is done before: every thread has begun a turn since.
        if !node.is_up || is_left || !acts || !node.late.is_empty() {
            return false;
        }
        let in_force = self.in_force(node.view);
        let route = self.setup.route();
        let leaving = in_force.leaving(route, at, node.visibility());
        let passes = leaving != Leaving::Later || self.is(DriverMutant::PassesUnsettled);
        let blindly = self.is(DriverMutant::EndsUnseen);
        in_force.duty(at, false) == Duty::Sends
            && passes
            && self.world.has_arrived_from(self.setup, at, blindly)
    }

    pub(crate) fn arrive(&mut self, index: usize) {
        let moving = self.world.moving.remove(index);
        let (key, at) = (self.setup.route(), moving.to);
        let in_force = self.in_force(self.view_of(at));
        let takes = in_force.takes(key, at, (moving.from, moving.view));
        if takes == Due::Never && !self.is(DriverMutant::TakesUnawaited) {
            return self.world.see(Witness::MoveRefused);
        }
        self.install(at, moving.item);
        let waiting = core::mem::take(&mut self.world.edit(at).mover.arrivals);
        for (label, after) in waiting {
            self.world.see(Witness::WaitedForKey);
            self.request(label, at, after);
        }
    }

    /// Puts in what has moved here, unless something later is here or was.
    fn install(&mut self, at: NodeId, item: Option<Item>) {
        let remembers = !self.is(DriverMutant::ForgetsRemoved);
        let node = self.world.edit(at);
        let Some(moved) = item else {
            return;
        };
        let (gone, knows) = (node.mover.gone, node.machine.knows(KEY));
        let removed = Some(gone).filter(|gone| remembers && *gone > Cas(0));
        let here = node.item.map(|item| item.ts);
        match InForce::arrived(moved.ts, here, removed, knows) {
            Arrived::Waits => node.mover.late.push(item),
            Arrived::IsOld => {}
            Arrived::IsNew => {
                node.item = Some(moved);
                self.world.see(Witness::KeyMoved);
            }
        }
    }

    /// The machine is done with the key: what has moved here is of use if it has nothing itself.
    pub(crate) fn take_late(&mut self, at: NodeId, is_gone: bool) {
        let late = &mut self.world.edit(at).mover.late;
        if !late.is_empty() {
            let item = late.remove(0);
            if is_gone {
                self.install(at, item);
            }
        }
    }

    /// What a machine or a request removed is not to come back by a move that is under way.
    pub(crate) fn note_gone(&mut self, at: NodeId, ts: Cas) {
        let in_force = self.in_force(self.view_of(at));
        if in_force.keeps_removed(self.setup.route(), at) {
            let node = self.world.edit(at);
            node.mover.gone = node.mover.gone.max(ts);
        }
    }

    /// A node asks for the key: it gets it, or hears that there is none.
    pub(crate) fn take_move_request(&mut self, parcel: Parcel, view: ViewNumber) {
        let in_force = self.in_force(self.view_of(parcel.to));
        let by = (parcel.from, view);
        // It would not have arrived before.
        let how = (true, Visibility::Ordinary);
        if in_force.gives(self.setup.route(), parcel.to, by, how) == Due::Now {
            self.give(parcel.to, parcel.from);
        }
    }

    pub(crate) fn ask_for(&mut self, at: NodeId, source: NodeId) {
        let view = self.view_of(at);
        self.send(Parcel::new((at, source), Content::MoveRequest(view)));
    }
}
