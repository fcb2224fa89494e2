//! Executes a kept request: one of another node, or one that had to wait.
//!
//! The protocol chooses the version of a write. Whether the write changed the item is read from the
//! item afterwards, so every command of the store works under the protocol unchanged.

use curtail_codec::node::{ItemRequest, Shows};
use curtail_store::Image;
use curtail_types::{Cas, Failure, Key, KeyHash, Operation, Outcome};

use crate::{metrics::counters::Count, node::host::NodeContext};

/// What one request needs to be executed apart from the batch.
#[derive(Default)]
pub(super) struct ExecuteContext {
    /// The value of an item that is taken out whole.
    value: Vec<u8>,
}

/// Executes `request` as it is; what it shows of a value is appended to `value`.
pub(super) fn execute(
    cx: &mut NodeContext<'_>,
    request: &ItemRequest<'_>,
    hash: KeyHash,
    value: &mut Vec<u8>,
) -> Result<Outcome, Failure> {
    let ItemRequest { key, operation, .. } = request;
    let shows = request.shows != Shows::Nothing;
    let into = (request.shows == Shows::Value).then_some(value);
    let store_cx = &mut cx.store_cx;
    match store_cx.execute_into(*key, hash, operation, request.value, into) {
        Some(outcome) => {
            cx.counts.add_outcome(operation, shows, &outcome);
            Ok(outcome)
        }
        None => {
            let touches = matches!(operation, Operation::Get(get) if get.touch.is_some());
            cx.counts.add_get(shows, touches, true);
            cx.counts.add(Count::ReplyNoMemory, 1);
            *cx.lease_refused = true;
            Err(Failure::OutOfMemory)
        }
    }
}

impl ExecuteContext {
    /// The item of `key` as it is.
    pub(super) fn take_image(
        &mut self,
        cx: &mut NodeContext<'_>,
        key: Key<'_>,
        hash: KeyHash,
    ) -> Option<(Image, &[u8])> {
        let image = cx.store_cx.take_image(key, hash, &mut self.value)?;
        Some((image, &self.value))
    }

    /// Executes a write under version `ts`; how it ended, and whether it has written.
    pub(super) fn write(
        &mut self,
        cx: &mut NodeContext<'_>,
        request: &ItemRequest<'_>,
        (hash, ts): (KeyHash, Cas),
        value: &mut Vec<u8>,
    ) -> (Result<Outcome, Failure>, bool) {
        let key = request.key;
        let before = cx.store_cx.version_of(key, hash);
        let mut versioned = *request;
        set_version(&mut versioned.operation, ts);
        let ended = execute(cx, &versioned, hash, value);
        let wrote = match (before, cx.store_cx.version_of(key, hash)) {
            (_, Some(after)) if after == ts => true,
            (None, None) => false,
            (Some(_), None) => true,
            // A change that keeps the version, such as a touch, must reach the other nodes, too.
            (_, Some(_)) if changes_quietly(&request.operation) => {
                if let Some((mut image, value)) = self.take_image(cx, key, hash) {
                    image.cas = ts;
                    cx.store_cx.put_image(key, hash, &image, value);
                }
                true
            }
            (_, Some(_)) => false,
        };
        (ended, wrote)
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
