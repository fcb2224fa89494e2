//! The statistics that a server reported at one moment: names and values, uninterpreted.
//!
//! Servers differ in what they tell, and versions of ours too, so nothing here knows a name: who
//! wants one asks for it and lives without it.

use std::time::Duration;

use super::connection::{Connection, Fault};

/// The answers to one round of questions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// When, since the program began.
    pub(crate) taken: Duration,
    /// `stats`.
    pub(crate) general: Names,
    /// `stats curtail`, of a server that has it.
    pub(crate) own: Option<Names>,
    /// `stats memory`, of a server that has it.
    pub(crate) memory: Option<Names>,
    /// `stats conns`; not asked for when there are very many.
    pub(crate) clients: Option<Names>,
}

/// Rows of names and values in the order in which they came; a name may come twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<(String, String)>);

/// A list of more connections than this costs the server too much to write.
const CLIENTS_LISTED_MAX: u64 = 1000;

impl Sample {
    /// Asks a server for everything.
    pub(crate) fn take(connection: &mut Connection, taken: Duration) -> Result<Self, Fault> {
        let foreign = || Fault::Foreign("no answer to `stats`".to_owned());
        let general = connection.ask("stats")?.ok_or_else(foreign)?;
        let few = general
            .number("curr_connections")
            .is_some_and(|connections| connections <= CLIENTS_LISTED_MAX);
        Ok(Self {
            taken,
            own: connection.ask("stats curtail")?,
            memory: connection.ask("stats memory")?,
            clients: match few {
                true => connection.ask("stats conns")?,
                false => None,
            },
            general,
        })
    }
}

impl Names {
    /// Adds a row: a name, a space, and the value, which may hold spaces.
    pub(crate) fn add(&mut self, row: &str) {
        let (name, value) = row.split_once(' ').unwrap_or((row, ""));
        self.0.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let row = self.0.iter().find(|row| row.0 == name);
        row.map(|row| row.1.as_str())
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// A value with a fraction, such as seconds of processor time.
    pub(crate) fn fraction(&self, name: &str) -> Option<f64> {
        let value: f64 = self.text(name)?.parse().ok()?;
        value.is_finite().then_some(value)
    }

    /// What follows `prefix` in the names that have it, and their values.
    pub(crate) fn behind<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter()
            .filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }

    /// All rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
impl Names {
    /// Rows as tests write them: `name value` lines.
    pub(crate) fn of(text: &str) -> Self {
        let mut names = Self::default();
        text.lines().for_each(|line| names.add(line.trim()));
        names
    }
}
