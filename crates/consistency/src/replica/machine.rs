//! The machine of a node: its slices, the requests that other nodes carry out, and the timers.

use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};

use curtail_types::{Access, Cas, Instant, NodeId, NodeSet, RouteHash, ViewNumber};

use super::{
    Model, ReplicaConfig, ReplicaEvent, ReplicaHost, ReplicaMutant, ReplicaRefusal, ReplicaRequest,
    Ticket,
    follower::Follower,
    forwarding::Forwarding,
    hot::{HotKeys, HotWay},
    message::{Append, ReplicaMessage},
    primary::{Phase, Primary, Stay},
    room_credits::RoomCredits,
};
use crate::slice_view::{RowStep, SliceId, SliceRow, SliceView};

/// The machine of a node, for the slices of one of its stages.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Replica {
    pub(super) config: ReplicaConfig,
    pub(super) mutant: Option<ReplicaMutant>,
    pub(super) view: Option<Arc<SliceView>>,
    pub(super) slices: BTreeMap<SliceId, Role>,
    pub(super) credits: RoomCredits,
    pub(super) forwarding: Forwarding,
    pub(super) hot: HotKeys,
    /// Slices that go to other nodes when no key of theirs is hot any more.
    pub(super) leaving: Vec<(SliceId, NodeId)>,
    pub(super) due: Option<Instant>,
}

/// What a node is for a slice.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Role {
    Primary(Box<Primary>),
    Follower(Follower),
}

/// A request that waits, and since when.
pub(super) type Waiting = (ReplicaRequest, Instant);

/// What a step works with.
pub(super) struct Context<'a> {
    pub(super) config: ReplicaConfig,
    pub(super) now: Instant,
    mutant: Option<ReplicaMutant>,
    pub(super) host: &'a mut dyn ReplicaHost,
    pub(super) credits: &'a mut RoomCredits,
}

impl Context<'_> {
    /// Whether copies are linearizable.
    pub(super) fn is_lin(&self) -> bool {
        self.config.model == Model::Lin
    }

    /// Whether this error is planted.
    pub(super) fn has(&self, mutant: ReplicaMutant) -> bool {
        cfg!(any(test, feature = "mutants")) && self.mutant == Some(mutant)
    }

    /// A version of this node that no other write has, nor will have.
    pub(super) fn stamp(&mut self) -> Cas {
        let stamp = self.host.next_version();
        self.host.saw(stamp);
        stamp
    }
}

impl Replica {
    /// A machine that has not seen a view.
    pub fn new(config: ReplicaConfig) -> Self {
        Self {
            config,
            mutant: None,
            view: None,
            slices: BTreeMap::new(),
            credits: RoomCredits::default(),
            forwarding: Forwarding::default(),
            hot: HotKeys::default(),
            leaving: Vec::new(),
            due: None,
        }
    }

    /// The same with an error planted, if one is given and this build can plant it.
    #[must_use]
    pub fn with_mutant(mut self, mutant: impl Into<Option<ReplicaMutant>>) -> Self {
        self.mutant = mutant.into();
        self
    }

    /// When [`ReplicaEvent::Tick`] is due.
    pub const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// The view that it acts on.
    pub fn view(&self) -> Option<&SliceView> {
        self.view.as_deref()
    }

    /// Whether requests for the slice are answered here now.
    pub fn serves(&self, slice: SliceId) -> bool {
        match self.slices.get(&slice) {
            Some(Role::Primary(primary)) => primary.phase == Phase::Serving,
            _ => false,
        }
    }

    /// Whether a holder of the slice catches up, so that a scan of it is of use.
    pub fn catches_up(&self, slice: SliceId) -> bool {
        match self.slices.get(&slice) {
            Some(Role::Primary(primary)) => primary.catch_up.is_some(),
            _ => false,
        }
    }

    /// Whether [`renumber`](Self::renumber) would change anything.
    pub fn is_numbered(&self) -> bool {
        self.credits.is_numbered()
    }

    /// Counts requests for room from 0 again. A checker, for which states that differ only in such
    /// numbers are one, does so at all nodes while no such request is on its way.
    pub fn renumber(&mut self) {
        self.credits.renumber();
    }

