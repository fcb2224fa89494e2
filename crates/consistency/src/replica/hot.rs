//! Copies of hot keys at every member, as caches of their slices (CL-9..12, after ccKVS).
//!
//! ```text
//!   Lin, a writer W:    W --Invalidate--> all;  the primary stores it, and acknowledges when every
//!                       node in sync has it;  all --Ack--> W --Validate--> all
//!   SC:                 the primary writes, then --Update--> all
//! ```
//!
//! One rule makes failures simple: nothing that only copies have is ever shown. A copy is valid in
//! one view; a new view drops all, and the primary has every value that any of them showed. It
//! serves a slice of which members may still have copies when all of them have entered the view.
//! Writes that are under way then go on, if the slice keeps its primary: it knows which of them it
//! has taken.

mod views;

use alloc::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};

use curtail_types::{Access, Cas, Instant, NodeId, NodeSet, RouteHash, ViewNumber};

use super::{
    CopyState, ReplicaMutant, ReplicaRefusal, ReplicaRequest, Ticket,
    machine::{Context, Waiting},
    message::{CopyKind, CopyMessage, ReplicaMessage},
};
use crate::slice_view::SliceId;

/// What a machine knows of hot keys.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct HotKeys {
    pub(super) view: ViewNumber,
    members: NodeSet,
    /// Keys of which this node has a copy, or is the primary while others have.
    pub(super) copies: BTreeMap<RouteHash, HotCopy>,
    /// Of keys of this primary: what becomes of their copies.
    pub(super) owned: BTreeMap<RouteHash, OwnedKey>,
    /// Writes that this node makes as another than the primary.
    rounds: BTreeMap<Write, WriterRound>,
    /// Slices of this primary of which members may still show keys as of an earlier view.
    guarded: BTreeSet<SliceId>,
    /// Of keys of this primary that are hot, or were in an earlier view: the last write that it
    /// took of each other node.
    pub(super) settled: BTreeMap<(RouteHash, NodeId), Cas>,
    /// The view in which the last of their guards began.
    guarded_since: ViewNumber,
    /// Members that have not entered that view or a later one.
    missing: NodeSet,
    /// Requests that wait for a key, and since when.
    pub(super) waiting: VecDeque<Waiting>,
    /// No copy is made of an installation that is not later than this.
    floor: Cas,
    /// Answers of the primary that wait until the copy here shows as much (SC): their requests, and
    /// the versions that they show.
    answers: Vec<(Waiting, Cas)>,
}

/// A copy.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct HotCopy {
    /// The installation that made it.
    installed: Cas,
    version: Cas,
    state: CopyState,
    /// The last version that is known to be complete: others may wait to hear of it, though a
    /// later write is on its way here by now.
    complete: Cas,
}

/// A hot key at its primary.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct OwnedKey {
    stage: OwnedStage,
    /// The round that is under way.
    pub(super) round: Option<PrimaryRound>,
    /// Copies may wait for a write that was not taken.
    is_stale: bool,
    /// The version of the last round.
    last: Cas,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum OwnedStage {
    /// Copies come into being.
    Installing,
    /// All members have one.
    Hot,
    /// They still have one. Further writes wait until the last one is complete: else others would
    /// begin for ever.
    Cooling,
    /// These still have one of before this stamp.
    Dropping(NodeSet, Cas),
}

/// A write of the primary, on its way to the copies.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct PrimaryRound {
    version: Cas,
    /// Its change.
    pub(super) seq: u64,
    /// Members that have not acknowledged it.
    missing: NodeSet,
    /// The request, to be answered in the end.
    pub(super) ticket: Option<Ticket>,
    /// It was sent to the copies.
    pub(super) is_sent: bool,
    /// How many rounds before it were replaced, one by the next, and sent to no copy (SC).
    replaced: u8,
}

/// So many more writes of a key may begin before the copies are told of one (SC): the copies are
/// told when nothing of the key is unfinished, and without this limit that might never be so.
const REPLACED_MAX: u8 = 7;

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct WriterRound {
    request: ReplicaRequest,
    since: Instant,
    /// The view in which it was begun, and the primary that takes it or does not.
    view: ViewNumber,
    primary: NodeId,
    /// Who has not acknowledged it.
    missing: NodeSet,
    /// How many nodes in sync have it, as the primary has said.
    copies: u8,
}

