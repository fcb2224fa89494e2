//! The program and its twin get the same frames: golden ones, and random ones with random actions
//! of a server between them. Verdict, answer and every word of memory have to be the same.

use std::collections::BTreeMap;

use curtail_codec::native::{Flags, Head, Opcode, Request, Session};
use curtail_ordered_queue::{QueueState, layout};
use curtail_runtime::{Nic, monotonic_ns};
use curtail_types::Key;
use curtail_workload::Random;

use super::frames::{Address, Ends, frame, golden, seal};
use super::twin::{Expected, peer};
use super::twin_memory::{
    Deed, HEARTBEAT_NS_MAX, Memory, PLACES, PORT, QUEUES, WALL_OFFSET_NS, Words, compare,
    compare_stamps, load, options,
};

struct World {
    nic: Nic,
    memory: Memory,
    clients: Vec<Address>,
    random: Random,
    sequence: u64,
}

impl World {
    fn new(nic: Nic, seed: u64) -> Self {
        let memory = Memory::new();
        let clients = (1..=3).flat_map(|number| {
            let port = 4000 + u16::from(number);
            [Address::v4(number, port), Address::v6(number, port)]
        });
        let world = Self {
            nic,
            memory,
            clients: clients.collect(),
            random: Random::new(seed),
            sequence: 0,
        };
        world.nic.set_clock(monotonic_ns() + WALL_OFFSET_NS);
        Words::of(&world.nic).format();
        world.memory.words().format();
        for queue in 0..QUEUES as usize {
            world.carry_out(Deed::Beat { queue, age_ns: 0 });
        }
        for (number, client) in world.clients.clone().into_iter().enumerate() {
            world.carry_out(Deed::Grant(peer(client), number as u64));
        }
        world
    }

    fn carry_out(&self, deed: Deed) {
        let now_ns = monotonic_ns();
        Words::of(&self.nic).carry_out(deed, now_ns);
        self.memory.words().carry_out(deed, now_ns);
    }

    fn give(&mut self, frame: &[u8]) -> Result<Expected, String> {
        compare(&mut self.nic, &self.memory, frame)
    }

    /// A session that was granted, of a client, as the client knows it.
    fn session(&self, number: usize) -> Session {
        let words = self.memory.words();
        let ours = peer(self.clients[number]);
        let mut places = (0..PLACES as usize).rev();
        let place = places.find(|place| words.name(*place).1 == ours);
        let (name, _) = words.name(place.unwrap_or_default());
        Session {
            index: name.index,
            generation: name.generation,
            token: name.token,
        }
    }

    fn ends(&self, number: usize) -> Ends {
        let from = self.clients[number];
        let to = match from.is_v4() {
            true => Address::v4(100, PORT),
            false => Address::v6(100, PORT),
        };
        Ends { from, to }
    }

    /// What a server does between two datagrams.
    fn random_deed(&mut self) -> Deed {
        let queue = self.random.below(u64::from(QUEUES)) as usize;
        let session = self.random.below(self.clients.len() as u64) as usize;
        let state = [
            QueueState::Open,
            QueueState::Open,
            QueueState::Draining,
            QueueState::Closed,
        ];
        match self.random.below(60) {
            0 => Deed::State(queue, state[self.random.below(4) as usize]),
            1 => Deed::State(queue, QueueState::Open),
            2 => Deed::Beat {
                queue,
                age_ns: self.random.below(2) * 2 * HEARTBEAT_NS_MAX,
            },
            3 => Deed::Beat { queue, age_ns: 0 },
            4 => Deed::Backlog(queue, self.random.below(10)),
            5 => Deed::Durable(queue, self.random.below(50)),
            6 => Deed::Grant(peer(self.clients[session]), session as u64),
            7 => Deed::Close(session),
            8 => {
                let slot = self.random.below(64) as u8;
                Deed::Claim(session, slot, self.sequence + 1)
            }
            9 => Deed::Idle(session),
            10 => Deed::Credits(queue, (1_u64 << 40).wrapping_neg()),
            11 => Deed::Credits(queue, 1 << 40),
            12 => Deed::Credits(queue, layout::BYTES_UNLIMITED),
            13 => Deed::Credits(queue, layout::BYTES_UNLIMITED.wrapping_neg()),
            14..20 => Deed::Grant(peer(self.clients[session]), session as u64),
            20..24 => Deed::Beat { queue, age_ns: 0 },
            24..28 => Deed::State(queue, QueueState::Open),
            _ => Deed::Execute(queue),
        }
    }

