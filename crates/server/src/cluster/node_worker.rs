//! What a worker is beside its clients when its server is a node: its links, its share of the
//! slices, and what it waits for from others.
//!
//! ```text
//!   turn of a worker:  collect -> execute_in_cluster -> reply -> work -> wait
//!                                    |      ^                      |
//!     client requests: here, or -----+      +-- replies fill       +-- receive: jobs for slices,
//!     a job for a slice, or on to               their places           requests, answers
//!     another node                                                 +-- slices, timers, flush
//! ```

use std::{collections::VecDeque, sync::Arc};

use curtail_codec::{
    memcached::{Carried, KeyScratch},
    node::{AnswerStatus, BatchHead, Class, NodeAnswer, Part},
};
use curtail_consistency::placement::slice_of;
use curtail_types::{Cas, Exptime, Instant, Key, NodeId, NodeSet, RouteHash};

use super::{
    Cluster, InForce,
    carry::Bench,
    inbox::{Asked, Inbox},
    jobs::{Asker, Completed, End, Job, Origin, Spare},
    links::{Endpoint, LinkEvent, Links, Vitals},
    moves::{Mover, Waiter},
    place::{Way, access_of},
    relay::Out,
    reports::News,
    slices::{LARGE_BYTES, Relayed, RelayedKind, Tools},
};
use crate::{counts::Count, kit::Kit, mailbox::Arrival, sync::Relaxed};

/// A worker's part in the cluster.
pub(crate) struct NodeWorker {
    pub(super) index: usize,
    pub(super) cluster: Arc<Cluster>,
    pub(crate) links: Links,
    generation: u64,
    pub(super) in_force: Option<Arc<InForce>>,
    /// This node may answer in this turn.
    pub(super) serves: bool,
    pub(super) bench: Bench,
    pub(super) spare: Spare,
    pub(super) done: Vec<Completed>,
    elsewhere: Vec<Relayed>,
    /// Requests that other nodes carry out.
    pub(super) out: Vec<Option<Out>>,
    pub(super) free: Vec<u32>,
    /// Those of them that have to be sent again.
    pub(super) parked: VecDeque<u32>,
    /// Slices that have got something to do from this worker.
    stirred: u64,
    inbox: Inbox,
    pub(super) mover: Mover,
    /// What could not be told or asked for want of room.
    pub(super) untold: Vec<(NodeId, News)>,
    pub(super) unasked: Vec<(NodeId, RouteHash, Box<[u8]>)>,
    /// Joining nodes that follow all hot keys of this worker's slices.
    pub(super) filled: NodeSet,
    /// The mark up to which everything prepared is under way.
    pub(super) mark_done: u64,
    /// The last heartbeat that was passed on.
    beat: u64,
    pub(super) parcel: u64,
    pub(super) next_token: u16,
    /// When the turn began, and when what is out was last looked through.
    now_ns: u64,
    pub(super) looked_ns: u64,
}

/// After how long it is sent again when a node was not ready for it.
pub(super) const AGAIN_NS: u64 = 500_000;

impl NodeWorker {
    pub(crate) fn new(index: usize, cluster: Arc<Cluster>, links: Links) -> Self {
        Self {
            index,
            cluster,
            links,
            generation: 0,
            in_force: None,
            serves: false,
            bench: Bench::new(),
            spare: Spare::default(),
            done: Vec::new(),
            elsewhere: Vec::new(),
            out: Vec::new(),
            free: Vec::new(),
            parked: VecDeque::new(),
            stirred: 0,
            inbox: Inbox::default(),
            mover: Mover::default(),
            untold: Vec::new(),
            unasked: Vec::new(),
            filled: NodeSet::NONE,
            beat: 0,
            mark_done: 0,
            parcel: 0,
            next_token: 0,
            now_ns: 0,
            looked_ns: 0,
        }
    }

    /// Looks at what may differ from turn to turn.
    pub(crate) fn begin_turn(&mut self, kit: &mut Kit) {
        let now = kit.now.instant;
        self.parcel += 1;
        self.now_ns = now.ns;
        if self.cluster.views.generation() != self.generation {
            self.generation = self.cluster.views.generation();
            self.in_force = self.cluster.views.current();
            self.tell_slices();
            self.filled = NodeSet::NONE;
            self.begin_moves(kit);
        }
        self.serves = self.in_force.is_some() && self.cluster.holds_lease(now);
    }

    /// The slices that this worker sees to.
    pub(super) fn own_slices(&self) -> impl Iterator<Item = usize> + use<> {
        let workers = self.cluster.workers;
        (self.index..self.cluster.slices.len()).step_by(workers.max(1))
    }

