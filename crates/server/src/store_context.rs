//! What executing an operation needs (store, writer, time), and the one function that executes it.
//!
//! Every thread that touches the store has one: workers, the threads of the native path, and those
//! that answer datagrams. How an outcome is spelt, and to whom it goes, is for the caller.

use std::sync::Arc;

use curtail_codec::node::{ItemRequest, Shows};
use curtail_store::{
    COPY_BYTES_MAX, Image, ItemChange, ItemView, Reservation, Store, ValueLease, Writer,
};
use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, DeleteOutcome, Get, Key, KeyHash, Now, Operation,
    Outcome, RouteHash, Set, SetOutcome,
};

/// What executing an operation needs.
pub(crate) struct StoreContext {
    pub(crate) store: Arc<Store>,
    pub(crate) writer: Writer,
    /// The time of this turn.
    pub(crate) now: Now,
}

impl StoreContext {
    /// The context of a thread that writes as `writer`.
    pub(crate) fn new(store: Arc<Store>, writer: Writer, now: Now) -> Self {
        Self { store, writer, now }
    }

    /// Executes `operation`, a write of `value`. Has `view` look at the item that a read finds,
    /// perhaps more than once: what it saw last is true.
    #[inline]
    pub(crate) fn execute(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        operation: &Operation,
        value: &[u8],
        mut view: impl FnMut(&ItemView<'_>),
    ) -> Outcome {
        match operation {
            Operation::Get(get) => {
                let status = self.get(key, hash, get, |item| {
                    view(item);
                    item.status()
                });
                status.map_or(Outcome::Missing, Outcome::Found)
            }
            Operation::Set(set) => Outcome::Set(self.set(key, hash, set, value)),
            Operation::Delete(delete) => Outcome::Delete(self.delete(key, hash, delete)),
            Operation::Arithmetic(arithmetic) => {
                Outcome::Arithmetic(self.arithmetic(key, hash, arithmetic))
            }
        }
    }

    /// Executes `operation` where nobody waits with a form of its own: for another node, or one
    /// that was kept for later. The value that a read finds is appended to `into`, if that is
    /// given. `None` if the value is too long to be copied and nothing more may be leased.
    pub(crate) fn execute_into(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        operation: &Operation,
        value: &[u8],
        into: Option<&mut Vec<u8>>,
    ) -> Option<Outcome> {
        let mut seen = SeenValue::new(into);
        let outcome = self.execute(key, hash, operation, value, |item| seen.look(item));
        seen.finish().then_some(outcome)
    }

    /// Executes a write of which the protocol between nodes chooses the version, with room for so
    /// many bytes at most; what it shows of a value is in `into` then. No outcome if the value is
    /// too long to be copied and nothing more may be leased.
    pub(crate) fn run(
        &mut self,
        request: &ItemRequest<'_>,
        hash: KeyHash,
        (version, room_max): (Option<Cas>, u32),
        into: &mut Vec<u8>,
    ) -> (Option<Outcome>, ItemChange) {
        let ItemRequest {
            key,
            operation,
            shows,
            value,
        } = request;
        let (writer, now) = (&mut self.writer, self.now);
        let mut seen = SeenValue::new((*shows == Shows::Value).then_some(into));
        let (outcome, change) = self.store.run(
            writer,
            now,
            *key,
            hash,
            operation,
            value,
            version,
            room_max,
            |item| seen.look(item),
        );
        (seen.finish().then_some(outcome), change)
    }

    /// Bytes that the item of `key` may take when such a request has stored it.
    pub(crate) fn request_bytes(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        operation: &Operation,
        value_bytes: usize,
    ) -> u32 {
        let (writer, now) = (&mut self.writer, self.now);
        self.store
            .request_bytes(writer, now, key, hash, operation, value_bytes)
    }

    /// The version of the item of `key`, and the bytes that it takes.
    pub(crate) fn item_bytes_of(&mut self, key: Key<'_>, hash: KeyHash) -> Option<(Cas, u32)> {
        let (writer, now) = (&mut self.writer, self.now);
        self.store.item_bytes_of(writer, now, key, hash)
    }

    /// Puts an item in that another node has sent, into room that was promised to it.
    pub(crate) fn put_promised(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        (image, value): (&Image, &[u8]),
        (account, room): (u16, u32),
    ) -> bool {
        let (writer, now) = (&mut self.writer, self.now);
        self.store
            .put_promised(writer, now, key, hash, (image, value), account, room)
    }

    /// Removes everything in a slice that is older than `before`; everything if that is `None`.
    pub(crate) fn clear_slice(&mut self, slice: u16, before: Option<Cas>) {
        let (writer, now) = (&mut self.writer, self.now);
        self.store.clear_slice(writer, now, slice, before);
    }

    /// Puts an item in if there is room without eviction; the bytes that it takes then.
    pub(crate) fn put_without_eviction(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        image: &Image,
        value: &[u8],
    ) -> Option<u32> {
        self.writer.evict_freely(false);
        let (writer, now) = (&mut self.writer, self.now);
        let outcome = self.store.put_image(writer, now, key, hash, image, value);
        self.writer.evict_freely(true);
        let stored = matches!(outcome, SetOutcome::Stored(_));
        stored.then(|| Store::item_bytes(key.bytes().len(), value.len()))
    }

    /// Evicts about so many bytes of a stage's slices, as `may` allows it.
    pub(crate) fn evict_slices(
        &mut self,
        (stage, bytes): (u16, u64),
        may: &mut dyn FnMut(u16) -> bool,
        evicted: &mut dyn FnMut(u16, RouteHash),
    ) {
        let (writer, now) = (&mut self.writer, self.now);
        self.store
            .evict_slices(writer, now, stage, bytes, may, evicted);
    }

    #[inline(always)]
    pub(crate) fn get<T>(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        get: &Get,
        view: impl FnMut(&ItemView<'_>) -> T,
    ) -> Option<T> {
        let (writer, now) = (&mut self.writer, self.now);
        self.store.get(writer, now, key, hash, get, view)
    }

    #[inline(always)]
    pub(crate) fn set(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        value: &[u8],
    ) -> SetOutcome {
        let (writer, now) = (&mut self.writer, self.now);
        self.store.set(writer, now, key, hash, set, value)
    }

    #[inline(always)]
    pub(crate) fn delete(&mut self, key: Key<'_>, hash: KeyHash, delete: &Delete) -> DeleteOutcome {
        let (writer, now) = (&mut self.writer, self.now);
        self.store.delete(writer, now, key, hash, delete)
    }

    #[inline(always)]
    pub(crate) fn arithmetic(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        arithmetic: &Arithmetic,
    ) -> ArithmeticOutcome {
        let (writer, now) = (&mut self.writer, self.now);
        self.store.arithmetic(writer, now, key, hash, arithmetic)
    }

    /// Makes room for a value that arrives in pieces.
    pub(crate) fn reserve(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        value_bytes: usize,
    ) -> Result<Reservation, SetOutcome> {
        let (writer, now) = (&mut self.writer, self.now);
        self.store.reserve(writer, now, key, hash, set, value_bytes)
    }

    /// The same, but without room the item of `key` stays: this thread must not change it.
    pub(crate) fn reserve_only(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        set: &Set,
        value_bytes: usize,
    ) -> Result<Reservation, SetOutcome> {
        let (writer, now) = (&mut self.writer, self.now);
        self.store
            .reserve_only(writer, now, key, hash, set, value_bytes)
    }

    /// The version of the item of `key`, if there is one.
    pub(crate) fn version_of(&mut self, key: Key<'_>, hash: KeyHash) -> Option<Cas> {
        let (writer, now) = (&mut self.writer, self.now);
        self.store.version_of(writer, now, key, hash)
    }

    /// Removes the item of `key`, if there is one.
    pub(crate) fn remove(&mut self, key: Key<'_>, hash: KeyHash) {
        self.delete(key, hash, &Delete::default());
    }

    /// The item of `key` as it is, its value in `value`.
    pub(crate) fn take_image(
        &mut self,
        key: Key<'_>,
        hash: KeyHash,
        value: &mut Vec<u8>,
    ) -> Option<Image> {
        let (writer, now) = (&mut self.writer, self.now);
        self.store.take_image(writer, now, key, hash, value)
    }

    /// Publishes such a value.
    pub(crate) fn commit(&mut self, reservation: Reservation) -> SetOutcome {
        self.store.commit(&mut self.writer, self.now, reservation)
    }
}

/// The value of an item that a read finds, on its way to where it is kept.
struct SeenValue<'a> {
    into: Option<&'a mut Vec<u8>>,
    begin: usize,
    /// The lease of a value that is too long to be copied; `None` if there is none to be had.
    lease: Option<Option<ValueLease>>,
}

impl<'a> SeenValue<'a> {
    fn new(into: Option<&'a mut Vec<u8>>) -> Self {
        Self {
            begin: into.as_ref().map_or(0, |into| into.len()),
            into,
            lease: Some(None),
        }
    }

    /// Takes the value of `item`, in place of one that was seen before.
    fn look(&mut self, item: &ItemView<'_>) {
        self.lease = Some(None);
        let Some(into) = &mut self.into else {
            return;
        };
        into.truncate(self.begin);
        let bytes = item.value_bytes();
        if bytes > COPY_BYTES_MAX {
            self.lease = item.lease_value().map(Some);
            return;
        }
        into.resize(self.begin + bytes, 0);
        item.copy_value(0, into.get_mut(self.begin..).unwrap_or_default());
    }

    /// Whether it is there, if there is one.
    fn finish(self) -> bool {
        let Some(lease) = self.lease else {
            return false;
        };
        if let (Some(lease), Some(into)) = (lease, self.into) {
            let mut from = 0;
            while let part @ [_, ..] = lease.part(from) {
                into.extend_from_slice(part);
                from += part.len();
            }
        }
        true
    }
}