    fn random_request(&mut self) -> (usize, Vec<u8>) {
        let number = self.random.below(self.clients.len() as u64) as usize;
        let opcode = Opcode::ALL[self.random.below(16) as usize];
        let opcode = if self.random.one_in(2) {
            Opcode::Set
        } else {
            opcode
        };
        let flags = match self.random.below(4) {
            0 => self.random.below(8) as u16,
            1 => 0,
            2 => 1,
            _ => 3,
        };
        self.sequence += self.random.below(2);
        let head = Head {
            slot: self.random.below(3) as u8,
            sequence: self.sequence.max(1) - self.random.below(2).min(self.sequence.max(1) - 1),
            stamp: self.random.next() as u32,
            ..Head::new(opcode, Flags(flags), self.session(number))
        };
        (number, self.datagram(head))
    }

    /// The datagram of a head whose fields are filled as far as its opcode has them, or not.
    fn datagram(&mut self, head: Head) -> Vec<u8> {
        let key_bytes = match self.random.below(8) {
            0 => 1 + self.random.below(250),
            _ => 1 + self.random.below(20),
        };
        let value_bytes = match self.random.below(8) {
            0 => self.random.below(1700),
            1 => 1984 - 64 - key_bytes,
            _ => self.random.below(100),
        };
        let key: Vec<u8> = (0..key_bytes)
            .map(|at| b'a' + ((at * 7 + key_bytes) % 26) as u8)
            .collect();
        let value: Vec<u8> = (0..value_bytes).map(|_| self.random.next() as u8).collect();
        let fields = self.random.below(16);
        let head = Head {
            exptime: (fields & 1) as u32 * 60,
            item_flags: (fields >> 1 & 1) as u32 * 7,
            argument: fields >> 2 & 1,
            ..head
        };
        // With every field, with none, and with no value, until one of them is a request.
        let bare = Head {
            exptime: 0,
            item_flags: 0,
            argument: 0,
            ..head
        };
        let key = Key::new(&key).ok();
        let tries = [
            (head, key, &value[..]),
            (bare, key, &value[..]),
            (bare, key, &[]),
            (bare, None, &[]),
        ];
        let mut room = vec![0; 4096];
        for (head, key, value) in tries {
            if let Ok(bytes) = (Request { head, key, value }).encode(&mut room) {
                room.truncate(bytes);
                return room;
            }
        }
        // A combination that no table lets through: written as it is.
        let mut bare = Request {
            head: Head {
                flags: Flags::NONE,
                opcode: Opcode::Delete,
                ..bare
            },
            key,
            value: &[],
        };
        bare.head.argument = 0;
        let bytes = bare.encode(&mut room).unwrap();
        room.truncate(bytes);
        room[3] = head.opcode as u8;
        room[4] = head.flags.0 as u8;
        seal(&mut room);
        room
    }

