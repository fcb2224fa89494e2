//! The steps that are one or two calls of cargo.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::counted;
use crate::check_result::Outcome;
use crate::process::Log;
use crate::required_packages::{self, Tool};
use crate::server;
use crate::workspace::{Workspace, cargo_command};

pub(super) fn packages(_: &Workspace, log: &Log) -> Result<Outcome> {
    required_packages::ensure(log, TOOLS)?;
    for (component, subcommand) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        let probe = cargo_command().args([subcommand, "--version"]).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            log.run(Command::new("rustup").args(["component", "add", component]))
                .with_context(|| format!("the toolchain has no {component}"))?;
        }
    }
    Ok(Outcome::passed())
}

pub(super) fn format(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    log.run(&mut in_root(workspace, &["fmt", "--all", "--check"]))?;
    Ok(Outcome::passed())
}

pub(super) fn clippy(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    // The tests turn features on for all that is checked with them: what ships is checked apart.
    for which in [
        &["--workspace", "--all-targets"][..],
        &["-p", "curtail-cli"],
    ] {
        let words = [&["clippy"], which, &["--", "-D", "warnings"]].concat();
        log.run(&mut in_root(workspace, &words))?;
    }
    Ok(Outcome::passed())
}

/// Loom replaces the atomics, so these tests are another build, kept in a folder of its own.
pub(super) fn loom(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let mut words = vec!["test", "--release", "--lib", "--tests", "--no-fail-fast"];
    let members = workspace.members();
    let modelled = members.iter().filter(|member| {
        let uses = |line: &crate::workspace::Dependency| line.name == "loom";
        member.dependencies.iter().any(uses)
    });
    let names: Vec<&str> = modelled.map(|member| member.name.as_str()).collect();
    if names.is_empty() {
        return Ok(Outcome::skipped("no crate depends on loom yet"));
    }
    names
        .iter()
        .for_each(|name| words.extend(["--package", name]));
    words.extend(["--", "loom"]);
    let mut command = in_root(workspace, &words);
    command
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", workspace.scratch("loom")?);
    // One unit per crate would cost minutes here and find nothing more.
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    Ok(counted(log, &mut command)?.remark(names.join(", ")))
}

/// The properties run on a fixed seed among the tests of their crate; this sees that the fuzzers,
/// a workspace of their own, have not been left behind.
pub(super) fn fuzz(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let words = ["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"];
    log.run(in_root(workspace, &words).env("CARGO_TARGET_DIR", workspace.scratch("fuzz")?))?;
    Ok(Outcome::passed())
}

pub(super) fn doc(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let words = [
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ];
    // Written for people who read the source: a link to a private item is a help to them.
    let flags = "-D warnings -A rustdoc::private-intra-doc-links";
    log.run(in_root(workspace, &words).env("RUSTDOCFLAGS", flags))?;
    Ok(Outcome::passed())
}

/// What ships refuses the placements that only a comparison needs. The server's own tests cannot
/// see that: for them it is built with these.
pub(super) fn binary(workspace: &Workspace, log: &Log) -> Result<Outcome> {
    let binary = server::build(workspace, log)?;
    let (port, native) = (server::free_port()?, server::free_port()?);
    for placement in ["stealing", "hand-off"] {
        // One that it does not refuse would serve without end.
        let mut command = Command::new("timeout");
        command
            .arg("20")
            .arg(&binary)
            .args(["serve", "-l", "127.0.0.1"]);
        command.args(["-p", &port.to_string(), "--native", &native.to_string()]);
        command.args(["-o", &format!("native_placement={placement}")]);
        let finished = log.finish(&mut command)?;
        ensure!(
            !finished.status.success() && finished.output.contains(REFUSAL),
            "native_placement={placement} is not refused with `{REFUSAL}`"
        );
    }
    Ok(Outcome::passed())
}

pub(super) fn in_root(workspace: &Workspace, words: &[&str]) -> Command {
    let mut command = cargo_command();
    command.args(words).current_dir(&workspace.root);
    command
}

/// What the server answers to a placement that it was built without.
const REFUSAL: &str = "need a program built with --features baselines";

/// What the steps of an ordinary run call.
const TOOLS: &[Tool] = &[
    Tool::of("cc", "gcc"),
    Tool::of("prove", "perl"),
    Tool::of("dpkg-source", "dpkg-dev"),
    Tool::of("python3", "python3-venv"),
    Tool::of("nc", "netcat-openbsd"),
    Tool::of("etcd", "etcd-server"),
    Tool::of("clang", "clang"),
    Tool::of("llvm-strip", "llvm"),
    Tool::of("ovs-vswitchd", "openvswitch-switch"),
    Tool::of("ethtool", "ethtool"),
    Tool::of("ip", "iproute2"),
    Tool::of("memccapable", "libmemcached-tools"),
    Tool::of("promtool", "prometheus"),
];
