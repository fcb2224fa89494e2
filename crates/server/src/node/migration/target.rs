//! The target of a move: installs keys that arrive, and lets requests wait, each for its own key.

use curtail_codec::node::{BatchHead, Class, ItemRequest, KeyRequest, Part};
use curtail_consistency::{moves::Due, placement::slice_of};
use curtail_dispatch::SharedState;
use curtail_types::{Failure, Key, KeyName, NodeId, NodeSet, RouteHash};

use crate::{
    node::{
        NodeWorker,
        host::{NodeArrival, NodeContext},
        migration::Waiter,
        slice_jobs::{Job, Moved},
    },
    sync::Relaxed,
};

/// How long a request waits for its key. Who has it carried out by another node waits for longer.
const ARRIVAL_NS: u64 = 5_000_000_000;

impl NodeWorker {
    /// Leaves a request for a key that may not have arrived to the worker that sees to its slice.
    pub(in crate::node) fn give_waiter(&mut self, cx: &mut NodeContext<'_>, waiter: Waiter) {
        let owner = slice_of(waiter.key) % self.cluster.workers;
        if owner == self.index {
            self.await_arrival(cx, waiter);
        } else {
            cx.host.send(owner, NodeArrival::Waiter(Box::new(waiter)));
        }
    }

    /// Takes in what other nodes sent, or ask for, because keys move.
    pub(in crate::node) fn take_moves(&mut self, cx: &mut NodeContext<'_>) {
        let moved = std::mem::take(&mut self.inbox.moved);
        self.cluster.untaken.fetch_add(moved.len(), Relaxed);
        for moved in moved {
            let owner = slice_of(moved.route) % self.cluster.workers;
            if owner == self.index {
                self.take_moved(cx, moved);
            } else {
                cx.host.send(owner, NodeArrival::MovedKey(Box::new(moved)));
            }
        }
        for (route, ask) in std::mem::take(&mut self.inbox.move_requests) {
            let owner = slice_of(route) % self.cluster.workers;
            if owner == self.index {
                self.take_move_request(cx, ask);
            } else {
                cx.host.send(owner, NodeArrival::MoveAsked(Box::new(ask)));
            }
        }
        for proposal in std::mem::take(&mut self.inbox.proposals) {
            self.cluster
                .change_hot(cx.host, &proposal.key, proposal.hot);
        }
        for (from, news) in std::mem::take(&mut self.inbox.news) {
            self.take_news(cx, from, news);
        }
    }

    /// Runs a request for a key that may not have arrived, when it has.
    pub(in crate::node) fn await_arrival(&mut self, cx: &mut NodeContext<'_>, waiter: Waiter) {
        let Some(in_force) = self.in_force.clone() else {
            return self.fail(Failure::Unreachable, waiter.origin, waiter.bytes);
        };
        let key = waiter.key;
        let waits = self.mover.arrivals.contains_key(&key);
        let Some(name) = ItemRequest::decode(&waiter.bytes).map(|request| KeyName::of(request.key))
        else {
            return self.run_waiter(waiter);
        };
        let bytes = name.bytes();
        let hash = cx.store_cx.store.hash(bytes);
        let is_here = Key::new(bytes).is_ok_and(|key| cx.store_cx.version_of(key, hash).is_some());
        let is_shared = self.cluster.keys.look(key).state != SharedState::Ordinary;
        let denied = NodeSet::NONE;
        let Some(source) = in_force.asks(key, denied, (is_here, is_shared)) else {
            return self.run_waiter(waiter);
        };
        self.mover.arrivals.entry(key).or_default().push(waiter);
        if !waits {
            self.ask_for(source, key, bytes);
        }
    }

    pub(super) fn ask_for(&mut self, source: NodeId, route: RouteHash, bytes: &[u8]) {
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
    pub(in crate::node) fn take_moved(&mut self, cx: &NodeContext<'_>, moved: Moved) {
        let (key, me) = (moved.route, self.cluster.me);
        let in_force = self.in_force.as_ref();
        match in_force.map(|now| now.takes(key, me, (moved.from, moved.view))) {
            Some(Due::Now) if self.asks_another(&moved) => return self.cluster.note_taken(1),
            Some(Due::Now) => {
                self.give(slice_of(key), Job::Install(Box::new(moved)));
                self.cluster.note_taken(1);
            }
            Some(Due::Never) => return self.cluster.note_taken(1),
            Some(Due::Later) | None => {
                self.mover.early_bytes += moved.bytes();
                self.mover.early.push(moved);
                return self.hold_moves(cx);
            }
        }
        for waiter in self.mover.arrivals.remove(&key).into_iter().flatten() {
            self.run_waiter(waiter);
        }
    }

    /// A node has none of a key that is waited for: whether another may have it, and is asked.
    fn asks_another(&mut self, moved: &Moved) -> bool {
        let (key, waits) = (moved.route, self.mover.arrivals.contains_key(&moved.route));
        let Some(in_force) = self.in_force.as_ref().filter(|_| waits) else {
            return false;
        };
        let denied = self.mover.denied.entry(key).or_default();
        *denied = denied.with(moved.from);
        let another = in_force.asks(key, *denied, (moved.image.is_some(), false));
        match another {
            Some(source) => self.ask_for(source, key, moved.key()),
            None => drop(self.mover.denied.remove(&key)),
        }
        another.is_some()
    }

    /// Refuses what has waited for too long: where its key was may have stopped without a word, and
    /// is missed a lease later, which may be a minute. It had no effect, and who asks again asks
    /// for the key again.
    pub(in crate::node) fn end_waiting(&mut self) {
        let begun_ns = self.now_ns.saturating_sub(ARRIVAL_NS);
        let mut late: Vec<Waiter> = Vec::new();
        self.mover.arrivals.retain(|_, waiters| {
            late.extend(waiters.extract_if(.., |waiter| waiter.begun_ns < begun_ns));
            !waiters.is_empty()
        });
        for waiter in late {
            self.fail(Failure::NotArrived, waiter.origin, waiter.bytes);
        }
    }

    pub(in crate::node) fn run_waiter(&mut self, waiter: Waiter) {
        let Waiter {
            origin,
            key,
            access,
            after,
            bytes,
            ..
        } = waiter;
        self.give_request(origin, key, (access, after), bytes);
    }
}
