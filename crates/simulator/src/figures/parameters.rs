//! What each figure takes: its parameters, each declared once.
//!
//! A declaration says which option sets the parameter, which values it can have, what it is if
//! nobody sets it, where it stands in a row, and which values are the paper's. Everything else
//! follows from that: an option that a figure does not declare is an error, so is a value outside
//! its range; a row names every parameter of its run; and a number of the paper is shown only in
//! rows whose parameters are all the paper's.

use std::fmt;

use crate::{
    c4::system_costs::Calibration,
    figures::{Figure, Options},
    rows::{Row, words},
};

/// Declares the options: what each is called on the command line, and in a row.
macro_rules! choices {
    ($($choice:ident $flag:literal $key:literal,)*) => {
        /// An option of the command line that figures may take.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Choice {
            $(#[doc = $flag] $choice,)*
        }

        impl Choice {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$choice,)*];

            /// What it is called on the command line.
            pub fn flag(self) -> &'static str {
                match self {
                    $(Self::$choice => $flag,)*
                }
            }

            /// What it is called in a row.
            pub(super) const fn key(self) -> &'static str {
                match self {
                    $(Self::$choice => $key,)*
                }
            }
        }
    };
}

choices! {
    Cores "--cores" "cores",
    Load "--load" "load",
    Writes "--writes" "writes",
    Gamma "--gamma" "gamma",
    K "--k" "k",
    LargeFraction "--large-fraction" "large",
    LargeMaxKb "--large-max-kb" "max_kb",
    Gigabits "--gigabits" "gigabits",
    Requests "--requests" "requests",
    Seed "--seed" "seed",
    Rules "--rules" "rules",
    Depth "--depth" "depth",
    Balancer "--balancer" "balancer",
    Costs "--costs" "costs_file",
    Calibration "--calibration" "prices",
    Items "--items" "items",
    Limit "--limit" "limit",
    Batch "--batch" "batch",
    Prices "--prices" "prices_file",
    WorkUs "--work-us" "work_us",
    Cluster "--cluster" "cluster",
    ValueBytes "--value-bytes" "value",
    Turn "--turn" "turn",
    Loss "--loss" "loss",
    Nodes "--nodes" "nodes",
    ClusterCosts "--cluster-costs" "cluster_costs",
    ClusterHardware "--cluster-hardware" "cluster_hardware",
}

/// A parameter of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The option that sets it.
    pub choice: Choice,
    /// What it is called in a row's `params`.
    key: &'static str,
    takes: Takes,
    range: Range,
    default: Otherwise,
    place: Place,
    papers: Papers,
    /// It has an effect on series that end so only.
    only: &'static str,
}

/// How many values it takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Takes {
    /// One.
    One,
    /// A list; every value gives rows of its own.
    Each,
    /// A list that is searched, or swept until it ends, and so belongs to every row.
    Together,
}

/// What can be one of its values.
#[derive(Clone, Copy, Debug)]
enum Range {
    Number(f64, f64),
    Whole(f64, f64),
    PowerOfTwo(f64),
    OneOf(&'static [f64]),
    /// Names, which the command line checks, or files.
    Name,
}

/// What it is if nobody sets it.
#[derive(Clone, Copy, Debug)]
enum Otherwise {
    Numbers(&'static [f64]),
    Names(&'static [&'static str]),
    /// It follows from other parameters.
    Follows,
}

/// Where a row shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Params,
    /// It is, or decides, the x axis.
    Axis,
}

/// For which of its values the paper's numbers are.
#[derive(Clone, Copy, Debug)]
enum Papers {
    /// All: the figure's numbers say themselves for which, or it says only how long a run is.
    Any,
    /// Those.
    Numbers(&'static [f64]),
    Names(&'static [&'static str]),
    /// What it is if nobody sets it.
    Unset,
}

/// A value as a row shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Name(String),
}

/// A list of parameters with another declaration of one of them.
pub(super) const fn with<const N: usize>(
    mut all: [Parameter; N],
    other: Parameter,
) -> [Parameter; N] {
    let mut index = 0;
    while index < N {
        if all[index].choice as usize == other.choice as usize {
            all[index] = other;
        }
        index += 1;
    }
    all
}

/// The same list and one more.
pub(super) const fn and<const N: usize, const MORE: usize>(
    all: [Parameter; N],
    more: Parameter,
) -> [Parameter; MORE] {
    let mut list = [more; MORE];
    let mut index = 0;
    while index < N {
        list[index] = all[index];
        index += 1;
    }
    list
}

