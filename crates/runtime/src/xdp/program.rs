//! The XDP program loaded into the kernel with its maps, not attached to anything.
//!
//! The object is compiled from `bpf/` and kept in the repository, so that building the server needs
//! no compiler for it; `cargo xtask bpf` makes it, and a step of `cargo xtask test` proves that it
//! is what the source gives.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use aya::maps::{Map, PerCpuArray};
use aya::programs::{ProgramError, TestRun as _, TestRunOptions, Xdp as Program};
use aya::{Ebpf, EbpfLoader};
use rustix::thread::{MembarrierCommand, membarrier};

use super::error::XdpError;
use super::settings;
use super::shared_words::SharedWords;
use crate::clock::monotonic_ns;
use crate::sync::{AtomicU64, Ordering};

/// What the program and its maps are to be like.
#[derive(Clone, Copy, Debug)]
pub struct NicOptions {
    /// The UDP port whose datagrams it takes.
    pub port: u16,
    /// Queues: a power of two, 64 at most.
    pub queues: u32,
    /// Slots of a queue: a power of two.
    pub slots: u32,
    /// Words of a queue; a multiple of a value's.
    pub queue_words: usize,
    /// Words of a value of the array that they lie in.
    pub value_words: usize,
    /// Words of the stamp table.
    pub stamp_words: usize,
    /// Places for sessions.
    pub places: u32,
    /// Words of a session.
    pub session_words: usize,
    /// The seed of the key hash, and two words that are kept for the server; taken by who makes the
    /// maps, found by the next.
    pub secrets: [u64; 4],
    /// How old the server's heartbeat may be, in nanoseconds; then nothing is acknowledged.
    pub heartbeat_ns_max: u64,
    /// How long a session lasts unused, in nanoseconds.
    pub lease_ns: u64,
    /// Longest datagram that it takes, in bytes; the server answers longer ones.
    pub datagram_bytes_max: u32,
    /// Longest value that it takes, in bytes; the store's limit.
    pub value_bytes_max: u32,
    /// Whether answers leave by redirection to the interface instead of `XDP_TX`; for a veth whose
    /// peer has no program.
    pub redirect: bool,
    /// Whether it is the program of a node of a cluster: it accepts what [`Nic::gates`] allow, and
    /// leaves everything else to the server.
    pub on_node: bool,
}

/// Whether the maps were made or found.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MapsOrigin {
    /// Made now, all words 0.
    Fresh,
    /// An earlier process made them; what was acknowledged and not executed is in them.
    Found,
}

/// What the program did with a frame.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PacketFate {
    /// Nothing was sent, and the frame is gone.
    Dropped,
    /// The kernel goes on with it, and the server's socket receives it.
    Passed,
    /// It went back as an answer.
    Answered,
    /// The program met what cannot be.
    Aborted,
}

/// A frame after the program.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What became of it.
    pub fate: PacketFate,
    /// Its bytes.
    pub frame: Vec<u8>,
    /// How long the program took, in nanoseconds, on average of the repetitions.
    pub ns: u64,
}

/// The program and its maps.
pub struct Nic {
    ebpf: Ebpf,
    settings: SharedWords,
    queues: SharedWords,
    stamps: SharedWords,
    sessions: SharedWords,
    /// Of a node's program.
    gates: Option<SharedWords>,
    origin: MapsOrigin,
}

/// The maps that are pinned, by their names.
pub(super) const MAPS: [&str; 5] = ["settings", "queues", "stamps", "sessions", "counts"];
/// The one that a node's program has beside them.
pub(super) const GATES: &str = "gates";
/// Slices of a cluster, each with a gate.
const SLICES: usize = 256;
const PROGRAM: &str = "curtail_nic";
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../bpf/nic.bpf.o");
static NODE_OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../bpf/node.bpf.o");

/// The object of such a program.
pub(super) fn object(options: &NicOptions) -> &'static [u8] {
    match options.on_node {
        true => NODE_OBJECT,
        false => OBJECT,
    }
}

impl Nic {
    /// Loads the program, through the kernel's verifier. With `pins`, its maps are found in that
    /// directory or pinned there; without, they end with the value.
    pub fn load(options: &NicOptions, pins: Option<&Path>) -> Result<Self, XdpError> {
        Self::load_object(object(options), options, pins)
    }

