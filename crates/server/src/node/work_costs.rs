//! What forwarded requests and messages between machines cost this node (CL-13): the processor time
//! of some turns, and what was received and sent in them.
//!
//! ```text
//!   turn:  | wait | requests of clients |  links in  |  machines  |  links out  | answers |  next
//!                                       |<---- work, of that in machines ------>|
//!          |<----------------------- cycle ------------------------------------------------>|
//! ```
//!
//! Work outside the machines is divided between forwarded requests and messages by their frames:
//! what shares a frame costs less, so the figures follow how much clients pipeline. Where no client
//! asked for anything and none was answered, the whole turn took place for other nodes. A byte of a
//! value is measured once, at the start: what it costs to copy it in and out of the kernel.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use curtail_consistency::hot_list::HotCosts;
use curtail_links::LinkCounts;
use curtail_runtime::ThreadCpuClock;

use crate::sync::{AtomicU64, Relaxed};

/// One turn in so many is measured.
const MEASURED_EVERY: u64 = 64;

/// Measured requests or parts of a kind below which it is not known what they cost.
const KNOWN_FROM: u64 = 64;

/// Parts of frames of one kind, and the frames.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct PartCount {
    pub(super) frames: u64,
    pub(super) parts: u64,
}

/// What was received in a turn.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Received {
    /// Requests of other nodes, and answers of theirs.
    pub(super) forwarded: PartCount,
    pub(super) messages: PartCount,
}

/// The measurement of one worker.
#[derive(Debug, Default)]
pub(super) struct TurnCosts {
    cpu: ThreadCpuClock,
    open: Option<OpenTurn>,
}

/// A turn that is measured.
#[derive(Clone, Copy, Debug, Default)]
struct OpenTurn {
    begun_ns: u64,
    requests_before: u64,
    work_begun_ns: u64,
    work_ended_ns: u64,
    machines_ns: u64,
    answers_clients: bool,
    forwarded: PartCount,
    messages: PartCount,
}

/// What the workers of a node have measured and nobody has taken.
pub(super) type CostTally = Sums<AtomicU64>;

/// Processor time, and for how much it was spent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Sums<T> {
    local_ns: T,
    local_requests: T,
    forwarded_ns: T,
    forwarded_parts: T,
    forwarded_frames: T,
    messages_ns: T,
    messages: T,
}

/// The same over some epochs, of which each counts half as much as the next.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct CostSums {
    byte_ps: u32,
    /// What is known, of when there was last enough to tell.
    known: Option<HotCosts>,
    sums: Sums<u64>,
}

impl TurnCosts {
    /// Ends the turn before and begins turn `number`; clients have made `requests` so far.
    #[inline]
    pub(super) fn begin(&mut self, number: u64, requests: u64, tally: &CostTally) {
        if self.open.is_none() && !number.is_multiple_of(MEASURED_EVERY) {
            return;
        }
        let now_ns = self.cpu.ns();
        if let Some(turn) = self.open.take() {
            let asked = requests.saturating_sub(turn.requests_before);
            turn.add_to(tally, now_ns, asked);
        }
        if number.is_multiple_of(MEASURED_EVERY) {
            self.open = Some(OpenTurn {
                begun_ns: now_ns,
                requests_before: requests,
                ..OpenTurn::default()
            });
        }
    }

    /// Work for other nodes begins.
    #[inline]
    pub(super) fn begin_work(&mut self) {
        if let Some(turn) = &mut self.open {
            turn.work_begun_ns = self.cpu.ns();
        }
    }

    /// The processor time of this thread.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu.ns()
    }

    /// The processor time, if this turn is measured.
    #[inline]
    pub(super) fn look(&self) -> Option<u64> {
        self.open.map(|_| self.cpu.ns())
    }

    /// The machines are done, which began at `since`.
    #[inline]
    pub(super) fn end_machines(&mut self, since: Option<u64>) {
        if let (Some(turn), Some(since)) = (&mut self.open, since) {
            turn.machines_ns = self.cpu.ns().saturating_sub(since);
        }
    }

    /// Work for other nodes has ended, in which this was received and sent.
    #[inline]
    pub(super) fn end_work(
        &mut self,
        received: Received,
        sent: &LinkCounts,
        answers_clients: bool,
    ) {
        if let Some(turn) = &mut self.open {
            turn.work_ended_ns = self.cpu.ns();
            turn.answers_clients = answers_clients;
            turn.forwarded = PartCount {
                frames: received.forwarded.frames + sent.frames.saturating_sub(sent.message_frames),
                parts: received.forwarded.parts + sent.parts.saturating_sub(sent.messages),
            };
            turn.messages = PartCount {
                frames: received.messages.frames + sent.message_frames,
                parts: received.messages.parts + sent.messages,
            };
        }
    }
}

