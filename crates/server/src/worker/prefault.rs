//! The prefault thread: touches memory before a worker needs it.
//!
//! Huge pages make every request cheaper, and the first touch of one costs up to milliseconds. This
//! thread does the touching whenever the store has grown into what was ready. A worker asks for it
//! by unparking and never waits: if this thread is late, memory comes in small pages as it always
//! would.
//!
//! It yields to every other thread (`SCHED_IDLE`): at a niceness of 10 a small request sometimes
//! waited for the end of a page, 0.7 ms on average where the host had to back it too. When less
//! than half of what should be ready is left, a worker raises it to normal priority until it has
//! caught up.

use std::{
    sync::OnceLock,
    thread::{self, Thread},
};

use curtail_runtime::ThreadId;

use crate::{
    config::Niceness,
    sync::{AtomicBool, Relaxed},
    worker::shared::Shared,
};

/// The thread, once it runs.
#[derive(Debug, Default)]
pub(crate) struct PagesThread {
    thread: OnceLock<Thread>,
    /// If it steps aside.
    id: OnceLock<ThreadId>,
    /// Whether it was let forward since it stepped aside.
    is_forward: AtomicBool,
}

/// How far it steps back for the workers, when they share processors: about a tenth of their share.
const NICENESS: i32 = 10;

impl PagesThread {
    /// Asks it to look.
    #[cold]
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Has it take its turns like others until it has caught up.
    #[cold]
    pub(crate) fn hurry(&self) {
        if let Some(id) = self.id.get()
            && !self.is_forward.load(Relaxed)
            && !self.is_forward.swap(true, Relaxed)
        {
            // Refused, it is only late.
            let _ = id.step_forward();
        }
    }

    /// Has the calling thread, which is this one, give way to others from now on.
    fn give_way(&self) {
        // Without it workers are disturbed a little more.
        let _ = curtail_runtime::lower_priority(NICENESS);
        let _ = self.thread.set(thread::current());
        let me = ThreadId::current();
        if Niceness::Idle.possible() == Niceness::Idle && me.step_aside().is_ok() {
            let _ = self.id.set(me);
        }
    }

    /// Has the calling thread, which is this one, step aside again.
    fn rest(&self) {
        if let Some(id) = self.id.get()
            && self.is_forward.load(Relaxed)
        {
            let _ = id.step_aside();
            // Only now: a worker that needs it meanwhile asks again in its next turn.
            self.is_forward.store(false, Relaxed);
        }
    }
}

/// Supplies pages until the server stops.
pub(crate) fn run(shared: &Shared) {
    shared.pages.give_way();
    while !shared.stopping.load(Relaxed) {
        if !shared.store.supply_pages() {
            shared.pages.rest();
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The calling thread's policy as the kernel numbers it: 0 among others, 5 aside.
    fn policy() -> u32 {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(38).unwrap().parse().unwrap()
    }

    /// Goal: the thread is aside, and forward from when it is to hurry until it rests, each time.
    /// Where it may not come forward it never steps aside.
    #[test]
    fn a_late_prefault_thread_runs_at_normal_priority_until_it_has_caught_up() {
        let pages = PagesThread::default();
        pages.give_way();
        let aside = if curtail_runtime::may_step_forward() {
            5
        } else {
            0
        };
        for _ in 0..2 {
            assert_eq!(policy(), aside);
            pages.hurry();
            pages.hurry();
            assert_eq!(policy(), 0);
            pages.rest();
        }
        assert_eq!(policy(), aside);
    }
}
