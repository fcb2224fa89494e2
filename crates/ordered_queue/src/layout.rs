//! The memory layout, in words of 8 bytes: the one file that the XDP program is checked against.
//!
//! ```text
//! a queue: values of 1792 bytes of one mapped array; N slots, a power of two
//!   | control page: 3 values | fronts 0 .. N - 1, seven a value | rests 0 .. N - 1, one a value |
//!
//! control page: one word used of each cache line
//!   line 0 tail   1 head   2 durable_pos   3 incarnation   4 shape   5 state   6 heartbeat
//!        7 backlog limit   8 memory credits   9 lease   10 bell   11.. counters
//!   and beside tail, in its second word: head as producers saw it last; beside the bell: always 0
//!
//! slot of position p, at p mod N: a front of 256 bytes, and a rest that only long payloads touch
//!   word 0  commit: p + 1 when published
//!        1  payload_bytes 16 | key_at 8 | key_bytes 8 | opcode 8 | flags 8 | kind 8 | rx_queue 8
//!        2  session index 32 | session slot 8 | 0 8 | port 16             (lowest bits first)
//!        3  sequence 48 | generation's low 16
//!        4  key hash
//!        5  arrival, nanoseconds of wall time
//!        6  address, first half       7  address, second half
//!        8..31   payload: the datagram, up to 1984 bytes, of which the first 192 are here
//!   the rest: word 0..223 its other bytes
//!
//! The fronts lie side by side, so that what small writes touch of 4096 slots is a megabyte in 256
//! pages and not as much of every page of eight.
//!
//! stamps: 64 K words, by the top bits of the key hash: the greatest position + 1
//!
//! a session: 136 words
//!   word 0  generation 32 | granted 1        1  token        2, 3  address       4  port
//!        5  last use, ns                     6  nonce        7  -
//!        8 + 2 s  slot s: state 2 | sequence 46 | generation's low 16
//!        9 + 2 s  slot s: its position + 1, or, from 2^63 on, none: 2^63 + generation before
//!                 the first, 3 * 2^62 + the slot's word / 4 when it was executed without one
//! ```
//!
//! Under loom lines and slots are shorter; nothing but this file knows.

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = if cfg!(loom) { 1 } else { 8 };
/// Words of the control page.
pub const CONTROL_WORDS: usize = if cfg!(loom) { 16 } else { 3 * VALUE_WORDS };
/// Words of a value of the array that queues lie in: the kernel's program looks these up.
pub const VALUE_WORDS: usize = if cfg!(loom) { 9 } else { 224 };
/// Words of a slot's front: its header, and the first words of its payload.
pub const FRONT_WORDS: usize = if cfg!(loom) { 9 } else { 32 };
/// Words of the rest of a slot's payload.
pub const REST_WORDS: usize = if cfg!(loom) { 1 } else { 224 };
/// Words of a slot.
pub const SLOT_WORDS: usize = FRONT_WORDS + REST_WORDS;
/// Words of a slot before its payload.
pub const SLOT_HEADER_WORDS: usize = 8;
/// Longest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = (SLOT_WORDS - SLOT_HEADER_WORDS) * 8;
/// Bytes of a payload that lie in a slot's front.
pub(crate) const FRONT_PAYLOAD_BYTES: usize = (FRONT_WORDS - SLOT_HEADER_WORDS) * 8;
/// Slots of a queue at most.
pub const QUEUE_SLOTS_MAX: u64 = 1 << 20;
/// Words of the stamp table.
pub const STAMP_WORDS: usize = if cfg!(loom) { 2 } else { 1 << 16 };
/// Slots of a session.
pub const SESSION_SLOTS: usize = if cfg!(loom) { 2 } else { 64 };
/// Words of a session before its slots.
pub const SESSION_HEADER_WORDS: usize = 8;
/// Words of a session.
pub const SESSION_WORDS: usize = SESSION_HEADER_WORDS + 2 * SESSION_SLOTS;

/// Memory credits from which on nothing is taken of them: the store grants whatever comes, because
/// it evicts when it has to, and an admission is spared an atomic step.
pub const BYTES_UNLIMITED: u64 = 1 << 61;

/// A producer goes by the head that was seen last while fewer entries than this seem to wait.
pub(crate) const fn seen_max(slots: u64) -> u64 {
    if cfg!(loom) { slots } else { slots / 8 }
}

/// Words that a queue of `slots` takes.
pub const fn queue_words(slots: u64) -> usize {
    rests_at(slots) + slots as usize * REST_WORDS
}

/// Where the rests begin in a queue of `slots`: behind as many values as its fronts fill.
pub(crate) const fn rests_at(slots: u64) -> usize {
    CONTROL_WORDS + (slots as usize).div_ceil(VALUE_WORDS / FRONT_WORDS) * VALUE_WORDS
}

/// Words of the control page.
pub(crate) mod control {
    use super::LINE_WORDS;

    pub(crate) const TAIL: usize = 0;
    pub(crate) const HEAD_SEEN: usize = if cfg!(loom) { 13 } else { 1 };
    pub(crate) const HEAD: usize = LINE_WORDS;
    pub(crate) const DURABLE_POS: usize = 2 * LINE_WORDS;
    pub(crate) const INCARNATION: usize = 3 * LINE_WORDS;
    pub(crate) const SHAPE: usize = 4 * LINE_WORDS;
    pub(crate) const STATE: usize = 5 * LINE_WORDS;
    pub(crate) const HEARTBEAT: usize = 6 * LINE_WORDS;
    pub(crate) const BACKLOG_MAX: usize = 7 * LINE_WORDS;
    pub(crate) const CREDITS: usize = 8 * LINE_WORDS;
    pub(crate) const LEASE: usize = 9 * LINE_WORDS;
    pub(crate) const BELL: usize = 10 * LINE_WORDS;
    pub(crate) const QUEUED: usize = 11 * LINE_WORDS;
    pub(crate) const FULL: usize = 12 * LINE_WORDS;
}

/// Words of a slot.
pub(crate) mod slot {
    pub(crate) const COMMIT: usize = 0;
    pub(crate) const META: usize = 1;
    pub(crate) const SESSION: usize = 2;
    pub(crate) const SEQUENCE: usize = 3;
    pub(crate) const KEY_HASH: usize = 4;
    pub(crate) const ARRIVED_NS: usize = 5;
    pub(crate) const ADDRESS: usize = 6;
}

/// Words of a session.
pub(crate) mod session {
    pub(crate) const NAME: usize = 0;
    pub(crate) const TOKEN: usize = 1;
    pub(crate) const ADDRESS: usize = 2;
    pub(crate) const PORT: usize = 4;
    pub(crate) const USED_NS: usize = 5;
    pub(crate) const NONCE: usize = 6;
}

/// What the shape word of a queue holds beside its slots: "OQ" and the version of this layout.
pub(crate) const SHAPE_MARK: u64 = 0x4f51_0002 << 32;

const _: () = assert!(cfg!(loom) || SLOT_WORDS * 8 == 2048 && VALUE_WORDS == 7 * FRONT_WORDS);
const _: () = assert!(cfg!(loom) || PAYLOAD_BYTES_MAX == 1984 && SESSION_WORDS == 136);
const _: () = assert!(control::FULL < CONTROL_WORDS);
const _: () = assert!(STAMP_WORDS.is_power_of_two());
