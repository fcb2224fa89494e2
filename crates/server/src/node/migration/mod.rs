//! Migration: moves keys to their new holders while reads and writes go on.
//!
//! ```text
//!   old holder (source)                          new home
//!   every thread acts on the new view            a request for a key that may still be there:
//!   scan: each key that leaves ---- Move ----->    install if newer --+
//!         <------------------ MoveRequest ------   waits <------------+
//!   the key, or that there is none -- Move --->    install, run what waited
//! ```
//!
//! A request waits for its own key only, not for the whole move. The source of a key is the first
//! of its old holders that lives. With one holder the source drops a key as it sends it, so there
//! is never an old copy to come back to; with several, the old holders take part in every write
//! until all has moved, and drop theirs then.
//!
//! Invariant: what moves out of a slice and what asks for it go through the one worker that sees to
//! the slice, on either side. All that moves, and the end of it, goes over one connection between
//! them, the one for large items: so the answer "there is none" is never faster than the key.

pub(crate) mod progress;

mod rate_limit;
mod source;
mod target;

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
};

use curtail_codec::node::{Class, Part};
use curtail_consistency::{
    cluster_clock::Reading,
    moves::{Due, Duty, Scan},
    symmetric::{Access, Visibility},
};
use curtail_dispatch::{Seen, SharedState};
use curtail_types::{Cas, Failure, NodeId, NodeSet, RouteHash};

use crate::{
    limits::EARLY_KEY_BYTES_MAX,
    metrics::counters::Count,
    node::{
        MoveAsked, NodeWorker,
        control_messages::News,
        host::NodeContext,
        migration::rate_limit::Pace,
        slice_jobs::{Moved, Origin},
        worker::AGAIN_NS,
    },
    sync::Relaxed,
    test_faults::Fault,
};

/// What a worker has to do with keys that move.
#[derive(Debug, Default)]
pub(super) struct Mover {
    phase: Phase,
    /// The limit of data in flight is reached: the next acknowledgement continues the move.
    held: bool,
    /// How much of the time it takes.
    pace: Pace,
    /// When something was last asked for, by a client or another node.
    pub(super) asked_ns: u64,
    /// Keys found and not sent yet, and those among them with which the protocol is not done.
    found: VecDeque<Box<[u8]>>,
    unsettled: VecDeque<Box<[u8]>>,
    /// Requests for keys that have not arrived.
    arrivals: HashMap<RouteHash, Vec<Waiter>>,
    /// Nodes that do not have such a key, while another may.
    denied: HashMap<RouteHash, NodeSet>,
    /// Keys that other nodes ask for before this one may give them away.
    asked: Vec<MoveAsked>,
    /// Nodes that have not seen the end of what was sent.
    unseen: NodeSet,
    /// Keys of a view that this node has not come to, and their bytes.
    early: Vec<Moved>,
    early_bytes: usize,
    /// Who has sent everything, and which of its workers, while this node has not taken all in: it
    /// may be of a view to come, or lie with another worker.
    early_ends: Vec<(NodeId, News)>,
}

/// How far this worker is with its slices under the view in force.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Phase {
    /// There is nothing to move.
    #[default]
    Idle,
    /// Some thread may still act on the view before.
    Waiting { mark: u64 },
    /// Scanning for keys that leave, from this bucket on; `None` when the scan is complete.
    Scanning { next: Option<usize>, scan: Scan },
    /// All is sent.
    Sent,
    /// All has been taken in.
    Done,
    /// Scanning for keys that do not belong here any more, once or twice.
    Sweeping { next: usize, again: bool },
}

impl Phase {
    /// An item that is displaced may slip by it, too.
    const FIRST_SWEEP: Self = Self::Sweeping {
        next: 0,
        again: true,
    };
}

/// What became of a key that is to leave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Departure {
    Sent,
    /// It need not leave.
    Stays,
    /// The protocol is not done with it: it is looked at again later.
    Unsettled,
    /// It is retried first: links are full.
    NoRoom,
    /// It is longer than its new node takes, and is given up: else the move would never end.
    Unfit,
}

/// A request for a key that has not arrived.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) origin: Origin,
    pub(super) key: RouteHash,
    pub(super) access: Access,
    pub(super) after: Cas,
    /// When it was asked here.
    pub(super) begun_ns: u64,
    pub(super) bytes: Vec<u8>,
}

/// A node that was told to end has given its keys away after so long, if it can: half of the time
/// that it has by default (`--leave-seconds`).
const LEAVE_NS: u64 = 10_000_000_000;

/// No request waits for a sweep: it gets only this part of the time that moves would.
const SWEEP_PARTS: u64 = 4;

/// What a step takes on a node that a test makes slow.
const SLOW_NS: u64 = 1_000_000;

