//! One machine and a host that only notes what it asks for.

use alloc::{boxed::Box, collections::BTreeSet, vec::Vec};

use curtail_types::{Access, Cas, Instant, NodeId, NodeSet, RouteHash, ViewNumber};

use super::*;
use crate::{
    replica::{Model, Ticket},
    slice_view::{RowChange, RowStep, SliceId, SliceView},
};

#[derive(Default)]
struct Notes {
    now: u64,
    proposed: Vec<RowChange>,
    sent: Vec<(NodeSet, ReplicaMessage)>,
    ran: Vec<Ticket>,
    answered: Vec<(Ticket, u8)>,
    refused: Vec<(Ticket, ReplicaRefusal)>,
    shown: Vec<(RouteHash, CopyState)>,
    /// Up to which versions slices were cleared.
    cleared: Vec<Option<Cas>>,
    /// The slices that might be evicted from, the last time.
    evictable: Vec<SliceId>,
    /// The slices that the store may evict from without being asked.
    free: BTreeSet<SliceId>,
}

impl Notes {
    /// What was sent since the last time.
    fn take_sent(&mut self) -> Vec<(NodeSet, ReplicaMessage)> {
        core::mem::take(&mut self.sent)
    }

    /// To whom something was sent about copies since the last time.
    fn copies_to(&mut self, kind: CopyKind) -> NodeSet {
        let sent = self.take_sent().into_iter();
        let of_kind = sent.filter(|(_, message)| match message {
            ReplicaMessage::Copy(message) => message.kind == kind,
            _ => false,
        });
        of_kind.fold(NodeSet::NONE, |all, (to, _)| all.union(to))
    }
}

impl ReplicaHost for Notes {
    fn run(&mut self, request: &ReplicaRequest, _: Cas) -> RunResult {
        self.ran.push(request.ticket);
        match request.access {
            Access::Read => RunResult::Unchanged,
            _ => RunResult::Stored(0),
        }
    }
    fn stamp(&mut self, _: Ticket, _: Cas) {}
    fn respond(&mut self, ticket: Ticket, copies: u8) {
        self.answered.push((ticket, copies));
    }
    fn refuse(&mut self, ticket: Ticket, why: ReplicaRefusal) {
        self.refused.push((ticket, why));
    }
    fn forward(&mut self, _: &ReplicaRequest, _: NodeId) {}
    fn send(&mut self, to: NodeSet, message: &ReplicaMessage) {
        self.sent.push((to, message.clone()));
    }
    fn apply(&mut self, _: NodeId, _: &SliceChange) -> bool {
        true
    }
    fn item(&mut self, _: RouteHash) -> Option<(Cas, u32)> {
        None
    }
    fn promise(&mut self, _: NodeId, _: u64, wanted: u64) -> u64 {
        wanted
    }
    fn evicts(&self) -> bool {
        false
    }
    fn evict(
        &mut self,
        _: u64,
        may_evict: &mut dyn FnMut(SliceId) -> bool,
        _: &mut dyn FnMut(SliceId, RouteHash),
    ) {
        self.evictable = (0..2)
            .map(SliceId)
            .filter(|&slice| may_evict(slice))
            .collect();
    }
    fn scan(&mut self, _: SliceId, _: bool) {}
    fn clear(&mut self, _: SliceId, before: Option<Cas>) {
        self.cleared.push(before);
    }
    fn flush(&mut self, _: SliceId) -> Cas {
        self.cleared.push(None);
        self.next_version()
    }
    fn gate(&mut self, _: SliceId, _: Gate) {}
    fn free(&mut self, slice: SliceId, is_free: bool) {
        match is_free {
            true => self.free.insert(slice),
            false => self.free.remove(&slice),
        };
    }
    fn propose(&mut self, change: RowChange) {
        self.proposed.push(change);
    }
    fn next_version(&mut self) -> Cas {
        self.now += 1;
        Cas(self.now)
    }
    fn saw(&mut self, _: Cas) {}
    fn show(&mut self, key: RouteHash, _: Cas, state: CopyState, _: bool) {
        self.shown.push((key, state));
    }
    fn read_copy(&mut self, _: &ReplicaRequest) {}
    fn write_copy(&mut self, _: &ReplicaRequest, _: Cas) -> bool {
        true
    }
    fn send_write(&mut self, _: NodeSet, _: &ReplicaMessage, _: Ticket) {}
    fn store_copy(&mut self, _: RouteHash, _: Cas) -> RunResult {
        RunResult::Stored(0)
    }
    fn incoming_bytes(&self) -> u32 {
        0
    }
    fn now(&self) -> Instant {
        Instant { ns: self.now }
    }
}

fn machine(me: u8) -> Replica {
    Replica::new(ReplicaConfig {
        me: NodeId(me),
        model: Model::Lin,
        retransmit_ns: 1_000,
        suspicion_ns: 1_000_000,
        patience_ns: 1_000_000,
        learning_ns: 1_000,
        waiting_max: 10,
        window_max: 100,
        room_ask: 0,
        catch_ups_max: 1,
        stage: (0, 1),
    })
}

const SLICE: SliceId = SliceId(0);
const KEY: RouteHash = RouteHash(1);

fn nodes(bits: u64) -> NodeSet {
    NodeSet::from_bits(bits)
}

fn copy(view: u32, version: u64, kind: CopyKind) -> ReplicaMessage {
    ReplicaMessage::Copy(CopyMessage {
        view: ViewNumber(view),
        key: KEY,
        version: Cas(version),
        kind,
        copies: 0,
    })
}

fn tail(term: u32) -> ReplicaMessage {
    ReplicaMessage::Tail {
        slice: SLICE,
        term: ViewNumber(term),
        keys: Box::default(),
        seen: Cas(0),
        flushed: Cas(0),
    }
}

