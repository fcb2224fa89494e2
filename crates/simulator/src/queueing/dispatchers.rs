//! Dispatchers: which core serves which request, by the machines of `curtail-dispatch` and of the
//! papers, and the control loop that feeds one of them.

use curtail_dispatch::{
    Worker,
    pull_baselines::{Binding, Pull, Puller, Source, Take},
    size_aware::{
        ControlConfig, ControlInput, Route, SizeClasses, SizeControl, SizeHistogram, SizePlan,
        ThresholdRule,
    },
};
use curtail_types::Instant;
use curtail_workload::{Kind, Stream, Workload, mix};

use crate::{
    c4::dispatcher::Dispatcher,
    minos::{LargeReplies, PlanCost, Prices, SizeCore, Stealing},
    queueing::{
        outstanding_requests::{Queues, Request},
        server_dispatch::{Shipped, TURN_MAX},
    },
};

/// What decides for the cores.
#[derive(Debug)]
pub(crate) enum Deciders {
    /// C-4's dispatcher in the network card; with a plan, its cores are the small ones.
    Dispatched {
        dispatcher: Box<Dispatcher>,
        plan: Option<Box<SizePlan>>,
    },
    /// Minos's baselines: requests are bound to cores by where they arrive, or when they are taken.
    Bound {
        binding: Binding,
        /// Whether reads go by key too.
        erew: bool,
        pullers: Vec<Puller>,
    },
    /// Minos.
    SizeAware {
        cores: Vec<SizeCore>,
        learning: Box<Learning>,
        stealing: Stealing,
        large_replies: LargeReplies,
    },
    /// The server's balanced writes.
    Shipped(Box<Shipped>),
    /// The server's connections, of which large requests are served part by part.
    InParts {
        serving: Serving,
        /// By core: whether it moved parts last.
        moved: Vec<bool>,
    },
}

/// How workers serve large requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Serving {
    /// Each whole, in line with the small ones: Minos's HKH.
    Early,
    /// A part of each after the turn's small ones: this server with sizes together.
    Together,
    /// By threads of their own, whenever a core has nothing small to do: this server with sizes
    /// apart.
    Apart,
}

/// Where a request goes when it arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival {
    Queue(Source),
    Dispatcher,
}

/// The control loop and what it is fed with.
#[derive(Debug)]
pub(crate) struct Learning {
    control: SizeControl,
    prices: Prices,
    cost: PlanCost,
    /// Each core's own.
    histograms: Vec<SizeHistogram>,
    epoch_ns: u64,
    small_busy_ns: u64,
    /// When the epoch ends; never, if the plan was set by hand.
    ends_ns: u64,
}

/// What a core found out about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The core whose ring it belongs to; `None`: it is served here.
    pub(crate) owner: Option<Worker>,
    /// What counting it costs.
    pub(crate) profile_ns: f64,
}

impl Deciders {
    /// One of the baselines on so many cores, which take `batch` requests at once.
    pub(crate) fn bound(binding: Binding, erew: bool, cores: u16, batch: u16) -> Self {
        let puller = |core| Puller::new(binding, Worker(core), cores, batch);
        Self::Bound {
            binding,
            erew,
            pullers: (0..cores).map(puller).collect(),
        }
    }

    /// Minos on so many cores, which take `batch` requests at once.
    pub(crate) fn size_aware(
        (cores, batch): (u16, u16),
        stealing: Stealing,
        learning: Learning,
        large_replies: LargeReplies,
    ) -> Self {
        let core = |core| SizeCore::new(Worker(core), batch, stealing);
        Self::SizeAware {
            cores: (0..cores).map(core).collect(),
            learning: Box::new(learning),
            stealing,
            large_replies,
        }
    }

