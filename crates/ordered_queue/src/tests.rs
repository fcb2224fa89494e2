//! The queue by example, and by thousands of small random runs with a lossy network, crashes, and
//! planted faults that must be found.

#![allow(
    clippy::unwrap_used,
    reason = "a queue that makes no sense fails the test"
)]

use alloc::{boxed::Box, vec, vec::Vec};

use curtail_dispatch::Worker;

use super::*;
use crate::sync::AtomicU64;

mod abi;
mod world;

/// The memory of two queues of four slots, sixteen stamps and four sessions.
struct Memory {
    queues: [Box<[AtomicU64]>; 2],
    stamps: Box<[AtomicU64]>,
    sessions: Box<[AtomicU64]>,
}

const SLOTS: u64 = 4;

impl Memory {
    fn new() -> Self {
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        Self {
            queues: [(); 2].map(|()| words(layout::queue_words(SLOTS))),
            stamps: words(16),
            sessions: words(4 * layout::SESSION_WORDS),
        }
    }

    fn queues(&self) -> [OrderedQueue<'_>; 2] {
        let queue = |words| OrderedQueue::format(words, SLOTS, 7);
        let queues = [queue(&self.queues[0]), queue(&self.queues[1])];
        for queue in queues {
            queue.set_state(QueueState::Open);
            queue.set_backlog_max(SLOTS);
            queue.grant_bytes(1 << 40);
        }
        queues
    }

    fn ingress<'a>(&'a self, queues: &'a [OrderedQueue<'a>]) -> Ingress<'a> {
        Ingress {
            queues,
            stamps: Stamps::new(&self.stamps),
            sessions: Sessions::new(&self.sessions),
            heartbeat_ns_max: 100,
        }
    }
}

const LIMITS: SessionLimits = SessionLimits {
    now_ns: 1000,
    lease_ns: 500,
    per_address: 2,
};

fn peer(number: u64) -> Peer {
    Peer {
        address: [0, number],
        port: 4000,
    }
}

fn grant(sessions: Sessions<'_>, number: u64) -> SessionName {
    sessions
        .grant(peer(number), 1, LIMITS, number, |index, generation| {
            u64::from(index) << 32 | u64::from(generation) | 1 << 63
        })
        .unwrap()
}

/// A set of `key`, whose hash begins with it, by the first client.
fn set<'a>(session: SessionName, sequence: u64, key: u8, payload: &'a [u8]) -> Arrival<'a> {
    Arrival {
        session,
        peer: peer(1),
        slot: 0,
        sequence,
        nilext: true,
        kind: EntryKind::Set,
        key_hash: u64::from(key) << 56,
        arrived_ns: 5,
        payload,
        key_at: 0,
        key_bytes: 1,
        opcode_and_flags: (8, 1),
        rx_queue: 0,
    }
}

fn drain(queue: &OrderedQueue<'_>) -> (Vec<(u64, Vec<u8>)>, Drained) {
    let mut lease = queue.take_lease(Worker(1)).unwrap();
    let mut applied = Vec::new();
    let drained = Turn::new().run(&mut lease, TURN_MAX, None, |step| {
        if let TurnStep::Apply(entry) = step {
            let mut payload = vec![0; layout::PAYLOAD_BYTES_MAX];
            let bytes = entry.copy_payload(&mut payload).unwrap();
            applied.push((entry.pos(), payload[..bytes].to_vec()));
        }
    });
    (applied, drained)
}

/// Goal: Figure 1 and the three cases of the proof (JB-11): set(k, v1), set(k, v2), get(k) is v2,
/// whether the get is answered from the queue or waits for the store.
#[test]
fn a_read_after_two_accepted_sets_sees_the_second() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let session = grant(ingress.sessions, 1);
    let admit = |sequence, payload: &[u8]| ingress.admit(&set(session, sequence, 3, payload), 0);
    assert_eq!(admit(1, b"\x03one"), Verdict::Accepted(0));
    assert_eq!(admit(2, b"\x03two"), Verdict::Accepted(1));
    let stamp = ingress.stamps.stamp(3 << 56);
    assert_eq!(stamp, 2);
    let mut out = [0; layout::PAYLOAD_BYTES_MAX];
    let found = queues[0].forward(stamp, 3 << 56, b"\x03", &mut out);
    let expected = Forward::Payload {
        bytes: 4,
        arrived_ns: 5,
        pos: 1,
    };
    assert_eq!((found, &out[..4]), (expected, &b"\x03two"[..]));
    assert_eq!(
        queues[0].forward(stamp, 3 << 56, b"\x04", &mut out),
        Forward::Wait
    );
    assert!(!queues[0].has_reached(stamp));
    let (applied, drained) = drain(&queues[0]);
    assert_eq!(applied, [(1, b"\x03two".to_vec())], "the first is covered");
    assert_eq!((drained.entries, drained.stop), (2, TurnEnd::Unpublished));
    assert_eq!(
        queues[0].forward(stamp, 3 << 56, b"\x03", &mut out),
        Forward::Executed
    );
}

