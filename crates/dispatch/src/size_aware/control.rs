//! The control loop of size-aware sharding: computes a plan from the measurements of an epoch.
//!
//! Minos, section 3.3 and 3.4: the histograms of all cores are added up and smoothed, a threshold
//! divides small from large sizes, small cores are as many as their share of the cost asks for
//! (rounded up), and the large sizes are divided among the other cores. All arithmetic is in whole
//! numbers, so that a plan is the same on every machine.
//!
//! The threshold follows one of two rules ([`ThresholdRule`]). Minos's is a percentile of the
//! requests' sizes. It holds while large requests are rarer than the percentile leaves room for;
//! where they are not, it puts the threshold above them, and nothing is large. The other rule
//! weighs what handing a request on costs against what it costs to serve, and has a ceiling that
//! no mix of requests moves.
//!
//! Invariants: at least one core is small; an epoch with too few samples changes nothing, and after
//! enough of them in a row what was learned is forgotten; nothing is divided by zero.

use alloc::boxed::Box;

use curtail_types::Instant;

use crate::size_aware::{
    histogram::{CLASSES_MAX, SizeClasses, SizeHistogram},
    plan::SizePlan,
};

/// The machine; one for a node.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SizeControl {
    config: ControlConfig,
    /// Of this epoch.
    measured: Box<SizeHistogram>,
    /// Smoothed over epochs, in parts of [`ONE`].
    smooth: Box<SizeHistogram>,
    plan: SizePlan,
    /// What the last epoch's costs asked for, if not what the plan has.
    asked: Option<u16>,
    /// Epochs in a row that had too few samples.
    silent: u32,
    small_busy_millicores: Option<u32>,
    epoch_end: Instant,
}

/// What a control is built from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ControlConfig {
    /// Cores of the node.
    pub cores: u16,
    /// How sizes are grouped.
    pub classes: SizeClasses,
    /// From which size on requests are large.
    pub threshold: ThresholdRule,
    /// Weight of the newest epoch in thousandths: 900 is the paper's.
    pub newest_weight_milli: u32,
    /// Length of an epoch in nanoseconds: one second in the paper.
    pub epoch_ns: u64,
    /// An epoch with fewer requests keeps the plan.
    pub samples_min: u64,
    /// After so many epochs in a row with fewer requests the plan is the first one again, and what
    /// was measured is forgotten. `None` keeps it for ever.
    pub silent_max: Option<u32>,
    /// A number of small cores set by hand.
    pub small: Option<u16>,
    /// Whether a class may be shared by neighbouring large cores.
    pub split: bool,
    /// Whether a new number of small cores must be asked for by two epochs, or by an imbalance of
    /// more than 10 %, before it is taken, and new ranges by an imbalance of more than 10 %.
    pub damped: bool,
    /// Whether there may be a large core more than asked for, which steals from small ones; taken
    /// only while the small cores left would be less than 80 % busy.
    pub extra_large: bool,
}

/// From which size on requests are large.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ThresholdRule {
    /// Above the class with this percentile of all requests, in thousandths of a per cent: 99,000
    /// is the paper's.
    Percentile(u32),
    /// Set by hand, in bytes; nothing is learned about it (section 6.3).
    Set(u32),
    /// By what handing requests on costs.
    Cost(CostRule),
}

/// The smallest size from which on handing requests on costs no more than a share of what all
/// requests cost.
///
/// A request whose own cost is at least `hand_off / share` never exceeds the share, however many of
/// them there are. So the threshold has a ceiling: the class of that cost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CostRule {
    /// No smaller size is large, in bytes: serving it costs less than handing it on.
    pub bytes_min: u32,
    /// Handing one request on, in the unit of the measured costs.
    pub hand_off: u32,
    /// The share, in thousandths.
    pub share_milli: u32,
}

/// What a control is told.
#[derive(Clone, Copy, Debug)]
pub enum ControlInput<'a> {
    /// A core's histogram since it was last handed over.
    Measured(&'a SizeHistogram),
    /// Work on small requests in this epoch, in thousandths of a core.
    SmallBusy {
        /// Thousandths of a core.
        millicores: u32,
    },
    /// Time has passed.
    Tick,
}

impl CostRule {
    /// The server's rule: a hand-off takes 20 us of the worker that hands a connection on and of
    /// the one that serves it, and hand-offs may take a quarter of the time of all requests. A
    /// value that costs four hand-offs or more is therefore always large.
    pub const fn of_server(bytes_min: u32) -> Self {
        Self {
            bytes_min,
            hand_off: 20_000,
            share_milli: 250,
        }
    }
}

