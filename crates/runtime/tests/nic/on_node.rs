//! The program of a node of a cluster: it accepts marked writes behind open gates, by the hashes
//! that the node has, and leaves everything else to the server as it was.

use std::sync::atomic::Ordering;

use curtail_codec::native::{Flags, Head, Opcode, Request, Session};
use curtail_ordered_queue::{EntryKind, OrderedQueue, SlotState};
use curtail_runtime::{Nic, NicOptions, PacketFate, monotonic_ns};
use curtail_types::{HashSeed, Key};
use twox_hash::XxHash3_64;

use super::frames::{Address, Ends, frame};
use super::twin::peer;
use super::twin_memory::{Deed, PORT, QUEUES, Words, load, options};

/// A node's program, with the session of one client.
struct Node {
    nic: Nic,
    ends: Ends,
    session: Session,
    seed: HashSeed,
}

impl Node {
    fn load() -> Option<Self> {
        let options = NicOptions {
            on_node: true,
            ..options()
        };
        let nic = load(&options)?;
        nic.set_clock(monotonic_ns());
        let words = Words::of(&nic);
        words.format();
        let from = Address::v4(1, 4001);
        let to = Address::v4(100, PORT);
        let now_ns = monotonic_ns();
        words.carry_out(Deed::Grant(peer(from), 0), now_ns);
        (0..QUEUES as usize).for_each(|queue| {
            words.carry_out(Deed::Beat { queue, age_ns: 0 }, now_ns);
        });
        let (name, _) = words.name(0);
        Some(Self {
            ends: Ends { from, to },
            session: Session {
                index: name.index,
                generation: name.generation,
                token: name.token,
            },
            seed: HashSeed([options.secrets[0], options.secrets[1]]),
            nic,
        })
    }

    fn frame(&self, key: &[u8], sequence: u64, flags: Flags) -> Vec<u8> {
        let head = Head {
            sequence,
            ..Head::new(Opcode::Set, flags, self.session)
        };
        let request = Request {
            head,
            key: Some(Key::new(key).unwrap()),
            value: b"value",
        };
        let mut datagram = vec![0; 64 + key.len() + 5];
        request.encode(&mut datagram).unwrap();
        frame(self.ends, &datagram)
    }

    fn open(&self, key: &[u8], is_open: bool) {
        let slice = (XxHash3_64::oneshot(key) >> 56) as usize;
        self.nic.gates()[slice].store(u64::from(is_open), Ordering::SeqCst);
    }

    fn run(&mut self, frame: &[u8]) -> PacketFate {
        self.nic.run(frame, 1).unwrap().fate
    }

    /// The hash by which the node's store knows a key.
    fn hash(&self, key: &[u8]) -> u64 {
        let route = XxHash3_64::oneshot(key);
        self.seed.hash(&route.to_le_bytes()).0
    }

    fn number(&self, key: &[u8]) -> usize {
        (self.hash(key) >> (64 - QUEUES.trailing_zeros())) as usize
    }

    fn queue(&self, key: &[u8]) -> OrderedQueue<'_> {
        Words::of(&self.nic).queues()[self.number(key)]
    }

    fn execute(&self, key: &[u8]) {
        let deed = Deed::Execute(self.number(key));
        Words::of(&self.nic).carry_out(deed, monotonic_ns());
    }
}

fn key_of(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| b'!' + ((at * 31 + bytes * 7) % 90) as u8)
        .collect()
}

/// Goal: for keys of every length the program asks the gate of the key's slice, and the entry has
/// the store's hash; a repeat is acknowledged again; behind a closed gate nothing changes.
#[test]
fn a_nodes_program_accepts_behind_open_gates() {
    let Some(mut node) = Node::load() else {
        return;
    };
    let marked = Flags::NILEXT;
    for bytes in 1..=200 {
        let (key, sequence) = (key_of(bytes), bytes as u64);
        let frame = node.frame(&key, sequence, marked);
        let tail = |node: &Node| node.queue(&key).backlog().tail;
        let before = tail(&node);
        assert_eq!(
            node.run(&frame),
            PacketFate::Passed,
            "closed, {bytes} bytes"
        );
        node.open(&key, true);
        let unmarked = node.frame(&key, sequence, Flags::NONE);
        assert_eq!(
            node.run(&unmarked),
            PacketFate::Passed,
            "unmarked, {bytes} bytes"
        );
        assert_eq!(tail(&node), before, "{bytes} bytes");
        let expected = match bytes {
            1..=128 => PacketFate::Answered,
            _ => PacketFate::Passed,
        };
        assert_eq!(node.run(&frame), expected, "{bytes} bytes");
        assert_eq!(node.run(&frame), expected, "{bytes} bytes, again");
        if bytes <= 128 {
            let entry = node.queue(&key).entry(before).unwrap();
            assert!(entry.has_key(&key) && entry.is_accepted());
            assert_eq!(entry.key_hash(), node.hash(&key), "{bytes} bytes");
            assert_eq!(tail(&node), before + 1);
            node.execute(&key);
        }
        node.open(&key, false);
        assert_eq!(node.run(&frame), PacketFate::Passed, "the server knows it");
    }
}

/// Goal: a write that has a place and cannot be accepted leaves an entry that does nothing and
/// nobody's, and an open claim, so that the server can have it executed otherwise. Method: a limit
/// of no entries, which the program finds when the place is given out.
#[test]
fn a_place_that_is_taken_in_vain_does_nothing() {
    let Some(mut node) = Node::load() else {
        return;
    };
    let key = key_of(10);
    node.open(&key, true);
    let number = node.number(&key);
    Words::of(&node.nic).carry_out(Deed::Backlog(number, 0), monotonic_ns());
    let frame = node.frame(&key, 7, Flags::NILEXT);
    let before = node.queue(&key).backlog().tail;
    assert_eq!(node.run(&frame), PacketFate::Passed);
    let entry = node.queue(&key).entry(before).unwrap();
    assert_eq!(entry.kind(), EntryKind::Noop);
    assert_eq!(entry.session().index, u32::MAX);
    let state = Words::of(&node.nic).sessions().slot(0, 0);
    assert_eq!(state, (SlotState::Open, 7));
    node.execute(&key);
    Words::of(&node.nic).carry_out(Deed::Backlog(number, 4), monotonic_ns());
    assert_eq!(node.run(&frame), PacketFate::Answered, "sent again");
}
