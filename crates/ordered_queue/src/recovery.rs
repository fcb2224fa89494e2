//! Recovery: repairs a queue whose producers or executor stopped anywhere (JB-48).
//!
//! The kernel's program cannot be stopped between two of its steps, so after a process's death its
//! queues need nothing but a new lease holder. Threads can: a claim may have no place, a place no
//! entry, an entry no stamp and no commit. [`recover`] finishes what has an entry and takes back
//! what has none; nobody may admit or execute meanwhile.
//!
//! ```text
//! stopped after      left behind                      becomes
//! claim              session word claimed             open: its client sends again
//! reserve, fill      the same, and a hole             open, and a no-op in the hole
//! publish            entry without stamp              stamped
//! raise              session word claimed             committed with the entry's position
//! ```

use curtail_dispatch::Worker;

use crate::{
    bucket_stamps::Stamps, entry::EntryKind, lease::QueueLease, queue::OrderedQueue,
    sessions::Sessions,
};

/// What was found.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Recovered {
    /// Entries that wait to be executed.
    pub entries: u64,
    /// Holes that are no-ops now.
    pub holes: u64,
    /// Claims without a place that are open again.
    pub claims: u64,
}

/// Makes the queues whole, for a process that is alone with them: no producer runs, and who held
/// the leases is dead. All queues that share the session table must be given. Executors must have
/// called [`Sessions::settle`] before they moved head.
pub fn recover(
    queues: &[OrderedQueue<'_>],
    stamps: Stamps<'_>,
    sessions: Sessions<'_>,
    worker: Worker,
) -> Recovered {
    let mut recovered = Recovered::default();
    for queue in queues {
        let lease = queue.seize_lease(worker);
        restore(&lease, stamps, sessions, &mut recovered);
    }
    recovered.claims = sessions.reopen_all();
    recovered
}

fn restore(
    lease: &QueueLease<'_>,
    stamps: Stamps<'_>,
    sessions: Sessions<'_>,
    recovered: &mut Recovered,
) {
    let queue = lease.queue();
    for pos in lease.head()..queue.tail() {
        match queue.entry(pos) {
            None => {
                queue.fill_hole(pos);
                recovered.holes += 1;
            }
            Some(entry) if entry.kind() == EntryKind::Noop => {}
            Some(entry) => {
                stamps.raise(entry.key_hash(), pos);
                sessions.settle(&entry);
                recovered.entries += 1;
            }
        }
    }
}