/// Goal: what is not nilext is not acknowledged before it is executed, and comes after what was
/// accepted before it (cases 2 and 3 of the proof).
#[test]
fn what_is_not_nilext_is_answered_after_it_is_executed_in_order() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let session = grant(ingress.sessions, 1);
    assert_eq!(
        ingress.admit(&set(session, 1, 3, b"\x03one"), 0),
        Verdict::Accepted(0)
    );
    let asks = Arrival {
        nilext: false,
        kind: EntryKind::Write,
        ..set(session, 2, 3, b"\x03two")
    };
    assert_eq!(ingress.admit(&asks, 0), Verdict::Queued(1));
    assert_eq!(ingress.admit(&asks, 0), Verdict::Replay(Some(1)));
    let mut lease = queues[0].take_lease(Worker(0)).unwrap();
    let mut steps = Vec::new();
    Turn::new().run(&mut lease, TURN_MAX, None, |step| {
        steps.push(match step {
            TurnStep::Apply(entry) => ('a', entry.pos()),
            TurnStep::Answer(entry) => ('r', entry.pos()),
        });
    });
    assert_eq!(steps, [('a', 0), ('a', 1), ('r', 1)]);
}

/// Goal: a hole is waited for. Method: a later entry is published first.
#[test]
fn a_hole_is_not_skipped() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let session = grant(ingress.sessions, 1);
    let late = queues[0].reserve(4, true).unwrap();
    assert_eq!(
        ingress.admit(&set(session, 1, 3, b"\x03two"), 0),
        Verdict::Accepted(1)
    );
    let (applied, drained) = drain(&queues[0]);
    assert_eq!((applied.len(), drained.stop), (0, TurnEnd::Hole));
    assert!(queues[0].fill(&late, &set(session, 2, 3, b"\x03one")));
    queues[0].publish(&late);
    let (applied, _) = drain(&queues[0]);
    assert_eq!(applied, [(1, b"\x03two".to_vec())]);
}

/// Goal: an entry whose producer rang before the one ahead of it did is not slept over. Method:
/// both are published, the first is executed, and rings only then: the bell says that all is
/// executed. Who asks again and again believes that for a while; who is about to sleep does not.
#[test]
fn a_bell_that_was_rung_late_is_not_slept_over() {
    let memory = Memory::new();
    let queues = memory.queues();
    let queue = &queues[0];
    let session = grant(memory.ingress(&queues).sessions, 1);
    for (sequence, payload) in [(1, b"\x03one"), (2, b"\x04two")] {
        let place = queue.reserve(4, true).unwrap();
        assert!(queue.fill(&place, &set(session, sequence, payload[0], payload)));
        queue.publish(&place);
    }
    let mut lease = queue.take_lease(Worker(1)).unwrap();
    let drained = Turn::new().run(&mut lease, 1, None, |_| {});
    drop(lease);
    assert_eq!(drained.entries, 1);
    queue.ring(0);
    let mut listener = BellListener::new();
    assert!(!queue.has_news(&mut listener), "the bell is believed");
    assert!(queue.has_news_after_all(&mut listener));
    assert_eq!(drain(queue).0, [(1, b"\x04two".to_vec())]);
    assert!(!queue.has_news_after_all(&mut listener));
    assert!(
        !queue.has_news_after_all(&mut listener),
        "nor when asked again"
    );
    let mut asked = BellListener::new();
    let place = queue.reserve(4, true).unwrap();
    assert!(queue.fill(&place, &set(session, 3, 3, b"\x03six")));
    queue.publish(&place);
    queue.ring(1);
    let heard = (0..1000).position(|_| queue.has_news(&mut asked));
    assert!(heard.is_some_and(|times| times > 0), "{heard:?}");
}

