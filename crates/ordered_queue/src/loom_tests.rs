//! Every interleaving of a few producers, an executor and a read, with stops at every step.

#![allow(
    clippy::unwrap_used,
    reason = "a queue that makes no sense fails the test"
)]

use alloc::{boxed::Box, vec::Vec};

use curtail_dispatch::Worker;
use loom::{sync::Arc, thread};

use super::*;
use crate::sync::{AtomicU64, Ordering};

struct Memory {
    queue: Box<[AtomicU64]>,
    stamps: Box<[AtomicU64]>,
    sessions: Box<[AtomicU64]>,
    /// Set when the first producer has its acknowledgement.
    accepted: AtomicU64,
}

impl Memory {
    fn new(slots: u64) -> Arc<Self> {
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        let memory = Self {
            queue: words(layout::queue_words(slots)),
            stamps: words(layout::STAMP_WORDS),
            sessions: words(2 * layout::SESSION_WORDS),
            accepted: AtomicU64::new(0),
        };
        let queue = OrderedQueue::format(&memory.queue, slots, 7);
        queue.set_state(QueueState::Open);
        queue.set_backlog_max(slots);
        queue.grant_bytes(1000);
        for number in 0..2 {
            let limits = SessionLimits {
                now_ns: 0,
                lease_ns: 1000,
                per_address: 1,
            };
            let granted = Sessions::new(&memory.sessions).grant(
                peer(number),
                0,
                limits,
                number,
                |index, _| u64::from(index),
            );
            assert_eq!(granted.map(|name| u64::from(name.index)), Ok(number));
        }
        Arc::new(memory)
    }

    fn queue(&self) -> OrderedQueue<'_> {
        OrderedQueue::open(&self.queue).unwrap()
    }

    fn admit(&self, client: u64, steps: usize) -> Option<Verdict> {
        let queues = [self.queue()];
        let payload = payload(client);
        let arrival = arrival(client, &payload);
        let ingress = Ingress {
            queues: &queues,
            stamps: Stamps::new(&self.stamps),
            sessions: Sessions::new(&self.sessions),
            heartbeat_ns_max: 1,
        };
        if steps > 6 {
            return Some(ingress.admit(&arrival, 0));
        }
        ingress.stop_after(steps, &arrival);
        None
    }

    /// Publishes a write without a session.
    fn publish(&self, client: u64) {
        let queue = self.queue();
        let Some(reservation) = queue.reserve(16, true) else {
            panic!("there is room for two");
        };
        let payload = payload(client);
        let arrival = Arrival {
            kind: EntryKind::Write,
            ..arrival(client, &payload)
        };
        assert!(queue.fill(&reservation, &arrival));
        queue.publish(&reservation);
    }

    /// Executes the entry at head, if it is there; who was executed.
    fn execute_one(&self) -> Option<u64> {
        let queue = self.queue();
        let mut lease = queue.take_lease(Worker(0))?;
        let Peek::Entry(entry) = lease.peek(0) else {
            return None;
        };
        let number = whole(entry);
        lease.advance(1);
        Some(number)
    }

    /// Executes what it hears of, asking so often; who was executed.
    fn execute_heard(&self, listener: &mut BellListener, times: usize) -> Vec<u64> {
        let queue = self.queue();
        let mut turn = Turn::new();
        let mut executed = Vec::new();
        for _ in 0..times {
            if queue.has_news(listener) {
                let mut lease = queue.take_lease(Worker(0)).unwrap();
                turn.run(&mut lease, TURN_MAX, None, |step| {
                    if let TurnStep::Apply(entry) = step {
                        executed.push(whole(entry));
                    }
                });
            }
        }
        executed
    }

    /// Executes what is there; who was executed.
    fn execute(&self) -> Vec<u64> {
        let queue = self.queue();
        let mut executed = Vec::new();
        let Some(mut lease) = queue.take_lease(Worker(0)) else {
            return executed;
        };
        while let Peek::Entry(entry) = lease.peek(0) {
            if entry.kind() != EntryKind::Noop {
                executed.push(whole(entry));
            }
            Sessions::new(&self.sessions).settle(&entry);
            lease.advance(1);
        }
        executed
    }
}

fn peer(number: u64) -> Peer {
    Peer {
        address: [0, number],
        port: 1,
    }
}