    /// Where a request goes that comes now; `word` is any number, anew for each.
    #[inline]
    pub(crate) fn arrival(&self, request: &Request, word: u64, cores: u16) -> Arrival {
        let bound = |binding: Binding, erew| {
            binding.arrival(request.key, request.access(), erew, word, cores)
        };
        Arrival::Queue(match self {
            // A write says in its header how large it is.
            Self::Dispatched { plan, .. } => match plan.as_ref().and_then(|p| owner(p, request)) {
                Some(owner) if request.write => Source::Ring(owner),
                _ => return Arrival::Dispatcher,
            },
            Self::Bound { binding, erew, .. } => bound(*binding, *erew),
            Self::SizeAware { .. } => bound(Binding::Early, false),
            Self::Shipped(shipped) => Source::Rx(shipped.arrival(word)),
            Self::InParts { .. } => Source::Rx(Worker(
                ((u128::from(word) * u128::from(cores)) >> 64) as u16,
            )),
        })
    }

    /// What an idle core does next.
    #[inline]
    pub(crate) fn next(&mut self, core: usize, queues: &Queues) -> Option<Pull> {
        let me = Worker(core as u16);
        let depth = |source| queues.depth(source);
        let take = |from, max| Some(Pull::Run(Take { from, max })).filter(|_| depth(from) > 0);
        match self {
            Self::Dispatched { .. } => {
                take(Source::Rx(me), 1).or_else(|| take(Source::Ring(me), 1))
            }
            Self::Bound { pullers, .. } => pullers[core].next(depth),
            Self::SizeAware {
                cores, learning, ..
            } => {
                let plan = learning.control.plan();
                cores[core].next(plan, depth).map(Pull::Run)
            }
            Self::Shipped(shipped) => {
                let most = if shipped.has_connections(me) {
                    TURN_MAX
                } else {
                    1
                };
                take(Source::Ring(me), most).or_else(|| take(Source::Rx(me), most))
            }
            Self::InParts { serving, moved } => {
                let line = take(Source::Rx(me), TURN_MAX);
                if *serving != Serving::Together {
                    return line.or_else(|| take(Source::Shared, 1));
                }
                let parts = take(Source::Software(me), TURN_MAX);
                moved[core] = parts.is_some() && (!moved[core] || line.is_none());
                if moved[core] { parts } else { line }
            }
        }
    }

    /// A core that is no ring's has a request before it: whose it is, and what counting it costs.
    /// `None` where sizes do not matter.
    #[inline]
    pub(crate) fn look(&mut self, core: usize, request: &Request) -> Option<Look> {
        let owner = match self {
            Self::Dispatched { plan, .. } => owner(plan.as_ref()?, request),
            Self::Shipped(shipped) => shipped.large_owner(request),
            Self::SizeAware { learning, .. } => return Some(learning.look(core, request)),
            Self::Bound { .. } | Self::InParts { .. } => return None,
        };
        Some(Look {
            owner,
            profile_ns: 0.0,
        })
    }

    /// Makes a new plan if it is time; whether it did.
    #[inline]
    pub(crate) fn end_epoch(&mut self, now: u64) -> bool {
        match self {
            Self::SizeAware { learning, .. } if now >= learning.ends_ns => {
                learning.end_epoch(now);
                true
            }
            _ => false,
        }
    }

