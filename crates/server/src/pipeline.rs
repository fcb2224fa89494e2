//! The one direction in which data flows; start reading here.
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
//! A worker is one thread with one event loop, and this is its turn. Working on a batch instead of
//! a request is what makes it fast: the memory that all requests will touch is asked for before the
//! first one waits for it (buckets while decoding, items in a pass of their own), and the kernel is
//! entered once to receive and once to send per connection, however many requests that was.
//!
//! Speed alone depends on where a request runs: the store is right under any assignment. Nothing on
//! this path allocates, waits, or reads a clock.

use crate::{
    request::{
        batch::{Batch, Entry},
        execute::OUTPUT_BYTES_MAX,
    },
    route::{Route, is_write},
    worker::event_loop::Worker,
};

/// Looking for runs costs each request some 30 instructions, and one that is carried out with its
/// neighbour saves about 1,100: it pays from one request in 32 on. In a mix of reads and writes
/// half of those that are counted make no run, so one in 16 is asked for.
const RUNS_PAY_AT: usize = 16;

/// How many requests ahead the rest of longer items is asked for: far enough to hide a miss, near
/// enough to stay in the first-level cache.
const VALUES_AHEAD: usize = 6;

impl Worker {
    /// One turn: everything that arrived, up to a bound, is answered. `area` is the memory to
    /// receive into; the batch borrows from it.
    pub(crate) fn turn(&mut self, area: &mut [u8]) {
        let mut batch = std::mem::take(&mut self.batch).recycle();
        let mut times = self.stage_times();
        self.collect(area, &mut batch);
        times.end_stage();
        self.execute(&mut batch);
        self.commit();
        times.end_stage();
        self.reply();
        self.note_turn(&batch, &times);
        self.batch = batch.recycle();
    }

    fn execute(&mut self, batch: &mut Batch<'_>) {
        self.replies.begin_turn();
        let has_runs = self.prefetch(batch);
        if has_runs || self.is_measured() || !self.routes_by_policy_alone() {
            self.execute_in_runs(batch, has_runs);
        } else {
            for (number, entry) in batch.entries().iter().enumerate() {
                self.look_ahead(batch, number);
                match self.routing.asks() {
                    true => self.route_and_run(std::slice::from_ref(entry)),
                    // Nothing was handed on in this turn: only writes have to ask, and the way to
                    // the store is compiled into this loop.
                    false => self.carry_out(entry, self.routing.claims()),
                }
            }
        }
        self.send_delegated();
        self.note_executed(batch);
    }

    /// Executes neighbours with one key together, and measures what is ahead of each request.
    #[inline(never)]
    fn execute_in_runs(&mut self, batch: &Batch<'_>, has_runs: bool) {
        let mut ahead = self.is_measured().then(|| self.measure_ahead());
        let mut number = 0;
        while let Some(rest @ [_, ..]) = batch.entries().get(number..) {
            let length = match has_runs && !self.is_full_for(rest) {
                true => self.run_length(rest),
                false => 1,
            };
            (number..number + length).for_each(|number| self.look_ahead(batch, number));
            let run = rest.get(..length).unwrap_or_default();
            let before = self.answered_for(run);
            if !(has_runs && length == 1 && self.skips_across(rest)) {
                self.route_and_run(run);
            }
            if let Some(ahead) = &mut ahead {
                self.note_ahead(ahead, run, before);
            }
            number += length;
        }
    }

    /// Whether the first request of these finds its connection put off: those of others that follow
    /// it do not share its route.
    fn is_full_for(&self, rest: &[Entry<'_>]) -> bool {
        let first = rest.first();
        first.is_some_and(|first| self.replies.bytes_for(first.slot) > OUTPUT_BYTES_MAX)
    }

    /// Nothing leaves before it may: what was read on a node of a cluster may be older than the
    /// node's lease, if that has ended meanwhile; then its clients are told nothing. A mode that
    /// promises durability would hold replies here until what they tell is safe.
    pub(crate) fn commit(&mut self) {
        if self.routing.under_lease && !self.still_holds_lease() {
            self.withhold();
        }
    }

    /// Sends what was answered so far: the memory for replies is used up.
    pub(crate) fn reply_early(&mut self) {
        self.commit();
        self.reply();
    }

    #[inline(never)]
    fn route_and_run(&mut self, run: &[Entry<'_>]) {
        if let Some(first) = run.first() {
            let route = self.route(first);
            self.execute_run(run, route);
        }
    }

    /// Has the requests of a run, which have one key, executed where `route` says.
    pub(crate) fn execute_run(&mut self, run: &[Entry<'_>], route: Route) {
        match route {
            Route::Here => self.execute_here(run),
            Route::Claimed(ticket) => {
                self.execute_here(run);
                self.cx.release(ticket);
            }
            Route::Worker(owner, ticket) => self.delegate_run(run, owner, ticket),
            Route::Node => self.run_on_node(run),
            Route::Behind(behind) => run
                .iter()
                .for_each(|entry| self.put_off_behind(entry, behind)),
            Route::Later => run.iter().for_each(|entry| self.put_off(entry)),
        }
    }

    fn execute_here(&mut self, run: &[Entry<'_>]) {
        if run.len() == 1 || !self.run_folded(run) {
            run.iter().for_each(|entry| self.carry_out_apart(entry));
        }
    }

    /// Asks the memory for all items of the batch; tells whether so many writes have the key of the
    /// request before them that looking for runs pays.
    fn prefetch(&mut self, batch: &mut Batch<'_>) -> bool {
        let writers = self.routing.claims().then_some(&self.cx.shared.writers);
        let (mut following, mut before) = (0, None);
        for entry in batch.entries_mut() {
            self.cx.prefetch(entry, writers);
            if before == Some(entry.hash) {
                following += usize::from(is_write(entry));
            }
            before = Some(entry.hash);
        }
        let pays = following * RUNS_PAY_AT >= batch.entries().len().max(1);
        pays && self.cx.shared.config.compaction
    }

    /// What is done for a request ahead of its turn.
    #[inline]
    pub(crate) fn look_ahead(&mut self, batch: &Batch<'_>, number: usize) {
        if let Some(ahead) = batch.entries().get(number + VALUES_AHEAD) {
            self.cx.store_cx.store.prefetch_value(ahead.hint);
        }
    }
}