    /// A frame that is honest most of the time.
    fn random_frame(&mut self) -> Vec<u8> {
        let (number, mut datagram) = self.random_request();
        let mut ends = self.ends(number);
        if self.random.one_in(3) {
            return frame(ends, &datagram);
        }
        if self.random.one_in(6) {
            let at = self.random.below(64) as usize;
            datagram[at] = match self.random.below(3) {
                0 => self.random.next() as u8,
                1 => datagram[at].wrapping_add(1),
                _ => datagram[at] ^ 1 << self.random.below(8),
            };
            if !self.random.one_in(3) {
                seal(&mut datagram);
            }
        }
        if self.random.one_in(20) {
            let bytes = self.random.below(2100) as usize;
            datagram.resize(bytes.max(1), 0);
            if bytes >= 64 && self.random.one_in(2) {
                seal(&mut datagram);
            }
        }
        match self.random.below(30) {
            0 => ends.from.port ^= 1,
            1 => ends.from.ip[15] ^= 1,
            2 => ends.to.port ^= 1,
            3 => ends.to.mac[0] |= 1,
            _ => {}
        }
        let mut frame = frame(ends, &datagram);
        if self.random.one_in(12) {
            let at = self.random.below(70.min(frame.len() as u64)) as usize;
            frame[at] ^= 1 << self.random.below(8);
        }
        match self.random.below(40) {
            0 => frame.extend([0; 9]),
            1 => {
                let bytes = self.random.below(frame.len() as u64) as usize;
                frame.truncate(bytes.max(14));
            }
            2 if ends.from.is_v4() => frame[20] |= 0x20,
            3 if !ends.from.is_v4() => frame[20] = 44,
            _ => {}
        }
        frame
    }

    /// The same frame, now and then with the mark of its request taken off or put on.
    fn again(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        let at = if frame.get(12) == Some(&0x08) { 42 } else { 62 };
        if frame.len() > at + 64 && self.random.one_in(3) {
            frame[at + 4] ^= 1;
            seal(&mut frame[at..]);
        }
        frame
    }

    /// Random frames and deeds; how often each fate came, or the first difference.
    fn play(&mut self, frames: usize) -> Result<BTreeMap<&'static str, u64>, String> {
        let mut fates = BTreeMap::new();
        let mut last = Vec::new();
        for number in 0..frames {
            if self.random.one_in(3) {
                let deed = self.random_deed();
                self.carry_out(deed);
            }
            let frame = match number > 0 && self.random.one_in(8) {
                true => self.again(last),
                false => self.random_frame(),
            };
            let expected = self
                .give(&frame)
                .map_err(|why| format!("frame {number}, {frame:02x?}:\n{why}"))?;
            let fate = match &expected {
                Expected::Passed => "passed",
                Expected::Dropped => "dropped",
                Expected::Answered(frame) if frame[frame.len() - 64 + 3] == 131 => "acknowledged",
                Expected::Answered(_) => "refused",
            };
            *fates.entry(fate).or_default() += 1;
            last = frame;
            if number % 256 == 0 || number + 1 == frames {
                compare_stamps(&self.nic, &self.memory)?;
            }
        }
        Ok(fates)
    }
}

/// Goal: the golden packets of the protocol have the same fate with both. Method: each file of
/// them, over IPv4 and IPv6, from the session that they name and from a stranger, each twice.
#[test]
fn golden_packets_have_the_same_fate() {
    let Some(nic) = load(&options()) else {
        return;
    };
    let mut world = World::new(nic, 1);
    let files = [
        include_str!("../../../codec/tests/native/requests.txt"),
        include_str!("../../../codec/tests/native/refused.txt"),
        include_str!("../../../codec/tests/native/replies.txt"),
    ];
    let mut acknowledged = 0;
    for (number, (_, packet)) in golden(&files.concat()).into_iter().enumerate() {
        for client in 0..world.clients.len() {
            let ours = world.session(client);
            let mut datagram = packet.clone();
            world.give(&frame(world.ends(client), &datagram)).unwrap();
            if datagram.len() < 64 {
                continue;
            }
            // The same for a session that there is.
            datagram[16..20].copy_from_slice(&ours.index.to_le_bytes());
            datagram[20..24].copy_from_slice(&ours.generation.to_le_bytes());
            datagram[24..32].copy_from_slice(&ours.token.to_le_bytes());
            if datagram[32..40] == 1001_u64.to_le_bytes() {
                datagram[32..40].copy_from_slice(&(2000 + number as u64).to_le_bytes());
            }
            seal(&mut datagram);
            for _ in 0..2 {
                let fate = world.give(&frame(world.ends(client), &datagram)).unwrap();
                acknowledged += u32::from(matches!(fate, Expected::Answered(_)));
                (0..QUEUES as usize).for_each(|queue| world.carry_out(Deed::Execute(queue)));
            }
        }
    }
    assert!(acknowledged >= 4 * 2 * 6, "{acknowledged} answers");
}

