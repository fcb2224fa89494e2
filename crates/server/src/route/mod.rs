//! Routes: where a request runs.
//!
//! ```text
//!   a disk below memory? accepted writes before it? placement among nodes? policy among workers?
//!     Disk; or Gateway        Behind                     Node            Claimed, Worker, Later
//! ```
//!
//! A route is computed when the requests before it have been executed, not for the whole batch
//! ahead: a claim is held for one run of requests instead of a turn, a stamp is compared with a
//! queue that has come as far as it can, and a read follows the write of its key that was just
//! handed on.
//!
//! Speed alone depends on a route: the store is right under any assignment of requests to workers.

pub(crate) mod execute_here;
pub(crate) mod on_disk;
pub(crate) mod on_gateway;
pub(crate) mod on_node;
pub(crate) mod run_routes;

use curtail_codec::memcached::{Admin, Request};
use curtail_dispatch::{Claim, Ticket, Worker as Id, static_owner};
use curtail_types::KeyHash;

use crate::{
    limits::OUTPUT_BYTES_MAX,
    native::Behind,
    request::batch::{Entry, Work},
    test_faults::Fault,
    worker::{Worker, routing_inputs::partition_of},
};

/// Where the requests of a run go. All of a run have one key, so they have one route.
#[derive(Debug)]
pub(crate) enum Route {
    /// They run where they arrived.
    Here,
    /// They run where they arrived, and their partition is held meanwhile.
    Claimed(Ticket),
    /// Another worker executes them; with a claim that is given back behind the last of them.
    Worker(Id, Option<Ticket>),
    /// The placement among the nodes of the cluster decides.
    Node,
    /// They run where they arrived, when what they ask for is in memory.
    Disk,
    /// A cache tier has the items.
    Gateway,
    /// They wait for accepted writes, in a later turn.
    Behind(Behind),
    /// They run in a later turn, when what went before them on their connection is answered.
    Later,
}

/// Whether every request of this turn runs here, but for the policy.
#[inline]
pub(crate) fn routes_by_policy_alone(worker: &Worker) -> bool {
    worker.cx.shared.cluster.is_none()
        && worker.native.is_none()
        && worker.tier.is_none()
        && worker.gateway.is_none()
}

/// Whether a request has to ask where it runs. Reads that run where they arrive do not, as long as
/// nothing is delegated in this turn.
#[inline]
pub(crate) fn has_to_ask(worker: &Worker, entry: &Entry<'_>) -> bool {
    let routing = &worker.routing;
    let runs_here = || routing.reads_here && worker.delegation.is_empty() && is_read(entry);
    routing.asks() && !runs_here()
}

/// The route of the run of requests that begins with `entry`.
pub(crate) fn route(worker: &mut Worker, entry: &Entry<'_>) -> Route {
    if worker.tier.is_some() {
        return Route::Disk;
    }
    if worker.gateway.is_some() {
        return Route::Gateway;
    }
    // A connection that was put off has no further part in this turn.
    if worker.replies.bytes_for(entry.slot) > OUTPUT_BYTES_MAX {
        return Route::Later;
    }
    if worker.native.is_some()
        && let Some(behind) = accepted_before(worker, entry)
    {
        return Route::Behind(behind);
    }
    if worker.node.is_some() {
        return Route::Node;
    }
    // A large worker of a node.
    if worker.cx.shared.cluster.is_some() && on_node::has_moved(worker, entry) {
        return Route::Later;
    }
    route_among_workers(worker, entry)
}

/// The same where the nodes of a cluster have no say.
#[inline]
pub(crate) fn route_among_workers(worker: &mut Worker, entry: &Entry<'_>) -> Route {
    match (worker.routing.claims, worker.routing.decides) {
        (true, _) if is_write(entry) => claim(worker, entry.hash),
        (true, _) | (_, false) => Route::Here,
        (false, true) => route_by_policy(worker, entry),
    }
}

