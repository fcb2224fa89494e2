//! Requests of this worker's clients that do not run where they arrived: in the machine of their
//! slice, or on another node. Their wire format is not known here: a token identifies the reply.

use curtail_codec::node::ItemRequest;
use curtail_types::{Access, RouteHash};

use crate::{
    completion::Token,
    metrics::counters::Count,
    node::{
        host::NodeContext,
        request_placement::Way,
        stages::{Asker, Job, Origin, stage_of, written},
        worker::NodeWorker,
    },
};

/// Keys of which requests of this worker's clients are under way in a turn.
#[derive(Debug, Default)]
pub(super) struct KeysUnderWay {
    /// The connection and the key of each.
    of: Vec<(usize, RouteHash)>,
    /// A bit for each of them, so that most look-ups end here.
    bits: u64,
}

impl KeysUnderWay {
    pub(super) fn clear(&mut self) {
        self.of.clear();
        self.bits = 0;
    }

    fn note(&mut self, slot: usize, key: RouteHash) {
        self.of.push((slot, key));
        self.bits |= bit_of(key);
    }

    #[inline]
    fn contains(&self, slot: usize, key: RouteHash) -> bool {
        self.bits & bit_of(key) != 0 && self.of.contains(&(slot, key))
    }
}

const fn bit_of(key: RouteHash) -> u64 {
    1 << (key.0 & 63)
}

impl NodeWorker {
    /// Where a request for `key` runs; `None` while this node is not in service.
    #[inline]
    pub(crate) fn way(&self, key: RouteHash, access: Access) -> Option<Way> {
        let in_force = self.in_force.as_ref().filter(|_| self.serves)?;
        Some(self.cluster.place(in_force, key, access))
    }

    /// Whether an earlier request of the connection in `slot` for the same key has no answer yet:
    /// then this one waits for it, so that the requests of a session keep their order.
    #[inline]
    pub(crate) fn is_under_way(&self, slot: usize, key: RouteHash) -> bool {
        self.under_way.contains(slot, key)
    }

    /// The same for a request that concerns every key.
    pub(crate) fn is_any_under_way(&self, slot: usize) -> bool {
        self.under_way.of.iter().any(|(of, _)| *of == slot)
    }

    /// The request in memory that can be kept.
    pub(crate) fn written(&mut self, request: &ItemRequest<'_>) -> Vec<u8> {
        written(request, self.spare.take())
    }

    /// Sends a client's request, which is in `bytes`, on its way; its answer belongs to `token`.
    pub(crate) fn send_off_for(
        &mut self,
        cx: &mut NodeContext<'_>,
        way: Way,
        (token, key, access): (Token, RouteHash, Access),
        bytes: Vec<u8>,
    ) {
        self.under_way.note(token.slot, key);
        let origin = self.origin(Asker::Client(token));
        self.send_off(cx, (origin, way), (key, access), bytes);
    }

    /// The same for anybody who waits.
    pub(super) fn send_off(
        &mut self,
        cx: &mut NodeContext<'_>,
        (origin, way): (Origin, Way),
        (key, access): (RouteHash, Access),
        bytes: Vec<u8>,
    ) {
        match way {
            Way::At(to) => {
                cx.counts.add(Count::ClusterRelayed, 1);
                self.relay(cx.store_cx.now.instant, (origin, to), Some(key), bytes);
            }
            Way::Here | Way::Looked(_) | Way::Copy | Way::Machine => {
                self.give_request(origin, key, access, bytes);
            }
        }
    }

    /// Leaves a request for the machine of its key.
    pub(super) fn give_request(
        &mut self,
        origin: Origin,
        key: RouteHash,
        access: Access,
        bytes: Vec<u8>,
    ) {
        // Like a write, such a read is not for the copy.
        let access = match access {
            Access::Read if self.cluster.may_be_won(key) => Access::Update,
            access => access,
        };
        let slice = self.in_force.as_ref().map(|now| now.slices.slice_of(key));
        let job = Job::Request {
            origin,
            key,
            access,
            bytes,
        };
        self.give(stage_of(slice.unwrap_or_default()), job);
    }

    pub(super) const fn origin(&self, asker: Asker) -> Origin {
        let worker = self.index;
        Origin { worker, asker }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_one_of_its_connection_and_key_only() {
        let mut keys = KeysUnderWay::default();
        keys.note(3, RouteHash(7));
        assert!(keys.contains(3, RouteHash(7)));
        assert!(!keys.contains(4, RouteHash(7)));
        assert!(!keys.contains(3, RouteHash(7 + 64)));
        keys.clear();
        assert!(!keys.contains(3, RouteHash(7)));
    }
}