/// Two words that say the same, so that a torn copy is seen.
fn payload(client: u64) -> [u8; 16] {
    let mut payload = [0; 16];
    payload[..8].copy_from_slice(&(client + 1).to_le_bytes());
    payload[8..].copy_from_slice(&(client + 1).to_le_bytes());
    payload
}

fn arrival(client: u64, payload: &[u8]) -> Arrival<'_> {
    Arrival {
        session: SessionName {
            index: client as u32,
            generation: 1,
            token: client,
        },
        peer: peer(client),
        slot: 0,
        sequence: 1,
        nilext: true,
        kind: EntryKind::Set,
        key_hash: 0,
        arrived_ns: 0,
        payload,
        key_at: 7,
        key_bytes: 1,
        opcode_and_flags: (8, 1),
        rx_queue: 0,
    }
}

fn whole(entry: QueueEntry<'_>) -> u64 {
    let mut out = [0; 16];
    assert_eq!(entry.copy_payload(&mut out), Some(16));
    number(&out)
}

fn number(payload: &[u8]) -> u64 {
    assert_eq!(payload[..8], payload[8..], "torn");
    u64::from(payload[0]) - 1
}

/// A thread beside that of the test.
fn beside<T: 'static>(
    memory: &Arc<Memory>,
    run: impl FnOnce(&Memory) -> T + 'static,
) -> thread::JoinHandle<T> {
    let memory = memory.clone();
    thread::spawn(move || run(&memory))
}

/// Two threads that do this, each with its number.
fn two_producers<T: 'static>(
    memory: &Arc<Memory>,
    produce: fn(&Memory, u64) -> T,
) -> Vec<thread::JoinHandle<T>> {
    let producer = |client| beside(memory, move |memory| produce(memory, client));
    (0..2).map(producer).collect()
}

fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// Goal: two producers and an executor lose and double nothing.
#[test]
fn loom_two_producers_and_an_executor() {
    model(3, || {
        let memory = Memory::new(2);
        let producers = two_producers(&memory, |memory, client| memory.admit(client, 7));
        let mut executed = memory.execute();
        for producer in producers {
            let verdict = producer.join().unwrap();
            assert!(matches!(verdict, Some(Verdict::Accepted(_))), "{verdict:?}");
        }
        executed.extend(memory.execute());
        executed.sort_unstable();
        assert_eq!(executed, [0, 1]);
    });
}

/// Goal: an executor that only listens to the bell misses no entry, in whatever order two producers
/// publish and ring, and one that sleeps when nothing is there after all has left no entry that was
/// published before. Method: it asks while they do. When both are done it asks on as often as its
/// patience lets it believe a bell that was rung too late, or after all, as often as there is
/// something.
#[test]
fn loom_an_executor_that_listens_misses_nothing() {
    for sleeps in [false, true] {
        model(3, move || {
            let memory = Memory::new(2);
            let producers = two_producers(&memory, |memory, client| memory.publish(client));
            let mut listener = BellListener::new();
            let mut executed = memory.execute_heard(&mut listener, 2);
            for producer in producers {
                producer.join().unwrap();
            }
            if !sleeps {
                executed.extend(memory.execute_heard(&mut listener, 5));
            }
            // One entry a turn, as often as there is one; then it sleeps.
            while sleeps && memory.queue().has_news_after_all(&mut listener) {
                executed.extend(memory.execute_one());
            }
            executed.sort_unstable();
            assert_eq!(executed, [0, 1]);
        });
    }
}

/// Goal: an entry is not left by both: not by its executor, who finds the lease held, to who holds
/// it, and not by that one, who helped and gives it back, to the executor. Method: both look once
/// more behind the fence, and then sleep; the entry must be executed.
#[test]
fn loom_an_entry_is_not_left_by_both() {
    model(4, || {
        let memory = Memory::new(2);
        let executor = beside(&memory, |memory| {
            memory.publish(0);
            let first = memory.execute();
            if !first.is_empty() {
                return first;
            }
            before_looking_again();
            memory.execute()
        });
        let mut executed = memory.execute();
        before_looking_again();
        if memory.queue().has_news_after_all(&mut BellListener::new()) {
            executed.extend(memory.execute());
        }
        executed.extend(executor.join().unwrap());
        assert_eq!(executed, [0]);
    });
}

