//! Every dependency's licence against the list in deny.toml.
//!
//! `cargo deny` does more (advisories, duplicates) and is used where it is installed; building it
//! takes minutes, so the check that must always run is here: each package's SPDX expression has to
//! be satisfiable from the allowed list.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};

use crate::check_result::{Outcome, Tally};
use crate::process::{self, Log};
use crate::workspace::{Workspace, cargo_command, text};

pub(crate) fn command(workspace: &Workspace) -> Result<Outcome> {
    let outcome = step(workspace, &Log::terminal())?;
    println!("{}", outcome.tally);
    Ok(outcome)
}

pub(crate) fn step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let rules: toml::Table = fs::read_to_string(workspace.root.join("deny.toml"))?.parse()?;
    let allowed = rules["licenses"]["allow"]
        .as_array()
        .context("deny.toml: licenses.allow")?;
    let allowed: BTreeSet<&str> = allowed.iter().filter_map(|entry| entry.as_str()).collect();
    let mut tally = Tally::default();
    let mut refused = Vec::new();
    for package in workspace.packages() {
        let licence = text(package, "license");
        if satisfiable(&licence, &allowed) {
            tally += Tally::ONE_PASSED;
        } else {
            tally += Tally::ONE_FAILED;
            let line = format!(
                "{} {}: `{licence}`",
                text(package, "name"),
                text(package, "version")
            );
            log.line(&line)?;
            refused.push(line);
        }
    }
    if process::exists("cargo-deny") {
        log.run(
            cargo_command()
                .args(["deny", "check"])
                .current_dir(&workspace.root),
        )?;
    }
    let failure = (!refused.is_empty()).then(|| format!("not allowed: {}", refused.join("; ")));
    Ok(Outcome::counted(tally, failure))
}

/// True if the expression can be satisfied with allowed licences alone. An empty or malformed
/// expression cannot.
fn satisfiable(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut reader = Reader {
        words: spaced.split_whitespace().peekable(),
        allowed,
    };
    reader.either() == Some(true) && reader.words.next().is_none()
}

/// Recursive descent over `either := both (OR both)*`, `both := one (AND one)*`,
/// `one := ( either ) | id [WITH exception]`.
struct Reader<'a, I: Iterator<Item = &'a str>> {
    words: std::iter::Peekable<I>,
    allowed: &'a BTreeSet<&'a str>,
}

impl<'a, I: Iterator<Item = &'a str>> Reader<'a, I> {
    fn either(&mut self) -> Option<bool> {
        let mut satisfied = self.both()?;
        while self.words.next_if_eq(&"OR").is_some() {
            satisfied |= self.both()?;
        }
        Some(satisfied)
    }

    fn both(&mut self) -> Option<bool> {
        let mut satisfied = self.one()?;
        while self.words.next_if_eq(&"AND").is_some() {
            satisfied &= self.one()?;
        }
        Some(satisfied)
    }

    fn one(&mut self) -> Option<bool> {
        if self.words.next_if_eq(&"(").is_some() {
            let satisfied = self.either()?;
            self.words.next_if_eq(&")")?;
            return Some(satisfied);
        }
        let id = self
            .words
            .next_if(|word| !["AND", "OR", "WITH", ")"].contains(word))?;
        if self.words.next_if_eq(&"WITH").is_none() {
            return Some(self.allowed.contains(id));
        }
        let whole = format!("{id} WITH {}", self.words.next()?);
        Some(self.allowed.contains(whole.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Choices need one allowed side, conjunctions both, and nonsense is refused.
    #[test]
    fn expressions_are_judged() {
        let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Unicode-3.0", "Zlib"]);
        let cases = [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/GPL-3.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("GPL-3.0", false),
            ("MIT AND MPL-2.0", false),
            ("GPL-2.0 OR MPL-2.0", false),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("", false),
            ("MIT OR", false),
            ("MIT MIT", false),
        ];
        for (expression, expected) in cases {
            assert_eq!(satisfiable(expression, &allowed), expected, "{expression}");
        }
    }
}
