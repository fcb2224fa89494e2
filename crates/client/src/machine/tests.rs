//! The machine in virtual time, against replies made by hand.

#![allow(clippy::unwrap_used, reason = "what is missing fails the test")]

use std::time::Duration;

use curtail_codec::native::{
    Ack, Echo, ErrorCode, Grant, Nack, NackReason, Opcode, Place, Promise, Reply, ReplyError,
    Session, Status,
};
use curtail_types::Instant;

use super::{Ask, Machine, MachineInput, MachineOutput, Transmission};
use crate::{ClientError, Command, Config, Event, Reason, WhenFull};

const MS: u64 = 1_000_000;

const SESSION: Session = Session {
    index: 3,
    generation: 9,
    token: 77,
};

/// A machine, the time, and what it said.
struct Bench {
    machine: Machine,
    now: Instant,
    said: Vec<String>,
    sent: Vec<Transmission>,
}

impl Bench {
    fn new(config: Config) -> Self {
        let (said, sent) = (Vec::new(), Vec::new());
        let (machine, now) = (Machine::new(config, 1), Instant { ns: MS });
        Self {
            machine,
            now,
            said,
            sent,
        }
    }

    fn open(config: Config) -> Self {
        let mut bench = Self::new(config);
        bench.grant(SESSION);
        bench.said.clear();
        bench
    }

    /// Goes through the handshake, whatever it takes.
    fn grant(&mut self, session: Session) {
        let nonce = self.greeting(Opcode::Hello);
        let (cookie, stamp) = (5, 0);
        self.reply(Reply::Cookie {
            nonce,
            cookie,
            stamp,
        });
        let confirmed = self.greeting(Opcode::Confirm);
        assert_eq!(confirmed, nonce, "the same attempt");
        self.reply(Reply::Grant(Grant {
            session,
            nonce,
            stamp: 0,
            incarnation: 1,
            slots: 64,
            queues: 4,
            credits: 8,
            lease_ms: 60_000,
            datagram_bytes_max: 1400,
        }));
    }

    /// The nonce of the last handshake message, after waiting for one of this kind.
    fn greeting(&mut self, opcode: Opcode) -> u64 {
        let wanted = format!("{opcode:?} ");
        let said = |bench: &Self| {
            let last = bench
                .said
                .iter()
                .rev()
                .find(|said| said.starts_with(&wanted));
            last.map(|said| said.strip_prefix(&wanted).unwrap().parse().unwrap())
        };
        self.said.clear();
        for _ in 0..100 {
            if let Some(nonce) = said(self) {
                return nonce;
            }
            self.wait();
        }
        panic!("no {opcode:?}");
    }

    fn step(&mut self, input: MachineInput<'_>) {
        let Self { said, sent, .. } = self;
        self.machine
            .step(self.now, input, &mut |output| match output {
                MachineOutput::Send(head) => {
                    said.push(format!("{:?} {}", head.opcode, head.argument))
                }
                MachineOutput::Transmit(again) => {
                    said.push(format!("again {} {}", again.slot, again.sequence));
                    sent.push(again);
                }
                MachineOutput::Tell(event) => said.push(match event {
                    Event::Accepted { ticket, accepted } => {
                        format!("accepted {ticket} at {}", accepted.place.pos)
                    }
                    Event::Answered { ticket, outcome } => {
                        format!("answered {ticket} {:?}", outcome.status)
                    }
                    Event::Failed { ticket, error } => format!("failed {ticket} {error:?}"),
                    Event::Durable { place } => format!("durable {}", place.durable_pos),
                }),
                MachineOutput::Open => said.push("open".into()),
            });
    }

    /// Steps at the deadline.
    fn wait(&mut self) {
        self.now = self.machine.deadline().unwrap().max(self.now);
        self.step(MachineInput::Tick);
    }

    fn reply(&mut self, reply: Reply<'_>) {
        self.step(MachineInput::Reply(reply));
    }