    /// Takes in what happened.
    pub fn step(&mut self, event: ReplicaEvent<'_>, host: &mut impl ReplicaHost) {
        let mut credits = core::mem::take(&mut self.credits);
        let cx = &mut Context {
            config: self.config,
            now: host.now(),
            mutant: self.mutant,
            host,
            credits: &mut credits,
        };
        match event {
            ReplicaEvent::Tick => self.tick(cx),
            ReplicaEvent::View(view) => self.enter_view(cx, view),
            ReplicaEvent::Wanted(slice, step) => self.take_wish(cx, slice, step),
            ReplicaEvent::Request(request) => self.request(cx, (request, cx.now)),
            ReplicaEvent::Answered(from, ticket, answer) => {
                self.take_answer(cx, from, (ticket, answer));
            }
            ReplicaEvent::Message(from, message) => self.receive(cx, from, message),
            ReplicaEvent::Scanned(slice, keys, is_done) => {
                if let Some(primary) = primary_of(&mut self.slices, slice) {
                    primary.take_scanned(keys, is_done);
                    primary.go_on(cx);
                }
            }
            ReplicaEvent::Closed(slice) => self.note_closed(cx, slice),
            ReplicaEvent::Heat(key, is_hot) => self.heat(cx, key, is_hot),
            ReplicaEvent::Flush(slice, ticket) => self.flush(cx, slice, ticket),
        }
        self.go_on_hot(cx);
        if !matches!(event, ReplicaEvent::Tick) {
            let soon = cx.now.later(self.config.retransmit_ns);
            self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        }
        self.credits = credits;
    }

    // ---- requests ----

    pub(super) fn request(&mut self, cx: &mut Context, waiting: Waiting) {
        let request = waiting.0;
        let Some(view) = &self.view else {
            return cx.host.refuse(request.ticket, ReplicaRefusal::Elsewhere);
        };
        let slice = view.slice_of(request.key);
        let Some(primary) = primary_of(&mut self.slices, slice) else {
            let to = view.row(slice).map(|row| row.primary);
            let to = to.filter(|to| *to != cx.config.me);
            if let Some(to) = to
                && self.hot.request(cx, waiting, (slice, to)) == HotWay::Taken
            {
                return;
            }
            if request.is_forwarded {
                return cx.host.refuse(request.ticket, ReplicaRefusal::Elsewhere);
            }
            return self.forwarding.send(cx, waiting, to);
        };
        if !primary.queue.is_empty() && request.access != Access::Read {
            return enqueue(primary, cx, waiting);
        }
        let stays = matches!(self.run(cx, slice, waiting), Stay::Waits | Stay::NeedsRoom);
        if let Some(primary) = primary_of(&mut self.slices, slice).filter(|_| stays) {
            enqueue(primary, cx, waiting);
        }
    }

    /// Runs a request at its primary, or says why it has to stay.
    fn run(&mut self, cx: &mut Context, slice: SliceId, waiting: Waiting) -> Stay {
        let request = waiting.0;
        let way = self.hot.request(cx, waiting, (slice, cx.config.me));
        let Some(primary) = primary_of(&mut self.slices, slice) else {
            return Stay::Waits;
        };
        let hot = match way {
            HotWay::Taken => return Stay::Ran,
            HotWay::Round(last) => Some(last),
            HotWay::Ordinary => None,
        };
        let stay = primary.run(cx, (&request, hot));
        match stay {
            Stay::Wrote(seq, version) => {
                let ticket = cx.is_lin().then_some(request.ticket);
                self.hot
                    .begin_round(cx, request.key, (seq, version, ticket));
                if !cx.is_lin() {
                    primary.answer(cx, &request, Some(seq));
                }
                primary.commit(cx);
            }
            Stay::Refused(refusal) => cx.host.refuse(request.ticket, refusal),
            Stay::NeedsRoom => {
                self.ask_evictions(cx, u64::from(request.size));
                self.evict(cx, u64::from(request.size), None);
            }
            Stay::Ran | Stay::Waits => {}
        }
        stay
    }

    /// Runs requests of a slice that had to wait.
    fn run_queue(&mut self, cx: &mut Context, slice: SliceId) {
        while let Some(primary) = primary_of(&mut self.slices, slice)
            && let Some(waiting) = primary.queue.pop_front()
        {
            let stay = self.run(cx, slice, waiting);
            if matches!(stay, Stay::Waits | Stay::NeedsRoom) {
                if let Some(primary) = primary_of(&mut self.slices, slice) {
                    primary.queue.push_front(waiting);
                }
                return;
            }
        }
    }

    fn take_answer(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        of: (Ticket, Result<Cas, ReplicaRefusal>),
    ) {
        let Some(answered) = self.forwarding.take_answer(cx, from, of) else {
            return;
        };
        cx.host.saw(answered.1);
        if cx.is_lin() || cx.has(ReplicaMutant::SessionGoesBack) {
            cx.host.respond(of.0, 0);
        } else {
            self.hot.take_answer(cx, answered);
        }
    }

