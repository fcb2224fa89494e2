//! The protocol's machines, one for each slice of the keys, and what they ask for carried out.
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

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use curtail_codec::{
    memcached::{Carried, KeyScratch},
    node::{self, Class, KeyMessage, Part},
};
use curtail_consistency::symmetric::{
    Access, Config, Input, Mode, Output, Place, Refusal, Symmetric, Ticket, Value, Visibility,
};
use curtail_dispatch::SharedState;
use curtail_store::Image;
use curtail_types::{
    Cas, Delete, HotEpoch, HybridClock, Key, KeyHash, Message, NodeSet, RouteHash,
};

use super::{
    Cluster, InForce,
    carry::Bench,
    jobs::{Completed, End, Job, Moved, Origin, Said, Spare},
    links::Links,
};
use crate::{
    counts::Count,
    kit::Kit,
    sync::{AtomicU64, Mutex, Relaxed, lock},
};

/// A slice: its machine, behind a lock that nobody waits for, and its inbox.
#[derive(Debug)]
pub(crate) struct Slice {
    inbox: Mutex<Vec<Job>>,
    held: Mutex<Held>,
    /// When its machine wants to be told the time, in nanoseconds; `u64::MAX` for never.
    due_ns: AtomicU64,
}

/// What belongs to a slice.
#[derive(Debug)]
struct Held {
    machine: Symmetric,
    in_force: Option<Arc<InForce>>,
    /// The bytes of the keys that the machine knows.
    names: HashMap<RouteHash, Name>,
    waiting: Vec<Option<Waiting>>,
    free: Vec<usize>,
    outputs: VecDeque<Output>,
    /// Messages of a view that this node has not come to.
    early: VecDeque<Box<Said>>,
    clock: HybridClock,
    /// Promotions that this slice has begun.
    promotions: u64,
    config: Config,
    /// Keys that are hot with this node as their home.
    hot: HashMap<RouteHash, (HotEpoch, Mode)>,
}

#[derive(Debug)]
struct Name {
    key: Box<[u8]>,
    hash: KeyHash,
    /// Whether readers see it in the shared keys, and eviction passes it by.
    shared: bool,
    /// It is to become hot when nothing runs past the protocol any more.
    preparing: bool,
}

/// A request that the machine has.
#[derive(Debug)]
struct Waiting {
    origin: Origin,
    key: RouteHash,
    access: Access,
    bytes: Vec<u8>,
    reply: Vec<u8>,
    /// The write that the reply shows.
    ts: Cas,
}

/// What a step works with.
pub(super) struct Tools<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) kit: &'a mut Kit,
    pub(super) links: &'a mut Links,
    pub(super) bench: &'a mut Bench,
    pub(super) spare: &'a mut Spare,
    /// What has been completed.
    pub(super) done: &'a mut Vec<Completed>,
    /// What is for another node after all.
    pub(super) elsewhere: &'a mut Vec<Relayed>,
}

/// A request that a machine wants another node to carry out.
#[derive(Debug)]
pub(super) struct Relayed {
    pub(super) origin: Origin,
    pub(super) to: curtail_types::NodeId,
    pub(super) key: RouteHash,
    pub(super) after: Cas,
    pub(super) bytes: Vec<u8>,
    pub(super) kind: RelayedKind,
}

/// What is in a relayed request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RelayedKind {
    /// A request about one item, carried.
    Item,
    /// `flush_all`: when, as eight bytes.
    Flush,
}

/// What a message brought.
struct Incoming<'a> {
    image: Option<Image>,
    value: &'a [u8],
}

/// Messages of later views that a slice keeps; the others are sent again.
const EARLY_MAX: usize = 1024;

/// The answer when too much waits, or for too long.
const BUSY: &[u8] = b"SERVER_ERROR busy\r\n";
const LATE: &[u8] = b"SERVER_ERROR timed out; a write may still take effect\r\n";
const CHANGED: &[u8] =
    b"SERVER_ERROR the cluster changed meanwhile; a write may have taken effect\r\n";