    fn assign(&mut self, command: Command<'_>, ticket: u64) -> Option<Transmission> {
        let key_hash = u64::from(*command.key.first().unwrap_or(&0)) << 32;
        self.machine
            .assign(self.now, &Ask::new(&command, ticket, key_hash))
    }

    fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }
}

fn echo(sent: &Transmission) -> Echo {
    Echo {
        index: sent.session.index,
        generation: sent.session.generation,
        slot: sent.slot,
        sequence: sent.sequence,
        stamp: sent.stamp,
    }
}

fn place(queue: u16, credits: u32, pos: u64) -> Place {
    Place {
        queue,
        credits,
        incarnation: 1,
        pos,
        durable_pos: 0,
    }
}

fn ack(sent: &Transmission, place: Place) -> Reply<'static> {
    let (echo, promise) = (echo(sent), Promise::Accepted);
    Reply::Ack(Ack {
        echo,
        place,
        promise,
    })
}

fn nack(sent: &Transmission, reason: NackReason, queue: u16) -> Reply<'static> {
    let (echo, place) = (echo(sent), place(queue, 0, 0));
    Reply::Nack(Nack {
        echo,
        place,
        reason,
    })
}

fn error(sent: &Transmission, code: ErrorCode) -> Reply<'static> {
    Reply::Error(ReplyError {
        echo: echo(sent),
        code,
        incarnation: 1,
    })
}

fn marked(key: &[u8]) -> Command<'_> {
    Command::set(key, b"v").marked()
}

/// Goal: the handshake repeats itself until it is answered, starts over when its cookie is stale,
/// and tells why there is no session.
#[test]
fn a_handshake_repeats_itself_until_it_is_granted() {
    let mut bench = Bench::new(Config::default());
    let nonce = bench.greeting(Opcode::Hello);
    let first_ns = bench.now.ns;
    assert_eq!(bench.greeting(Opcode::Hello), nonce, "the same hello again");
    assert!(bench.now.ns - first_ns >= 10 * MS, "after a wait");
    let strange = nonce ^ 1;
    bench.reply(Reply::Cookie {
        nonce: strange,
        cookie: 1,
        stamp: 0,
    });
    assert!(bench.said().iter().all(|said| !said.starts_with("Confirm")));
    bench.reply(Reply::Cookie {
        nonce,
        cookie: 1,
        stamp: 0,
    });
    assert_eq!(bench.said(), [format!("Confirm {nonce}")]);
    for (code, at_once) in [(ErrorCode::Cookie, true), (ErrorCode::Sessions, false)] {
        let stamp = bench.machine.stamp;
        let echo = Echo {
            stamp,
            ..Echo::default()
        };
        bench.reply(Reply::Error(ReplyError {
            echo,
            code,
            incarnation: 0,
        }));
        assert_eq!(bench.machine.refusal(), Some(code));
        assert_eq!(!bench.said().is_empty(), at_once);
    }
    bench.grant(SESSION);
    assert!(bench.said.contains(&"open".into()));
    assert_eq!(bench.machine.refusal(), None);
}

