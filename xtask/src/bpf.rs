//! The network card's program: compiled from `bpf/`, compared with the object that is kept, loaded
//! through the kernel's verifier and held to its Rust twin.
//!
//! The object is in the repository so that the product builds without clang. A compiler of another
//! major version may give other bytes for the same source; then the comparison is not made, and
//! said so, and the object that this compiler gives is tested in the place of the kept one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{self, Log};
use crate::tally::Outcome;
use crate::workspace::{Workspace, cargo};

/// `cargo xtask bpf`: compiles the program into the object that is kept.
pub(crate) fn command(workspace: &Workspace) -> Result<Outcome> {
    let kept = workspace.root.join(OBJECT);
    let built = build(workspace, &Log::terminal())?;
    fs::copy(&built, &kept)?;
    println!("{} bytes in {OBJECT}", fs::metadata(&kept)?.len());
    Ok(Outcome::passed())
}

/// The step of `cargo xtask test`: source, object, verifier and twin agree.
pub(crate) fn step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    if !process::exists("clang") {
        bail!("clang is missing: `cargo xtask test packages` installs it");
    }
    let built = build(workspace, log)?;
    let remark = compare(workspace, &built)?;
    let words = ["test", "-p", "curtail-runtime", "--test", "nic"];
    let mut tests = Command::new(cargo());
    tests.args(words).current_dir(&workspace.root);
    tests.env("CURTAIL_NIC_OBJECT", &built);
    let finished = log.finish(&mut tests)?;
    let tally = crate::steps::tally_of(&finished.output);
    let failure = (!finished.status.success()).then(|| {
        format!(
            "`{}` ended with {}",
            process::spelled(&tests),
            finished.status
        )
    });
    Ok(Outcome::counted(tally, failure).remark(remark))
}

/// Whether the object that is kept is what the source gives; what to tell of it.
fn compare(workspace: &Workspace, built: &Path) -> Result<String> {
    let version = clang_version()?;
    if version != KEPT_BY {
        return Ok(format!(
            "not compared: the object is clang {KEPT_BY}'s, this is clang {version}, whose own is \
             tested"
        ));
    }
    let built = fs::read(built)?;
    let kept = fs::read(workspace.root.join(OBJECT))?;
    if built != kept {
        bail!(
            "{OBJECT} ({} bytes) is not what bpf/ gives ({} bytes): run `cargo xtask bpf`",
            kept.len(),
            built.len()
        );
    }
    Ok(format!("{} bytes, bit by bit", kept.len()))
}

/// Compiles without any path of this machine in the object, and without what only debuggers read.
fn build(workspace: &Workspace, log: &Log) -> Result<PathBuf> {
    let object = workspace.scratch("bpf")?.join("nic.bpf.o");
    let mut clang = Command::new("clang");
    clang
        .args([
            "--target=bpf",
            "-mcpu=v3",
            "-O2",
            "-g",
            "-fdebug-compilation-dir=.",
        ])
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(INCLUDES.map(|folder| format!("-I../{folder}")))
        .args(["-c", "nic.bpf.c", "-o"])
        .arg(&object)
        .current_dir(workspace.root.join("bpf"));
    log.run(&mut clang)?;
    let mut strip = Command::new(strip_program());
    log.run(strip.arg("-g").arg(&object))?;
    Ok(object)
}

/// Debian names it after the version where the unversioned package is not installed.
fn strip_program() -> String {
    let versioned = format!("llvm-strip-{KEPT_BY}");
    match Path::new("/usr/bin").join(&versioned).exists() {
        true => versioned,
        false => "llvm-strip".to_string(),
    }
}

fn clang_version() -> Result<String> {
    let output = Command::new("clang").arg("-dumpversion").output();
    let output = output.context("clang -dumpversion")?;
    let version = String::from_utf8_lossy(&output.stdout);
    let major = version.trim().split('.').next().unwrap_or_default();
    Ok(major.to_string())
}

const OBJECT: &str = "bpf/nic.bpf.o";
/// The major version of clang that made the object: Debian 12's.
const KEPT_BY: &str = "14";
/// Where the headers are that other crates print.
const INCLUDES: [&str; 2] = [
    "crates/dispatch/src/ordered_queue",
    "crates/codec/tests/native",
];