    fn flush(&mut self, cx: &mut Context, slice: SliceId, ticket: Ticket) {
        // As with other writes: no copy may show what goes, of this view or an earlier one.
        if self.cool_slice(cx, slice) || self.is_unsettled(slice) {
            return cx.host.refuse(ticket, ReplicaRefusal::Busy);
        }
        let primary = primary_of(&mut self.slices, slice);
        if !primary.is_some_and(|primary| primary.flush(cx, ticket)) {
            cx.host.refuse(ticket, ReplicaRefusal::Elsewhere);
        }
    }

    /// Evicts so many bytes of slices that this node decides about; of those that `with` holds as
    /// well, if it is given. Slices whose reads it does not know yet are spared if it has others.
    fn evict(&mut self, cx: &mut Context, bytes: u64, with: Option<NodeId>) {
        let slices = &self.slices;
        let decides = |role: &Role| match role {
            Role::Primary(primary) => {
                let is_shared = with.is_none_or(|with| primary.row.holders.contains(with));
                let decides = matches!(primary.phase, Phase::Serving | Phase::Repairing(_));
                (is_shared && decides).then_some(primary.learns_until.is_none())
            }
            Role::Follower(_) => None,
        };
        let knows_some = slices.values().any(|role| decides(role) == Some(true));
        let mut may_evict = |slice: SliceId| {
            let knows = slices.get(&slice).and_then(decides);
            knows.is_some_and(|knows| knows || !knows_some)
        };
        let mut keys: Vec<(SliceId, RouteHash)> = Vec::new();
        cx.host.evict(bytes, &mut may_evict, &mut |slice, key| {
            keys.push((slice, key))
        });
        for (slice, key) in keys {
            if let Some(primary) = primary_of(&mut self.slices, slice) {
                primary.note_evicted(cx, key);
            }
        }
    }

    /// A store is short of room that evictions here alone do not make: the primaries of the slices
    /// that this node follows evict as well, and nobody keeps room that it does not use.
    fn ask_evictions(&self, cx: &mut Context, bytes: u64) {
        let Some(view) = &self.view else {
            return;
        };
        let me = self.config.me;
        let shared = view.rows().filter(|(_, row)| row.followers().contains(me));
        let primaries: NodeSet = shared.map(|(_, row)| row.primary).collect();
        let asked = primaries.union(cx.credits.creditors());
        let asked = asked.intersection(view.members).without(me);
        if !asked.is_empty() && cx.host.evicts() {
            cx.host.send(asked, &ReplicaMessage::Evict(bytes));
        }
    }

    fn note_closed(&mut self, cx: &mut Context, slice: SliceId) {
        if let Some(primary) = primary_of(&mut self.slices, slice) {
            primary.is_closing = false;
            primary.go_on(cx);
            primary.commit(cx);
        }
        self.restart_installs(cx, slice);
        self.run_queue(cx, slice);
    }

    fn take_wish(&mut self, cx: &mut Context, slice: SliceId, step: RowStep) {
        let Some(primary) = primary_of(&mut self.slices, slice) else {
            return;
        };
        let serves = primary.phase == Phase::Serving;
        match step {
            RowStep::HandOver(to) if serves && !self.leaving.contains(&(slice, to)) => {
                self.leaving.push((slice, to));
            }
            RowStep::Hold(_) | RowStep::Exit(_) if serves => primary.wish(cx, step),
            _ => {}
        }
    }

    // ---- messages ----

    fn receive(&mut self, cx: &mut Context, from: NodeId, message: &ReplicaMessage) {
        match message {
            ReplicaMessage::Append(append) => self.take_append(cx, from, append),
            &ReplicaMessage::Applied { slice, term, seq } => {
                self.take_applied(cx, from, (slice, term, seq));
            }
            &ReplicaMessage::TailWanted { slice, term } => {
                if let Some(Role::Follower(follower)) = self.slices.get(&slice)
                    && follower.term == term
                {
                    follower.send_tail(cx, slice, from);
                }
            }
            ReplicaMessage::Tail { slice, term, .. } => {
                self.take_tail(cx, from, (*slice, *term, message));
            }
            &ReplicaMessage::RoomWanted {
                number,
                held,
                wanted,
            } => {
                if !self.is_member(from) {
                    return;
                }
                let granted = cx.promise_room(from, (number, held, wanted));
                if granted == Some(0) && wanted > 0 {
                    self.ask_evictions(cx, wanted);
                    self.evict(cx, wanted, None);
                }
            }
            &ReplicaMessage::Room {
                number,
                bytes,
                grows,
            } => {
                let short = cx.credits.take_answer(from, number, bytes, grows);
                if short > 0 {
                    self.evict(cx, short, Some(from));
                } else {
                    self.go_on(cx);
                }
            }
            ReplicaMessage::Copy(message) => self.receive_copy(cx, from, message),
            &ReplicaMessage::Entered(view) => {
                if self.hot.note_entered(cx, from, view) {
                    self.note_unguarded(cx);
                }
            }
            ReplicaMessage::EnteredWanted(_) => {
                let entered = ReplicaMessage::Entered(self.hot.view);
                cx.host.send(NodeSet::only(from), &entered);
            }
            &ReplicaMessage::Evict(bytes) => {
                cx.give_room_back(from);
                self.evict(cx, bytes, Some(from));
            }
        }
    }

