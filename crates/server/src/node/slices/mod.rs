//! The protocol's machines, one for each slice of the keys, and the execution of their outputs.
//!
//! ```text
//!   any worker:  give(slice, job) ---> inbox ---> whoever gets the slice: jobs ---> outputs
//!                                                 (nobody waits for it)               |
//!        readers <--- SharedKeys  <--- Publish                                        |
//!        store   <--- Run, Publish  <-------------------------------------------------+
//!        nodes   <--- Send          whoever asked <--- Run (a read), Done, Refuse
//! ```
//!
//! Invariants: a machine is stepped by one thread at a time. Outputs are carried out in order, and
//! a key is unsettled for readers before its item changes. The bytes of a key are known as long as
//! its machine knows the key.

mod context;
mod keys;
mod outputs;
mod promotion;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use curtail_consistency::{
    moves::Arrived,
    symmetric::{Access, Config, Input, Mode, Output, Place, Symmetric, Ticket, Visibility},
};
use curtail_types::{Cas, Failure, HotEpoch, HybridClock, Instant, Key, RouteHash};

use crate::{
    limits::{EARLY_MESSAGE_BYTES_MAX, EARLY_MESSAGES_MAX, LATE_ITEMS_MAX, REMOVED_KEYS_MAX},
    metrics::counters::Count,
    node::{
        InForce, machines,
        slice_jobs::{End, Job, Moved, Origin, Said},
        slices::{keys::Names, outputs::Incoming},
    },
    sync::{AtomicU64, Mutex, Relaxed, lock},
};

pub(super) use crate::node::slices::context::{LARGE_BYTES, Relayed, RelayedKind, SliceContext};

/// A slice: its machine, behind a lock that nobody waits for, and its inbox.
#[derive(Debug)]
pub(crate) struct Slice {
    number: usize,
    inbox: Mutex<Vec<Job>>,
    held: Mutex<Held>,
}

/// When the machines of the slices want to be told the time. They stand side by side because every
/// turn of every worker looks at all of its slices.
#[derive(Debug)]
pub(crate) struct Dues(Box<[AtomicU64]>);

/// What belongs to a slice.
#[derive(Debug)]
struct Held {
    machine: Symmetric,
    in_force: Option<Arc<InForce>>,
    /// The bytes of the keys that the machine knows.
    names: Names,
    waiting: Vec<Option<Waiting>>,
    free: Vec<usize>,
    outputs: VecDeque<Output>,
    /// Messages of a view that this node has not come to.
    early: VecDeque<Said>,
    early_bytes: usize,
    /// What has moved here while the machine was not done with its key.
    late: Vec<Moved>,
    /// The versions of what was removed, of keys that an earlier version may still come of.
    removed: HashMap<RouteHash, Cas>,
    clock: HybridClock,
    /// Promotions that this slice has begun.
    promotions: u64,
    config: Config,
    /// Keys that are hot with this node as their home.
    hot: HashMap<RouteHash, (HotEpoch, Mode)>,
}

/// A request that the machine has.
#[derive(Debug)]
struct Waiting {
    origin: Origin,
    key: RouteHash,
    access: Access,
    bytes: Vec<u8>,
    /// How it ended, as soon as it has run.
    end: End,
    /// What it shows of a value.
    value: Vec<u8>,
    /// The write that the answer shows.
    ts: Cas,
}

/// An hour of the version clock: no node's clock runs further ahead of another's.
const LEAD_MAX: u64 = (3600 * HybridClock::TICKS_PER_SECOND) << 16;

impl Slice {
    pub(super) fn new(number: usize, config: Config) -> Self {
        Self {
            number,
            inbox: Mutex::default(),
            held: Mutex::new(Held {
                clock: HybridClock::new(config.writer, Cas(0)),
                machine: Symmetric::new(config),
                promotions: 0,
                config,
                in_force: None,
                names: Names::default(),
                waiting: Vec::new(),
                free: Vec::new(),
                outputs: VecDeque::new(),
                early: VecDeque::new(),
                early_bytes: 0,
                late: Vec::new(),
                removed: HashMap::new(),
                hot: HashMap::new(),
            }),
        }
    }

    /// Leaves a job; [`Slice::work`] does it.
    pub(super) fn leave(&self, job: Job) {
        lock(&self.inbox).push(job);
    }