/// A write of a key: its version.
pub(super) type Write = (RouteHash, Cas);

/// What is to become of a request for a hot key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HotWay {
    /// The same as of one that is not hot.
    Ordinary,
    /// To the primary, which is this node: a write begins a round. The last has this version.
    Round(Cas),
    /// It was taken care of.
    Taken,
}

impl HotKeys {
    /// The copy of a key here; one that is absent if there is none.
    fn copy(&self, key: RouteHash) -> HotCopy {
        self.copies.get(&key).copied().unwrap_or_default()
    }

    fn others(&self, cx: &Context) -> NodeSet {
        self.members.without(cx.config.me)
    }

    pub(super) fn message(&self, key: RouteHash, version: Cas, kind: CopyKind) -> ReplicaMessage {
        ReplicaMessage::Copy(CopyMessage::new(self.view, (key, version), kind))
    }

    pub(super) fn tell(&self, cx: &mut Context, to: NodeId, (key, version): Write, kind: CopyKind) {
        cx.host
            .send(NodeSet::only(to), &self.message(key, version, kind));
    }

    /// Whether something is left to do when time has passed.
    pub(super) fn waits(&self) -> bool {
        let is_invalid = |copy: &HotCopy| copy.state == CopyState::Invalid;
        let in_round = |one: &OwnedKey| one.round.is_some() || one.stage != OwnedStage::Hot;
        !self.guarded.is_empty()
            || !self.rounds.is_empty()
            || !self.waiting.is_empty()
            || !self.answers.is_empty()
            || self.owned.values().any(in_round)
            || self.copies.values().any(is_invalid)
    }

    // ---- requests ----

    /// What becomes of a request of a slice that has this primary.
    pub(super) fn request(
        &mut self,
        cx: &mut Context,
        waiting: Waiting,
        (slice, primary): (SliceId, NodeId),
    ) -> HotWay {
        let (request, since) = (&waiting.0, waiting.1);
        let key = request.key;
        if primary == cx.config.me {
            let waits = self.guards(slice) || self.holds_back(cx, key, request.access);
            return match (waits, self.owned.get(&key)) {
                (true, _) => self.wait(cx, waiting),
                (false, Some(owned)) => HotWay::Round(owned.last),
                (false, None) => HotWay::Ordinary,
            };
        }
        // One write of an earlier view may be under way: the primary remembers only the last.
        let has_round = self.has_round(key);
        let Some(copy) = self.copies.get_mut(&key) else {
            return HotWay::Ordinary;
        };
        match (request.access, copy.state) {
            _ if request.is_forwarded => HotWay::Ordinary,
            (Access::Read, CopyState::Valid) => {
                cx.host.read_copy(request);
                cx.host.respond(request.ticket, 0);
                HotWay::Taken
            }
            (Access::Read, _) => self.wait(cx, waiting),
            (Access::Replace, CopyState::Valid) if cx.is_lin() && !has_round => {
                let version = cx.host.next_version();
                if !cx.host.write_copy(request, version) {
                    return HotWay::Ordinary;
                }
                (copy.version, copy.state) = (version, CopyState::Invalid);
                cx.host.show(key, version, CopyState::Invalid, false);
                let missing = self.others(cx);
                let round = WriterRound {
                    request: *request,
                    since,
                    view: self.view,
                    primary,
                    missing,
                    copies: 0,
                };
                self.rounds.insert((key, version), round);
                let message = self.message(key, version, CopyKind::Invalidate);
                cx.host.send_write(missing, &message, request.ticket);
                HotWay::Taken
            }
            _ => HotWay::Ordinary,
        }
    }

    /// Whether a write of a key that this node makes is under way.
    fn has_round(&self, key: RouteHash) -> bool {
        let mut writes = self.rounds.range((key, Cas(0))..=(key, Cas(u64::MAX)));
        writes.next().is_some()
    }

