//! What the server ships of C-4, where nobody can choose at which worker a connection's request
//! arrives: [`Policy::placement`], claims in [`SharedWriters`], requests that are handed to the
//! holder of their partition in batches, and compaction of neighbouring writes.
//!
//! ```text
//!  connections -> own queue -> turn of up to 256 --+-- here ----------------------> answered
//!                                                  +-- another holds the partition
//!                                                  |       (gathered, sent when the turn ends)
//!  holder: the batch is a turn of its own <--------+
//!          carried out, the batch goes back ------------> answered where it arrived
//! ```
//!
//! A window of compaction is a turn: writes to one key that stand next to each other in it are
//! carried out as one, so nothing waits for further ones. Not in it: that a batch whose holder does
//! not run is taken back, and that no more than 64 batches of a worker are out.

use curtail_dispatch::{
    Claim, Partition, Placement, Policy, SharedWriters, Ticket, Worker,
    size_aware::{Route, SizePlan},
};

use crate::queueing::outstanding_requests::Request;

/// All workers' deciding.
#[derive(Debug)]
pub(crate) struct Shipped {
    policy: Policy,
    writers: SharedWriters<PARTITIONS>,
    /// Workers that have connections; those behind them serve large requests.
    workers: u16,
    /// Who serves which size; `None`: sizes do not matter.
    pub(crate) plan: Option<Box<SizePlan>>,
    outboxes: Vec<Outbox>,
}

/// What a worker has gathered for others in its turn.
#[derive(Clone, Debug, Default)]
struct Outbox {
    gathered: Vec<(Worker, u32)>,
    /// The keys of what it handed on, and to whom.
    keys: Vec<(u64, Worker)>,
}

/// Where a request runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Here(Option<Ticket>),
    At(Worker, Option<Ticket>),
}

/// Requests of a turn.
pub(crate) const TURN_MAX: u16 = 256;

/// Slices of the keys that are held one by one.
const PARTITIONS: usize = 1 << 16;

impl Shipped {
    /// Under a policy, on so many workers.
    pub(crate) fn new(policy: Policy, workers: u16, plan: Option<Box<SizePlan>>) -> Self {
        let small = plan.as_ref().map_or(workers, |plan| plan.small);
        Self {
            policy,
            writers: SharedWriters::new(SharedWriters::<PARTITIONS>::WRITES_MAX),
            workers: small,
            plan,
            outboxes: vec![Outbox::default(); usize::from(workers)],
        }
    }

    /// The worker whose connection a request comes over; `word` is any number, anew for each.
    pub(crate) fn arrival(&self, word: u64) -> Worker {
        Worker(((u128::from(word) * u128::from(self.workers)) >> 64) as u16)
    }

    /// Whether a worker has connections.
    pub(crate) fn has_connections(&self, worker: Worker) -> bool {
        worker.0 < self.workers
    }

    /// The worker for requests of this size, if it is not any.
    pub(crate) fn large_owner(&self, request: &Request) -> Option<Worker> {
        match self.plan.as_ref()?.route(request.value_bytes, request.key) {
            Route::Here => None,
            Route::Ring(owner) => Some(owner),
        }
    }

    /// Where a request runs that came to `me`.
    #[inline]
    pub(crate) fn place(&self, me: Worker, request: &Request) -> Place {
        // A client reads what it wrote: what was handed on is followed.
        let mut keys = self.outboxes[me.index()].keys.iter().rev();
        if let Some((_, owner)) = keys.find(|(key, _)| *key == request.key) {
            return Place::At(*owner, None);
        }
        let partition = Partition(request.partition);
        let placement = self
            .policy
            .placement(partition, request.access(), self.workers);
        match placement {
            Placement::Here => Place::Here(None),
            Placement::Owner(owner) if owner == me => Place::Here(None),
            Placement::Owner(owner) => Place::At(owner, None),
            Placement::Claim => match self.writers.claim(partition, me) {
                Claim::Granted(owner, ticket) if owner == me => Place::Here(Some(ticket)),
                Claim::Granted(owner, ticket) => Place::At(owner, Some(ticket)),
                // The store is right without an owner, too.
                Claim::Full(_) => Place::Here(None),
            },
        }
    }

    /// The request goes to `owner` when the turn of `me` ends.
    pub(crate) fn hand_on(&mut self, me: Worker, owner: Worker, (id, key): (u32, u64)) {
        let outbox = &mut self.outboxes[me.index()];
        outbox.gathered.push((owner, id));
        outbox.keys.push((key, owner));
    }

    /// It goes back to where it came from, to be answered.
    pub(crate) fn hand_back(&mut self, me: Worker, origin: Worker, id: u32) {
        self.outboxes[me.index()].gathered.push((origin, id));
    }

    /// A write has been carried out.
    pub(crate) fn release(&self, ticket: Ticket) {
        let released = self.writers.release(ticket);
        assert!(released.is_ok(), "a partition had two owners");
    }

    /// The turn of `me` has ended: what leaves, and for whom.
    pub(crate) fn end_turn(&mut self, me: Worker) -> Vec<(Worker, u32)> {
        let outbox = &mut self.outboxes[me.index()];
        outbox.keys.clear();
        std::mem::take(&mut outbox.gathered)
    }
}
