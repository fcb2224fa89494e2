//! The paper's compaction: each core's windows, and the writes that they find in its queue.

use std::collections::{HashMap, VecDeque};

use curtail_dispatch::{
    CompactionConfig, Compactor, Decision, Effect, RequestId, Situation, pull_baselines::Source,
};
use curtail_types::Instant;

use crate::queueing::outstanding_requests::{Queues, Request, Slab};

/// The windows of all cores that have some.
#[derive(Debug)]
pub(crate) struct Windows {
    compactors: Vec<Compactor>,
    /// How much of the queue is searched for another write to a key.
    scan: Scan,
    /// Whether a core takes other work while it has writes put aside.
    pub(crate) defers: bool,
}

/// How much of a core's queue is searched.
#[derive(Debug)]
pub(crate) enum Scan {
    /// So many slots.
    Slots(usize),
    /// All, by a count of the queued writes of each key: all writes of a key are in one queue.
    Whole(HashMap<u64, u32>),
}

impl Windows {
    /// For the first `cores` of all cores; the others carry out every write.
    pub(crate) fn new(cores: u16, config: CompactionConfig, scan: Scan, defers: bool) -> Self {
        Self {
            compactors: vec![Compactor::new(config); usize::from(cores)],
            scan,
            defers,
        }
    }

    /// A request has come to a core's queue.
    #[inline]
    pub(crate) fn note_queued(&mut self, request: &Request) {
        if let Scan::Whole(queued) = &mut self.scan
            && request.write
            && matches!(request.to, Source::Rx(_))
        {
            *queued.entry(request.key).or_insert(0) += 1;
        }
    }

    /// What becomes of a write that a core has taken from its queue.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        (now, core): (u64, usize),
        id: u32,
        queues: &Queues,
        slab: &Slab,
    ) -> Decision {
        let request = slab.get(id);
        if let Scan::Whole(queued) = &mut self.scan
            && let Some(count) = queued.get_mut(&request.key)
        {
            *count -= 1;
            if *count == 0 {
                queued.remove(&request.key);
            }
        }
        let Some(compactor) = self.compactors.get_mut(core) else {
            return Decision::Apply;
        };
        let scan = &self.scan;
        compactor.write(
            Instant { ns: now },
            request.key,
            RequestId(id),
            Instant { ns: request.at },
            || scan.finds(core, request.key, queues, slab),
        )
    }

    /// Closes a core's windows whose time has come: `script` is what is to be done for that.
    #[inline]
    pub(crate) fn step(
        &mut self,
        (now, core): (u64, usize),
        situation: Situation,
        (queues, slab): (&Queues, &Slab),
        script: &mut VecDeque<Effect>,
    ) {
        let Some(compactor) = self.compactors.get_mut(core) else {
            return;
        };
        if compactor.windows() == 0 {
            return;
        }
        let is_idle = queues.depth(Source::Rx(curtail_dispatch::Worker(core as u16))) == 0;
        let situation = match situation {
            Situation::Finished if is_idle => Situation::Idle,
            other => other,
        };
        let scan = &self.scan;
        compactor.step(
            Instant { ns: now },
            situation,
            |key| scan.finds(core, key, queues, slab),
            |effect| script.push_back(effect),
        );
    }

    /// When a core's next window closes at the latest.
    pub(crate) fn deadline(&self, core: usize) -> Option<u64> {
        let compactor = self.compactors.get(core)?;
        compactor.deadline().map(|deadline| deadline.ns)
    }

    /// Windows closed, writes in them, and the most in one.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let all = self.compactors.iter().map(Compactor::counts);
        all.fold((0, 0, 0), |(windows, writes, most), one| {
            let most = one.writes_max.max(most);
            (windows + one.windows, writes + one.writes, most)
        })
    }
}

impl Scan {
    #[inline(always)]
    fn finds(&self, core: usize, key: u64, queues: &Queues, slab: &Slab) -> bool {
        match self {
            Self::Whole(queued) => queued.contains_key(&key),
            Self::Slots(slots) => queues.has_write(slab, core, key, *slots),
        }
    }
}
