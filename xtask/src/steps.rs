//! `cargo xtask test`: one list of steps, run in order, with durations and a closing sum.
//!
//! A step is a named function. All steps run even when one fails, so that one run tells
//! everything; the last lines name what failed and the command that repeats it. Steps marked slow
//! run only with `--all` or when named.

mod build;
mod slow;

use std::io::Write as _;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::process::{self, Log};
use crate::tally::{Outcome, Tally};
use crate::workspace::{Workspace, cargo};
use crate::{bpf, conformance, docs, instructions, licences, metrics, python_client, readme, tidy};

/// One line of the list.
struct Step {
    name: &'static str,
    what: &'static str,
    slow: bool,
    run: fn(&Workspace, &Log) -> Result<Outcome>,
}

const STEPS: &[Step] = &[
    quick(
        "packages",
        "Debian packages and Rust components that later steps need",
        build::packages,
    ),
    quick("format", "rustfmt agrees with every file", build::format),
    quick(
        "clippy",
        "the compiler and clippy have nothing to say",
        build::clippy,
    ),
    quick(
        "tidy",
        "the house rules that a machine can check",
        tidy::step,
    ),
    quick(
        "licences",
        "every dependency's licence is on the list",
        licences::step,
    ),
    quick(
        "test",
        "unit and integration tests of every crate",
        build::test,
    ),
    quick(
        "loom",
        "every interleaving of the publication protocols",
        build::loom,
    ),
    quick(
        "bpf",
        "the network card's program: source, object, verifier and twin agree",
        bpf::step,
    ),
    quick(
        "fuzz",
        "every fuzz target compiles (its properties run in `test`)",
        build::fuzz,
    ),
    quick("doc", "rustdoc builds without a warning", build::doc),
    quick(
        "site",
        "the documentation builds as a site, without a broken link",
        docs::site,
    ),
    quick("build", "the server, optimised", build::binary),
    quick(
        "readme",
        "the examples of README.md do what they say",
        readme::check,
    ),
    quick(
        "memcached",
        "memcached's own test-suite",
        conformance::memcached_step,
    ),
    quick(
        "pymemcache",
        "pymemcache's integration tests",
        conformance::pymemcache_step,
    ),
    quick(
        "memcached-cluster",
        "what memcached's test-suite asks of one key, of a node of a cluster",
        conformance::memcached_cluster_step,
    ),
    quick(
        "pymemcache-cluster",
        "pymemcache with one, with all and with any of the nodes of a cluster",
        conformance::pymemcache_cluster_step,
    ),
    quick(
        "memccapable",
        "libmemcached's protocol checks",
        conformance::memccapable_step,
    ),
    quick(
        "exporter",
        "a Prometheus exporter reports the server as up",
        conformance::exporter_step,
    ),
    quick(
        "metrics",
        "promtool agrees with /metrics, the alert rules, their tests and the dashboard",
        metrics::step,
    ),
    quick(
        "python-client",
        "the pure-Python client against packets and a server",
        python_client::step,
    ),
    quick(
        "instructions",
        "a small request costs no more instructions than recorded",
        instructions::judge,
    ),
    slow(
        "ignored",
        "tests that are too slow for every run",
        slow::ignored,
    ),
    slow(
        "miri",
        "unsafe crates under Miri, where a nightly has it",
        slow::miri,
    ),
    slow(
        "fuzz-long",
        "every fuzz target for a minute, where a nightly has cargo-fuzz",
        slow::fuzz,
    ),
    slow(
        "clients",
        "clients of six languages see the same server as memcached",
        conformance::languages_step,
    ),
    slow(
        "soak",
        "ten minutes of mixed load with verified values",
        slow::soak,
    ),
];

const fn quick(
    name: &'static str,
    what: &'static str,
    run: fn(&Workspace, &Log) -> Result<Outcome>,
) -> Step {
    Step {
        name,
        what,
        slow: false,
        run,
    }
}

const fn slow(
    name: &'static str,
    what: &'static str,
    run: fn(&Workspace, &Log) -> Result<Outcome>,
) -> Step {
    Step {
        name,
        what,
        slow: true,
        run,
    }
}

