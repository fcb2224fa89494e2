//! Membership: views with leases, which say which nodes are members and which may serve (Hermes,
//! Katsarakis et al., ASPLOS 2020, section 3.1; ccKVS requirements CC-62, CC-64; clock rules of
//! SwitchKV requirement SW-32).
//!
//! The store of the view (a file, etcd) decides which nodes are members; this state machine decides
//! what one node does. A node serves while it holds the lease of the store (it reads the store
//! three times in a lease, and counts from the *start* of the read) and a lease from each other
//! member (it counts from when it sent the last heartbeat that was answered). Before a node follows
//! a view that removed a member, it waits until the lease of that member has ended: one lease from
//! the last heartbeat that it received from it. So the keys of a dead node are unavailable for one
//! lease. [`pair_leases`] has the rule and why it is safe. Messages carry the number of their view,
//! so that nodes with different views cannot mix them up.
//!
//! ```text
//!   outside --Join--> member without slices --> with slices --Drain--> leaving --Depart--> outside
//!      ^                        |                    |                    |
//!      +---- Removed -----------+--------------------+--------------------+
//! ```
//!
//! A node may read the store while a proposal of its own is in progress there, so that a slow
//! proposal does not keep the node from renewing its lease. The node with the lowest number among
//! those that are in sync for a slice and receive enough heartbeats removes silent nodes. The
//! member with the lowest number writes the changes of rows that the primaries of slices propose
//! ([`CHANGES_MAX`] at a time). If two nodes act as that member, the store accepts one proposal,
//! and the other node reads the view again.

mod decide;
mod interface;
mod pair_leases;
mod proposals;
mod record;

use alloc::vec::Vec;

use curtail_types::{Instant, NodeId, NodeSet, ViewNumber};

use pair_leases::Pairs;
use proposals::Proposals;

use crate::{by_node::ByNode, slice_view::SliceRow};

pub use interface::{Heartbeat, MemberConfig, MemberInput, MemberNotice, MemberOutput};
pub use proposals::CHANGES_MAX;
pub use record::{ClusterRecord, Incarnation, RecordChange, SlicePlan};

/// The membership of one node: what it knows, what is in force, and until when it may serve.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct MemberMachine {
    config: MemberConfig,
    aim: Aim,
    incarnation: Incarnation,
    /// How often in a row this node was taken out while it heard few of the others, and until when
    /// it therefore stays away.
    parted: u32,
    /// For how long it has served and all have answered.
    steady_ns: u64,
    join_at: Instant,
    /// The newest view that was read in the store, and its revision.
    known: ClusterRecord,
    revision: u64,
    /// Whether a read has ended since the last proposal, or since the start.
    read_since_proposal: bool,
    /// The members of the known view that are in sync for a slice.
    keepers: NodeSet,
    /// The view that this node follows; it has no members if the node follows none.
    adopted: ClusterRecord,
    /// Since when no slice names this node, so that it may depart.
    empty_since: Option<Instant>,
    /// When this node begins to follow the known view.
    adopt_at: Option<Instant>,
    /// When the lease of the store ends.
    lease_end: Instant,
    /// The leases between this node and each other member.
    pairs: Pairs,
    serving: bool,
    told_until: Instant,
    fenced: bool,
    reading: bool,
    /// A proposal was written during a read, which may not have seen it.
    overtaken: bool,
    read_at: Instant,
    proposed: Option<RecordChange>,
    proposals: Proposals,
    heartbeat_at: Instant,
    silent_ns: ByNode<u64>,
    /// Time since this node received its own heartbeat, if it ever received one.
    own_silent_ns: Option<u64>,
    suspected: NodeSet,
    /// The nodes from which each node receives heartbeats, by its own heartbeats.
    heard_by: ByNode<NodeSet>,
    /// The last heartbeats of members that the known view does not have yet.
    early: Vec<(NodeId, Heartbeat)>,
    /// For how long nodes have waited until the first view with slices is written.
    unformed_ns: u64,
    stepped: Instant,
}

/// Where outputs go.
type Emit<'a> = &'a mut dyn FnMut(MemberOutput);

/// What a node tries to become.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum Aim {
    /// Not a member.
    #[default]
    Outside,
    /// A member.
    Inside,
    /// Not a member, after its slices have moved to other nodes.
    Leaving,
    /// Not a member; it has stopped serving for good.
    Departing,
}