impl NodeWorker {
    /// Another view is in force.
    pub(super) fn begin_moves(&mut self, cx: &mut NodeContext<'_>) {
        let Some(in_force) = self.in_force.clone() else {
            let mover = std::mem::take(&mut self.mover);
            self.links.hold_large(false);
            self.cluster.note_taken(mover.early.len());
            for waiter in mover.arrivals.into_values().flatten() {
                self.fail(Failure::Unreachable, waiter.origin, waiter.bytes);
            }
            return;
        };
        let was_busy = self.mover.phase != Phase::Idle;
        self.mover.found.clear();
        self.mover.unsettled.clear();
        let is_leaving = self.cluster.is_leaving.load(Relaxed);
        let end_ns = is_leaving.then_some(self.now_ns + LEAVE_NS);
        self.mover.pace.begin(end_ns);
        self.mover.phase = match in_force.duty(self.cluster.me, was_busy) {
            Duty::Sends => Phase::Waiting {
                mark: self.cluster.marks.set(),
            },
            Duty::Sweeps => Phase::FIRST_SWEEP,
            Duty::Rests => Phase::Idle,
        };
        self.mover.denied.clear();
        let waiters = std::mem::take(&mut self.mover.arrivals);
        for waiter in waiters.into_values().flatten() {
            self.await_arrival(cx, waiter);
        }
        self.mover.early_bytes = 0;
        for moved in std::mem::take(&mut self.mover.early) {
            self.take_moved(cx, moved);
        }
        for (from, end) in std::mem::take(&mut self.mover.early_ends) {
            self.take_news(cx, from, end);
        }
        self.hold_moves(cx);
    }

    /// Leaves keys where they are, with their senders in the end, as long as there is no room.
    fn hold_moves(&mut self, cx: &NodeContext<'_>) {
        let holds = self.mover.is_full() || cx.host.has(Fault::TakesNoMoves);
        self.links.hold_large(holds);
    }

    /// Whether there is something to do for moves at once.
    pub(super) fn is_moving(&self) -> bool {
        !matches!(self.mover.phase, Phase::Idle | Phase::Done | Phase::Sent)
    }

    /// When a turn is to begin for the sake of moves alone.
    pub(super) fn moves_due_ns(&self) -> Option<u64> {
        let Mover { pace, asked_ns, .. } = &self.mover;
        match self.mover.phase {
            Phase::Idle | Phase::Done | Phase::Sent => None,
            // The other threads were woken with the view, and are looked at again soon.
            Phase::Waiting { .. } => Some(self.now_ns + AGAIN_NS),
            _ if self.mover.held => None,
            _ => Some(pace.wake_ns(self.now_ns, *asked_ns)),
        }
    }

    /// A bounded part of the moves.
    pub(super) fn move_some(&mut self, cx: &mut NodeContext<'_>) {
        self.mover.held = false;
        match self.mover.phase {
            Phase::Idle | Phase::Done | Phase::Sent => {}
            Phase::Waiting { mark } => {
                if self.cluster.marks.is_passed(mark) {
                    let (next, scan) = (Some(0), Scan::default());
                    self.mover.phase = Phase::Scanning { next, scan };
                    for asked in std::mem::take(&mut self.mover.asked) {
                        self.take_move_request(cx, asked);
                    }
                }
            }
            Phase::Scanning { .. } | Phase::Sweeping { .. } => self.run_batch(cx),
        }
    }

    /// As much as the pace allows.
    fn run_batch(&mut self, cx: &mut NodeContext<'_>) {
        let is_sweeping = matches!(self.mover.phase, Phase::Sweeping { .. });
        if self.mover.pace.due_ns() > self.now_ns || is_sweeping && cx.host.has(Fault::SweepsNever)
        {
            return;
        }
        cx.counts.add(Count::ClusterMoveBatches, 1);
        let clock = cx.host.clock();
        let step_ns = if cx.host.has(Fault::MovesSlowly) {
            SLOW_NS
        } else {
            0
        };
        let steps = Cell::new(0);
        let senders = match self.mover.phase {
            Phase::Sweeping { .. } => SWEEP_PARTS,
            _ => self.in_force.as_ref().map_or(1, |now| now.senders()),
        };
        let left = cx.store_cx.store.counters().items_now / self.cluster.workers.max(1) as u64;
        // It is taken out for as long as steps need the rest.
        let mut pace = self.mover.pace;
        let share = pace.share(self.now_ns, self.mover.asked_ns, senders, left);
        pace.run(
            || clock.now().instant.ns + steps.get() * step_ns,
            share,
            || {
                steps.set(steps.get() + 1);
                match self.mover.phase {
                    Phase::Scanning { next, scan } => self.scan(cx, next, scan),
                    Phase::Sweeping { next, again } => self.sweep(cx, next, again),
                    _ => false,
                }
            },
        );
        self.mover.pace = pace;
    }

