//! The figures: what is swept, what is measured, and what the paper has.
//!
//! Every figure is a function from [`Options`] to rows. It declares what it takes
//! ([`Figure::parameters`]): an option that is not set has the figure's own default, so that a
//! figure's name alone reproduces the paper's, any point that nobody listed can be asked for, and
//! what a figure does not take is an error.

mod c4;
mod c4_full;
mod cckvs;
mod combined;
mod few_cores;
mod figure_run;
mod hot_set_tracking;
mod juneberry;
mod minos;
mod minos_system;
mod options;
mod papers_numbers;
mod parameters;
mod reference;
mod shared_rank_tables;
mod switchkv;

use figure_run::Request;
pub use options::{Choice, Given, Options};
pub use parameters::Parameter;

use crate::{parallel_points::Threads, rows::Row};

/// A reproduced figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the x axis is.
    pub x: &'static str,
    /// What the model includes, what not, and what the paper's numbers are.
    pub about: &'static str,
    /// The series that it knows, as words; the first ones are drawn if none are asked for.
    pub series: &'static str,
    /// How many of `series` are drawn by default.
    pub series_default: usize,
    /// What can be set.
    pub parameters: &'static [Parameter],
    run: fn(&Request<'_>) -> Vec<Row>,
}

/// What was asked for does not exist.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FigureError {
    /// No figure has this name.
    Name(String),
    /// The figure has no such series.
    Series(&'static Figure, String),
    /// An option, or a value of one, that the figure does not take, and what is said of it.
    Refused(&'static Figure, String),
    /// These options together leave nothing to draw.
    Nothing(&'static Figure),
}

/// All figures.
pub fn figures() -> &'static [Figure] {
    FIGURES
}

/// The figure of this name.
pub fn figure(name: &str) -> Result<&'static Figure, FigureError> {
    let found = FIGURES.iter().find(|figure| figure.name == name);
    found.ok_or_else(|| FigureError::Name(name.into()))
}

impl Figure {
    /// The names of its series.
    pub fn series_names(&self) -> Vec<&'static str> {
        self.series.split_whitespace().collect()
    }

    /// Draws it: simulates every point, on these threads.
    pub fn rows(
        &'static self,
        options: &Options,
        threads: &Threads,
    ) -> Result<Vec<Row>, FigureError> {
        let mut series = Vec::new();
        let all = self.series_names();
        for name in &options.series {
            let known = all.iter().find(|known| *known == name);
            let known = known.ok_or_else(|| FigureError::Series(self, name.clone()))?;
            if !series.contains(known) {
                series.push(*known);
            }
        }
        if series.is_empty() {
            series.extend_from_slice(&all[..self.series_default]);
        }
        let refused = |refused| FigureError::Refused(self, refused);
        self.check(options, &series).map_err(refused)?;
        let mut rows = (self.run)(&Request {
            figure: self,
            options,
            series,
            threads,
        });
        if rows.is_empty() && !threads.is_stopped() {
            return Err(FigureError::Nothing(self));
        }
        for row in &mut rows {
            row.paper = row.paper.or_else(|| papers_numbers::of(row));
        }
        self.complete(&mut rows, options);
        Ok(rows)
    }
}

impl PartialEq for Figure {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Figure {}

impl std::fmt::Display for FigureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => {
                let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
                let names = names.join(", ");
                write!(f, "no figure is called {name:?}; there are {names}")
            }
            Self::Series(figure, name) => {
                let known = figure.series_names().join(", ");
                write!(f, "{} has no series {name:?}; it has {known}", figure.name)
            }
            Self::Refused(figure, refused) => {
                let takes = figure.takes();
                write!(f, "{} {refused}. Its options: {takes}", figure.name)
            }
            Self::Nothing(figure) => write!(
                f,
                "{} has nothing to draw for these options: read what it models in its heading",
                figure.name
            ),
        }
    }
}

impl std::error::Error for FigureError {}

/// Every setting at every load, settings first.
fn at_loads<'a, S>(settings: impl IntoIterator<Item = &'a S>, loads: &[f64]) -> Vec<(&'a S, f64)> {
    let at = |setting| loads.iter().map(move |load| (setting, *load));
    settings.into_iter().flat_map(at).collect()
}

const FIGURES: &[Figure] = &[
    c4::FIG3,
    c4::FIG4,
    c4::FIG13,
    c4::CURVE,
    c4_full::FIG9,
    c4_full::FIG10,
    c4_full::FIG11,
    c4_full::FIG12,
    c4_full::FIG13,
    c4_full::TABLE2,
    c4_full::SCALING,
    minos::FIG2,
    minos_system::FIG3,
    minos_system::FIG4,
    minos_system::FIG5,
    minos_system::FIG6,
    minos_system::FIG7,
    minos_system::FIG8,
    minos_system::FIG9,
    minos_system::FIG10,
    combined::COMBINED,
    few_cores::BESIDE,
    juneberry::FIG2,
    juneberry::FIG6,
    juneberry::FIG7,
    juneberry::FIG9,
    juneberry::FIG11,
    juneberry::PATTERN,
    juneberry::OVERLOAD,
    cckvs::FIG1,
    cckvs::FIG3,
    cckvs::FIG8,
    cckvs::FIG9,
    cckvs::FIG10,
    cckvs::FIG11,
    cckvs::FIG12,
    cckvs::FIG13,
    cckvs::FIG13C,
    cckvs::FIG14,
    cckvs::FIG15,
    cckvs::CORES,
    cckvs::COPIES,
    hot_set_tracking::HOT_SET,
    switchkv::FIG9,
    switchkv::FIG10,
    switchkv::FIG11,
    switchkv::FIG12,
    switchkv::FIG13,
    switchkv::FIG14,
    switchkv::FIG15,
    switchkv::FIG16,
    switchkv::FIG17,
    switchkv::FIG18,
    switchkv::FIG19,
    switchkv::GROUP,
    reference::POINTS,
];

#[cfg(test)]
mod tests;