    /// The same with another object, for tests of the tests.
    pub fn load_object(
        object: &[u8],
        options: &NicOptions,
        pins: Option<&Path>,
    ) -> Result<Self, XdpError> {
        let mut loader = EbpfLoader::new();
        // Nothing in the object depends on the kernel's own types, which take long to read.
        loader.btf(None);
        let values = options.queues as usize * options.queue_words / options.value_words;
        loader.map_max_entries("queues", values as u32);
        loader.map_max_entries("sessions", options.places);
        let gates = options.on_node.then_some(GATES);
        for map in MAPS.into_iter().chain(gates) {
            if let Some(directory) = pins {
                loader.map_pin_path(map, directory.join(map));
            }
        }
        let ebpf = loader.load(object).map_err(|e| XdpError::loading(&e))?;
        let array = |name: &'static str, words: usize, directory: Option<&Path>| {
            mapped(&ebpf, name, words, directory)
        };
        let settings = array("settings", settings::SETTINGS_WORDS, pins)?;
        let queues = array(
            "queues",
            options.queues as usize * options.queue_words,
            pins,
        )?;
        let stamps = array("stamps", options.stamp_words, pins)?;
        let sessions = array(
            "sessions",
            options.places as usize * options.session_words,
            pins,
        )?;
        let gates = gates.map(|name| array(name, SLICES, pins)).transpose()?;
        let mut nic = Self {
            ebpf,
            settings,
            queues,
            stamps,
            sessions,
            gates,
            origin: MapsOrigin::Fresh,
        };
        nic.settle(options, pins)?;
        load(nic.program()?)?;
        Ok(nic)
    }

    /// Whether this process could have the program: loads it with the smallest maps that there are,
    /// and lets it go again. Attached is nothing.
    pub fn probe() -> Result<(), XdpError> {
        let value_words = 224;
        let options = NicOptions {
            port: 0,
            queues: 1,
            slots: 1,
            queue_words: 5 * value_words,
            value_words,
            stamp_words: 1 << 16,
            places: 1,
            session_words: 136,
            secrets: [0; 4],
            heartbeat_ns_max: 0,
            lease_ns: 0,
            datagram_bytes_max: 0,
            value_bytes_max: 0,
            redirect: false,
            on_node: false,
        };
        Self::load(&options, None).map(drop)
    }

    /// Whether the maps were found.
    pub const fn origin(&self) -> MapsOrigin {
        self.origin
    }

    /// The secrets of the process that made the maps.
    pub fn secrets(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|at| self.setting(settings::SECRET + at))
    }

    /// Other secrets, for maps that were made now and take nothing yet.
    pub fn set_secrets(&self, secrets: [u64; 4]) {
        for (at, secret) in secrets.iter().enumerate() {
            self.set(settings::SECRET + at, *secret);
        }
    }

    /// The queues' memory, one behind the other.
    pub fn queues(&self) -> &[AtomicU64] {
        self.queues.words()
    }

    /// The stamps' memory.
    pub fn stamps(&self) -> &[AtomicU64] {
        self.stamps.words()
    }

    /// The sessions' memory.
    pub fn sessions(&self) -> &[AtomicU64] {
        self.sessions.words()
    }

    /// For each slice of a cluster whether the program may accept a write: 1, or 0; of a node's
    /// program.
    pub fn gates(&self) -> &[AtomicU64] {
        self.gates.as_ref().map_or(&[], SharedWords::words)
    }

    /// Tells the program what the wall clock says; to be called with every heartbeat.
    pub fn set_clock(&self, unix_ns: u64) {
        let offset = unix_ns.wrapping_sub(monotonic_ns());
        self.set(settings::WALL_OFFSET_NS, offset);
    }

    /// What the program has counted since its maps were made, by name.
    pub fn counts(&self) -> Result<Vec<(&'static str, u64)>, XdpError> {
        let map = self.ebpf.map("counts").ok_or_else(|| missing("counts"))?;
        let failed = |error| XdpError::map("reading the counts", &error);
        let counts: PerCpuArray<_, [u64; settings::COUNTS]> = map.try_into().map_err(failed)?;
        let values = counts.get(&0, 0).map_err(failed)?;
        let mut sum = [0_u64; settings::COUNTS];
        for value in values.iter() {
            for (all, one) in sum.iter_mut().zip(value) {
                *all += one;
            }
        }
        Ok(settings::COUNT_NAMES.into_iter().zip(sum).collect())
    }

    /// Gives the program a frame, `repeat` times, without a network.
    pub fn run(&mut self, frame: &[u8], repeat: u32) -> Result<Ran, XdpError> {
        let mut out = vec![0; frame.len().max(FRAME_BYTES_MAX)];
        let program = self.program()?;
        let answer = program.test_run(TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..TestRunOptions::new()
        });
        let answer = answer.map_err(|e| XdpError::other("running the program", &e))?;
        let (fate, bytes) = (answer.return_value, answer.data_size_out as usize);
        out.truncate(bytes);
        let fate = match fate {
            1 => PacketFate::Dropped,
            2 => PacketFate::Passed,
            3 | 4 => PacketFate::Answered,
            _ => PacketFate::Aborted,
        };
        Ok(Ran {
            fate,
            frame: out,
            ns: answer.duration.as_nanos() as u64,
        })
    }

    /// Waits until every run of the program that had begun before is over, so that none is left
    /// that saw what was changed since.
    pub fn quiesce() -> Result<(), XdpError> {
        // It waits for a grace period of the kernel's RCU, in which programs run.
        membarrier(MembarrierCommand::Global)
            .map_err(|error| XdpError::system("waiting for the kernel", &error.into()))
    }

    pub(super) fn program(&mut self) -> Result<&mut Program, XdpError> {
        let program = self.ebpf.program_mut(PROGRAM);
        let program = program.ok_or_else(|| missing(PROGRAM))?;
        program
            .try_into()
            .map_err(|error| XdpError::other("opening the program", &error))
    }

    pub(super) fn setting(&self, word: usize) -> u64 {
        // Acquire pairs with the Release in `settle` for the mark; the others need no order.
        self.settings.words()[word].load(Ordering::Acquire)
    }

    pub(super) fn set(&self, word: usize, value: u64) {
        self.settings.words()[word].store(value, Ordering::Relaxed);
    }

    /// Writes the settings, or compares those that cannot change with those that were found.
    fn settle(&mut self, options: &NicOptions, pins: Option<&Path>) -> Result<(), XdpError> {
        self.set(settings::PORT, u64::from(options.port.to_be()));
        self.set(settings::HEARTBEAT_NS_MAX, options.heartbeat_ns_max);
        self.set(settings::LEASE_NS, options.lease_ns);
        let datagram = u64::from(options.datagram_bytes_max);
        self.set(settings::DATAGRAM_BYTES_MAX, datagram);
        let value = u64::from(options.value_bytes_max);
        self.set(settings::VALUE_BYTES_MAX, value);
        let answer = match options.redirect {
            true => settings::ANSWER_REDIRECT,
            false => settings::ANSWER_BACK,
        };
        self.set(settings::ANSWER, answer);
        let bits = u64::from(options.queues.trailing_zeros());
        let shape = [
            ("queues (--native-queues)", settings::QUEUE_BITS, bits),
            (
                "slots per queue (--native-slots)",
                settings::SLOTS,
                u64::from(options.slots),
            ),
        ];
        if self.setting(settings::MARK) == settings::MARK_VALUE {
            self.origin = MapsOrigin::Found;
            for (what, word, wanted) in shape {
                // The operator knows how many queues there are, not their binary logarithm.
                let shown = |value: u64| match word {
                    settings::QUEUE_BITS => 1_u64.checked_shl(value as u32).unwrap_or(0),
                    _ => value,
                };
                fits(what, shown(self.setting(word)), shown(wanted), pins)?;
            }
            return Ok(());
        }
        for (_, word, wanted) in shape {
            self.set(word, wanted);
        }
        self.set_secrets(options.secrets);
        // Release pairs with the Acquire in `setting`: who finds the mark finds the rest.
        let mark = &self.settings.words()[settings::MARK];
        mark.store(settings::MARK_VALUE, Ordering::Release);
        Ok(())
    }
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Nic");
        fields.field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Loads the program. The verifier gives up with `EAGAIN` when a signal comes meanwhile, even one
