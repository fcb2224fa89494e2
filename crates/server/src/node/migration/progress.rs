//! The progress of a node's moves under the view in force, over all its workers.

use curtail_types::{NodeId, NodeSet, ViewNumber};

use crate::{
    node::{Cluster, NodeWorker, control_messages::News},
    sync::{Mutex, Relaxed, lock},
};

/// What the workers of a node have come to together.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// All below is about this view.
    view: ViewNumber,
    /// Workers all of whose keys that leave have been taken in.
    moved: usize,
    /// Joining nodes, and the workers all of whose hot keys they follow.
    filled: Vec<(NodeId, usize)>,
    /// Nodes whose hot keys this node, which is joining, follows.
    filled_by: NodeSet,
}

impl Progress {
    fn with<T>(&self, view: ViewNumber, look: impl FnOnce(&mut Counts) -> T) -> T {
        let mut counts = lock(&self.0);
        if counts.view != view {
            *counts = Counts {
                view,
                ..Counts::default()
            };
        }
        look(&mut counts)
    }
}

impl Cluster {
    /// One more worker has moved its keys; whether it was the last.
    pub(crate) fn worker_has_moved(&self, view: ViewNumber) -> bool {
        self.progress.with(view, |counts| {
            counts.moved += 1;
            counts.moved == self.workers
        })
    }

    /// Whether all workers have moved their keys.
    fn has_moved(&self, view: ViewNumber) -> bool {
        self.progress
            .with(view, |counts| counts.moved >= self.workers)
    }

    /// Worker `index` has filled `node`; whether all have.
    fn worker_has_filled(&self, view: ViewNumber, node: NodeId, index: usize) -> bool {
        self.progress.with(view, |counts| {
            if !counts.filled.contains(&(node, index)) {
                counts.filled.push((node, index));
            }
            let workers = counts.filled.iter().filter(|(filled, _)| *filled == node);
            workers.count() == self.workers
        })
    }

    /// So many keys that have moved here are with their slices, before any view to come, or are not
    /// wanted any more.
    pub(crate) fn note_taken(&self, count: usize) {
        self.untaken.fetch_sub(count, Relaxed);
    }

    /// Whether all keys that have moved here are.
    pub(crate) fn has_taken_all(&self) -> bool {
        self.untaken.load(Relaxed) == 0
    }

    /// A node's keys have all been taken in where they belong.
    pub(crate) fn moves_done(&self, from: NodeId, view: ViewNumber) {
        if let Some(member) = self.member.get() {
            member.moves_done(from, view);
        }
    }

    /// This node follows the hot keys of `from`.
    pub(crate) fn note_filled(&self, from: NodeId, view: ViewNumber) {
        let Some(in_force) = self.views.current().filter(|now| now.view.number == view) else {
            return;
        };
        let filled_by = self.progress.with(view, |counts| {
            counts.filled_by = counts.filled_by.with(from);
            counts.filled_by
        });
        let is_joining = in_force.view.joining.contains(self.me);
        if is_joining && filled_by.contains_all(in_force.view.live) {
            self.say_ready(view);
        }
    }

    /// This node has all hot keys.
    pub(crate) fn say_ready(&self, view: ViewNumber) {
        if let Some(member) = self.member.get() {
            member.ready(view);
        }
    }
}

impl NodeWorker {
    /// Says again that all keys that leave this node are where they belong: a node that has not
    /// come to the view yet does not listen.
    pub(crate) fn repeat_moves_done(&mut self) {
        let in_force = self.in_force.clone();
        let Some(in_force) = in_force.filter(|now| now.view.moves() && self.index == 0) else {
            return;
        };
        let view = in_force.view.number;
        if self.cluster.has_moved(view) {
            self.cluster.moves_done(self.cluster.me, view);
            for node in in_force.view.followers().without(self.cluster.me) {
                self.tell(node, News::MovesDone { view });
            }
        }
    }

    /// Looks whether nodes that are joining have the hot keys of this worker's slices, and tells
    /// them when they have those of all workers: again and again, because a node that has not come
    /// to the view yet does not listen.
    pub(crate) fn look_at_joining(&mut self) {
        let Some(in_force) = self.in_force.clone() else {
            return;
        };
        let view = &in_force.view;
        if !view.live.contains(self.cluster.me) {
            return;
        }
        for node in view.joining {
            let cluster = &self.cluster;
            let slices = self
                .own_slices()
                .filter_map(|slice| cluster.slices.get(slice));
            let mut unfilled = slices.filter(|slice| slice.is_unfilled(node));
            if !self.filled.contains(node) && unfilled.next().is_some() {
                continue;
            }
            self.filled = self.filled.with(node);
            if self
                .cluster
                .worker_has_filled(view.number, node, self.index)
            {
                self.tell(node, News::Filled { view: view.number });
            }
        }
    }
}
