//! Two sessions over a network that breaks connections at any byte.

use std::io::IoSlice;

use curtail_codec::node::{Body, Class, DecodedFrame, Frame, Part};

use crate::{session::*, tests::Random};

/// What a test plants, to see that it is noticed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    None,
    /// After a reconnect sending goes on where it stopped.
    SkipsRewind,
    /// A frame is acknowledged that never arrived.
    LosesFrame,
    /// A Resume says less than was taken, and what was seen is handed on again.
    TakesAgain,
}

const WINDOWS: WindowLimits = WindowLimits {
    demand_bytes_max: 3000,
    answer_bytes_max: 3000,
};

/// One side: its session, what it has yet to receive, and what it was handed.
struct Side {
    session: LinkSession,
    chunks: ChunkPool,
    incoming: Vec<u8>,
    /// The next number it sends and the numbers that it was handed.
    next: u32,
    handed: Vec<u32>,
    resets: u32,
}

struct Network {
    sides: [Side; 2],
    random: Random,
    fault: Fault,
    /// The most memory that a side held for what is not acknowledged.
    held_most: usize,
}

impl Side {
    fn new(stream: u64) -> Self {
        Self {
            session: LinkSession::new(stream, WINDOWS),
            chunks: ChunkPool::default(),
            incoming: Vec::new(),
            next: 0,
            handed: Vec::new(),
            resets: 0,
        }
    }

    /// Sends a report with the next number and some padding; whether there was credit.
    fn push(&mut self, padding: usize) -> bool {
        let mut payload = self.next.to_le_bytes().to_vec();
        payload.resize(4 + padding, 0xaa);
        let part = (Class::Demand, &Part::Report(&payload));
        let pushed = self
            .session
            .push(&mut self.chunks, part, payload.len(), |room| {
                room.copy_from_slice(&payload);
            });
        let taken = pushed == Pushed::Taken;
        self.next += u32::from(taken);
        taken
    }

    /// Takes what has arrived, as a link does.
    fn take_in(&mut self, fault: Fault) {
        let incoming = std::mem::take(&mut self.incoming);
        let mut rest = incoming.as_slice();
        loop {
            let frame = match Frame::decode(rest, 1 << 20) {
                DecodedFrame::Complete(frame) => frame,
                DecodedFrame::Incomplete(_) => break,
                DecodedFrame::Malformed(why) => panic!("{why:?}"),
            };
            rest = &rest[frame.header.bytes..];
            self.take_frame(&frame, fault);
        }
        self.incoming = rest.to_vec();
    }

    fn take_frame(&mut self, frame: &Frame<'_>, fault: Fault) {
        let header = frame.header;
        if let Body::Resume {
            stream,
            received_stream,
            frame_bytes_max,
        } = frame.body
        {
            let peer = PeerResume {
                acknowledged: header.acknowledged,
                stream,
                received_stream,
                frame_bytes_max: frame_bytes_max as usize,
            };
            let sent = self.session.send_queue.position();
            let resumed = self.session.resumed(&mut self.chunks, &peer).unwrap();
            self.resets += u32::from(resumed == Resumed::Reset);
            if fault == Fault::SkipsRewind {
                self.session.send_queue.set_position(sent);
            }
            return;
        }
        let acknowledged = self
            .session
            .send_queue
            .acknowledge(&mut self.chunks, header.acknowledged);
        acknowledged.unwrap();
        let taken = match header.sequence {
            0 => return,
            number => self.session.take(number, header.bytes),
        };
        if let Body::Report(bytes) = frame.body
            && taken == FrameReceipt::New
        {
            self.handed
                .push(u32::from_le_bytes(*bytes.first_chunk().unwrap()));
        }
        assert_ne!(taken, FrameReceipt::Gap);
    }
}

impl Network {
    fn new(seed: u64, fault: Fault) -> Self {
        Self {
            sides: [Side::new(100), Side::new(200)],
            random: Random(seed),
            fault,
            held_most: 0,
        }
    }