/// Goal: nothing tells the two apart. Method: random requests, damaged in every layer now and then,
/// while a server opens, closes, executes, dies and grants; every fate must have come.
#[test]
fn random_frames_have_the_same_fate() {
    let frames = if cfg!(debug_assertions) {
        3_000
    } else {
        20_000
    };
    let Some(nic) = load(&options()) else {
        return;
    };
    let mut world = World::new(nic, 7);
    let fates = world.play(frames).unwrap();
    println!(
        "{frames} frames: {fates:?}; {:?}",
        world.nic.counts().unwrap()
    );
    assert_eq!(fates.len(), 4, "{fates:?}");
    assert!(fates.values().all(|times| *times > 50), "{fates:?}");
    let counts = world.nic.counts().unwrap();
    let expected = counts.iter().filter(|(name, _)| *name != "REFUSED");
    assert!(
        expected.map(|(_, times)| times).all(|times| *times > 0),
        "{counts:?}"
    );
}

/// Goal: the answer whether the program can be had is right. Method: the smallest maps,
/// where this process may load the program at all.
#[test]
fn a_probe_loads_the_program() {
    if load(&options()).is_some() {
        curtail_runtime::Nic::probe().unwrap();
    }
}

/// A long run under many seeds.
#[test]
#[ignore = "a minute of random frames"]
fn random_frames_have_the_same_fate_for_long() {
    for seed in 0..10 {
        let Some(nic) = load(&options()) else {
            return;
        };
        World::new(nic, seed).play(20_000).unwrap();
    }
}

/// Goal: the test would find a program that is wrong. Method: objects with one thing changed, where
/// a mistake is likely and its effect is small: an entry of the class table, a constant of each
/// hash, the number of an answer.
#[test]
fn a_program_with_a_fault_is_found_out() {
    let object =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/nic.bpf.o")).unwrap();
    let faults: [(&str, &[u8], &[u8]); 3] = [
        // ADD, NILEXT without WAIVE_RESULT: from an error to an acknowledgement.
        (
            "class table",
            &[0x83, 0x00, 0x83, 0x81, 0, 0, 0, 0, 0x83],
            &[0x83, 0x81, 0x83, 0x81, 0, 0, 0, 0, 0x83],
        ),
        // SipHash's first word, as a 64-bit immediate: low half, next instruction, high half.
        (
            "key hash",
            &[0x75, 0x65, 0x73, 0x70, 0, 0, 0, 0, 0x65, 0x6d, 0x6f, 0x73],
            &[0x75, 0x65, 0x73, 0x71, 0, 0, 0, 0, 0x65, 0x6d, 0x6f, 0x73],
        ),
        // XXH64's fifth prime, which only the last bytes of a datagram meet.
        (
            "checksum",
            &[0xc5, 0x67, 0x56, 0x16, 0, 0, 0, 0, 0x2f, 0xeb, 0xd4, 0x27],
            &[0xc4, 0x67, 0x56, 0x16, 0, 0, 0, 0, 0x2f, 0xeb, 0xd4, 0x27],
        ),
    ];
    for (name, good, bad) in faults {
        let places: Vec<usize> = (0..object.len() - good.len())
            .filter(|at| object[*at..].starts_with(good))
            .collect();
        assert!(!places.is_empty(), "the object has no {name}");
        let mut wrong = object.clone();
        for at in places {
            wrong[at..at + bad.len()].copy_from_slice(bad);
        }
        let nic = match Nic::load_object(&wrong, &options(), None) {
            Ok(nic) => nic,
            Err(curtail_runtime::XdpError::NotAllowed { .. }) => return,
            Err(error) => panic!("{name}: {error}"),
        };
        let difference = World::new(nic, 7).play(20_000);
        assert!(difference.is_err(), "nobody saw the wrong {name}");
    }
}