    /// Whether a request for a key of this primary waits for its copies.
    fn holds_back(&self, cx: &Context, key: RouteHash, access: Access) -> bool {
        let Some(owned) = self.owned.get(&key) else {
            return false;
        };
        let is_invalid = self.copy(key).state == CopyState::Invalid;
        match (owned.stage, access) {
            (OwnedStage::Hot | OwnedStage::Cooling, Access::Read) => is_invalid,
            (OwnedStage::Hot, _) if cx.is_lin() => is_invalid || owned.round.is_some(),
            (OwnedStage::Hot, _) => {
                let is_last = |one: &PrimaryRound| !one.is_sent && one.replaced >= REPLACED_MAX;
                owned.round.as_ref().is_some_and(is_last)
            }
            (_, Access::Read) => false,
            _ => true,
        }
    }

    fn wait(&mut self, cx: &mut Context, (request, since): Waiting) -> HotWay {
        if self.waiting.len() >= cx.config.waiting_max {
            cx.host.refuse(request.ticket, ReplicaRefusal::Busy);
        } else {
            self.waiting.push_back((request, since));
        }
        HotWay::Taken
    }

    /// The primary has answered: that goes out when the copy here shows as much.
    pub(super) fn take_answer(&mut self, cx: &mut Context, (waiting, version): (Waiting, Cas)) {
        let request = waiting.0;
        let is_behind = self
            .copies
            .get(&request.key)
            .is_some_and(|copy| copy.version < version);
        if !is_behind {
            cx.host.respond(request.ticket, 0);
        } else if self.answers.len() >= cx.config.waiting_max {
            give_up(cx, &request);
        } else {
            self.answers.push((waiting, version));
        }
    }

    fn answer_shown(&mut self, cx: &mut Context) {
        let copies = &self.copies;
        self.answers.retain(|&((request, _), version)| {
            let copy = copies.get(&request.key);
            let is_behind = copy.is_some_and(|copy| copy.version < version);
            if !is_behind {
                cx.host.respond(request.ticket, 0);
            }
            is_behind
        });
    }

    // ---- copies of other primaries ----

    /// A message about a copy for which it does not matter who is the primary.
    pub(super) fn receive(&mut self, cx: &mut Context, from: NodeId, message: &CopyMessage) {
        let &CopyMessage {
            key, version, kind, ..
        } = message;
        match kind {
            CopyKind::Install if version <= self.floor && !self.copies.contains_key(&key) => {
                // It may be of before the key was dropped.
                self.tell(cx, from, (key, self.floor), CopyKind::Reject);
            }
            CopyKind::Install | CopyKind::Invalidate | CopyKind::Update => {
                cx.host.saw(version);
                self.take_write(cx, key, version, kind);
                self.tell(cx, from, (key, version), CopyKind::Ack);
            }
            CopyKind::Validate => self.validate(cx, key, version),
            CopyKind::ValidateWanted => {
                let copy = self.copy(key);
                if copy.complete >= version {
                    self.tell(cx, from, (key, copy.complete), CopyKind::Validate);
                }
            }
            CopyKind::Drop => {
                self.floor = self.floor.max(version);
                if self.copies.contains_key(&key) && self.copy(key).installed < version {
                    self.copies.remove(&key);
                    cx.host.show(key, version, CopyState::Absent, false);
                }
                // The primary forgets then which writes it has taken: one of an earlier view must
                // not come to it after that.
                if !self.has_round(key) || cx.has(ReplicaMutant::DroppedBesideRound) {
                    self.tell(cx, from, (key, version), CopyKind::Dropped);
                }
                self.answer_shown(cx);
            }
            CopyKind::Ack | CopyKind::Reject | CopyKind::Dropped => {}
        }
    }

