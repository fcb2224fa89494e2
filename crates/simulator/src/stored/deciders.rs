//! What decides for the cores: the machines of `curtail-dispatch`, and the control loop that feeds
//! one of them.

use curtail_dispatch::{
    Access, Worker,
    pull::{Binding, Pull, Puller, Source},
    size_aware::{
        ControlConfig, ControlInput, Route, SizeClasses, SizeControl, SizeCore, SizeHistogram,
        SizePlan, Stealing,
    },
};
use curtail_types::Instant;
use curtail_workload::{Kind, Stream, mix};

use crate::stored::{
    LargeReplies, PlanCost, Prices, SizeAware, Stored, System,
    queues::{Queues, Request},
};

/// What decides for the cores.
#[derive(Debug)]
pub(super) enum Deciders {
    Bound {
        binding: Binding,
        erew: bool,
        pullers: Vec<Puller>,
    },
    SizeAware {
        settings: SizeAware,
        cores: Vec<SizeCore>,
        learning: Box<Learning>,
    },
}

/// The control loop and what it is fed with.
#[derive(Debug)]
pub(super) struct Learning {
    control: SizeControl,
    /// Each core's own.
    histograms: Vec<SizeHistogram>,
    epoch_ns: u64,
    small_busy_ns: u64,
    ends_ns: u64,
}

/// What a core found out about a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The core whose ring it belongs to; `None`: it is served here.
    pub(super) owner: Option<Worker>,
    /// What counting it costs.
    pub(super) profile_ns: f64,
}

impl Deciders {
    pub(super) fn new(model: &Stored) -> Self {
        let cores = model.cores;
        match model.system {
            System::Bound { binding, erew } => Self::Bound {
                binding,
                erew,
                pullers: (0..cores)
                    .map(|core| Puller::new(binding, Worker(core), cores, model.batch))
                    .collect(),
            },
            System::SizeAware(settings) => Self::SizeAware {
                settings,
                cores: (0..cores)
                    .map(|core| SizeCore::new(Worker(core), model.batch, settings.stealing))
                    .collect(),
                learning: Box::new(Learning::new(model, settings)),
            },
        }
    }

    /// What an idle core does next.
    #[inline]
    pub(super) fn next(&mut self, core: usize, queues: &Queues) -> Option<Pull> {
        let depth = |source| queues.depth(source);
        match self {
            Self::Bound { pullers, .. } => pullers[core].next(depth),
            Self::SizeAware {
                cores, learning, ..
            } => {
                let plan = learning.control.plan();
                cores[core].next(plan, depth).map(Pull::Run)
            }
        }
    }

    /// A core that is no ring's has a request before it: whose it is, and what counting it costs.
    /// `None` where sizes do not matter.
    #[inline]
    pub(super) fn look(&mut self, core: usize, request: &Request, prices: &Prices) -> Option<Look> {
        let Self::SizeAware {
            settings, learning, ..
        } = self
        else {
            return None;
        };
        let mut profile_ns = 0.0;
        if settings.learned {
            let bytes = request.value_bytes;
            let cost = prices.plan_cost(settings.cost, request.write, bytes);
            learning.histograms[core].record(bytes, cost);
            profile_ns = prices.profile_ns;
        }
        let plan = learning.control.plan();
        let owner = match plan.route(request.value_bytes, request.hash) {
            Route::Here => None,
            Route::Ring(owner) => Some(owner),
        };
        Some(Look { owner, profile_ns })
    }

    /// A core has worked for small requests.
    #[inline]
    pub(super) fn note_small_busy(&mut self, ns: u64) {
        if let Self::SizeAware { learning, .. } = self {
            learning.small_busy_ns += ns;
        }
    }

    /// Makes a new plan if it is time; whether it did.
    #[inline]
    pub(super) fn end_epoch(&mut self, now: u64) -> bool {
        match self {
            Self::SizeAware {
                settings, learning, ..
            } if settings.learned && now >= learning.ends_ns => {
                learning.end_epoch(now);
                true
            }
            _ => false,
        }
    }

    /// The core of the receive queue that a request is sent to, or [`SHARED`].
    pub(super) fn rx(&self, request: &Request, word: u64, cores: u16) -> u16 {
        let (binding, erew) = match self {
            Self::Bound { binding, erew, .. } => (*binding, *erew),
            Self::SizeAware { .. } => (Binding::Early, false),
        };
        let access = if request.write {
            Access::Write
        } else {
            Access::Read
        };
        match binding.arrival(request.hash, access, erew, word, cores) {
            Source::Rx(core) => core.0,
            _ => SHARED,
        }
    }