/// Why options are not what a figure takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refused {
    /// The figure does not take this option.
    Option(Choice),
    /// It takes one value, not several.
    List(Choice),
    /// A value is given twice.
    Twice(Choice, String),
    /// A value that it cannot take, and what it can.
    Value(Choice, String, String),
    /// The option changes nothing without this.
    Idle(Choice, &'static str),
}

/// Declaring.
impl Parameter {
    const fn new(choice: Choice, takes: Takes, range: Range, default: Otherwise) -> Self {
        Self {
            choice,
            key: choice.key(),
            takes,
            range,
            default,
            place: Place::Params,
            papers: Papers::Unset,
            only: "",
        }
    }

    /// A list of numbers; every one gives rows of its own.
    pub(super) const fn each(
        choice: Choice,
        (low, high): (f64, f64),
        default: &'static [f64],
    ) -> Self {
        let range = Range::Number(low, high);
        Self::new(choice, Takes::Each, range, Otherwise::Numbers(default))
    }

    /// One number.
    pub(super) const fn one(
        choice: Choice,
        (low, high): (f64, f64),
        default: &'static [f64],
    ) -> Self {
        let range = Range::Number(low, high);
        Self::new(choice, Takes::One, range, Otherwise::Numbers(default))
    }

    /// A list of numbers that all rows have in common.
    pub(super) const fn together(choice: Choice, (low, high): (f64, f64)) -> Self {
        let range = Range::Number(low, high);
        Self::new(choice, Takes::Together, range, Otherwise::Follows)
    }

    /// A list of names.
    pub(super) const fn names(choice: Choice, default: &'static [&'static str]) -> Self {
        Self::new(choice, Takes::Each, Range::Name, Otherwise::Names(default))
    }

    /// One name.
    pub(super) const fn name(choice: Choice, default: &'static [&'static str]) -> Self {
        Self::new(choice, Takes::One, Range::Name, Otherwise::Names(default))
    }

    /// A file in place of the built-in one.
    pub(super) const fn file(choice: Choice) -> Self {
        Self::name(choice, &["built-in"])
    }

    /// How long the runs are: no parameter of a paper's.
    pub(super) const fn requests(default: &'static [f64]) -> Self {
        Self::one(Choice::Requests, (1.0, 1e12), default)
            .whole()
            .any()
    }

    /// The seed of all randomness.
    pub(super) const fn seed() -> Self {
        Self::one(Choice::Seed, (0.0, SEED_MAX), &[1.0])
            .whole()
            .any()
    }

    /// If nobody sets it, it follows from other parameters.
    pub(super) const fn follows(self) -> Self {
        Self {
            default: Otherwise::Follows,
            ..self
        }
    }

    /// Without a fraction.
    pub(super) const fn whole(self) -> Self {
        let range = match self.range {
            Range::Number(low, high) => Range::Whole(low, high),
            other => other,
        };
        Self { range, ..self }
    }

    /// 1, 2, 4 and so on, up to the highest.
    pub(super) const fn power_of_two(self) -> Self {
        let range = match self.range {
            Range::Number(_, high) => Range::PowerOfTwo(high),
            other => other,
        };
        Self { range, ..self }
    }

    /// Those that are drawn by default, and no others.
    pub(super) const fn one_of(self, values: &'static [f64]) -> Self {
        Self {
            range: Range::OneOf(values),
            ..self
        }
    }

    /// Called something else in the rows of this figure.
    pub(super) const fn called(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    /// It is, or decides, the x axis.
    pub(super) const fn axis(self) -> Self {
        Self {
            place: Place::Axis,
            papers: Papers::Any,
            ..self
        }
    }

    /// The paper's numbers are for these values of it.
    pub(super) const fn papers(self, values: &'static [f64]) -> Self {
        Self {
            papers: Papers::Numbers(values),
            ..self
        }
    }

    /// The paper's numbers are for these.
    pub(super) const fn papers_named(self, names: &'static [&'static str]) -> Self {
        Self {
            papers: Papers::Names(names),
            ..self
        }
    }

    /// It has an effect on series that end so only.
    pub(super) const fn only(self, ending: &'static str) -> Self {
        Self {
            only: ending,
            ..self
        }
    }

    /// The figure itself knows the paper's numbers for each value.
    pub(super) const fn any(self) -> Self {
        Self {
            papers: Papers::Any,
            ..self
        }
    }
}

impl Parameter {
    /// Whether a change of it may leave the paper's numbers where they are.
    #[cfg(test)]
    pub(super) fn is_any(&self) -> bool {
        matches!(self.papers, Papers::Any)
    }

