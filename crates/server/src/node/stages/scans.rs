//! The walk through the store by which holders of slices catch up.
//!
//! One walk serves all slices that ask for it before it begins; a slice that asks later waits for
//! the next. A walk goes on while every slice of it can take more keys, and a few buckets at a
//! turn. Between two steps it rests, so that it takes a small share of the worker's time: else a
//! node that was added has the others serve their clients late. What catches up no more is left
//! behind.

use curtail_consistency::{replica::ReplicaEvent, slice_view::SliceId};
use curtail_store::ScanCursor;
use curtail_types::RouteHash;

use crate::{
    limits::BUCKETS_PER_STEP,
    metrics::counters::Count,
    node::stages::{STAGES, Stage, StageContext, stage_of},
};

/// The walk of a worker, for the slices of its stages.
#[derive(Debug, Default)]
pub(in crate::node) struct SliceScans {
    cursor: Option<ScanCursor>,
    /// Slices that the walk is for.
    members: Vec<ScanMember>,
    /// Slices that wait for the next.
    next: Vec<SliceId>,
    /// No step is made earlier.
    rests_until_ns: u64,
}

/// How long a walk rests after a step, in times of the step.
const REST: u64 = 24;

#[derive(Debug)]
struct ScanMember {
    slice: SliceId,
    /// It has asked to go on.
    is_ready: bool,
    /// What was found of it in this step.
    keys: Vec<(RouteHash, u32)>,
}

impl SliceScans {
    /// Whether a step would do something.
    pub(in crate::node) fn is_ready(&self, now_ns: u64) -> bool {
        now_ns >= self.rests_until_ns && self.can_step()
    }

    /// Whether there is a walk, or one to begin, that does not rest.
    pub(in crate::node) fn is_awake(&self, now_ns: u64) -> bool {
        let is_there = self.cursor.is_some() || !self.next.is_empty();
        is_there && now_ns >= self.rests_until_ns
    }

    fn can_step(&self) -> bool {
        match &self.cursor {
            Some(_) => self.members.iter().all(|member| member.is_ready),
            None => !self.next.is_empty(),
        }
    }

    /// Whether a walk waits for a slice of it.
    pub(in crate::node) fn waits(&self) -> bool {
        self.cursor.is_some() && !self.can_step()
    }

    /// When the next step is made, if nothing else is waited for.
    pub(in crate::node) fn due_ns(&self) -> Option<u64> {
        self.can_step().then_some(self.rests_until_ns)
    }

    /// A step that took so long ended now.
    pub(in crate::node) const fn rest(&mut self, now_ns: u64, took_ns: u64) {
        self.rests_until_ns = now_ns + REST * took_ns;
    }

    /// A machine wants a scan of a slice, or more of it.
    pub(in crate::node) fn ask(&mut self, slice: SliceId, begins: bool) {
        let is_it = |member: &ScanMember| member.slice == slice;
        if begins {
            self.members.retain(|member| !is_it(member));
            if !self.next.contains(&slice) {
                self.next.push(slice);
            }
        } else if let Some(member) = self.members.iter_mut().find(|member| is_it(member)) {
            member.is_ready = true;
        }
    }

    /// Walks on a little, and tells the machines what it found.
    pub(in crate::node) fn step(
        &mut self,
        stages: &mut [Option<Stage>],
        stage_cx: &mut StageContext<'_, '_>,
    ) {
        let catches_up = |stages: &[Option<Stage>], slice: SliceId| {
            let stage = stages.get(stage_of(slice)).and_then(Option::as_ref);
            stage.is_some_and(|stage| stage.machine.catches_up(slice))
        };
        self.members
            .retain(|member| catches_up(stages, member.slice));
        if self.members.is_empty() {
            self.cursor = None;
        }
        if self.cursor.is_none() {
            self.next.retain(|slice| catches_up(stages, *slice));
            if self.next.is_empty() {
                return;
            }
            self.members = self.next.drain(..).map(ScanMember::new).collect();
            self.cursor = Some(ScanCursor::default());
        }
        if !self.can_step() {
            return;
        }
        let Some(cursor) = self.cursor.take() else {
            return;
        };
        let members = &mut self.members;
        let store_cx = &mut *stage_cx.cx.store_cx;
        let mut found = |slice: u16, key: RouteHash, bytes: u32| {
            let mut members = members.iter_mut();
            if let Some(member) = members.find(|member| member.slice.0 == slice) {
                member.keys.push((key, bytes));
            }
        };
        let (store, now) = (&store_cx.store, store_cx.now);
        let cursor = store.scan_slices(now, cursor, BUCKETS_PER_STEP, &mut found);
        let is_done = cursor.is_end();
        self.cursor = Some(cursor).filter(|_| !is_done);
        for member in &mut self.members {
            if member.keys.is_empty() && !is_done {
                continue;
            }
            member.is_ready = false;
            let sent = member.keys.len() as u64;
            stage_cx.cx.counts.add(Count::ClusterKeysSent, sent);
            let stage = stages.get_mut(stage_of(member.slice));
            if let Some(Some(stage)) = stage {
                let found = ReplicaEvent::Scanned(member.slice, &member.keys, is_done);
                stage.step(stage_cx, found);
            }
            member.keys.clear();
        }
        if is_done {
            self.members.clear();
        }
        self.collect(stages);
    }

    /// Takes what the machines want of scans.
    pub(in crate::node) fn collect(&mut self, stages: &mut [Option<Stage>]) {
        for stage in stages.iter_mut().flatten() {
            for (slice, begins) in stage.state.scans.drain(..) {
                self.ask(slice, begins);
            }
        }
    }
}

impl ScanMember {
    const fn new(slice: SliceId) -> Self {
        Self {
            slice,
            is_ready: true,
            keys: Vec::new(),
        }
    }
}

const _: () = assert!(STAGES.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_goes_on_when_all_its_slices_can_take_more() {
        let mut scans = SliceScans::default();
        assert!(!scans.is_ready(0));
        scans.ask(SliceId(1), true);
        assert!(scans.is_ready(0) && !scans.waits());
        scans.rest(1_000, 10);
        assert!(!scans.is_ready(1_239) && scans.is_ready(1_240));
        assert_eq!((scans.waits(), scans.due_ns()), (false, Some(1_240)));
        scans.cursor = Some(ScanCursor::default());
        scans.members = [SliceId(1), SliceId(2)].map(ScanMember::new).into();
        scans.members[0].is_ready = false;
        assert!(scans.waits());
        scans.ask(SliceId(1), false);
        assert!(scans.is_ready(1_240));
        scans.ask(SliceId(2), true);
        assert_eq!((scans.members.len(), scans.next.len()), (1, 2));
    }
}