/// Goal: no number is used twice, whatever becomes of a request. Method: requests that are
/// accepted, refused, given up and withdrawn, all in slot 0.
#[test]
fn numbers_are_never_used_again() {
    let mut bench = Bench::open(Config::default());
    let mut numbers = Vec::new();
    for round in 0..5 {
        let sent = bench.assign(marked(b"a"), round).unwrap();
        assert_eq!(sent.slot, 0, "the slot is free again");
        numbers.push(sent.sequence);
        match round {
            0 => bench.reply(ack(&sent, place(0, 8, 0))),
            1 => bench.machine.withdraw(&sent),
            2 => bench.reply(error(&sent, ErrorCode::Unsupported)),
            3 => {
                while bench.machine.outstanding() > 0 {
                    bench.wait();
                }
            }
            _ => {}
        }
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let said = bench.said();
    assert_eq!(said[0], "accepted 0 at 0");
    assert_eq!(said[1], "failed 2 Refused(Unsupported)");
    assert!(
        said[2..said.len() - 1]
            .iter()
            .all(|said| said == "again 0 4")
    );
    assert_eq!(said.last().unwrap(), "failed 3 Indeterminate(Silence)");
}

/// Goal: the wait before sending again doubles, and a late or repeated answer ends a request once.
#[test]
fn silence_is_answered_by_sending_again_later_and_later() {
    let mut bench = Bench::open(Config::default());
    let sent = bench.assign(marked(b"a"), 1).unwrap();
    let mut times = vec![bench.now.ns];
    for _ in 0..5 {
        bench.wait();
        times.push(bench.now.ns);
    }
    assert_eq!(bench.said().len(), 5);
    let waits: Vec<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(waits.is_sorted(), "{waits:?}");
    assert!(waits[3] > 6 * waits[0], "{waits:?}");
    let stamps: Vec<u32> = bench.sent.iter().map(|sent| sent.stamp).collect();
    assert!(
        stamps.is_sorted_by(|one, other| one < other),
        "each has a stamp of its own"
    );
    bench.reply(ack(&sent, place(2, 8, 40)));
    bench.reply(ack(&sent, place(2, 8, 40)));
    assert_eq!(bench.said(), ["accepted 1 at 40"]);
    assert_eq!(bench.machine.counts().strays, 1);
}

/// Goal: a full queue closes its window and no other's, once its keys are known. Method: a key of
/// queue 1 is refused, then a key of queue 2 and one of queue 1 are asked for.
#[test]
fn a_full_queue_holds_back_its_own_keys_alone() {
    let mut bench = Bench::open(Config::default());
    for (key, queue) in [(b"a", 1), (b"b", 2)] {
        let sent = bench.assign(marked(key), 0).unwrap();
        bench.reply(ack(&sent, place(queue, 8, 0)));
    }
    bench.said.clear();
    let sent = bench.assign(marked(b"a"), 1).unwrap();
    bench.reply(nack(&sent, NackReason::Full, 1));
    assert!(
        bench.assign(marked(b"a"), 2).is_none(),
        "the queue of this key is full"
    );
    assert!(
        bench.assign(marked(b"b"), 3).is_some(),
        "the queue of this key is not"
    );
    assert!(
        bench.assign(Command::get(b"a"), 4).is_some(),
        "reads take no place"
    );
    let refused_ns = bench.now.ns;
    bench.wait();
    assert_eq!(
        bench.said(),
        ["again 0 3"],
        "the same number, after a pause"
    );
    let pause_ns = bench.now.ns - refused_ns;
    assert!(
        pause_ns < 200_000,
        "{pause_ns} ns is about the shortest pause"
    );
    let again = *bench.sent.last().unwrap();
    bench.reply(ack(&again, place(1, 5, 1)));
    assert_eq!(bench.said(), ["accepted 1 at 1"]);
    bench.now.ns += MS;
    assert!(bench.assign(marked(b"a"), 5).is_some(), "it has room again");
    assert_eq!(
        bench.machine.queue(1),
        Some((5, 4)),
        "credits as told, half the window"
    );
    assert_eq!(bench.machine.queue(4), None);
}

/// Goal: pauses after refusals grow, differ between clients, and end with the patience: then nobody
/// knows, because a copy may still be under way.
#[test]
fn a_queue_that_stays_full_is_asked_less_and_less() {
    let patience = Duration::from_millis(500);
    let config = Config {
        patience,
        ..Config::default()
    };
    let mut bench = Bench::open(config);
    let mut sent = bench.assign(marked(b"a"), 1).unwrap();
    let start_ns = bench.now.ns;
    let mut rounds = 0;
    while bench.machine.outstanding() > 0 {
        bench.reply(nack(&sent, NackReason::Full, 0));
        bench.wait();
        sent = *bench.sent.last().unwrap();
        rounds += 1;
    }
    assert!(
        (10..40).contains(&rounds),
        "{rounds} tries in half a second"
    );
    assert_eq!(bench.now.ns - start_ns, patience.as_nanos() as u64);
    let last = bench.said.last().unwrap();
    assert_eq!(
        *last,
        format!(
            "failed 1 {:?}",
            ClientError::Indeterminate(Reason::Refused(NackReason::Full))
        )
    );
    assert_eq!(bench.machine.counts().resent, 0, "a refusal is no silence");
}

/// Goal: a lost session ends writes and keeps reads. Method: one of each, and an error of the
/// session that two transmissions meet; then a new session.
#[test]
fn a_lost_session_ends_writes_and_keeps_reads() {
    let mut bench = Bench::open(Config::default());
    let write = bench.assign(marked(b"a"), 1).unwrap();
    let read = bench.assign(Command::get(b"a"), 2).unwrap();
    bench.reply(error(&write, ErrorCode::Session));
    assert!(bench.said().is_empty(), "once may be damage");
    bench.wait();
    let again = *bench.sent.last().unwrap();
    assert_eq!((again.slot, again.sequence), (write.slot, write.sequence));
    bench.said.clear();
    bench.reply(error(&again, ErrorCode::Session));
    let said = bench.said();
    assert_eq!(said[0], "failed 1 Indeterminate(SessionLost)");
    assert!(said[1].starts_with("Hello"), "{said:?}");
    assert!(bench.assign(marked(b"a"), 3).is_none(), "no session");
    let session = Session {
        generation: 10,
        ..SESSION
    };
    bench.grant(session);
    let again = *bench.sent.last().unwrap();
    assert_eq!((again.slot, again.session), (read.slot, session));
    bench.reply(ack(&write, place(0, 8, 0))); // of the old session: nobody's
    bench.said.clear();
    bench.reply(Reply::Result {
        echo: echo(&again),
        place: Place::default(),
        status: Status::NotFound,
        version: 0,
        number: 0,
        item_flags: 0,
        value: b"",
    });
    assert_eq!(bench.said(), ["answered 2 NotFound"]);
}

/// Goal: what fits no datagram goes over the stream, from the start or when the server says so, and
/// again when the stream breaks; only there is "too large" the end.
#[test]
fn what_is_too_large_goes_over_the_stream() {
    let mut bench = Bench::open(Config::default());
    let value = [0; 1400];
    let large = bench
        .assign(Command::set(b"a", &value).marked(), 1)
        .unwrap();
    assert!(large.by_stream);
    bench.reply(ack(&large, place(0, 8, 0)));
    let read = bench.assign(Command::get(b"a"), 2).unwrap();
    assert!(!read.by_stream);
    bench.reply(error(&read, ErrorCode::TooLarge));
    let first = *bench.sent.last().unwrap();
    assert!(first.by_stream && first.sequence == read.sequence);
    bench.reply(error(&read, ErrorCode::TooLarge));
    assert_eq!(
        bench.machine.outstanding(),
        1,
        "another copy of the datagram"
    );
    bench.step(MachineInput::StreamLost);
    bench.wait();
    let second = *bench.sent.last().unwrap();
    assert!(second.by_stream && second.stamp != first.stamp);
    bench.said.clear();
    bench.reply(error(&second, ErrorCode::TooLarge));
    assert_eq!(bench.said(), ["failed 2 Refused(TooLarge)"]);
}

/// Goal: errors that damage may cause are tried again, and believed when they stay.
#[test]
fn malformed_is_believed_the_third_time() {
    let mut bench = Bench::open(Config::default());
    let mut sent = bench.assign(marked(b"a"), 1).unwrap();
    for _ in 0..2 {
        // Copies of one transmission count once.
        (0..3).for_each(|_| bench.reply(error(&sent, ErrorCode::Malformed)));
        assert_eq!(bench.machine.outstanding(), 1);
        bench.wait();
        sent = *bench.sent.last().unwrap();
    }
    bench.said.clear();
    bench.reply(error(&sent, ErrorCode::Malformed));
    assert_eq!(bench.said(), ["failed 1 Refused(Malformed)"]);
}

/// Goal: an idle session is kept alive by pings, which are nobody's requests; without that one
/// whose lease is over is not used.
#[test]
fn an_idle_session_is_pinged_or_renewed() {
    let mut bench = Bench::open(Config::default());
    while bench.said.is_empty() {
        bench.wait();
    }
    assert_eq!(bench.said(), ["Ping 0"]);
    assert_eq!(bench.machine.outstanding(), 0);
    assert_eq!(bench.now.ns / (1000 * MS), 15, "a quarter of the lease");
    let mut bench = Bench::open(Config {
        keep_alive: false,
        ..Config::default()
    });
    bench.now.ns += 50_000 * MS;
    assert!(bench.assign(marked(b"a"), 1).is_none());
    bench.wait();
    assert!(bench.said()[0].starts_with("Hello"));
}

/// Goal: no more writes are outstanding than the credits that were last told.
#[test]
fn credits_bound_what_is_outstanding() {
    let mut bench = Bench::open(Config::default());
    let sent = bench.assign(marked(b"a"), 0).unwrap();
    bench.reply(ack(&sent, place(0, 3, 0)));
    let taken = (1..10).filter(|ticket| bench.assign(marked(b"a"), *ticket).is_some());
    assert_eq!(taken.count(), 3);
}

/// Goal: how far a queue is durable is told once for each step.
#[test]
fn durable_positions_are_told_as_they_grow() {
    let mut bench = Bench::open(Config::default());
    for (ticket, durable_pos) in [(0, 0), (1, 5), (2, 5), (3, 4), (4, 9)] {
        let sent = bench.assign(marked(b"a"), ticket).unwrap();
        let place = Place {
            durable_pos,
            ..place(1, 8, ticket)
        };
        bench.reply(ack(&sent, place));
    }
    let said = bench.said();
    let durable: Vec<&String> = said
        .iter()
        .filter(|said| said.starts_with("durable"))
        .collect();
    assert_eq!(durable, ["durable 5", "durable 9"]);
}

/// Goal: a request that is not marked ends with its result and not with an acknowledgement.
#[test]
fn an_acknowledgement_does_not_end_a_call() {
    let mut bench = Bench::open(Config::default());
    let sent = bench.assign(Command::delete(b"a"), 1).unwrap();
    bench.reply(ack(&sent, place(0, 8, 5)));
    assert!(bench.said().is_empty());
    bench.reply(Reply::Result {
        echo: echo(&sent),
        place: place(0, 8, 5),
        status: Status::NotFound,
        version: 0,
        number: 0,
        item_flags: 0,
        value: b"",
    });
    assert_eq!(bench.said(), ["answered 1 NotFound"]);
}

/// Goal: a session that takes a full queue for a receiver that is not ready (JB-16) stands still
/// for its fixed time, sends the same request again, and neither narrows nor counts credits.
#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    let pause = Duration::from_micros(640);
    let mut bench = Bench::open(Config {
        when_full: WhenFull::NotReady(pause),
        ..Config::default()
    });
    let sent = bench.assign(marked(b"a"), 0).unwrap();
    bench.reply(ack(&sent, place(1, 1, 0)));
    bench.said.clear();
    let sent = bench.assign(marked(b"a"), 1).unwrap();
    let refused_ns = bench.now.ns;
    bench.reply(nack(&sent, NackReason::Full, 1));
    assert!(bench.assign(marked(b"a"), 2).is_none(), "it stands still");
    bench.wait();
    assert_eq!(bench.said(), ["again 0 2"]);
    assert_eq!(bench.now.ns - refused_ns, 640_000, "no more, no less");
    let again = *bench.sent.last().unwrap();
    bench.reply(ack(&again, place(1, 0, 1)));
    assert_eq!(bench.machine.queue(1), Some((u32::MAX, 8)));
    let many = (10..18).all(|ticket| bench.assign(marked(b"a"), ticket).is_some());
    assert!(many, "a queue without credits is sent to all the same");
}
