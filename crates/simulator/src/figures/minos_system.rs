//! Minos's figures of the whole system: 3 to 10.
//!
//! Every figure is drawn with two sets of prices: `paper`, derived from the authors' own
//! throughputs, whose numbers compare with theirs, and `measured`, from our store. The limits are
//! 10 and 20 times the mean time of a read of the default workload, as in the paper.

mod curves;
mod limits;
mod roles;

use curtail_dispatch::pull_baselines::Binding;
use curtail_workload::{Mix, Phases, Popularity, SizeClass, Sizes, Workload};

use crate::{
    c4::system_costs::Calibration,
    figures::{
        Choice, Parameter,
        figure_run::{Case, Request},
        parameters::{and, with},
    },
    minos::{self, LargeReplies, MinosSystem, Prices, SizeAware, Stealing, System},
};

pub(super) use curves::{FIG3, FIG4, FIG5, FIG8};
pub(super) use limits::{FIG6, FIG7};
pub(super) use roles::{FIG9, FIG10};

/// One curve of one setting, of which the load is still open.
#[derive(Clone, Debug)]
struct Setting {
    case: Case,
    /// What the node could serve, in millions of requests a second.
    capacity: f64,
    /// Ten mean reads of the default workload.
    limit_ns: f64,
    model: MinosSystem,
}

/// What all of these figures take; the paper's default workload (section 5.3) on its 8 cores.
const fn parameters(requests: &'static [f64]) -> [Parameter; COMMON] {
    [
        Parameter::names(Choice::Calibration, &["paper", "measured"]).papers_named(&["paper"]),
        Parameter::each(Choice::Cores, (2.0, 64.0), &[8.0])
            .whole()
            .papers(&[8.0]),
        Parameter::each(Choice::Writes, (0.0, 100.0), &[5.0]).papers(&[5.0]),
        Parameter::each(Choice::Gamma, (0.0, 20.0), &[0.99]).papers(&[0.99]),
        Parameter::each(Choice::LargeFraction, (0.0, 100.0), &[0.125]).papers(&[0.125]),
        Parameter::each(Choice::LargeMaxKb, (2.0, 100_000.0), &[500.0]).papers(&[500.0]),
        Parameter::one(Choice::Gigabits, (0.1, 8_000.0), &[]).follows(),
        Parameter::file(Choice::Costs),
        Parameter::requests(requests),
        Parameter::seed(),
    ]
}

/// The same and loads.
const fn with_load(all: [Parameter; COMMON], load: Parameter) -> [Parameter; COMMON + 1] {
    and(all, load)
}

const COMMON: usize = 10;
/// Of runs of which each is drawn.
const REQUESTS: &[f64] = &[2_000_000.0];

/// ETC with a case's shares (section 5.3).
pub(super) fn workload(case: &Case) -> Workload {
    let number = |choice| case.number(choice);
    etc(
        number(Choice::LargeFraction),
        number(Choice::LargeMaxKb),
        number(Choice::Writes),
        number(Choice::Gamma),
    )
}

/// What is not between 1.5 KB and 128 MB, or no share, keeps the default.
fn etc(percent: f64, kilobytes: f64, writes: f64, gamma: f64) -> Workload {
    let mut etc = minos::etc();
    let bytes_max = (kilobytes * 1_000.0) as u32;
    if let Some(large) = &mut etc.large {
        large.percent = Phases::fixed(percent);
        if let Ok(sizes) = Sizes::new(vec![(SizeClass::Uniform(1_500, bytes_max), 1.0)]) {
            large.sizes = sizes;
        }
    }
    if let Some(mix) = Mix::get_share(1.0 - writes / 100.0) {
        etc.mix = mix;
    }
    etc.popularity = match gamma {
        0.0 => Popularity::Uniform,
        exponent => Popularity::Zipf { exponent },
    };
    etc
}

