//! Executing requests where their route says.

use crate::{
    request::batch::Entry,
    route::Route,
    turn::{compaction, delegate, execute, send},
    worker::Worker,
};

/// Nothing leaves before it may: what was read on a node of a cluster may be older than the
/// node's lease, if that has ended meanwhile; then its clients are told nothing. A mode that
/// promises durability would hold replies here until what they tell is safe.
pub(crate) fn commit(worker: &mut Worker) {
    if worker.routing.under_lease && !worker.still_holds_lease() {
        worker.withhold();
    }
}

/// Sends what was answered so far: the memory for replies is used up.
pub(crate) fn reply_early(worker: &mut Worker) {
    commit(worker);
    send::reply(worker);
}

/// Has the requests of a run, which have one key, executed where `route` says.
pub(crate) fn execute_run(worker: &mut Worker, run: &[Entry<'_>], route: Route) {
    match route {
        Route::Here => execute_here(worker, run),
        Route::Claimed(ticket) => {
            execute_here(worker, run);
            delegate::release(&mut worker.cx, ticket);
        }
        Route::Worker(owner, ticket) => delegate::delegate_run(worker, run, owner, ticket),
        Route::Node => worker.run_on_node(run),
        Route::Behind(behind) => run
            .iter()
            .for_each(|entry| execute::put_off_behind(worker, entry, behind)),
        Route::Later => run.iter().for_each(|entry| execute::put_off(worker, entry)),
    }
}

pub(crate) fn execute_here(worker: &mut Worker, run: &[Entry<'_>]) {
    if run.len() == 1 || !compaction::run_folded(worker, run) {
        run.iter()
            .for_each(|entry| execute::carry_out_apart(worker, entry));
    }
}