impl MemberMachine {
    /// A node that is not a member and has read no view; [`MemberInput::Join`] makes it join.
    pub fn new(config: MemberConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// The newest view that this node knows, whether it follows that view yet or not.
    pub fn known(&self) -> &ClusterRecord {
        &self.known
    }

    /// The view that this node follows.
    pub fn adopted(&self) -> &ClusterRecord {
        &self.adopted
    }

    /// Whether the node serves at the time of the last step.
    pub fn serves(&self) -> bool {
        self.serving
    }

    /// The contents of a heartbeat to `node` that is sent now.
    pub fn heartbeat_to(&self, node: NodeId) -> Heartbeat {
        Heartbeat {
            life: self.incarnation,
            view: self.known.number,
            adopted: self.adopted.number,
            sent: self.stepped,
            to_life: self.known.incarnation(node),
            answers: self.pairs.newest_sent(node),
            hears: self.hears(),
            items: 0,
        }
    }

    /// The members from which this node received heartbeats recently. The limit is half of the time
    /// for a suspicion, so that all nodes report a dead node as silent before one suspects it.
    fn hears(&self) -> NodeSet {
        let silent = self.silent_for(self.config.suspicion_ns / 2);
        self.known.members().difference(silent)
    }

    /// The latest time of the next step.
    pub fn deadline(&self) -> Instant {
        let mut next = self.heartbeat_at;
        if !self.reading {
            next = next.min(self.read_at);
        }
        if let Some(adopt_at) = self.adopt_at {
            next = next.min(adopt_at);
        }
        if self.serving {
            next = next.min(self.serve_end());
        }
        if let Some(at) = self.proposals.forward_at() {
            next = next.min(at);
        }
        if let Some(at) = self.proposals.write_at()
            && self.may_propose(self.stepped)
        {
            next = next.min(at);
        }
        next
    }

    /// Processes `input` and emits what the node has to do. `now` never decreases.
    pub fn step(
        &mut self,
        now: Instant,
        input: MemberInput<'_>,
        mut emit: impl FnMut(MemberOutput),
    ) {
        let emit: Emit = &mut emit;
        let numbers = |machine: &Self| (machine.known.number, machine.adopted.number);
        let before = numbers(self);
        self.fence(now, emit);
        self.listen(now);
        match input {
            MemberInput::Tick => {}
            MemberInput::Read {
                started,
                revision,
                record,
            } => self.read(now, started, revision, record, emit),
            MemberInput::ReadFailed => self.read_failed(now),
            MemberInput::Won { revision } => self.won(now, revision, emit),
            MemberInput::Lost => self.lost(now, emit),
            MemberInput::Heartbeat { from, heartbeat } => self.heard(now, from, &heartbeat, emit),
            MemberInput::Join(incarnation) => self.join(incarnation),
            MemberInput::Leave => self.leave(),
            MemberInput::Propose(change) => self.note_wish(now, change),
            MemberInput::Proposed { from, changes } => self.gather(now, from, changes),
        }
        self.adopt(now, emit);
        if numbers(self) != before {
            // A node that receives the number of a newer view reads that view, so a change reaches
            // all nodes in a round trip. And other nodes need not wait for a removal that this node
            // follows already.
            self.heartbeat_at = now;
        }
        self.serve(now, emit);
        self.suspect(emit);
        self.forward(now, emit);
        self.propose(now, emit);
        self.ask(now, emit);
        self.beat(now, emit);
    }

    /// Stops serving at the end of the leases.
    fn fence(&mut self, now: Instant, emit: Emit) {
        if self.serving && now >= self.serve_end() {
            self.stop(emit);
            self.fenced = true;
            emit(MemberOutput::Event(MemberNotice::Fenced));
        }
    }

    fn stop(&mut self, emit: Emit) {
        if self.serving {
            self.serving = false;
            emit(MemberOutput::StopServing);
        }
    }

    /// Adds to the silence of each node, but only the time in which this node could have received a
    /// heartbeat: it ran, and received its own heartbeats if it ever received one.
    fn listen(&mut self, now: Instant) {
        let passed = now.ns.saturating_sub(self.stepped.ns);
        let passed = passed.min(2 * self.config.heartbeat_ns);
        self.stepped = now;
        self.pairs.well_ns = match self.answers_age_ns() < self.pair_lease_ns() / 2 {
            true => self.pairs.well_ns.saturating_add(passed),
            false => 0,
        };
        // A node serves before the other members have answered, so this is no sign of an answer.
        self.steady_ns = match self.serving && self.pairs.well_ns > 0 {
            true => self.steady_ns.saturating_add(passed),
            false => 0,
        };
        if self.steady_ns > 2 * self.config.lease_ns {
            self.parted = 0;
        }
        if now >= self.lease_end {
            self.silent_ns = ByNode::default();
            self.own_silent_ns = self.own_silent_ns.and(Some(0));
            self.unformed_ns = 0;
            return;
        }
        if let Some(silent) = &mut self.own_silent_ns {
            *silent = silent.saturating_add(passed);
            if *silent > 2 * self.config.heartbeat_ns {
                return;
            }
        }
        for node in self.others() {
            self.silent_ns.change(node, |ns| ns.saturating_add(passed));
        }
        self.unformed_ns = match self.known.slices().is_none() {
            true => self.unformed_ns.saturating_add(passed),
            false => 0,
        };
    }

    fn read(
        &mut self,
        now: Instant,
        started: Instant,
        revision: u64,
        record: &ClusterRecord,
        emit: Emit,
    ) {
        self.reading = false;
        self.read_at = started.later(self.config.lease_ns / READS_PER_LEASE);
        let overtaken = core::mem::take(&mut self.overtaken);
        // A store that was made anew counts its revisions from the beginning.
        let is_older = revision < self.revision && *record != self.known;
        if record.number < self.known.number || is_older {
            match overtaken {
                true => self.read_at = now,
                false => emit(MemberOutput::Event(MemberNotice::StoreWentBack)),
            }
            return;
        }
        self.read_since_proposal = true;
        self.lease_end = self.lease_end.max(started.later(self.config.lease_ns));
        self.revision = revision;
        self.learn(now, record, emit);
    }

    fn read_failed(&mut self, now: Instant) {
        self.reading = false;
        self.overtaken = false;
        self.read_at = now.later(self.config.lease_ns / RETRIES_PER_LEASE);
    }

    /// Processes a view that was read in the store.
    fn learn(&mut self, now: Instant, record: &ClusterRecord, emit: Emit) {
        let before = core::mem::replace(&mut self.known, record.clone());
        if record.number == before.number {
            return;
        }
        self.keepers = self.known.keepers();
        let stopped_at = self.stopped_at(now, &before);
        self.meet(now, &before);
        self.begin_proposals(now);
        if record.has(self.config.me, self.incarnation) {
            self.schedule_adoption(now, before.removal, stopped_at);
        } else if before.has(self.config.me, self.incarnation) {
            self.stay_away(now, &before);
            self.taken_out(emit);
        }
    }

    /// A node that reaches the store but not the other nodes does not join again at once, because
    /// the others wait for a member that does not answer. Nor does one whose line to another may be
    /// broken: it was detached, or not well since it joined. Each time it waits for longer.
    fn stay_away(&mut self, now: Instant, before: &ClusterRecord) {
        let me = self.config.me;
        let others = before.members().without(me);
        let is_heard = |node: &NodeId| self.silent_ns.get(*node) <= self.config.suspicion_ns / 2;
        let heard = others.into_iter().filter(is_heard).count();
        let was_well = self.parted == 0 && !before.detached.contains(me);
        self.parted = (self.parted + 1).min(PARTED_MAX);
        let leases = match was_well && 2 * heard >= others.len() {
            true => 0,
            false => 2 << self.parted,
        };
        self.join_at = now.later(leases * self.config.lease_ns);
    }

    /// Begins the leases and the silence of new members.
    fn meet(&mut self, now: Instant, before: &ClusterRecord) {
        let me = self.config.me;
        for node in self.known.members() {
            if !before.has(node, self.known.incarnation(node)) {
                self.hear(node);
                self.pairs.meet(node, now);
            }
        }
        let was_member = before.has(me, self.incarnation);
        if self.known.has(me, self.incarnation) && !was_member {
            self.pairs.begin(self.known.number, now);
        }
        for (from, heartbeat) in core::mem::take(&mut self.early) {
            if self.known.has(from, heartbeat.life) {
                self.take_in(now, from, &heartbeat);
            } else if heartbeat.view > self.known.number {
                self.early.push((from, heartbeat));
            }
        }
    }

    /// Decides when this node follows the known view: at once if that view removed no member, else
    /// when the leases of all removed members have ended. `waited_for` is the view of the last
    /// removal that was known before; at `stopped_at` the leases of the members that were removed
    /// since have ended.
    fn schedule_adoption(&mut self, now: Instant, waited_for: ViewNumber, stopped_at: Instant) {
        let removal = self.known.removal;
        let earlier = match waited_for <= self.adopted.number {
            true => Some(now),
            false => self.adopt_at,
        };
        self.adopt_at = Some(match earlier {
            _ if removal <= self.adopted.number => now,
            Some(at) if removal == waited_for => at,
            Some(at) => at.max(stopped_at),
            None => self.whole_lease_after(now),
        });
    }

    /// This life of the node is no longer a member.
    fn taken_out(&mut self, emit: Emit) {
        self.stop(emit);
        self.pairs = Pairs::default();
        self.adopt_at = None;
        self.proposals = Proposals::default();
        let number = self.adopted.number;
        self.adopted = ClusterRecord::NOBODY;
        self.adopted.number = number;
        let replaced = self.known.members().contains(self.config.me);
        let event = match self.aim {
            _ if replaced => MemberNotice::Replaced,
            Aim::Departing => MemberNotice::Departed,
            _ => MemberNotice::Removed,
        };
        self.aim = Aim::Outside;
        emit(MemberOutput::Event(event));
    }

    fn won(&mut self, now: Instant, revision: u64, emit: Emit) {
        let Some(change) = self.proposed.take() else {
            return;
        };
        emit(MemberOutput::Event(MemberNotice::Proposed(change.clone())));
        if revision <= self.revision {
            // A read has already shown this change, or a later view.
            return;
        }
        self.overtaken = self.reading;
        if let Some(next) = self.known.after(&change, self.config.me, self.config.plan) {
            self.revision = revision;
            self.read_since_proposal = true;
            self.learn(now, &next, emit);
        }
    }

    fn lost(&mut self, now: Instant, emit: Emit) {
        if let Some(change) = self.proposed.take() {
            emit(MemberOutput::Event(MemberNotice::Beaten(change)));
            self.read_at = now;
        }
    }

    fn heard(&mut self, now: Instant, from: NodeId, heartbeat: &Heartbeat, emit: Emit) {
        if from == self.config.me {
            self.own_silent_ns = Some(0);
            return;
        }
        if heartbeat.view > self.known.number {
            self.read_at = now;
        }
        if self.known.has(from, heartbeat.life) {
            if self.suspected.contains(from) {
                emit(MemberOutput::Event(MemberNotice::Heard(from)));
            }
            self.take_in(now, from, heartbeat);
        } else if heartbeat.view > self.known.number {
            // The sender knows a newer view: its heartbeat is processed when this node has read it.
            self.early.retain(|(node, _)| *node != from);
            self.early.push((from, *heartbeat));
        }
    }

    fn take_in(&mut self, now: Instant, from: NodeId, heartbeat: &Heartbeat) {
        self.hear(from);
        self.heard_by.set(from, heartbeat.hears);
        self.pairs.receive(now, from, heartbeat, self.incarnation);
    }

    fn hear(&mut self, node: NodeId) {
        self.silent_ns.set(node, 0);
    }

    fn join(&mut self, incarnation: Incarnation) {
        if self.aim == Aim::Outside {
            self.aim = Aim::Inside;
            self.incarnation = incarnation;
            // The other nodes may remove a silent node that joins sooner than it may remove them.
            // So if links are broken, the nodes that serve continue.
            self.silent_ns = ByNode::default();
        }
    }

    fn leave(&mut self) {
        self.aim = match self.aim {
            Aim::Inside => Aim::Leaving,
            aim => aim,
        };
    }

    fn adopt(&mut self, now: Instant, emit: Emit) {
        // Another node follows this removal already, so the leases of removed members have ended.
        let is_over = self.known.removal <= self.pairs.adopted;
        if self.adopt_at.is_some_and(|at| now >= at || is_over) {
            self.adopt_at = None;
            let before = core::mem::replace(&mut self.adopted, self.known.clone());
            emit(MemberOutput::Adopt);
            self.tell_of_heirs(&before, emit);
        }
    }

    /// Emits which slices of removed nodes this node took over, and which are lost, since the view
    /// that it followed before, or since it joined.
    fn tell_of_heirs(&self, before: &ClusterRecord, emit: Emit) {
        let Some(now) = self.adopted.slices() else {
            return;
        };
        let joined = now.joined(self.config.me).unwrap_or(self.adopted.number);
        let is_here = |row: &SliceRow| row.primary == self.config.me;
        let is_lost = |row: &SliceRow| match before.slices() {
            _ if row.born == self.adopted.formed => false,
            Some(before) => row.born > before.number,
            None => row.born >= joined,
        };
        let count = |which: &dyn Fn(&SliceRow) -> bool| {
            let rows = now.rows().filter(|(_, row)| which(row));
            u16::try_from(rows.count()).unwrap_or(u16::MAX)
        };
        if let Some(before) = before.slices() {
            let lasting = now.lasting(before);
            let rows = before.rows().zip(now.rows());
            let inherited = rows.filter(|((_, old), (_, new))| {
                is_here(new) && !is_lost(new) && !lasting.contains(old.primary)
            });
            let slices = u16::try_from(inherited.count()).unwrap_or(u16::MAX);
            if slices > 0 {
                emit(MemberOutput::Event(MemberNotice::Inherited { slices }));
            }
        }
        let slices = count(&is_lost);
        if slices > 0 {
            let here = count(&|row| is_lost(row) && is_here(row));
            emit(MemberOutput::Event(MemberNotice::Lost { slices, here }));
        }
    }

    /// Serves while this node is live in the newest view and in the view that it follows, and has
    /// its leases.
    fn serve(&mut self, now: Instant, emit: Emit) {
        let me = self.config.me;
        let live = self.adopted.serving().contains(me)
            && self.known.serving().contains(me)
            && self.known.has(me, self.incarnation)
            && self.aim != Aim::Departing;
        if !live {
            self.stop(emit);
            return;
        }
        self.fence(now, emit);
        let until = self.serve_end();
        if now >= until {
            return;
        }
        if self.fenced {
            self.fenced = false;
            emit(MemberOutput::Event(MemberNotice::Resumed));
        }
        if !self.serving || self.told_until != until {
            self.serving = true;
            self.told_until = until;
            emit(MemberOutput::Serve { until });
        }
    }

    fn suspect(&mut self, emit: Emit) {
        let silent = self.silent_for(self.config.suspicion_ns);
        for node in silent.difference(self.suspected) {
            emit(MemberOutput::Event(MemberNotice::Suspected(node)));
        }
        self.suspected = silent;
    }

    fn propose(&mut self, now: Instant, emit: Emit) {
        if !self.may_propose(now) {
            return;
        }
        if self.aim == Aim::Leaving && !self.known.has(self.config.me, self.incarnation) {
            self.aim = Aim::Outside;
            emit(MemberOutput::Event(MemberNotice::Departed));
        }
        let may_depart = self.known.may_depart(self.config.me);
        let since = self.empty_since.unwrap_or(now);
        self.empty_since = may_depart.then_some(since);
        let Some(change) = self.wanted() else {
            return;
        };
        if change == RecordChange::Depart {
            self.aim = Aim::Departing;
            self.stop(emit);
        }
        self.proposed = Some(change.clone());
        self.read_since_proposal = false;
        let expected = self.revision;
        emit(MemberOutput::Propose { expected, change });
    }

    /// Proposes one change at a time, of the view that was read.
    fn may_propose(&self, now: Instant) -> bool {
        let idle = self.proposed.is_none() && !self.reading;
        idle && self.read_since_proposal && now < self.lease_end
    }

    fn ask(&mut self, now: Instant, emit: Emit) {
        if !self.reading && now >= self.read_at {
            self.reading = true;
            emit(MemberOutput::Read);
        }
    }

    /// A node whose lease has ended sends no heartbeats, so that the others remove it.
    fn beat(&mut self, now: Instant, emit: Emit) {
        if now < self.heartbeat_at {
            return;
        }
        self.heartbeat_at = now.later(self.config.heartbeat_ns);
        let to = self.others();
        if now < self.lease_end && !to.is_empty() {
            emit(MemberOutput::Heartbeat { to });
        }
    }

    /// The other members, if this node is a member.
    fn others(&self) -> NodeSet {
        if self.known.has(self.config.me, self.incarnation) {
            self.known.members().without(self.config.me)
        } else {
            NodeSet::NONE
        }
    }

    /// The other members that have been silent for longer than `ns`.
    fn silent_for(&self, ns: u64) -> NodeSet {
        let others = self.others().into_iter();
        others
            .filter(|node| self.silent_ns.get(*node) > ns)
            .collect()
    }
}

/// A node that other nodes do not hear waits for 4 leases before it joins again, then 8, 16 and 32:
/// each time that it joins, requests for hot keys wait for it until it is removed.
const PARTED_MAX: u32 = 4;
/// A node reads the store three times in a lease, so that two reads may fail.
const READS_PER_LEASE: u64 = 3;
/// After a failed read the node reads again after this share of the lease.
const RETRIES_PER_LEASE: u64 = 12;

#[cfg(test)]
mod tests;
