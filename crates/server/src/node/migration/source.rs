//! The source of a move: finds the keys that leave, sends them, and drops them.

use curtail_codec::node::{self, BatchHead, Class, KeyMove, Part};
use curtail_consistency::{
    moves::{CLEAN_SCANS, Due, Leaving, Scan},
    placement::slice_of,
};
use curtail_dispatch::{Seen, SharedState};
use curtail_links::{Links, SendError};
use curtail_types::{Cas, Key, NodeId, RouteHash, ViewNumber};

use crate::{
    limits::{BUCKETS_PER_STEP, MIGRATING_BYTES_MAX},
    metrics::counters::Count,
    node::{
        InForce, MoveAsked, NodeWorker,
        host::NodeContext,
        migration::{Departure, Phase, visibility_of},
        request_placement::route_of,
    },
    test_faults::Fault,
};

/// Keys, with their hashes.
type Keys = Vec<(RouteHash, Box<[u8]>)>;

impl NodeWorker {
    /// Sends the next key that leaves, or looks for more; whether there is more to do now.
    pub(super) fn scan(
        &mut self,
        cx: &mut NodeContext<'_>,
        next: Option<usize>,
        mut scan: Scan,
    ) -> bool {
        if cx.host.has(Fault::OffersNothing) {
            return false;
        }
        if let Some(key) = self.mover.found.pop_front() {
            let away = self.send_away(cx, &key);
            match away {
                Departure::Sent => scan.note_sent(),
                Departure::Stays | Departure::Unfit => {}
                Departure::Unsettled => self.mover.unsettled.push_back(key),
                Departure::NoRoom => {
                    self.mover.held = true;
                    self.mover.found.push_front(key);
                    cx.counts.add(Count::ClusterMovesHeld, 1);
                    return false;
                }
            }
            self.mover.phase = Phase::Scanning { next, scan };
            return true;
        }
        if next.is_none() && !self.mover.unsettled.is_empty() {
            // Each is looked at until it is settled once; a scan might find another that is not
            // every time.
            std::mem::swap(&mut self.mover.found, &mut self.mover.unsettled);
            return false;
        }
        if let Some(next) = next {
            let next = self.look_for_leavers(cx, next);
            self.mover.phase = Phase::Scanning { next, scan };
            return true;
        }
        let again = self.in_force.as_ref().and_then(|now| scan.again(now));
        if again.is_none() {
            self.end_moves();
        }
        self.mover.phase = again.map_or(Phase::Sent, |scan| Phase::Scanning {
            next: Some(0),
            scan,
        });
        true
    }

    /// Finds the keys of a few buckets that leave, and says where to go on.
    fn look_for_leavers(&mut self, cx: &NodeContext<'_>, next: usize) -> Option<usize> {
        let in_force = self.in_force.clone()?;
        let (me, workers, index) = (self.cluster.me, self.cluster.workers, self.index);
        let queue = &mut self.mover.found;
        cx.store_cx.store.keys(next, BUCKETS_PER_STEP, |key| {
            let route = route_of(key.bytes());
            let leaves = in_force.targets(route, me);
            if slice_of(route) % workers == index && !leaves.is_empty() {
                queue.push_back(key.bytes().into());
            }
        })
    }

    /// Sends a key to its new holders.
    fn send_away(&mut self, cx: &mut NodeContext<'_>, key: &[u8]) -> Departure {
        let Some(in_force) = self.in_force.clone() else {
            return Departure::Stays;
        };
        let route = route_of(key);
        let seen = self.cluster.keys.look(route);
        let targets = match in_force.leaving(route, self.cluster.me, visibility_of(seen)) {
            Leaving::Goes(targets) => targets,
            Leaving::Stays => return Departure::Stays,
            Leaving::Later => return Departure::Unsettled,
        };
        if targets.into_iter().any(|node| self.is_busy_with(node)) {
            return Departure::NoRoom;
        }
        let mut away = Departure::Stays;
        for node in targets {
            match self.send_key(cx, node, (route, seen), key, false) {
                // It has ended, or what was found never was a key.
                Departure::Stays | Departure::Unfit => {}
                Departure::Sent => {
                    cx.counts.add(Count::ClusterKeysSent, 1);
                    away = Departure::Sent;
                }
                other => return other,
            }
        }
        away
    }

