//! What a machine asks of its node: the store, the other nodes, readers, and waiting requests.

use curtail_codec::node::ItemRequest;
use curtail_consistency::{
    replica::{
        ChangeKind, CopyState, Gate, ReplicaHost, ReplicaMessage, ReplicaRefusal, ReplicaRequest,
        RunResult, SliceChange, Ticket,
    },
    slice_view::{RowChange, SLICES, SliceId, slice_of},
};
use curtail_dispatch::SharedState;
use curtail_store::{Image, ItemChange};
use curtail_types::{
    Access, Cas, Failure, HybridClock, Instant, Key, KeyHash, NodeId, NodeSet, Operation, Outcome,
    RouteHash, Set, SetOutcome,
};

use super::{
    ClosingGate, CopyTable, StageContext, StageState,
    jobs::{Carried, Completed, End},
    refusals::{failure_of, without_room},
    waiting::{Next, Waiting},
};
use crate::{metrics::counters::Count, node::execute::execute, store_context::StoreContext};

/// The host of one machine during a step.
pub(super) struct StageHost<'a, 'c, 'n> {
    pub(super) stage_cx: &'a mut StageContext<'c, 'n>,
    pub(super) state: &'a mut StageState,
    /// What came with the message of this step.
    pub(super) incoming: Option<&'a Carried>,
}

/// An hour of the version clock: no node's clock runs further ahead of another's.
const LEAD_MAX: u64 = (3600 * HybridClock::TICKS_PER_SECOND) << 16;

impl<'a, 'c> StageHost<'a, 'c, '_> {
    fn copies(&self) -> Option<&'c CopyTable> {
        let cluster = self.stage_cx.cluster;
        let inbox = cluster.stages.get(usize::from(self.state.number));
        inbox.map(|inbox| &inbox.copies)
    }

    /// The incoming item, if it is the one of `key`.
    fn incoming_of(&self, key: RouteHash) -> Option<&'a Carried> {
        let is_it = |item: &&'a Carried| curtail_store::route_of(item.key()) == key;
        self.incoming.filter(is_it)
    }

    /// Runs a write under `version`, or without one under the next version of this thread.
    fn write(&mut self, ticket: Ticket, version: Option<Cas>) -> RunResult {
        let store_cx = &mut *self.stage_cx.cx.store_cx;
        let Some(waiting) = self.state.requests.get(ticket.0) else {
            return RunResult::Unchanged;
        };
        let Some(request) = ItemRequest::decode(&waiting.done.request) else {
            return RunResult::Unchanged;
        };
        let hash = store_cx.store.hash(request.key.bytes());
        waiting.done.value.clear();
        let room = (version, waiting.size);
        let (outcome, change) = store_cx.run(&request, hash, room, &mut waiting.done.value);
        waiting.next = match (change, waiting.next) {
            (ItemChange::Outgrown, _) => Next::Again,
            (_, Next::Again) => Next::Answer,
            (_, next) => next,
        };
        if matches!(change, ItemChange::NoRoom | ItemChange::Outgrown) {
            return match change {
                ItemChange::NoRoom => RunResult::NoRoom,
                _ => RunResult::Unchanged,
            };
        }
        let shows = request.shows != curtail_codec::node::Shows::Nothing;
        let counts = &mut self.stage_cx.cx.counts;
        match outcome {
            Some(outcome) if waiting.next == Next::Answer => {
                counts.add_outcome(&request.operation, shows, &outcome);
            }
            _ => {}
        }
        let ended = outcome.ok_or(Failure::OutOfMemory);
        waiting.done.end = End::of(ended);
        let result = match change {
            ItemChange::Stored(bytes) => RunResult::Stored(bytes),
            ItemChange::Removed => RunResult::Removed,
            _ => RunResult::Unchanged,
        };
        // What changed nothing shows the key as a read does: no copy ever gets this version.
        waiting.done.shown = match (result, version) {
            (RunResult::Unchanged, _) | (_, None) => {
                store_cx.version_of(request.key, hash).unwrap_or_default()
            }
            (_, Some(version)) => version,
        };
        result
    }

    fn read(&mut self, ticket: Ticket) {
        let cx = &mut *self.stage_cx.cx;
        let Some(waiting) = self.state.requests.get(ticket.0) else {
            return;
        };
        let Some(request) = ItemRequest::decode(&waiting.done.request) else {
            return;
        };
        let hash = cx.store_cx.store.hash(request.key.bytes());
        waiting.done.value.clear();
        waiting.done.end = End::of(execute(cx, &request, hash, &mut waiting.done.value));
        waiting.done.shown = cx
            .store_cx
            .version_of(request.key, hash)
            .unwrap_or_default();
    }

    fn take(&mut self, ticket: Ticket) -> Option<Waiting> {
        self.state.writes.retain(|(.., of)| *of != ticket);
        self.state.requests.take(ticket.0)
    }

    fn remove(&mut self, key: RouteHash) {
        let store_cx = &mut *self.stage_cx.cx.store_cx;
        if let Some((key, hash)) = find(store_cx, key, &mut self.state.key) {
            store_cx.remove(key, hash);
        }
    }
}

