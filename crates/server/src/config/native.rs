//! The configuration of the native datagram path.

use std::path::PathBuf;

use curtail_codec::native::{DATAGRAM_BYTES_MAX, HEADER_BYTES};
use curtail_ordered_queue::{EarlyLimits, layout};
use curtail_runtime::{Attach, SteerBy};
use curtail_types::{Key, named_enum};

/// The native datagram path: `--native` and what goes with it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NativeConfig {
    /// UDP and TCP port at the addresses of [`crate::Config::listen`]; 0 lets the kernel choose.
    pub port: u16,
    /// Who acknowledges writes; `None` for the program in the network card's driver where an
    /// interface is named and that works, else for a thread.
    pub mode: Option<NativeMode>,
    /// The interface whose driver runs the program.
    pub interface: Option<String>,
    /// Who runs the program there.
    pub attach: Attach,
    /// Ordered Queues: 16, 32 or 64.
    pub queues: usize,
    /// Slots of a queue, a power of two; `None` for 4096, or fewer so that queues take no more than
    /// an eighth of the memory limit.
    pub slots: Option<u64>,
    /// Where the program and its maps are pinned.
    pub pin: PathBuf,
    /// Sessions at most.
    pub sessions: usize,
    /// Sessions of one address at most, up to 16.
    pub sessions_per_address: usize,
    /// How long a session lasts unused, in milliseconds.
    pub lease_ms: u32,
    /// How many writes may wait in a queue at most for one to be acknowledged before it is
    /// executed.
    pub backlog_max: u64,
    /// How long a read may have to wait for writes that were acknowledged before it, in
    /// microseconds: fewer than `backlog_max` may wait where execution is slow. 0: that many.
    pub read_wait_us: u32,
    /// Which workers run requests, and execute a queue.
    pub placement: NativePlacement,
    /// Which worker's socket a datagram comes to, where workers receive.
    pub choice: NativeChoice,
    /// Longest datagram, in bytes, to and from other machines; what the path's MTU leaves.
    pub datagram_bytes_max: usize,
    /// Processor time added to each execution, in nanoseconds: for experiments.
    pub service_ns: u64,
}

named_enum! {
    /// Who acknowledges a write, and when (Juneberry's own way and its baselines; JB-24, JB-25).
    pub enum NativeMode {
        /// The XDP program, before any thread has run.
        Xdp = "xdp",
        /// A thread that does nothing else, before a worker executes.
        IoAck = "io-ack",
        /// The worker that received it, just before executing it: DeferredExec.
        Deferred = "deferred",
        /// The worker that executed it, after that: RawRPC.
        Raw = "raw",
    }
}

named_enum! {
    /// Which workers run requests and execute queues: Minos's baselines (NSDI 2019, section 5.1;
    /// MI-55..57) on the datagram path.
    #[derive(Default)]
    pub enum NativePlacement {
        /// Any worker, beginning with its own queues.
        #[default]
        Any = "any",
        /// The one worker that the queue belongs to.
        Owner = "owner",
        /// Where workers receive, the worker that received it: HKH, early binding, with
        /// [`NativeChoice::Writes`] or [`NativeChoice::Key`]. Elsewhere as `Any`.
        Arrival = "arrival",
        /// The same, one request at a time, and who has nothing to do takes what others have not
        /// begun: HKH+WS. Elsewhere as `Any`.
        Stealing = "stealing",
        /// Any free worker, one request at a time, from a queue that a thread fills: SHO. Where
        /// that thread acknowledges writes, it hands over reads.
        HandOff = "hand-off",
    }
}

named_enum! {
    /// Which of the workers' sockets the kernel gives a datagram to (MI-6, MI-8, MI-55). Never more
    /// than a hint: any worker serves any request (MI-12).
    #[derive(Default)]
    pub enum NativeChoice {
        /// One for each client's address and port.
        #[default]
        Flow = "flow",
        /// Any.
        Random = "random",
        /// Writes by their key, reads any: CREW, as Minos's clients choose.
        Writes = "writes",
        /// All by their key: EREW.
        Key = "key",
    }
}

impl Default for NativeConfig {
    fn default() -> Self {
        Self {
            port: 0,
            mode: None,
            interface: None,
            attach: Attach::Any,
            queues: 16,
            slots: None,
            pin: PathBuf::from("/sys/fs/bpf/curtail"),
            sessions: 1024,
            sessions_per_address: 16,
            lease_ms: 60_000,
            backlog_max: 256,
            read_wait_us: 1000,
            placement: NativePlacement::default(),
            choice: NativeChoice::default(),
            datagram_bytes_max: 1452,
            service_ns: 0,
        }
    }
}

impl NativeConfig {
    /// Slots of a queue at most.
    pub const SLOTS_MAX: u64 = layout::QUEUE_SLOTS_MAX;

    /// Sessions at most.
    pub const SESSIONS_MAX: usize = 1 << 16;

    /// Sessions of one address at most.
    pub const ADDRESS_SESSIONS_MAX: usize = 16;

