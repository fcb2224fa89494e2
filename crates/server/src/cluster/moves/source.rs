//! Where keys were: they are looked for, sent, and dropped.

use curtail_codec::node::{self, BatchHead, Class, KeyMove, Part};
use curtail_consistency::placement::slice_of;
use curtail_dispatch::SharedState;
use curtail_types::{Cas, ItemStatus, Key, NodeId, RouteHash};

use super::{
    Away, BUCKETS_A_TURN, CLEAN_SCANS, KEY_PACE_NS, KEYS_A_TURN, PACE_SAVED_NS, Phase,
    UNDER_WAY_BYTES_MAX,
};
use crate::{
    cluster::{MoveAsked, NodeWorker, place::route_of},
    counts::Count,
    kit::Kit,
};

impl NodeWorker {
    /// Looks for keys that leave, and sends them.
    pub(super) fn scan(&mut self, kit: &mut Kit, next: Option<usize>, clean: u32, mut found: bool) {
        let earliest = self.now_ns.saturating_sub(PACE_SAVED_NS);
        self.mover.paced_ns = self.mover.paced_ns.max(earliest);
        for _ in 0..KEYS_A_TURN {
            if self.mover.paced_ns > self.now_ns {
                break;
            }
            let Some(key) = self.mover.found.pop_front() else {
                break;
            };
            match self.send_away(kit, &key) {
                Away::Sent | Away::Again => {
                    self.mover.paced_ns += KEY_PACE_NS;
                    found = true;
                }
                Away::Stays => {}
                Away::NoRoom => {
                    self.mover.held = true;
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
        let each = |key: Key<'_>, _: &ItemStatus| {
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
        if targets.into_iter().any(|node| self.is_busy_with(node)) {
            return Away::NoRoom;
        }
        let all = targets
            .into_iter()
            .all(|node| self.send_key(kit, node, route, key, false));
        if all { Away::Sent } else { Away::NoRoom }
    }

    /// Whether as much is on its way to a node as the scan may send.
    fn is_busy_with(&self, node: NodeId) -> bool {
        let to = self.links.endpoint(node);
        let bytes = to.map_or(0, |to| self.links.under_way(to, Class::LargeDemand));
        bytes > UNDER_WAY_BYTES_MAX
    }

    /// Sends what another node asks for, or that there is none.
    pub(super) fn give_away(&mut self, kit: &mut Kit, asked: MoveAsked) {
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

    /// Removes what this node does not hold any more.
    pub(super) fn sweep(&mut self, kit: &mut Kit, next: usize) {
        let Some(in_force) = self.in_force.clone() else {
            return;
        };
        let (me, workers, index) = (self.cluster.me, self.cluster.workers, self.index);
        let queue = &mut self.mover.found;
        let each = |key: Key<'_>, _: &ItemStatus| {
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

    /// A node asks for a key that it has become the home of.
    pub(in crate::cluster) fn take_move_request(&mut self, kit: &mut Kit, asked: MoveAsked) {
        let now = self.in_force.as_ref().map(|now| now.view.number);
        let may = !matches!(self.mover.phase, Phase::Waiting { .. }) && now >= Some(asked.view);
        if now < Some(asked.view)
            && let Some(incarnation) = self.links.incarnation(asked.node)
        {
            // Somebody waits for this node to know of it.
            self.cluster.heard(asked.node, incarnation, asked.view);
        }
        match may {
            true => self.give_away(kit, asked),
            false => self.mover.asked.push(asked),
        }
    }
}