/// Goal: a request that comes again has no second place, whatever became of the first.
#[test]
fn a_request_that_comes_again_has_no_second_place() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let session = grant(ingress.sessions, 1);
    let admit = |sequence, payload: &[u8]| ingress.admit(&set(session, sequence, 3, payload), 0);
    let first = set(session, 5, 3, b"\x03one");
    assert_eq!(ingress.admit(&first, 0), Verdict::Accepted(0));
    assert_eq!(ingress.admit(&first, 0), Verdict::Repeated(0));
    drain(&queues[0]);
    assert_eq!(ingress.admit(&first, 0), Verdict::Repeated(0));
    assert_eq!(admit(4, b"\x03old"), Verdict::Dropped);
    let Claim::Granted(ticket) = ingress.sessions.claim(session, peer(1), 0, 9) else {
        panic!("9 is new");
    };
    assert_eq!(admit(9, b"\x03one"), Verdict::Dropped);
    assert_eq!(admit(10, b"\x03one"), Verdict::Dropped);
    ingress.sessions.reopen(ticket);
    assert_eq!(admit(9, b"\x03one"), Verdict::Accepted(1));
    assert_eq!(queues[0].backlog().tail, 2);
}

/// Goal: a full queue refuses and forgets, and positions go on through many laps.
#[test]
fn a_full_queue_refuses_and_the_same_number_is_taken_later() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let session = grant(ingress.sessions, 1);
    for lap in 0..5 {
        for sequence in 1..=SLOTS {
            let verdict = ingress.admit(&set(session, lap * 100 + sequence, 3, b"\x03v"), 0);
            assert_eq!(verdict, Verdict::Accepted(lap * SLOTS + sequence - 1));
        }
        let over = set(session, lap * 100 + 50, 3, b"\x03w");
        assert_eq!(ingress.admit(&over, 0), Verdict::Full);
        assert_eq!(queues[0].backlog().free, 0);
        let (_, drained) = drain(&queues[0]);
        assert_eq!(drained.entries, SLOTS);
    }
    assert_eq!(queues[0].counts(), [20, 0, 5]);
}

/// Goal: early acknowledgement stops at the backlog's limit, without memory, when draining, and
/// everything stops when the queue is closed or the server is gone (JB-44, JB-48 a, JB-50).
#[test]
fn limits_of_early_acknowledgement() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let session = grant(ingress.sessions, 1);
    let admit = |sequence, payload: &[u8]| ingress.admit(&set(session, sequence, 3, payload), 0);
    queues[0].set_backlog_max(1);
    assert_eq!(admit(1, b"\x03v"), Verdict::Accepted(0));
    assert_eq!(admit(2, b"\x03v"), Verdict::Queued(1));
    assert_eq!(admit(2, b"\x03v"), Verdict::Replay(Some(1)));
    drain(&queues[0]);
    queues[0].set_backlog_max(SLOTS);
    queues[0].set_state(QueueState::Draining);
    assert_eq!(admit(3, b"\x03v"), Verdict::Queued(2));
    queues[0].set_state(QueueState::Closed);
    assert_eq!(admit(4, b"\x03v"), Verdict::NotReady);
    queues[0].set_state(QueueState::Open);
    assert_eq!(
        ingress.admit(&set(session, 4, 3, b"\x03v"), 101),
        Verdict::Absent
    );
    queues[0].beat(50);
    let long = vec![3; layout::PAYLOAD_BYTES_MAX + 1];
    assert_eq!(
        ingress.admit(&set(session, 4, 3, &long), 101),
        Verdict::TooLarge
    );
    assert_eq!(
        ingress.admit(&set(session, 4, 3, b"\x03v"), 101),
        Verdict::Accepted(4)
    );
    let poor = [queues[0], OrderedQueue::format(&memory.queues[1], SLOTS, 7)];
    poor[1].set_state(QueueState::Open);
    poor[1].set_backlog_max(SLOTS);
    poor[1].grant_bytes(3);
    let ingress = memory.ingress(&poor);
    let other = |sequence| set(session, sequence, 0x83, b"\x83v");
    assert_eq!(ingress.admit(&other(5), 0), Verdict::Accepted(0));
    assert_eq!(
        ingress.admit(&other(6), 0),
        Verdict::Queued(1),
        "one byte is left"
    );
    poor[1].grant_bytes(layout::BYTES_UNLIMITED);
    for sequence in 7..9 {
        let pos = sequence - 5;
        assert_eq!(ingress.admit(&other(sequence), 0), Verdict::Accepted(pos));
    }
    assert_eq!(poor[1].counts(), [3, 1, 0]);
}

