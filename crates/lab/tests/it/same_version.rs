//! `curtail` runs a `curtail-lab` of its own version, whose messages name `curtail`.

use std::process::{Command, Output};

fn run_by(version: &str, words: &[&str]) -> Output {
    let mut command = Command::new(crate::BINARY);
    command
        .arg(format!("--run-by={version}"))
        .args(words)
        .output()
        .unwrap()
}

#[test]
fn a_curtail_of_another_version_is_refused() {
    let output = run_by("0.0.1", &["check", "list"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("which started it, has 0.0.1; install both programs"),
        "{errors}"
    );
    let own = env!("CARGO_PKG_VERSION");
    assert!(run_by(own, &["check", "list"]).status.success());
}

#[test]
fn help_names_the_command_that_was_typed() {
    let help = run_by(env!("CARGO_PKG_VERSION"), &["check", "--help"]).stdout;
    let help = String::from_utf8_lossy(&help);
    assert!(help.contains("Usage: curtail check"), "{help}");
}