/// that only stops the process.
pub(super) fn load(program: &mut Program) -> Result<(), XdpError> {
    for _ in 1..LOADS_MAX {
        match program.load() {
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(libc::EAGAIN) => {}
            result => return result.map_err(|error| XdpError::verifying(&error)),
        }
    }
    program.load().map_err(|error| XdpError::verifying(&error))
}

/// As often as libbpf tries.
const LOADS_MAX: usize = 5;

/// Maps an array of the object, and sees that it is as long as that.
fn mapped(
    ebpf: &Ebpf,
    name: &'static str,
    words: usize,
    pins: Option<&Path>,
) -> Result<SharedWords, XdpError> {
    let map = ebpf.map(name);
    let Some(Map::Array(map)) = map else {
        return Err(missing(name));
    };
    let doing = "opening BPF maps";
    let info = map.info().map_err(|error| XdpError::map(doing, &error))?;
    let found = u64::from(info.max_entries()) * u64::from(info.value_size()) / 8;
    let what = match name {
        "queues" => "words of memory for queues (--native-queues, --native-slots)",
        "sessions" => "words of memory for sessions (-o native_sessions)",
        "stamps" => "words of memory for stamps",
        GATES => "words of memory for slices",
        _ => "words of memory for settings",
    };
    fits(what, found, words as u64, pins)?;
    let file: BorrowedFd<'_> = map.fd().as_fd();
    SharedWords::map(file, words).map_err(|error| XdpError::system("mapping BPF maps", &error))
}

fn fits(what: &'static str, found: u64, wanted: u64, pins: Option<&Path>) -> Result<(), XdpError> {
    match found == wanted {
        true => Ok(()),
        false => Err(XdpError::Shape {
            what,
            found,
            wanted,
            directory: pins.unwrap_or(Path::new("")).to_path_buf(),
        }),
    }
}

fn missing(name: &'static str) -> XdpError {
    XdpError::System {
        doing: "reading the object",
        reason: format!("it has no `{name}`"),
    }
}

/// Longest frame that a run gives back, in bytes.
const FRAME_BYTES_MAX: usize = 4096;
