//! `cargo xtask test`: one list of steps, run in order, with durations and a closing sum.
//!
//! A step is a named function. All steps run even when one fails, so that one run tells
//! everything; the last lines name what failed and the command that repeats it, and say what each
//! step took. Three tiers: `--quick` is for every save, no option for every change, `--all` adds
//! what takes long. Our tests, checks of files and suites of others are counted apart.

mod cargo_calls;
mod hook;
mod slow;
mod suites;
mod times;
mod wrap_comments;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::check_result::{Outcome, Tally};
use crate::process::{self, Log};
use crate::workspace::{Workspace, cargo_command};
use crate::{
    bpf, conformance, docs, instructions, licences, promtool, python_client_test, readme, tidy,
};

/// One line of the list.
struct Step {
    name: &'static str,
    what: &'static str,
    tier: Tier,
    counts: Counts,
    action: Action,
}

/// What a step runs.
#[derive(Clone, Copy)]
enum Action {
    Call(fn(&Workspace, &Log) -> Result<Outcome>),
    /// The test-suite of others that has the step's name.
    Suite,
}

/// How often a step is worth its time; each tier holds those before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Tier {
    Quick,
    Usual,
    Slow,
}

/// What the cases of a step are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Counts {
    /// Our own tests.
    Tests,
    /// Files, builds and counts that a rule or a record is held against.
    Checks,
    /// Cases of test-suites and programs of others.
    Outside,
}

use Counts::{Checks, Outside, Tests};
use Tier::{Quick, Slow, Usual};

const STEPS: &[Step] = &[
    step(
        "packages",
        "Debian packages and Rust components that later steps need",
        (Quick, Checks),
        cargo_calls::packages,
    ),
    step(
        "format",
        "rustfmt agrees with every file",
        (Quick, Checks),
        cargo_calls::format,
    ),
    step(
        "clippy",
        "the compiler and clippy have nothing to say",
        (Quick, Checks),
        cargo_calls::clippy,
    ),
    step(
        "tidy",
        "the house rules that a machine can check",
        (Quick, Checks),
        tidy::step,
    ),
    step(
        "licences",
        "every dependency's licence is on the list",
        (Usual, Checks),
        licences::step,
    ),
    step(
        "unit",
        "unit tests of every crate but `tier`",
        (Quick, Tests),
        suites::unit,
    ),
    step(
        "test",
        "integration tests of every crate, tests of `tier`, examples in the documentation",
        (Usual, Tests),
        suites::integration,
    ),
    step(
        "loom",
        "every interleaving of the publication protocols",
        (Usual, Tests),
        cargo_calls::loom,
    ),
    step(
        "bpf",
        "the XDP programs: source, objects, verifier and twins agree",
        (Usual, Checks),
        bpf::step,
    ),
    step(
        "fuzz",
        "every fuzz target compiles (its properties run in `test`)",
        (Usual, Checks),
        cargo_calls::fuzz,
    ),
    step(
        "doc",
        "rustdoc builds without a warning",
        (Usual, Checks),
        cargo_calls::doc,
    ),
    step(
        "site",
        "the documentation builds as a site, without a broken link",
        (Usual, Checks),
        docs::site,
    ),
    step(
        "build",
        "the server, optimised; it refuses what it was built without",
        (Usual, Checks),
        cargo_calls::binary,
    ),
    step(
        "readme",
        "the examples of README.md do what they say",
        (Usual, Tests),
        readme::check,
    ),
    suite("memcached", "memcached's own test-suite", Usual),
    suite("pymemcache", "pymemcache's integration tests", Usual),
    suite(
        "memcached-cluster",
        "what memcached's test-suite asks of one key, of a node of a cluster",
        Usual,
    ),
    suite(
        "pymemcache-cluster",
        "pymemcache with one, with all and with any of the nodes of a cluster",
        Usual,
    ),
    suite(
        "pymemcache-tier",
        "pymemcache's integration tests at a gateway to a cache tier",
        Usual,
    ),
    suite(
        "memccapable-tier",
        "libmemcached's protocol checks at a gateway to a cache tier",
        Usual,
    ),
    suite("memccapable", "libmemcached's protocol checks", Usual),
    suite(
        "exporter",
        "a Prometheus exporter reports the server as up",
        Usual,
    ),
    step(
        "metrics",
        "promtool agrees with /metrics, the alert rules, their tests and the dashboard",
        (Usual, Outside),
        promtool::step,
    ),
    step(
        "python-client",
        "the pure-Python client against packets and a server",
        (Usual, Tests),
        python_client_test::step,
    ),
    step(
        "instructions",
        "a small request costs no more instructions than recorded",
        (Usual, Checks),
        instructions::judge,
    ),
    step(
        "ignored",
        "tests that are too slow for every run",
        (Slow, Tests),
        slow::ignored,
    ),
    step(
        "miri",
        "unsafe crates under Miri, where a nightly has it",
        (Slow, Tests),
        slow::miri,
    ),
    step(
        "fuzz-long",
        "every fuzz target for a minute, where a nightly has cargo-fuzz",
        (Slow, Tests),
        slow::fuzz,
    ),
    suite(
        "clients",
        "clients of six languages see the same server as memcached",
        Slow,
    ),
    step(
        "soak",
        "ten minutes of mixed load with verified values",
        (Slow, Tests),
        slow::soak,
    ),
];