    /// Runs all jobs in the inbox, unless another thread holds the slice, which then runs them.
    pub(super) fn work(&self, slice_cx: &mut SliceContext<'_, '_>) {
        loop {
            let Ok(mut held) = self.held.try_lock() else {
                return;
            };
            let mut jobs = std::mem::take(slice_cx.jobs);
            std::mem::swap(&mut jobs, &mut *lock(&self.inbox));
            for job in jobs.drain(..) {
                held.carry_out(slice_cx, job);
            }
            *slice_cx.jobs = jobs;
            let due = held.machine.deadline();
            slice_cx.cluster.dues.set(self.number, due);
            drop(held);
            // A thread that left a job meanwhile found the slice held, and did not run it.
            if lock(&self.inbox).is_empty() {
                return;
            }
        }
    }

    /// Calls `each` with every key that is shared with others.
    pub(super) fn each_shared(&self, mut each: impl FnMut(&[u8])) {
        let held = lock(&self.held);
        let shared = held.names.values().filter(|name| name.shared);
        shared.for_each(|name| each(&name.key));
    }

    /// Whether this node is home of a hot key that `node`, which is joining, does not follow yet.
    pub(super) fn is_unfilled(&self, node: curtail_types::NodeId) -> bool {
        lock(&self.held).machine.is_unfilled(node)
    }
}

impl Dues {
    pub(super) fn new(slices: usize) -> Self {
        Self((0..slices).map(|_| AtomicU64::new(u64::MAX)).collect())
    }

    fn set(&self, slice: usize, due: Option<Instant>) {
        if let Some(place) = self.0.get(slice) {
            place.store(due.map_or(u64::MAX, |instant| instant.ns), Relaxed);
        }
    }

    /// When that of a slice wants it, in nanoseconds; `u64::MAX` for never.
    #[inline]
    pub(super) fn of(&self, slice: usize) -> u64 {
        self.0
            .get(slice)
            .map_or(u64::MAX, |place| place.load(Relaxed))
    }
}

impl Held {
    fn carry_out(&mut self, slice_cx: &mut SliceContext<'_, '_>, job: Job) {
        match job {
            Job::Request {
                origin,
                key,
                access,
                after,
                bytes,
            } => self.take_request(slice_cx, (origin, after), (key, access), bytes),
            Job::Message(said) => self.take_message(slice_cx, said),
            Job::Install(moved) => self.install(slice_cx, *moved),
            Job::Seen(key, ts, completed) => {
                self.step(slice_cx, Input::Seen { key, ts }, Some(key), None);
                slice_cx.done.push(*completed);
            }
            Job::View(in_force) => self.take_view(slice_cx, &in_force),
            Job::Sweep(key, bytes) => self.sweep(slice_cx, key, &bytes),
            Job::Forget => self.forget_all(slice_cx),
            Job::Tick => {
                self.step(slice_cx, Input::Tick, None, None);
            }
            Job::Prepare(key, bytes) if self.may_change_hot() => {
                self.prepare(slice_cx, key, &bytes)
            }
            Job::Promote(key) => self.promote(slice_cx, key),
            Job::Demote(key) if self.may_change_hot() => {
                self.step(slice_cx, Input::Demote { key }, Some(key), None);
            }
            Job::Prepare(..) | Job::Demote(_) => {}
        }
    }

    fn take_request(
        &mut self,
        slice_cx: &mut SliceContext<'_, '_>,
        (origin, after): (Origin, Cas),
        (key, access): (RouteHash, Access),
        bytes: Vec<u8>,
    ) {
        slice_cx.cx.counts.add(Count::ClusterProtocol, 1);
        let may_run = access != Access::Update || self.may_remove(slice_cx, key);
        let named = may_run && self.name(slice_cx, key, &bytes);
        let Some(place) = self.place(key).filter(|_| named) else {
            slice_cx.refuse(origin, bytes, Failure::Busy);
            return;
        };
        // A version from before a delete must not come again.
        let floor = match self.knows(key) || self.stored(slice_cx, key).is_some() {
            true => Cas(0),
            false => self.clock.next(slice_cx.cx.store_cx.now),
        };
        let ticket = self.keep(Waiting {
            origin,
            key,
            access,
            bytes,
            end: End::Elsewhere,
            value: slice_cx.spare.take(),
            ts: Cas(0),
        });
        let input = Input::Request {
            ticket,
            key,
            place,
            access,
            after,
            floor,
        };
        self.step(slice_cx, input, Some(key), None);
    }