    /// Both sides begin a connection.
    fn connect(&mut self) {
        let mut resumes = [Vec::new(), Vec::new()];
        for (side, bytes) in self.sides.iter_mut().zip(&mut resumes) {
            side.incoming.clear();
            let control = side.session.resume(1 << 20);
            bytes.resize(LinkControl::BYTES_MAX, 0);
            let mut received = side.session.received();
            if self.fault == Fault::TakesAgain {
                received = received.saturating_sub(1);
                side.session.forget(received);
            }
            control.encode(false, received, bytes).unwrap();
        }
        let [first, second] = resumes;
        self.sides[1].incoming = first;
        self.sides[0].incoming = second;
    }

    /// Sends some of what `from` has to the other side, which takes it in.
    fn carry(&mut self, from: usize, bytes_max: usize) {
        let fault = self.fault;
        let side = &mut self.sides[from];
        if !side.session.is_running() {
            return;
        }
        side.session.seal();
        let mut slices = [IoSlice::new(&[]); 4];
        let (count, bytes) = side.session.send_queue.gather(&mut slices, bytes_max);
        let mut carried: Vec<u8> = slices[..count]
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect();
        assert_eq!(carried.len(), bytes);
        side.session.send_queue.note_sent(bytes);
        if carried.is_empty() && side.session.owes() {
            carried.resize(24, 0);
            let received = side.session.received();
            LinkControl::Credit
                .encode(false, received, &mut carried)
                .unwrap();
            side.session.note_told();
        }
        if fault == Fault::LosesFrame && self.random.below(300) == 0 {
            let number = side.session.received() + 1;
            side.session.take(number, 1);
        }
        self.held_most = self.held_most.max(side.session.send_queue.held_bytes());
        let other = &mut self.sides[1 - from];
        other.incoming.extend(&carried);
        other.take_in(fault);
    }

    fn step(&mut self) {
        let from = self.random.below(2);
        match self.random.below(12) {
            0 => self.connect(),
            1..=5 => {
                let padding = self.random.below(700);
                self.sides[from].push(padding);
            }
            6 => self.sides[from].take_in(self.fault),
            _ => {
                let bytes_max = 1 + self.random.below(900);
                self.sides[from].take_in(self.fault);
                self.carry(from, bytes_max);
            }
        }
    }

    /// Lets everything arrive.
    fn settle(&mut self) {
        self.connect();
        for _ in 0..200 {
            for from in [0, 1] {
                self.sides[from].take_in(self.fault);
                self.carry(from, usize::MAX);
            }
        }
    }
}

/// A run with random disconnects; an error says what is wrong.
fn run(seed: u64, fault: Fault) -> Result<(), String> {
    let mut network = Network::new(seed, fault);
    for _ in 0..3000 {
        network.step();
    }
    network.settle();
    let [first, second] = &network.sides;
    for (sender, receiver) in [(first, second), (second, first)] {
        let expected: Vec<u32> = (0..sender.next).collect();
        if receiver.handed != expected {
            return Err(format!(
                "sent {}, handed {}",
                sender.next,
                receiver.handed.len()
            ));
        }
        if sender.next < 100 {
            return Err(format!("only {} were sent: nothing was tried", sender.next));
        }
    }
    assert_eq!((first.resets, second.resets), (0, 0));
    // The window, and the chunks that it begins and ends in.
    assert!(network.held_most <= WINDOWS.demand_bytes_max + 2 * crate::chunk_pool::CHUNK_BYTES);
    Ok(())
}

/// Goal: nothing is lost, doubled or reordered, and memory is bounded, however connections are
/// torn. Method: two sides, a network that delivers at most some bytes at a time and begins again
/// at any moment, and every number sent is handed on once, in order.
#[test]
fn torn_connections_lose_and_double_nothing() {
    for seed in 1..60 {
        assert_eq!(run(seed, Fault::None), Ok(()), "seed {seed}");
    }
}