impl ControlConfig {
    /// The paper's settings, with the finer classes and split ranges.
    pub fn new(cores: u16) -> Self {
        Self {
            cores,
            classes: SizeClasses::LogLinear,
            threshold: ThresholdRule::Percentile(99_000),
            newest_weight_milli: 900,
            epoch_ns: 1_000_000_000,
            samples_min: 10_000,
            silent_max: None,
            small: None,
            split: true,
            damped: false,
            extra_large: false,
        }
    }
}

impl ControlConfig {
    /// The plan before anything was measured.
    fn first_plan(&self) -> SizePlan {
        let threshold = match self.threshold {
            ThresholdRule::Percentile(_) => u32::MAX,
            ThresholdRule::Set(threshold) => threshold,
            ThresholdRule::Cost(rule) => rule.bytes_min,
        };
        let mut plan = SizePlan::all_small(self.cores, self.classes);
        plan.threshold = threshold;
        plan.small = self.small.unwrap_or(self.cores);
        plan
    }
}

impl SizeControl {
    /// A control whose first epoch begins at `now`; until it ends everything is small, or
    /// everything below the lowest threshold that the rule allows.
    pub fn new(config: ControlConfig, now: Instant) -> Self {
        assert!(config.cores > 0 && config.newest_weight_milli <= 1_000);
        assert!(match config.threshold {
            ThresholdRule::Percentile(milli) => milli <= 100_000,
            ThresholdRule::Set(_) => true,
            ThresholdRule::Cost(rule) => rule.share_milli > 0,
        });
        assert!(
            config
                .small
                .is_none_or(|small| (1..=config.cores).contains(&small))
        );
        Self {
            config,
            measured: Box::new(SizeHistogram::new(config.classes)),
            smooth: Box::new(SizeHistogram::new(config.classes)),
            plan: config.first_plan(),
            asked: None,
            silent: 0,
            small_busy_millicores: None,
            epoch_end: Instant {
                ns: now.ns + config.epoch_ns,
            },
        }
    }

    /// Takes one input; emits a plan, which may be the one in force, when an epoch has ended that
    /// had enough samples, and when what was learned is forgotten.
    pub fn step(&mut self, now: Instant, input: ControlInput<'_>, mut emit: impl FnMut(&SizePlan)) {
        match input {
            ControlInput::Measured(histogram) => self.measured.add(histogram),
            ControlInput::SmallBusy { millicores } => {
                self.small_busy_millicores = Some(millicores);
            }
            ControlInput::Tick if now >= self.epoch_end => {
                if self.measured.count() >= self.config.samples_min.max(1) {
                    self.silent = 0;
                    self.end_epoch();
                    emit(&self.plan);
                } else if self.is_forgotten() {
                    emit(&self.plan);
                }
                self.epoch_end.ns = now.ns + self.config.epoch_ns;
            }
            ControlInput::Tick => {}
        }
    }