/// Goal: memory credits come back with what is executed, exactly, whatever of it was acknowledged
/// (JB-44). Method: laps of a queue with credits for two writes.
#[test]
fn memory_credits_come_back_with_execution() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let session = grant(ingress.sessions, 1);
    queues[0].set_credits(5);
    for lap in 0..5 {
        let admit = |index| ingress.admit(&set(session, lap * 10 + index, 3, b"\x03v"), 0);
        assert_eq!(admit(1), Verdict::Accepted(lap * 3));
        assert_eq!(admit(2), Verdict::Accepted(lap * 3 + 1));
        assert_eq!(admit(3), Verdict::Queued(lap * 3 + 2), "one byte is left");
        assert_eq!(
            (queues[0].credits(), queues[0].accepted_bytes()),
            (Some(1), 4)
        );
        let (_, drained) = drain(&queues[0]);
        assert_eq!((drained.entries, drained.accepted_bytes), (3, 4));
        assert_eq!(queues[0].accepted_bytes(), 0);
        queues[0].grant_bytes(drained.accepted_bytes);
        assert_eq!(queues[0].credits(), Some(5));
    }
    queues[0].set_credits(2 * layout::BYTES_UNLIMITED);
    assert_eq!(queues[0].credits(), None, "not counted");
}

/// Goal: sessions belong to an address, end with their lease or their client, and come back under
/// another generation; granting twice for one nonce gives one session.
#[test]
fn sessions_are_granted_leased_closed_and_not_mixed_up() {
    let memory = Memory::new();
    let sessions = Sessions::new(&memory.sessions);
    let first = grant(sessions, 1);
    assert_eq!(grant(sessions, 1), first, "the same nonce");
    let token = |_, generation| u64::from(generation);
    let second = sessions.grant(peer(1), 2, LIMITS, 1, token).unwrap();
    assert_ne!(second.index, first.index);
    let third = sessions.grant(peer(1), 3, LIMITS, 1, token);
    assert_eq!(third, Err(GrantError::Address));
    for other in [2, 3] {
        grant(sessions, other);
    }
    assert_eq!(
        sessions.grant(peer(4), 1, LIMITS, 1, token),
        Err(GrantError::Full)
    );
    let wrong = [
        (SessionName { token: 1, ..first }, peer(1)),
        (
            SessionName {
                generation: 2,
                ..first
            },
            peer(1),
        ),
        (SessionName { index: 99, ..first }, peer(1)),
        (first, peer(2)),
    ];
    for (name, peer) in wrong {
        assert_eq!(sessions.claim(name, peer, 0, 1), Claim::Unknown);
    }
    assert!(!sessions.close(first, peer(2)));
    let Claim::Granted(held) = sessions.claim(first, peer(1), 0, 7) else {
        panic!("7 is new");
    };
    assert!(sessions.close(first, peer(1)));
    let full = sessions.grant(peer(4), 1, LIMITS, 1, token);
    assert_eq!(full, Err(GrantError::Full), "a claim is under way in it");
    sessions.commit(held, 3, true);
    let again = sessions.grant(peer(4), 1, LIMITS, 1, token).unwrap();
    assert_eq!(
        (again.index, again.generation),
        (first.index, first.generation + 1)
    );
    sessions.commit(held, 4, true);
    assert_eq!(
        sessions.slot(again.index, 0),
        (SlotState::Open, 0),
        "a late commit"
    );
    assert_eq!(sessions.claim(first, peer(1), 0, 8), Claim::Unknown);
    let later = SessionLimits {
        now_ns: 1400,
        ..LIMITS
    };
    sessions.renew(again, later);
    let much_later = SessionLimits {
        now_ns: 1600,
        ..LIMITS
    };
    let taken = sessions.grant(peer(5), 1, much_later, 1, token).unwrap();
    assert_ne!(taken.index, again.index, "renewed");
}