const fn step(
    name: &'static str,
    what: &'static str,
    (tier, counts): (Tier, Counts),
    run: fn(&Workspace, &Log) -> Result<Outcome>,
) -> Step {
    Step {
        name,
        what,
        tier,
        counts,
        action: Action::Call(run),
    }
}

const fn suite(name: &'static str, what: &'static str, tier: Tier) -> Step {
    Step {
        name,
        what,
        tier,
        counts: Outside,
        action: Action::Suite,
    }
}

/// What `cargo xtask test` was asked for.
#[derive(Debug)]
struct Asked {
    tier: Tier,
    lists: bool,
    /// A page that is to show what each step took.
    times: Option<PathBuf>,
    names: Vec<String>,
}

/// `cargo xtask test [--quick | --all] [--list] [--times PAGE] [STEP..]`
pub(crate) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let asked = Asked::parse(arguments)?;
    let steps = asked.steps();
    if asked.lists {
        for step in steps {
            let tier = format!("{:?}", step.tier).to_lowercase();
            println!("{:18} {tier:5}  {}", step.name, step.what);
        }
        return Ok(Outcome::default());
    }
    let mut run = Run::default();
    for (number, step) in steps.iter().enumerate() {
        let heading = format!("[{:2}/{}] {:12}", number + 1, steps.len(), step.name);
        run.step(workspace, step, &heading)?;
    }
    run.close(workspace)?;
    if let Some(page) = &asked.times {
        times::keep(page, &run.times)?;
    }
    if run.failures.is_empty() {
        return Ok(Outcome::default());
    }
    std::process::exit(1) // all has been said; the closing line stays the last
}

