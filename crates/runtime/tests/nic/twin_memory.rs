//! Two sets of the same words: one in maps that the program writes, one in memory that the twin
//! writes. After every frame they have to be equal.

use std::sync::atomic::{AtomicU64, Ordering};

use curtail_dispatch::Worker;
use curtail_ordered_queue::{
    Ingress, OrderedQueue, Peek, Peer, QueueState, SessionLimits, SessionName, Sessions, Stamps,
    layout,
};
use curtail_runtime::{Nic, NicOptions, PacketFate, monotonic_ns};
use curtail_types::HashSeed;

use super::namespace::is_skipped;
use super::twin::{Expected, Moment, Twin};

pub(crate) const PORT: u16 = 11311;
pub(crate) const QUEUES: u32 = 4;
pub(crate) const SLOTS: u32 = 8;
pub(crate) const PLACES: u32 = 16;
pub(crate) const INCARNATION: u64 = 0x1234_5678_9abc;
/// Never in the balance while a frame is looked at.
pub(crate) const HEARTBEAT_NS_MAX: u64 = 3_600_000_000_000;
pub(crate) const LEASE_NS: u64 = 8 * 3_600_000_000_000;
pub(crate) const DATAGRAM_BYTES_MAX: u32 = 1900;
pub(crate) const VALUE_BYTES_MAX: u32 = 1600;
const SECRETS: [u64; 4] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, 3, 4];

/// The maps of a test.
pub(crate) fn options() -> NicOptions {
    NicOptions {
        port: PORT,
        queues: QUEUES,
        slots: SLOTS,
        queue_words: layout::queue_words(u64::from(SLOTS)),
        value_words: layout::VALUE_WORDS,
        stamp_words: layout::STAMP_WORDS,
        places: PLACES,
        session_words: layout::SESSION_WORDS,
        secrets: SECRETS,
        heartbeat_ns_max: HEARTBEAT_NS_MAX,
        lease_ns: LEASE_NS,
        datagram_bytes_max: DATAGRAM_BYTES_MAX,
        value_bytes_max: VALUE_BYTES_MAX,
        redirect: false,
    }
}

/// The program, or `None`, said aloud, where tests of it are skipped; fails where it cannot be
/// loaded. `CURTAIL_NIC_OBJECT` names another object than the one that is kept.
pub(crate) fn load(options: &NicOptions) -> Option<Nic> {
    if is_skipped() {
        return None;
    }
    let object = std::env::var_os("CURTAIL_NIC_OBJECT").map(|path| std::fs::read(path).unwrap());
    let nic = match object {
        Some(object) => Nic::load_object(&object, options, None),
        None => Nic::load(options, None),
    };
    match nic {
        Ok(nic) => Some(nic),
        Err(error) => panic!("{error}; CURTAIL_WITHOUT_XDP=1 skips what needs the program"),
    }
}

/// Memory of the twin.
pub(crate) struct Memory {
    queues: Box<[AtomicU64]>,
    stamps: Box<[AtomicU64]>,
    sessions: Box<[AtomicU64]>,
}

/// The words of a world.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    queues: &'a [AtomicU64],
    stamps: &'a [AtomicU64],
    sessions: &'a [AtomicU64],
}

/// What is done to both worlds alike, beside frames.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    State(usize, QueueState),
    Beat {
        queue: usize,
        age_ns: u64,
    },
    Backlog(usize, u64),
    Credits(usize, u64),
    Durable(usize, u64),
    Execute(usize),
    Grant(Peer, u64),
    Close(usize),
    /// A claim of a thread that is in the middle of an admission.
    Claim(usize, u8, u64),
    /// An hour goes by in which a session was not used.
    Idle(usize),
}

impl Memory {
    pub(crate) fn new() -> Self {
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            queues: words(QUEUES as usize * layout::queue_words(u64::from(SLOTS))),
            stamps: words(layout::STAMP_WORDS),
            sessions: words(PLACES as usize * layout::SESSION_WORDS),
        }
    }

    pub(crate) fn words(&self) -> Words<'_> {
        Words {
            queues: &self.queues,
            stamps: &self.stamps,
            sessions: &self.sessions,
        }
    }
}