/// `cargo xtask test [--all] [--list] [STEP..]`
pub(crate) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    if arguments.iter().any(|argument| argument == "--list") {
        for step in STEPS {
            let when = if step.slow { "(--all)" } else { "" };
            println!("{:12} {} {when}", step.name, step.what);
        }
        return Ok(Outcome::default());
    }
    let chosen = choose(arguments)?;
    let logs = workspace.scratch("logs")?;
    let start = Instant::now();
    let mut sum = Tally::default();
    let mut failures = Vec::new();
    for (number, step) in chosen.iter().enumerate() {
        let heading = format!("[{:2}/{}] {:12}", number + 1, chosen.len(), step.name);
        print!("{heading} {} ..", step.what);
        std::io::stdout().flush()?;
        let log = Log::file(logs.join(format!("{}.log", step.name)))?;
        let start = Instant::now();
        let outcome = match (step.run)(workspace, &log) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::failed(format!("{error:#}")),
        };
        println!(" {}", ending(&outcome, start.elapsed().as_secs_f64()));
        if let Some(failure) = &outcome.failure {
            println!("{}\n{heading} failed: {failure}", log.tail(TAIL_LINES));
            failures.push((
                step.name,
                failure.lines().next().unwrap_or_default().to_string(),
            ));
        }
        sum += outcome.tally;
    }
    println!();
    for (name, failure) in &failures {
        println!("{name} failed: {failure}\n    repeat it with: cargo xtask test {name}");
        println!(
            "    its log: {}",
            logs.join(format!("{name}.log")).display()
        );
    }
    println!(
        "{} steps in {:.0} s",
        chosen.len(),
        start.elapsed().as_secs_f64()
    );
    println!("{sum}");
    if failures.is_empty() {
        return Ok(Outcome::counted(sum, None));
    }
    std::process::exit(1) // all has been said; the closing line stays the last
}

/// `cargo xtask fix`: the only command that edits files.
pub(crate) fn fix(workspace: &Workspace) -> Result<Outcome> {
    let log = Log::terminal();
    let mut clippy = Command::new(cargo());
    clippy.args([
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
    ]);
    log.run(clippy.arg("--all-targets").current_dir(&workspace.root))?;
    log.run(
        Command::new(cargo())
            .args(["fmt", "--all"])
            .current_dir(&workspace.root),
    )?;
    Ok(Outcome::passed())
}

fn choose(arguments: &[String]) -> Result<Vec<&'static Step>> {
    let all = arguments.iter().any(|argument| argument == "--all");
    let names: Vec<&String> = arguments
        .iter()
        .filter(|argument| *argument != "--all")
        .collect();
    for name in &names {
        if !STEPS.iter().any(|step| step.name == name.as_str()) {
            bail!("there is no step `{name}`; `cargo xtask test --list` lists them");
        }
    }
    let wanted = |step: &&Step| match names.is_empty() {
        true => all || !step.slow,
        false => names.iter().any(|name| *name == step.name),
    };
    Ok(STEPS.iter().filter(wanted).collect())
}

fn ending(outcome: &Outcome, seconds: f64) -> String {
    let word = match (
        &outcome.failure,
        outcome.tally.total() == outcome.tally.skipped,
    ) {
        (Some(_), _) => "FAILED",
        (None, true) => "skipped",
        (None, false) => "ok",
    };
    let count = match outcome.tally.total() {
        0 | 1 => String::new(),
        _ => format!(" ({})", outcome.tally),
    };
    let remark = match outcome.remark.is_empty() {
        true => String::new(),
        false => format!(" - {}", outcome.remark),
    };
    format!("{word} {seconds:.1} s{count}{remark}")
}

/// The sum of what `cargo test` said: its "test result" lines.
pub(crate) fn tally_of(output: &str) -> Tally {
    let mut sum = Tally::default();
    for line in output
        .lines()
        .filter(|line| line.starts_with("test result: "))
    {
        let counts = line.split(['.', ';']).filter_map(|part| {
            let (count, word) = part.trim().split_once(' ')?;
            Some((count.parse::<u64>().ok()?, word))
        });
        for (count, word) in counts {
            match word {
                "passed" => sum.passed += count,
                "failed" => sum.failed += count,
                "ignored" => sum.skipped += count,
                _ => {}
            }
        }
    }
    sum
}

/// Runs a `cargo test` of any kind and counts its cases.
fn counted(log: &Log, command: &mut Command) -> Result<Outcome> {
    let finished = log.finish(command)?;
    let failure = (!finished.status.success()).then(|| {
        format!(
            "`{}` ended with {}",
            process::spelled(command),
            finished.status
        )
    });
    Ok(Outcome::counted(tally_of(&finished.output), failure))
}

/// Lines of a failed step's log that are shown.
const TAIL_LINES: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    // Two test binaries of one run are added up, and ignored tests count as skipped.
    #[test]
    fn results_of_several_test_binaries_are_added() {
        let output = "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; \
                      finished in 0.01s\nnoise 7 passed\n\
                      test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered";
        assert_eq!(
            tally_of(output),
            Tally {
                passed: 15,
                failed: 1,
                skipped: 2
            }
        );
    }

    // A misspelt step must not end as "nothing failed".
    #[test]
    fn an_unknown_step_is_refused() {
        assert!(choose(&["tydi".to_string()]).is_err());
        assert_eq!(choose(&["tidy".to_string()]).unwrap().len(), 1);
    }

    // Slow steps run with --all only, and two steps never share a name.
    #[test]
    fn the_list_is_sound() {
        let quick = choose(&[]).unwrap();
        let all = choose(&["--all".to_string()]).unwrap();
        assert!(quick.len() < all.len());
        for (number, step) in STEPS.iter().enumerate() {
            assert!(
                STEPS[..number]
                    .iter()
                    .all(|earlier| earlier.name != step.name)
            );
        }
    }
}
