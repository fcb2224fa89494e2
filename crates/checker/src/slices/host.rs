//! The host of a replica in a model: a store of a few items, and a network.

use curtail_consistency::replica::Ticket;
use curtail_consistency::replica::{
    ChangeKind, CopyState, Gate, ReplicaHost, ReplicaMessage, ReplicaRefusal, ReplicaRequest,
    RunResult, SliceChange,
};
use curtail_consistency::slice_view::{RowChange, SliceId, slice_of};
use curtail_types::{Cas, Instant, NodeId, NodeSet, RouteHash, WriterId};

use super::SliceSetup;
use super::in_words::named;
use super::world::{Load, SliceNode, SliceWorld, Stage, StoredItem};
use crate::judge::Written;
use crate::requests::Kind;
use crate::requests::Label;

/// The host of one node during a step.
pub(super) struct ModelHost<'a> {
    pub(super) setup: &'a SliceSetup,
    pub(super) world: &'a mut SliceWorld,
    pub(super) me: NodeId,
    /// What came with the message of this step.
    pub(super) incoming: Option<StoredItem>,
}

impl ModelHost<'_> {
    fn node(&self) -> &SliceNode {
        self.world.node(self.me)
    }

    fn edit(&mut self) -> &mut SliceNode {
        self.world.edit(self.me)
    }

    fn post(&mut self, to: NodeId, load: Load) {
        self.world.post(self.me, to, load);
    }

    /// Whether primary `from` waits for this node, as far as it knows.
    fn counts_here(&self, from: NodeId) -> bool {
        let primary = self.world.node(from).machine.as_ref();
        let view = primary.and_then(|one| one.view());
        let mut rows = view.into_iter().flat_map(|view| view.rows());
        rows.any(|(_, row)| row.primary == from && row.in_sync.contains(self.me))
    }

    /// Has the eviction of a key judged like a delete that nobody asked for.
    fn note_evicted(&mut self, key: RouteHash) {
        let key = self.setup.index_of(key);
        let judge = &mut self.world.judges.edit()[key];
        judge.asked_once(Label::EVICTION, Kind::Delete);
    }

    /// Evicts one item of the slices that `may_evict` names.
    pub(super) fn evict_one(
        &mut self,
        may_evict: &mut dyn FnMut(SliceId) -> bool,
    ) -> Option<RouteHash> {
        let slices = self.setup.slices;
        if self.world.left.evictions == 0 {
            return None;
        }
        let mut keys = self.node().items.keys();
        let key = *keys.find(|key| may_evict(slice_of(**key, slices)))?;
        self.world.left.evictions -= 1;
        self.edit().items.remove(&key);
        let (node, named_key) = (named(self.me), self.setup.key(key));
        let notes = &mut self.world.notes;
        notes.add(|| format!("{node} evicts {named_key}"));
        self.note_evicted(key);
        Some(key)
    }

    /// Readers that have copied the value of one of these keys here read it again.
    fn make_stale(&mut self, is_one: impl Fn(RouteHash) -> bool) {
        let operations = self.world.operations.edit().iter_mut();
        for (stage, (_, key)) in operations.zip(self.setup.operations) {
            if let Stage::Copied(node, _, is_stale) = stage {
                *is_stale |= *node == self.me && is_one(self.setup.keys[*key]);
            }
        }
    }

    /// A request has ended at its primary: its client hears of it, or the node that asked.
    fn end(&mut self, ticket: Ticket, answer: Result<(Cas, Written), ReplicaRefusal>) {
        let label = Label(ticket.0 as u8);
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        let (me, node) = (self.me, self.edit());
        node.results.remove(&ticket);
        node.writes.remove(&ticket);
        if !node.own.remove(&ticket) {
            if let Stage::Asked(origin) = self.world.operations[usize::from(label.0)] {
                self.post(origin, Load::Answer(ticket, answer));
            }
            return;
        }
        match answer {
            Ok(result) => self.world.answer(me, key, (label, kind), result),
            Err(refusal) => self.world.refuse(key, label, refusal),
        }
    }

    /// Whether readers beside the machine may show the stored item of a key now.
    fn shows_item(&self, key: RouteHash) -> bool {
        let node = self.node();
        let slice = slice_of(key, self.setup.slices);
        let state = node.copies.get(&key).map(|copy| copy.state);
        node.gates[usize::from(slice.0)] == Gate::Reads && state != Some(CopyState::Invalid)
    }

    /// An item changes that was shown, or was not: no reader may see that before the machine allows
    /// it. (Readers of the model come between steps only, those of a server at any moment.)
    fn note_change(&mut self, was_shown: bool) {
        if was_shown {
            self.world
                .notes
                .fail("an item changes while readers may see it");
        }
    }

    /// What requests find, and leave.
    fn execute(&mut self, label: Label, key: RouteHash, version: Cas) -> RunResult {
        let kind = self.setup.operations[usize::from(label.0)].0;
        let before = self.node().items.get(&key).copied();
        let found = before.map_or(Written::NOTHING, |item| item.value);
        let (after, said) = found.outcome(label, kind);
        let stores = matches!(kind, Kind::Set | Kind::Append);
        let is_full = self.setup.is_accounted() && self.node().room_taken() >= self.setup.capacity;
        if stores && before.is_none() && is_full {
            return RunResult::NoRoom;
        }
        let ticket = Ticket(u64::from(label.0));
        let removes = kind == Kind::Delete && before.is_some();
        let node = self.edit();
        let shown = if stores || removes {
            version
        } else {
            before.map_or(Cas(0), |item| item.version)
        };
        node.results.insert(ticket, (shown, said));
        match kind {
            Kind::Get => RunResult::Unchanged,
            Kind::Delete if before.is_none() => RunResult::Unchanged,
            Kind::Delete => {
                node.clock = node.clock.max(version.clock());
                node.items.remove(&key);
                RunResult::Removed
            }
            Kind::Set | Kind::Append => {
                let value = after;
                node.clock = node.clock.max(version.clock());
                node.items.insert(key, StoredItem { version, value });
                if before.is_some_and(|before| before.version >= version) {
                    self.world
                        .notes
                        .fail("a version that is not above the last one");
                }
                RunResult::Stored(1)
            }
        }
    }

    /// A request beside the machine, at once.
    pub(super) fn run_beside(&mut self, label: Label) {
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        let version = self.next_version();
        let ran = self.execute(label, self.setup.keys[key], version);
        if ran == RunResult::NoRoom {
            let gates = self.node().gates.clone();
            let mut is_open = |slice: SliceId| gates[usize::from(slice.0)] == Gate::Open;
            if self.evict_one(&mut is_open).is_some() {
                self.execute(label, self.setup.keys[key], version);
            }
        }
        let ticket = Ticket(u64::from(label.0));
        match self.edit().results.remove(&ticket) {
            // Nothing keeps the version of such a removal, so an installation may be below it.
            Some((_, Written::GONE)) => {
                let gone = (Cas(0), Written::GONE);
                self.world.answer(self.me, key, (label, kind), gone);
            }
            Some(result) => self.world.answer(self.me, key, (label, kind), result),
            None => self.world.refuse(key, label, ReplicaRefusal::NoRoom),
        }
    }
}

