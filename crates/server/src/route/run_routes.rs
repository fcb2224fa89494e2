//! Executes runs of requests where their route says.

use curtail_dispatch::{Ticket, Worker as Id};

use crate::{
    limits::OUTPUT_BYTES_MAX,
    request::batch::Entry,
    route::{Route, execute_here, on_disk, on_gateway, on_node},
    turn::{compaction, delegate, execute},
    worker::Worker,
};

/// Has the requests of a run, which have one key, executed where `route` says.
#[inline]
pub(crate) fn execute_run(worker: &mut Worker, run: &[Entry<'_>], route: Route) {
    match route {
        Route::Here => execute_run_here(worker, run),
        Route::Claimed(ticket) => {
            execute_run_here(worker, run);
            delegate::release(&mut worker.cx, ticket);
        }
        Route::Worker(owner, ticket) => delegate_run(worker, run, owner, ticket),
        Route::Node => on_node::run_on_node(worker, run),
        Route::Disk => on_disk::run_on_disk(worker, run),
        Route::Gateway => on_gateway::run_on_gateway(worker, run),
        Route::Behind(behind) => run
            .iter()
            .for_each(|entry| execute::put_off_behind(worker, entry, behind)),
        Route::Later => run.iter().for_each(|entry| execute::put_off(worker, entry)),
    }
}

fn execute_run_here(worker: &mut Worker, run: &[Entry<'_>]) {
    if run.len() == 1 || !compaction::run_folded(worker, run) {
        run.iter()
            .for_each(|entry| execute_here::carry_out_apart(worker, entry));
    }
}

/// Hands the requests of a run on; a claim is given back behind the last of them.
#[inline]
fn delegate_run(worker: &mut Worker, run: &[Entry<'_>], owner: Id, ticket: Option<Ticket>) {
    if let [entry] = run {
        return delegate_or_run(worker, entry, owner, ticket);
    }
    let mut ticket = ticket;
    for (left, entry) in (0..run.len()).rev().zip(run) {
        let ticket = if left == 0 { ticket.take() } else { None };
        // One before it may have had its connection put off; the first was routed, so it is not.
        let is_put_off =
            left + 1 < run.len() && worker.replies.bytes_for(entry.slot) > OUTPUT_BYTES_MAX;
        match is_put_off {
            true => run_here(worker, entry, ticket),
            false => delegate_or_run(worker, entry, owner, ticket),
        }
    }
}

#[inline]
fn delegate_or_run(worker: &mut Worker, entry: &Entry<'_>, owner: Id, ticket: Option<Ticket>) {
    if let Err(ticket) = delegate::delegate(worker, entry, owner, ticket) {
        run_here(worker, entry, ticket);
    }
}

/// Executes a request that is not delegated after all, or puts it off if its connection is.
#[cold]
fn run_here(worker: &mut Worker, entry: &Entry<'_>, ticket: Option<Ticket>) {
    execute_here::carry_out_apart(worker, entry);
    if let Some(ticket) = ticket {
        delegate::release(&mut worker.cx, ticket);
    }
}
