//! A command that Ctrl-C interrupts keeps the results it has.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a shell calls a process that was interrupted.
const INTERRUPTED: Option<i32> = Some(130);

fn start(words: &[&str]) -> Child {
    Command::new(crate::BINARY)
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until the process takes signals itself and has worked for a moment, and interrupts it.
fn interrupt(child: &Child) {
    const SIGINT: u64 = 1 << 1;
    let path = format!("/proc/{}/status", child.id());
    let deadline = Instant::now() + Duration::from_secs(60);
    let takes_signals = || {
        let status = fs::read_to_string(&path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        blocked.is_some_and(|mask| mask & SIGINT != 0)
    };
    while !takes_signals() {
        assert!(Instant::now() < deadline, "it never took signals");
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_secs(1));
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
}

fn interrupted(words: &[&str]) -> (Output, String) {
    let child = start(words);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), INTERRUPTED, "{errors}");
    assert!(errors.contains("PARTIAL"), "{errors}");
    (output, errors)
}

/// Goal: the points that were simulated are printed and written, in files that say so. Method: some
/// thousand points, of which a second's worth is done.
#[test]
fn a_simulation_that_is_interrupted_keeps_its_points() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let loads: Vec<String> = (1..90).map(|load| format!("0.{load:02}")).collect();
    let writes: Vec<String> = (1..90).map(|percent| percent.to_string()).collect();
    let (loads, writes) = (loads.join(","), writes.join(","));
    let words = [
        "simulate",
        "c4-curve",
        "--requests",
        "20k",
        "--threads",
        "1",
    ];
    let lists = ["--load", &loads, "--writes", &writes, "--format", "csv"];
    let out = ["--out", folder.to_str().unwrap()];
    let words: Vec<&str> = words.iter().chain(&lists).chain(&out).copied().collect();
    let (output, _) = interrupted(&words);
    let csv = fs::read_to_string(folder.join("c4-curve.partial.csv")).unwrap();
    assert_eq!(csv, String::from_utf8_lossy(&output.stdout));
    assert!(csv.lines().count() > 1, "{csv}");
    let page = fs::read_to_string(folder.join("c4-curve.partial.html")).unwrap();
    assert!(page.contains("PARTIAL"));
    assert!(!folder.join("c4-curve.csv").exists());
}

/// Goal: the model that is under way says how far it came, and claims no more. Method: a model that
/// takes minutes; of all models, some are left whenever the signal comes.
#[test]
fn a_check_that_is_interrupted_says_how_far_it_came() {
    let (output, _) = interrupted(&["check", "slice-move-crash", "--threads", "1"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("not finished"), "{text}");
    let (_, errors) = interrupted(&["check", "all", "--deep", "--threads", "1"]);
    assert!(errors.contains("more models were not searched"), "{errors}");
}