    /// When the epoch ends.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.epoch_end)
    }

    /// The plan in force.
    pub fn plan(&self) -> &SizePlan {
        &self.plan
    }

    fn end_epoch(&mut self) {
        self.smooth();
        self.measured.clear();
        let threshold = match self.config.threshold {
            ThresholdRule::Percentile(milli) => self.smooth.percentile_edge(milli),
            ThresholdRule::Set(threshold) => threshold,
            ThresholdRule::Cost(rule) => self.smooth.threshold_by(rule),
        };
        let wanted = self.config.small.unwrap_or_else(|| {
            let (small, total) = self.smooth.cost_below(threshold);
            small_cores(self.config.cores, small, total)
        });
        let small = self.damped(wanted, threshold);
        let (small, extra_large) = self.with_extra_large(small);
        let new = (threshold, small, extra_large);
        let is_as_before = new == (self.plan.threshold, self.plan.small, self.plan.extra_large);
        if self.config.damped && is_as_before && self.plan.is_balanced(&self.smooth) {
            return;
        }
        self.plan = SizePlan::new(
            self.plan.epoch + 1,
            threshold,
            (self.config.cores, small),
            &self.smooth,
            self.config.split,
        );
        self.plan.extra_large = extra_large;
    }

    /// An epoch had too few samples; whether what was learned is forgotten for that.
    fn is_forgotten(&mut self) -> bool {
        self.silent += 1;
        if self.config.silent_max.is_none_or(|most| self.silent < most) {
            return false;
        }
        self.silent = 0;
        self.measured.clear();
        self.smooth.clear();
        self.asked = None;
        self.plan = self.config.first_plan();
        true
    }

    /// H = (1 - a) H + a h, where h is this epoch's and a is its weight: the newest counts most.
    fn smooth(&mut self) {
        let newest = u64::from(self.config.newest_weight_milli);
        // The first epoch has nothing before it.
        let newest = match self.smooth.count() {
            0 => 1_000,
            _ => newest,
        };
        let mix = |old: &mut u64, new: u64| {
            let sum = u128::from(*old) * u128::from(1_000 - newest)
                + u128::from(new) * u128::from(ONE) * u128::from(newest);
            *old = u64::try_from(sum / 1_000).unwrap_or(u64::MAX);
        };
        for class in 0..CLASSES_MAX {
            mix(&mut self.smooth.counts[class], self.measured.counts[class]);
            mix(&mut self.smooth.costs[class], self.measured.costs[class]);
        }
    }

    fn damped(&mut self, wanted: u16, threshold: u32) -> u16 {
        let now = self.plan.small + u16::from(self.plan.extra_large);
        if !self.config.damped || wanted == now || self.plan.epoch == 0 {
            self.asked = None;
            return wanted;
        }
        let again = self.asked.replace(wanted) == Some(wanted);
        if again || self.is_unbalanced(now, threshold) {
            self.asked = None;
            return wanted;
        }
        now
    }

    /// Whether under `small` small cores some core would have 10 % more than its share.
    fn is_unbalanced(&self, small: u16, threshold: u32) -> bool {
        let (below, total) = self.smooth.cost_below(threshold);
        let cores = u128::from(self.config.cores);
        let over = |cost: u128, of: u128| cost * cores * 10 > total * of * 11;
        // Without a large core the standby takes them, beside its small ones.
        let large = (cores - u128::from(small)).max(1);
        over(below, u128::from(small)) || over(total - below, large)
    }

    fn with_extra_large(&self, small: u16) -> (u16, bool) {
        let left = u64::from(small.saturating_sub(1));
        let busy = self.small_busy_millicores.map(u64::from);
        let room = busy.is_some_and(|busy| busy < left * 800);
        match self.config.extra_large && room && small > 1 {
            true => (small - 1, true),
            false => (small, false),
        }
    }
}

impl SizeHistogram {
    /// The smallest size that is above the class with this percentile of the counts.
    fn percentile_edge(&self, percentile_milli: u32) -> u32 {
        let total: u128 = self.counts.iter().map(|count| u128::from(*count)).sum();
        let mut below = 0_u128;
        let holds = |count: &u64| {
            below += u128::from(*count);
            below * 100_000 >= total * u128::from(percentile_milli)
        };
        let class = self.counts.iter().position(holds);
        self.classes().upper_edge(class.unwrap_or(CLASSES_MAX - 1))
    }

    /// The threshold that `rule` asks for.
    fn threshold_by(&self, rule: CostRule) -> u32 {
        let cost: u128 = self.costs.iter().map(|cost| u128::from(*cost)).sum();
        let hand_offs_max = cost * u128::from(rule.share_milli);
        let mut handed = 0_u128;
        for class in (self.classes().class(rule.bytes_min)..CLASSES_MAX).rev() {
            handed += u128::from(self.counts[class]);
            if handed * u128::from(rule.hand_off) * 1_000 > hand_offs_max {
                return self.classes().upper_edge(class);
            }
        }
        rule.bytes_min
    }

    /// The cost of the classes below `threshold`, and of all.
    fn cost_below(&self, threshold: u32) -> (u128, u128) {
        let classes = self.classes();
        let sum = |costs: &[u64]| costs.iter().map(|cost| u128::from(*cost)).sum::<u128>();
        let first_large = match threshold {
            u32::MAX => CLASSES_MAX,
            threshold => classes.class(threshold),
        };
        (sum(&self.costs[..first_large]), sum(&self.costs))
    }
}

/// Small cores for a share of the cost, rounded up; at least one.
fn small_cores(cores: u16, cost_small: u128, cost_total: u128) -> u16 {
    if cost_total == 0 {
        return cores;
    }
    let small = (u128::from(cores) * cost_small).div_ceil(cost_total);
    (small as u16).clamp(1, cores)
}

/// Smoothed numbers are kept in parts of this, so that small ones do not round away.
const ONE: u64 = 1 << 10;

#[cfg(test)]
mod tests;