impl<'a> Words<'a> {
    pub(crate) fn of(nic: &'a Nic) -> Self {
        Self {
            queues: nic.queues(),
            stamps: nic.stamps(),
            sessions: nic.sessions(),
        }
    }

    /// Empty, open queues with a server that lives.
    pub(crate) fn format(self) {
        for words in self.queues.chunks(layout::queue_words(u64::from(SLOTS))) {
            let queue = OrderedQueue::format(words, u64::from(SLOTS), INCARNATION);
            queue.set_state(QueueState::Open);
            queue.set_backlog_max(u64::from(SLOTS) - 2);
            queue.grant_bytes(1 << 40);
        }
    }

    pub(crate) fn queues(self) -> Vec<OrderedQueue<'a>> {
        let words = self.queues.chunks(layout::queue_words(u64::from(SLOTS)));
        words
            .map(|words| OrderedQueue::open(words).unwrap())
            .collect()
    }

    pub(crate) fn sessions(self) -> Sessions<'a> {
        Sessions::new(self.sessions)
    }

    /// Does a deed; `now_ns` is the same in both worlds.
    pub(crate) fn carry_out(self, deed: Deed, now_ns: u64) {
        let queues = self.queues();
        match deed {
            Deed::State(queue, state) => queues[queue].set_state(state),
            Deed::Beat { queue, age_ns } => queues[queue].beat(now_ns.saturating_sub(age_ns)),
            Deed::Backlog(queue, entries) => queues[queue].set_backlog_max(entries),
            Deed::Credits(queue, bytes) => queues[queue].grant_bytes(bytes),
            Deed::Durable(queue, pos) => queues[queue].raise_durable_pos(pos),
            Deed::Execute(queue) => {
                let mut lease = queues[queue].take_lease(Worker(0)).unwrap();
                if let Peek::Entry(_) = lease.peek(0) {
                    lease.advance(1);
                }
            }
            Deed::Grant(peer, place) => {
                grant(self.sessions(), peer, place, now_ns);
            }
            Deed::Close(place) => {
                let name = self.name(place);
                self.sessions().close(name.0, name.1);
            }
            Deed::Claim(place, slot, sequence) => {
                let name = self.name(place);
                let _ = self.sessions().claim(name.0, name.1, slot, sequence);
            }
            Deed::Idle(place) => {
                let used = &self.sessions[place * layout::SESSION_WORDS + USED_NS];
                used.store(now_ns.saturating_sub(LEASE_NS / 4), Ordering::Relaxed);
            }
        }
    }

    /// A session as its place has it, for a client that is honest.
    pub(crate) fn name(self, place: usize) -> (SessionName, Peer) {
        let word = |at: usize| {
            let words = &self.sessions[place * layout::SESSION_WORDS..];
            words[at].load(Ordering::Relaxed)
        };
        let name = SessionName {
            index: place as u32,
            generation: (word(0) >> 32) as u32,
            token: word(1),
        };
        let peer = Peer {
            address: [word(2), word(3)],
            port: word(4) as u16,
        };
        (name, peer)
    }
}

pub(crate) fn grant(sessions: Sessions<'_>, peer: Peer, place: u64, now_ns: u64) -> SessionName {
    let limits = SessionLimits {
        now_ns,
        lease_ns: 1, // an earlier holder is gone
        per_address: 1,
    };
    let token = |index: u32, generation: u32| {
        0x1122_3344_5566_7788_u64 ^ u64::from(index) << 32 ^ u64::from(generation)
    };
    sessions.grant(peer, place, limits, place, token).unwrap()
}