/// What the steps have come to so far.
#[derive(Default)]
struct Run {
    sums: [Tally; 3],
    /// Name and seconds of each step.
    times: Vec<(&'static str, f64)>,
    /// Name and first line of each failure.
    failures: Vec<(&'static str, String)>,
}

impl Run {
    fn step(&mut self, workspace: &Workspace, step: &Step, heading: &str) -> Result<()> {
        print!("{heading} {} ..", step.what);
        std::io::stdout().flush()?;
        let log = Log::file(log_path(workspace, step.name)?)?;
        let start = Instant::now();
        let ended = match step.action {
            Action::Call(run) => run(workspace, &log),
            Action::Suite => conformance::step(workspace, &log, step.name),
        };
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(error) => Outcome::failed(format!("{error:#}")),
        };
        let seconds = start.elapsed().as_secs_f64();
        println!(" {}", ending(&outcome, seconds));
        if let Some(failure) = &outcome.failure {
            println!("{}\n{heading} failed: {failure}", log.tail(TAIL_LINES));
            let first = failure.lines().next().unwrap_or_default();
            self.failures.push((step.name, first.to_string()));
        }
        self.times.push((step.name, seconds));
        self.sums[step.counts as usize] += outcome.tally;
        Ok(())
    }

    /// Names what failed, and says what was counted and what each step took.
    fn close(&self, workspace: &Workspace) -> Result<()> {
        println!();
        for (name, failure) in &self.failures {
            println!("{name} failed: {failure}\n    repeat it with: cargo xtask test {name}");
            println!("    its log: {}", log_path(workspace, name)?.display());
        }
        if self.times.len() > 1 {
            print!("{}", times::table(&self.times));
        }
        let kinds = ["our tests", "checks", "suites of others"].iter();
        let counted = kinds.zip(&self.sums).filter(|(_, sum)| sum.total() > 0);
        let counted: Vec<String> = counted
            .map(|(what, sum)| format!("{what}: {sum}"))
            .collect();
        println!("{}", counted.join("; "));
        Ok(())
    }
}

fn log_path(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    Ok(workspace.scratch("logs")?.join(format!("{name}.log")))
}

pub(crate) use hook::install as hook;

/// `cargo xtask fix`: the only command that edits files.
pub(crate) fn fix(workspace: &Workspace) -> Result<Outcome> {
    let log = Log::terminal();
    let mut clippy = cargo_command();
    clippy.args([
        "clippy",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
        "--workspace",
    ]);
    log.run(clippy.arg("--all-targets").current_dir(&workspace.root))?;
    wrap_comments::all(workspace)?;
    log.run(
        cargo_command()
            .args(["fmt", "--all"])
            .current_dir(&workspace.root),
    )?;
    tidy::shrink_lists(workspace)?;
    Ok(Outcome::passed())
}

impl Asked {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut asked = Self {
            tier: Usual,
            lists: false,
            times: None,
            names: Vec::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => asked.tier = Quick,
                "--all" => asked.tier = Slow,
                "--list" => (asked.lists, asked.tier) = (true, Slow),
                "--times" => asked.times = Some(words.next().context("--times PAGE")?.into()),
                name if STEPS.iter().any(|step| step.name == name) => {
                    asked.names.push(name.to_string());
                }
                name => {
                    bail!("there is no step `{name}`; `cargo xtask test --list` lists them")
                }
            }
        }
        Ok(asked)
    }

    fn steps(&self) -> Vec<&'static Step> {
        let wanted = |step: &&Step| match self.names.is_empty() {
            true => step.tier <= self.tier,
            false => self.names.iter().any(|name| *name == step.name),
        };
        STEPS.iter().filter(wanted).collect()
    }
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

    fn chosen(line: &str) -> Result<Vec<&'static str>> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let steps = Asked::parse(&words)?.steps();
        Ok(steps.iter().map(|step| step.name).collect())
    }

    // A misspelt step must not end as "nothing failed".
    #[test]
    fn an_unknown_step_is_refused() {
        assert!(chosen("tydi").is_err());
        assert!(chosen("tidy --times").is_err());
        assert_eq!(chosen("--all tidy").unwrap(), ["tidy"]);
    }

    // Each tier holds those before it, and two steps never share a name.
    #[test]
    fn the_list_is_sound() {
        let (quick, usual) = (chosen("--quick").unwrap(), chosen("").unwrap());
        let all = chosen("--all").unwrap();
        assert!(quick.len() < usual.len() && usual.len() < all.len());
        assert!(quick.iter().all(|name| usual.contains(name)));
        for (number, name) in all.iter().enumerate() {
            assert!(!all[..number].contains(name), "{name} twice");
        }
    }
}