fn request(ticket: u64, access: Access) -> ReplicaEvent<'static> {
    ReplicaEvent::Request(ReplicaRequest {
        ticket: Ticket(ticket),
        key: KEY,
        access,
        size: 0,
        is_forwarded: false,
    })
}

/// The next view after these steps of the slice's row, and without these nodes.
fn after(view: &SliceView, steps: &[RowStep], dead: NodeSet) -> SliceView {
    let change = |step: &RowStep| RowChange {
        slice: SLICE,
        view: view.number,
        step: *step,
    };
    let changes: Vec<RowChange> = steps.iter().map(change).collect();
    view.next(&changes, NodeSet::NONE, dead).unwrap()
}

/// The primary of a slice at node 0 alone, of this many nodes, with the key hot at all of them.
fn primary_of_a_hot_key(members: u64, replicas: usize) -> (Replica, Notes, SliceView) {
    let view = SliceView::first(ViewNumber(1), nodes(members), 1, replicas);
    let (mut replica, mut notes) = (machine(0), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    let others = nodes(members).without(NodeId(0));
    for node in view.row(SLICE).unwrap().in_sync.without(NodeId(0)) {
        replica.step(ReplicaEvent::Message(node, &tail(1)), &mut notes);
    }
    replica.step(ReplicaEvent::Heat(KEY, true), &mut notes);
    replica.step(ReplicaEvent::Closed(SLICE), &mut notes);
    let version = notes.now;
    assert_eq!(notes.copies_to(CopyKind::Install), others);
    for node in others {
        let ack = copy(1, version, CopyKind::Ack);
        replica.step(ReplicaEvent::Message(node, &ack), &mut notes);
    }
    assert_eq!(notes.shown.last(), Some(&(KEY, CopyState::Valid)));
    (replica, notes, view)
}

/// Requests beside the machine got later versions than an installation, and removed the item. A
/// node to which such a version was shown waited in vain for a copy that was as new.
#[test]
fn an_installation_is_above_what_ran_while_the_gate_was_open() {
    let view = SliceView::first(ViewNumber(1), nodes(0b11), 1, 1);
    let (mut replica, mut notes) = (machine(0), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    replica.step(ReplicaEvent::Heat(KEY, true), &mut notes);
    assert_eq!(notes.copies_to(CopyKind::Install), NodeSet::NONE);
    // What the host does when the gate has closed.
    let given = Cas(notes.now + 1_000);
    notes.now = given.0;
    notes.take_sent();
    replica.step(ReplicaEvent::Closed(SLICE), &mut notes);
    let installs = notes
        .take_sent()
        .into_iter()
        .filter_map(|(_, message)| match message {
            ReplicaMessage::Copy(copy) if copy.kind == CopyKind::Install => Some(copy.version),
            _ => None,
        });
    let versions: Vec<Cas> = installs.collect();
    assert!(
        !versions.is_empty() && versions.iter().all(|version| *version > given),
        "{versions:?}"
    );
}

/// A write waited for 5 s for the room that a slow follower did not promise, on nodes with room
/// enough. Its client was told of a lack of memory, and the older value, which was acknowledged,
/// was removed as after a set that found no room.
#[test]
fn a_slow_follower_is_not_a_full_one() {
    let (mut replica, mut notes) = primary_with_rooms(true);
    replica.step(write(1, 100), &mut notes);
    let asks = |(_, message): &(NodeSet, ReplicaMessage)| {
        matches!(message, ReplicaMessage::RoomWanted { .. })
    };
    assert!(notes.take_sent().iter().any(asks), "it wants room");
    assert_eq!((notes.ran.len(), notes.refused.len()), (0, 0));
    notes.now += 2_000_000;
    replica.step(ReplicaEvent::Tick, &mut notes);
    assert_eq!(notes.refused, [(Ticket(1), ReplicaRefusal::Late)]);
    assert_eq!(notes.ran, []);
}

/// The primary of a slice at node 0, which asks for room; node 1 holds it too, in sync or not.
fn primary_with_rooms(is_in_sync: bool) -> (Replica, Notes) {
    let mut notes = Notes::default();
    let mut replica = Replica::new(ReplicaConfig {
        room_ask: 1_000,
        ..machine(0).config
    });
    if is_in_sync {
        let view = SliceView::first(ViewNumber(1), nodes(0b11), 1, 2);
        replica.step(ReplicaEvent::View(&view), &mut notes);
        replica.step(ReplicaEvent::Message(NodeId(1), &tail(1)), &mut notes);
    } else {
        let view = SliceView::first(ViewNumber(1), nodes(0b1), 1, 2);
        replica.step(ReplicaEvent::View(&view), &mut notes);
        let view = view.next(&[], nodes(0b10), NodeSet::NONE).unwrap();
        let view = after(&view, &[RowStep::Hold(NodeId(1))], NodeSet::NONE);
        replica.step(ReplicaEvent::View(&view), &mut notes);
        replica.step(ReplicaEvent::Closed(SLICE), &mut notes);
    }
    (replica, notes)
}

/// Node 1 grants what it was asked for last.
fn grant(replica: &mut Replica, notes: &mut Notes) {
    let asked = notes.take_sent().into_iter().rev();
    let mut asked = asked.filter_map(|(_, message)| match message {
        ReplicaMessage::RoomWanted { number, wanted, .. } => Some((number, wanted)),
        _ => None,
    });
    let (number, bytes) = asked.next().unwrap();
    let grows = false;
    let message = ReplicaMessage::Room {
        number,
        bytes,
        grows,
    };
    replica.step(ReplicaEvent::Message(NodeId(1), &message), notes);
}

fn write(ticket: u64, size: u32) -> ReplicaEvent<'static> {
    ReplicaEvent::Request(ReplicaRequest {
        ticket: Ticket(ticket),
        key: KEY,
        access: Access::Update,
        size,
        is_forwarded: false,
    })
}

/// A follower did not answer a request for room, with nothing sent to it: it did not count as
/// silent, and the writes of the slice waited for as long as the link was broken.
#[test]
fn a_follower_that_promises_no_room_is_silent() {
    let (mut replica, mut notes) = primary_with_rooms(true);
    replica.step(write(1, 100), &mut notes);
    notes.now += 999_000;
    replica.step(ReplicaEvent::Tick, &mut notes);
    assert_eq!(notes.proposed, []);
    notes.now += 1_000;
    replica.step(ReplicaEvent::Tick, &mut notes);
    assert_eq!(notes.proposed[0].step, RowStep::Exit(NodeId(1)));
}

/// A node that had left for silence was held again at once, and while it caught up in vain the
/// writes of the slice waited: for room there, then for the window, again and again.
#[test]
fn no_write_waits_for_a_node_that_catches_up_in_vain() {
    let (mut replica, mut notes) = primary_with_rooms(false);
    replica.step(write(1, 100), &mut notes);
    notes.now += 1_000;
    replica.step(ReplicaEvent::Tick, &mut notes);
    assert_eq!(notes.ran.len(), 1, "it has not answered at all");
    grant(&mut replica, &mut notes);
    replica.step(write(2, 1), &mut notes);
    grant(&mut replica, &mut notes);
    for ticket in 3..=101 {
        replica.step(write(ticket, 1), &mut notes);
    }
    assert_eq!(notes.ran.len(), 100, "the window is full");
    notes.now += 250_000;
    replica.step(ReplicaEvent::Tick, &mut notes);
    assert_eq!((notes.ran.len(), notes.refused.len()), (101, 0));
    assert_eq!(notes.proposed, [], "it may come closer later");
    // It is asked again, and begins when it has answered.
    notes.take_sent();
    notes.now += 1_000_000;
    replica.step(ReplicaEvent::Tick, &mut notes);
    replica.step(ReplicaEvent::Closed(SLICE), &mut notes);
    assert!(!begins(&mut notes));
    grant(&mut replica, &mut notes);
    assert!(begins(&mut notes));
}

/// Whether the copy of a slice was begun since the last time.
fn begins(notes: &mut Notes) -> bool {
    let kind = |message: &ReplicaMessage| match message {
        ReplicaMessage::Append(append) => Some(append.change.kind),
        _ => None,
    };
    let mut sent = notes.sent.iter();
    sent.any(|(_, message)| kind(message) == Some(ChangeKind::Begin))
}

/// A change was sent again to one follower with what a later change of the key had left, and both
/// followers then forgot the key, because all had the change. The primary died before they had the
/// later one. The next primary did not repair the key, and its followers showed another value.
#[test]
fn a_change_that_was_sent_with_a_later_state_stays_unfinished() {
    let view = SliceView::first(ViewNumber(1), nodes(0b111), 1, 3);
    let (mut replica, mut notes) = (machine(0), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    for node in [1, 2] {
        replica.step(ReplicaEvent::Message(NodeId(node), &tail(1)), &mut notes);
    }
    let applied = |replica: &mut Replica, notes: &mut Notes, node, seq| {
        let (slice, term) = (SLICE, ViewNumber(1));
        let message = ReplicaMessage::Applied { slice, term, seq };
        replica.step(ReplicaEvent::Message(NodeId(node), &message), notes);
    };
    let again = |replica: &mut Replica, notes: &mut Notes| {
        notes.take_sent();
        notes.now += 1_000;
        replica.step(ReplicaEvent::Tick, notes);
        let appends = notes.take_sent().into_iter().filter_map(|(to, message)| {
            let ReplicaMessage::Append(append) = message else {
                return None;
            };
            Some((to.first()?.0, append.seq, append.committed))
        });
        appends.collect::<Vec<_>>()
    };
    for (ticket, key) in [(1, KEY), (2, RouteHash(2)), (3, KEY)] {
        let write = ReplicaRequest {
            ticket: Ticket(ticket),
            key,
            access: Access::Update,
            size: 0,
            is_forwarded: false,
        };
        replica.step(ReplicaEvent::Request(write), &mut notes);
        if ticket == 1 {
            applied(&mut replica, &mut notes, 2, 1);
        }
    }
    let sent = again(&mut replica, &mut notes);
    assert_eq!(
        sent,
        [(1, 1, 0), (1, 2, 0), (1, 3, 0), (2, 2, 0), (2, 3, 0)]
    );
    applied(&mut replica, &mut notes, 1, 1);
    let sent = again(&mut replica, &mut notes);
    assert_eq!(sent, [(1, 2, 0), (1, 3, 0), (2, 2, 1), (2, 3, 1)]);
    applied(&mut replica, &mut notes, 1, 3);
    applied(&mut replica, &mut notes, 2, 2);
    assert_eq!(again(&mut replica, &mut notes), [(2, 3, 2)]);
    applied(&mut replica, &mut notes, 2, 3);
    replica.step(request(4, Access::Update), &mut notes);
    let sent = again(&mut replica, &mut notes);
    assert_eq!(sent, [(1, 4, 3), (2, 4, 3)]);
}

/// A primary asked for room, and was granted it by a node that had died and joined in between. When
/// the primary saw that view it dropped the account, and the node kept the room for ever: where
/// stores were small, others found none.
#[test]
fn a_node_that_joins_again_is_told_that_nothing_is_counted_on() {
    let first = SliceView::first(ViewNumber(1), nodes(0b11), 1, 1);
    let mut notes = Notes::default();
    let mut replica = Replica::new(ReplicaConfig {
        room_ask: 1_000,
        ..machine(0).config
    });
    let lost = first.next(&[], NodeSet::NONE, nodes(0b10)).unwrap();
    let joined = lost.next(&[], nodes(0b10), NodeSet::NONE).unwrap();
    for view in [&first, &lost, &joined] {
        replica.step(ReplicaEvent::View(view), &mut notes);
    }
    notes.now += 1_000;
    replica.step(ReplicaEvent::Tick, &mut notes);
    let credits = |(to, message): (NodeSet, ReplicaMessage)| match message {
        ReplicaMessage::RoomWanted { held, wanted, .. } => Some((to, held, wanted)),
        _ => None,
    };
    let asked: Vec<_> = notes.take_sent().into_iter().filter_map(credits).collect();
    assert_eq!(asked, [(nodes(0b10), 0, 0)]);
}

/// A primary missed the `Validate` of a write that it took, while the writer had a later write
/// under way, which the primary rejected. The writer did not answer when it was asked, and the
/// primary waited until the next view.
#[test]
fn a_complete_write_is_told_though_a_later_one_is_on_its_way() {
    let view = SliceView::first(ViewNumber(1), nodes(0b11), 1, 1);
    let (mut replica, mut notes) = (machine(1), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    for (version, kind) in [
        (10, CopyKind::Install),
        (20, CopyKind::Install),
        (10, CopyKind::Validate),
        (10, CopyKind::ValidateWanted),
    ] {
        let message = copy(1, version, kind);
        replica.step(ReplicaEvent::Message(NodeId(0), &message), &mut notes);
    }
    assert_eq!(notes.copies_to(CopyKind::Validate), nodes(0b01));
}

/// A follower had had a copy, in the view before the last, and became the primary while another
/// node still showed its own.
#[test]
fn a_primary_after_a_lost_one_waits_until_nobody_shows_an_older_copy() {
    let view = SliceView::first(ViewNumber(1), nodes(0b111), 1, 2);
    let (mut replica, mut notes) = (machine(1), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    let install = copy(1, 10, CopyKind::Install);
    replica.step(ReplicaEvent::Message(NodeId(0), &install), &mut notes);
    let next = view.renumbered(ViewNumber(2));
    replica.step(ReplicaEvent::View(&next), &mut notes);
    let last = after(&next, &[], NodeSet::only(NodeId(0)));
    replica.step(ReplicaEvent::View(&last), &mut notes);
    assert!(replica.serves(SLICE));
    replica.step(request(1, Access::Read), &mut notes);
    assert_eq!(notes.ran, []);
    let entered = ReplicaMessage::Entered(ViewNumber(3));
    replica.step(ReplicaEvent::Message(NodeId(2), &entered), &mut notes);
    assert_eq!(notes.ran, [Ticket(1)]);
}

/// Views followed each other more quickly than all members entered one, and requests waited for
/// as long as that lasted.
#[test]
fn further_views_do_not_prolong_the_wait_for_older_copies() {
    let view = SliceView::first(ViewNumber(1), nodes(0b1111), 1, 2);
    let (mut replica, mut notes) = (machine(1), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    let lost = after(&view, &[], NodeSet::only(NodeId(0)));
    replica.step(ReplicaEvent::View(&lost), &mut notes);
    replica.step(request(1, Access::Read), &mut notes);
    let says = |replica: &mut Replica, notes: &mut Notes, from, view| {
        let entered = ReplicaMessage::Entered(ViewNumber(view));
        replica.step(ReplicaEvent::Message(NodeId(from), &entered), notes);
    };
    says(&mut replica, &mut notes, 2, 1);
    says(&mut replica, &mut notes, 3, 2);
    for number in [3, 4] {
        let next = lost.renumbered(ViewNumber(number));
        replica.step(ReplicaEvent::View(&next), &mut notes);
    }
    assert_eq!(notes.ran, []);
    says(&mut replica, &mut notes, 2, 5);
    assert_eq!(notes.ran, [Ticket(1)]);
}

/// A second primary was lost while the wait for the first one's copies went on: a member that had
/// entered the view between might still show copies of the second one's keys.
#[test]
fn a_further_lost_primary_prolongs_the_wait_for_older_copies() {
    let view = SliceView::first(ViewNumber(1), nodes(0b1111), 8, 2);
    let (mut replica, mut notes) = (machine(2), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    let first_lost = after(&view, &[], NodeSet::only(NodeId(0)));
    let second_lost = after(&first_lost, &[], NodeSet::only(NodeId(1)));
    let taken_over = |before: &SliceView, now: &SliceView| {
        let primaries = |slice| [before, now].map(|view| view.row(slice).unwrap().primary);
        let mut slices = (0..8).map(SliceId);
        slices.find(|slice| primaries(*slice)[0] != NodeId(2) && primaries(*slice)[1] == NodeId(2))
    };
    assert!(taken_over(&view, &first_lost).is_some());
    let slice = taken_over(&first_lost, &second_lost).unwrap();
    let mut keys = (0..u64::MAX).map(|high| RouteHash(high << 56 | high));
    let key = keys.find(|key| view.slice_of(*key) == slice).unwrap();
    for next in [&first_lost, &second_lost] {
        replica.step(ReplicaEvent::View(next), &mut notes);
    }
    let read = ReplicaRequest {
        ticket: Ticket(1),
        key,
        access: Access::Read,
        size: 0,
        is_forwarded: false,
    };
    replica.step(ReplicaEvent::Request(read), &mut notes);
    for (entered, ran) in [(2, &[][..]), (3, &[Ticket(1)])] {
        let entered = ReplicaMessage::Entered(ViewNumber(entered));
        replica.step(ReplicaEvent::Message(NodeId(3), &entered), &mut notes);
        assert_eq!(notes.ran, ran);
    }
}

/// A slice began empty at a node that had joined after the key had become hot, and was written
/// there, while another node still showed a copy of what was lost.
#[test]
fn a_slice_that_begins_empty_waits_until_nobody_shows_what_it_had() {
    let first = SliceView::first(ViewNumber(1), nodes(0b011), 1, 1);
    let joined = first.next(&[], nodes(0b100), NodeSet::NONE).unwrap();
    let lost = after(&joined, &[], NodeSet::only(NodeId(0)));
    let primary = lost.row(SLICE).unwrap().primary;
    let other = nodes(0b110).without(primary).first().unwrap();
    let (mut replica, mut notes) = (machine(primary.0), Notes::default());
    replica.step(ReplicaEvent::View(&lost), &mut notes);
    let wanted = ReplicaMessage::EnteredWanted(ViewNumber(3));
    let asked = nodes(0b110).without(primary);
    assert_eq!(notes.take_sent(), [(asked, wanted)]);
    replica.step(request(1, Access::Read), &mut notes);
    assert_eq!(notes.ran, []);
    let entered = ReplicaMessage::Entered(ViewNumber(3));
    replica.step(ReplicaEvent::Message(other, &entered), &mut notes);
    assert_eq!(notes.ran, [Ticket(1)]);
}

/// A primary handed over while another node still showed an older copy; the next primary, which
/// had joined since, did not know of it and wrote the key.
#[test]
fn a_slice_is_not_handed_over_while_an_older_copy_may_be_shown() {
    let (mut replica, mut notes, view) = primary_of_a_hot_key(0b111, 2);
    let to = view.row(SLICE).unwrap().followers().first().unwrap();
    let next = view.renumbered(ViewNumber(2));
    replica.step(ReplicaEvent::View(&next), &mut notes);
    let wanted = ReplicaEvent::Wanted(SLICE, RowStep::HandOver(to));
    replica.step(wanted, &mut notes);
    let entered = ReplicaMessage::Entered(ViewNumber(2));
    replica.step(ReplicaEvent::Message(NodeId(1), &entered), &mut notes);
    assert_eq!(notes.proposed, []);
    replica.step(ReplicaEvent::Message(NodeId(2), &entered), &mut notes);
    assert_eq!(notes.proposed[0].step, RowStep::HandOver(to));
}

/// Writes of a hot key came so fast that one always waited. Each began as soon as the one before
/// was complete, so the key never ceased to be hot, and its slice was neither flushed nor handed
/// over.
#[test]
fn a_key_ceases_to_be_hot_under_steady_writes() {
    let (mut replica, mut notes, _) = primary_of_a_hot_key(0b11, 1);
    let other = NodeId(1);
    replica.step(request(1, Access::Update), &mut notes);
    let version = notes.now;
    replica.step(request(2, Access::Update), &mut notes);
    replica.step(ReplicaEvent::Heat(KEY, false), &mut notes);
    assert_eq!(notes.copies_to(CopyKind::Drop), NodeSet::NONE);
    let ack = copy(1, version, CopyKind::Ack);
    replica.step(ReplicaEvent::Message(other, &ack), &mut notes);
    let stamp = notes.sent.iter().find_map(|(_, message)| match message {
        ReplicaMessage::Copy(one) if one.kind == CopyKind::Drop => Some(one.version.0),
        _ => None,
    });
    let stamp = stamp.expect("the copy is to go though a write waits");
    replica.step(request(3, Access::Update), &mut notes);
    assert_eq!(notes.ran, [Ticket(1)]);
    let dropped = copy(1, stamp, CopyKind::Dropped);
    replica.step(ReplicaEvent::Message(other, &dropped), &mut notes);
    assert_eq!(notes.ran, [Ticket(1), Ticket(2), Ticket(3)]);
    assert_eq!(notes.shown.last(), Some(&(KEY, CopyState::Absent)));
}

/// A follower that had missed many changes got a few of them with each timer, fewer than new ones
/// came, and never caught up.
#[test]
fn what_many_losses_left_is_sent_as_acknowledgements_arrive() {
    let view = SliceView::first(ViewNumber(1), nodes(0b11), 1, 2);
    let (mut replica, mut notes) = (machine(0), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    replica.step(ReplicaEvent::Message(NodeId(1), &tail(1)), &mut notes);
    for ticket in 1..=20 {
        replica.step(request(ticket, Access::Update), &mut notes);
    }
    let seqs = |notes: &mut Notes| -> Vec<u64> {
        let sent = notes.take_sent().into_iter();
        let seqs = sent.filter_map(|(_, message)| match message {
            ReplicaMessage::Append(append) => Some(append.seq),
            _ => None,
        });
        seqs.collect()
    };
    assert_eq!(seqs(&mut notes).len(), 20);
    notes.now += 10_000;
    replica.step(ReplicaEvent::Tick, &mut notes);
    assert_eq!(seqs(&mut notes), [1, 2, 3, 4, 5, 6, 7, 8]);
    let applied = |seq: u64, replica: &mut Replica, notes: &mut Notes| {
        let (slice, term) = (SLICE, ViewNumber(1));
        let message = ReplicaMessage::Applied { slice, term, seq };
        replica.step(ReplicaEvent::Message(NodeId(1), &message), notes);
        seqs(notes)
    };
    assert_eq!(applied(2, &mut replica, &mut notes), [3, 9, 10]);
    assert_eq!(applied(2, &mut replica, &mut notes), []);
    replica.step(request(21, Access::Update), &mut notes);
    assert_eq!(
        applied(12, &mut replica, &mut notes),
        [13, 14, 15, 16, 17, 18, 19, 20]
    );
    assert_eq!(applied(14, &mut replica, &mut notes), [15, 21]);
    replica.step(request(22, Access::Update), &mut notes);
    assert_eq!(applied(15, &mut replica, &mut notes), [22]);
}

/// A node that caught up over a link with losses fell behind without bound. When it had the scan,
/// 108 changes were on their way to it, and answers waited for all of them, for 33 ms.
#[test]
fn a_node_that_catches_up_is_never_more_than_a_window_behind() {
    let view = SliceView::first(ViewNumber(1), nodes(0b1), 1, 2);
    let (mut replica, mut notes) = (machine(0), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    let view = view.next(&[], nodes(0b10), NodeSet::NONE).unwrap();
    let view = after(&view, &[RowStep::Hold(NodeId(1))], NodeSet::NONE);
    replica.step(ReplicaEvent::View(&view), &mut notes);
    replica.step(ReplicaEvent::Closed(SLICE), &mut notes);
    for ticket in 1..=101 {
        replica.step(request(ticket, Access::Update), &mut notes);
    }
    assert_eq!(notes.ran.len(), 99, "one change begins the copy");
    let message = ReplicaMessage::Applied {
        slice: SLICE,
        term: ViewNumber(1),
        seq: 2,
    };
    replica.step(ReplicaEvent::Message(NodeId(1), &message), &mut notes);
    assert_eq!(notes.ran.len(), 101);
}

/// The step that one view did not take is not proposed in the next, where the plan may want
/// another: both together would leave a copy too few. It happened while a node was added to three
/// with two replicas; a node that died soon after took slices with it.
#[test]
fn a_step_of_the_plan_is_proposed_in_its_view_only() {
    let slice = SliceId(0);
    let nodes = NodeSet::from_bits(0b111);
    let view = SliceView::first(ViewNumber(1), nodes, 1, 3);
    let mut replica = machine(0);
    let mut notes = Notes::default();
    replica.step(ReplicaEvent::View(&view), &mut notes);
    for node in [1, 2] {
        let tail = ReplicaMessage::Tail {
            slice,
            term: ViewNumber(1),
            keys: Box::default(),
            seen: Cas(0),
            flushed: Cas(0),
        };
        replica.step(ReplicaEvent::Message(NodeId(node), &tail), &mut notes);
    }
    assert!(replica.serves(slice));
    let exit = |node, view| RowChange {
        slice,
        view,
        step: RowStep::Exit(NodeId(node)),
    };
    let wanted = |node| ReplicaEvent::Wanted(slice, RowStep::Exit(NodeId(node)));
    replica.step(wanted(1), &mut notes);
    replica.step(wanted(1), &mut notes);
    assert_eq!(notes.proposed, [exit(1, ViewNumber(1))]);
    let next = view.renumbered(ViewNumber(2));
    replica.step(ReplicaEvent::View(&next), &mut notes);
    replica.step(wanted(2), &mut notes);
    assert_eq!(notes.proposed[1..], [exit(2, ViewNumber(2))]);
}

fn applied(seq: u64) -> ReplicaMessage {
    ReplicaMessage::Applied {
        slice: SLICE,
        term: ViewNumber(1),
        seq,
    }
}

/// Goal: an answer says how many nodes in sync have the write, when it goes out. Method: one
/// follower in sync that applies a write and dies during the next; one that catches up and has all
/// changes does not count before the view names it.
#[test]
fn an_answer_counts_the_nodes_in_sync_that_have_the_write() {
    let view = SliceView::first(ViewNumber(1), nodes(0b11), 1, 2);
    let (mut replica, mut notes) = (machine(0), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    replica.step(ReplicaEvent::Message(NodeId(1), &tail(1)), &mut notes);
    replica.step(request(1, Access::Update), &mut notes);
    assert_eq!(notes.answered, []);
    replica.step(ReplicaEvent::Message(NodeId(1), &applied(1)), &mut notes);
    assert_eq!(notes.answered, [(Ticket(1), 2)]);
    replica.step(request(2, Access::Update), &mut notes);
    let alone = view.next(&[], nodes(0b100), nodes(0b10)).unwrap();
    replica.step(ReplicaEvent::View(&alone), &mut notes);
    assert_eq!(notes.answered[1..], [(Ticket(2), 1)]);
    let holds = after(&alone, &[RowStep::Hold(NodeId(2))], NodeSet::NONE);
    replica.step(ReplicaEvent::View(&holds), &mut notes);
    replica.step(ReplicaEvent::Closed(SLICE), &mut notes);
    replica.step(ReplicaEvent::Scanned(SLICE, &[], true), &mut notes);
    replica.step(
        ReplicaEvent::Message(NodeId(2), &applied(u64::MAX)),
        &mut notes,
    );
    let enter = RowStep::Enter(NodeId(2));
    assert_eq!(notes.proposed.last().map(|one| one.step), Some(enter));
    replica.step(request(3, Access::Update), &mut notes);
    assert_eq!(notes.answered.len(), 2, "it waits for the new holder");
    replica.step(
        ReplicaEvent::Message(NodeId(2), &applied(u64::MAX)),
        &mut notes,
    );
    assert_eq!(
        notes.answered[2..],
        [(Ticket(3), 1)],
        "which is not in sync yet"
    );
    let entered = after(&holds, &[enter], NodeSet::NONE);
    replica.step(ReplicaEvent::View(&entered), &mut notes);
    replica.step(request(4, Access::Update), &mut notes);
    replica.step(
        ReplicaEvent::Message(NodeId(2), &applied(u64::MAX)),
        &mut notes,
    );
    assert_eq!(notes.answered[3..], [(Ticket(4), 2)]);
}

/// A worker that executed many writes in a turn, beside the machine, gave versions later than that
/// of a flush which came after them: most of the items stayed. At a follower, an item that is later
/// than the flush may have travelled with an earlier change, and stays.
#[test]
fn a_flush_removes_what_is_there_whatever_its_version() {
    let view = SliceView::first(ViewNumber(1), nodes(0b11), 1, 2);
    let (mut replica, mut notes) = (machine(0), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    replica.step(ReplicaEvent::Message(NodeId(1), &tail(1)), &mut notes);
    notes.cleared.clear();
    notes.take_sent();
    replica.step(ReplicaEvent::Flush(SliceId(0), Ticket(1)), &mut notes);
    assert_eq!(notes.cleared, [None]);
    let (mut follower, mut others) = (machine(1), Notes::default());
    follower.step(ReplicaEvent::View(&view), &mut others);
    others.cleared.clear();
    let mut version = None;
    for (_, message) in notes.take_sent() {
        if let ReplicaMessage::Append(append) = &message {
            version = Some(append.change.version);
            follower.step(ReplicaEvent::Message(NodeId(0), &message), &mut others);
        }
    }
    assert!(version.is_some());
    assert_eq!(others.cleared, [version]);
}

/// Goal: of a write to the copy of a hot key, too, the client learns how many nodes in sync have
/// it. Method: the primary acknowledges such a write when its follower has it, and says how many
/// there are; the writer answers with what the primary said, not another member.
#[test]
fn the_writer_of_a_hot_key_answers_with_the_count_of_the_primary() {
    let (mut replica, mut notes, view) = primary_of_a_hot_key(0b111, 2);
    let follower = view.row(SLICE).unwrap().followers().first().unwrap();
    let writer = nodes(0b110).without(follower).first().unwrap();
    notes.take_sent();
    let write = copy(1, 1_000, CopyKind::Invalidate);
    replica.step(ReplicaEvent::Message(writer, &write), &mut notes);
    let acks = |notes: &mut Notes| -> Vec<u8> {
        let sent = notes.take_sent().into_iter();
        let acks = sent.filter_map(|(_, message)| match message {
            ReplicaMessage::Copy(one) if one.kind == CopyKind::Ack => Some(one.copies),
            _ => None,
        });
        acks.collect()
    };
    assert_eq!(acks(&mut notes), []);
    replica.step(ReplicaEvent::Message(follower, &applied(1)), &mut notes);
    assert_eq!(acks(&mut notes), [2]);
    replica.step(ReplicaEvent::Message(writer, &write), &mut notes);
    assert_eq!(acks(&mut notes), [2], "again");

    let (mut replica, mut notes) = (machine(writer.0), Notes::default());
    replica.step(ReplicaEvent::View(&view), &mut notes);
    for kind in [CopyKind::Install, CopyKind::Validate] {
        let message = copy(1, 10, kind);
        replica.step(ReplicaEvent::Message(NodeId(0), &message), &mut notes);
    }
    replica.step(request(1, Access::Replace), &mut notes);
    let version = notes.now;
    for (node, copies) in [(NodeId(0), 2), (follower, 0)] {
        let ack = ReplicaMessage::Copy(CopyMessage {
            view: ViewNumber(1),
            key: KEY,
            version: Cas(version),
            kind: CopyKind::Ack,
            copies,
        });
        replica.step(ReplicaEvent::Message(node, &ack), &mut notes);
    }
    assert_eq!(notes.answered, [(Ticket(1), 2)]);
}

/// Goal: a primary tells a removed node nothing of its write: it would forget that it took the
/// write as soon as the other members had dropped the key, and reject it when the node sends it
/// again; the node would then forward what has already been executed. Method: the primary takes a
/// write of a node, the next view is without this node, and the write arrives once more.
#[test]
fn a_late_write_of_a_removed_node_is_not_answered() {
    let (mut replica, mut notes, view) = primary_of_a_hot_key(0b111, 1);
    let write = copy(1, 1_000, CopyKind::Invalidate);
    replica.step(ReplicaEvent::Message(NodeId(2), &write), &mut notes);
    notes.take_sent();
    let to_writer = |notes: &mut Notes| {
        let sent = notes.take_sent().into_iter();
        let of_write = |message: &ReplicaMessage| match message {
            ReplicaMessage::Copy(one) => one.version == Cas(1_000),
            _ => false,
        };
        let answers = sent.filter(|(to, sent)| to.contains(NodeId(2)) && of_write(sent));
        answers.count()
    };
    let stays = view.renumbered(ViewNumber(2));
    replica.step(ReplicaEvent::View(&stays), &mut notes);
    to_writer(&mut notes);
    replica.step(ReplicaEvent::Message(NodeId(2), &write), &mut notes);
    assert_eq!(to_writer(&mut notes), 1, "a member that stays is answered");
    let removed = after(&stays, &[], nodes(0b100));
    replica.step(ReplicaEvent::View(&removed), &mut notes);
    to_writer(&mut notes);
    replica.step(ReplicaEvent::Message(NodeId(2), &write), &mut notes);
    assert_eq!(to_writer(&mut notes), 0);
    let joins = removed
        .next(&[], nodes(0b100), NodeSet::NONE)
        .expect("another view");
    replica.step(ReplicaEvent::View(&joins), &mut notes);
    to_writer(&mut notes);
    replica.step(ReplicaEvent::Message(NodeId(2), &write), &mut notes);
    assert_eq!(to_writer(&mut notes), 0, "nor when another life has joined");
}

/// Goal: under `sc` the copies of a key that is always being written are told of writes, and so
/// are the clients of their nodes. Method: each write is committed only after the next one has
/// begun. Without a limit something of the key would always be unfinished, and no round be sent.
#[test]
fn copies_hear_of_a_key_that_is_written_without_pause() {
    let view = SliceView::first(ViewNumber(1), nodes(0b111), 1, 2);
    let mut notes = Notes::default();
    let mut replica = Replica::new(ReplicaConfig {
        model: Model::Sc,
        waiting_max: 1_000,
        window_max: 1_000,
        ..machine(0).config
    });
    replica.step(ReplicaEvent::View(&view), &mut notes);
    let follower = view.row(SLICE).unwrap().followers().first().unwrap();
    replica.step(ReplicaEvent::Message(follower, &tail(1)), &mut notes);
    replica.step(ReplicaEvent::Heat(KEY, true), &mut notes);
    let version = notes.now;
    replica.step(ReplicaEvent::Closed(SLICE), &mut notes);
    for node in [NodeId(1), NodeId(2)] {
        let ack = copy(1, version, CopyKind::Ack);
        replica.step(ReplicaEvent::Message(node, &ack), &mut notes);
    }
    notes.take_sent();
    for ticket in 1..=100 {
        replica.step(request(ticket, Access::Update), &mut notes);
        let ran = notes.ran.len() as u64;
        let committed = applied(ran.saturating_sub(u64::from(ran == ticket)));
        replica.step(ReplicaEvent::Message(follower, &committed), &mut notes);
    }
    let updates = notes.take_sent().into_iter().filter(
        |(_, message)| matches!(message, ReplicaMessage::Copy(one) if one.kind == CopyKind::Update),
    );
    assert!(updates.count() >= 10);
}

/// Goal: a primary that has taken a slice over does not evict what it has seen no reads of, unless
/// it knows no other slice, and the store does not either. Method: one of two nodes dies; evictions
/// are asked for before and after its slice has been read for long enough.
#[test]
fn a_new_primary_spares_its_slice_until_it_has_seen_reads() {
    let view = SliceView::first(ViewNumber(1), nodes(0b11), 2, 2);
    assert_eq!(view.row(SLICE).unwrap().primary, NodeId(0));
    let (mut replica, mut notes) = (machine(0), Notes::default());
    let evictable = |replica: &mut Replica, notes: &mut Notes, now: u64| {
        notes.now = now;
        replica.step(ReplicaEvent::Tick, notes);
        let asked = ReplicaMessage::Evict(1);
        replica.step(ReplicaEvent::Message(NodeId(0), &asked), notes);
        notes.evictable.clone()
    };
    replica.step(ReplicaEvent::View(&view), &mut notes);
    replica.step(ReplicaEvent::Message(NodeId(1), &tail(1)), &mut notes);
    assert_eq!(evictable(&mut replica, &mut notes, 1), [SLICE]);
    notes.now = 10_000;
    let view = after(&view, &[], nodes(0b10));
    replica.step(ReplicaEvent::View(&view), &mut notes);
    assert_eq!(evictable(&mut replica, &mut notes, 10_500), [SLICE]);
    assert_eq!(notes.free, [SLICE].into());
    let both = [SLICE, SliceId(1)];
    assert_eq!(evictable(&mut replica, &mut notes, 20_000), both);
    assert_eq!(notes.free, both.into());
}

/// An answer of the primary waited without end for the update of the copy, and nothing woke the
/// machine: a link may break between the two, while the nodes go on by the lease of the store.
/// Method: a copy hears of no later write; a write and a read are answered, and time passes; then
/// more answers than may wait.
#[test]
fn an_answer_waits_for_its_copy_only_as_long_as_other_requests_do() {
    let view = SliceView::first(ViewNumber(1), nodes(0b111), 1, 1);
    let mut notes = Notes::default();
    let mut replica = Replica::new(ReplicaConfig {
        model: Model::Sc,
        ..machine(2).config
    });
    replica.step(ReplicaEvent::View(&view), &mut notes);
    let answered = |replica: &mut Replica, notes: &mut Notes, ticket, access, version| {
        replica.step(request(ticket, access), notes);
        let answer = ReplicaEvent::Answered(NodeId(0), Ticket(ticket), Ok(Cas(version)));
        replica.step(answer, notes);
    };
    for kind in [CopyKind::Install, CopyKind::Validate] {
        let message = copy(1, 10, kind);
        replica.step(ReplicaEvent::Message(NodeId(0), &message), &mut notes);
    }
    answered(&mut replica, &mut notes, 1, Access::Update, 10);
    assert_eq!(notes.answered, [(Ticket(1), 0)], "the copy shows as much");
    answered(&mut replica, &mut notes, 2, Access::Update, 20);
    replica.step(
        ReplicaEvent::Message(NodeId(0), &copy(1, 20, CopyKind::Update)),
        &mut notes,
    );
    assert_eq!(notes.answered[1..], [(Ticket(2), 0)], "now it does");
    answered(&mut replica, &mut notes, 3, Access::Update, 30);
    notes.now += 999_000;
    replica.step(ReplicaEvent::Tick, &mut notes);
    assert_eq!(notes.refused, []);
    notes.now += 1_000;
    assert!(replica.deadline().is_some_and(|due| due.ns <= notes.now));
    replica.step(ReplicaEvent::Tick, &mut notes);
    assert_eq!(notes.refused, [(Ticket(3), ReplicaRefusal::Unknown)]);
    replica.step(ReplicaEvent::Tick, &mut notes);
    assert_eq!(replica.deadline(), None, "nothing waits any more");
    for ticket in 4..=14 {
        answered(&mut replica, &mut notes, ticket, Access::Update, 40);
    }
    assert_eq!(notes.refused[1..], [(Ticket(14), ReplicaRefusal::Unknown)]);
    assert_eq!(notes.answered.len(), 2);
}
