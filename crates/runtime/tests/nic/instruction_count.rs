//! How many instructions the program executes: its object, run by a small interpreter that counts.
//!
//! A machine that gives its guests no counters cannot count what the processor executes, so what is
//! counted is BPF instructions of the kept object, each executed one by one on memory of its own:
//! exact, and the same everywhere. The kernel compiles each into one processor instruction or a
//! few, and puts a few in the place of each look into a map.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use aya_obj::Object;
use aya_obj::generated::bpf_insn;
use curtail_codec::native::{Flags, Head, Opcode, Request, Session};
use curtail_ordered_queue::{OrderedQueue, QueueState, Sessions, layout};
use curtail_types::Key;

use super::frames::{Address, Ends, frame};
use super::twin::peer;
use super::twin_memory::grant;

const PORT: u16 = 11311;
const SLOTS: u64 = 1024;
/// What the clock says.
const NOW_NS: u64 = 1_000_000_000;
const TRANSMIT: u64 = 3;

/// Memory by regions: an address is a region's number and a place in it.
struct Machine {
    program: Vec<bpf_insn>,
    regions: Vec<Vec<u8>>,
    /// By map: its region and the bytes of a value.
    maps: Vec<(u64, u64)>,
    /// The region of the queues.
    queues: u64,
    /// The bytes of the frame that are left.
    frame_bytes: u64,
}

const CONTEXT: u64 = 1;
const FRAME: u64 = 2;
const STACK: u64 = 3;
const STACK_BYTES: u64 = 512;
const MAPS_FROM: u64 = 4;
/// Where a queue has its head.
const HEAD_AT: u64 = 64;

fn address(region: u64, at: u64) -> u64 {
    region << 32 | at
}