#[test]
fn a_queue_is_opened_only_as_what_it_is() {
    let memory = Memory::new();
    let words = &memory.queues[0];
    assert_eq!(OrderedQueue::open(words).err(), Some(OpenError::Unknown));
    let made = OrderedQueue::format(words, SLOTS, 9);
    made.raise_durable_pos(5);
    made.raise_durable_pos(3);
    let opened = OrderedQueue::open(words).unwrap();
    assert_eq!((opened.incarnation(), opened.durable_pos()), (9, 5));
    let short = &words[..words.len() - 1];
    assert_eq!(OrderedQueue::open(short).err(), Some(OpenError::Length));
}

/// Goal: one executor at a time; a lease that was seized moves nothing.
#[test]
#[should_panic(expected = "executed by two")]
fn a_seized_lease_moves_nothing() {
    let memory = Memory::new();
    let queues = memory.queues();
    let mut lease = queues[0].take_lease(Worker(1)).unwrap();
    assert!(queues[0].take_lease(Worker(2)).is_none());
    assert_eq!(queues[0].lease_holder(), Some(Worker(1)));
    let _seized = queues[0].seize_lease(Worker(2));
    lease.advance(1);
}

/// Goal: of a run of sets the last is applied, each is answered after it, and another operation on
/// the key ends the run; other keys of the same bucket and hash are left alone.
#[test]
fn runs_of_sets_are_compacted() {
    let memory = Memory::new();
    let words: Box<[AtomicU64]> = (0..layout::queue_words(16))
        .map(|_| AtomicU64::new(0))
        .collect();
    let queue = [OrderedQueue::format(&words, 16, 1)];
    queue[0].set_state(QueueState::Open);
    let ingress = memory.ingress(&queue);
    let session = grant(ingress.sessions, 1);
    let entries: [(&[u8], EntryKind); 7] = [
        (b"a1", EntryKind::Set),
        (b"b1", EntryKind::Set),
        (b"a2", EntryKind::Set),
        (b"a3", EntryKind::Write),
        (b"a4", EntryKind::Set),
        (b"a5", EntryKind::Set),
        (b"b2", EntryKind::Write),
    ];
    for (sequence, (payload, kind)) in (1..).zip(entries) {
        let arrival = Arrival {
            kind,
            ..set(session, sequence, 3, payload)
        };
        assert_eq!(ingress.admit(&arrival, 0), Verdict::Queued(sequence - 1));
    }
    let mut lease = queue[0].take_lease(Worker(0)).unwrap();
    let (mut applied, mut answered) = (Vec::new(), Vec::new());
    Turn::new().run(&mut lease, TURN_MAX, None, |step| match step {
        TurnStep::Apply(entry) => applied.push(entry.pos()),
        TurnStep::Answer(entry) => {
            answered.push(entry.pos());
            let covering = applied.iter().any(|pos| *pos >= entry.pos());
            assert!(covering, "answered before it is visible");
        }
    });
    assert_eq!(applied, [1, 2, 3, 5, 6]);
    answered.sort_unstable();
    assert_eq!(answered, [0, 1, 2, 3, 4, 5, 6]);
}

/// Goal: a producer that stops after any of its steps loses nothing that was acknowledged, and
/// doubles nothing (JB-48). Method: stop after each, let the executor go on or not, recover, send
/// the request again as its client would.
#[test]
fn a_producer_may_stop_after_any_step() {
    for stop_after in 1..=6 {
        for executor_goes_on in [false, true] {
            let memory = Memory::new();
            let queues = memory.queues();
            let ingress = memory.ingress(&queues);
            let session = grant(ingress.sessions, 1);
            let request = set(session, 1, 3, b"\x03one");
            ingress.stop_after(stop_after, &request);
            let mut times = 0;
            if executor_goes_on {
                times += settled_drain(&queues[0], ingress.sessions);
            }
            core::mem::forget(queues[0].take_lease(Worker(9)));
            let found = recover(&queues, ingress.stamps, ingress.sessions, Worker(1));
            assert_eq!(
                found.holes,
                u64::from((2..=3).contains(&stop_after)),
                "{stop_after}"
            );
            assert_eq!(found.claims, u64::from(stop_after <= 3), "{stop_after}");
            let verdict = ingress.admit(&request, 0);
            let is_new = stop_after <= 3;
            assert_eq!(
                is_new,
                matches!(verdict, Verdict::Accepted(_)),
                "{verdict:?}"
            );
            assert_eq!(!is_new, verdict == Verdict::Repeated(0), "{verdict:?}");
            assert!(ingress.stamps.stamp(3 << 56) > 0 || executor_goes_on);
            times += settled_drain(&queues[0], ingress.sessions);
            assert_eq!(times, 1, "stopped after step {stop_after}");
        }
    }
}