    /// Sends a key along with a request for it, ahead of it: who runs that need not ask for it.
    pub(in crate::node) fn send_ahead(&mut self, cx: &mut NodeContext<'_>, to: NodeId, key: &[u8]) {
        let (Some(in_force), Phase::Scanning { .. }) = (&self.in_force, self.mover.phase) else {
            return;
        };
        let route = route_of(key);
        let is_mine = slice_of(route) % self.cluster.workers == self.index;
        let leaves = is_mine && in_force.targets(route, self.cluster.me).contains(to);
        let seen = self.cluster.keys.look(route);
        if leaves
            && in_force.forgets_sent()
            && seen.state == SharedState::Ordinary
            && self.send_key(cx, to, (route, seen), key, false) == Departure::Sent
        {
            cx.counts.add(Count::ClusterKeysAsked, 1);
        }
    }

    /// Whether as much is on its way to a node as the scan may send.
    fn is_busy_with(&self, node: NodeId) -> bool {
        let to = self.links.endpoint(node);
        let bytes = to.map_or(0, |to| self.links.under_way(to, Class::LargeDemand));
        bytes > MIGRATING_BYTES_MAX
    }

    /// Sends what another node asks for, or that there is none.
    fn give_away(
        &mut self,
        cx: &mut NodeContext<'_>,
        asked: MoveAsked,
        (route, seen): (RouteHash, Seen),
    ) {
        match self.send_key(cx, asked.node, (route, seen), &asked.key, true) {
            Departure::Sent => cx.counts.add(Count::ClusterKeysAsked, 1),
            Departure::NoRoom | Departure::Unsettled => self.mover.asked.push(asked),
            Departure::Stays | Departure::Unfit => {}
        }
    }

    /// Sends a key, and drops it if it has one holder; `even_none` if it is to be said, too, that
    /// there is none.
    fn send_key(
        &mut self,
        cx: &mut NodeContext<'_>,
        node: NodeId,
        (route, seen): (RouteHash, Seen),
        bytes: &[u8],
        even_none: bool,
    ) -> Departure {
        let (Ok(key), Some(in_force)) = (Key::new(bytes), &self.in_force) else {
            return Departure::Stays;
        };
        let hash = cx.store_cx.store.hash(bytes);
        let taken = self.execute_cx.take_image(cx, key, hash);
        let is_there = taken.is_some();
        if !self.cluster.keys.is_as(route, seen) {
            // Another thread has begun a write of it.
            return Departure::Unsettled;
        }
        if !is_there && !even_none {
            return Departure::Stays;
        }
        let image = taken.map(|(image, value)| node::Image {
            client_flags: image.flags,
            expiry: image.expiry,
            stale: image.stale,
            won: image.won,
            value,
        });
        let whole = KeyMove {
            route,
            ts: taken.map_or(Cas(0), |(image, _)| image.cas),
            key,
            image,
        };
        let view = in_force.view.number;
        let mut away = match send_moved(&mut self.links, node, view, whole) {
            Ok(()) if is_there => Departure::Sent,
            Ok(()) => Departure::Stays,
            Err(SendError::TooLarge) => Departure::Unfit,
            Err(_) => return Departure::NoRoom,
        };
        if away == Departure::Unfit && even_none {
            let none = KeyMove {
                image: None,
                ts: Cas(0),
                ..whole
            };
            if send_moved(&mut self.links, node, view, none).is_err() {
                away = Departure::NoRoom;
            }
        }
        if away == Departure::Unfit {
            cx.counts.add(Count::ClusterKeysUnfit, 1);
        }
        if matches!(away, Departure::Sent | Departure::Unfit) && in_force.forgets_sent() {
            cx.store_cx.remove(key, hash);
        }
        away
    }