    fn tell_slices(&mut self) {
        let in_force = self.in_force.clone();
        for number in self.own_slices() {
            let job = match &in_force {
                Some(in_force) => Job::View(Arc::clone(in_force)),
                None => Job::Forget,
            };
            self.give(number, job);
        }
    }

    /// Leaves a job for a slice, to be done before this turn ends.
    pub(super) fn give(&mut self, slice: usize, job: Job) {
        if let Some(slice) = self.cluster.slices.get(slice) {
            slice.leave(job);
        }
        self.stirred |= 1 << slice;
    }

    /// Somebody has left something for a slice of this worker.
    pub(crate) fn stir(&mut self, slice: usize) {
        self.stirred |= 1 << slice;
    }

    /// Whether there is something to do at once.
    pub(crate) fn wants_turn(&self) -> bool {
        self.links.wants_turn() || self.stirred != 0 || !self.done.is_empty() || self.is_moving()
    }

    /// When there will be something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        let slices = self
            .own_slices()
            .filter_map(|number| self.cluster.slices.get(number));
        let timers = slices.map(super::slices::Slice::due_ns).min();
        let waits = !self.parked.is_empty() || self.cluster.marks.last() != self.mark_done;
        let again = waits.then_some(self.now_ns + AGAIN_NS);
        let earliest = [timers, again].into_iter().flatten().min();
        let earliest = earliest
            .filter(|&ns| ns != u64::MAX)
            .map(|ns| Instant { ns });
        [earliest, self.links.due()].into_iter().flatten().min()
    }

    /// Everything of a turn that clients have no part in; fills `filled` with what has been
    /// answered to clients of this worker.
    pub(crate) fn work(&mut self, kit: &mut Kit, filled: &mut Vec<Completed>) {
        self.links.begin_turn(kit.now.instant);
        self.beat();
        self.receive();
        self.take_moves(kit);
        self.answer_peers(kit);
        self.take_answers(kit);
        self.take_events(kit);
        self.promote_prepared();
        self.work_slices(kit);
        self.send_again(kit);
        self.tell_again(kit);
        if self.is_moving() {
            self.move_some(kit);
        }
        self.look_through(kit);
        self.distribute(kit, filled);
        self.links.flush();
    }

    // ---- links ----

    /// Tells the others that this node is there, when the membership wants that.
    fn beat(&mut self) {
        let (beat, view) = self.cluster.beat();
        if self.index != 0 || beat == self.beat {
            return;
        }
        self.beat = beat;
        self.links.set_vitals(Vitals { view, load: 0 });
        for node in self.cluster.beats_to() {
            let news = News::Beat { view }.to_bytes();
            if let Some(to) = self.links.endpoint(node) {
                // The next one follows soon.
                let _ = self.links.send(to, Class::Answer, &Part::Report(&news));
            }
        }
        // A process that does not get to this suspects nobody of the same.
        let own = self.cluster.own.load(Relaxed);
        self.cluster.heard(self.cluster.me, own, view);
    }

    fn receive(&mut self) {
        let Self {
            links,
            cluster,
            spare,
            stirred,
            inbox,
            ..
        } = self;
        links.receive(|at, frame| inbox.take(cluster, (spare, stirred), at, &frame.body));
    }

    /// Carries out what other nodes ask for.
    fn answer_peers(&mut self, kit: &mut Kit) {
        let mut asked = std::mem::take(&mut self.inbox.asked);
        for one in asked.drain(..) {
            self.answer_peer(kit, one);
        }
        self.inbox.asked = asked;
    }

    fn answer_peer(&mut self, kit: &mut Kit, asked: Asked) {
        let origin = Origin {
            worker: self.index,
            asker: Asker::Peer {
                at: asked.at,
                parcel: asked.parcel,
                number: asked.number,
            },
        };
        let mut reply = self.spare.take();
        let end = self.run_for_peer(kit, &asked, origin, &mut reply);
        if let Some((end, ts)) = end {
            self.done.push(Completed {
                origin,
                end,
                reply,
                ts,
            });
        }
        self.spare.give(asked.bytes);
    }

    /// How it ended, and which write it showed; `None` if a slice has it now.
    fn run_for_peer(
        &mut self,
        kit: &mut Kit,
        asked: &Asked,
        origin: Origin,
        reply: &mut Vec<u8>,
    ) -> Option<(End, Cas)> {
        if let (RelayedKind::Flush, Some(at)) = (asked.kind, asked.bytes.first_chunk()) {
            kit.store
                .flush_all(kit.now, Exptime(i64::from_le_bytes(*at)));
            return Some((End::Done, Cas(0)));
        }
        let Some((carried, _)) = Carried::read(&asked.bytes) else {
            return Some((End::Refused, Cas(0)));
        };
        kit.counts.add(Count::ClusterAnswered, 1);
        let in_force = self.in_force.clone().filter(|_| self.serves);
        let Some(in_force) = in_force.filter(|now| now.view.number == asked.view) else {
            return Some((End::Elsewhere, Cas(0)));
        };
        let mut scratch = KeyScratch::default();
        let key_bytes = carried.resolve(&mut scratch).bytes();
        let (key, access) = (
            super::place::route_of(key_bytes),
            access_of(&carried.operation),
        );
        match self.cluster.place(&in_force, key, access) {
            Way::Here => {
                let hash = kit.store.hash(key_bytes);
                self.bench.run(kit, &carried, hash, reply);
                let shown = match (self.cluster.by_owner, Key::new(key_bytes)) {
                    (true, Ok(key)) => kit.version_of(key, hash),
                    _ => None,
                };
                Some((End::Done, shown.unwrap_or_default()))
            }
            // It is this node's; who asked may not know that it has moved.
            Way::At(_) => Some((End::Elsewhere, Cas(0))),
            Way::Looked(_) | Way::Protocol => {
                let bytes = self.spare.copied(&asked.bytes);
                self.give_request(origin, key, (access, asked.after), bytes);
                None
            }
            Way::Arriving => {
                let bytes = self.spare.copied(&asked.bytes);
                self.give_waiter(
                    kit,
                    Waiter {
                        origin,
                        key,
                        access,
                        after: asked.after,
                        bytes,
                    },
                );
                None
            }
        }
    }

    /// Leaves a request for a key that may not have arrived to the worker that sees to its slice.
    pub(super) fn give_waiter(&mut self, kit: &mut Kit, waiter: Waiter) {
        let owner = slice_of(waiter.key) % self.cluster.workers;
        if owner == self.index {
            self.await_arrival(kit, waiter);
        } else if let Some(face) = kit.shared.workers.get(owner) {
            face.mail.send(Arrival::Waiter(Box::new(waiter)));
        }
    }

    /// Takes in what other nodes sent, or ask for, because keys move.
    fn take_moves(&mut self, kit: &mut Kit) {
        for moved in std::mem::take(&mut self.inbox.moved) {
            let owner = slice_of(moved.route) % self.cluster.workers;
            if owner == self.index {
                self.take_moved(moved);
            } else if let Some(face) = kit.shared.workers.get(owner) {
                face.mail.send(Arrival::MovedKey(Box::new(moved)));
            }
        }
        for (route, ask) in std::mem::take(&mut self.inbox.move_requests) {
            let owner = slice_of(route) % self.cluster.workers;
            if owner == self.index {
                self.take_move_request(kit, ask);
            } else if let Some(face) = kit.shared.workers.get(owner) {
                face.mail.send(Arrival::MoveAsked(Box::new(ask)));
            }
        }
        for proposal in std::mem::take(&mut self.inbox.proposals) {
            self.cluster
                .change_hot(&kit.shared, &proposal.key, proposal.hot);
        }
        for (from, news) in std::mem::take(&mut self.inbox.news) {
            self.take_news(from, news);
        }
    }

    /// Leaves a request for the machine of its key.
    pub(super) fn give_request(
        &mut self,
        origin: Origin,
        key: RouteHash,
        (access, after): (curtail_consistency::symmetric::Access, Cas),
        bytes: Vec<u8>,
    ) {
        let job = Job::Request {
            origin,
            key,
            access,
            after,
            bytes,
        };
        self.give(slice_of(key), job);
    }

    fn take_answers(&mut self, kit: &Kit) {
        let mut answered = std::mem::take(&mut self.inbox.answered);
        for answer in answered.drain(..) {
            let Some(out) = self.out_of(answer.number, answer.parcel) else {
                self.spare.give(answer.bytes);
                continue;
            };
            if answer.status == AnswerStatus::Moved {
                out.is_sent = false;
                out.again_ns = kit.now.instant.ns + AGAIN_NS;
                self.parked.push_back(answer.number);
                self.spare.give(answer.bytes);
                continue;
            }
            match answer.status == AnswerStatus::Done && self.cluster.by_owner {
                true => self.end_seen(answer.number, answer.bytes),
                false => self.end(answer.number, answer.bytes),
            }
        }
        self.inbox.answered = answered;
    }

    /// A relayed request has its reply, before which stands the write that it shows: this node's
    /// copy must not show an earlier one to the same session.
    fn end_seen(&mut self, number: u32, mut bytes: Vec<u8>) {
        let Some(Out { relayed, .. }) = self.take_out(number) else {
            return;
        };
        let shown = bytes.first_chunk().map(|ts| Cas(u64::from_le_bytes(*ts)));
        bytes.drain(..8.min(bytes.len()));
        let completed = Completed {
            origin: relayed.origin,
            end: End::Done,
            reply: bytes,
            ts: Cas(0),
        };
        match shown.filter(|ts| *ts != Cas(0)) {
            Some(ts) => self.give(
                slice_of(relayed.key),
                Job::Seen(relayed.key, ts, Box::new(completed)),
            ),
            None => self.done.push(completed),
        }
        self.spare.give(relayed.bytes);
    }

    fn take_events(&mut self, kit: &Kit) {
        while let Some(event) = self.links.next_event() {
            if let LinkEvent::Reset(node) = event {
                self.lose(kit, node);
            }
        }
    }

    // ---- slices ----

    fn work_slices(&mut self, kit: &mut Kit) {
        let now_ns = kit.now.instant.ns;
        for number in self.own_slices() {
            let slice = self.cluster.slices.get(number);
            if slice.is_some_and(|slice| slice.due_ns() <= now_ns) {
                self.give(number, Job::Tick);
            }
        }
        let cluster = Arc::clone(&self.cluster);
        let mut tools = Tools {
            cluster: &cluster,
            kit,
            links: &mut self.links,
            bench: &mut self.bench,
            spare: &mut self.spare,
            done: &mut self.done,
            elsewhere: &mut self.elsewhere,
        };
        let mut stirred = std::mem::take(&mut self.stirred);
        while stirred != 0 {
            let number = stirred.trailing_zeros() as usize;
            stirred &= stirred - 1;
            let owner = number % cluster.workers.max(1);
            if cluster.by_owner && owner != self.index {
                if let Some(face) = tools.kit.shared.workers.get(owner) {
                    face.mail.send(Arrival::Stir(number));
                }
            } else if let Some(slice) = cluster.slices.get(number) {
                slice.work(&mut tools);
            }
        }
        for relayed in std::mem::take(&mut self.elsewhere) {
            match relayed.origin.asker {
                Asker::Client { .. } if relayed.origin.worker == self.index => {
                    self.relay(kit.now.instant, relayed);
                }
                Asker::Client { .. } => self.relay(kit.now.instant, relayed),
                // A request goes over one link at most: its node asks again.
                Asker::Peer { .. } => self.done.push(Completed {
                    origin: relayed.origin,
                    end: End::Elsewhere,
                    reply: relayed.bytes,
                    ts: Cas(0),
                }),
            }
        }
    }

    // ---- replies ----

    /// Gives what is done to whoever waits for it.
    fn distribute(&mut self, kit: &Kit, filled: &mut Vec<Completed>) {
        for completed in std::mem::take(&mut self.done) {
            if completed.origin.worker != self.index {
                if let Some(face) = kit.shared.workers.get(completed.origin.worker) {
                    face.mail.send(Arrival::Completed(Box::new(completed)));
                }
                continue;
            }
            match completed.origin.asker {
                Asker::Client { .. } => filled.push(completed),
                Asker::Peer { at, parcel, number } => {
                    self.answer(at, (parcel, number), &completed);
                    self.spare.give(completed.reply);
                }
            }
        }
    }

    /// Takes in what another worker completed for this one.
    pub(crate) fn take_completed(&mut self, completed: Completed) {
        self.done.push(completed);
    }

    fn answer(&mut self, at: Endpoint, (parcel, number): (u64, u32), completed: &Completed) {
        let Completed { end, reply, .. } = completed;
        let status = match end {
            End::Done => AnswerStatus::Done,
            End::Elsewhere => AnswerStatus::Moved,
            End::Refused => AnswerStatus::Refused,
        };
        let view = self.in_force.as_ref().map(|now| now.view.number);
        let head = BatchHead {
            number: parcel,
            view: view.unwrap_or_default(),
        };
        let mut framed = Vec::new();
        if *end == End::Done && self.cluster.by_owner {
            framed.extend_from_slice(&completed.ts.0.to_le_bytes());
            framed.extend_from_slice(reply);
        }
        let bytes = match end {
            End::Elsewhere => &[],
            End::Done if self.cluster.by_owner => framed.as_slice(),
            _ => reply.as_slice(),
        };
        let class = match bytes.len() > LARGE_BYTES {
            true => Class::LargeAnswer,
            false => Class::Answer,
        };
        let answer = NodeAnswer {
            number,
            status,
            bytes,
        };
        // Who gets none asks again, or says so to its client.
        let _ = self.links.send(at, class, &Part::Answer(head, answer));
    }

    /// Takes memory that a reply was kept in.
    pub(crate) fn give_back(&mut self, bytes: Vec<u8>) {
        self.spare.give(bytes);
    }
}
