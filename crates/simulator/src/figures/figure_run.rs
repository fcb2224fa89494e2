//! A figure being drawn: what is asked for, every combination of it, and rows of what each gives.

use std::{collections::BTreeMap, ops::Range};

use clap::ValueEnum;

use super::{
    Figure,
    options::{Choice, Options},
    parameters::{Otherwise, Parameter, Place, Value},
};
use crate::{
    c4::system_costs::Calibration, costs::FullCosts, parallel_points::Threads, queueing::Outcome,
    rows::Row,
};

/// A figure being drawn.
pub(super) struct Request<'a> {
    pub(super) figure: &'a Figure,
    pub(super) options: &'a Options,
    pub(super) series: Vec<&'static str>,
    pub(super) threads: &'a Threads,
}

/// One combination of what a figure sweeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    pub(super) series: &'static str,
    values: Vec<(Choice, Value)>,
    /// What rows name beside the figure's parameters.
    pub(super) more: String,
}

/// A measured number: where on the curve, what, and how much.
pub(super) type Found = (f64, &'static str, Option<f64>);

impl Case {
    /// The same with another parameter, or with another value of it.
    pub(super) fn with(mut self, choice: Choice, value: impl Into<Value>) -> Self {
        self.values.retain(|(known, _)| *known != choice);
        self.values.push((choice, value.into()));
        self
    }

    /// The same under a series.
    pub(super) fn under(&self, series: &'static str) -> Self {
        let case = self.clone();
        Self { series, ..case }
    }

    pub(super) fn value(&self, choice: Choice) -> Option<&Value> {
        let found = self.values.iter().find(|(known, _)| *known == choice);
        found.map(|(_, value)| value)
    }

    /// A number of the combination.
    pub(super) fn number(&self, choice: Choice) -> f64 {
        match self.value(choice) {
            Some(Value::Number(number)) => *number,
            other => unreachable!("{} is {other:?}", choice.flag()),
        }
    }

    /// A whole number that is declared to be one.
    pub(super) fn count(&self, choice: Choice) -> u16 {
        self.number(choice) as u16
    }

    /// One of several names.
    pub(super) fn name<T: ValueEnum>(&self, choice: Choice) -> T {
        let name = self.value(choice).map(Value::to_string).unwrap_or_default();
        let found = T::from_str(&name, false);
        found.unwrap_or_else(|_| unreachable!("{} is {name:?}", choice.flag()))
    }
}

/// What is asked for.
impl Request<'_> {
    fn values(&self, choice: Choice) -> Vec<Value> {
        let given = self.options.given(choice);
        match (given.is_empty(), self.declared(choice).default) {
            (true, Otherwise::Numbers(numbers)) => {
                numbers.iter().copied().map(From::from).collect()
            }
            (true, Otherwise::Names(names)) => names.iter().copied().map(From::from).collect(),
            _ => given,
        }
    }

    /// The numbers of a parameter: what is given, else the default.
    pub(super) fn numbers(&self, choice: Choice) -> Vec<f64> {
        let number = |value| match value {
            Value::Number(number) => Some(number),
            Value::Name(_) | Value::File(_) => None,
        };
        self.values(choice).into_iter().filter_map(number).collect()
    }

    /// Whose costs are drawn: costs that are given are in place of the measured ones, so that they
    /// alone are drawn unless something else is asked for.
    pub(super) fn calibrations(&self) -> Vec<Calibration> {
        let options = self.options;
        let of_measured = options.costs.is_some() || options.batch.is_some();
        if options.calibration.is_empty() && of_measured {
            return vec![Calibration::Measured];
        }
        let values = self.values(Choice::Calibration);
        let wanted = |calibration: &Calibration| values.contains(&calibration.name().into());
        let all = [Calibration::Paper, Calibration::Measured];
        all.into_iter().filter(wanted).collect()
    }

    /// The costs that are given, else the measured ones, and what rows call them.
    pub(super) fn costs(&self) -> (&FullCosts, &'static str) {
        match &self.options.costs {
            Some(given) => (&given.costs, "given"),
            None => (FullCosts::measured(), "measured"),
        }
    }

    /// The only number of a parameter.
    pub(super) fn number(&self, choice: Choice) -> f64 {
        match self.numbers(choice)[..] {
            [number] => number,
            _ => unreachable!("{} has no single {}", self.figure.name, choice.flag()),
        }
    }

    /// Whole numbers of a parameter that is declared to have no others.
    pub(super) fn counts(&self, choice: Choice) -> Vec<u16> {
        self.numbers(choice).iter().map(|n| *n as u16).collect()
    }

    /// Requests of a run.
    pub(super) fn requests(&self) -> u64 {
        self.number(Choice::Requests) as u64
    }

    /// Of all randomness.
    pub(super) fn seed(&self) -> u64 {
        self.number(Choice::Seed) as u64
    }

    fn declared(&self, choice: Choice) -> &'static Parameter {
        match self.figure.parameter(choice) {
            Some(parameter) => parameter,
            None => unreachable!("{} declares no {}", self.figure.name, choice.flag()),
        }
    }
}