    fn take_write(&mut self, cx: &mut Context, key: RouteHash, version: Cas, kind: CopyKind) {
        let state = match kind {
            CopyKind::Update => CopyState::Valid,
            _ => CopyState::Invalid,
        };
        if kind == CopyKind::Install {
            let installed = version;
            self.copies.entry(key).or_insert(HotCopy {
                installed,
                ..HotCopy::default()
            });
        }
        if let Some(copy) = self.copies.get_mut(&key)
            && version > copy.version
        {
            (copy.version, copy.state) = (version, state);
            if state == CopyState::Valid {
                copy.complete = version;
            }
            cx.host.show(key, version, state, true);
        }
        self.answer_shown(cx);
    }

    /// A write is complete: who has it may show it. Where a later one is on its way it is
    /// remembered all the same: others may have no later one, and ask.
    pub(super) fn validate(&mut self, cx: &mut Context, key: RouteHash, version: Cas) {
        let Some(copy) = self.copies.get_mut(&key) else {
            return;
        };
        copy.complete = copy.complete.max(version);
        if copy.version == version {
            copy.state = CopyState::Valid;
            cx.host.show(key, version, CopyState::Valid, false);
        }
    }

    /// A member has a write of this node.
    pub(super) fn note_ack(&mut self, cx: &mut Context, (from, copies): (NodeId, u8), of: Write) {
        let Some(round) = self.rounds.get_mut(&of) else {
            return;
        };
        if from == round.primary {
            round.copies = copies;
        }
        round.missing = round.missing.without(from);
        if round.missing.is_empty() {
            self.end_round(cx, of);
        }
    }

    /// Everybody has a write of this node. No copy waits for one that was begun in an earlier view.
    fn end_round(&mut self, cx: &mut Context, of: Write) {
        let Some(round) = self.rounds.remove(&of) else {
            return;
        };
        if round.view == self.view {
            self.validate(cx, of.0, of.1);
            let message = self.message(of.0, of.1, CopyKind::Validate);
            cx.host.send(self.others(cx), &message);
        }
        cx.host.respond(round.request.ticket, round.copies);
    }

    /// The primary does not take a write of this node: it is to be sent there as a request.
    pub(super) fn take_rejected(&mut self, from: NodeId, of: Write) -> Option<Waiting> {
        // One that has acknowledged it has taken it: this may be about a copy of the message.
        let round = self.rounds.get(&of).copied();
        let round = round.filter(|round| round.missing.contains(from))?;
        self.rounds.remove(&of);
        Some((round.request, round.since))
    }

    // ---- keys of this primary ----

    /// A key shall be hot: every member gets a copy.
    pub(super) fn heat(&mut self, key: RouteHash, slice: SliceId) -> bool {
        let is_new = !self.owned.contains_key(&key) && !self.guards(slice);
        if is_new {
            let owned = OwnedKey {
                stage: OwnedStage::Installing,
                round: None,
                is_stale: false,
                last: Cas(0),
            };
            self.owned.insert(key, owned);
        }
        is_new
    }

    /// A key shall be hot no more.
    pub(super) fn cool(&mut self, cx: &mut Context, key: RouteHash) {
        let Some(owned) = self.owned.get_mut(&key) else {
            return;
        };
        if owned.stage == OwnedStage::Hot {
            owned.stage = OwnedStage::Cooling;
        }
        self.drop_copies(cx, key);
    }

    /// Has the copies of a key go that is to cool, if no write of it is under way.
    pub(super) fn drop_copies(&mut self, cx: &mut Context, key: RouteHash) {
        let is_done = |one: &OwnedKey| one.stage == OwnedStage::Cooling && one.round.is_none();
        let is_invalid = self.copy(key).state == CopyState::Invalid;
        if is_invalid || !self.owned.get(&key).is_some_and(is_done) {
            return;
        }
        let (others, stamp) = (self.others(cx), cx.host.next_version());
        cx.host.saw(stamp);
        if let Some(owned) = self.owned.get_mut(&key) {
            owned.stage = OwnedStage::Dropping(others, stamp);
        }
        cx.host
            .send(others, &self.message(key, stamp, CopyKind::Drop));
        if others.is_empty() || cx.has(ReplicaMutant::DropUnacknowledged) {
            self.note_dropped(cx, (key, stamp), others);
        }
    }