    /// Whether a core that the queue does not belong to may take from it.
    #[inline]
    pub(crate) fn others_take(&self, from: Source, queues: &Queues) -> bool {
        match self {
            Self::Dispatched { .. } | Self::Shipped(_) => false,
            Self::InParts { .. } => from == Source::Shared,
            Self::Bound { binding, .. } => match binding {
                Binding::Early => false,
                Binding::Late { .. } => from == Source::Shared,
                Binding::EarlyStealing => true,
            },
            Self::SizeAware {
                stealing, learning, ..
            } => {
                let plan = learning.control.plan();
                let stolen = *stealing == Stealing::SmallCores || plan.extra_large;
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
    pub(crate) fn is_early(&self) -> bool {
        match self {
            Self::Bound { binding, .. } => *binding == Binding::Early,
            Self::SizeAware { .. } => false,
            Self::Dispatched { .. } | Self::Shipped(_) | Self::InParts { .. } => true,
        }
    }

    /// Whether what a core has moved to its software queue is others' too.
    pub(crate) fn steals(&self) -> bool {
        let stealing = Binding::EarlyStealing;
        matches!(self, Self::Bound { binding, .. } if *binding == stealing)
    }

    /// How large replies leave a core of which they were asked by a ring.
    pub(crate) fn large_replies(&self) -> LargeReplies {
        match self {
            Self::SizeAware { large_replies, .. } => *large_replies,
            _ => LargeReplies::InLine,
        }
    }

    pub(crate) fn plan(&self) -> Option<&SizePlan> {
        match self {
            Self::SizeAware { learning, .. } => Some(learning.control.plan()),
            Self::Dispatched { plan, .. } => plan.as_deref(),
            Self::Shipped(shipped) => shipped.plan.as_deref(),
            Self::Bound { .. } | Self::InParts { .. } => None,
        }
    }
}

#[inline]
fn owner(plan: &SizePlan, request: &Request) -> Option<Worker> {
    match plan.route(request.value_bytes, request.key) {
        Route::Here => None,
        Route::Ring(owner) => Some(owner),
    }
}

impl Learning {
    /// A control that learns while it runs, from what each core serves.
    pub(crate) fn new(config: ControlConfig, prices: Prices, cost: PlanCost) -> Self {
        let empty = SizeHistogram::new(SizeClasses::LogLinear);
        Self {
            control: SizeControl::new(config, Instant::default()),
            prices,
            cost,
            histograms: vec![empty; usize::from(config.cores)],
            epoch_ns: config.epoch_ns,
            small_busy_ns: 0,
            ends_ns: config.epoch_ns,
        }
    }

    /// The plan that an operator would have set, from a trace of the workload; it does not change.
    pub(crate) fn set_by_hand(mut self, workload: &Workload, (requests, seed): (u64, u64)) -> Self {
        let mut generator = workload.generator(mix(seed ^ TRACE), Stream::ONLY);
        for _ in 0..requests.min(TRACE_REQUESTS) {
            let request = generator.draw(0);
            let (bytes, write) = (request.item.value_bytes, request.kind != Kind::Get);
            let cost = self.prices.plan_cost(self.cost, write, bytes);
            self.histograms[0].record(bytes, cost);
        }
        self.end_epoch(self.epoch_ns);
        self.ends_ns = u64::MAX;
        self
    }

    /// The plan in force.
    pub(crate) fn plan(&self) -> &SizePlan {
        self.control.plan()
    }

    fn look(&mut self, core: usize, request: &Request) -> Look {
        let (write, bytes) = (request.write, request.value_bytes);
        let mut profile_ns = 0.0;
        if self.ends_ns < u64::MAX {
            let cost = self.prices.plan_cost(self.cost, write, bytes);
            self.histograms[core].record(bytes, cost);
            profile_ns = self.prices.profile_ns;
        }
        let owner = owner(self.control.plan(), request);
        let serves = match owner {
            None => self.prices.serve_ns(write, bytes),
            Some(_) if write => self.prices.steps.give_ns,
            Some(_) => self.prices.steps.lookup_ns + self.prices.steps.give_ns,
        };
        self.small_busy_ns += (serves + profile_ns) as u64;
        Look { owner, profile_ns }
    }

    fn end_epoch(&mut self, now: u64) {
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

/// The plan that the control loop makes of a workload for `cores` cores.
pub(crate) fn plan(
    workload: &Workload,
    (cores, threshold): (u16, ThresholdRule),
    (prices, cost): (&Prices, PlanCost),
    sample: (u64, u64),
) -> Box<SizePlan> {
    let config = ControlConfig {
        samples_min: 1,
        threshold,
        ..ControlConfig::new(cores)
    };
    let made = |config| {
        let learning = Learning::new(config, prices.clone(), cost);
        Box::new(learning.set_by_hand(workload, sample).plan().clone())
    };
    let plan = made(config);
    if plan.small < cores {
        return plan;
    }
    // Without a standby one core is set aside although none is asked for.
    made(ControlConfig {
        small: Some(cores - 1),
        ..config
    })
}

const TRACE: u64 = 0x0074_7261_6365;
const TRACE_REQUESTS: u64 = 1_000_000;