impl ModelHost<'_> {
    /// A write that was accepted, beside the machine. One that finds no room has been stored, and
    /// evicted at once.
    pub(super) fn run_accepted(&mut self, label: Label) {
        let key = self.setup.keys[self.setup.operations[usize::from(label.0)].1];
        let version = self.next_version();
        if self.execute(label, key, version) == RunResult::NoRoom {
            self.edit().items.remove(&key);
            self.note_evicted(key);
        }
        self.edit().results.remove(&Ticket(u64::from(label.0)));
    }
}

impl ReplicaHost for ModelHost<'_> {
    fn run(&mut self, request: &ReplicaRequest, version: Cas) -> RunResult {
        let was_shown = self.shows_item(request.key);
        let result = self.execute(Label(request.ticket.0 as u8), request.key, version);
        if matches!(result, RunResult::Stored(_) | RunResult::Removed) {
            self.world.note_executed(Label(request.ticket.0 as u8));
            self.note_change(was_shown);
        }
        result
    }

    fn stamp(&mut self, ticket: Ticket, version: Cas) {
        // What found an item has that one's version.
        if let Some((shown, Written::NOTHING)) = self.edit().results.get_mut(&ticket) {
            *shown = version;
        }
    }

    fn respond(&mut self, ticket: Ticket, _: u8) {
        if ticket.0 >= SliceSetup::FLUSHES {
            let slice = SliceId((ticket.0 - SliceSetup::FLUSHES) as u16);
            return self.world.flushed(self.setup.keys_of(slice));
        }
        let result = self.node().results.get(&ticket).copied();
        self.end(ticket, Ok(result.unwrap_or((Cas(0), Written::NOTHING))));
    }

    fn refuse(&mut self, ticket: Ticket, refusal: ReplicaRefusal) {
        if ticket.0 < SliceSetup::FLUSHES {
            self.end(ticket, Err(refusal));
        }
    }

    fn forward(&mut self, request: &ReplicaRequest, to: NodeId) {
        let request = ReplicaRequest {
            is_forwarded: true,
            ..*request
        };
        self.post(to, Load::Request(request));
    }

    fn send(&mut self, to: NodeSet, message: &ReplicaMessage) {
        let key = message.carries_image();
        let image = key.and_then(|key| self.node().items.get(&key).copied());
        for to in to {
            self.post(to, Load::Message(message.clone(), image));
        }
    }

    fn apply(&mut self, from: NodeId, change: &SliceChange) -> bool {
        let (incoming, is_accounted) = (self.incoming, self.setup.is_accounted());
        let node = self.edit();
        let promised = node.promised.get(&from).copied().unwrap_or(0);
        if is_accounted && promised < u64::from(change.room) {
            if self.counts_here(from) {
                self.world
                    .notes
                    .fail("a change for which no room was promised");
            }
            return false;
        }
        node.promised
            .insert(from, promised.saturating_sub(u64::from(change.room)));
        self.note_change(self.shows_item(change.key));
        let node = self.edit();
        match incoming.filter(|_| change.kind == ChangeKind::Store) {
            Some(item) => node.items.insert(change.key, item),
            None => node.items.remove(&change.key),
        };
        let items = self.node().items.len() as u64;
        if is_accounted && items > self.setup.capacity {
            self.world
                .notes
                .fail("a store has more items than it has room for");
        }
        true
    }

    fn item(&mut self, key: RouteHash) -> Option<(Cas, u32)> {
        self.node().items.get(&key).map(|item| (item.version, 1))
    }

    fn promise(&mut self, to: NodeId, held: u64, wanted: u64) -> u64 {
        let capacity = self.setup.capacity;
        let node = self.edit();
        node.promised.insert(to, held);
        let more = wanted.min(capacity.saturating_sub(node.room_taken()));
        node.promised.insert(to, held + more);
        more
    }

    fn evicts(&self) -> bool {
        self.world.left.evictions > 0
    }

    fn evict(
        &mut self,
        _: u64,
        may_evict: &mut dyn FnMut(SliceId) -> bool,
        evicted: &mut dyn FnMut(SliceId, RouteHash),
    ) {
        if let Some(key) = self.evict_one(may_evict) {
            evicted(slice_of(key, self.setup.slices), key);
        }
    }

    fn scan(&mut self, slice: SliceId, begins: bool) {
        if begins {
            let me = self.me;
            let is_scan = |load: &Load| matches!(load, Load::Scan(of, _) if *of == slice);
            let parcels = self.world.parcels.edit();
            parcels.retain(|one| one.to != me || !is_scan(&one.load));
            self.post(me, Load::Scan(slice, None));
        } else {
            // The model's scans have one batch for each key, which asks for the next itself.
            self.world.resume_scan(self.me, slice);
        }
    }

    fn clear(&mut self, slice: SliceId, before: Option<Cas>) {
        let slices = self.setup.slices;
        let goes = |key: &RouteHash, item: &StoredItem| {
            slice_of(*key, slices) == slice && before.is_none_or(|before| item.version < before)
        };
        let gone = self.node().items.iter().find(|(key, item)| goes(key, item));
        if let Some((&key, _)) = gone {
            self.note_change(self.shows_item(key));
        }
        self.edit().items.retain(|key, item| !goes(key, item));
        self.saw(before.unwrap_or_default());
    }

    fn flush(&mut self, slice: SliceId) -> Cas {
        let version = self.next_version();
        self.clear(slice, Some(version));
        version
    }

    fn gate(&mut self, slice: SliceId, gate: Gate) {
        let (me, slices) = (self.me, self.setup.slices);
        let before = std::mem::replace(&mut self.edit().gates[usize::from(slice.0)], gate);
        if gate == Gate::Closed {
            self.make_stale(|key| slice_of(key, slices) == slice);
        }
        if before == Gate::Open {
            self.post(me, Load::Closed(slice));
        }
    }

    fn propose(&mut self, change: RowChange) {
        self.edit().proposals.insert(change);
    }

    fn next_version(&mut self) -> Cas {
        // Of versions that are not used nothing shall be left.
        Cas::new(self.node().clock + 1, WriterId::of(self.me, 0))
    }

    fn saw(&mut self, version: Cas) {
        let node = self.edit();
        node.clock = node.clock.max(version.clock());
    }

    fn show(&mut self, key: RouteHash, version: Cas, state: CopyState, takes_image: bool) {
        let incoming = self.incoming;
        self.make_stale(|of| of == key);
        let was_hidden = !self.shows_item(key);
        let node = self.edit();
        if state == CopyState::Absent {
            node.copies.remove(&key);
            if was_hidden && self.shows_item(key) {
                self.world
                    .notes
                    .fail("a key ceases to be hot while a write of it is under way");
            }
            return;
        }
        let is_it = |(of, item): &&(RouteHash, StoredItem)| (*of, item.version) == (key, version);
        let own = node.writes.values().find(is_it).copied();
        let copy = node.copies.entry(key).or_default();
        (copy.state, copy.version) = (state, version);
        if takes_image {
            copy.image = Some(incoming);
        } else if let Some((_, item)) = own {
            copy.image = Some(Some(item));
        }
    }

    fn read_copy(&mut self, request: &ReplicaRequest) {
        let node = self.edit();
        let copy = node.copies.get(&request.key).copied().unwrap_or_default();
        node.results.insert(request.ticket, copy.shown());
    }

    fn write_copy(&mut self, request: &ReplicaRequest, version: Cas) -> bool {
        let label = Label(request.ticket.0 as u8);
        let value = Written::default().outcome(label, Kind::Set).0;
        let node = self.edit();
        let item = StoredItem { version, value };
        node.clock = node.clock.max(version.clock());
        node.writes.insert(request.ticket, (request.key, item));
        node.results.insert(request.ticket, (version, value));
        true
    }

    fn send_write(&mut self, to: NodeSet, message: &ReplicaMessage, ticket: Ticket) {
        let image = self.node().writes.get(&ticket).map(|(_, item)| *item);
        for to in to {
            self.post(to, Load::Message(message.clone(), image));
        }
    }

    fn store_copy(&mut self, key: RouteHash, version: Cas) -> RunResult {
        let (incoming, capacity) = (self.incoming, self.setup.capacity);
        let is_accounted = self.setup.is_accounted();
        let node = self.edit();
        let is_new = !node.items.contains_key(&key);
        if is_accounted && is_new && node.room_taken() >= capacity {
            return RunResult::NoRoom;
        }
        self.note_change(self.shows_item(key));
        if let Some(label) = incoming.and_then(|item| item.value.set_by()) {
            self.world.note_executed(label);
        }
        let node = self.edit();
        if let Some(item) = incoming {
            node.clock = node.clock.max(version.clock());
            node.items.insert(key, StoredItem { version, ..item });
        }
        RunResult::Stored(1)
    }

    fn incoming_bytes(&self) -> u32 {
        1
    }

    fn now(&self) -> Instant {
        Instant { ns: 0 }
    }
}

impl SliceWorld {
    /// The next batch of a scan may be looked for.
    fn resume_scan(&mut self, me: NodeId, slice: SliceId) {
        let last = self.node(me).scans.get(&slice).copied();
        if let Some(behind) = last {
            self.post(me, me, Load::Scan(slice, Some(behind)));
        }
    }
}