    /// Whether a list of it belongs to every row.
    #[cfg(test)]
    pub(super) fn is_together(&self) -> bool {
        self.takes == Takes::Together
    }

    /// Whether a row says what it is, where it does not follow from others.
    #[cfg(test)]
    pub(super) fn is_named_in(&self, row: &Row) -> bool {
        let follows = matches!(self.default, Otherwise::Follows) || self.place == Place::Axis;
        follows || self.shown(row).is_some()
    }

    /// The numbers at the ends of what it takes, and some that it does not.
    #[cfg(test)]
    pub(super) fn extremes(&self) -> Vec<f64> {
        match self.range {
            Range::Number(low, high) => vec![low, high, (low + high) / 2.0, low - 1.0, high * 2.0],
            Range::Whole(low, high) => vec![low, high, low - 1.0, high + 1.0],
            Range::PowerOfTwo(high) => vec![1.0, high, 3.0, high * 2.0],
            Range::OneOf(values) => values.iter().copied().chain([99.0]).collect(),
            Range::Name => Vec::new(),
        }
    }

    /// Why a value is refused, in the option's own unit: the value, and what it could be.
    fn refuses(&self, value: &Value) -> Option<Refused> {
        let Value::Number(number) = *value else {
            return None;
        };
        let whole = number.fract() == 0.0;
        // Rows have large requests in per cent, the option as a fraction.
        let unit = match self.choice {
            Choice::LargeFraction => 100.0,
            _ => 1.0,
        };
        let (right, expected) = match self.range {
            Range::Name => (true, String::new()),
            Range::Number(low, high) => (
                (low..=high).contains(&number),
                format!("{} to {}", low / unit, high / unit),
            ),
            Range::Whole(low, high) => (
                whole && (low..=high).contains(&number),
                format!("whole numbers of {low} to {high}"),
            ),
            Range::PowerOfTwo(high) => (
                (1.0..=high).contains(&number) && whole && (number as u64).is_power_of_two(),
                format!("powers of two up to {high}, because hashes choose among queues"),
            ),
            Range::OneOf(values) => {
                let all = values.iter().map(|value| (value / unit).to_string());
                (
                    values.contains(&number),
                    all.collect::<Vec<String>>().join(", "),
                )
            }
        };
        let value = (number / unit).to_string();
        (!right).then_some(Refused::Value(self.choice, value, expected))
    }

    fn check(&self, given: &[Value]) -> Result<(), Refused> {
        if given.len() > 1 && self.takes == Takes::One {
            return Err(Refused::List(self.choice));
        }
        for (index, value) in given.iter().enumerate() {
            if let Some(refused) = self.refuses(value) {
                return Err(refused);
            }
            if given[..index].contains(value) {
                return Err(Refused::Twice(self.choice, value.to_string()));
            }
        }
        Ok(())
    }

    /// What all rows have in common, or `None` if the figure has not one value.
    fn common(&self, given: &[Value]) -> Option<String> {
        if !given.is_empty() {
            let texts: Vec<String> = given.iter().map(Value::to_string).collect();
            let one = texts.len() == 1 || self.takes == Takes::Together;
            return one.then(|| texts.join("/"));
        }
        match self.default {
            Otherwise::Numbers([number]) => Some(number.to_string()),
            Otherwise::Names([name]) => Some((*name).into()),
            _ => None,
        }
    }

    /// What a row says that it is.
    fn shown<'a>(&self, row: &'a Row) -> Option<&'a str> {
        words(&row.params).find_map(|word| word.strip_prefix(self.key)?.strip_prefix('='))
    }

    /// Whether the paper's number in a row may stand there.
    fn is_the_papers(&self, row: &Row, is_given: bool) -> bool {
        let shown = self.shown(row);
        match (self.papers, shown) {
            (Papers::Any, _) => true,
            (Papers::Unset, _) => !is_given,
            (Papers::Numbers(_) | Papers::Names(_), None) => !is_given,
            (Papers::Names(names), Some(shown)) => names.contains(&shown),
            (Papers::Numbers(numbers), Some(shown)) => shown
                .parse()
                .is_ok_and(|shown: f64| numbers.contains(&shown)),
        }
    }
}