    /// How long an unused session lasts at least, in milliseconds.
    pub const LEASE_MS_MIN: u32 = 100;

    /// The longest datagram is so many bytes: one with the longest key and no value at least.
    pub const DATAGRAM_BYTES: std::ops::RangeInclusive<usize> =
        HEADER_BYTES + Key::BYTES_MAX..=DATAGRAM_BYTES_MAX;

    /// Whether workers receive datagrams themselves, in a mode.
    pub(crate) fn workers_receive(&self, mode: NativeMode) -> bool {
        mode.workers_receive() && self.placement != NativePlacement::HandOff
    }

    /// Slots of each queue under a memory limit.
    pub(crate) fn slots_under(&self, memory_bytes_max: usize) -> u64 {
        self.slots.unwrap_or_else(|| {
            let share = memory_bytes_max / 8 / self.queues / SLOT_BYTES;
            let slots = 1_u64 << (share.max(1) as u64).ilog2();
            slots.clamp(SLOTS_LEAST, SLOTS_MOST)
        })
    }

    /// What may be acknowledged early in each of its queues of so many slots. Of the memory limit
    /// an eighth is for writes that are acknowledged and not stored yet.
    pub(crate) fn early_limits(&self, slots: u64, memory_bytes_max: usize) -> EarlyLimits {
        EarlyLimits {
            read_wait_ns: u64::from(self.read_wait_us) * 1000,
            entries_max: self.backlog_max.min(slots),
            bytes_max: (memory_bytes_max / 8 / self.queues) as u64,
        }
    }

    /// What is wrong with it, in words for an operator.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let slots_fit = self
            .slots
            .is_none_or(|slots| slots.is_power_of_two() && slots <= Self::SLOTS_MAX);
        let is_baseline = matches!(
            self.placement,
            NativePlacement::Stealing | NativePlacement::HandOff
        );
        if is_baseline && !cfg!(feature = "baselines") {
            Some(
                "native_placement stealing and hand-off need a program built with --features \
                 baselines",
            )
        } else if !matches!(self.queues, 16 | 32 | 64) {
            Some("queues are 16, 32 or 64")
        } else if !slots_fit {
            Some("slots of a queue are a power of two, at most 1048576")
        } else if self.sessions == 0 || self.sessions > Self::SESSIONS_MAX {
            Some("sessions are 1 to 65536")
        } else if self.lease_ms < Self::LEASE_MS_MIN {
            Some("a session's lease is at least 100 ms")
        } else {
            None
        }
    }
}

impl NativeMode {
    /// Whether it is the workers who acknowledge, and receive unless a thread does that for them.
    pub(crate) const fn workers_receive(self) -> bool {
        matches!(self, Self::Deferred | Self::Raw)
    }
}

impl NativeChoice {
    /// What the kernel is told; `None` for what it does by itself.
    pub(crate) const fn steer(self) -> Option<SteerBy> {
        match self {
            Self::Flow => None,
            Self::Random => Some(SteerBy::Random),
            Self::Writes => Some(SteerBy::WritesByKey),
            Self::Key => Some(SteerBy::Key),
        }
    }
}

const SLOT_BYTES: usize = layout::SLOT_WORDS * 8;
const SLOTS_LEAST: u64 = 64;
const SLOTS_MOST: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_take_an_eighth_of_the_memory_at_most() {
        let config = NativeConfig::default();
        assert_eq!(config.slots_under(64 << 20), 256);
        assert_eq!(config.slots_under(1 << 30), 4096);
        assert_eq!(config.slots_under(1 << 40), 4096);
        assert_eq!(config.slots_under(1 << 20), 64);
        let told = NativeConfig {
            slots: Some(512),
            ..NativeConfig::default()
        };
        assert_eq!(told.slots_under(64 << 20), 512);
    }

    /// Bytes are counted under a memory limit that the longest datagrams of a full backlog would
    /// exceed an eighth of, and not by default.
    #[test]
    fn the_memory_limit_bounds_what_is_acknowledged_and_not_stored() {
        let config = NativeConfig::default();
        let limits = |memory| config.early_limits(config.slots_under(memory), memory);
        assert_eq!(limits(64 << 20).entries_max, 256);
        assert!(!limits(64 << 20).counts_bytes() && !limits(1 << 30).counts_bytes());
        let scarce = limits(6 << 20);
        assert_eq!((scarce.entries_max, scarce.bytes_max), (64, 49_152));
        assert!(scarce.counts_bytes());
    }

    #[test]
    fn what_makes_no_sense_is_said_so() {
        assert_eq!(NativeConfig::default().fault(), None);
        let wrong = [
            NativeConfig {
                queues: 8,
                ..NativeConfig::default()
            },
            NativeConfig {
                slots: Some(100),
                ..NativeConfig::default()
            },
            NativeConfig {
                sessions: 0,
                ..NativeConfig::default()
            },
        ];
        assert!(wrong.iter().all(|config| config.fault().is_some()));
        assert_eq!("io-ack".parse(), Ok(NativeMode::IoAck));
        assert!("fast".parse::<NativeMode>().is_err());
    }
}