    /// Members have no copy of the key any more.
    pub(super) fn note_dropped(&mut self, cx: &mut Context, (key, stamp): Write, nodes: NodeSet) {
        if let Some(owned) = self.owned.get_mut(&key)
            && let OwnedStage::Dropping(left, of) = &mut owned.stage
            && *of == stamp
        {
            *left = left.difference(nodes);
            if left.is_empty() {
                self.owned.remove(&key);
                self.copies.remove(&key);
                // No write of a copy is under way, of this view or an earlier one: its writer would
                // not have said that it dropped the copy.
                self.settled.retain(|&(of, _), _| of != key);
                cx.host.show(key, stamp, CopyState::Absent, false);
            }
        }
    }

    /// This primary wrote a hot key, or installs it: the copies are to follow.
    pub(super) fn begin_round(
        &mut self,
        cx: &mut Context,
        key: RouteHash,
        (seq, version, ticket): (u64, Cas, Option<Ticket>),
    ) {
        let missing = self.others(cx);
        let mut installs = false;
        if let Some(owned) = self.owned.get_mut(&key) {
            installs = owned.stage == OwnedStage::Installing;
            owned.last = version;
            let unsent = owned.round.as_ref().filter(|round| !round.is_sent);
            let replaced = unsent.map_or(0, |round| round.replaced.saturating_add(1));
            owned.round = Some(PrimaryRound {
                version,
                seq,
                missing,
                ticket,
                is_sent: false,
                replaced,
            });
        }
        if cx.is_lin() || installs {
            self.set_own(cx, key, version, CopyState::Invalid);
        }
    }

    /// A member wants a later stamp for its installation, or requests beside the machine may have
    /// got later versions since it was stamped.
    pub(super) fn restart(&mut self, cx: &mut Context, key: RouteHash) {
        let owned = self.owned.get(&key);
        if owned.is_some_and(|owned| owned.stage == OwnedStage::Installing) {
            let stamp = cx.stamp();
            self.begin_round(cx, key, (0, stamp, None));
        }
    }

    /// Goes on with a round. It is `committed`, at so many nodes, if all nodes in sync have its
    /// change, and nothing later of its key is unfinished.
    pub(super) fn go_on(&mut self, cx: &mut Context, key: RouteHash, committed: Option<u8>) {
        let (view, is_committed) = (self.view, committed.is_some());
        let message =
            |version, kind| ReplicaMessage::Copy(CopyMessage::new(view, (key, version), kind));
        let Some(owned) = self.owned.get_mut(&key) else {
            return;
        };
        let installs = owned.stage == OwnedStage::Installing;
        let Some(round) = &mut owned.round else {
            return;
        };
        let kind = match cx.is_lin() || installs {
            true => CopyKind::Install,
            false => CopyKind::Update,
        };
        if !round.is_sent && (is_committed || kind == CopyKind::Install && !installs) {
            round.is_sent = true;
            cx.host.send(round.missing, &message(round.version, kind));
        }
        if kind == CopyKind::Update
            && let Some(copies) = committed
            && let Some(ticket) = round.ticket.take()
        {
            cx.host.respond(ticket, copies);
        }
        let is_acknowledged = round.missing.is_empty() || cx.has(ReplicaMutant::ValidatesEarly);
        if !round.is_sent || !is_committed || !is_acknowledged {
            return;
        }
        let (version, ticket) = (round.version, round.ticket);
        owned.round = None;
        if installs {
            owned.stage = OwnedStage::Hot;
        }
        if kind == CopyKind::Install {
            self.set_own(cx, key, version, CopyState::Valid);
            cx.host
                .send(self.others(cx), &message(version, CopyKind::Validate));
        }
        if let Some(ticket) = ticket {
            cx.host.respond(ticket, committed.unwrap_or(0));
        }
    }

    /// A member has the write of a round of this primary.
    pub(super) fn note_round_ack(&mut self, from: NodeId, key: RouteHash, version: Cas) {
        if let Some(round) = self.owned.get_mut(&key).and_then(|one| one.round.as_mut())
            && round.version == version
        {
            round.missing = round.missing.without(from);
        }
    }