    /// The clock of this slice gives later versions than its machine has: one that was given for a
    /// key that is deleted and forgotten is not given again. What a client made up may be anywhere,
    /// and must not drag the clock along.
    fn see_version(&mut self, slice_cx: &SliceContext<'_, '_>, ts: Cas) {
        let next = self.clock.next(slice_cx.cx.store_cx.now);
        if ts >= next && ts.0 - next.0 < LEAD_MAX {
            self.clock = HybridClock::new(self.config.writer, ts);
        }
    }

    fn take_message(&mut self, slice_cx: &mut SliceContext<'_, '_>, said: Said) {
        let view = self.in_force.as_ref().map(|now| now.view.number);
        if view.is_none_or(|view| said.message.view > view) {
            let bytes = self.early_bytes + said.bytes();
            if self.early.len() < EARLY_MESSAGES_MAX && bytes <= EARLY_MESSAGE_BYTES_MAX {
                self.early_bytes = bytes;
                self.early.push_back(said);
            }
            return;
        }
        self.see_version(slice_cx, said.message.ts);
        let key = said.route;
        let removes = said.message.kind.carries_value() && said.image.is_none();
        if removes && !self.may_remove(slice_cx, key) {
            // It is sent again.
            return slice_cx.spare.give(said.into_bytes());
        }
        if let (Some(place), true) = (self.place(key), self.admit(slice_cx, key, said.key())) {
            let input = Input::Message {
                from: said.from,
                key,
                place,
                message: said.message,
            };
            let incoming = Incoming {
                image: said.image,
                value: said.value(),
            };
            self.step(slice_cx, input, Some(key), Some(&incoming));
        }
        slice_cx.spare.give(said.into_bytes());
    }

    /// Puts in what has moved here, unless something later is there already.
    fn install(&mut self, slice_cx: &mut SliceContext<'_, '_>, moved: Moved) {
        let (Some(image), Ok(key)) = (&moved.image, Key::new(moved.key())) else {
            return;
        };
        let hash = slice_cx.cx.store_cx.store.hash(moved.key());
        let here = slice_cx.cx.store_cx.version_of(key, hash);
        let removed = self.removed.get(&moved.route).copied();
        match InForce::arrived(moved.ts, here, removed, self.knows(moved.route)) {
            Arrived::IsNew => {
                let cx = &mut *slice_cx.cx;
                cx.store_cx.put_image(key, hash, image, moved.value());
            }
            Arrived::Waits if self.late.len() < LATE_ITEMS_MAX => self.late.push(moved),
            Arrived::Waits | Arrived::IsOld => {}
        }
    }

    /// The machine is done with the key: what has moved here is of use if it has nothing itself.
    fn take_late(
        &mut self,
        slice_cx: &mut SliceContext<'_, '_>,
        key: RouteHash,
        state: Visibility,
    ) {
        if let Some(at) = self.late.iter().position(|moved| moved.route == key) {
            let moved = self.late.swap_remove(at);
            if state == Visibility::Gone {
                self.install(slice_cx, moved);
            }
        }
    }

    fn take_view(&mut self, slice_cx: &mut SliceContext<'_, '_>, in_force: &Arc<InForce>) {
        self.end_last_move(slice_cx, in_force);
        self.in_force = Some(Arc::clone(in_force));
        if !in_force.view.moves() {
            self.removed.clear();
        }
        self.step(slice_cx, Input::View(in_force.view), None, None);
        let keys: Vec<RouteHash> = self.machine.keys().collect();
        for key in keys {
            if let Some(place) = self.place(key) {
                self.step(slice_cx, Input::Placed { key, place }, Some(key), None);
            }
        }
        self.early_bytes = 0;
        for said in std::mem::take(&mut self.early) {
            self.take_message(slice_cx, said);
        }
    }

