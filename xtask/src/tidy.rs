//! The house rules that a machine can check (STYLE.md names them): `cargo xtask tidy`.
//!
//! A file for each kind of rules: `source` reads one Rust file at a time, `manifest` the
//! dependencies, `server_modules` which module of the server uses which, `homonyms` the types of
//! all crates, `documents` the Markdown pages, `text_files` every text file. Rules read text, not
//! syntax trees; a rule that needs a parser belongs to clippy. Every rule has a test that plants a
//! violation and checks that it is found.

mod documents;
mod homonyms;
mod manifest;
mod ratchet;
mod rust_path_parser;
mod server_modules;
mod source;
mod text_files;

pub(crate) use source::COLUMNS_MAX;

use std::fmt;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::check_result::{Outcome, Tally};
use crate::process::Log;
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

/// `cargo xtask tidy`; with `--modules` it first prints the arrows between the server's modules.
pub(crate) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    match arguments {
        [] => {}
        [flag] if flag == "--modules" => print!(
            "{}",
            server_modules::drawing(&text_files::read(workspace)?)?
        ),
        _ => bail!("tidy takes `--modules` or nothing"),
    }
    let outcome = step(workspace, &Log::terminal())?;
    println!("{}", outcome.tally);
    Ok(outcome)
}

pub(crate) fn step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let files = text_files::read(workspace)?;
    let mut violations = manifest::check(workspace, &files)?;
    violations.extend(documents::check(workspace, &files));
    violations.extend(text_files::check(&files));
    violations.extend(server_modules::check(&files)?);
    violations.extend(homonyms::check(&files)?);
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

/// Takes exceptions that are no longer needed out of the lists.
pub(crate) fn shrink_lists(workspace: &Workspace) -> Result<()> {
    let files = text_files::read(workspace)?;
    let lists = [
        (server_modules::TABLE, server_modules::shrunk(&files)?),
        (homonyms::LIST, homonyms::shrunk(&files)?),
    ];
    for (path, text) in lists {
        fs::write(workspace.root.join(path), text).with_context(|| format!("writing {path}"))?;
    }
    Ok(())
}