/// Combining it.
impl Request<'_> {
    /// Every combination of these parameters, the first one's values outermost. A parameter that
    /// follows from others is left out, unless it is given.
    pub(super) fn cases(&self, choices: &[Choice]) -> Vec<Case> {
        self.sweep(vec![Case::default()], choices)
    }

    /// Each of these cases with every combination of more parameters.
    pub(super) fn sweep(&self, mut cases: Vec<Case>, choices: &[Choice]) -> Vec<Case> {
        for &choice in choices {
            let values = match choice {
                Choice::Calibration => {
                    let all = self.calibrations().into_iter();
                    all.map(|calibration| calibration.name().into()).collect()
                }
                _ => self.values(choice),
            };
            if !values.is_empty() {
                let all = cases.into_iter().flat_map(|case| {
                    let with = |value: &Value| case.clone().with(choice, value.clone());
                    values.iter().map(with).collect::<Vec<Case>>()
                });
                cases = all.collect();
            }
        }
        cases
    }

    /// Each of these cases under every series.
    pub(super) fn under_series(&self, cases: &[Case]) -> Vec<Case> {
        let all = |case| {
            self.series
                .iter()
                .map(move |series| Case::under(case, series))
        };
        cases.iter().flat_map(all).collect()
    }
}

/// Rows of it.
impl Request<'_> {
    /// Rows of what each point gives, the points spread over the threads.
    pub(super) fn draw<P: Sync>(
        &self,
        points: &[P],
        rows: impl Fn(&P) -> Vec<Row> + Sync,
    ) -> Vec<Row> {
        let rows = self.threads.map(self.figure.name, points, rows);
        rows.into_iter().flatten().collect()
    }

    /// The same numbers as rows of a case.
    pub(super) fn rows(&self, case: &Case, found: impl IntoIterator<Item = Found>) -> Vec<Row> {
        let of_params = |one: &&Parameter| one.place == Place::Params;
        let word = |one: &Parameter| Some(format!("{}={}", one.key, case.value(one.choice)?));
        let parameters = self.figure.parameters.iter().filter(of_params);
        let params = parameters.filter_map(word).collect::<Vec<_>>().join(";") + &case.more;
        let row = |(x, metric, value)| self.row((case.series, &params), x, (metric, value), None);
        found.into_iter().map(row).collect()
    }

    /// A number of a curve, which has a series and parameters.
    pub(super) fn row(
        &self,
        (series, params): (&str, &str),
        x: f64,
        (metric, value): (&'static str, Option<f64>),
        paper: Option<f64>,
    ) -> Row {
        Row {
            figure: self.figure.name,
            series: series.into(),
            params: params.into(),
            x,
            metric,
            value,
            paper,
        }
    }
}

/// Of rows of one figure: how many times the best of other series a row has, in the same run at the
/// same place; `None` if no other is drawn.
pub(super) fn over_best(row: &Row, rows: &[Row], others: &[&str]) -> Option<Option<f64>> {
    let same = |other: &&Row| {
        let place = |row: &Row| (row.x, row.metric);
        place(other) == place(row) && other.params == row.params
    };
    let others = rows.iter().filter(|other| others.contains(&&*other.series));
    let others: Vec<Option<f64>> = others.filter(same).map(|other| other.value).collect();
    let best = others.iter().copied().flatten().max_by(f64::total_cmp);
    let over = row.value.zip(best).map(|(own, best)| own / best);
    (!others.is_empty()).then_some(over)
}

/// For each limit the last of these steps whose p99 is within it, by halving; every step is run
/// once at most.
pub(super) fn last_within<const N: usize>(
    limits_ns: [f64; N],
    steps: Range<u32>,
    run: impl Fn(u32) -> Outcome,
) -> [Option<u32>; N] {
    let mut known = BTreeMap::new();
    limits_ns.map(|limit_ns| {
        let beyond = first_beyond(steps.start, steps.end, |step| {
            let outcome = known.entry(step).or_insert_with(|| run(step));
            outcome.meets(limit_ns)
        });
        (beyond > steps.start).then(|| beyond - 1)
    })
}

/// How many of the steps from `low` on meet a condition that holds up to some step, by halving: the
/// first that does not, below `high`.
pub(super) fn first_beyond(mut low: u32, mut high: u32, mut meets: impl FnMut(u32) -> bool) -> u32 {
    while low < high {
        let middle = (low + high) / 2;
        match meets(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}
