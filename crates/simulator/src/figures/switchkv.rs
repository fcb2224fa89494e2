//! SwitchKV's figures (Li, dissertation, 2016, section 2.3): the testbed request by request.
//!
//! `--requests` is what all back ends together serve in a virtual second: 12.8 million in the
//! paper. With fewer, all rates are scaled down and numbers up again; then the windows of instant
//! reports last longer and what is counted in a period is less, so changes are followed less well
//! than at the paper's rates. Rules are 400 a second at any scale.

mod dynamic;
mod group;
mod reference;
mod steady;

use curtail_workload::Change;

use crate::{
    figures::{Choice, Parameter, Request},
    switchkv::{Architecture, CACHE_QPS, SwitchKv},
};

pub(super) use dynamic::{FIG15, FIG16, FIG17, FIG18, FIG19};
pub(super) use group::GROUP;
pub(super) use reference::points;
pub(super) use steady::{FIG9, FIG10, FIG11, FIG12, FIG13, FIG14};

/// How far the paper's rates are scaled down.
fn scale(request: &Request<'_>) -> f64 {
    request.requests() as f64 / CAPACITY_QPS
}

/// The paper's testbed at the scale that is asked for.
fn testbed(request: &Request<'_>) -> SwitchKv {
    let (paper, scale) = (SwitchKv::paper(), scale(request));
    SwitchKv {
        back_end_qps: paper.back_end_qps * scale,
        cache_qps: CACHE_QPS * scale,
        seed: request.seed(),
        ..paper
    }
}

/// The same without a cache.
fn without_cache(model: &SwitchKv) -> SwitchKv {
    SwitchKv {
        architecture: Architecture::NoCache,
        change: None::<Change>,
        ..*model
    }
}

/// What a model without changes serves, in MQPS at the paper's rates: all, and the cache's part.
fn steady_mqps(model: &SwitchKv, scale: f64) -> (f64, f64) {
    let outcome = model.run();
    let intervals = outcome.intervals.len();
    let (all, hits) = outcome.mqps(intervals / 2..intervals);
    (all / scale, hits / scale)
}

const fn gamma() -> Parameter {
    Parameter::one(Choice::Gamma, GAMMAS, &[0.99]).papers(&[0.99])
}

const fn requests() -> Parameter {
    Parameter::requests(&[CAPACITY_QPS])
}

const GAMMAS: (f64, f64) = (0.0, 2.0);
/// What the paper's 128 back ends serve in a second.
const CAPACITY_QPS: f64 = 12_800_000.0;