    fn take_append(&mut self, cx: &mut Context, from: NodeId, append: &Append) {
        if cx.credits.is_void(from, append.asked) {
            return;
        }
        if let Some(Role::Follower(follower)) = self.slices.get_mut(&append.slice) {
            follower.append(cx, from, append);
        }
    }

    fn take_tail(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        (slice, term, message): (SliceId, ViewNumber, &ReplicaMessage),
    ) {
        let primary = primary_of(&mut self.slices, slice);
        if let Some(primary) = primary.filter(|primary| primary.row.term == term) {
            primary.take_tail(cx, from, message);
            primary.begin(cx);
            primary.commit(cx);
            self.run_queue(cx, slice);
        }
    }

    fn is_member(&self, node: NodeId) -> bool {
        let view = self.view.as_ref();
        view.is_some_and(|view| view.members.contains(node))
    }

    fn take_applied(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        (slice, term, seq): (SliceId, ViewNumber, u64),
    ) {
        let Some(primary) = primary_of(&mut self.slices, slice) else {
            return;
        };
        if primary.row.term != term && !cx.has(ReplicaMutant::AnyTerm) {
            return;
        }
        primary.streams.acknowledge(cx, (from, seq), primary.seen);
        primary.go_on(cx);
        primary.commit(cx);
        self.run_queue(cx, slice);
    }

    /// There is more room: what waited for it goes on.
    fn go_on(&mut self, cx: &mut Context) {
        let mut slices = Vec::new();
        for (&slice, role) in &mut self.slices {
            if let Role::Primary(primary) = role {
                primary.repair(cx);
                primary.go_on(cx);
                primary.commit(cx);
                if !primary.queue.is_empty() {
                    slices.push(slice);
                }
            }
        }
        for slice in slices {
            self.run_queue(cx, slice);
        }
        self.begin_catch_ups(cx);
    }

    fn begin_catch_ups(&mut self, cx: &mut Context) {
        let mut running = 0;
        for role in self.slices.values_mut() {
            if let Role::Primary(primary) = role
                && running < cx.config.catch_ups_max
            {
                let runs = primary.begin_catch_up(cx);
                running += usize::from(runs);
            }
        }
    }

    // ---- views ----

    fn enter_view(&mut self, cx: &mut Context, next: &SliceView) {
        if self.view().map(|now| now.number) >= Some(next.number) {
            return;
        }
        let next = Arc::new(next.clone());
        let last = self.view.replace(Arc::clone(&next));
        if last.is_none() {
            cx.credits.begin(next.number);
        }
        // In its first view it does not know who had copies of what is lost.
        let (lasting, joined) = match &last {
            Some(last) => {
                let lasting = next.lasting(last);
                (lasting, next.members.difference(lasting))
            }
            None => {
                let before = next.members_before(next.number);
                (before, before)
            }
        };
        let joined = joined.without(self.config.me);
        cx.enter_view(lasting, joined);
        self.enter_view_hot(cx, (last.as_deref(), &next, lasting));
        let (stage, stages) = cx.config.stage;
        for (slice, row) in next.rows().filter(|(slice, _)| slice.0 % stages == stage) {
            self.enter_row(cx, slice, (next.number, *row, lasting));
        }
        for waiting in self.forwarding.enter_view(cx, lasting) {
            self.request(cx, waiting);
        }
        self.go_on(cx);
    }