fn settled_drain(queue: &OrderedQueue<'_>, sessions: Sessions<'_>) -> usize {
    let mut times = 0;
    let mut lease = queue.take_lease(Worker(1)).unwrap();
    Turn::new().run(&mut lease, TURN_MAX, Some(sessions), |step| {
        times += usize::from(matches!(step, TurnStep::Apply(_)));
    });
    times
}

/// Goal: a request that was executed past the queues has no position, and no late commit of an
/// earlier one gives it that one's. Method: a claimant stops after its entry is published, which an
/// executor settles; then the slot's next request goes past the queues, before and after as well.
#[test]
fn a_request_past_the_queues_has_no_position() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let sessions = ingress.sessions;
    let session = grant(sessions, 1);
    let claim = |sequence| match sessions.claim(session, peer(1), 0, sequence) {
        Claim::Granted(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    sessions.commit_executed(claim(1));
    let late = claim(2);
    let entry = set(session, 2, 3, b"\x03two");
    let place = queues[0].reserve(4, false).unwrap();
    assert!(queues[0].fill(&place, &entry));
    queues[0].publish(&place);
    assert_eq!(settled_drain(&queues[0], sessions), 1);
    assert_eq!(ingress.admit(&entry, 0), Verdict::Replay(Some(0)));
    sessions.commit_executed(claim(3));
    sessions.commit(late, 0, false);
    let third = set(session, 3, 3, b"\x03three");
    assert_eq!(ingress.admit(&third, 0), Verdict::Replay(None));
}

/// Goal: the request of an entry that had no effect may come again, unless it was acknowledged or
/// is over. Method: an executor reopens each entry that it would execute; the claimant of one has
/// stopped before it committed.
#[test]
fn an_entry_without_effect_may_come_again() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let session = grant(ingress.sessions, 1);
    let drain = || {
        let mut lease = queues[0].take_lease(Worker(0)).unwrap();
        Turn::new().run(&mut lease, TURN_MAX, Some(ingress.sessions), |step| {
            if let TurnStep::Apply(entry) = step {
                ingress.sessions.reopen_entry(&entry);
            }
        });
    };
    let unmarked = |sequence| Arrival {
        nilext: false,
        ..set(session, sequence, 3, b"\x03v")
    };
    assert_eq!(ingress.admit(&unmarked(1), 0), Verdict::Queued(0));
    assert_eq!(ingress.admit(&unmarked(1), 0), Verdict::Replay(Some(0)));
    drain();
    assert_eq!(ingress.admit(&unmarked(1), 0), Verdict::Queued(1));
    assert_eq!(ingress.admit(&unmarked(2), 0), Verdict::Queued(2));
    drain();
    assert_eq!(ingress.admit(&unmarked(1), 0), Verdict::Dropped);
    assert_eq!(ingress.admit(&unmarked(2), 0), Verdict::Queued(3));
    let marked = set(session, 3, 3, b"\x03v");
    assert_eq!(ingress.admit(&marked, 0), Verdict::Accepted(4));
    drain();
    assert_eq!(ingress.admit(&marked, 0), Verdict::Repeated(4));
    ingress.stop_after(5, &unmarked(4));
    assert_eq!(ingress.admit(&unmarked(4), 0), Verdict::Dropped);
    drain();
    assert_eq!(ingress.admit(&unmarked(4), 0), Verdict::Queued(6));
}

