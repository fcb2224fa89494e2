//! The settings of the XDP program, as words of a map: the one file that `bpf/settings.h` is
//! checked against.
//!
//! The words outlive the process, like the queues: the next one finds the shape of what it has
//! found, and the secrets under which it was filled.

/// Words of the settings.
pub(super) const SETTINGS_WORDS: usize = 32;
/// Says that the other words are written: "NC" and the version of this layout.
pub(super) const MARK: usize = 0;
/// The UDP port, in the order of the network.
pub(super) const PORT: usize = 1;
/// The binary logarithm of the number of queues.
pub(super) const QUEUE_BITS: usize = 2;
/// Slots of a queue, a power of two.
pub(super) const SLOTS: usize = 3;
/// Four words: the seed of the key hash, and two that are the server's alone.
pub(super) const SECRET: usize = 4;
/// How old the server's heartbeat may be.
pub(super) const HEARTBEAT_NS_MAX: usize = 8;
/// How long a session lasts unused.
pub(super) const LEASE_NS: usize = 9;
/// How answers leave.
pub(super) const ANSWER: usize = 10;
/// How the program is attached; for the next process.
pub(super) const ATTACHED: usize = 11;
/// Longer datagrams are left to the server.
pub(super) const DATAGRAM_BYTES_MAX: usize = 12;
/// Longer values are left to the server.
pub(super) const VALUE_BYTES_MAX: usize = 13;
/// What turns monotonic time into Unix time; on a cache line of its own, since it is written often.
pub(super) const WALL_OFFSET_NS: usize = 16;

/// The value of the mark.
pub(super) const MARK_VALUE: u64 = 0x4e43_0001;

/// Answers leave by the driver's own transmission (`XDP_TX`).
pub(super) const ANSWER_BACK: u64 = 0;
/// Answers leave as if they were forwarded, which works where a peer has no program (veth).
pub(super) const ANSWER_REDIRECT: u64 = 1;

/// Words of the counts, in the order of [`super::NicCounts`].
pub(super) const COUNTS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program counts, in the order of its words.
    const COUNT_NAMES: [&str; 11] = [
        "ACCEPTED",
        "QUEUED",
        "REPEATED",
        "REPLAYED",
        "STALE",
        "ABSENT",
        "FULL",
        "NOT_READY",
        "UNKNOWN",
        "FRAGMENTS",
        "REFUSED",
    ];

    #[test]
    fn the_c_header_is_printed_from_the_constants() {
        let mut text = String::from(
            "/* SPDX-License-Identifier: MIT OR Apache-2.0 */\n\
             /* Printed from crates/runtime/src/xdp/settings.rs by the test beside it; \
             not to be edited. */\n\
             #ifndef CURTAIL_SETTINGS_H\n#define CURTAIL_SETTINGS_H\n\n",
        );
        let settings = [
            ("SETTINGS_WORDS", SETTINGS_WORDS as u64),
            ("SETTINGS_PORT", PORT as u64),
            ("SETTINGS_QUEUE_BITS", QUEUE_BITS as u64),
            ("SETTINGS_SLOTS", SLOTS as u64),
            ("SETTINGS_SECRET", SECRET as u64),
            ("SETTINGS_HEARTBEAT_NS_MAX", HEARTBEAT_NS_MAX as u64),
            ("SETTINGS_LEASE_NS", LEASE_NS as u64),
            ("SETTINGS_ANSWER", ANSWER as u64),
            ("SETTINGS_DATAGRAM_BYTES_MAX", DATAGRAM_BYTES_MAX as u64),
            ("SETTINGS_VALUE_BYTES_MAX", VALUE_BYTES_MAX as u64),
            ("SETTINGS_WALL_OFFSET_NS", WALL_OFFSET_NS as u64),
            ("ANSWER_BACK", ANSWER_BACK),
            ("ANSWER_REDIRECT", ANSWER_REDIRECT),
            ("COUNTS", COUNTS as u64),
        ];
        for (name, number) in settings {
            text += &format!("#define CURTAIL_{name} {number:#x}ULL\n");
        }
        for (number, name) in COUNT_NAMES.iter().enumerate() {
            text += &format!("#define CURTAIL_COUNT_{name} {number:#x}ULL\n");
        }
        text += "\n#endif\n";
        assert!(
            include_str!("../../../../bpf/settings.h") == text,
            "bpf/settings.h has to be:\n{text}"
        );
    }
}
