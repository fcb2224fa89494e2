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
    figures::{
        Figure,
        options::{Choice, Options},
    },
    rows::{Row, words},
};

/// A parameter of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The option that sets it.
    pub choice: Choice,
    /// What it is called in a row's `params`.
    pub(super) key: &'static str,
    takes: Takes,
    range: Range,
    pub(super) default: Otherwise,
    pub(super) place: Place,
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
pub(super) enum Otherwise {
    Numbers(&'static [f64]),
    Names(&'static [&'static str]),
    /// It follows from other parameters.
    Follows,
}

/// Where a row shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
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
pub(super) enum Value {
    Number(f64),
    Name(String),
    /// Its path.
    File(String),
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

    /// Files that all rows have in common, in place of the built-in one.
    pub(super) const fn files(choice: Choice) -> Self {
        let built_in = Otherwise::Names(&["built-in"]);
        Self::new(choice, Takes::Together, Range::Name, built_in)
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
    pub(super) const fn follows(mut self) -> Self {
        self.default = Otherwise::Follows;
        self
    }

    /// Without a fraction.
    pub(super) const fn whole(mut self) -> Self {
        if let Range::Number(low, high) = self.range {
            self.range = Range::Whole(low, high);
        }
        self
    }

    /// 1, 2, 4 and so on, up to the highest.
    pub(super) const fn power_of_two(mut self) -> Self {
        if let Range::Number(_, high) = self.range {
            self.range = Range::PowerOfTwo(high);
        }
        self
    }

    /// Those that are drawn by default, and no others.
    pub(super) const fn one_of(mut self, values: &'static [f64]) -> Self {
        self.range = Range::OneOf(values);
        self
    }

    /// Called something else in the rows of this figure.
    pub(super) const fn called(mut self, key: &'static str) -> Self {
        self.key = key;
        self
    }

    /// It is, or decides, the x axis.
    pub(super) const fn axis(mut self) -> Self {
        self.place = Place::Axis;
        self.any()
    }

    /// The paper's numbers are for these values of it.
    pub(super) const fn papers(mut self, values: &'static [f64]) -> Self {
        self.papers = Papers::Numbers(values);
        self
    }

    /// The paper's numbers are for these.
    pub(super) const fn papers_named(mut self, names: &'static [&'static str]) -> Self {
        self.papers = Papers::Names(names);
        self
    }

    /// It has an effect on series that end so only.
    pub(super) const fn only(mut self, ending: &'static str) -> Self {
        self.only = ending;
        self
    }

    /// The figure itself knows the paper's numbers for each value.
    pub(super) const fn any(mut self) -> Self {
        self.papers = Papers::Any;
        self
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

    /// Why a value is refused, in the option's own unit.
    fn refuses(&self, value: &Value) -> Result<(), String> {
        let Value::Number(number) = *value else {
            return Ok(());
        };
        // Rows have large requests in per cent, the option as a fraction.
        let unit = match self.choice {
            Choice::LargeFraction => 100.0,
            _ => 1.0,
        };
        let is_whole = number.fract() == 0.0;
        let is_within = |low, high| (low..=high).contains(&number);
        let (right, expected) = match self.range {
            Range::Name => return Ok(()),
            Range::Number(low, high) => (
                is_within(low, high),
                format!("{} to {}", low / unit, high / unit),
            ),
            Range::Whole(low, high) => (
                is_whole && is_within(low, high),
                format!("whole numbers of {low} to {high}"),
            ),
            Range::PowerOfTwo(high) => (
                is_within(1.0, high) && is_whole && (number as u64).is_power_of_two(),
                format!("powers of two up to {high}, because hashes choose among queues"),
            ),
            Range::OneOf(values) => {
                let all = values.iter().map(|value| (value / unit).to_string());
                (values.contains(&number), all.collect::<Vec<_>>().join(", "))
            }
        };
        let (flag, value) = (self.choice.flag(), number / unit);
        let refused = || format!("takes {flag} of {expected}; {value} is none");
        right.then_some(()).ok_or_else(refused)
    }

    fn check(&self, given: &[Value]) -> Result<(), String> {
        let flag = self.choice.flag();
        if given.len() > 1 && self.takes == Takes::One {
            return Err(format!("takes one {flag} for all its rows, not a list"));
        }
        for (index, value) in given.iter().enumerate() {
            self.refuses(value)?;
            if given[..index].contains(value) {
                return Err(format!(
                    "takes a list of different values; {flag} has {value} twice"
                ));
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
    pub(crate) fn check(&self, options: &Options, series: &[&str]) -> Result<(), String> {
        let asked = &options.calibration;
        let is_measured = asked.is_empty() || asked.contains(&Calibration::Measured);
        for &choice in Choice::ALL {
            let (flag, given) = (choice.flag(), options.given(choice));
            let idle =
                |what| format!("takes {flag} with {what} only; here it would change nothing");
            let Some(parameter) = self.parameter(choice) else {
                match given.is_empty() {
                    true => continue,
                    false => return Err(format!("does not take {flag}")),
                }
            };
            parameter.check(&given)?;
            if given.is_empty() {
                continue;
            }
            if matches!(choice, Choice::Costs | Choice::Batch) && !is_measured {
                return Err(idle("--calibration measured"));
            }
            if !series.iter().any(|series| series.ends_with(parameter.only)) {
                return Err(idle(parameter.only));
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

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
            // A row's parameters have these signs between them.
            Self::File(path) => f.write_str(&path.replace([';', ',', '='], "_")),
        }
    }
}

/// Whole numbers up to here are exact.
const SEED_MAX: f64 = 9_007_199_254_740_992.0;
