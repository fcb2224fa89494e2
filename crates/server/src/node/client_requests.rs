//! What clients of this worker ask for, when its server is a node.
//!
//! A request that runs elsewhere leaves a place in its connection's replies, and nothing more is
//! read from that connection until all such places are filled: so replies keep their order, and a
//! client that sends one request after the other finds what it wrote.

use curtail_codec::memcached::{Carried, KeyScratch, Request, Sink, encode::Refusal};
use curtail_consistency::symmetric::Access;
use curtail_dispatch::{Seen, SharedState};
use curtail_types::{Cas, NodeId, RouteHash};

use crate::{
    completion::{Answer, Awaited, Token},
    connection::output::Progress,
    memcached::event_log,
    metrics::{counters::Count, latency},
    node::{
        migration::Waiter,
        placement::{Way, access_of, route_of},
        slice_jobs::{Asker, Completed, Origin},
        slices::{Relayed, RelayedKind},
        worker::NodeWorker,
    },
    pipeline,
    request::batch::{Entry, Work},
    route,
    turn::{
        execute::{self, OUTPUT_BYTES_MAX, ROOM_BYTES},
        lifecycle, send,
    },
    worker::{Worker, context::WorkerContext},
};

impl Worker {
    /// Has a run of requests executed where the placement among the nodes says.
    #[inline(never)]
    pub(crate) fn run_on_node(&mut self, run: &[Entry<'_>]) {
        let Some(mut node) = self.node.take() else {
            return;
        };
        for entry in run {
            if self.cx.event_log.on {
                event_log::event_log(self, entry);
            }
            node.run(self, entry);
        }
        self.node = Some(node);
    }

    /// Whether what was read until now may be shown.
    pub(crate) fn still_holds_lease(&self) -> bool {
        let shared = &self.cx.shared;
        let now = shared.clock.now().instant;
        let cluster = shared.cluster.as_ref();
        cluster.is_none_or(|cluster| cluster.still_holds_lease(now))
    }

    /// What was read may be older than the lease, which has ended meanwhile: whoever was to hear of
    /// it hears nothing.
    #[cold]
    pub(crate) fn withhold(&mut self) {
        let (_, pieces) = self.replies.take();
        self.slots
            .broken
            .extend(pieces.iter().map(|piece| piece.slot));
        self.replies.clear();
        while let Some(slot) = self.slots.broken.pop() {
            lifecycle::close(self, slot);
        }
    }

    /// The part of a turn that is about other nodes.
    pub(crate) fn work_in_cluster(&mut self) {
        let Some(mut node) = self.node.take() else {
            return;
        };
        let mut filled = std::mem::take(&mut node.completed);
        node.work(&mut self.cx, &mut filled);
        if !filled.is_empty() {
            // Whoever sees a reply must find it counted.
            send::publish_counts(self);
        }
        for completed in filled.drain(..) {
            self.fill(&completed);
            node.give_back(completed.into_reply());
        }
        node.completed = filled;
        self.node = Some(node);
    }

    /// Puts a reply where a connection waits for it.
    fn fill(&mut self, completed: &Completed) {
        let Asker::Client(token) = completed.origin.asker else {
            return;
        };
        let slot = token.slot;
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        if connection.serial != token.serial {
            return;
        }
        latency::note_value_sent(&self.cx, connection, completed.reply.len());
        let output = &mut connection.output;
        output.complete(
            &mut self.cx.pool,
            token.place,
            Answer::Spelt(&completed.reply),
        );
        self.send_filled(slot);
    }

    /// Sends the replies of a connection at once if none is awaited any more: another turn would
    /// cost a look at the poller.
    fn send_filled(&mut self, slot: usize) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let output = &mut connection.output;
        let goes = connection.writable && connection.departs.is_none();
        let is_large = output.value_bytes_max() >= self.cx.turn.large_from;
        if !goes || output.is_awaiting() || output.is_empty() || is_large {
            return self.slots.queue(slot);
        }
        let (bytes, progress) = output.send(&mut self.cx.pool, &mut connection.stream);
        self.cx.counts.add(Count::Sends, 1);
        self.cx.counts.add(Count::BytesWritten, bytes as u64);
        match progress {
            Progress::Broken => return lifecycle::close(self, slot),
            Progress::Full => connection.writable = false,
            Progress::All | Progress::More => {}
        }
        latency::note_sent(&mut self.cx, connection);
        // There may be more to send, or the next requests may be here already.
        self.slots.queue(slot);
    }
}