impl Machine {
    /// The kept object with the maps given by name.
    fn new(maps: &[(&str, Vec<u8>, u64)]) -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/nic.bpf.o");
        let mut object = Object::parse(&std::fs::read(path).unwrap()).unwrap();
        let text: HashSet<usize> = object
            .functions
            .keys()
            .map(|(section, _)| *section)
            .collect();
        let mut machine = Self {
            program: Vec::new(),
            regions: vec![Vec::new(); MAPS_FROM as usize],
            maps: Vec::new(),
            queues: 0,
            frame_bytes: 0,
        };
        let known: Vec<(String, i32, aya_obj::Map)> = object
            .maps
            .iter()
            .enumerate()
            .map(|(number, (name, map))| (name.clone(), number as i32, map.clone()))
            .collect();
        for (name, _, map) in &known {
            let given = maps.iter().find(|(given, ..)| given == name);
            let (bytes, value_bytes) = match given {
                Some((_, bytes, value_bytes)) => (bytes.clone(), *value_bytes),
                None => (map.data().to_vec(), map.data().len() as u64),
            };
            let region = machine.regions.len() as u64;
            machine.maps.push((region, value_bytes));
            if name == "queues" {
                machine.queues = region;
            }
            machine.regions.push(bytes);
        }
        let listed = known
            .iter()
            .map(|(name, fd, map)| (name.as_str(), *fd, map));
        object.relocate_maps(listed, &text).unwrap();
        object.relocate_calls(&text).unwrap();
        let program = &object.programs["curtail_nic"];
        let function = &object.functions[&program.function_key()];
        machine.program.clone_from(&function.instructions);
        machine
    }

    /// Everything that waits is executed.
    fn execute(&mut self) {
        let tail = self.load(address(self.queues, 0), 8);
        self.store(address(self.queues, HEAD_AT), 8, tail);
    }

    fn load(&self, at: u64, bytes: usize) -> u64 {
        if at >> 32 == CONTEXT {
            return match at as u32 {
                0 => address(FRAME, 0),
                4 => address(FRAME, self.frame_bytes),
                _ => 0,
            };
        }
        let place = at as u32 as usize;
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&self.regions[(at >> 32) as usize][place..place + bytes]);
        u64::from_le_bytes(word)
    }

    fn store(&mut self, at: u64, bytes: usize, word: u64) {
        let place = at as u32 as usize;
        let region = &mut self.regions[(at >> 32) as usize];
        region[place..place + bytes].copy_from_slice(&word.to_le_bytes()[..bytes]);
    }

    fn call(&mut self, helper: i32, r: &[u64; 11]) -> u64 {
        match helper {
            1 => {
                let (region, value_bytes) = self.maps[r[1] as usize];
                let at = self.load(r[2], 4) * value_bytes;
                let fits = at + value_bytes <= self.regions[region as usize].len() as u64;
                if fits { address(region, at) } else { 0 }
            }
            160 => NOW_NS,
            65 => {
                self.frame_bytes = self.frame_bytes.wrapping_add_signed(i64::from(r[2] as i32));
                0
            }
            188 => self.frame_bytes,
            _ => panic!("helper {helper}"),
        }
    }

    /// Gives the program a frame: what becomes of it, and how many instructions that took.
    fn run(&mut self, frame: &[u8]) -> (u64, u64) {
        self.frame_bytes = frame.len() as u64;
        self.regions[FRAME as usize] = frame.to_vec();
        self.regions[STACK as usize] = vec![0; 4 * STACK_BYTES as usize];
        let mut r = [0_u64; 11];
        (r[1], r[10]) = (address(CONTEXT, 0), address(STACK, STACK_BYTES));
        let mut callers: Vec<(usize, [u64; 11])> = Vec::new();
        let (mut at, mut count) = (0_usize, 0);
        loop {
            let insn = self.program[at];
            at += 1;
            count += 1;
            let (to, from) = (usize::from(insn.dst_reg()), usize::from(insn.src_reg()));
            let near = |base: u64| base.wrapping_add_signed(i64::from(insn.off));
            let bytes = match insn.code & 0x18 {
                0x00 => 4,
                0x08 => 2,
                0x10 => 1,
                _ => 8,
            };
            let jump = |at: usize| at.checked_add_signed(insn.off as isize).unwrap();
            match (insn.code & 7, insn.code) {
                (_, 0x18) => {
                    let high = self.program[at].imm as u32;
                    let number = u64::from(insn.imm as u32) | u64::from(high) << 32;
                    at += 1;
                    r[to] = match from {
                        2 => address(self.maps[insn.imm as usize].0, u64::from(high)),
                        _ => number,
                    };
                }
                (1, _) => r[to] = self.load(near(r[from]), bytes),
                (2, _) => self.store(near(r[to]), bytes, insn.imm as i64 as u64),
                (3, 0xdb) => self.atomic(&mut r, insn),
                (3, _) => self.store(near(r[to]), bytes, r[from]),
                (4, 0xdc) => r[to] = swapped(r[to], insn.imm),
                (4, 0xd4) => r[to] &= u64::MAX >> (64 - insn.imm),
                (class @ (4 | 7), code) => {
                    let other = operand(&r, insn, code & 8 != 0);
                    r[to] = compute(code & 0xf0, r[to], other, class == 7);
                }
                (5, 0x85) if from == 1 => {
                    callers.push((at, r));
                    at = at.checked_add_signed(insn.imm as isize).unwrap();
                    r[10] += STACK_BYTES;
                }
                (5, 0x85) => r[0] = self.call(insn.imm, &r),
                (5, 0x95) => {
                    let Some((back, kept)) = callers.pop() else {
                        return (r[0], count);
                    };
                    at = back;
                    r[6..].copy_from_slice(&kept[6..]);
                }
                (5, 0x05) => at = jump(at),
                (class @ (5 | 6), code) => {
                    let other = operand(&r, insn, code & 8 != 0);
                    if holds(code & 0xf0, r[to], other, class == 5) {
                        at = jump(at);
                    }
                }
                (class, code) => panic!("class {class}, code {code:#x}"),
            }
        }
    }

    fn atomic(&mut self, r: &mut [u64; 11], insn: bpf_insn) {
        let (to, from) = (usize::from(insn.dst_reg()), usize::from(insn.src_reg()));
        let at = r[to].wrapping_add_signed(i64::from(insn.off));
        let seen = self.load(at, 8);
        match insn.imm {
            0x00 => self.store(at, 8, seen.wrapping_add(r[from])),
            0xe1 => {
                self.store(at, 8, r[from]);
                r[from] = seen;
            }
            0xf1 => {
                if seen == r[0] {
                    self.store(at, 8, r[from]);
                }
                r[0] = seen;
            }
            other => panic!("atomic {other:#x}"),
        }
    }
}

fn operand(r: &[u64; 11], insn: bpf_insn, is_register: bool) -> u64 {
    match is_register {
        true => r[usize::from(insn.src_reg())],
        false => i64::from(insn.imm) as u64,
    }
}

fn swapped(word: u64, bits: i32) -> u64 {
    match bits {
        16 => u64::from((word as u16).swap_bytes()),
        32 => u64::from((word as u32).swap_bytes()),
        _ => word.swap_bytes(),
    }
}

fn compute(operation: u8, a: u64, b: u64, is_wide: bool) -> u64 {
    let (a, b) = match is_wide {
        true => (a, b),
        false => (u64::from(a as u32), u64::from(b as u32)),
    };
    let shift = (b & if is_wide { 63 } else { 31 }) as u32;
    let result = match operation {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << shift,
        0x70 => a >> shift,
        0x80 => a.wrapping_neg(),
        0xa0 => a ^ b,
        0xb0 => b,
        0xc0 if is_wide => (a as i64 >> shift) as u64,
        0xc0 => (a as i32 >> shift) as u64,
        other => panic!("operation {other:#x}"),
    };
    if is_wide {
        result
    } else {
        u64::from(result as u32)
    }
}

