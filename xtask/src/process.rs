//! Runs other programs: output into a log, with a time limit, and no process left behind.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Where the output of a step's programs goes: a file of its own, or the terminal.
pub(crate) struct Log {
    path: Option<PathBuf>,
}

/// What a program left: how it ended and what it wrote (nothing if it wrote to the terminal).
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
}

impl Log {
    /// Output goes where ours goes.
    pub(crate) fn terminal() -> Self {
        Log { path: None }
    }

    /// Output goes to a fresh file.
    pub(crate) fn file(path: PathBuf) -> Result<Self> {
        File::create(&path).with_context(|| format!("making the log {}", path.display()))?;
        Ok(Log { path: Some(path) })
    }

    /// Runs a program that has to succeed.
    pub(crate) fn run(&self, command: &mut Command) -> Result<String> {
        let finished = self.finish(command)?;
        if !finished.status.success() {
            bail!("`{}` ended with {}", spelled(command), finished.status);
        }
        Ok(finished.output)
    }

    /// Runs a program to its end, whatever that is, within `LIMIT`.
    pub(crate) fn finish(&self, command: &mut Command) -> Result<Finished> {
        self.line(&format!("$ {}", spelled(command)))?;
        command.stdin(Stdio::null());
        let Some(path) = &self.path else {
            let status = command.status().with_context(|| spelled(command))?;
            return Ok(Finished {
                status,
                output: String::new(),
            });
        };
        let start = fs::metadata(path)?.len();
        let file = OpenOptions::new().append(true).open(path)?;
        command.stdout(file.try_clone()?).stderr(file);
        let mut child = command.spawn().with_context(|| spelled(command))?;
        let ended = wait(&mut child);
        let whole = fs::read(path)?;
        let output = whole.get(start as usize..).unwrap_or_default();
        let status = ended.with_context(|| {
            let unended = unended_tests(&String::from_utf8_lossy(output));
            format!("{}{unended}", spelled(command))
        })?;
        Ok(Finished {
            status,
            output: String::from_utf8_lossy(output).into_owned(),
        })
    }

    /// Writes a line of our own.
    pub(crate) fn line(&self, line: &str) -> Result<()> {
        use std::io::Write as _;
        match &self.path {
            None => println!("{line}"),
            Some(path) => writeln!(OpenOptions::new().append(true).open(path)?, "{line}")?,
        }
        Ok(())
    }

    /// The last lines, for a person who wants to know why.
    pub(crate) fn tail(&self, lines_max: usize) -> String {
        let Some(path) = &self.path else {
            return String::new();
        };
        let whole = fs::read(path).unwrap_or_default();
        let whole = String::from_utf8_lossy(&whole);
        let lines: Vec<&str> = whole.lines().collect();
        lines[lines.len().saturating_sub(lines_max)..].join("\n")
    }
}

/// Kills a program that we started when it goes out of scope.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| spelled(command))?;
        Ok(Running { child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True if a program of this name can be started.
pub(crate) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|folder| folder.join(program).is_file())
}

/// The command as a person would type it.
pub(crate) fn spelled(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn wait(child: &mut Child) -> Result<ExitStatus> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > LIMIT {
            for process in descendants(child.id()) {
                let _ = Command::new("kill")
                    .args(["-KILL", &process.to_string()])
                    .status();
            }
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "stopped after {} minutes without an end",
                LIMIT.as_secs() / 60
            );
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// The tests of a test program that began and have no result: those that hang, if it was stopped.
fn unended_tests(output: &str) -> String {
    output
        .lines()
        .filter_map(|line| {
            let (name, _) = line
                .strip_prefix("test ")?
                .split_once(" has been running for over ")?;
            let has_result = output.contains(&format!("test {name} ... "));
            (!has_result).then(|| format!(", in {name}"))
        })
        .collect()
}

/// The processes that a process started, and those that they started.
fn descendants(process: u32) -> Vec<u32> {
    let list = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(list).unwrap_or_default();
    let children: Vec<u32> = children
        .split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect();
    let deeper = children
        .iter()
        .flat_map(|child| descendants(*child))
        .collect::<Vec<_>>();
    children.into_iter().chain(deeper).collect()
}

/// No program of ours takes this long unless it hangs.
const LIMIT: Duration = Duration::from_secs(30 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    // The log of two programs keeps both, and each run returns only its own part.
    #[test]
    fn each_run_returns_its_own_output() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::file(folder.path().join("log")).unwrap();
        let first = log.run(Command::new("echo").arg("one")).unwrap();
        let second = log.run(Command::new("echo").arg("two")).unwrap();
        assert_eq!(first, "one\n");
        assert_eq!(second, "two\n");
        assert_eq!(log.tail(1), "two");
        assert!(log.run(&mut Command::new("false")).is_err());
    }

    // A test program that was stopped names the tests that hang, not those that were only slow.
    #[test]
    fn a_test_that_hangs_is_named() {
        let output = "running 3 tests\ntest a::quick ... ok\n\
            test a::slow has been running for over 60 seconds\n\
            test a::stuck has been running for over 60 seconds\ntest a::slow ... ok\n";
        assert_eq!(unended_tests(output), ", in a::stuck");
    }

    // The process tree is found through its root, so that a hanging test's children go too.
    #[test]
    fn descendants_include_grandchildren() {
        let mut child = Command::new("sh")
            .stderr(Stdio::null())
            .args(["-c", "sh -c 'sleep 5; true'; true"])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let found = descendants(child.id());
        assert_eq!(found.len(), 2, "a shell and its sleep");
        for process in found {
            Command::new("kill")
                .args(["-KILL", &process.to_string()])
                .status()
                .unwrap();
        }
        child.wait().unwrap();
    }
}
