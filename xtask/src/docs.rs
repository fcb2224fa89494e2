//! `cargo xtask docs`: the documentation as a site with search; `cargo xtask reference`: the pages
//! that are written from declarations in the code.

use std::process::Command;

use anyhow::Result;

use crate::check_result::Outcome;
use crate::process::Log;
use crate::required_packages;
use crate::workspace::{Workspace, cargo_command};

/// Builds the site strictly: whatever mkdocs warns of, a link or an anchor, is an error.
pub(crate) fn site(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let python = required_packages::virtual_environment(workspace, log, "mkdocs", &[MKDOCS])?;
    let site = workspace.scratch("site")?;
    let mut build = Command::new(python);
    build.args(["-m", "mkdocs", "build", "--clean"]);
    build.args(["--config-file", "xtask/site/mkdocs.yml", "--site-dir"]);
    log.run(build.arg(&site).current_dir(&workspace.root))?;
    Ok(Outcome::passed().remark(site.join("index.html").display().to_string()))
}

/// Builds the site and says where it is.
pub(crate) fn command(workspace: &Workspace) -> Result<Outcome> {
    let outcome = site(workspace, &Log::terminal())?;
    println!("{}", outcome.remark);
    Ok(outcome)
}

/// Writes the reference pages of flags and metrics; the same tests fail without the variable while
/// a page is not what the code declares.
pub(crate) fn reference(workspace: &Workspace) -> Result<Outcome> {
    let mut tests = cargo_command();
    tests.args([
        "test",
        "--quiet",
        "-p",
        "curtail-cli",
        "-p",
        "curtail-lab",
        "-p",
        "curtail-server",
    ]);
    tests.args(["--lib", "--bins", "the_reference_page"]);
    tests.env("CURTAIL_REFERENCE", "write");
    Log::terminal().run(tests.current_dir(&workspace.root))?;
    Ok(Outcome::passed())
}

/// BSD-2-Clause; its search runs in the browser.
const MKDOCS: &str = "mkdocs==1.6.1";