/// Goal: two copies of one request take one place, at whatever step of the first the second comes,
/// and whether or not it is executed meanwhile.
#[test]
fn loom_a_request_and_its_copy_take_one_place() {
    model(3, || {
        let memory = Memory::new(2);
        let copies = two_producers(&memory, |memory, _| memory.admit(0, 7));
        let mut executed = memory.execute();
        let verdicts = copies.into_iter().map(|copy| copy.join().unwrap());
        let verdicts: Vec<_> = verdicts.collect();
        let accepted = verdicts
            .iter()
            .filter(|one| **one == Some(Verdict::Accepted(0)));
        assert_eq!(accepted.count(), 1, "{verdicts:?}");
        executed.extend(memory.execute());
        assert_eq!(executed, [0]);
    });
}

/// Grants somebody else the place of a session whose lease is over.
fn grant_anew(sessions: &Sessions<'_>) -> Result<SessionName, GrantError> {
    let limits = SessionLimits {
        now_ns: 5000,
        lease_ns: 1000,
        per_address: 1,
    };
    sessions.grant(peer(7), 1, limits, 0, |index, _| u64::from(index))
}

/// Goal: a claim that is under way while its session is given to somebody else leaves no trace.
/// Method: the place is granted anew beside a claim and commit of its former holder; then the new
/// holder's first request must be known under its own position.
#[test]
fn loom_a_session_that_changes_hands_is_not_written_by_its_former_holder() {
    model(3, || {
        let memory = Memory::new(1);
        let former = beside(&memory, |memory| {
            let sessions = Sessions::new(&memory.sessions);
            let name = arrival(0, &[]).session;
            if let Claim::Granted(ticket) = sessions.claim(name, peer(0), 0, 8) {
                sessions.commit(ticket, 5, true);
            }
        });
        let sessions = Sessions::new(&memory.sessions);
        let granted = grant_anew(&sessions);
        let is_first = granted.is_ok_and(|name| name.index == 0);
        if let (Ok(name), true) = (granted, is_first) {
            let Claim::Granted(ticket) = sessions.claim(name, peer(7), 0, 1) else {
                panic!("a new session knows no request");
            };
            sessions.commit(ticket, 9, true);
            let again = sessions.claim(name, peer(7), 0, 1);
            let expected = Claim::Repeated {
                pos: Some(9),
                accepted: true,
            };
            assert_eq!(again, expected);
        }
        former.join().unwrap();
    });
}

/// Goal: a session is not ended by who had its place before. Method: the place is granted anew
/// beside a close by its former holder; the new session must last.
#[test]
fn loom_a_session_is_not_ended_by_its_former_holder() {
    model(3, || {
        let memory = Memory::new(1);
        let former = beside(&memory, |memory| {
            let name = arrival(0, &[]).session;
            Sessions::new(&memory.sessions).close(name, peer(0));
        });
        let sessions = Sessions::new(&memory.sessions);
        let granted = grant_anew(&sessions);
        former.join().unwrap();
        assert!(granted.is_ok_and(|name| sessions.is_known(name, peer(7))));
    });
}

/// Goal: an executor that dies before or after it has executed an entry, and before it moved head,
/// leaves the entry to the next one, which is told a position that the store has seen or not.
#[test]
fn loom_an_executor_dies_and_the_next_one_goes_on() {
    for executes in [false, true] {
        model(3, move || {
            let memory = Memory::new(2);
            let producer = beside(&memory, |memory| memory.admit(0, 7));
            let mut store = None;
            let queue = memory.queue();
            let lease = queue.take_lease(Worker(0)).unwrap();
            if let (Peek::Entry(entry), true) = (lease.peek(0), executes) {
                store = Some(entry.pos());
            }
            core::mem::forget(lease);
            assert!(queue.take_lease(Worker(1)).is_none());
            // The kernel's program goes on admitting while the next process starts.
            let mut lease = queue.seize_lease(Worker(1));
            let mut executed = Vec::new();
            let mut drain = |executed: &mut Vec<u64>| {
                while let Peek::Entry(entry) = lease.peek(0) {
                    if store.is_none_or(|pos| pos < entry.pos()) {
                        store = Some(entry.pos());
                        executed.push(whole(entry));
                    }
                    lease.advance(1);
                }
            };
            drain(&mut executed);
            assert_eq!(producer.join().unwrap(), Some(Verdict::Accepted(0)));
            drain(&mut executed);
            assert_eq!(store, Some(0));
            assert!(executed.len() <= 1);
        });
    }
}