/// Goal: the test above would notice. Method: faults that resume wrongly, take twice, or
/// acknowledge what was lost, are each seen.
#[test]
fn planted_faults_are_noticed() {
    for fault in [Fault::SkipsRewind, Fault::TakesAgain, Fault::LosesFrame] {
        let logged = (1..20).any(|seed| {
            let run = std::panic::catch_unwind(|| run(seed, fault));
            !matches!(run, Ok(Ok(())))
        });
        assert!(logged, "{fault:?}");
    }
}

/// Goal: a peer in another life is told apart, in both directions, whichever side it is, and what
/// was kept for the old life is dropped. Method: one side is replaced in the middle of a run.
#[test]
fn another_life_is_a_reset() {
    for replaced in [0, 1] {
        let mut network = Network::new(7, Fault::None);
        network.connect();
        for _ in 0..2000 {
            network.step();
        }
        network.sides[replaced] = Side::new(300);
        let survivor = 1 - replaced;
        while network.sides[survivor].push(0) {}
        let kept_for_the_dead = network.sides[survivor].next;
        network.sides[survivor].handed.clear();
        network.settle();
        assert_eq!(network.sides[survivor].resets, 1);
        assert_eq!(network.sides[replaced].resets, 0);
        assert!(network.sides[replaced].handed.is_empty());
        for from in [0, 1] {
            assert!(network.sides[from].push(0), "the credit is there again");
        }
        network.settle();
        assert_eq!(network.sides[survivor].handed, [0]);
        assert_eq!(network.sides[replaced].handed, [kept_for_the_dead]);
        assert_eq!(network.sides[survivor].resets, 1, "once");
    }
}

/// Goal: what asks cannot use up what answers need (CC-39). Method: demands until there is no
/// credit, then an answer.
#[test]
fn credits_are_counted_by_class() {
    let mut side = Side::new(1);
    let push = |side: &mut Side, class| {
        let part = (class, &Part::Report(b"x"));
        side.session
            .push(&mut side.chunks, part, 1, |room| room.fill(0))
    };
    while push(&mut side, Class::Demand) == Pushed::Taken {}
    assert_eq!(push(&mut side, Class::Demand), Pushed::Full);
    assert_eq!(push(&mut side, Class::Answer), Pushed::Taken);
    let long = vec![0; 50_000];
    let mut empty = Side::new(2);
    let part = (Class::Demand, &Part::Report(&long));
    let pushed = empty
        .session
        .push(&mut empty.chunks, part, long.len(), |room| room.fill(0));
    assert_eq!(
        pushed,
        Pushed::Taken,
        "one frame may be longer than the window"
    );
    assert!(!empty.push(0));
}

/// Goal: what was seen is not handed on again and what is missing is noticed, should a peer send
/// either; a stream may begin with any number. Method: numbers out of order.
#[test]
fn numbers_are_judged() {
    let mut session = LinkSession::new(1, WINDOWS);
    let judged = [40, 41, 41, 40, 1, 43, 42, 43].map(|number| session.take(number, 24));
    use FrameReceipt::{Again, Gap, New};
    assert_eq!(judged, [New, New, Again, Again, Again, Gap, New, New]);
    assert_eq!(session.received(), 43);
}

/// Goal: a sender hears how far its peer has come before it runs out of credit, though the peer has
/// nothing else to say. Method: many small frames, then few large ones.
#[test]
fn what_was_taken_is_owed() {
    let mut session = LinkSession::new(1, WINDOWS);
    let frames = (1..).take_while(|&number| {
        session.take(number, 24);
        !session.owes()
    });
    assert_eq!(frames.count(), 31);
    session.note_told();
    assert!(!session.owes());
    session.take(33, 70_000);
    assert!(session.owes());
}

/// Goal: a peer cannot acknowledge what it was not sent. Method: numbers ahead of what was sent.
#[test]
fn acknowledging_too_much_is_refused() {
    let mut side = Side::new(1);
    let (session, chunks) = (&mut side.session, &mut side.chunks);
    assert_eq!(session.send_queue.acknowledge(chunks, 1), Err(NotSent));
    assert!(side.push(0));
    side.session.seal();
    assert_eq!(
        side.session.send_queue.acknowledge(&mut side.chunks, 1),
        Err(NotSent)
    );
}