/// How requests come to cores in a series; `hand_off` cores of SHO hand off.
pub(super) fn system(series: &str, hand_off: impl Fn() -> u16) -> System {
    let bound = |binding, erew| System::Bound { binding, erew };
    let mut form = match series {
        "early" | "hkh" => return bound(Binding::Early, false),
        "hkh-erew" => return bound(Binding::Early, true),
        "steal" | "hkh-ws" => return bound(Binding::EarlyStealing, false),
        "late" | "sho" => {
            let hand_off = hand_off();
            return bound(Binding::Late { hand_off }, false);
        }
        "curtail" | "curtail-static" => SizeAware::SHIPPED,
        _ => SizeAware::PAPER,
    };
    match series {
        "minos-static" | "curtail-static" => form.learned = false,
        "minos-steal" => form.stealing = Stealing::SmallCores,
        "minos-extra" => form.extra_large = true,
        "minos-at-once" => form.large_replies = LargeReplies::InLine,
        "minos-naive" => form.stealing = Stealing::NaiveStandby,
        _ => (),
    }
    System::SizeAware(form)
}

/// How many cores of SHO hand off is chosen for the workload, as the authors did: the number of 1
/// to 3 that carries most.
fn best_hand_off(model: &MinosSystem) -> u16 {
    let steps = &model.prices.steps;
    let serve_ns = model.demand().core_ns + steps.take_ns;
    let carried = |hand_off: u16| {
        let workers = f64::from(model.cores - hand_off) / serve_ns;
        workers.min(f64::from(hand_off) / steps.give_ns)
    };
    let candidates = 1..=3.min(model.cores.saturating_sub(1)).max(1);
    let best = candidates.max_by(|one, other| carried(*one).total_cmp(&carried(*other)));
    best.unwrap_or(1)
}

/// The prices of a case.
fn prices(request: &Request<'_>, case: &Case) -> Prices {
    let mut prices = match case.name(Choice::Calibration) {
        Calibration::Paper => Prices::paper(),
        Calibration::Measured => {
            let (costs, name) = request.costs();
            Prices::of(costs, name)
        }
    };
    if let Some(gigabits) = request.options.gigabits {
        prices.link.gigabits = gigabits;
    }
    prices
}

/// Every combination of prices, cores, skew, writes, sizes, replies and series.
fn settings(request: &Request<'_>, all_replies: &[f64]) -> Vec<Setting> {
    let cases = request.cases(&[
        Choice::Calibration,
        Choice::Cores,
        Choice::Gamma,
        Choice::Writes,
        Choice::LargeFraction,
        Choice::LargeMaxKb,
    ]);
    let mut open = Vec::new();
    for case in cases {
        let prices = prices(request, &case);
        for &replies in all_replies {
            let model = MinosSystem {
                cores: case.count(Choice::Cores),
                replies,
                requests: request.requests(),
                seed: request.seed(),
                ..MinosSystem::new(HKH, prices.clone(), workload(&case), 1.0)
            };
            open.push((case.clone().with(Choice::Calibration, prices.name), model));
        }
    }
    let known = request.threads.map("workloads", &open, |(_, model)| {
        (model.capacity_mops(), limit_ns(model))
    });
    let of_series = |((case, model), (capacity, limit_ns)): (&(Case, MinosSystem), (f64, f64))| {
        let of = |series: &&'static str| Setting {
            case: case.under(series),
            capacity,
            limit_ns,
            model: MinosSystem {
                system: system(series, || best_hand_off(model)),
                ..model.clone()
            },
        };
        request.series.iter().map(of).collect::<Vec<_>>()
    };
    open.iter().zip(known).flat_map(of_series).collect()
}

/// Ten mean reads of the default workload (section 5.4: 50 us).
fn limit_ns(model: &MinosSystem) -> f64 {
    if model.prices.name == "paper" {
        return 50_000.0;
    }
    let model = MinosSystem {
        workload: etc(0.125, 500.0, 5.0, 0.99),
        ..model.clone()
    };
    10.0 * model.demand().get_ns
}

impl Setting {
    fn at(&self, rate_mops: f64) -> MinosSystem {
        MinosSystem {
            rate_mops,
            ..self.model.clone()
        }
    }

    /// Whether this is the paper's machine.
    fn is_the_papers(&self) -> bool {
        self.model.prices == Prices::paper() && self.model.cores == 8
    }
}

const HKH: System = System::Bound {
    binding: Binding::Early,
    erew: false,
};
/// All series, Minos's own first.
const MINOS_FIRST: &str = "minos hkh-ws hkh sho minos-static minos-steal minos-extra \
     minos-at-once minos-naive hkh-erew curtail curtail-static";
/// All series, those that the paper has first.
const SERIES: &str = "hkh hkh-ws sho minos minos-static minos-steal minos-extra \
     minos-at-once minos-naive hkh-erew curtail curtail-static";