/// Goal: a producer that stops after any step, beside another one and an executor, blocks nothing
/// for good: after recovery and sending again each write was executed once.
#[test]
fn loom_a_producer_stops_after_any_step() {
    for steps in 1..=5 {
        model(2, move || {
            let memory = Memory::new(4);
            let stopping = beside(&memory, move |memory| memory.admit(0, steps));
            let going_on = beside(&memory, |memory| memory.admit(1, 7));
            let mut executed = memory.execute();
            assert_eq!(stopping.join().unwrap(), None);
            let verdict = going_on.join().unwrap();
            assert!(matches!(verdict, Some(Verdict::Accepted(_))), "{verdict:?}");
            let stamps = Stamps::new(&memory.stamps);
            let sessions = Sessions::new(&memory.sessions);
            recover(&[memory.queue()], stamps, sessions, Worker(3));
            let verdict = memory.admit(0, 7);
            let again = matches!(verdict, Some(Verdict::Repeated(_)));
            assert_eq!(again, steps >= 4, "{verdict:?}");
            executed.extend(memory.execute());
            executed.sort_unstable();
            assert_eq!(executed, [0, 1], "stopped after {steps}");
        });
    }
}

/// Goal: a read that begins after an acknowledgement finds the write, whole, in the queue or behind
/// head. Method: one slot, so that the next lap writes over what the read copies.
#[test]
fn loom_a_read_is_forwarded_whole_or_finds_it_executed() {
    model(4, || {
        let memory = Memory::new(1);
        let producers = beside(&memory, |memory| {
            assert_eq!(memory.admit(0, 7), Some(Verdict::Accepted(0)));
            // Release pairs with the Acquire of the reader.
            memory.accepted.store(1, Ordering::Release);
            if memory.execute() == [0] {
                assert_eq!(memory.admit(1, 7), Some(Verdict::Accepted(1)));
            }
        });
        // Acquire pairs with the Release of the producer.
        let begun_after = memory.accepted.load(Ordering::Acquire) == 1;
        let stamp = Stamps::new(&memory.stamps).stamp(0);
        assert!(stamp >= u64::from(begun_after));
        let mut out = [0; 16];
        if stamp > 0 {
            let queue = memory.queue();
            match queue.forward(stamp, 0, &[0], &mut out) {
                Forward::Payload { pos, .. } => assert_eq!(number(&out), pos),
                Forward::Executed => assert!(queue.backlog().head >= stamp),
                Forward::Wait => panic!("the newest write is a set of this key"),
            }
        }
        producers.join().unwrap();
    });
}

/// Goal: who ends acceptance and then takes the tail waits for every write that is accepted.
/// Method: a producer looks at a gate when it has its place; the gate is closed meanwhile.
#[test]
fn an_accepted_write_is_below_the_tail_behind_the_gate() {
    loom::model(|| {
        let memory = Memory::new(2);
        let gate = Arc::new(AtomicU64::new(1));
        let producer = {
            let (memory, gate) = (Arc::clone(&memory), Arc::clone(&gate));
            thread::spawn(move || {
                let (queues, payload) = ([memory.queue()], payload(0));
                let sessions = Sessions::new(&memory.sessions);
                let ingress = Ingress {
                    queues: &queues,
                    stamps: Stamps::new(&memory.stamps),
                    sessions,
                    heartbeat_ns_max: 1,
                };
                let arrival = arrival(0, &payload);
                let Arrival {
                    session,
                    slot,
                    sequence,
                    ..
                } = arrival;
                let Claim::Granted(ticket) = sessions.claim(session, arrival.peer, slot, sequence)
                else {
                    panic!("it is new");
                };
                ingress.accept(&arrival, ticket, 0, || gate.load(Ordering::Relaxed) == 1)
            })
        };
        gate.store(0, Ordering::Relaxed);
        let tail = memory.queue().tail_behind_a_gate();
        let accepted = producer.join().unwrap();
        assert!(
            accepted.is_none_or(|pos| pos < tail),
            "{accepted:?}, {tail}"
        );
        let executed = memory.execute();
        assert_eq!(
            executed.len(),
            usize::from(accepted.is_some()),
            "or a no-op"
        );
    });
}
