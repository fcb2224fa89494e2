//! Clients of other languages: each does the same against memcached and against our server, and has
//! to tell the same.
//!
//! In `xtask/conformance/LANGUAGE/` stands a small program of ours for each language. It goes
//! through what its client libraries offer and writes a line for each thing it did, without what
//! may differ: processes, times, versions. The libraries are fetched into the build's folder from
//! where that language gets them; those for Perl and PHP are Debian packages. A language that the
//! machine does not have is named as skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::clients;
use crate::check_result::{Outcome, Tally};
use crate::process::{self, Log};
use crate::required_packages::{self, Tool};
use crate::server::Server;
use crate::workspace::Workspace;

/// A language, and what has to be there for it.
struct Language {
    name: &'static str,
    programs: &'static [&'static str],
    /// The command that runs its program, but for the port.
    prepare: fn(&Workspace, &Log, &Path) -> Result<Command>,
}

const LANGUAGES: &[Language] = &[
    Language {
        name: "java",
        programs: &["java", "javac", "mvn"],
        prepare: java,
    },
    Language {
        name: "go",
        programs: &["go"],
        prepare: go,
    },
    Language {
        name: "node",
        programs: &["node", "npm"],
        prepare: node,
    },
    Language {
        name: "perl",
        programs: &["perl"],
        prepare: perl,
    },
    Language {
        name: "php",
        programs: &["php"],
        prepare: php,
    },
    Language {
        name: "python",
        programs: &["python3"],
        prepare: python,
    },
];

/// Without the thread that moves items between its queues in its own time: `stats cachedump` lists
/// only one of them, so what it lists would depend on that.
const MEMCACHED: [&str; 3] = ["memcached", "-o", "no_lru_maintainer"];

pub(super) fn run(workspace: &Workspace, log: &Log, server: &[String]) -> Result<Outcome> {
    let memcached = Tool::of("memcached", "memcached");
    required_packages::ensure(log, &[memcached])?;
    let mut tally = Tally::default();
    let mut skipped = Vec::new();
    let mut failed = Vec::new();
    for language in LANGUAGES {
        let missing = language.programs.iter().find(|name| !process::exists(name));
        if let Some(missing) = missing {
            tally.skipped += 1;
            skipped.push(format!("{} (no {missing})", language.name));
            continue;
        }
        let folder = workspace.root.join("xtask/conformance").join(language.name);
        let theirs = MEMCACHED.map(str::to_string);
        let expected = transcript(workspace, log, (language, &folder), &theirs)?;
        let told = transcript(workspace, log, (language, &folder), server)?;
        let found = compare(&expected, &told);
        for line in &found.differences {
            log.line(&format!("{}: {line}", language.name))?;
        }
        if found.tally.failed > 0 {
            failed.push(language.name);
        }
        tally += found.tally;
    }
    let failure = (!failed.is_empty()).then(|| {
        let failed = failed.join(", ");
        format!("clients of {failed} see another server than memcached; the log says where")
    });
    let mut outcome = Outcome::counted(tally, failure);
    if !skipped.is_empty() {
        outcome.remark = format!("skipped: {}", skipped.join(", "));
    }
    Ok(outcome)
}

/// What the program of a language tells of a server that was just started.
fn transcript(
    workspace: &Workspace,
    log: &Log,
    (language, folder): (&Language, &Path),
    server: &[String],
) -> Result<Vec<String>> {
    let mut command = (language.prepare)(workspace, log, folder)
        .with_context(|| format!("getting the clients of {}", language.name))?;
    let server = Server::start(server, &[])?;
    let finished = log.finish(command.arg(server.port.to_string()))?;
    server.stop()?;
    if !finished.status.success() {
        bail!("the program of {} ended badly", language.name);
    }
    let own = |line: &&str| PREFIXES.iter().any(|name| line.starts_with(name));
    let lines = finished.output.lines().filter(own);
    Ok(lines.map(str::to_string).collect())
}

/// How the lines of the transcripts begin; other lines are what libraries say by themselves.
const PREFIXES: [&str; 8] = [
    "spymemcached ",
    "xmemcached ",
    "gomemcache ",
    "memcached.js ",
    "Cache::Memcached",
    "stats: ",
    "php ",
    "pymemcache ",
];

struct Comparison {
    tally: Tally,
    differences: Vec<String>,
}

/// Every line is a case; a line that one of the two lacks is a failure, and so is a program that
/// told nothing.
fn compare(expected: &[String], told: &[String]) -> Comparison {
    let mut tally = Tally::default();
    let mut differences = Vec::new();
    for number in 0..expected.len().max(told.len()).max(1) {
        let line = |lines: &[String]| lines.get(number).cloned().unwrap_or_default();
        let (theirs, ours) = (line(expected), line(told));
        match theirs == ours && !theirs.is_empty() {
            true => tally += Tally::ONE_PASSED,
            false => {
                tally += Tally::ONE_FAILED;
                differences.push(format!("memcached: {theirs}\n    ours: {ours}"));
            }
        }
    }
    Comparison { tally, differences }
}

