//! Carrying out a request that was written down: of another node, or in its turn at last.
//!
//! A write of the protocol runs under a version that the protocol chose. Whether it has written is
//! seen by what is there afterwards, whatever the operation was: so every command of the store goes
//! through the protocol without knowing it.

use curtail_codec::memcached::Carried;
use curtail_store::{Hint, Image};
use curtail_types::{Cas, Key, KeyHash, Operation};

use crate::{
    request::reply_buffer::{Content, Replies},
    store_context::StoreContext,
    turn::execute::{self, Item, ROOM_BYTES},
    worker::context::WorkerContext,
};

/// What one request needs to be carried out apart from the batch.
pub(super) struct ExecuteContext {
    replies: Replies,
    /// The value of an item that is taken out whole.
    value: Vec<u8>,
}

/// Bytes of replies at a time: one, and there may be a value of the longest copied kind in it.
const REPLY_BYTES: usize = 2 * ROOM_BYTES;

impl ExecuteContext {
    pub(super) fn new() -> Self {
        Self {
            replies: Replies::with_room(REPLY_BYTES, 8),
            value: Vec::new(),
        }
    }

    /// Carries `carried` out as it is, and appends the reply to `reply`.
    pub(super) fn run(
        &mut self,
        cx: &mut WorkerContext,
        carried: &Carried<'_>,
        hash: KeyHash,
        reply: &mut Vec<u8>,
    ) {
        let item = Item {
            slot: 0,
            key: &carried.key,
            hash,
            form: &carried.form,
            hint: Hint::default(),
        };
        // Its connection is not at hand: nothing of it can be handed on, and it was shown to those
        // who look on where it arrived.
        let logged = std::mem::take(&mut cx.event_log.on);
        let large_here = cx.measured.large_here.take();
        execute::run_item_apart(
            cx,
            &mut self.replies,
            &item,
            &carried.operation,
            carried.value,
        );
        cx.event_log.on = logged;
        cx.measured.large_here = large_here;
        let (area, pieces) = self.replies.take();
        for piece in pieces.iter() {
            match &piece.content {
                Content::Area { start, end } => {
                    reply.extend_from_slice(area.get(*start..*end).unwrap_or_default());
                }
                Content::Lease(lease) => {
                    let mut from = 0;
                    while let part @ [_, ..] = lease.part(from) {
                        reply.extend_from_slice(part);
                        from += part.len();
                    }
                }
                Content::Owned(bytes) => reply.extend_from_slice(bytes),
                Content::Awaited(..) | Content::Final { .. } => {}
            }
        }
        self.replies.clear();
        self.replies.begin_turn();
    }

    /// The item of `key` as it is.
    pub(super) fn take_image(
        &mut self,
        cx: &mut WorkerContext,
        key: Key<'_>,
        hash: KeyHash,
    ) -> Option<(Image, &[u8])> {
        let value = &mut self.value;
        let image = cx.store_cx.store.take_image(
            &mut cx.store_cx.writer,
            cx.store_cx.now,
            key,
            hash,
            value,
        )?;
        Some((image, value))
    }

    /// Carries a write out under version `ts`; whether it has written.
    pub(super) fn write(
        &mut self,
        cx: &mut WorkerContext,
        carried: &Carried<'_>,
        (key, hash): (Key<'_>, KeyHash),
        ts: Cas,
        reply: &mut Vec<u8>,
    ) -> bool {
        let before = cx.version_of(key, hash);
        let mut versioned = *carried;
        set_version(&mut versioned.operation, ts);
        self.run(cx, &versioned, hash, reply);
        match (before, cx.version_of(key, hash)) {
            (_, Some(after)) if after == ts => true,
            (None, None) => false,
            (Some(_), None) => true,
            // What changes an item but not its version, as a touch does, is news to others, too.
            (_, Some(_)) if changes_quietly(&carried.operation) => {
                let StoreContext { store, writer, now } = &mut cx.store_cx;
                let value = &mut self.value;
                if let Some(mut image) = store.take_image(writer, *now, key, hash, value) {
                    image.cas = ts;
                    store.put_image(writer, *now, key, hash, &image, value);
                }
                true
            }
            (_, Some(_)) => false,
        }
    }
}

impl WorkerContext {
    /// The version of the item of `key`, if there is one.
    pub(super) fn version_of(&mut self, key: Key<'_>, hash: KeyHash) -> Option<Cas> {
        self.store_cx
            .store
            .version_of(&mut self.store_cx.writer, self.store_cx.now, key, hash)
    }
}

/// Has an operation give `ts` to what it writes.
fn set_version(operation: &mut Operation, ts: Cas) {
    match operation {
        Operation::Get(get) => get.new_cas = Some(ts),
        Operation::Set(set) => set.new_cas = Some(ts),
        Operation::Delete(delete) => delete.new_cas = Some(ts),
        Operation::Arithmetic(arithmetic) => arithmetic.new_cas = Some(ts),
    }
}

/// Whether an operation may change an item without a new version.
fn changes_quietly(operation: &Operation) -> bool {
    match operation {
        Operation::Get(get) => get.touch.is_some() || get.recache.is_some(),
        Operation::Delete(delete) => delete.invalidate || delete.drop_value,
        Operation::Set(_) | Operation::Arithmetic(_) => false,
    }
}