    /// Tells everybody that nothing more comes from this worker's slices.
    fn end_moves(&mut self) {
        let Some(in_force) = self.in_force.clone() else {
            return;
        };
        let others = in_force.view.live.without(self.cluster.me);
        self.mover.unseen = others;
        let news = News::MovesEnd {
            view: in_force.view.number,
            worker: self.index as u16,
        };
        for node in others {
            self.tell(node, news);
        }
        self.note_seen(NodeSet::NONE);
    }

    /// Sends a node a control message; keeps it for a retry if there is no room now.
    pub(super) fn tell(&mut self, node: NodeId, news: News) {
        let sent = self.links.endpoint(node).is_some_and(|to| {
            let bytes = news.to_bytes();
            let class = match news {
                News::MovesEnd { .. } => Class::LargeDemand,
                _ => Class::Demand,
            };
            self.links.send(to, class, &Part::Report(&bytes)).is_ok()
        });
        // News that is repeated need wait once only.
        if !sent && !self.untold.contains(&(node, news)) {
            self.untold.push((node, news));
        }
    }

    pub(super) fn take_news(&mut self, cx: &NodeContext<'_>, from: NodeId, news: News) {
        let now = self.in_force.as_ref().map(|now| now.view.number);
        match news {
            // What came before it may lie here until that view is in force, or with the worker of
            // its slice, which would throw it away if it came to the next view before: it is not
            // taken in.
            News::MovesEnd { view, worker } => {
                let seen = self.in_force.as_ref().map(|now| now.sees_end(view));
                match seen {
                    Some(Due::Now) if self.cluster.has_taken_all() => {
                        self.tell(from, News::MovesSeen { view, worker });
                    }
                    _ => self.mover.early_ends.push((from, news)),
                }
            }
            News::MovesSeen { view, worker } => {
                if now == Some(view) && usize::from(worker) == self.index {
                    self.note_seen(NodeSet::only(from));
                }
            }
            News::MovesDone { view } => self.cluster.moves_done(from, view),
            News::Filled { view } => self.cluster.note_filled(from, view),
            News::Beat { heartbeat, items } => {
                self.cluster.journal.note_items(from, items.into());
                self.cluster.heard(from, heartbeat);
            }
            News::Call { sent_us } => {
                // When this turn began the call may not have been on its way.
                let now = cx.host.clock().now().instant;
                let clock = self.cluster.clock.reading(now);
                self.tell_now(from, News::Echo { sent_us, clock });
            }
            News::Echo { sent_us, clock } => self.take_echo(cx, from, (sent_us, clock)),
        }
    }

    /// An echo has arrived. Only that of the last call counts: the age of others is unknown.
    fn take_echo(&mut self, cx: &NodeContext<'_>, from: NodeId, (sent_us, said): (u32, Reading)) {
        let (last_us, sent) = self.called;
        if sent_us != last_us {
            return;
        }
        let now = cx.host.clock().now().instant;
        let trip_us = now.ns.saturating_sub(sent.ns) / 1000;
        self.cluster.journal.note_round_trip(from, trip_us);
        self.cluster.set_clock(cx.host, (now, sent), said);
    }

    fn note_seen(&mut self, by: NodeSet) {
        self.mover.unseen = self.mover.unseen.difference(by);
        let Some(in_force) = self.in_force.clone() else {
            return;
        };
        if !self.mover.unseen.is_empty() || self.mover.phase == Phase::Done {
            return;
        }
        self.mover.phase = Phase::Done;
        let view = in_force.view.number;
        if self.cluster.worker_has_moved(view) {
            self.cluster.moves_done(self.cluster.me, view);
            for node in in_force.view.followers().without(self.cluster.me) {
                self.tell(node, News::MovesDone { view });
            }
        }
    }

    /// Retries messages that found no room.
    pub(super) fn tell_again(&mut self, cx: &mut NodeContext<'_>) {
        self.hold_moves(cx);
        for (node, news) in std::mem::take(&mut self.untold) {
            self.tell(node, news);
        }
        for (source, route, key) in std::mem::take(&mut self.unasked) {
            self.ask_for(source, route, &key);
        }
        for asked in std::mem::take(&mut self.mover.asked) {
            self.take_move_request(cx, asked);
        }
        for (from, end) in std::mem::take(&mut self.mover.early_ends) {
            self.take_news(cx, from, end);
        }
    }
}

/// What is known of a key, as those say it who decide about moves.
fn visibility_of(seen: Seen) -> Visibility {
    match seen.state {
        SharedState::Ordinary => Visibility::Ordinary,
        SharedState::Valid => Visibility::Valid,
        SharedState::Unsettled => Visibility::Unsettled,
    }
}

impl Mover {
    /// Whether it is to look again soon whether all has been taken in.
    pub(super) fn awaits_taking(&self) -> bool {
        !self.early_ends.is_empty()
    }

    /// Whether it holds as many keys of a view to come as it may.
    fn is_full(&self) -> bool {
        self.early_bytes >= EARLY_KEY_BYTES_MAX
    }
}
