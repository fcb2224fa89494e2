//! Executes a request of another node, or a read that had to wait.

use curtail_codec::node::{ItemRequest, Shows};
use curtail_types::{Failure, KeyHash, Operation, Outcome};

use crate::{metrics::counters::Count, node::host::NodeContext};

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
