//! Requests of this worker's clients that run elsewhere: in the state machine of their key, on
//! another node, or after their key has arrived. Their wire format is not known here: a token
//! identifies the reply.

use curtail_codec::node::ItemRequest;
use curtail_types::{Access, Cas, Exptime, NodeId, NodeSet, RouteHash};

use crate::{
    completion::Token,
    metrics::counters::Count,
    node::{
        host::NodeContext,
        migration::Waiter,
        request_placement::Way,
        slice_jobs::{Asker, Origin},
        slices::{Relayed, RelayedKind},
        worker::NodeWorker,
    },
};

impl NodeWorker {
    /// Where a request for `key` runs; `None` while this node is not in service.
    #[inline]
    pub(crate) fn way(&self, key: RouteHash, access: Access) -> Option<Way> {
        let in_force = self.in_force.as_ref().filter(|_| self.serves)?;
        Some(self.cluster.place(in_force, key, access))
    }

    /// The same for a client's request that comes now.
    pub(crate) fn way_of_request(&mut self, key: RouteHash, access: Access) -> Option<Way> {
        let way = self.way(key, access)?;
        self.mover.asked_ns = self.now_ns;
        Some(way)
    }

    /// Where `key` is, and whether that is another node.
    pub(crate) fn home(&self, key: RouteHash) -> Option<(NodeId, bool)> {
        let home = self.in_force.as_ref()?.home(key);
        Some((home, home != self.cluster.me))
    }

    /// The request in memory that can be kept.
    pub(crate) fn written(&mut self, request: &ItemRequest<'_>) -> Vec<u8> {
        let mut bytes = self.spare.take();
        bytes.resize(ItemRequest::HEAD_BYTES_MAX + request.value.len(), 0);
        let length = request.encode(&mut bytes);
        bytes.truncate(length.unwrap_or_default());
        bytes
    }

    /// Sends the key of a request to the node that is to run it, if it is still here.
    fn send_along(&mut self, cx: &mut NodeContext<'_>, to: NodeId, bytes: &[u8]) {
        if self.is_moving()
            && let Some(request) = ItemRequest::decode(bytes)
        {
            self.send_ahead(cx, to, request.key.bytes());
        }
    }

    /// Sends a request, which is in `bytes`, on its way; its answer belongs to `token`.
    pub(crate) fn send_off(
        &mut self,
        cx: &mut NodeContext<'_>,
        way: Way,
        (token, key, access): (Token, RouteHash, Access),
        bytes: Vec<u8>,
    ) {
        let origin = self.client(token);
        let after = Cas(0);
        match way {
            Way::At(to) => {
                self.send_along(cx, to, &bytes);
                let relayed = Relayed {
                    origin,
                    to,
                    key,
                    after,
                    bytes,
                    kind: RelayedKind::Item,
                };
                cx.counts.add(Count::ClusterRelayed, 1);
                self.relay(cx.store_cx.now.instant, relayed);
            }
            Way::Arriving => {
                let waiter = Waiter {
                    origin,
                    key,
                    access,
                    after,
                    begun_ns: self.now_ns,
                    bytes,
                };
                self.give_waiter(cx, waiter);
            }
            Way::Here | Way::Looked(_) | Way::Protocol => {
                self.give_request(origin, key, (access, after), bytes);
            }
        }
    }

    /// The nodes beside this one.
    pub(crate) fn others(&self) -> NodeSet {
        let view = self.in_force.as_ref().map(|now| now.view);
        view.unwrap_or_default().live.without(self.cluster.me)
    }

    /// Has another node flush, too.
    pub(crate) fn flush_at(
        &mut self,
        cx: &NodeContext<'_>,
        to: NodeId,
        (token, at): (Token, Exptime),
    ) {
        let relayed = Relayed {
            origin: self.client(token),
            to,
            key: RouteHash(0),
            after: Cas(0),
            bytes: at.0.to_le_bytes().to_vec(),
            kind: RelayedKind::Flush,
        };
        self.relay(cx.store_cx.now.instant, relayed);
    }

    const fn client(&self, token: Token) -> Origin {
        Origin {
            worker: self.index,
            asker: Asker::Client(token),
        }
    }
}
