//! The network between the nodes: when, how often and whether a packet arrives.
//!
//! What machines say to each other may be lost, doubled and overtaken, as the machines are made
//! for; everything else travels on a link that keeps order. A partition delays that, or breaks the
//! link, and what was on its way is lost.

use curtail_types::NodeId;
use curtail_workload::{Chance, Random};

use super::faults::{Fault, Faults};

/// All links, each in one direction.
#[derive(Clone, Debug)]
pub(super) struct Network {
    nodes: usize,
    faults: Faults,
    loss: Chance,
    duplicate: Chance,
    late: Chance,
    /// Until when a link carries nothing.
    cut_until: Vec<u64>,
    /// Until when a link is slow.
    slow_until: Vec<u64>,
    /// The last arrival of what keeps its order.
    last: Vec<u64>,
}

impl Network {
    pub(super) fn new(nodes: usize, faults: Faults, random: &mut Random) -> Self {
        let mut up_to = |fault, most: f64| match faults.has(fault) {
            true => Chance::new(random.unit() * most),
            false => Chance::new(0.0),
        };
        Self {
            nodes,
            faults,
            loss: up_to(Fault::Loss, 0.1),
            duplicate: up_to(Fault::Duplicate, 0.1),
            late: up_to(Fault::Reorder, 0.1),
            cut_until: vec![0; nodes * nodes],
            slow_until: vec![0; nodes * nodes],
            last: vec![0; nodes * nodes],
        }
    }

    /// When a packet sent now arrives: not at all, once or twice.
    pub(super) fn arrivals(
        &mut self,
        now: u64,
        [from, to]: [NodeId; 2],
        is_loose: bool,
        random: &mut Random,
    ) -> [Option<u64>; 2] {
        let link = usize::from(from.0) * self.nodes + usize::from(to.0);
        let mut at = now + Self::delay_ns(random);
        if self.slow_until[link] > now {
            at += random.below(SLOW_NS);
        }
        if !is_loose {
            if self.cut_until[link] > now && random.one_in(2) {
                return [None, None];
            }
            at = at.max(self.cut_until[link] + Self::delay_ns(random));
            at = at.max(self.last[link] + 1);
            self.last[link] = at;
            return [Some(at), None];
        }
        if self.cut_until[link] > now || random.chance(self.loss) {
            return [None, None];
        }
        if self.faults.has(Fault::Reorder) {
            if random.chance(self.late) {
                at += random.below(LATE_NS);
            }
        } else {
            at = at.max(self.last[link] + 1);
            self.last[link] = at;
        }
        let again = random.chance(self.duplicate);
        [Some(at), again.then(|| at + random.below(LATE_NS))]
    }

    /// A client's packet, or the store's.
    pub(super) fn delay_ns(random: &mut Random) -> u64 {
        BASE_NS + random.exponential(JITTER_NS) as u64
    }

    /// No packet between these, in either direction.
    pub(super) fn cut(&mut self, [one, other]: [NodeId; 2], until: u64) {
        for [from, to] in [[one, other], [other, one]] {
            self.cut_until[usize::from(from.0) * self.nodes + usize::from(to.0)] = until;
        }
    }

    pub(super) fn slow(&mut self, [from, to]: [NodeId; 2], until: u64) {
        self.slow_until[usize::from(from.0) * self.nodes + usize::from(to.0)] = until;
    }

    /// Whether packets between these get lost now.
    pub(super) fn is_cut(&self, now: u64, [from, to]: [usize; 2]) -> bool {
        self.cut_until[from * self.nodes + to] > now
    }

    /// For how long they still do.
    pub(super) fn cut_for(&self, now: u64, [from, to]: [NodeId; 2]) -> u64 {
        let link = usize::from(from.0) * self.nodes + usize::from(to.0);
        self.cut_until[link].saturating_sub(now)
    }

    /// From now on nothing goes wrong, but what links carry already arrives before the rest: until
    /// the time that this returns they may be as silent as before.
    pub(super) fn heal(&mut self) -> u64 {
        let none = Chance::new(0.0);
        (self.loss, self.duplicate, self.late) = (none, none, none);
        self.cut_until.fill(0);
        self.slow_until.fill(0);
        self.last.iter().copied().max().unwrap_or_default()
    }
}

const BASE_NS: u64 = 20_000;
const JITTER_NS: f64 = 20_000.0;
const SLOW_NS: u64 = 3_000_000;
const LATE_NS: u64 = 2_000_000;
