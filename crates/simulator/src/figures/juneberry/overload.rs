//! More than the server can carry: with back-pressure, and without.

use super::{CALIBRATIONS, LOADS, measured, model, outcomes, parameters, prices, with, workload};
use crate::{
    figures::{Choice, Figure, Parameter, Request},
    juneberry::{Datapath, Juneberry, Reads, WhenFull},
    rows::Row,
};

pub(in crate::figures) const OVERLOAD: Figure = Figure {
    name: "juneberry-overload",
    title: "Juneberry, overload: refusals with credits against receivers that are not ready",
    x: "offered load, share of what RawRPC carries",
    about: "Writes alone, as PMemKV's 100 % put, uniform keys, queues of 256 places, 64 \
            machines. credits is ours: a write is acknowledged early while fewer than 64 entries \
            wait, later after its execution; a full queue refuses in one round trip; windows \
            follow. full-only has no limit below a full queue. not-ready is RDMA's (JB-16): all \
            are acknowledged early, a full queue stops the connection for the timer, nobody is \
            held back. Clients of these three give up what would wait behind 16 others in its \
            connection, at once (given_up_share), so that latencies are of what was accepted; \
            not-ready-all's give nothing up, as the paper's, and what waits grows with the run. \
            done_mops is executed; over_peak is it over the same series' highest.",
    series: &[
        "credits",
        "full-only",
        "not-ready",
        "not-ready-all",
        "raw-rpc",
    ],
    series_default: 5,
    parameters: &with::<4, 11>(
        parameters(REQUESTS),
        [
            CALIBRATIONS,
            Parameter::each(Choice::Writes, (0.0, 100.0), &[100.0]),
            Parameter::each(Choice::Gamma, (0.0, 20.0), &[0.0]),
            Parameter::each(Choice::Load, LOADS, &LOADS_DRAWN).axis(),
        ],
    ),
    run: overload,
};

fn overload(request: &Request<'_>) -> Vec<Row> {
    let mut settings = Vec::new();
    for (name, prices) in prices(request) {
        for writes in request.numbers(Choice::Writes) {
            for gamma in request.numbers(Choice::Gamma) {
                let workload = workload("writes", 16, 64, writes, gamma);
                let head = format!("prices={name};writes={writes};gamma={gamma};slots=256");
                settings.extend(super::settings(request, &head, |series| {
                    of_series(
                        series,
                        model(request, "oq", prices.clone(), workload.clone()),
                    )
                }));
            }
        }
    }
    let loads = request.numbers(Choice::Load);
    let mut rows = Vec::new();
    for own in outcomes(request, &settings, &loads).chunks(loads.len()) {
        let highest = own.iter().map(|(.., outcome)| outcome.done_mops);
        let highest = highest.fold(f64::MIN_POSITIVE, f64::max);
        for (setting, load, outcome) in own {
            let over = ("over_peak", Some(outcome.done_mops / highest));
            let numbers = measured(outcome).into_iter().chain([over]);
            rows.extend(numbers.map(|number| setting.row(request, *load, number, None)));
        }
    }
    rows
}

/// A series' part of the model.
fn of_series(series: &str, base: Juneberry) -> Juneberry {
    let base = Juneberry {
        queue_slots: 256,
        machines: 64,
        early_max: 64,
        patience: 16,
        ..base
    };
    let not_ready = |patience| Juneberry {
        system: Datapath::Card(Reads::InOrder),
        when_full: WhenFull::NotReady,
        early_max: base.queue_slots,
        patience,
        ..base.clone()
    };
    match series {
        "not-ready" => not_ready(base.patience),
        "not-ready-all" => not_ready(usize::MAX),
        "full-only" => Juneberry {
            early_max: base.queue_slots,
            ..base
        },
        "raw-rpc" => Juneberry {
            system: Datapath::RawRpc,
            ..base
        },
        _ => base,
    }
}

/// Enough for queues to fill at a load of 1.1.
const REQUESTS: &[f64] = &[500_000.0];
const LOADS_DRAWN: [f64; 12] = [0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1.5, 1.6, 1.8, 2.0];