impl OpenTurn {
    fn add_to(&self, tally: &CostTally, ended_ns: u64, requests: u64) {
        let cycle_ns = ended_ns.saturating_sub(self.begun_ns);
        let mut work_ns = self.work_ended_ns.saturating_sub(self.work_begun_ns);
        let frames = self.forwarded.frames + self.messages.frames;
        if requests > 0 {
            add(&tally.local_ns, cycle_ns.saturating_sub(work_ns));
            add(&tally.local_requests, requests);
        } else if frames > 0 {
            // What follows the work is for clients, if some are answered.
            work_ns = match self.answers_clients {
                true => self.work_ended_ns.saturating_sub(self.begun_ns),
                false => cycle_ns,
            };
        }
        if frames == 0 {
            return;
        }
        let links_ns = work_ns.saturating_sub(self.machines_ns);
        let of_messages = links_ns * self.messages.frames / frames;
        add(&tally.forwarded_ns, links_ns - of_messages);
        add(&tally.forwarded_parts, self.forwarded.parts);
        add(&tally.forwarded_frames, self.forwarded.frames);
        if self.messages.parts > 0 {
            add(&tally.messages_ns, of_messages + self.machines_ns);
            add(&tally.messages, self.messages.parts);
        }
    }
}

impl CostSums {
    /// Nothing is known but what a byte costs.
    pub(super) fn new() -> Self {
        Self {
            byte_ps: byte_ps().unwrap_or(HotCosts::ASSUMED.byte_ps),
            ..Self::default()
        }
    }

    /// Takes what was measured in an epoch.
    pub(super) fn end_epoch(&mut self, tally: &CostTally) {
        let sums = &mut self.sums;
        for (sum, measured) in [
            (&mut sums.local_ns, &tally.local_ns),
            (&mut sums.local_requests, &tally.local_requests),
            (&mut sums.forwarded_ns, &tally.forwarded_ns),
            (&mut sums.forwarded_parts, &tally.forwarded_parts),
            (&mut sums.forwarded_frames, &tally.forwarded_frames),
            (&mut sums.messages_ns, &tally.messages_ns),
            (&mut sums.messages, &tally.messages),
        ] {
            *sum = *sum / 2 + measured.swap(0, Relaxed);
        }
        self.known = self.told().or(self.known);
    }

    /// What is known.
    pub(super) const fn costs(&self) -> Option<HotCosts> {
        self.known
    }

    /// Nothing unless enough requests were forwarded. A message of which nothing is known costs as
    /// much as it would alone in its frame.
    fn told(&self) -> Option<HotCosts> {
        let sums = &self.sums;
        if sums.local_requests < KNOWN_FROM || sums.forwarded_parts < KNOWN_FROM {
            return None;
        }
        let local_ns = sums.local_ns / sums.local_requests;
        let part_ns = sums.forwarded_ns / sums.forwarded_parts;
        let message_ns = match sums.messages >= KNOWN_FROM {
            true => sums.messages_ns / sums.messages,
            false => sums.forwarded_ns / sums.forwarded_frames.max(1),
        };
        let short = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
        Some(HotCosts {
            local_ns: short(local_ns),
            // Request and answer, each sent and received.
            forwarded_ns: short(local_ns + 4 * part_ns),
            message_ns: short(2 * message_ns),
            byte_ps: self.byte_ps,
        })
    }
}

/// Bytes that are copied at a time, and how often: a fraction of a millisecond.
const COPIED_BYTES: usize = 64 << 10;
const COPIES: u64 = 16;