/// Finds the stored item of a key, whose bytes are in `room` then.
pub(super) fn find<'k>(
    store_cx: &StoreContext,
    key: RouteHash,
    room: &'k mut Vec<u8>,
) -> Option<(Key<'k>, KeyHash)> {
    let hash = store_cx.store.hash_of_route(key);
    let is_there = store_cx.store.key_of(store_cx.now, hash, room);
    let key = Key::new(room).ok().filter(|_| is_there)?;
    Some((key, hash))
}

impl ReplicaHost for StageHost<'_, '_, '_> {
    fn run(&mut self, request: &ReplicaRequest, version: Cas) -> RunResult {
        if request.access == Access::Read {
            self.read(request.ticket);
            return RunResult::Unchanged;
        }
        // While threads give versions beside the machine, its own might be below the item's.
        let (gate, _) = self
            .stage_cx
            .cluster
            .gates
            .look(slice_of(request.key, SLICES));
        let version = (gate != Gate::Open).then_some(version);
        self.write(request.ticket, version)
    }

    fn stamp(&mut self, ticket: Ticket, version: Cas) {
        if let Some(waiting) = self.state.requests.get(ticket.0) {
            waiting.done.shown = waiting.done.shown.max(version);
        }
    }

    fn respond(&mut self, ticket: Ticket, copies: u8) {
        let Some(mut waiting) = self.take(ticket) else {
            return;
        };
        if copies != 0 {
            waiting.done.copies = copies;
        }
        match waiting.next {
            Next::Again => {
                waiting.next = Next::Answer;
                return self.state.again.push(waiting);
            }
            Next::Refused(outcome) => waiting.done.end = End::Done(Some(outcome)),
            Next::Answer => {}
        }
        self.stage_cx.done.push(waiting.done);
    }

    fn refuse(&mut self, ticket: Ticket, refusal: ReplicaRefusal) {
        let Some(mut waiting) = self.take(ticket) else {
            return;
        };
        let request = ItemRequest::decode(&waiting.done.request);
        if let (Some(request), ReplicaRefusal::NoRoom, Next::Answer) =
            (&request, refusal, waiting.next)
            && let Some((outcome, removes)) = without_room(&request.operation)
        {
            waiting.done.end = End::Done(Some(outcome));
            self.stage_cx.cx.counts.add(Count::StoreNoMemory, 1);
            if removes {
                let refused = self.stage_cx.removal_of(request, outcome, &waiting);
                self.state.again.push(refused);
                return self.stage_cx.spare.give(waiting.done.request);
            }
            return self.stage_cx.done.push(waiting.done);
        }
        if refusal == ReplicaRefusal::Elsewhere
            && matches!(waiting.done.origin.asker, super::Asker::Peer { .. })
        {
            waiting.done.end = End::Elsewhere;
        } else {
            waiting.done.end = End::Failed(failure_of(refusal));
        }
        waiting.done.value.clear();
        self.stage_cx.done.push(waiting.done);
    }

    fn forward(&mut self, request: &ReplicaRequest, to: NodeId) {
        self.stage_cx.cx.counts.add(Count::ClusterRelayed, 1);
        if !self.state.send_request(self.stage_cx, request.ticket, to) {
            self.state.unforwarded.push((to, request.ticket));
        }
    }

    fn send(&mut self, to: NodeSet, message: &ReplicaMessage) {
        self.state.send(self.stage_cx, to, message, None);
    }

    fn apply(&mut self, from: NodeId, change: &SliceChange) -> bool {
        let account = self.state.account(from);
        let item = self.incoming_of(change.key);
        let item = item.filter(|_| change.kind == ChangeKind::Store);
        let store_cx = &mut *self.stage_cx.cx.store_cx;
        if let Some(item) = item
            && let Ok(key) = Key::new(item.key())
        {
            let hash = store_cx.store.hash(item.key());
            let of = (account, change.room);
            return store_cx.put_promised(key, hash, (&item.image, item.value()), of);
        }
        if !store_cx.store.take_promised(account, change.room) {
            return false;
        }
        self.remove(change.key);
        true
    }

    fn item(&mut self, key: RouteHash) -> Option<(Cas, u32)> {
        let store_cx = &mut *self.stage_cx.cx.store_cx;
        let (key, hash) = find(store_cx, key, &mut self.state.key)?;
        let (version, bytes) = store_cx.item_bytes_of(key, hash)?;
        self.saw(version);
        Some((version, bytes))
    }

    fn promise(&mut self, to: NodeId, held: u64, wanted: u64) -> u64 {
        let account = self.state.account(to);
        let store = &self.stage_cx.cx.store_cx.store;
        store.promise(account, held, wanted)
    }

    fn evicts(&self) -> bool {
        self.stage_cx.cx.store_cx.store.evicts()
    }

    fn evict(
        &mut self,
        bytes: u64,
        may_evict: &mut dyn FnMut(SliceId) -> bool,
        evicted: &mut dyn FnMut(SliceId, RouteHash),
    ) {
        let stage = self.state.number;
        let store_cx = &mut *self.stage_cx.cx.store_cx;
        store_cx.evict_slices(
            (stage, bytes),
            &mut |slice| may_evict(SliceId(slice)),
            &mut |slice, key| evicted(SliceId(slice), key),
        );
    }

    fn scan(&mut self, slice: SliceId, begins: bool) {
        self.state.scans.push((slice, begins));
    }

    fn clear(&mut self, slice: SliceId, before: Option<Cas>) {
        self.stage_cx.cx.store_cx.clear_slice(slice.0, before);
        self.saw(before.unwrap_or_default());
    }

    /// A worker gives its writes of a turn versions of its own, which run ahead of the time.
    fn flush(&mut self, slice: SliceId) -> Cas {
        let store_cx = &mut *self.stage_cx.cx.store_cx;
        store_cx.clear_slice(slice.0, None);
        self.state.clock.follow(store_cx.store.last_cas());
        let version = self.state.clock.next(store_cx.now);
        store_cx.store.raise_versions(version);
        version
    }

    fn gate(&mut self, slice: SliceId, gate: Gate) {
        let cluster = self.stage_cx.cluster;
        let host = self.stage_cx.cx.host;
        if gate == Gate::Open {
            let store = &self.stage_cx.cx.store_cx.store;
            store.raise_versions(self.state.clock.last());
        }
        let was_open = cluster.gates.set(slice, gate) == Gate::Open;
        if was_open != (gate == Gate::Open) {
            host.set_accepting(slice.0, !was_open);
        }
        if was_open {
            self.state.closing.push_back(ClosingGate {
                slice,
                mark: cluster.marks.set(),
                tails: host.accepted_tails(),
            });
            host.wake_all();
        }
    }

    fn free(&mut self, slice: SliceId, is_free: bool) {
        self.stage_cx.cx.store_cx.store.set_free(slice.0, is_free);
    }

    fn propose(&mut self, change: RowChange) {
        let cluster = self.stage_cx.cluster;
        cluster.tell_member(|member| member.propose(change));
    }

    fn next_version(&mut self) -> Cas {
        self.state.clock.next(self.stage_cx.cx.store_cx.now)
    }

    /// What a client made up may be anywhere, and must not drag the clock along.
    fn saw(&mut self, version: Cas) {
        let next = self.state.clock.next(self.stage_cx.cx.store_cx.now);
        if version >= next && version.0 - next.0 < LEAD_MAX {
            self.state.clock.follow(version);
        }
    }

    fn show(&mut self, key: RouteHash, version: Cas, state: CopyState, takes_image: bool) {
        let keys = &self.stage_cx.cluster.keys;
        let store = std::sync::Arc::clone(&self.stage_cx.cx.store_cx.store);
        let copies = self.copies();
        let is_new = copies.is_some_and(|copies| !copies.has(key));
        match (is_new, state) {
            (true, CopyState::Absent) => return,
            (true, _) => {
                // What is shown is not evicted.
                store.keep(store.hash_of_route(key));
                keys.enter(key);
            }
            (false, CopyState::Invalid) => keys.settle(key, SharedState::Unsettled),
            (false, _) => {}
        }
        let mut own = self.state.writes.iter();
        let own = own.find(|one| (one.0, one.1) == (key, version));
        let own = own.and_then(|(.., ticket)| self.state.requests.get(ticket.0));
        let own = own.filter(|_| !takes_image);
        let written = own.as_ref().and_then(|waiting| {
            let value = ItemRequest::decode(&waiting.done.request)?.value;
            Some((Some(waiting.written?), value))
        });
        let incoming = self.incoming;
        let incoming = takes_image.then(|| match incoming {
            Some(item) => (Some(item.image), item.value()),
            None => (None, &[][..]),
        });
        if let Some(copies) = copies {
            copies.show(key, state, incoming.or(written));
        }
        match state {
            CopyState::Valid => keys.settle(key, SharedState::Valid),
            CopyState::Absent => {
                store.let_go(store.hash_of_route(key));
                keys.settle(key, SharedState::Ordinary);
            }
            CopyState::Invalid => {}
        }
    }

    fn read_copy(&mut self, request: &ReplicaRequest) {
        let now = self.stage_cx.cx.store_cx.now;
        let copies = self.copies();
        let waiting = self.state.requests.get(request.ticket.0);
        let Some((copies, waiting)) = copies.zip(waiting) else {
            return;
        };
        let shows = ItemRequest::decode(&waiting.done.request).map(|request| request.shows);
        let shows_value = shows == Some(curtail_codec::node::Shows::Value);
        waiting.done.value.clear();
        let Completed { value, end, .. } = &mut waiting.done;
        let read = copies.read(now, request.key, |outcome, bytes| {
            if shows_value {
                value.extend_from_slice(bytes);
            }
            outcome
        });
        *end = read.map_or(End::Failed(Failure::Busy), |outcome| {
            End::Done(Some(outcome))
        });
        self.stage_cx.cx.counts.add(Count::ClusterHot, 1);
    }

    fn write_copy(&mut self, request: &ReplicaRequest, version: Cas) -> bool {
        let store_cx = &self.stage_cx.cx.store_cx;
        let Some(waiting) = self.state.requests.get(request.ticket.0) else {
            return false;
        };
        let set =
            ItemRequest::decode(&waiting.done.request).and_then(|request| plain_set(&request));
        let Some((set, value_bytes)) = set else {
            return false;
        };
        if value_bytes > store_cx.store.config().item_bytes_max {
            return false;
        }
        waiting.written = Some(Image {
            cas: version,
            flags: set.flags,
            expiry: set.exptime.expiry(store_cx.now).to_bits(),
            ..Image::default()
        });
        waiting.done.end = End::Done(Some(Outcome::Set(SetOutcome::Stored(version))));
        waiting.done.shown = version;
        self.state
            .writes
            .push((request.key, version, request.ticket));
        self.saw(version);
        true
    }

    fn send_write(&mut self, to: NodeSet, message: &ReplicaMessage, ticket: Ticket) {
        self.state.send(self.stage_cx, to, message, Some(ticket));
    }

    fn store_copy(&mut self, key: RouteHash, version: Cas) -> RunResult {
        let Some(item) = self.incoming_of(key) else {
            return RunResult::NoRoom;
        };
        let Ok(key) = Key::new(item.key()) else {
            return RunResult::NoRoom;
        };
        let image = Image {
            cas: version,
            ..item.image
        };
        let store_cx = &mut *self.stage_cx.cx.store_cx;
        let hash = store_cx.store.hash(item.key());
        let stored = store_cx.put_without_eviction(key, hash, &image, item.value());
        self.saw(version);
        match stored {
            Some(bytes) => RunResult::Stored(bytes),
            None => RunResult::NoRoom,
        }
    }

    fn incoming_bytes(&self) -> u32 {
        self.incoming.map_or(0, |item| {
            let (key, value) = (item.key().len(), item.value().len());
            curtail_store::Store::item_bytes(key, value)
        })
    }

    fn now(&self) -> Instant {
        self.stage_cx.cx.store_cx.now.instant
    }
}

/// The write of a request that sets a value whatever is there, and for some time to come.
fn plain_set(request: &ItemRequest<'_>) -> Option<(Set, usize)> {
    match request.operation {
        Operation::Set(set) if set.exptime.0 >= 0 && !set.invalidate => {
            Some((set, request.value.len()))
        }
        _ => None,
    }
}
