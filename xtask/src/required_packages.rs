//! Debian packages and Python packages that a check needs: installed if they are missing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::process::{self, Log};
use crate::workspace::Workspace;

/// A program that a check calls, and the Debian package that has it.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

impl Tool {
    /// The program of this name, and its package.
    pub(crate) const fn of(program: &'static str, package: &'static str) -> Self {
        Self { program, package }
    }
}

/// Makes sure that the programs are there. Installing needs root or sudo without a password.
pub(crate) fn ensure(log: &Log, tools: &[Tool]) -> Result<()> {
    let missing: Vec<&str> = tools
        .iter()
        .filter(|tool| !process::exists(tool.program))
        .map(|tool| tool.package)
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => install(log, &missing),
    }
}

/// Python with these packages of PyPI, in a virtual environment of this name.
pub(crate) fn virtual_environment(
    workspace: &Workspace,
    log: &Log,
    name: &str,
    packages: &[&str],
) -> Result<PathBuf> {
    // Debian has python3 without ensurepip unless python3-venv is there.
    let package = "python3-venv";
    let program = "python3";
    ensure(log, &[Tool { program, package }])?;
    let folder = workspace.scratch(name)?;
    let (python, ready) = (folder.join("bin/python"), folder.join("ready"));
    let wanted = packages.join("\n");
    if fs::read_to_string(&ready).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let make = || {
        let mut make = Command::new(program);
        make.args(["-m", "venv"]).arg(&folder);
        make
    };
    if log.run(&mut make()).is_err() {
        install(log, &[package])?;
        log.run(&mut make())?;
    }
    let mut pip = Command::new(&python);
    log.run(pip.args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    fs::write(ready, wanted)?;
    Ok(python)
}

/// Installs Debian packages.
pub(crate) fn install(log: &Log, missing: &[&str]) -> Result<()> {
    let Some(prefix) = privilege() else {
        bail!(
            "these Debian packages are missing and only root can install them: {0}\n\
             run: sudo apt-get install {0}",
            missing.join(" ")
        );
    };
    println!("installing the Debian packages {}", missing.join(" "));
    log.run(&mut apt(prefix, &["update"]))?;
    let mut words = vec!["install", "--yes", "--no-install-recommends"];
    words.extend(missing);
    log.run(&mut apt(prefix, &words))?;
    Ok(())
}

/// How to become root: not at all if we are, by sudo if it asks nothing, or not.
fn privilege() -> Option<Option<&'static str>> {
    let id = Command::new("id").arg("-u").output().ok()?;
    if id.stdout == b"0\n" {
        return Some(None);
    }
    let sudo = Command::new("sudo").args(["-n", "true"]).output().ok()?;
    sudo.status.success().then_some(Some("sudo"))
}

fn apt(prefix: Option<&str>, words: &[&str]) -> Command {
    let mut command = match prefix {
        None => Command::new("env"),
        Some(sudo) => {
            let mut command = Command::new(sudo);
            command.args(["-n", "env"]);
            command
        }
    };
    command
        .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"])
        .args(words);
    command
}