    /// If the last move has ended without notice here, the state of keys that did not belong here
    /// then is unknown: this node missed writes to them.
    fn end_last_move(&mut self, slice_cx: &mut SliceContext<'_, '_>, next: &InForce) {
        let Some(last) = self.in_force.clone().filter(|last| next.has_ended(last)) else {
            return;
        };
        let keys: Vec<RouteHash> = self.machine.keys().collect();
        for key in keys {
            let place = last.place_in_the_end(key);
            if !place.holders.contains(slice_cx.cluster.me) {
                self.step(slice_cx, Input::Placed { key, place }, Some(key), None);
            }
        }
    }

    /// A key that did not belong here before keys moved again.
    fn sweep(&mut self, slice_cx: &mut SliceContext<'_, '_>, key: RouteHash, bytes: &[u8]) {
        if let (false, Ok(bytes)) = (self.knows(key), Key::new(bytes)) {
            let hash = slice_cx.cx.store_cx.store.hash(bytes.bytes());
            slice_cx.cx.store_cx.remove(bytes, hash);
        }
    }

    /// Whether there is room to remember that the key was removed, if it has to be.
    fn may_remove(&self, slice_cx: &SliceContext<'_, '_>, key: RouteHash) -> bool {
        let has_room = self.removed.len() < REMOVED_KEYS_MAX || self.removed.contains_key(&key);
        has_room || !self.keeps_removed(slice_cx, key)
    }

    pub(super) fn keeps_removed(&self, slice_cx: &SliceContext<'_, '_>, key: RouteHash) -> bool {
        let in_force = self.in_force.as_ref();
        in_force.is_some_and(|now| now.keeps_removed(key, slice_cx.cluster.me))
    }

    /// What was removed with version `ts` does not come back by a move that is under way.
    pub(super) fn note_removed(
        &mut self,
        slice_cx: &SliceContext<'_, '_>,
        key: RouteHash,
        ts: Cas,
    ) {
        if self.keeps_removed(slice_cx, key) {
            let last = self.removed.entry(key).or_default();
            *last = ts.max(*last);
        }
    }

    /// Drops all state.
    fn forget_all(&mut self, slice_cx: &mut SliceContext<'_, '_>) {
        let last = self.clock.next(slice_cx.cx.store_cx.now);
        self.config.writer = machines(self.config.me, self.config.writer.0.wrapping_add(1));
        self.clock = HybridClock::new(self.config.writer, last);
        self.machine = Symmetric::new(self.config);
        self.in_force = None;
        self.hot.clear();
        self.early.clear();
        self.late.clear();
        self.removed.clear();
        self.early_bytes = 0;
        for (key, mut name) in std::mem::take(&mut self.names) {
            name.preparing = false;
            if let Ok(bytes) = Key::new(&name.key)
                && name.shared
            {
                // Who only followed holds it no more than its machine does.
                slice_cx.cx.store_cx.remove(bytes, name.hash);
            }
            name.unshare(slice_cx, key);
        }
        self.free.clear();
        for waiting in std::mem::take(&mut self.waiting).into_iter().flatten() {
            slice_cx.refuse(waiting.origin, waiting.bytes, Failure::ViewChanged);
        }
        slice_cx.cluster.note_forgotten();
    }

    /// A key whose home changes must be either hot, which is to say everywhere, or not: the hot set
    /// rests while keys are about to move, and while they do.
    fn may_change_hot(&self) -> bool {
        self.in_force.as_ref().is_some_and(|now| now.is_settled)
    }

    /// The holders of a key in the view that this slice has come to.
    fn place(&self, key: RouteHash) -> Option<Place> {
        self.in_force.as_ref().map(|now| now.place(key))
    }

    /// The version of the item of a key whose bytes are known, if there is one.
    fn stored(&self, slice_cx: &mut SliceContext<'_, '_>, key: RouteHash) -> Option<Cas> {
        let name = self.names.get(&key)?;
        slice_cx
            .cx
            .store_cx
            .version_of(Key::new(&name.key).ok()?, name.hash)
    }

    fn keep(&mut self, waiting: Waiting) -> Ticket {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.waiting.push(None);
                self.waiting.len() - 1
            }
        };
        if let Some(place) = self.waiting.get_mut(index) {
            *place = Some(waiting);
        }
        Ticket(index as u64)
    }

    fn release(&mut self, ticket: Ticket) -> Option<Waiting> {
        let index = ticket.0 as usize;
        let waiting = self.waiting.get_mut(index)?.take()?;
        self.free.push(index);
        Some(waiting)
    }
}
