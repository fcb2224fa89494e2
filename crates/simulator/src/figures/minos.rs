//! Minos's Fig. 2, with the size-aware modes beside the paper's baselines.

use crate::{
    figures::{Choice, Figure, Parameter, figure_run::Request, minos_system::system},
    minos::{MinosModel, UNIT},
    rows::Row,
};

pub(super) const FIG2: Figure = Figure {
    name: "minos-fig2",
    title: "Minos, Fig. 2: the 99th percentile when a few requests take K times as long",
    x: "offered load, share of capacity",
    about: "8 cores; 0.125 % of the requests take K units of time, the others one; Poisson \
            arrivals. Early binding, late binding and early binding with stealing are the paper's; \
            the size-aware modes run the plan and the core behaviour that the server runs. \
            Dispatch, synchronisation and locality cost nothing. The paper prints no numbers for \
            this figure; the figure reference-points checks values known from elsewhere.",
    series: "early late steal minos minos-steal minos-extra minos-naive",
    series_default: 5,
    parameters: &[
        Parameter::each(Choice::K, (1.0, 1e6), &[1.0, 10.0, 100.0, 1000.0]).whole(),
        Parameter::each(Choice::Cores, (2.0, 64.0), &[8.0]).whole(),
        Parameter::each(Choice::LargeFraction, (0.0, 100.0), &[0.125]),
        Parameter::each(Choice::Load, (0.001, 10.0), &LOADS).axis(),
        Parameter::requests(&[3_000_000.0]),
        Parameter::seed(),
    ],
    run: fig2,
};

fn fig2(request: &Request<'_>) -> Vec<Row> {
    let cases = request.cases(&[Choice::K, Choice::Cores, Choice::LargeFraction]);
    let cases = request.under_series(&cases);
    let points = request.sweep(cases, &[Choice::Load]);
    request.draw(&points, |case| {
        let (k, load) = (case.number(Choice::K) as u32, case.number(Choice::Load));
        let model = MinosModel {
            cores: case.count(Choice::Cores),
            large_percent: case.number(Choice::LargeFraction),
            requests: request.requests(),
            seed: request.seed(),
            ..MinosModel::new(system(case.series, || 0), k, load)
        };
        let outcome = model.run();
        let found = [
            ("p99", &outcome.all),
            ("small_p99", &outcome.small),
            ("large_p99", &outcome.large),
        ];
        let p99 = |histogram| Some(outcome.stable(histogram, 0.99)? / UNIT as f64);
        let found = found.map(|(metric, histogram)| (load, metric, p99(histogram)));
        request.rows(case, found)
    })
}

const LOADS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
