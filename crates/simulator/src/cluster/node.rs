//! One node: the machines as a server drives them, with items in place of a store.
//!
//! What a server spreads over workers is one step here: whatever arrives is dealt with at once, and
//! what comes of it is left in `deeds` for the world to carry out. Values are numbers.
//!
//! ```text
//!   client --Demand--> admit -> route -+-> read beside the machine (valid)     -+
//!   node ----Ask-----/                 +-> run at once (cold, one holder, home) +-> Answer
//!                                      +-> Symmetric::step -> Run, Done, ...   -+
//!                                      +-> Ask another node (Forward)
//! ```

mod moves;
mod outputs;
mod requests;

use std::collections::{BTreeMap, VecDeque};

use curtail_consistency::{
    membership::{self, Change, Incarnation, Membership},
    moves::InForce,
    symmetric::{self, Mode, NOBODY, Place, Symmetric, Ticket, nothing_since},
};
use curtail_types::{
    Cas, HotEpoch, HybridClock, Instant, NodeId, NodeSet, View, ViewNumber, WriterId,
};

use self::requests::{Open, Origin};
use super::{
    ClusterRun,
    clock::{Clock, lease},
    keys::Keys,
    mutant::Mutant,
    packet::{Answer, Item, Packet},
};

/// What a node wants of the world.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    Send {
        to: NodeId,
        packet: Packet,
    },
    /// To a client.
    Reply {
        number: u64,
        answer: Answer,
    },
    /// An operation has had an effect, whether or not its answer ever arrives.
    Ran {
        number: u64,
        from: Option<u64>,
        version: Cas,
    },
    /// The store of views is asked.
    Ask(StoreAsk),
    /// It is not a member any more, and begins anew.
    Reborn,
    /// A rule between machine and driver was broken.
    Broken(&'static str),
    /// A key became hot; what is not there has had this version from then on, if not 0, and that
    /// one before.
    Promoted {
        key: usize,
        floor: Cas,
        before: Cas,
    },
    /// As a key's home it has come to this.
    Moved {
        key: usize,
        mode: Mode,
    },
    /// Readers may read the key here.
    Shown {
        key: usize,
    },
    Adopted,
}

/// What the store of views is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoreAsk {
    /// What it holds; when it was asked.
    Read(Instant),
    /// To change that, if it is still the one of this revision.
    Propose { expected: u64, change: Change },
}

pub(super) struct Node<'a> {
    run: &'a ClusterRun,
    keys: &'a Keys,
    /// The world's time.
    pub(super) now: u64,
    pub(super) me: NodeId,
    /// Counts its restarts.
    pub(super) life: u64,
    pub(super) clock: Clock,
    hybrid: HybridClock,
    pub(super) membership: Membership,
    serve_until: Option<Instant>,
    pub(super) view: View,
    /// The same, and where it places keys; none if no node has any.
    in_force: Option<InForce>,
    pub(super) places: Vec<Place>,
    machines: Vec<Symmetric>,
    pub(super) items: Vec<Item>,
    /// Of each key: the version of its last delete here.
    deleted: Vec<Cas>,
    /// Of each key: whether the machine knows it, and then whether readers may read it.
    index: Vec<Option<bool>>,
    /// What readers see of a key until then: the mutant's.
    stale: Vec<Option<(u64, Item)>>,
    pub(super) modes: Vec<Mode>,
    moves: moves::Moves,
    open: BTreeMap<Ticket, Open>,
    tickets: u64,
    /// Packets of a view that is not in force here yet.
    kept: VecDeque<((NodeId, u64), Packet)>,
    /// The newest life of each node that was heard.
    lives: Vec<u64>,
    promotions: u64,
    /// Live nodes that say that this joining node lacks nothing.
    filled: NodeSet,
    pub(super) deeds: Vec<Deed>,
    outputs: Vec<symmetric::Output>,
}

