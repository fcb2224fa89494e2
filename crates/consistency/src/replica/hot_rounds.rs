//! What a machine does about hot keys: it takes rounds further, as changes are committed and
//! messages arrive, and runs what waited for them.

use alloc::vec::Vec;

use curtail_types::{Cas, NodeId, NodeSet, RouteHash};

use super::{
    ReplicaHost, ReplicaMutant,
    machine::{Context, Replica, Role, primary_of},
    message::{CopyKind, CopyMessage},
};
use crate::slice_view::SliceId;

/// A write of another node that this primary took.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Taken {
    from: NodeId,
    key: RouteHash,
    version: Cas,
    seq: u64,
}

impl Replica {
    fn slice_of(&self, key: RouteHash) -> SliceId {
        let slice = self.view.as_ref().map(|view| view.slice_of(key));
        slice.unwrap_or_default()
    }

    pub(super) fn heat(
        &mut self,
        cx: &Context,
        host: &mut impl ReplicaHost,
        key: RouteHash,
        is_hot: bool,
    ) {
        let slice = self.slice_of(key);
        match (self.serves(slice), is_hot) {
            (true, true) if self.hot.heat(key) => {
                let guards = self.guards(slice);
                if let Some(primary) = primary_of(&mut self.slices, slice) {
                    primary.note_hot(host, (true, guards));
                }
                let stamp = host.next_version();
                host.saw(stamp);
                self.hot.begin_round(cx, host, key, (0, stamp, None));
            }
            (true, false) => self.hot.cool(cx, host, key),
            _ => {}
        }
    }

    /// Has all keys of a slice cease to be hot; whether any still is.
    pub(super) fn cool_slice(
        &mut self,
        cx: &Context,
        host: &mut impl ReplicaHost,
        slice: SliceId,
    ) -> bool {
        for key in self.hot.owned_keys() {
            if self.slice_of(key) == slice {
                self.hot.cool(cx, host, key);
            }
        }
        let mut keys = self.hot.owned_keys().into_iter();
        keys.any(|key| self.slice_of(key) == slice)
    }

    /// Whether members may still show a key of the slice as of an earlier view.
    pub(super) fn guards(&self, slice: SliceId) -> bool {
        let mut keys = self.hot.guarded_keys();
        keys.any(|key| self.slice_of(key) == slice)
    }

    /// No member shows anything of an earlier view any more: requests may run beside the machine.
    pub(super) fn note_unguarded(&mut self, host: &mut impl ReplicaHost) {
        let hot = self.hot.owned_keys();
        let hot: Vec<SliceId> = hot.into_iter().map(|key| self.slice_of(key)).collect();
        for (slice, role) in &mut self.slices {
            if let Role::Primary(primary) = role {
                primary.note_hot(host, (hot.contains(slice), false));
            }
        }
    }

    /// Takes rounds as far as they go now, and runs what has waited for them.
    pub(super) fn go_on_hot(&mut self, cx: &Context, host: &mut impl ReplicaHost) {
        let slices = &self.slices;
        let view = self.view.as_ref();
        let primary = |key: RouteHash| match view.map(|view| slices.get(&view.slice_of(key))) {
            Some(Some(Role::Primary(primary))) => Some(primary),
            _ => None,
        };
        let hot = &mut self.hot;
        self.taken.retain(|taken| {
            let primary = primary(taken.key);
            let is_committed = primary.is_some_and(|primary| primary.has_committed(taken.seq));
            let acks = is_committed || cx.has(ReplicaMutant::AcksUncommitted);
            if acks {
                let message = hot.message(taken.key, taken.version, CopyKind::Ack);
                host.send(NodeSet::only(taken.from), &message);
            }
            !acks
        });
        for key in hot.busy_keys() {
            if let (Some(primary), Some(seq)) = (primary(key), hot.round_seq(key)) {
                let is_committed = primary.has_committed(seq) && primary.is_finished(key);
                hot.go_on(cx, host, key, is_committed);
            }
            if hot.takes_refresh(cx, key) {
                let stamp = host.next_version();
                host.saw(stamp);
                hot.begin_round(cx, host, key, (0, stamp, None));
                hot.go_on(
                    cx,
                    host,
                    key,
                    primary(key).is_some_and(|one| one.is_finished(key)),
                );
            }
        }
        for (request, since) in self.hot.take_waiting() {
            self.request(cx, host, request, since);
        }
    }

    pub(super) fn receive_copy(
        &mut self,
        cx: &Context,
        host: &mut impl ReplicaHost,
        from: NodeId,
        message: &CopyMessage,
    ) {
        let &CopyMessage {
            key, version, kind, ..
        } = message;
        if message.view != self.hot.view() {
            return;
        }
        let slice = self.slice_of(key);
        let is_primary = primary_of(&mut self.slices, slice).is_some();
        match kind {
            CopyKind::Invalidate if is_primary => self.take_copy(cx, host, from, (key, version)),
            CopyKind::Ack if is_primary => self.hot.note_round_ack(from, key, version),
            CopyKind::Reject if is_primary => {
                host.saw(version);
                self.hot.restart(cx, host, key);
            }
            CopyKind::Reject => {
                if let Some((request, since)) = self.hot.take_rejected((key, version)) {
                    self.request(cx, host, request, since);
                }
            }
            CopyKind::Dropped => {
                self.hot
                    .note_dropped(host, key, (NodeSet::only(from), version));
                let mut hot = self.hot.owned_keys().into_iter();
                let is_hot = hot.any(|key| self.slice_of(key) == slice);
                let guards = self.guards(slice);
                if let Some(primary) = primary_of(&mut self.slices, slice) {
                    primary.note_hot(host, (is_hot, guards));
                }
            }
            _ => self.hot.receive(cx, host, from, message),
        }
    }

    /// Another node writes a hot key of this primary.
    fn take_copy(
        &mut self,
        cx: &Context,
        host: &mut impl ReplicaHost,
        from: NodeId,
        of: (RouteHash, Cas),
    ) {
        let (key, version) = of;
        let is_taken = |taken: &Taken| (taken.key, taken.version) == of;
        if self.taken.iter().any(is_taken) {
            return;
        }
        let stored = host.item(key).map_or(Cas(0), |(version, _)| version);
        host.saw(version);
        let mut kind = CopyKind::Ack;
        if !self.hot.has(key, version) {
            let slice = self.slice_of(key);
            let takes =
                self.hot.takes(cx, (key, version), stored) || cx.has(ReplicaMutant::TakesBeside);
            let primary = primary_of(&mut self.slices, slice).filter(|_| takes);
            let rooms = &mut self.rooms;
            if let Some(seq) = primary.and_then(|one| one.take_copy(cx, host, rooms, of)) {
                self.hot.note_taken(host, key, version);
                return self.taken.push(Taken {
                    from,
                    key,
                    version,
                    seq,
                });
            }
            self.hot.note_rejected(key, version);
            kind = CopyKind::Reject;
        }
        host.send(NodeSet::only(from), &self.hot.message(key, version, kind));
    }
}