impl Slice {
    pub(super) fn new(config: Config) -> Self {
        Self {
            inbox: Mutex::default(),
            held: Mutex::new(Held {
                clock: HybridClock::new(config.writer, Cas(0)),
                machine: Symmetric::new(config),
                promotions: 0,
                config,
                in_force: None,
                names: HashMap::new(),
                waiting: Vec::new(),
                free: Vec::new(),
                outputs: VecDeque::new(),
                early: VecDeque::new(),
                hot: HashMap::new(),
            }),
            due_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// Leaves a job; [`Slice::work`] does it.
    pub(super) fn leave(&self, job: Job) {
        lock(&self.inbox).push(job);
    }

    /// When its machine wants to be told the time, in nanoseconds.
    #[inline]
    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns.load(Relaxed)
    }

    /// Does all jobs that were left, unless somebody is at it, who does them then.
    pub(super) fn work(&self, tools: &mut Tools<'_>) {
        loop {
            let Ok(mut held) = self.held.try_lock() else {
                return;
            };
            let jobs = std::mem::take(&mut *lock(&self.inbox));
            for job in jobs {
                held.carry_out(tools, job);
            }
            let due = held.machine.deadline();
            self.due_ns
                .store(due.map_or(u64::MAX, |instant| instant.ns), Relaxed);
            drop(held);
            // Whoever left something while the slice was held has found it held, and gone.
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

    /// Whether a key is to become hot as soon as nothing runs past the protocol.
    pub(super) fn is_preparing(&self, key: RouteHash) -> bool {
        let held = lock(&self.held);
        held.names.get(&key).is_some_and(|name| name.preparing)
    }

    /// Whether this node is home of a hot key that `node`, which is joining, does not follow yet.
    pub(super) fn is_unfilled(&self, node: curtail_types::NodeId) -> bool {
        lock(&self.held).machine.is_unfilled(node)
    }
}

impl Held {
    fn carry_out(&mut self, tools: &mut Tools<'_>, job: Job) {
        match job {
            Job::Request {
                origin,
                key,
                access,
                after,
                bytes,
            } => self.take_request(tools, (origin, after), (key, access), bytes),
            Job::Message(said) => self.take_message(tools, said),
            Job::Install(moved) => self.install(tools, &moved),
            Job::Seen(key, ts, completed) => {
                self.step(tools, Input::Seen { key, ts }, Some(key), None);
                tools.done.push(*completed);
            }
            Job::View(in_force) => self.take_view(tools, &in_force),
            Job::Forget => self.forget_all(tools),
            Job::Tick => {
                self.step(tools, Input::Tick, None, None);
            }
            Job::Prepare(key, bytes) if self.may_change_hot() => self.prepare(tools, key, &bytes),
            Job::Promote(key) => self.promote(tools, key),
            Job::Demote(key) if self.may_change_hot() => {
                self.step(tools, Input::Demote { key }, Some(key), None);
            }
            Job::Prepare(..) | Job::Demote(_) => {}
        }
    }

    fn take_request(
        &mut self,
        tools: &mut Tools<'_>,
        (origin, after): (Origin, Cas),
        (key, access): (RouteHash, Access),
        bytes: Vec<u8>,
    ) {
        tools.kit.counts.add(Count::ClusterProtocol, 1);
        let (Some(place), Some(hash)) = (self.place(key), self.name(tools, key, &bytes)) else {
            tools.refuse(origin, bytes, BUSY);
            return;
        };
        let floor = match self.knows(key) || hash.1.is_some() {
            true => Cas(0),
            false => self.clock.next(tools.kit.now),
        };
        let ticket = self.keep(Waiting {
            origin,
            key,
            access,
            bytes,
            reply: tools.spare.take(),
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
        self.step(tools, input, Some(key), None);
    }

    fn take_message(&mut self, tools: &mut Tools<'_>, said: Box<Said>) {
        let view = self.in_force.as_ref().map(|now| now.view.number);
        if view.is_none_or(|view| said.message.view > view) {
            if self.early.len() < EARLY_MAX {
                self.early.push_back(said);
            }
            return;
        }
        let key = said.route;
        if let (Some(place), true) = (self.place(key), self.admit(tools, key, said.key())) {
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
            self.step(tools, input, Some(key), Some(&incoming));
        }
        tools.spare.give(said.into_bytes());
    }

    /// Puts in what has moved here, unless something later is there already.
    fn install(&mut self, tools: &mut Tools<'_>, moved: &Moved) {
        let (Some(image), Ok(key)) = (&moved.image, Key::new(moved.key())) else {
            return;
        };
        let hash = tools.kit.store.hash(moved.key());
        let is_newer = tools
            .kit
            .version_of(key, hash)
            .is_none_or(|here| here < moved.ts);
        if is_newer && !self.knows(moved.route) {
            let kit = &mut *tools.kit;
            kit.store
                .put_image(&mut kit.writer, kit.now, key, hash, image, moved.value());
        }
    }

    fn take_view(&mut self, tools: &mut Tools<'_>, in_force: &Arc<InForce>) {
        self.in_force = Some(Arc::clone(in_force));
        self.step(tools, Input::View(in_force.view), None, None);
        let keys: Vec<RouteHash> = self.machine.keys().collect();
        for key in keys {
            if let Some(place) = self.place(key) {
                self.step(tools, Input::Placed { key, place }, Some(key), None);
            }
        }
        for said in std::mem::take(&mut self.early) {
            self.take_message(tools, said);
        }
    }

    /// Begins anew with nothing.
    fn forget_all(&mut self, tools: &mut Tools<'_>) {
        self.machine = Symmetric::new(self.config);
        self.in_force = None;
        self.hot.clear();
        self.early.clear();
        for (key, mut name) in std::mem::take(&mut self.names) {
            name.preparing = false;
            name.unshare(tools, key);
        }
        self.free.clear();
        for waiting in std::mem::take(&mut self.waiting).into_iter().flatten() {
            tools.refuse(waiting.origin, waiting.bytes, CHANGED);
        }
        tools.cluster.note_forgotten();
    }

    /// A key whose home changes must be either hot, which is to say everywhere, or not: the hot set
    /// rests while keys are about to move, and while they do.
    fn may_change_hot(&self) -> bool {
        self.in_force.as_ref().is_some_and(|now| now.is_settled)
    }

    /// From here on requests for the key come to the machine.
    fn prepare(&mut self, tools: &mut Tools<'_>, key: RouteHash, bytes: &[u8]) {
        let is_home = self
            .place(key)
            .is_some_and(|place| place.home == tools.cluster.me);
        if is_home
            && self.admit(tools, key, bytes)
            && let Some(name) = self.names.get_mut(&key)
            && !name.shared
        {
            name.unsettle(&tools.cluster.keys, &tools.kit.store, key);
            name.preparing = true;
            tools.cluster.note_prepared(key);
            let workers = &tools.kit.shared.workers;
            workers.iter().for_each(|worker| worker.mail.wake());
        }
    }

    fn promote(&mut self, tools: &mut Tools<'_>, key: RouteHash) {
        // Greater than all before, whichever node was home and whatever clocks say.
        let view = self.in_force.as_ref().map_or(0, |now| now.view.number.0);
        self.promotions += 1;
        let epoch = HotEpoch(u64::from(view) << 32 | self.promotions);
        let Some(name) = self.names.get_mut(&key) else {
            return;
        };
        let was_prepared = std::mem::take(&mut name.preparing);
        let version = Key::new(&name.key)
            .ok()
            .and_then(|bytes| tools.kit.version_of(bytes, name.hash));
        let is_mine = |place: &Place| place.home == tools.cluster.me;
        if let (true, Some(place)) = (was_prepared, self.place(key).filter(is_mine)) {
            // A version from before a delete must not come again.
            let floor = match version {
                Some(_) => Cas(0),
                None => self.clock.next(tools.kit.now),
            };
            let input = Input::Promote {
                key,
                place,
                epoch,
                floor,
            };
            self.step(tools, input, Some(key), None);
        } else if !self.knows(key) {
            self.forget(tools, key);
        }
    }

    /// The holders of a key in the view that this slice has come to.
    fn place(&self, key: RouteHash) -> Option<Place> {
        let in_force = self.in_force.as_ref()?;
        Some(Place {
            home: in_force.home(key),
            holders: in_force.holders(key),
        })
    }

    /// Keeps the key of a request, and says under which version its item is stored; `None` if
    /// another key has its route hash.
    fn name(
        &mut self,
        tools: &mut Tools<'_>,
        key: RouteHash,
        bytes: &[u8],
    ) -> Option<(KeyHash, Option<Cas>)> {
        let mut scratch = KeyScratch::default();
        let (carried, _) = Carried::read(bytes)?;
        let resolved = carried.resolve(&mut scratch);
        if !self.admit(tools, key, resolved.bytes()) {
            return None;
        }
        let hash = self.names.get(&key)?.hash;
        Some((hash, tools.kit.version_of(resolved, hash)))
    }

    /// Keeps the bytes of a key; false if another key has its route hash.
    fn admit(&mut self, tools: &mut Tools<'_>, key: RouteHash, bytes: &[u8]) -> bool {
        match self.names.get(&key) {
            Some(name) => *name.key == *bytes,
            None => {
                let name = Name {
                    key: bytes.into(),
                    hash: tools.kit.store.hash(bytes),
                    shared: false,
                    preparing: false,
                };
                self.names.insert(key, name);
                true
            }
        }
    }

    /// Whether the machine has something to remember about a key.
    fn knows(&self, key: RouteHash) -> bool {
        self.machine.knows(key)
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

    // ---- steps ----

    /// Tells the machine, and does what it wants.
    fn step(
        &mut self,
        tools: &mut Tools<'_>,
        input: Input,
        subject: Option<RouteHash>,
        incoming: Option<&Incoming<'_>>,
    ) {
        self.tell(tools, input, subject);
        while let Some(output) = self.outputs.pop_front() {
            self.perform(tools, output, incoming);
        }
        if let Some(key) = subject
            && !self.knows(key)
        {
            self.forget(tools, key);
        }
    }

    fn tell(&mut self, tools: &mut Tools<'_>, input: Input, subject: Option<RouteHash>) {
        let stored = subject.and_then(|key| {
            let name = self.names.get(&key)?;
            tools.kit.version_of(Key::new(&name.key).ok()?, name.hash)
        });
        let outputs = &mut self.outputs;
        let now = tools.kit.now.instant;
        self.machine
            .step(now, input, stored.unwrap_or_default(), |output| {
                outputs.push_back(output);
            });
    }

    fn perform(&mut self, tools: &mut Tools<'_>, output: Output, incoming: Option<&Incoming<'_>>) {
        match output {
            Output::Run { ticket, ts } => self.run(tools, ticket, ts),
            Output::Done { ticket } => {
                if let Some(waiting) = self.release(ticket) {
                    tools.complete(waiting, End::Done);
                }
            }
            Output::Forward { ticket, to, after } => {
                if let Some(waiting) = self.release(ticket) {
                    tools.spare.give(waiting.reply);
                    tools.elsewhere.push(Relayed {
                        origin: waiting.origin,
                        to,
                        key: waiting.key,
                        after,
                        bytes: waiting.bytes,
                        kind: RelayedKind::Item,
                    });
                }
            }
            Output::Refuse { ticket, reason } => {
                if let Some(waiting) = self.release(ticket) {
                    tools.spare.give(waiting.reply);
                    tools.refuse(waiting.origin, waiting.bytes, text_of(reason));
                }
            }
            Output::Publish {
                key,
                ts,
                state,
                value,
            } => self.publish(
                tools,
                key,
                (ts, state),
                incoming.filter(|_| value == Value::Incoming),
            ),
            Output::Send {
                to, key, message, ..
            } => self.send(tools, to, key, message),
            Output::Moved { key, epoch, mode } => {
                match mode {
                    Mode::Cold => self.hot.remove(&key),
                    _ => self.hot.insert(key, (epoch, mode)),
                };
            }
        }
    }

    /// Carries a request out, now that it is its turn.
    fn run(&mut self, tools: &mut Tools<'_>, ticket: Ticket, ts: Cas) {
        let index = ticket.0 as usize;
        let Some(Some(waiting)) = self.waiting.get_mut(index) else {
            return;
        };
        let (key, access) = (waiting.key, waiting.access);
        let (Some(name), Some((carried, _))) =
            (self.names.get_mut(&key), Carried::read(&waiting.bytes))
        else {
            return;
        };
        let (kit, bench) = (&mut *tools.kit, &mut *tools.bench);
        waiting.reply.clear();
        if access == Access::Read {
            bench.run(kit, &carried, name.hash, &mut waiting.reply);
            if let Ok(key) = Key::new(&name.key) {
                waiting.ts = kit.version_of(key, name.hash).unwrap_or_default();
            }
            if let Some(waiting) = self.release(ticket) {
                tools.complete(waiting, End::Done);
            }
            return;
        }
        let before = tools.cluster.keys.look(key).state;
        let was_shared = name.shared;
        name.unsettle(&tools.cluster.keys, &kit.store, key);
        waiting.ts = ts;
        let Ok(key_bytes) = Key::new(&name.key) else {
            return;
        };
        let subject = (key_bytes, name.hash);
        let wrote = bench.write(kit, &carried, subject, ts, &mut waiting.reply);
        if wrote {
            self.tell(tools, Input::Write { ticket, key }, Some(key));
            return;
        }
        if let Some(name) = self.names.get_mut(&key) {
            match (was_shared, before) {
                (false, _) => name.unshare(tools, key),
                (true, state) => tools.cluster.keys.settle(key, state),
            }
        }
        if let Some(waiting) = self.release(ticket) {
            tools.complete(waiting, End::Done);
        }
        self.tell(tools, Input::Decline { ticket, key }, Some(key));
    }

    fn publish(
        &mut self,
        tools: &mut Tools<'_>,
        key: RouteHash,
        (ts, state): (Cas, Visibility),
        incoming: Option<&Incoming<'_>>,
    ) {
        let Some(name) = self.names.get_mut(&key) else {
            return;
        };
        if state == Visibility::Unsettled || incoming.is_some() {
            name.unsettle(&tools.cluster.keys, &tools.kit.store, key);
        }
        let Ok(bytes) = Key::new(&name.key) else {
            return;
        };
        let kit = &mut *tools.kit;
        let gone = state == Visibility::Gone;
        match incoming {
            Some(Incoming {
                image: Some(image),
                value,
            }) if !gone => {
                let image = Image { cas: ts, ..*image };
                kit.store
                    .put_image(&mut kit.writer, kit.now, bytes, name.hash, &image, value);
            }
            Some(Incoming { image: None, .. }) => kit.remove(bytes, name.hash),
            _ if gone => kit.remove(bytes, name.hash),
            _ => {}
        }
        match state {
            Visibility::Unsettled => {}
            Visibility::Valid => {
                name.unsettle(&tools.cluster.keys, &tools.kit.store, key);
                tools.cluster.keys.settle(key, SharedState::Valid);
            }
            Visibility::Ordinary | Visibility::Gone => name.unshare(tools, key),
        }
    }

    /// Sends a message about `key`, with what is stored if its kind carries a value.
    fn send(&self, tools: &mut Tools<'_>, to: NodeSet, key: RouteHash, message: Message) {
        let Some(name) = self.names.get(&key) else {
            return;
        };
        let Ok(bytes) = Key::new(&name.key) else {
            return;
        };
        let carries = message.kind.carries_value();
        let image = match carries {
            true => tools.bench.take_image(tools.kit, bytes, name.hash),
            false => None,
        };
        let image = image.map(|(image, value)| node::Image {
            client_flags: image.flags,
            expiry: image.expiry,
            stale: image.stale,
            won: image.won,
            value,
        });
        let large = image.is_some_and(|image| image.value.len() > LARGE_BYTES);
        let class = match (carries, large) {
            (false, _) => Class::Answer,
            (true, false) => Class::Demand,
            (true, true) => Class::LargeDemand,
        };
        let part = Part::Message(KeyMessage {
            route: key,
            message,
            key: bytes,
            image,
        });
        for to in to {
            // What finds no room is sent again by the machine.
            if let Some(to) = tools.links.endpoint(to) {
                let _ = tools.links.send(to, class, &part);
            }
        }
    }

    /// Forgets the bytes of a key that the machine does not know.
    fn forget(&mut self, tools: &mut Tools<'_>, key: RouteHash) {
        if self.names.get(&key).is_some_and(|name| name.preparing) {
            return;
        }
        if let Some(mut name) = self.names.remove(&key) {
            name.unshare(tools, key);
        }
    }
}

/// A longer value travels on a connection of its own.
pub(super) const LARGE_BYTES: usize = 4 << 10;

impl Name {
    /// Nobody reads the key past the protocol from now on.
    fn unsettle(
        &mut self,
        keys: &curtail_dispatch::SharedKeys,
        store: &curtail_store::Store,
        key: RouteHash,
    ) {
        match self.shared {
            true => keys.settle(key, SharedState::Unsettled),
            false => {
                keys.enter(key);
                store.keep(self.hash);
                self.shared = true;
            }
        }
    }

    /// Everybody may read the key past the protocol again.
    fn unshare(&mut self, tools: &Tools<'_>, key: RouteHash) {
        if self.shared && !self.preparing {
            tools.kit.store.let_go(self.hash);
            tools.cluster.keys.settle(key, SharedState::Ordinary);
            self.shared = false;
        }
    }
}

impl Kit {
    /// Removes the item of `key`.
    pub(super) fn remove(&mut self, key: Key<'_>, hash: KeyHash) {
        let delete = Delete::default();
        self.store
            .delete(&mut self.writer, self.now, key, hash, &delete);
    }
}

impl Tools<'_> {
    fn complete(&mut self, waiting: Waiting, end: End) {
        self.spare.give(waiting.bytes);
        self.done.push(Completed {
            origin: waiting.origin,
            end,
            reply: waiting.reply,
            ts: waiting.ts,
        });
    }

    fn refuse(&mut self, origin: Origin, bytes: Vec<u8>, text: &'static [u8]) {
        let mut reply = bytes;
        reply.clear();
        reply.extend_from_slice(text);
        self.done.push(Completed {
            origin,
            end: End::Refused,
            reply,
            ts: Cas(0),
        });
    }
}

fn text_of(reason: Refusal) -> &'static [u8] {
    match reason {
        Refusal::Late => LATE,
        Refusal::View => CHANGED,
        _ => BUSY,
    }
}
