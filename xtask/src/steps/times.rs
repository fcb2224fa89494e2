//! The duration of each step: printed at the end of a run, and written between two marks of a page.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Names and seconds, one step a line, and their sum.
pub(super) fn table(times: &[(&str, f64)]) -> String {
    let sum: f64 = times.iter().map(|(_, seconds)| seconds).sum();
    let last = ("all", sum);
    let lines = times.iter().chain([&last]);
    lines
        .map(|(name, seconds)| format!("{name:18} {seconds:7.1} s\n"))
        .collect()
}

/// Puts the table in place of what stands between the marks of `page`.
pub(super) fn keep(page: &Path, times: &[(&str, f64)]) -> Result<()> {
    let old = fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let output = Command::new("rustc").arg("--version").output()?;
    let compiler = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let text = format!(
        "{FIRST}\n```text\n{processors} processors, {compiler}\n{}```\n{LAST}",
        table(times)
    );
    fs::write(page, between(&old, &text)?).with_context(|| page.display().to_string())
}

fn between(old: &str, text: &str) -> Result<String> {
    let (before, rest) = old
        .split_once(FIRST)
        .with_context(|| format!("no line {FIRST}"))?;
    let (inside, after) = rest
        .split_once(LAST)
        .with_context(|| format!("no line {LAST}"))?;
    ensure!(!inside.contains(FIRST), "the mark {FIRST} stands twice");
    Ok(format!("{before}{text}{after}"))
}

const FIRST: &str = "<!-- times -->";
const LAST: &str = "<!-- end of times -->";

#[cfg(test)]
mod tests {
    use super::*;

    // The page keeps everything outside the marks, and a page without them is refused.
    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("above\n{FIRST}\nold\n{LAST}\nbelow\n");
        let new = between(&page, "new").unwrap();
        assert_eq!(new, "above\nnew\nbelow\n");
        assert!(between("above\n", "new").is_err());
        let table = table(&[("tidy", 1.25), ("unit", 60.0)]);
        assert!(table.ends_with("all                   61.2 s\n"), "{table}");
    }
}
