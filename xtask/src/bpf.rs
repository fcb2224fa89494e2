//! The XDP programs, the network card's and the switch's: compiled from `bpf/`, compared with the
//! objects that are kept, loaded through the kernel's verifier and held to their Rust twins.
//!
//! The objects are in the repository so that the product builds without clang. A compiler of
//! another major version may give other bytes for the same source; then the comparison is not
//! made, and said so, and the object that this compiler gives is tested in the place of the kept
//! one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::check_result::Outcome;
use crate::process::{self, Log};
use crate::workspace::{Workspace, cargo_command};

/// `cargo xtask bpf`: compiles the program into the object that is kept.
pub(crate) fn command(workspace: &Workspace) -> Result<Outcome> {
    for program in PROGRAMS {
        let kept = workspace.root.join("bpf").join(format!("{program}.o"));
        let built = build(workspace, &Log::terminal(), program)?;
        fs::copy(&built, &kept)?;
        println!("{} bytes in {}", fs::metadata(&kept)?.len(), kept.display());
    }
    Ok(Outcome::passed())
}

/// The step of `cargo xtask test`: source, object, verifier and twin agree.
pub(crate) fn step(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    if !process::exists("clang") {
        bail!("clang is missing: `cargo xtask test packages` installs it");
    }
    let mut remark = String::new();
    let mut objects = Vec::new();
    for program in PROGRAMS {
        let built = build(workspace, log, program)?;
        remark = compare(workspace, &built, program)?;
        objects.push(built);
    }
    let mut tests = cargo_command();
    tests.args(["test", "-p", "curtail-runtime", "--test", "nic"]);
    tests.args(["-p", "curtail-routing", "--test", "differential"]);
    tests.current_dir(&workspace.root);
    // By the order of `PROGRAMS`.
    let variables = [
        "CURTAIL_NIC_OBJECT",
        "",
        "CURTAIL_SWITCH_OBJECT",
        "CURTAIL_NODE_OBJECT",
    ];
    let named = variables.iter().zip(&objects);
    tests.envs(named.filter(|(variable, _)| !variable.is_empty()));
    let finished = log.finish(&mut tests)?;
    let tally = crate::steps::tally_of(&finished.output);
    let failure = (!finished.status.success()).then(|| {
        format!(
            "`{}` ended with {}",
            process::spelled(&tests),
            finished.status
        )
    });
    let skipped = finished.output.matches("SKIPPED: ").count();
    if skipped > 0 {
        remark += &format!("; SKIPPED: {skipped} tests that need root");
    }
    Ok(Outcome::counted(tally, failure).remark(remark))
}

/// Whether the object that is kept is what the source gives; what to tell of it.
fn compare(workspace: &Workspace, built: &Path, program: &str) -> Result<String> {
    let version = clang_version()?;
    if version != KEPT_BY {
        return Ok(format!(
            "not compared: the object is clang {KEPT_BY}'s, this is clang {version}, whose own is \
             tested"
        ));
    }
    let built = fs::read(built)?;
    let kept = fs::read(workspace.root.join("bpf").join(format!("{program}.o")))?;
    if built != kept {
        bail!(
            "bpf/{program}.o ({} bytes) is not what bpf/ gives ({} bytes): run `cargo xtask bpf`",
            kept.len(),
            built.len()
        );
    }
    Ok("all objects bit by bit".to_string())
}

/// Compiles without any path of this machine in the object, and without what only debuggers read.
fn build(workspace: &Workspace, log: &Log, program: &str) -> Result<PathBuf> {
    let object = workspace.scratch("bpf")?.join(format!("{program}.o"));
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
        .args(["-c", &format!("{program}.c"), "-o"])
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

/// The XDP program, the one that measurements hold it to, and the switch's.
const PROGRAMS: [&str; 4] = ["nic.bpf", "floor.bpf", "switch.bpf", "node.bpf"];
/// The major version of clang that made the object: Debian 12's.
const KEPT_BY: &str = "14";
/// Where the headers are that other crates print.
const INCLUDES: [&str; 2] = ["crates/ordered_queue/src", "crates/codec/tests/native"];
