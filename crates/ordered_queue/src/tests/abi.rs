//! The C header of the layout, printed from the constants that the code uses. When they change,
//! this test fails and says what `layout.h` has to be.

use alloc::{format, string::String};

use crate::{
    QueueState, SlotState,
    entry::{ACCEPTED_BIT, EntryKind, KIND_SHIFT, SEQUENCE_MASK},
    layout::{self, control, session, slot},
};

#[test]
fn the_c_header_is_printed_from_the_constants() {
    let mut text = String::from(
        "/* SPDX-License-Identifier: MIT OR Apache-2.0 */\n\
         /* Printed from layout.rs by the test beside it; not to be edited. Words of 8 bytes. */\n\
         #ifndef CURTAIL_ORDERED_QUEUE_H\n#define CURTAIL_ORDERED_QUEUE_H\n\n",
    );
    for (name, number) in control_page().into_iter().chain(slots()).chain(sessions()) {
        text += &format!("#define CURTAIL_{name} {number:#x}ULL\n");
    }
    text += "\n#endif\n";
    assert!(
        include_str!("../layout.h") == text,
        "layout.h has to be:\n{text}"
    );
}

fn control_page() -> [(&'static str, u64); 19] {
    [
        ("SHAPE_MARK", layout::SHAPE_MARK),
        ("CONTROL_WORDS", layout::CONTROL_WORDS as u64),
        ("CONTROL_TAIL", control::TAIL as u64),
        ("CONTROL_HEAD_SEEN", control::HEAD_SEEN as u64),
        ("CONTROL_HEAD", control::HEAD as u64),
        ("CONTROL_DURABLE_POS", control::DURABLE_POS as u64),
        ("CONTROL_INCARNATION", control::INCARNATION as u64),
        ("CONTROL_SHAPE", control::SHAPE as u64),
        ("CONTROL_STATE", control::STATE as u64),
        ("CONTROL_HEARTBEAT", control::HEARTBEAT as u64),
        ("CONTROL_BACKLOG_MAX", control::BACKLOG_MAX as u64),
        ("CONTROL_CREDITS", control::CREDITS as u64),
        ("CONTROL_LEASE", control::LEASE as u64),
        ("CONTROL_BELL", control::BELL as u64),
        ("BYTES_UNLIMITED", layout::BYTES_UNLIMITED),
        ("CONTROL_QUEUED", control::QUEUED as u64),
        ("CONTROL_FULL", control::FULL as u64),
        ("STATE_OPEN", QueueState::Open as u64),
        ("STATE_DRAINING", QueueState::Draining as u64),
    ]
}

fn slots() -> [(&'static str, u64); 17] {
    [
        ("VALUE_WORDS", layout::VALUE_WORDS as u64),
        ("FRONT_WORDS", layout::FRONT_WORDS as u64),
        ("REST_WORDS", layout::REST_WORDS as u64),
        ("SLOT_HEADER_WORDS", layout::SLOT_HEADER_WORDS as u64),
        ("SLOT_COMMIT", slot::COMMIT as u64),
        ("SLOT_META", slot::META as u64),
        ("SLOT_SESSION", slot::SESSION as u64),
        ("SLOT_SEQUENCE", slot::SEQUENCE as u64),
        ("SLOT_KEY_HASH", slot::KEY_HASH as u64),
        ("SLOT_ARRIVED_NS", slot::ARRIVED_NS as u64),
        ("SLOT_ADDRESS", slot::ADDRESS as u64),
        ("META_KIND_SHIFT", u64::from(KIND_SHIFT)),
        ("META_ACCEPTED_BIT", ACCEPTED_BIT),
        ("KIND_NOOP", EntryKind::Noop as u64),
        ("KIND_SET", EntryKind::Set as u64),
        ("KIND_WRITE", EntryKind::Write as u64),
        ("STAMP_WORDS", layout::STAMP_WORDS as u64),
    ]
}

fn sessions() -> [(&'static str, u64); 14] {
    [
        ("SESSION_WORDS", layout::SESSION_WORDS as u64),
        ("SESSION_HEADER_WORDS", layout::SESSION_HEADER_WORDS as u64),
        ("SESSION_SLOTS", layout::SESSION_SLOTS as u64),
        ("SESSION_NAME", session::NAME as u64),
        ("SESSION_TOKEN", session::TOKEN as u64),
        ("SESSION_ADDRESS", session::ADDRESS as u64),
        ("SESSION_PORT", session::PORT as u64),
        ("SESSION_USED_NS", session::USED_NS as u64),
        ("SESSION_NONCE", session::NONCE as u64),
        ("SESSION_SEQUENCE_MASK", SEQUENCE_MASK),
        ("SESSION_STATE_OPEN", SlotState::Open as u64),
        ("SESSION_STATE_CLAIMED", SlotState::Claimed as u64),
        ("SESSION_STATE_QUEUED", SlotState::Queued as u64),
        ("SESSION_STATE_ACCEPTED", SlotState::Accepted as u64),
    ]
}