/// Goal: who takes over after an executor that died does not reopen a request that has another
/// place by now: it would be executed twice. Method: the entry at head is reopened, its request is
/// queued again, and the entry is found damaged once more.
#[test]
fn a_reopened_entry_that_is_found_again_opens_nothing() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let session = grant(ingress.sessions, 1);
    let write = Arrival {
        nilext: false,
        ..set(session, 1, 3, b"\x03v")
    };
    assert_eq!(ingress.admit(&write, 0), Verdict::Queued(0));
    let reopen = || {
        let first = queues[0].entry(0).unwrap();
        ingress.sessions.settle(&first);
        ingress.sessions.reopen_entry(&first);
    };
    reopen();
    reopen();
    assert_eq!(ingress.admit(&write, 0), Verdict::Queued(1));
    reopen();
    recover(&queues, ingress.stamps, ingress.sessions, Worker(1));
    reopen();
    assert_eq!(ingress.admit(&write, 0), Verdict::Replay(Some(1)));
}

/// Goal: a claimant that stopped before it committed does not commit the next claim of its request.
/// Method: its entry is settled and reopened; the request is claimed again, and then it goes on.
#[test]
fn a_late_commit_leaves_the_next_claim_of_its_request() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let sessions = ingress.sessions;
    let session = grant(sessions, 1);
    let claim = || match sessions.claim(session, peer(1), 0, 1) {
        Claim::Granted(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    let late = claim();
    let write = Arrival {
        nilext: false,
        ..set(session, 1, 3, b"\x03v")
    };
    let place = queues[0].reserve(4, false).unwrap();
    assert!(queues[0].fill(&place, &write));
    queues[0].publish(&place);
    let first = queues[0].entry(0).unwrap();
    sessions.settle(&first);
    sessions.reopen_entry(&first);
    let next = claim();
    sessions.commit(late, 0, false);
    assert_eq!(ingress.admit(&write, 0), Verdict::Dropped);
    sessions.reopen(next);
    assert_eq!(ingress.admit(&write, 0), Verdict::Queued(1));
}

/// Goal: a write that may not be accepted when it has its place leaves its claim to its claimant,
/// who can have it executed otherwise, and an entry that settles nobody's claim.
#[test]
fn a_write_that_may_not_be_accepted_keeps_its_claim() {
    let memory = Memory::new();
    let queues = memory.queues();
    let ingress = memory.ingress(&queues);
    let name = grant(ingress.sessions, 1);
    let payload = [1; 16];
    let arrival = |sequence| Arrival {
        session: name,
        peer: peer(1),
        slot: 2,
        sequence,
        nilext: true,
        kind: EntryKind::Set,
        key_hash: 5,
        arrived_ns: 0,
        payload: &payload,
        key_at: 0,
        key_bytes: 1,
        opcode_and_flags: (8, 1),
        rx_queue: 0,
    };
    let claim = |sequence| match ingress.sessions.claim(name, peer(1), 2, sequence) {
        Claim::Granted(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    let lease_and_run = || {
        let mut lease = queues[0].take_lease(Worker(0)).unwrap();
        let mut applied = 0;
        Turn::new().run(&mut lease, TURN_MAX, Some(ingress.sessions), |step| {
            applied += u64::from(matches!(step, TurnStep::Apply(_)));
        });
        applied
    };
    for lap in 0..2 * SLOTS {
        let sequence = 2 * lap + 1;
        let ticket = claim(sequence);
        assert_eq!(
            ingress.accept(&arrival(sequence), ticket, 0, || false),
            None
        );
        assert_eq!(lease_and_run(), 0, "a no-op");
        let state = ingress.sessions.slot(name.index, 2);
        assert_eq!(state, (SlotState::Claimed, sequence));
        ingress.sessions.commit_executed(ticket);
        let ticket = claim(sequence + 1);
        let accepted = ingress.accept(&arrival(sequence + 1), ticket, 0, || true);
        assert_eq!(accepted, Some(2 * lap + 1));
        assert_eq!(lease_and_run(), 1);
        let again = ingress.sessions.claim(name, peer(1), 2, sequence + 1);
        assert_eq!(
            again,
            Claim::Repeated {
                pos: Some(2 * lap + 1),
                accepted: true
            }
        );
    }
    queues[0].set_state(QueueState::Draining);
    let ticket = claim(1000);
    assert_eq!(
        ingress.accept(&arrival(1000), ticket, 0, || true),
        None,
        "draining"
    );
    queues[0].set_state(QueueState::Open);
    assert_eq!(
        ingress.accept(&arrival(1000), ticket, 101, || true),
        None,
        "no heartbeat"
    );
    assert_eq!(queues[0].backlog().tail, 4 * SLOTS, "neither took a place");
}