    /// Whether a core that the queue does not belong to may take from it.
    #[inline]
    pub(super) fn others_take(&self, from: Source, queues: &Queues) -> bool {
        match self {
            Self::Bound { binding, .. } => match binding {
                Binding::Early => false,
                Binding::Late { .. } => from == Source::Shared,
                Binding::EarlyStealing => true,
            },
            Self::SizeAware {
                settings, learning, ..
            } => {
                let plan = learning.control.plan();
                let stolen = settings.stealing == Stealing::SmallCores || plan.extra_large;
                match from {
                    Source::Rx(core) => {
                        let large = !plan.is_small(core) || queues.depth(Source::Ring(core)) > 0;
                        stolen || large
                    }
                    // Its core is in large mode now: its receive queue is everybody's.
                    Source::Ring(core) => queues.depth(Source::Rx(core)) > 0,
                    _ => false,
                }
            }
        }
    }

    /// Whether an arrival decides already which core serves.
    pub(super) fn is_early(&self) -> bool {
        let early = Binding::Early;
        matches!(self, Self::Bound { binding, .. } if *binding == early)
    }

    /// Whether what a core has moved to its software queue is others' too.
    pub(super) fn steals(&self) -> bool {
        let stealing = Binding::EarlyStealing;
        matches!(self, Self::Bound { binding, .. } if *binding == stealing)
    }

    /// How large replies leave a core of which they were asked by a ring.
    pub(super) fn large_replies(&self) -> LargeReplies {
        match self {
            Self::Bound { .. } => LargeReplies::InLine,
            Self::SizeAware { settings, .. } => settings.large_replies,
        }
    }

    pub(super) fn plan(&self) -> Option<&SizePlan> {
        match self {
            Self::Bound { .. } => None,
            Self::SizeAware { learning, .. } => Some(learning.control.plan()),
        }
    }
}

impl Learning {
    pub(super) fn new(model: &Stored, settings: SizeAware) -> Self {
        let epoch_ns = match model.epoch_ns {
            0 => (model.run_ns() / 12).max(1),
            epoch_ns => epoch_ns,
        };
        let epoch_requests = (epoch_ns as f64 * model.rate_mops / 1e3) as u64;
        let config = ControlConfig {
            epoch_ns,
            samples_min: (epoch_requests / 2).clamp(1, 10_000),
            extra_large: settings.extra_large,
            ..ControlConfig::new(model.cores)
        };
        let mut learning = Self {
            control: SizeControl::new(config, Instant::default()),
            histograms: vec![SizeHistogram::new(SizeClasses::LogLinear); usize::from(model.cores)],
            epoch_ns,
            small_busy_ns: 0,
            ends_ns: epoch_ns,
        };
        if !settings.learned {
            learning.set_by_hand(model, settings.cost);
        }
        learning
    }

    /// The plan that an operator would have set, from a trace of the workload.
    fn set_by_hand(&mut self, model: &Stored, cost: PlanCost) {
        let mut generator = model
            .workload
            .generator(mix(model.seed ^ TRACE), Stream::ONLY);
        for _ in 0..model.requests.min(TRACE_REQUESTS) {
            let request = generator.draw(0);
            let (bytes, write) = (request.item.value_bytes, request.kind != Kind::Get);
            self.histograms[0].record(bytes, model.prices.plan_cost(cost, write, bytes));
        }
        self.end_epoch(self.epoch_ns);
    }

    pub(super) fn end_epoch(&mut self, now: u64) {
        let at = Instant { ns: now };
        for histogram in &mut self.histograms {
            self.control
                .step(at, ControlInput::Measured(histogram), |_| ());
            histogram.clear();
        }
        let millicores = self.small_busy_ns * 1_000 / self.epoch_ns;
        let busy = ControlInput::SmallBusy {
            millicores: millicores as u32,
        };
        self.control.step(at, busy, |_| ());
        self.control.step(at, ControlInput::Tick, |_| ());
        self.small_busy_ns = 0;
        self.ends_ns = self.control.deadline().map_or(u64::MAX, |end| end.ns);
    }
}

/// A receive queue that all share.
pub(super) const SHARED: u16 = u16::MAX;
const TRACE: u64 = 0x0074_7261_6365;
const TRACE_REQUESTS: u64 = 1_000_000;
