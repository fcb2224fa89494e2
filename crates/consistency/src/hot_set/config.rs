//! The configuration of the hot set.

use curtail_types::{KeyLoad, Load, LoadScale};

use super::Known;

/// What a hot set is decided with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct HotSetConfig {
    /// Keys that may be hot. While places change hands, up to `in_flight_max / 2` more are, because
    /// who comes does not wait for who goes (as SwitchKV adds before it evicts, SW-61).
    pub keys_max: usize,
    /// Keys that may be on their way in and out at a time.
    pub in_flight_max: usize,
    /// A key takes the place of another if its load is more than so many per cent of the other's.
    pub promote_above_percent: u32,
    /// And if it exceeds the other's by so many standard deviations of what was sampled. Of a Zipf
    /// stream that never changes, 0, 2, 3 and 4 make 273, 58, 10 and 5 of 200 keys leave in 40
    /// epochs of 20,000 samples.
    pub deviations: u32,
    /// Epochs that a key stays hot at least; never below 1.
    pub stay_epochs: u64,
    /// After so many epochs without news a proposal counts as lost.
    pub overdue_epochs: u64,
    /// A key with less load is not worth a place, even a free one. In requests as sampled, of all
    /// reports together.
    pub load_min: Load,
    /// What messages cost; decides up to which write ratio a key is replicated.
    pub bytes: MessageBytes,
}

/// Bytes on the wire, all messages of an exchange together (ccKVS, section 8.7).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct MessageBytes {
    /// A request that another node answers, and its answer: `B_RR`.
    pub request: u32,
    /// A write of a hot key, for each other node: `B_Lin` or `B_SC`.
    pub write: u32,
}

impl HotSetConfig {
    /// As requirement CC-73 says, for linearizable hot keys.
    pub const fn new(keys_max: usize) -> Self {
        Self {
            keys_max,
            in_flight_max: 64,
            promote_above_percent: 120,
            deviations: 3,
            stay_epochs: 2,
            overdue_epochs: 2,
            load_min: Load::of(4),
            bytes: MessageBytes::LIN,
        }
    }

    /// Whether replicating pays for this key among `nodes`: its write ratio is below w*.
    pub(super) fn is_worth_copies(&self, writes: Load, load: Load, nodes: usize) -> bool {
        self.writes_cost(writes, nodes) < self.reads_save(load)
    }

    /// Whether it costs clearly more than it saves, so that a hot key should go.
    pub(super) fn is_a_burden(&self, known: &Known, nodes: usize, scale: &LoadScale) -> bool {
        let break_even = self.reads_save(known.load) / self.writes_cost(Load(1), nodes).max(1);
        let break_even = Load(u64::try_from(break_even).unwrap_or(u64::MAX));
        self.is_clearly_above(known.writes, break_even, scale)
    }

    /// Whether `load` is above `other` by the hysteresis and by more than chance explains.
    ///
    /// Requests for a key are about Poisson, so that the variance of a segment is its mean; of an
    /// average with weight alpha it is that times alpha / (2 - alpha).
    pub(super) fn is_clearly_above(&self, load: Load, other: Load, scale: &LoadScale) -> bool {
        let percent = u128::from(self.promote_above_percent);
        if u128::from(load.0) * 100 <= u128::from(other.0) * percent {
            return false;
        }
        let (one, alpha) = (u128::from(LoadScale::ALPHA_ONE), u128::from(scale.alpha));
        let above = u128::from(load.minus(other).0.min(1 << 48));
        let sum = u128::from(load.plus(other).0.min(1 << 48));
        let deviations = u128::from(self.deviations);
        above * above * (2 * one - alpha)
            > deviations * deviations * sum * u128::from(Load::ONE.0) * alpha
    }

    /// Whether a key that is not hot is worth a free place.
    pub(super) fn is_worth_a_place(&self, key: &KeyLoad, nodes: usize) -> bool {
        key.load >= self.load_min && self.is_worth_copies(key.writes, key.load, nodes)
    }

    fn writes_cost(&self, writes: Load, nodes: usize) -> u128 {
        u128::from(writes.0) * nodes as u128 * u128::from(self.bytes.write)
    }

    fn reads_save(&self, load: Load) -> u128 {
        u128::from(load.0) * u128::from(self.bytes.request)
    }
}

impl MessageBytes {
    /// Linearizable, for keys of 8 and values of 40 bytes (requirement CC-57).
    pub const LIN: Self = Self {
        request: 228,
        write: 334,
    };

    /// Sequentially consistent, for the same.
    pub const SC: Self = Self {
        request: 228,
        write: 138,
    };
}