impl NodeWorker {
    fn run(&mut self, worker: &mut Worker, entry: &Entry<'_>) {
        let Work::Request(request) = &entry.work else {
            return self.run_other(worker, entry);
        };
        let Request::Item {
            key,
            operation,
            value,
            form,
        } = request
        else {
            return self.run_other(worker, entry);
        };
        if worker.replies.bytes_for(entry.slot) > OUTPUT_BYTES_MAX {
            return execute::put_off(worker, entry);
        }
        let in_force = match &self.in_force {
            Some(in_force) if self.serves => in_force,
            _ => {
                let replies = &mut worker.replies;
                return replies.refuse(entry.slot, form, Refusal::OutOfService);
            }
        };
        let key_bytes = key.resolve(&mut worker.cx.decoding.scratch).bytes();
        let (route, access) = (route_of(key_bytes), access_of(operation));
        self.mover.asked_ns = self.now_ns;
        let carried = Carried {
            key: *key,
            operation: *operation,
            value,
            form: *form,
        };
        let mut way = self.cluster.place(in_force, route, access);
        if let Way::Looked(seen) = way {
            let home = in_force.home(route);
            match self.run_looked(worker, entry, route, seen, home) {
                Looked::Shown => {
                    let is_hot = seen.state == SharedState::Valid;
                    worker.cx.counts.add(Count::ClusterHot, u64::from(is_hot));
                    return;
                }
                Looked::Changed => {}
                Looked::Missing => way = Way::At(home),
            }
        }
        match way {
            Way::Here => run_here(worker, entry),
            way => self.ask(worker, entry.slot, (way, route), &carried),
        }
    }

    /// Shows what is read if nothing happened to the key meanwhile.
    fn run_looked(
        &mut self,
        worker: &mut Worker,
        entry: &Entry<'_>,
        route: RouteHash,
        seen: Seen,
        home: NodeId,
    ) -> Looked {
        if worker.replies.remaining() < ROOM_BYTES {
            pipeline::reply_early(worker);
        }
        let mark = worker.replies.mark();
        let misses = worker.cx.counts.get(Count::GetMisses);
        execute::carry_out_apart(worker, entry);
        let missed = worker.cx.counts.get(Count::GetMisses) != misses;
        let looked = match self.cluster.keys.is_as(route, seen) {
            false => Looked::Changed,
            // What is not here may have been flushed here alone.
            true if missed && home != self.cluster.me => Looked::Missing,
            true => return Looked::Shown,
        };
        worker.replies.roll_back(mark);
        looked
    }

    /// Has a request carried out elsewhere; its reply finds the place that it gets now.
    pub(in crate::node) fn ask(
        &mut self,
        worker: &mut Worker,
        slot: usize,
        (way, key): (Way, RouteHash),
        carried: &Carried<'_>,
    ) {
        let what = Awaited::of(&carried.form);
        if let Some(origin) = self.await_reply(worker, slot, what) {
            let bytes = self.written(carried);
            let access = access_of(&carried.operation);
            self.send_off(&mut worker.cx, way, (origin, key, access), bytes);
        }
    }

    /// A place in the replies of a connection.
    pub(in crate::node) fn await_reply(
        &mut self,
        worker: &mut Worker,
        slot: usize,
        what: Awaited,
    ) -> Option<Origin> {
        let serial = worker.slots.get_mut(slot)?.serial;
        let place = worker.replies.await_answer(slot, what, None);
        Some(Origin {
            worker: worker.index,
            asker: Asker::Client(Token {
                slot,
                serial,
                place,
            }),
        })
    }

    pub(in crate::node) fn written(&mut self, carried: &Carried<'_>) -> Vec<u8> {
        let mut bytes = self.spare.take();
        bytes.resize(Carried::HEAD_BYTES_MAX + carried.value.len(), 0);
        let mut sink = Sink::new(&mut bytes);
        carried.write(&mut sink);
        let length = sink.len();
        bytes.truncate(length);
        bytes
    }

    /// Sends the key of a request to the node that is to run it, if it is still here.
    fn send_along(&mut self, cx: &mut WorkerContext, to: NodeId, bytes: &[u8]) {
        if self.is_moving()
            && let Some((carried, _)) = Carried::read(bytes)
        {
            let mut scratch = KeyScratch::default();
            self.send_ahead(cx, to, carried.resolve(&mut scratch).bytes());
        }
    }

    /// Sends a request that waits for its reply on its way.
    pub(in crate::node) fn send_off(
        &mut self,
        cx: &mut WorkerContext,
        way: Way,
        (origin, key, access): (Origin, RouteHash, Access),
        bytes: Vec<u8>,
    ) {
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
}

/// What became of a read that looked past the protocol.
enum Looked {
    Shown,
    Changed,
    Missing,
}

/// Runs a request as on a server that is alone.
pub(crate) fn run_here(worker: &mut Worker, entry: &Entry<'_>) {
    let route = route::route_among_workers(worker, entry);
    pipeline::execute_run(worker, std::slice::from_ref(entry), route);
}