fn holds(comparison: u8, a: u64, b: u64, is_wide: bool) -> bool {
    let (a, b, signed) = match is_wide {
        true => (a, b, (a as i64, b as i64)),
        false => {
            let (a, b) = (a as u32, b as u32);
            let signed = (i64::from(a as i32), i64::from(b as i32));
            (u64::from(a), u64::from(b), signed)
        }
    };
    match comparison {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => signed.0 > signed.1,
        0x70 => signed.0 >= signed.1,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => signed.0 < signed.1,
        0xd0 => signed.0 <= signed.1,
        other => panic!("comparison {other:#x}"),
    }
}

/// A word of the program's settings, by the header that it is compiled with.
fn setting(name: &str) -> usize {
    let line = format!("#define CURTAIL_SETTINGS_{name} 0x");
    let header = include_str!("../../../../bpf/settings.h");
    let rest = header.split(&line).nth(1).unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
    usize::from_str_radix(&digits, 16).unwrap()
}

fn bytes_of(words: &[AtomicU64]) -> Vec<u8> {
    let words = words.iter().map(|word| word.load(Ordering::Relaxed));
    words.flat_map(u64::to_le_bytes).collect()
}

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn ends() -> Ends {
    Ends {
        from: Address::v4(1, 4000),
        to: Address::v4(100, PORT),
    }
}

/// An open queue, a session, and the program.
fn machine() -> Machine {
    let settings = words(setting("WORDS"));
    let set = |name, value| settings[setting(name)].store(value, Ordering::Relaxed);
    set("PORT", u64::from(PORT.to_be()));
    set("SLOTS", SLOTS);
    set("HEARTBEAT_NS_MAX", NOW_NS);
    set("LEASE_NS", 1 << 40);
    set("DATAGRAM_BYTES_MAX", 1984);
    set("VALUE_BYTES_MAX", 1 << 20);
    let memory = words(layout::queue_words(SLOTS));
    let queue = OrderedQueue::format(&memory, SLOTS, 1);
    queue.set_backlog_max(SLOTS);
    queue.grant_bytes(2 * layout::BYTES_UNLIMITED);
    queue.beat(NOW_NS);
    queue.set_state(QueueState::Open);
    let sessions = words(layout::SESSION_WORDS);
    grant(Sessions::new(&sessions), peer(ends().from), 0, NOW_NS);
    Machine::new(&[
        ("settings", bytes_of(&settings), 8 * settings.len() as u64),
        ("queues", bytes_of(&memory), 8 * layout::VALUE_WORDS as u64),
        ("stamps", vec![0; 8 * layout::STAMP_WORDS], 8),
        ("sessions", bytes_of(&sessions), 8 * sessions.len() as u64),
        ("counts", vec![0; 128], 128),
    ])
}

/// A nilext set, in the way in which `Words::carry_out` grants sessions.
fn write(sequence: u64, value_bytes: usize) -> Vec<u8> {
    let session = Session {
        index: 0,
        generation: 1,
        token: 0x1122_3344_5566_7788 ^ 1,
    };
    let head = Head {
        slot: (sequence % 64) as u8,
        sequence,
        ..Head::new(Opcode::Set, Flags::NILEXT, session)
    };
    let key = format!("key-{sequence:020}");
    let request = Request {
        head,
        key: Key::new(key.as_bytes()).ok(),
        value: &vec![b'v'; value_bytes],
    };
    let mut room = vec![0; 2048];
    let bytes = request.encode(&mut room).unwrap();
    room.truncate(bytes);
    frame(ends(), &room)
}

/// Goal: what an accepted write costs does not depend on what waits. Method: the program is run,
/// instruction by instruction, until nine tenths of the queue are taken and nothing is executed;
/// every run takes the same number, once each of the session's slots has been used. That runs are
/// counted at all shows with values of other lengths, and with a request that comes again, which
/// take other numbers.
#[test]
fn an_accepted_write_takes_as_many_instructions_whatever_waits() {
    let mut taken = Vec::new();
    for value_bytes in [16, 52, 400, 1300] {
        let mut machine = machine();
        for sequence in 1..=64 {
            machine.run(&write(sequence, value_bytes));
        }
        machine.execute();
        let last = 64 + SLOTS * 9 / 10;
        let counts: Vec<u64> = (65..=last)
            .map(|sequence| {
                let (fate, count) = machine.run(&write(sequence, value_bytes));
                assert_eq!(fate, TRANSMIT, "write {sequence}");
                assert_eq!(machine.load(address(FRAME, 42 + 3), 1), 131, "an ACK");
                count
            })
            .collect();
        let first = counts[0];
        let other = counts.iter().position(|count| *count != first);
        assert_eq!(other, None, "waiting where it differs from {first}");
        let (fate, repeated) = machine.run(&write(last, value_bytes));
        assert_eq!(fate, TRANSMIT);
        println!("a value of {value_bytes} bytes: {first} instructions, sent again {repeated}");
        assert!(repeated < first);
        taken.push(first);
    }
    assert!(taken.is_sorted() && taken[0] < taken[3], "{taken:?}");
}