    /// Whether this primary takes a write of another node: it is later than what is here, and
    /// nothing else is under way.
    pub(super) fn takes(&self, cx: &Context, of: Write, stored: Cas) -> bool {
        let (key, version) = of;
        let last = self.copy(key).version;
        let is_idle = self.owned.contains_key(&key) && !self.holds_back(cx, key, Access::Update);
        is_idle && version > last.max(stored)
    }

    /// It does not: copies that know of the write wait for a later one.
    pub(super) fn note_rejected(&mut self, key: RouteHash, version: Cas) {
        let last = self.copy(key).version;
        if let Some(owned) = self.owned.get_mut(&key) {
            owned.is_stale |= version > last;
        }
    }

    /// Whether all copies are to be written again, which this notes as done.
    pub(super) fn takes_refresh(&mut self, cx: &Context, key: RouteHash) -> bool {
        let is_idle = !self.holds_back(cx, key, Access::Update);
        let owned = self.owned.get_mut(&key).filter(|_| is_idle);
        owned.is_some_and(|owned| core::mem::take(&mut owned.is_stale))
    }

    /// No key of this primary is hot any more; which of its writes were under way.
    pub(super) fn end_own_rounds(&mut self) -> impl Iterator<Item = (RouteHash, PrimaryRound)> {
        let owned = core::mem::take(&mut self.owned).into_iter();
        owned.filter_map(|(key, owned)| Some((key, owned.round?)))
    }

    /// Hot keys of this primary of which something is under way, or to be begun.
    pub(super) fn busy_keys(&self) -> Vec<RouteHash> {
        let cools = |one: &OwnedKey| one.stage == OwnedStage::Cooling;
        let is_busy = |one: &OwnedKey| one.round.is_some() || one.is_stale || cools(one);
        let busy = self.owned.iter().filter(|(_, one)| is_busy(one));
        busy.map(|(key, _)| *key).collect()
    }

    /// Whether members may still show keys of a slice of this primary as of an earlier view.
    pub(super) fn guards(&self, slice: SliceId) -> bool {
        self.guarded.contains(&slice)
    }

    /// The last write of a key that this primary took of another node.
    pub(super) fn settled(&self, key: RouteHash, writer: NodeId) -> Cas {
        let settled = self.settled.get(&(key, writer));
        settled.copied().unwrap_or_default()
    }

    /// Whether this primary has taken this write.
    pub(super) fn has(&self, key: RouteHash, version: Cas) -> bool {
        self.copies.contains_key(&key) && self.copy(key).version == version
    }

    /// Stores a write of another node. Readers beside the machine see nothing of the key before it
    /// is stored, and until all copies have it; if it is not stored they see what they saw.
    pub(super) fn while_hidden(
        &mut self,
        cx: &mut Context,
        (key, version): Write,
        store: impl FnOnce(&mut Context) -> bool,
    ) -> bool {
        let before = self.copies.get(&key).copied();
        let is_late = cx.has(ReplicaMutant::HiddenLate);
        if !is_late {
            self.set_own(cx, key, version, CopyState::Invalid);
        }
        let is_stored = store(cx);
        match (is_stored, before) {
            (true, _) if is_late => self.set_own(cx, key, version, CopyState::Invalid),
            (false, Some(before)) if !is_late => {
                self.copies.insert(key, before);
                cx.host.show(key, before.version, before.state, false);
            }
            _ => {}
        }
        is_stored
    }

    /// What readers at the primary may see.
    fn set_own(&mut self, cx: &mut Context, key: RouteHash, version: Cas, state: CopyState) {
        let copy = self.copies.entry(key).or_default();
        (copy.version, copy.state) = (version, state);
        if state == CopyState::Valid {
            copy.complete = version;
        }
        cx.host.show(key, version, state, false);
    }
}

/// Ends a request whose answer has waited for too long. Its client may not be shown the answer: a
/// later read here could show an older value.
fn give_up(cx: &mut Context, request: &ReplicaRequest) {
    let refusal = match request.access {
        Access::Read => ReplicaRefusal::Late,
        _ => ReplicaRefusal::Unknown,
    };
    cx.host.refuse(request.ticket, refusal);
}