impl Figure {
    /// Its parameter of this choice.
    pub(super) fn parameter(&self, choice: Choice) -> Option<&'static Parameter> {
        self.parameters.iter().find(|one| one.choice == choice)
    }

    /// Says which option is none that it takes.
    pub(crate) fn check(&self, options: &Options, series: &[&str]) -> Result<(), Refused> {
        for &choice in Choice::ALL {
            let given = options.given(choice);
            match self.parameter(choice) {
                Some(parameter) => parameter.check(&given)?,
                None if given.is_empty() => {}
                None => return Err(Refused::Option(choice)),
            }
            let of_measured = matches!(choice, Choice::Costs | Choice::Batch);
            let calibrations = &options.calibrations;
            if of_measured
                && !given.is_empty()
                && !calibrations.is_empty()
                && !calibrations.contains(&Calibration::Measured)
            {
                return Err(Refused::Idle(choice, "--calibration measured"));
            }
        }
        for parameter in self.parameters {
            let ending = parameter.only;
            let given = !options.given(parameter.choice).is_empty();
            if given && !series.iter().any(|series| series.ends_with(ending)) {
                return Err(Refused::Idle(parameter.choice, ending));
            }
        }
        Ok(())
    }

    /// Adds what all rows have in common to their parameters, and takes the paper's number away
    /// where a parameter is not the paper's.
    pub(super) fn complete(&self, rows: &mut [Row], options: &Options) {
        for parameter in self.parameters {
            let given = options.given(parameter.choice);
            let common = parameter.common(&given);
            for row in rows.iter_mut() {
                if parameter.place == Place::Params
                    && let Some(common) = &common
                    && parameter.shown(row).is_none()
                {
                    let separator = if row.params.is_empty() { "" } else { ";" };
                    row.params += &format!("{separator}{}={common}", parameter.key);
                }
                if !parameter.is_the_papers(row, !given.is_empty()) {
                    row.paper = None;
                }
                // A ratio to nothing.
                row.value = row.value.filter(|value| value.is_finite());
            }
        }
    }

    /// What it takes, for a person.
    pub(crate) fn takes(&self) -> String {
        let one = |parameter: &Parameter| match parameter.takes {
            Takes::One => parameter.choice.flag().into(),
            _ => format!("{} (a list)", parameter.choice.flag()),
        };
        let all: Vec<String> = self.parameters.iter().map(one).collect();
        match all.is_empty() {
            true => "nothing but --series".into(),
            false => all.join(", "),
        }
    }
}

impl super::Request<'_> {
    /// The numbers of a parameter: what is given, else the default.
    pub(super) fn numbers(&self, choice: Choice) -> Vec<f64> {
        let given = self.options.given(choice);
        let numbers = given.iter().filter_map(|value| match value {
            Value::Number(number) => Some(*number),
            Value::Name(_) => None,
        });
        match (given.is_empty(), self.declared(choice).default) {
            (true, Otherwise::Numbers(numbers)) => numbers.to_vec(),
            _ => numbers.collect(),
        }
    }

    /// The names of a parameter: what is given, else the default.
    pub(super) fn names(&self, choice: Choice) -> Vec<String> {
        let given = self.options.given(choice);
        match (given.is_empty(), self.declared(choice).default) {
            (true, Otherwise::Names(names)) => names.iter().map(|name| (*name).into()).collect(),
            _ => given.iter().map(Value::to_string).collect(),
        }
    }

    /// Whose costs are drawn: costs that are given are in place of the measured ones, so that they
    /// alone are drawn unless something else is asked for.
    pub(super) fn calibrations(&self) -> Vec<Calibration> {
        let names = self.names(Choice::Calibration);
        let all = [Calibration::Paper, Calibration::Measured];
        let options = self.options;
        let of_measured = options.costs.is_some() || options.batch.is_some();
        let wanted = |calibration: &Calibration| match options.calibrations.is_empty() {
            true if of_measured => *calibration == Calibration::Measured,
            _ => names.iter().any(|name| name == calibration.name()),
        };
        all.into_iter().filter(wanted).collect()
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

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(choice) => write!(f, "does not take {}", choice.flag()),
            Self::List(choice) => write!(
                f,
                "takes one {} for all its rows, not a list",
                choice.flag()
            ),
            Self::Twice(choice, value) => {
                write!(
                    f,
                    "takes a list of different values; {} has {value} twice",
                    choice.flag()
                )
            }
            Self::Value(choice, value, expected) => {
                write!(f, "takes {} of {expected}; {value} is none", choice.flag())
            }
            Self::Idle(choice, what) => {
                write!(
                    f,
                    "takes {} with {what} only; here it would change nothing",
                    choice.flag()
                )
            }
        }
    }
}

/// Whole numbers up to here are exact.
const SEED_MAX: f64 = 9_007_199_254_740_992.0;
