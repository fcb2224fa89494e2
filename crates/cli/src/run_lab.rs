//! Runs the commands of the program `curtail-lab`: replaces this process by it, with the same
//! arguments.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Error, anyhow};

/// The commands, and what `curtail --help` says of them.
const COMMANDS: [(&str, &str); 4] = [
    (
        "bench",
        "Generate load on a server and measure rate and latency (curtail-lab)",
    ),
    (
        "soak",
        "Send load to a running server, and check every value that it returns (curtail-lab)",
    ),
    (
        "check",
        "Check every reachable state of a model of a small cluster or cache tier (curtail-lab)",
    ),
    (
        "simulate",
        "Simulate dispatch policies and clusters, and draw the papers' figures (curtail-lab)",
    ),
];

/// `grammar` with those commands.
pub(crate) fn listed(grammar: clap::Command) -> clap::Command {
    let commands = COMMANDS.map(|(name, about)| clap::Command::new(name).about(about));
    grammar.subcommands(commands)
}

/// The arguments for `curtail-lab`, if the command is one of its own. `words` begins with the
/// program's name.
pub(crate) fn arguments(words: &[OsString]) -> Option<Vec<OsString>> {
    let is_ours = |word: &OsString| COMMANDS.iter().any(|(name, _)| word == name);
    match words {
        [_, command, ..] if is_ours(command) => Some(words[1..].to_vec()),
        [_, help, command, ..] if help == "help" && is_ours(command) => {
            Some([&words[2..], &["--help".into()]].concat())
        }
        _ => None,
    }
}

/// Runs it in this program's place: the one beside this program, or else the first in the path.
/// Comes back only to say why that failed.
pub(crate) fn run(arguments: Vec<OsString>) -> Error {
    let beside = env::current_exe().map(|own| own.with_file_name(PROGRAM));
    let beside = beside.unwrap_or_default();
    let program = match beside.is_file() {
        true => beside.clone(),
        false => PathBuf::from(PROGRAM),
    };
    let error = Command::new(&program)
        .arg(concat!("--run-by=", env!("CARGO_PKG_VERSION")))
        .args(arguments)
        .exec();
    match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "this command needs the program {PROGRAM}, which is neither at {} nor in PATH; \
             `cargo build --release -p {PROGRAM}` builds it",
            beside.display()
        ),
        _ => anyhow!("running {}: {error}", program.display()),
    }
}

const PROGRAM: &str = "curtail-lab";

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let arguments = arguments(&words)?;
        Some(arguments.join(" ".as_ref()).into_string().unwrap())
    }

    /// Goal: every argument reaches the other program as it stands, help is asked of it, and
    /// nothing else goes there.
    #[test]
    fn only_the_instruments_commands_go_to_the_other_program() {
        let same = asked("curtail bench compare --only x -- y").unwrap();
        assert_eq!(same, "bench compare --only x -- y");
        assert_eq!(
            asked("curtail help bench sweep").unwrap(),
            "bench sweep --help"
        );
        assert_eq!(asked("curtail check --help").unwrap(), "check --help");
        for line in [
            "curtail",
            "curtail serve bench",
            "curtail help",
            "curtail help serve",
        ] {
            assert_eq!(asked(line), None, "{line}");
        }
    }
}
