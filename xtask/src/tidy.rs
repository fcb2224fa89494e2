//! The house rules that a machine can check (STYLE.md names them): `cargo xtask tidy`.
//!
//! Four kinds of rules, a file each: `source` reads one Rust file at a time, `manifest` the
//! dependencies, `documents` the Markdown pages, `tree` every text file. Rules read text, not
//! syntax trees; a rule that needs a parser belongs to clippy. Every rule has a test that plants a
//! violation and checks that it is found.

mod documents;
mod manifest;
mod source;
mod tree;

pub(crate) use source::COLUMNS_MAX;

use std::fmt;

use anyhow::Result;

use crate::process::Log;
use crate::tally::{Outcome, Tally};
use crate::workspace::Workspace;

/// One breach of one rule, at one place.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Violation {
    path: String,
    /// Counted from one; zero if the whole file is meant.
    line: usize,
    rule: &'static str,
    message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {} [{}]",
            self.path, self.line, self.message, self.rule
        )
    }
}

pub(crate) fn command(workspace: &Workspace) -> Result<Outcome> {
    let outcome = step(workspace, &Log::terminal())?;
    println!("{}", outcome.tally);
    Ok(outcome)
}

pub(crate) fn step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let files = tree::read(workspace)?;
    let mut violations = manifest::check(workspace, &files)?;
    violations.extend(documents::check(workspace, &files));
    violations.extend(tree::check(&files));
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        violations.extend(source::check(file));
    }
    violations.sort_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
    for violation in &violations {
        log.line(&violation.to_string())?;
    }
    let broken: std::collections::BTreeSet<&str> = violations
        .iter()
        .map(|violation| violation.path.as_str())
        .collect();
    let failed = broken.len() as u64;
    let passed = (files.len() as u64).saturating_sub(failed);
    let failure = (failed > 0).then(|| format!("{} places break a house rule", violations.len()));
    Ok(Outcome::counted(
        Tally {
            passed,
            failed,
            skipped: 0,
        },
        failure,
    )
    .remark("files"))
}
