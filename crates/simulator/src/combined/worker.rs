//! One core: its queue, what it is doing, and its compaction.

use std::collections::VecDeque;

use curtail_dispatch::{Compactor, Effect, Situation, Worker};

use crate::stored::queues::Slab;

/// A core.
#[derive(Clone, Debug)]
pub(super) struct Core {
    /// What it was handed; for a core that serves large requests, its ring.
    pub(super) queue: VecDeque<u32>,
    pub(super) phase: Phase,
    pub(super) compactor: Option<Compactor>,
    /// What closing windows still have to do.
    pub(super) script: VecDeque<Effect>,
    /// When it last finished a large request.
    pub(super) large_until: u64,
}

/// What a core is doing; its next event ends it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Nothing; if there is an event, it is a window's deadline.
    Idle,
    /// A read waits for an odd version to become even.
    ReadWaits { id: u32 },
    /// A read that looked at the version at `from` and looks again at `to`.
    Reads { id: u32, from: u64, to: u64 },
    /// A write waits for an odd version.
    WriteWaits { id: u32 },
    /// A write and its answer.
    Writes { id: u32 },
    /// A large request, on a core for them.
    ServesLarge { id: u32 },
    /// A read that proved to be large is handed to its core.
    Gives { id: u32, to: Worker },
    /// A write is put aside.
    PutsAside { id: u32 },
    /// A window's last write waits for an odd version.
    ApplyWaits { id: u32 },
    /// A window's last write is carried out.
    Applies,
    /// A window's write is answered.
    Answers { id: u32 },
}

impl Core {
    pub(super) fn new(compactor: Option<Compactor>) -> Self {
        Self {
            queue: VecDeque::new(),
            phase: Phase::Idle,
            compactor,
            script: VecDeque::new(),
            large_until: 0,
        }
    }

    /// Closes windows whose time has come; whether there is anything to do for them.
    pub(super) fn look_at_windows(&mut self, now: u64, situation: Situation, slab: &Slab) -> bool {
        let Some(compactor) = &mut self.compactor else {
            return false;
        };
        if compactor.windows() == 0 {
            return false;
        }
        let (queue, script) = (&self.queue, &mut self.script);
        let situation = match situation {
            Situation::Finished if queue.is_empty() => Situation::Idle,
            other => other,
        };
        compactor.step(
            curtail_types::Instant { ns: now },
            situation,
            |key| has_write(queue, slab, key),
            |effect| script.push_back(effect),
        );
        !script.is_empty()
    }
}

/// Whether one of the next requests writes this key.
pub(super) fn has_write(queue: &VecDeque<u32>, slab: &Slab, key: u64) -> bool {
    let next = queue.iter().take(SCANNED);
    let mut requests = next.map(|id| slab.get(*id));
    requests.any(|request| request.write && request.hash == key)
}

/// Queue slots that are looked at for another write to a key.
const SCANNED: usize = 8;
