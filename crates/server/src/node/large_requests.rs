//! What is not about one small item: large writes for other nodes, and what concerns all nodes.

use std::sync::Arc;

use curtail_codec::memcached::{Admin, Carried, Form, Request, WireKey, encode::Refusal};
use curtail_types::{Cas, Delete, Exptime, Operation, RouteHash};

use crate::{
    completion::Awaited,
    node::{
        NodeWorker,
        client_requests::run_here,
        placement::{Way, access_of, route_of},
        slices::{Relayed, RelayedKind},
    },
    request::batch::{Entry, Work},
    route::{self, Route},
    turn::{
        execute::{self, OUTPUT_BYTES_MAX},
        large_write,
    },
    worker::Worker,
};

impl Worker {
    /// Has a large write that is complete carried out where its key is, if that is not here.
    /// A large worker has no part in the cluster: it leaves what has moved, or become hot, while it
    /// was received to the worker that its connection belongs to.
    pub(crate) fn end_large_elsewhere(&mut self, slot: usize) -> bool {
        let Some(mut node) = self.node.take() else {
            return self.leave_large_elsewhere(slot);
        };
        let passed = node.pass_large(self, slot);
        self.node = Some(node);
        passed
    }

    fn leave_large_elsewhere(&mut self, slot: usize) -> bool {
        let shared = Arc::clone(&self.cx.shared);
        let Some(connection) = self.slots.get_mut(slot) else {
            return false;
        };
        let write = connection.body.as_ref().and_then(|body| body.write());
        let (Some(cluster), Some((key, set, _))) = (&shared.cluster, write) else {
            return false;
        };
        let route = route_of(key.resolve(&mut self.cx.decoding.scratch).bytes());
        let access = access_of(&Operation::Set(set));
        let is_here = cluster.holds_lease(self.cx.store_cx.now.instant)
            && cluster.views.current().is_some_and(|in_force| {
                matches!(cluster.place(&in_force, route, access), Way::Here)
            });
        if let Some(body) = &mut connection.body {
            body.is_whole = !is_here;
        }
        !is_here
    }
}

impl NodeWorker {
    /// What is not about one small item.
    pub(crate) fn run_other(&mut self, worker: &mut Worker, entry: &Entry<'_>) {
        // What is asked of other nodes must not be asked twice.
        let is_off = worker.replies.bytes_for(entry.slot) > OUTPUT_BYTES_MAX;
        if is_off || matches!(route::route_among_workers(worker, entry), Route::Later) {
            return execute::put_off(worker, entry);
        }
        if let Work::Request(Request::Admin(Admin::FlushAll { delay, noreply })) = &entry.work
            && worker.cx.shared.config.flush_allowed
        {
            let what = match noreply {
                true => Awaited::Silent,
                false => Awaited::Part,
            };
            self.flush_others(worker, (entry.slot, what), *delay);
        }
        if let Work::Request(Request::SetTooLarge { key, set, .. }) = &entry.work
            && set.removes_if_too_large()
        {
            self.remove(worker, entry.slot, *key);
        }
        if let Work::LargeSetEnd { right: true } = &entry.work
            && self.pass_large(worker, entry.slot)
        {
            return;
        }
        if let Work::LargeSet { request, rest } = &entry.work
            && let Request::SetHeader { key, set, .. } = request
        {
            let operation = Operation::Set(*set);
            let route = route_of(key.resolve(&mut worker.cx.decoding.scratch).bytes());
            let way = self.way(route, &operation);
            if !matches!(way, Some(Way::Here)) {
                let ended = large_write::begin_large_set(worker, entry, request, rest, true);
                if ended == Some(true) && self.pass_large(worker, entry.slot) {
                    return;
                }
                if let Some(right) = ended {
                    large_write::end_large_set(worker, entry.slot, right);
                }
                return;
            }
        }
        run_here(worker, entry);
    }

    /// Removes an item, wherever it is, before anything that follows is answered; says nothing.
    fn remove(&mut self, worker: &mut Worker, slot: usize, key: WireKey<'_>) {
        let operation = Operation::Delete(Delete::default());
        let carried = Carried {
            key,
            operation,
            value: &[],
            form: Form::Line { noreply: true },
        };
        let bytes = key.resolve(&mut worker.cx.decoding.scratch).bytes();
        let route = route_of(bytes);
        let hash = worker.cx.store_cx.store.hash(bytes);
        match self.way(route, &operation) {
            None => {}
            Some(Way::Here) => {
                let mut nothing = Vec::new();
                self.execute_cx
                    .run(&mut worker.cx, &carried, hash, &mut nothing);
            }
            Some(way) => self.ask(worker, slot, (way, route), &carried),
        }
    }

    /// Has the other nodes flush, too; the reply to the client waits for them.
    fn flush_others(&mut self, worker: &mut Worker, (slot, what): (usize, Awaited), at: Exptime) {
        let view = self.in_force.as_ref().map(|now| now.view);
        let others = view.unwrap_or_default().live.without(self.cluster.me);
        for to in others {
            if let Some(origin) = self.await_reply(worker, slot, what) {
                let relayed = Relayed {
                    origin,
                    to,
                    key: RouteHash(0),
                    after: Cas(0),
                    bytes: at.0.to_le_bytes().to_vec(),
                    kind: RelayedKind::Flush,
                };
                self.relay(worker.cx.store_cx.now.instant, relayed);
            }
        }
    }

    /// Where a request would run; nothing while this node is not in service.
    fn way(&self, route: RouteHash, operation: &Operation) -> Option<Way> {
        let in_force = self.in_force.as_ref().filter(|_| self.serves)?;
        Some(self.cluster.place(in_force, route, access_of(operation)))
    }

    /// Has a large write that was received here carried out where its key is; false if that is
    /// here after all.
    fn pass_large(&mut self, worker: &mut Worker, slot: usize) -> bool {
        let Some(connection) = worker.slots.get_mut(slot) else {
            return false;
        };
        let write = connection.body.as_ref().and_then(|body| body.write());
        let Some((key, set, _)) = write else {
            return false;
        };
        let operation = Operation::Set(set);
        let route = route_of(key.resolve(&mut worker.cx.decoding.scratch).bytes());
        let way = self.way(route, &operation);
        if matches!(way, Some(Way::Here)) {
            return false;
        }
        let Some(body) = connection.body.take() else {
            return false;
        };
        let mut bytes = Vec::new();
        let mut what = Awaited::Whole;
        body.finish(&mut worker.cx.pool, |reservation, key, form, _| {
            let mut value = Vec::with_capacity(reservation.value_bytes());
            reservation.read(&mut value);
            let carried = Carried {
                key,
                operation,
                value: &value,
                form,
            };
            bytes = self.written(&carried);
            what = Awaited::of(&form);
            if way.is_none() {
                let replies = &mut worker.replies;
                replies.refuse(slot, &form, Refusal::OutOfService);
            }
        });
        let Some(way) = way else {
            self.spare.give(bytes);
            return true;
        };
        if let Some(origin) = self.await_reply(worker, slot, what) {
            let access = access_of(&operation);
            self.send_off(&mut worker.cx, way, (origin, route, access), bytes);
        }
        true
    }
}