impl<'a> Node<'a> {
    pub(super) fn new(
        (run, keys): (&'a ClusterRun, &'a Keys),
        me: NodeId,
        life: u64,
        clock: Clock,
    ) -> Self {
        let usual = lease(me);
        let membership = membership::Config {
            replicas: run.replicas,
            founders: (0..run.nodes).map(NodeId).collect(),
            lease_ns: match run.mutant {
                Some(Mutant::LateMissed) => 5 * usual.lease_ns,
                _ => usual.lease_ns,
            },
            ..usual
        };
        let config = symmetric::Config {
            me,
            model: run.model,
            keys_max: 64,
            waiting_max: 256,
            retransmit_ns: RETRANSMIT_NS,
            replay_ns: REPLAY_NS,
            patience_ns: 60_000_000,
            settle_ns: 5_000_000,
            // No life of a node gives a version that another gave, whatever its clock shows.
            writer: WriterId::of(me, MACHINES + (life % LIVES) as u16),
        };
        Self {
            run,
            keys,
            now: 0,
            me,
            life,
            clock,
            hybrid: HybridClock::new(WriterId::of(me, (life % 512) as u16), Cas(0)),
            membership: Membership::new(membership),
            serve_until: None,
            view: View::default(),
            in_force: None,
            places: vec![Place::default(); run.keys],
            machines: vec![Symmetric::new(config); SLICES],
            items: vec![Item::default(); run.keys],
            deleted: vec![Cas(0); run.keys],
            index: vec![None; run.keys],
            stale: vec![None; run.keys],
            modes: vec![Mode::Cold; run.keys],
            moves: moves::Moves::new(run.keys),
            open: BTreeMap::new(),
            tickets: 0,
            kept: VecDeque::new(),
            lives: vec![0; usize::from(run.nodes)],
            promotions: 0,
            filled: NodeSet::NONE,
            deeds: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Becomes a member, or wants to.
    pub(super) fn start(&mut self) {
        self.member(membership::Input::Join(self.incarnation()));
    }

    /// Whether it may answer for what it has.
    pub(super) fn serves(&self, at: u64) -> bool {
        let now = self.clock.instant(at);
        match self.run.mutant {
            Some(Mutant::Unfenced) => self.view.live.contains(self.me),
            _ => self.serve_until.is_some_and(|until| now < until),
        }
    }

    /// When it has to be told the time, in the world's.
    pub(super) fn deadline(&self) -> u64 {
        let machines = self.machines.iter().filter_map(Symmetric::deadline);
        let machines = machines.map(|due| self.clock.world(due)).min();
        let member = self.clock.world(self.membership.deadline());
        let again = self.open.values().filter_map(Open::due).min();
        [machines, Some(member), again, self.moves.due()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(member)
    }

    /// Time has come.
    pub(super) fn tick(&mut self) {
        let now = self.clock.instant(self.now);
        if now >= self.membership.deadline() {
            self.member(membership::Input::Tick);
        }
        for slice in 0..SLICES {
            if self.machines[slice]
                .deadline()
                .is_some_and(|due| now >= due)
            {
                self.step(slice, symmetric::Input::Tick, Item::default());
            }
        }
        self.ask_again();
    }

    /// A packet of the life `life` of `from` arrived.
    pub(super) fn receive(&mut self, (from, life): (NodeId, u64), packet: Packet) {
        let known = &mut self.lives[usize::from(from.0)];
        if life < *known {
            return;
        }
        *known = life;
        self.handle((from, life), packet);
    }

    fn handle(&mut self, (from, of): (NodeId, u64), packet: Packet) {
        if self.is_early(&packet) {
            self.kept.push_back(((from, of), packet));
            return self.kept.truncate(KEPT_MAX);
        }
        match packet {
            Packet::Heartbeat(heartbeat) => {
                self.member(membership::Input::Heartbeat { from, heartbeat });
            }
            Packet::Ask {
                number,
                demand,
                after,
            } => self.begin(Origin::Node((from, of), number), demand, after),
            Packet::Tell {
                life,
                number,
                answer,
            } => {
                if life == self.life {
                    self.told(from, number, answer);
                }
            }
            Packet::MovesDone { view } => {
                self.member(membership::Input::MovesDone { from, view });
            }
            Packet::Key {
                key,
                mut message,
                item,
            } => {
                if self.run.mutant == Some(Mutant::AnyView) {
                    message.view = self.view.number;
                }
                self.observe(item.version);
                let input = symmetric::Input::Message {
                    from,
                    key: self.keys.route(key),
                    place: self.places[key],
                    message,
                };
                self.step(slice_of(key), input, item);
            }
            Packet::Move { key, view, item } => self.moved_in(from, (key, view, item)),
            Packet::Wanted { key, .. } => self.wanted(from, key),
            Packet::Moved { key, view } => self.moved_out(from, key, view),
            Packet::Unfilled { view, any } => self.note_filled(from, view, any),
        }
    }

    /// Whether it belongs to a view that is not in force here yet.
    fn is_early(&self, packet: &Packet) -> bool {
        let view = match packet {
            Packet::Key { message, .. } if self.run.mutant != Some(Mutant::AnyView) => message.view,
            Packet::Move { view, .. }
            | Packet::Wanted { view, .. }
            | Packet::Unfilled { view, .. } => *view,
            _ => return false,
        };
        view > self.view.number
    }

    fn note_filled(&mut self, from: NodeId, view: ViewNumber, any: bool) {
        if view != self.view.number || any {
            return;
        }
        self.filled = self.filled.with(from);
        if self.view.joining.contains(self.me) && self.filled.contains_all(self.view.live) {
            self.member(membership::Input::Ready { view });
        }
    }

    /// Steps the membership and does what it says.
    pub(super) fn member(&mut self, input: membership::Input<'_>) {
        let now = self.clock.instant(self.now);
        let mut outputs = Vec::new();
        self.membership
            .step(now, input, |output| outputs.push(output));
        for output in outputs {
            match output {
                membership::Output::Read => self.deeds.push(Deed::Ask(StoreAsk::Read(now))),
                membership::Output::Propose { expected, change } => {
                    let ask = StoreAsk::Propose { expected, change };
                    self.deeds.push(Deed::Ask(ask));
                }
                membership::Output::Heartbeat { to } => self.beat(to),
                membership::Output::Adopt(view) => self.adopt(view),
                membership::Output::Serve { until } => self.serve_until = Some(until),
                membership::Output::StopServing => self.serve_until = None,
                membership::Output::Event(event) => {
                    if self.run.trace.is_some() {
                        eprintln!("{} node {}: {event:?}", self.now, self.me.0);
                    }
                    use membership::MembershipEvent::{Departed, Removed, Replaced};
                    let ended = matches!(event, Removed | Replaced | Departed);
                    if ended {
                        self.deeds.push(Deed::Reborn);
                    }
                }
            }
        }
    }

    fn beat(&mut self, to: NodeSet) {
        for to in to {
            let heartbeat = self.membership.heartbeat_to(to);
            self.send(to, Packet::Heartbeat(heartbeat));
        }
        // Whoever follows an older view has not taken note of it.
        self.tell_moves_done();
        let view = self.view.number;
        if self.view.live.contains(self.me) {
            for to in self.view.joining {
                let any = self.machines.iter().any(|machine| machine.is_unfilled(to));
                self.send(to, Packet::Unfilled { view, any });
            }
        }
    }

    /// Which life of it this is.
    pub(super) fn incarnation(&self) -> Incarnation {
        Incarnation(self.life << 8 | u64::from(self.me.0))
    }

    /// Whether its machine knows the key: a write of it may be here alone.
    pub(super) fn is_shared(&self, key: usize) -> bool {
        self.index[key].is_some()
    }

    /// Whether it, as the key's home, has the key or knows that there is none.
    pub(super) fn is_sure_of(&self, key: usize) -> bool {
        let changes = matches!(self.modes[key], Mode::Promoting | Mode::Demoting);
        !self.moves.is_awaited(key) && !changes && self.index[key] != Some(false)
    }

    /// A view is in force.
    fn adopt(&mut self, view: View) {
        let next = self.keys.in_force(&view);
        self.end_last_move(next.as_ref());
        let before = self.view;
        (self.view, self.in_force) = (view, next);
        self.filled = NodeSet::NONE;
        self.deeds.push(Deed::Adopted);
        for key in 0..self.places.len() {
            let route = self.keys.route(key);
            let placed = self.in_force.as_ref().map(|now| now.place(route));
            self.places[key] = placed.unwrap_or_default();
            if self.places[key].home != self.me {
                self.modes[key] = Mode::Cold;
            }
        }
        match view.placed.is_empty() {
            true => self.forget_all(),
            false => self.follow(&before),
        }
        self.forget_askers();
        for (from, packet) in std::mem::take(&mut self.kept) {
            self.handle(from, packet);
        }
    }

    /// The machines hear of the view, and keys begin to move.
    fn follow(&mut self, before: &View) {
        for slice in 0..SLICES {
            let input = symmetric::Input::View(self.view);
            self.step(slice, input, Item::default());
            let known: Vec<_> = self.machines[slice].keys().collect();
            for route in known {
                let key = self.keys.index_of(route);
                let place = self.places[key];
                self.tell(key, symmetric::Input::Placed { key: route, place });
            }
        }
        self.plan_moves(before);
    }

    /// Nobody has keys: what this node has, as one that has only followed, is worth nothing. So a
    /// server does.
    fn forget_all(&mut self) {
        let number = self.view.number;
        let nobody = View {
            number,
            ..View::default()
        };
        for slice in 0..SLICES {
            let input = symmetric::Input::View(nobody);
            self.step(slice, input, Item::default());
        }
        self.items.fill(Item::default());
        self.deleted.fill(Cas(0));
        self.moves = moves::Moves::new(self.items.len());
    }

    /// Makes a key hot, if this is its home and nothing speaks against it.
    pub(super) fn promote(&mut self, key: usize) {
        let place = self.places[key];
        let cold = self.modes[key] == Mode::Cold && self.index[key].is_none();
        if !self.serves(self.now) || place.home != self.me || !cold || self.is_awaited(key) {
            return;
        }
        self.promotions += 1;
        // A later view's home is another, and greater than all before it.
        let epoch = HotEpoch(u64::from(self.view.number.0) << 32 | self.promotions);
        let floor = match self.items[key].value {
            None => nothing_since(self.me, self.hybrid.next(self.clock.now(self.now))),
            Some(_) => Cas(0),
        };
        let before = self.items[key].version;
        if floor > Cas(0) {
            // Nothing, of this version.
            self.items[key].version = floor;
        }
        let input = symmetric::Input::Promote {
            key: self.keys.route(key),
            place,
            epoch,
            floor,
        };
        self.deeds.push(Deed::Promoted { key, floor, before });
        self.tell(key, input);
    }

    /// Makes a key cold, if this is its home and it is hot.
    pub(super) fn demote(&mut self, key: usize) {
        if self.places[key].home == self.me && self.modes[key] == Mode::Hot {
            let route = self.keys.route(key);
            self.tell(key, symmetric::Input::Demote { key: route });
        }
    }

    /// Whether nothing is on its way to or from it, and every key that it knows may be read.
    pub(super) fn is_at_rest(&self) -> bool {
        let valid = self.index.iter().all(|known| *known != Some(false));
        let modes = [Mode::Promoting, Mode::Demoting];
        let changes = self.modes.iter().any(|mode| modes.contains(mode));
        valid && !changes && self.open.is_empty() && self.moves.is_over()
    }

    /// Whether a reader may find this key's item here.
    pub(super) fn has_copy(&self, key: usize) -> bool {
        self.index[key] == Some(true) || self.places[key].holders.contains(self.me)
    }

    /// What a person wants to know of a node that is stuck.
    pub(super) fn describe(&self) -> String {
        format!(
            "node {} life {} serves {} {:?} index {:?} modes {:?} moves {:?} open {:?}",
            self.me.0,
            self.life,
            self.serves(self.now),
            self.view,
            self.index,
            self.modes,
            self.moves,
            self.unanswered()
        )
    }

    /// A rule between machine and driver was broken.
    fn broken(&mut self, what: &'static str) {
        self.deeds.push(Deed::Broken(what));
    }

    fn send(&mut self, to: NodeId, packet: Packet) {
        self.deeds.push(Deed::Send { to, packet });
    }

    /// Who writes what does not go through the machines.
    fn writer(&self) -> WriterId {
        WriterId::of(self.me, (self.life % 512) as u16)
    }

    /// Its own clock never falls behind a version that it has seen.
    fn observe(&mut self, version: Cas) {
        if version > self.hybrid.last() {
            self.hybrid = HybridClock::new(self.writer(), version);
        }
    }

    /// The key has its place elsewhere, or is to come from there: of what was here nothing counts,
    /// nor that it was deleted.
    fn forget_item(&mut self, key: usize) {
        self.items[key] = Item::default();
        self.deleted[key] = Cas(0);
    }

    fn note_deleted(&mut self, key: usize) {
        let item = self.items[key];
        if item.value.is_none() && !self.is_promise(item) {
            self.deleted[key] = self.deleted[key].max(item.version);
        }
    }

    fn machine_knows(&self, key: usize) -> bool {
        let route = self.keys.route(key);
        self.machines[slice_of(key)]
            .keys()
            .any(|known| known == route)
    }
}

fn slice_of(key: usize) -> usize {
    key % SLICES
}

/// When something is sent again.
pub(super) const RETRANSMIT_NS: u64 = 1_000_000;
/// How long a request waits for somebody's write before it completes that.
pub(super) const REPLAY_NS: u64 = 1_500_000;
/// Machines of a node.
const SLICES: usize = 2;
/// Writers from this one on are machines'.
const MACHINES: u16 = 512;
const LIVES: u64 = (NOBODY - MACHINES) as u64;
const KEPT_MAX: usize = 1024;