    fn enter_row(
        &mut self,
        cx: &mut Context,
        slice: SliceId,
        (view, row, lasting): (ViewNumber, SliceRow, NodeSet),
    ) {
        let me = cx.config.me;
        let guards = self.hot.guards(slice);
        let role = self.slices.remove(&slice);
        if let Some(Role::Primary(mut primary)) = role {
            if primary.row.term == row.term && row.primary == me {
                primary.enter_row(cx, (view, row, lasting), guards);
                self.slices.insert(slice, Role::Primary(primary));
                return;
            }
            let mut follower = Follower::default();
            follower.left.extend(primary.resign(cx));
            (follower.seen, follower.flushed) = (primary.seen, primary.flushed);
            let queue = core::mem::take(&mut primary.queue);
            self.take_role(cx, slice, (view, row), follower);
            for waiting in queue {
                self.request(cx, waiting);
            }
            return;
        }
        let follower = match role {
            Some(Role::Follower(follower)) => follower,
            _ if row.holders.contains(me) => Follower::default(),
            _ => return,
        };
        self.take_role(cx, slice, (view, row), follower);
    }

    /// What was a follower, or has had nothing of the slice, becomes what the row says.
    fn take_role(
        &mut self,
        cx: &mut Context,
        slice: SliceId,
        (view, row): (ViewNumber, SliceRow),
        mut follower: Follower,
    ) {
        let me = cx.config.me;
        if row.primary == me {
            let begins = row.born == row.term;
            if begins {
                cx.host.clear(slice, None);
            }
            let keys = match begins {
                true => Default::default(),
                false => follower.tail().collect(),
            };
            let missing = row.in_sync.without(me);
            let guards = self.hot.guards(slice);
            let mut primary = Primary::new(slice, (view, row), missing, keys, guards);
            (primary.seen, primary.flushed) = (follower.seen, follower.flushed);
            for node in missing {
                let term = row.term;
                let wanted = ReplicaMessage::TailWanted { slice, term };
                cx.host.send(NodeSet::only(node), &wanted);
            }
            primary.begin(cx);
            primary.commit(cx);
            self.slices.insert(slice, Role::Primary(Box::new(primary)));
        } else if row.holders.contains(me) {
            if follower.term != row.term {
                follower.enter_term(row.term);
                if row.born == row.term {
                    cx.host.clear(slice, None);
                }
                if row.in_sync.contains(me) {
                    follower.send_tail(cx, slice, row.primary);
                }
            }
            self.slices.insert(slice, Role::Follower(follower));
        } else {
            cx.host.clear(slice, None);
        }
    }

    // ---- time ----

    fn tick(&mut self, cx: &mut Context) {
        cx.ask_room_again();
        self.hot.tick(cx);
        let mut queues = Vec::new();
        for (&slice, role) in &mut self.slices {
            let Role::Primary(primary) = role else {
                continue;
            };
            primary.send_again(cx);
            primary.end_learning(cx);
            if let Phase::Collecting(missing, _) = &primary.phase {
                let term = primary.row.term;
                cx.host
                    .send(*missing, &ReplicaMessage::TailWanted { slice, term });
            }
            if !primary.queue.is_empty() {
                queues.push(slice);
            }
        }
        self.go_on(cx);
        for slice in queues {
            self.end_patience(cx, slice);
        }
        for waiting in self.forwarding.tick(cx) {
            self.request(cx, waiting);
        }
        let waits = cx.credits.waits() || self.waits();
        self.due = waits.then_some(cx.now.later(self.config.retransmit_ns));
    }

    /// Whether something is left to do when time has passed.
    fn waits(&self) -> bool {
        let waits = |role: &Role| matches!(role, Role::Primary(primary) if primary.waits());
        self.forwarding.waits() || self.hot.waits() || self.slices.values().any(waits)
    }

    /// Refuses what has waited for too long. A follower that is slow to promise room is not full:
    /// who is told of a lack of room loses the older value, too.
    fn end_patience(&mut self, cx: &mut Context, slice: SliceId) {
        let Some(primary) = primary_of(&mut self.slices, slice) else {
            return;
        };
        let (now, patience_ns) = (cx.now.ns, cx.config.patience_ns);
        let is_over = |(_, since): &mut Waiting| now - since.ns >= patience_ns;
        while let Some((request, _)) = primary.queue.pop_front_if(is_over) {
            cx.host.refuse(request.ticket, ReplicaRefusal::Late);
        }
    }
}

fn enqueue(primary: &mut Primary, cx: &mut Context, waiting: Waiting) {
    if primary.queue.len() < cx.config.waiting_max {
        primary.queue.push_back(waiting);
    } else {
        cx.host.refuse(waiting.0.ticket, ReplicaRefusal::Busy);
    }
}

pub(super) fn primary_of(
    slices: &mut BTreeMap<SliceId, Role>,
    slice: SliceId,
) -> Option<&mut Primary> {
    match slices.get_mut(&slice) {
        Some(Role::Primary(primary)) => Some(primary),
        _ => None,
    }
}