    /// Removes what this node does not hold any more from a few buckets; whether there are more.
    pub(super) fn sweep(&mut self, cx: &mut NodeContext<'_>, next: usize, again: bool) -> bool {
        let after = self.sweep_some(cx, next, &mut Vec::new());
        self.mover.phase = match (after, again) {
            (Some(next), again) => Phase::Sweeping { next, again },
            (None, true) => Phase::Sweeping {
                next: 0,
                again: false,
            },
            (None, false) => Phase::Idle,
        };
        self.mover.phase != Phase::Idle
    }

    /// Before keys move again: what did not belong here when the last move ended is swept out at
    /// once, for it would be taken for what has arrived. That is seldom much: only if a sweep was
    /// not over, or this node has not heard that the last move ended. Returns the keys that are
    /// with their machines.
    pub(in crate::node) fn end_last_move(
        &mut self,
        cx: &mut NodeContext<'_>,
        next: Option<&InForce>,
    ) -> Keys {
        let (Some(last), Some(next)) = (self.in_force.clone(), next) else {
            return Vec::new();
        };
        let is_unswept = matches!(self.mover.phase, Phase::Sweeping { .. });
        if !next.sweeps_first(&last, is_unswept) {
            return Vec::new();
        }
        self.mover.found.clear();
        let mut left = Vec::new();
        for _pass in 0..CLEAN_SCANS {
            let mut at = Some(0);
            while let Some(bucket) = at {
                at = self.sweep_some(cx, bucket, &mut left);
            }
        }
        left
    }

    /// Removes what does not belong here when all has moved from a few buckets, but for what is
    /// with its machine, and says where to go on.
    fn sweep_some(
        &mut self,
        cx: &mut NodeContext<'_>,
        next: usize,
        shared: &mut Keys,
    ) -> Option<usize> {
        let in_force = self.in_force.clone()?;
        let (me, workers, index) = (self.cluster.me, self.cluster.workers, self.index);
        let queue = &mut self.mover.found;
        let after = cx.store_cx.store.keys(next, BUCKETS_PER_STEP, |key| {
            let route = route_of(key.bytes());
            let belongs = in_force.place_in_the_end(route).holders.contains(me);
            if slice_of(route) % workers == index && !belongs {
                queue.push_back(key.bytes().into());
            }
        });
        for bytes in std::mem::take(&mut self.mover.found) {
            let route = route_of(&bytes);
            let is_ordinary = self.cluster.keys.look(route).state == SharedState::Ordinary;
            if !is_ordinary {
                shared.push((route, bytes));
            } else if let Ok(key) = Key::new(&bytes) {
                let hash = cx.store_cx.store.hash(&bytes);
                cx.store_cx.remove(key, hash);
            }
        }
        after
    }

    /// A node asks for a key that it has become the home of.
    pub(in crate::node) fn take_move_request(
        &mut self,
        cx: &mut NodeContext<'_>,
        asked: MoveAsked,
    ) {
        let now = self.in_force.as_ref().map(|now| now.view.number);
        self.mover.asked_ns = self.now_ns;
        let all_act = !matches!(self.mover.phase, Phase::Waiting { .. });
        let (route, me) = (route_of(&asked.key), self.cluster.me);
        let seen = self.cluster.keys.look(route);
        let (by, how) = ((asked.node, asked.view), (all_act, visibility_of(seen)));
        let in_force = self.in_force.as_ref();
        let due = in_force.map(|now| now.gives(route, me, by, how));
        if now < Some(asked.view) {
            // Somebody waits for this node to know of it.
            self.cluster.heard_of(asked.view, asked.node);
        }
        match due {
            Some(Due::Now) => self.give_away(cx, asked, (route, seen)),
            Some(Due::Never) => {}
            Some(Due::Later) | None => self.mover.asked.push(asked),
        }
    }
}

fn send_moved(
    links: &mut Links,
    node: NodeId,
    view: ViewNumber,
    moved: KeyMove<'_>,
) -> Result<(), SendError> {
    let head = BatchHead { number: 0, view };
    let to = links.endpoint(node).ok_or(SendError::Unknown)?;
    links.send(to, Class::LargeDemand, &Part::Move(head, moved))
}