/// What it takes to pass a byte on: into a buffer, through the kernel, out of a buffer; in
/// picoseconds. `None` if the system does not let it be measured.
fn byte_ps() -> Option<u32> {
    let (mut here, mut there) = UnixStream::pair().ok()?;
    here.set_nonblocking(true).ok()?;
    let (value, mut buffer, mut item) = (
        vec![7; COPIED_BYTES],
        vec![0; COPIED_BYTES],
        vec![0; COPIED_BYTES],
    );
    let cpu = ThreadCpuClock;
    // The first round makes the memory be there.
    let mut begun_ns = 0;
    for round in 0..=COPIES {
        if round == 1 {
            begun_ns = cpu.ns();
        }
        buffer.copy_from_slice(&value);
        here.write_all(&buffer).ok()?;
        there.read_exact(&mut buffer).ok()?;
        item.copy_from_slice(&buffer);
    }
    let taken_ps = cpu.ns().saturating_sub(begun_ns) * 1000;
    u32::try_from(taken_ps / (COPIES * COPIED_BYTES as u64)).ok()
}

fn add(sum: &AtomicU64, amount: u64) {
    sum.fetch_add(amount, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(frames: u64, parts: u64) -> PartCount {
        PartCount { frames, parts }
    }

    fn measured(turns: impl Iterator<Item = (OpenTurn, u64, u64)>) -> Option<HotCosts> {
        let (tally, mut sums) = (CostTally::default(), CostSums::default());
        turns.for_each(|(turn, ended_ns, requests)| turn.add_to(&tally, ended_ns, requests));
        sums.end_epoch(&tally);
        let first = sums.costs();
        // Epochs without anything change nothing.
        for _ in 0..3 {
            sums.end_epoch(&tally);
            assert_eq!(sums.costs(), first);
        }
        first
    }

    /// A turn in which clients made requests, of which all were forwarded in so many frames.
    fn forwards(frames: u64, parts: u64) -> (OpenTurn, u64, u64) {
        let turn = OpenTurn {
            work_begun_ns: 16_000,
            work_ended_ns: 16_000 + 2_000 * frames,
            forwarded: count(frames, parts),
            ..OpenTurn::default()
        };
        (turn, 16_000 + 2_000 * frames, 16)
    }

    /// A turn of one message that came and one that went.
    fn message() -> (OpenTurn, u64, u64) {
        let turn = OpenTurn {
            work_begun_ns: 500,
            work_ended_ns: 5_000,
            machines_ns: 1_000,
            messages: count(2, 2),
            ..OpenTurn::default()
        };
        (turn, 6_000, 0)
    }

    #[test]
    fn what_shares_a_frame_costs_less() {
        let alone = measured((0..1000).map(|_| forwards(4, 4))).unwrap();
        let together = measured((0..1000).map(|_| forwards(4, 16))).unwrap();
        assert_eq!((alone.local_ns, alone.forwarded_ns), (1_000, 9_000));
        assert_eq!((together.local_ns, together.forwarded_ns), (1_000, 3_000));
        // Nothing is known of messages: each alone.
        assert_eq!((alone.message_ns, together.message_ns), (4_000, 4_000));
    }

    #[test]
    fn a_turn_for_other_nodes_counts_from_end_to_end() {
        let both = (0..1000).flat_map(|_| [forwards(4, 16), message()]);
        let costs = measured(both).unwrap();
        assert_eq!(costs.forwarded_ns, 3_000);
        assert_eq!(costs.message_ns, 6_000);
    }

    #[test]
    fn a_byte_costs_something() {
        assert!(byte_ps().unwrap() > 0);
    }

    #[test]
    fn nothing_is_known_at_first() {
        assert_eq!(measured((0..3).map(|_| forwards(4, 4))), None);
        assert_eq!(measured((0..1000).map(|_| message())), None);
    }

    /// Goal: one turn in 64 is measured, whatever it does.
    #[test]
    fn few_turns_are_measured() {
        let (mut costs, tally) = (TurnCosts::default(), CostTally::default());
        let mut looked = 0;
        for number in 0..6400 {
            costs.begin(number, number, &tally);
            costs.begin_work();
            looked += u64::from(costs.look().is_some());
            let since = costs.look();
            costs.end_machines(since);
            costs.end_work(Received::default(), &LinkCounts::default(), false);
        }
        costs.begin(6401, 6401, &tally);
        assert_eq!(looked, 100);
        assert_eq!(tally.local_requests.load(Relaxed), 100);
        assert_eq!(tally.forwarded_ns.load(Relaxed), 0);
    }
}