/// Gives a frame to both and compares: what differs, if anything does.
pub(crate) fn compare(nic: &mut Nic, memory: &Memory, frame: &[u8]) -> Result<Expected, String> {
    let tails = |words: Words<'_>| -> Vec<u64> {
        let queues = words.queues();
        queues.iter().map(|queue| queue.backlog().tail).collect()
    };
    let before = Moment {
        monotonic_ns: monotonic_ns(),
        unix_ns: 0,
    };
    let old_tails = tails(Words::of(nic));
    let ran = nic.run(frame, 1).map_err(|error| error.to_string())?;
    let after_ns = monotonic_ns();
    let found = match ran.fate {
        PacketFate::Passed => Expected::Passed,
        PacketFate::Dropped => Expected::Dropped,
        PacketFate::Answered => Expected::Answered(ran.frame.clone()),
        PacketFate::Aborted => return Err("the program gave up".into()),
    };
    if found == Expected::Passed && ran.frame != frame {
        return Err("a frame that is passed on was changed".into());
    }
    let twin_words = memory.words();
    let moment = the_programs_moment(Words::of(nic), twin_words, &old_tails, before, after_ns)?;
    let queues = twin_words.queues();
    let twin = Twin {
        ingress: Ingress {
            queues: &queues,
            stamps: Stamps::new(twin_words.stamps),
            sessions: twin_words.sessions(),
            heartbeat_ns_max: HEARTBEAT_NS_MAX,
        },
        seed: HashSeed([SECRETS[0], SECRETS[1]]),
        port: PORT,
        lease_ns: LEASE_NS,
        datagram_bytes_max: DATAGRAM_BYTES_MAX as usize,
        value_bytes_max: VALUE_BYTES_MAX as usize,
        incarnation: INCARNATION,
    };
    let expected = twin.receive(frame, moment);
    if found != expected {
        return Err(format!(
            "the program: {found:x?}\nthe twin:    {expected:x?}"
        ));
    }
    let nic_words = Words::of(nic);
    equal("queues", nic_words.queues, twin_words.queues)?;
    equal("sessions", nic_words.sessions, twin_words.sessions)?;
    Ok(expected)
}

/// Compares the stamps, which are too many to be looked at after every frame.
pub(crate) fn compare_stamps(nic: &Nic, memory: &Memory) -> Result<(), String> {
    equal("stamps", Words::of(nic).stamps, memory.words().stamps)
}

/// The times that the program wrote down, which have to lie between `before` and `after_ns`.
fn the_programs_moment(
    nic: Words<'_>,
    twin: Words<'_>,
    old_tails: &[u64],
    before: Moment,
    after_ns: u64,
) -> Result<Moment, String> {
    let mut moment = before;
    for (place, (ours, theirs)) in (nic.sessions.chunks(layout::SESSION_WORDS))
        .zip(twin.sessions.chunks(layout::SESSION_WORDS))
        .enumerate()
    {
        let [ours, theirs] = [ours, theirs].map(|words| words[USED_NS].load(Ordering::Relaxed));
        if ours != theirs {
            if !(before.monotonic_ns - TICK_NS_MAX..=after_ns).contains(&ours) {
                return Err(format!("session {place} was used at {ours}"));
            }
            moment.monotonic_ns = ours;
        }
    }
    for (queue, old_tail) in nic.queues().iter().zip(old_tails) {
        if let (true, Some(entry)) = (queue.backlog().tail > *old_tail, queue.entry(*old_tail)) {
            moment.unix_ns = entry.arrived_ns();
            let monotonic_ns = moment.unix_ns.wrapping_sub(WALL_OFFSET_NS);
            // The clock was told in two steps, so that its offset is known to a millisecond.
            let slack = 1_000_000;
            let range = before.monotonic_ns - TICK_NS_MAX - slack..=after_ns + slack;
            if !range.contains(&monotonic_ns) {
                return Err(format!(
                    "an entry arrived at {monotonic_ns}, not in {range:?}"
                ));
            }
        }
    }
    Ok(moment)
}

fn equal(name: &str, ours: &[AtomicU64], theirs: &[AtomicU64]) -> Result<(), String> {
    let differs = ours
        .iter()
        .zip(theirs)
        .position(|(ours, theirs)| ours.load(Ordering::Relaxed) != theirs.load(Ordering::Relaxed));
    match differs {
        None => Ok(()),
        Some(at) => Err(format!(
            "word {at} of the {name}: the program has {:#x}, the twin {:#x}",
            ours[at].load(Ordering::Relaxed),
            theirs[at].load(Ordering::Relaxed)
        )),
    }
}

/// How far the program's clock, which is the kernel's last tick, may be behind.
const TICK_NS_MAX: u64 = 20_000_000;
/// Wall time minus monotonic time in these worlds.
pub(crate) const WALL_OFFSET_NS: u64 = 1_700_000_000_000_000_000;
/// Where a session's last use is; the layout's, which the C header prints.
const USED_NS: usize = 5;
