//! Requests that others have this worker execute: other nodes, for keys whose primary is here, and
//! threads of this server that are no workers.
//!
//! ```text
//!   Requests frame --+--> asked --> here, as if a client had asked ----------+--> Answers frame
//!   thread ----------+      |  +--> the machine of the key's slice --> done --+--> thread
//!                           |  +--> another node, for a thread -----> done ---+
//!                           +-- not in service: "moved", or failed -----------+
//! ```

use curtail_codec::node::{BatchHead, ItemRequest, NodeRequest};
use curtail_links::Endpoint;
use curtail_types::{Cas, Exptime, Failure};

use crate::{
    log::log_flush,
    metrics::counters::Count,
    native::Behind,
    node::{
        NodeWorker,
        execute::execute,
        flush::when_to_flush,
        host::NodeContext,
        inbox::FLUSH,
        request_placement::{Way, route_of},
        stages::{Asker, Completed, End, Origin, Spare},
    },
};

/// A request of another node, or of a thread.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(super) asker: Asker,
    /// When to flush, if that is what is asked.
    pub(super) flush: Option<Exptime>,
    /// The accepted writes that it waits for.
    pub(super) behind: Option<Behind>,
    pub(super) bytes: Vec<u8>,
}

impl Asked {
    pub(super) fn of_peer(
        at: Endpoint,
        head: BatchHead,
        request: &NodeRequest<'_>,
        spare: &mut Spare,
    ) -> Self {
        let is_flush = request.options & FLUSH != 0;
        Self {
            asker: Asker::Peer {
                at,
                delegated: head.number,
                number: request.number,
            },
            flush: when_to_flush(request).filter(|_| is_flush),
            behind: None,
            bytes: spare.copied(request.bytes),
        }
    }

    /// Whether it waits for accepted writes.
    fn waits(&mut self, cx: &mut NodeContext<'_>) -> bool {
        let Some(barrier) = cx.barrier.as_deref_mut().filter(|_| self.flush.is_none()) else {
            return false;
        };
        self.behind = ItemRequest::decode(&self.bytes).and_then(|request| {
            let hash = cx.store_cx.store.hash(request.key.bytes());
            barrier.behind(cx.store_cx, hash, self.behind)
        });
        self.behind.is_some()
    }
}

impl NodeWorker {
    /// Executes what was asked in this turn; what waits for accepted writes stays until the next.
    pub(super) fn answer_asked(&mut self, cx: &mut NodeContext<'_>) {
        let mut asked = std::mem::take(&mut self.inbox.asked);
        asked.retain_mut(|one| {
            let waits = one.waits(cx);
            if !waits {
                let bytes = std::mem::take(&mut one.bytes);
                self.answer_one(cx, (one.asker, one.flush), bytes);
            }
            waits
        });
        self.inbox.asked = asked;
    }

    fn answer_one(
        &mut self,
        cx: &mut NodeContext<'_>,
        (asker, flush): (Asker, Option<Exptime>),
        bytes: Vec<u8>,
    ) {
        let origin = self.origin(asker);
        let peer = match asker {
            Asker::Peer { at, .. } => Some(at.node),
            _ => None,
        };
        match (flush, peer) {
            (Some(at), Some(node)) => {
                let node = format_args!("node {}", node.0);
                log_flush(cx.host.admin_lines(), cx.store_cx.now, &node);
                return self.run_flush(cx, origin, bytes, at);
            }
            (Some(at), None) => return self.order_flush(cx, asker, at),
            (None, _) => {}
        }
        let Some(request) = ItemRequest::decode(&bytes) else {
            let failed = Completed::failed(origin, bytes, Failure::OutOfService);
            return self.done.push(failed);
        };
        let answered = u64::from(peer.is_some());
        cx.counts.add(Count::ClusterAnswered, answered);
        let (key, access) = (route_of(request.key.bytes()), request.operation.access());
        let Some(way) = self.way(key, access) else {
            let end = match peer {
                Some(_) => End::Elsewhere,
                None => End::Failed(Failure::OutOfService),
            };
            let unserved = Completed::without_value(origin, bytes, end);
            return self.done.push(unserved);
        };
        // A session of another node has to be told which write a read shows.
        let is_shown =
            peer.is_some() && matches!(way, Way::Looked(_)) && self.cluster.keeps_sessions;
        let left = match is_shown {
            true => Some(bytes),
            false => self.execute_beside(cx, origin, way, bytes),
        };
        match (left, peer) {
            (None, _) => {}
            // What another node has sent here goes no further.
            (Some(bytes), Some(_)) => self.give_request(origin, key, access, bytes),
            (Some(bytes), None) => self.send_off(cx, (origin, way), (key, access), bytes),
        }
    }

    /// Executes a request beside the machine of its slice, if `way` allows it; else, and if what
    /// was read may not be shown, returns it.
    fn execute_beside(
        &mut self,
        cx: &mut NodeContext<'_>,
        origin: Origin,
        way: Way,
        bytes: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let request = ItemRequest::decode(&bytes)?;
        match way {
            // On a node versions are those of its machine.
            Way::Here if request.operation.new_cas().is_none() => {}
            Way::Looked(_) => {}
            _ => return Some(bytes),
        }
        // Beside the machine runs what no other node holds, and reads.
        let copies = u8::from(!request.operation.is_read());
        let hash = cx.store_cx.store.hash(request.key.bytes());
        let mut value = self.spare.take();
        let end = End::of(execute(cx, &request, hash, &mut value));
        if let Way::Looked(seen) = way
            && !self.cluster.is_as(route_of(request.key.bytes()), &seen)
        {
            self.spare.give(value);
            return Some(bytes);
        }
        self.done.push(Completed {
            origin,
            end,
            request: bytes,
            value,
            shown: Cas(0),
            copies,
        });
        None
    }
}