fn java(workspace: &Workspace, log: &Log, folder: &Path) -> Result<Command> {
    let target = copied(workspace, folder, "java", &["pom.xml", "Clients.java"])?;
    let libraries = target.join("lib");
    if !libraries.exists() {
        let mut get = Command::new("mvn");
        get.args(["-q", "-B", "dependency:copy-dependencies"]);
        get.arg("-DoutputDirectory=lib.new");
        get.arg(format!(
            "-Dmaven.repo.local={}",
            target.join("repository").display()
        ));
        log.run(get.current_dir(&target))?;
        fs::rename(target.join("lib.new"), &libraries)?;
    }
    let mut compile = Command::new("javac");
    compile.args(["-cp", "lib/*", "-d", "classes", "Clients.java"]);
    log.run(compile.current_dir(&target))?;
    let mut command = Command::new("java");
    command.args(["-cp", "lib/*:classes", "Clients"]);
    command.current_dir(target);
    Ok(command)
}

fn go(workspace: &Workspace, log: &Log, folder: &Path) -> Result<Command> {
    let target = copied(workspace, folder, "go", &["main.go"])?;
    let module = format!("module clients\n\ngo 1.18\n\nrequire {GOMEMCACHE}\n");
    fs::write(target.join("go.mod"), module)?;
    let mut build = Command::new("go");
    build.args(["build", "-mod=mod", "-o", "clients"]);
    build.env("GOFLAGS", "-modcacherw");
    build.env("GOMODCACHE", target.join("modules"));
    log.run(build.current_dir(&target))?;
    Ok(Command::new(target.join("clients")))
}

fn node(workspace: &Workspace, log: &Log, folder: &Path) -> Result<Command> {
    let target = copied(workspace, folder, "node", &["clients.js"])?;
    if !target.join("node_modules").exists() {
        let mut get = Command::new("npm");
        get.args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-save",
        ]);
        get.arg("--cache")
            .arg(target.join("cache"))
            .arg(MEMCACHED_JS);
        log.run(get.current_dir(&target))?;
    }
    let mut command = Command::new("node");
    command.arg("clients.js").current_dir(target);
    Ok(command)
}

fn perl(_: &Workspace, log: &Log, folder: &Path) -> Result<Command> {
    let has = |module: &str| {
        let found = Command::new("perl")
            .args([&format!("-M{module}"), "-e", "1"])
            .output();
        found.is_ok_and(|found| found.status.success())
    };
    if !has("Cache::Memcached") || !has("Cache::Memcached::Fast") {
        required_packages::install(
            log,
            &["libcache-memcached-perl", "libcache-memcached-fast-perl"],
        )?;
    }
    let mut command = Command::new("perl");
    command.arg(folder.join("clients.pl"));
    Ok(command)
}

fn php(_: &Workspace, log: &Log, folder: &Path) -> Result<Command> {
    let found = Command::new("php").args(["-m"]).output()?;
    if !String::from_utf8_lossy(&found.stdout).contains("memcached") {
        required_packages::install(log, &["php-memcached"])?;
    }
    let mut command = Command::new("php");
    command.arg(folder.join("clients.php"));
    Ok(command)
}

fn python(workspace: &Workspace, log: &Log, folder: &Path) -> Result<Command> {
    let mut command = Command::new(clients::python(workspace, log)?);
    command.arg("-B").arg(folder.join("clients.py"));
    Ok(command)
}

/// A folder of the build's with the program in it.
fn copied(workspace: &Workspace, from: &Path, name: &str, files: &[&str]) -> Result<PathBuf> {
    let target = workspace.scratch(&format!("clients-{name}"))?;
    for file in files {
        fs::copy(from.join(file), target.join(file))?;
    }
    Ok(target)
}

const GOMEMCACHE: &str = "github.com/bradfitz/gomemcache v0.0.0-20230905024940-24af94b03874";
const MEMCACHED_JS: &str = "memcached@2.2.2";

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_string).collect()
    }

    // A line that differs, one that is missing, and a program that tells nothing are failures.
    #[test]
    fn transcripts_are_compared_line_by_line() {
        let of = |expected, told| compare(&lines(expected), &lines(told)).tally;
        let tally = |passed, failed| Tally {
            passed,
            failed,
            skipped: 0,
        };
        assert_eq!(of("a\nb", "a\nb"), tally(2, 0));
        assert_eq!(of("a\nb", "a\nc"), tally(1, 1));
        assert_eq!(of("a\nb", "a"), tally(1, 1));
        assert_eq!(of("a", "a\nb"), tally(1, 1));
        assert_eq!(of("", ""), tally(0, 1));
    }
}
