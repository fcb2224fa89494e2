//! The path of a request through one turn; start reading here.
//!
//! ```text
//!  wire -> collect ---> route -------> execute --> commit --> reply ----> wire
//!          receive,     where a run    in order    may what   one send
//!          decode,      of requests                was read   per connection
//!          prefetch     goes                       leave?
//!                         |    ^
//!                         v    | completion
//!                  other workers, other nodes, a later turn
//! ```
//!
//! A worker is one thread with one event loop, and this is its turn. The worker executes a batch,
//! not single requests, for two reasons. It prefetches the memory of all requests before it
//! executes the first one (buckets while decoding, items in a separate pass). And it makes one
//! system call to receive and one to send for each connection, for any number of requests.
//!
//! The store is correct under any assignment of requests to workers; only speed depends on it.
//! Nothing on this path allocates, waits, or reads a clock.

use crate::{
    limits::OUTPUT_BYTES_MAX,
    request::batch::{Batch, Entry},
    route::{self, Route, execute_here, is_write, run_routes::execute_run},
    turn::{
        compaction, delegate,
        execute::InLoop,
        note_work_ahead, receive,
        send::{self, commit},
        stage_times,
    },
    worker::Worker,
};

/// The search for runs costs some 30 instructions for each request, and a request that is executed
/// with its neighbour saves about 1,100: the search pays from one such request in 32 on. In a mix
/// of reads and writes half of the counted requests make no run, so the threshold is one in 16.
const RUNS_PAY_AT: usize = 16;

/// How many requests ahead the worker prefetches the rest of longer items: far enough to hide a
/// cache miss, near enough that the data is still in the first-level cache.
const VALUES_AHEAD: usize = 6;

/// One turn: everything that arrived, up to a bound, is answered. `area` is the memory to
/// receive into; the batch borrows from it.
pub(crate) fn turn(worker: &mut Worker, area: &mut [u8]) {
    let mut batch = std::mem::take(&mut worker.batch).recycle();
    let mut times = stage_times::stage_times(worker);
    receive::collect(worker, area, &mut batch);
    times.end_stage();
    execute(worker, &mut batch);
    commit(worker);
    times.end_stage();
    send::reply(worker);
    stage_times::note_turn(worker, &batch, &times);
    worker.batch = batch.recycle();
}

fn execute(worker: &mut Worker, batch: &mut Batch<'_>) {
    worker.replies.begin_turn();
    let has_runs = prefetch(worker, batch);
    if has_runs || stage_times::is_measured(worker) || !route::routes_by_policy_alone(worker) {
        execute_in_runs(worker, batch, has_runs);
    } else {
        for (number, entry) in batch.entries().iter().enumerate() {
            look_ahead(worker, batch, number);
            if !(route::has_to_ask(worker, entry) && runs_elsewhere(worker, entry)) {
                // A request that needs no route may still be a write that has to claim its slice.
                // The path to the store is inlined into this loop.
                execute_here::carry_out::<InLoop>(worker, entry, worker.routing.claims());
            }
        }
    }
    delegate::send_delegated(worker);
    stage_times::note_executed(worker, batch);
}

/// Executes neighbours with one key together, and measures what is ahead of each request.
#[inline(never)]
fn execute_in_runs(worker: &mut Worker, batch: &Batch<'_>, has_runs: bool) {
    let mut ahead =
        stage_times::is_measured(worker).then(|| note_work_ahead::measure_ahead(worker));
    let mut number = 0;
    while let Some(rest @ [_, ..]) = batch.entries().get(number..) {
        let length = match has_runs && !is_full_for(worker, rest) {
            true => compaction::run_length(worker, rest),
            false => 1,
        };
        (number..number + length).for_each(|number| look_ahead(worker, batch, number));
        let run = rest.get(..length).unwrap_or_default();
        let before = note_work_ahead::answered_for(worker, run);
        if !(has_runs && length == 1 && compaction::skips_across(worker, rest)) {
            route_and_run(worker, run);
        }
        if let Some(ahead) = &mut ahead {
            note_work_ahead::note_ahead(worker, ahead, run, before);
        }
        number += length;
    }
}

/// Whether the connection of the first of these requests is deferred: following requests of other
/// connections then do not share its route.
fn is_full_for(worker: &Worker, rest: &[Entry<'_>]) -> bool {
    let first = rest.first();
    first.is_some_and(|first| worker.replies.bytes_for(first.slot) > OUTPUT_BYTES_MAX)
}

#[inline(never)]
fn route_and_run(worker: &mut Worker, run: &[Entry<'_>]) {
    if let Some(first) = run.first() {
        let route = route::route(worker, first);
        execute_run(worker, run, route);
    }
}

/// Executes a request where its route says and returns true; returns false, and executes nothing,
/// if the route is this worker without a claim.
#[inline(never)]
fn runs_elsewhere(worker: &mut Worker, entry: &Entry<'_>) -> bool {
    let route = route::route(worker, entry);
    if matches!(route, Route::Here) {
        return false;
    }
    execute_run(worker, std::slice::from_ref(entry), route);
    true
}

/// Prefetches all items of the batch; returns whether enough writes have the key of the request
/// before them for the search for runs to pay.
fn prefetch(worker: &mut Worker, batch: &mut Batch<'_>) -> bool {
    let writers = worker.routing.claims().then_some(&worker.cx.shared.writers);
    let has_owners = worker.routing.writes_at_owners;
    let (mut following, mut before) = (0, None);
    for entry in batch.entries_mut() {
        // The owner prefetches the items of requests that it executes, into its processor's cache.
        if !(has_owners && route::is_anothers(worker, entry)) {
            delegate::prefetch(&worker.cx, entry, writers);
        }
        if before == Some(entry.hash) {
            following += usize::from(is_write(entry));
        }
        before = Some(entry.hash);
    }
    let pays = following * RUNS_PAY_AT >= batch.entries().len().max(1);
    pays && worker.cx.shared.config.compaction
}

/// Prefetches for a request that is executed soon.
#[inline]
pub(crate) fn look_ahead(worker: &mut Worker, batch: &Batch<'_>, number: usize) {
    if let Some(ahead) = batch.entries().get(number + VALUES_AHEAD) {
        worker.cx.store_cx.store.prefetch_value(ahead.hint);
    }
}