#[inline(never)]
fn route_by_policy(worker: &mut Worker, entry: &Entry<'_>) -> Route {
    let Work::Request(Request::Item { operation, .. }) = &entry.work else {
        return route_other(worker, entry);
    };
    // What goes to its owner need not follow anything: all before it went there, too.
    if let Some(owner) = owner(worker, entry) {
        return match owner.index() == worker.index {
            true => Route::Here,
            false => Route::Worker(owner, None),
        };
    }
    let is_read = operation.is_read();
    if let Some(owner) = worker.delegation.follows(entry.hash)
        && !(is_read && worker.cx.has(Fault::Overtakes))
    {
        return Route::Worker(owner, None);
    }
    match is_read {
        true => Route::Here,
        false => claim(worker, entry.hash),
    }
}

/// Whether another worker executes a request because it is the static owner.
#[inline]
pub(crate) fn is_anothers(worker: &Worker, entry: &Entry<'_>) -> bool {
    owner(worker, entry).is_some_and(|owner| owner.index() != worker.index)
}

/// The static owner that the policy has execute a request, if it does.
#[inline]
fn owner(worker: &Worker, entry: &Entry<'_>) -> Option<Id> {
    let routing = &worker.routing;
    if !routing.writes_at_owners {
        return None;
    }
    let Work::Request(Request::Item { operation, .. }) = &entry.work else {
        return None;
    };
    let partition = partition_of(entry.hash);
    let workers = worker.cx.shared.config.workers as u16;
    let is_at_owner = !(routing.reads_here && operation.is_read());
    is_at_owner.then(|| static_owner(partition, workers))
}

/// What is not about one item must not overtake what was handed on before it.
fn route_other(worker: &Worker, entry: &Entry<'_>) -> Route {
    if !worker.delegation.has_handed_on(entry.slot) {
        return Route::Here;
    }
    match &entry.work {
        Work::Request(
            Request::EndOfKeys { .. } | Request::Noop | Request::Admin(Admin::Version),
        )
        | Work::Malformed { .. }
        | Work::Login { .. } => Route::Here,
        _ => Route::Later,
    }
}

/// The accepted write that `entry` has to wait for, after some help; a flush waits until there
/// is none.
fn accepted_before(worker: &mut Worker, entry: &Entry<'_>) -> Option<Behind> {
    let barrier = worker.native.as_deref_mut()?;
    let store_cx = &mut worker.cx.store_cx;
    match &entry.work {
        Work::Request(Request::Admin(Admin::FlushAll { .. })) => {
            barrier.reach_all(store_cx);
            None
        }
        // The end of a large write has waited when it began.
        Work::Request(Request::Item { .. } | Request::SetTooLarge(_)) | Work::LargeSet { .. } => {
            let connection = worker.slots.get_mut(entry.slot)?;
            let behind = barrier.behind(store_cx, entry.hash, connection.behind);
            if behind.is_none() {
                connection.behind = None;
            }
            behind
        }
        _ => None,
    }
}

/// The claim of a write, if nobody holds its partition.
#[inline]
pub(crate) fn claim_free(worker: &Worker, hash: KeyHash) -> Option<Ticket> {
    let me = Id(worker.index as u16);
    let writers = &worker.cx.shared.writers;
    let ticket = writers.claim_free(partition_of(hash), me)?;
    worker.cx.linger_if_contended();
    Some(ticket)
}

/// A write is ours if nobody holds its partition; else it follows the holder.
pub(crate) fn claim(worker: &Worker, hash: KeyHash) -> Route {
    let me = Id(worker.index as u16);
    match worker.cx.shared.writers.claim(partition_of(hash), me) {
        Claim::Granted(owner, ticket) if owner == me => {
            worker.cx.linger_if_contended();
            Route::Claimed(ticket)
        }
        Claim::Granted(owner, ticket) => Route::Worker(owner, Some(ticket)),
        // The holder's count of writes is full; the store is correct without an owner, too.
        Claim::Full(_) => Route::Here,
    }
}

/// Whether a request is about one item and does not change it.
#[inline]
fn is_read(entry: &Entry<'_>) -> bool {
    matches!(&entry.work, Work::Request(Request::Item { operation, .. }) if operation.is_read())
}

/// Whether a request is about one item and may change it.
#[inline]
pub(crate) fn is_write(entry: &Entry<'_>) -> bool {
    let Work::Request(Request::Item { operation, .. }) = &entry.work else {
        return false;
    };
    !operation.is_read()
}
