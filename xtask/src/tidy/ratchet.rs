//! Lists of places that break a rule today; a list may only become shorter.
//!
//! What breaks the rule and is not listed is a violation, and so is a line that is no longer
//! needed: `cargo xtask fix` takes those out. Each entry has a line of its own in its file.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;

/// What a rule found, by the name under which an exception is listed.
pub(super) type Found = BTreeMap<String, Violation>;

/// The violations that `listed` (which stands in `file`) does not excuse, and its idle lines.
pub(super) fn compare(
    rule: &'static str,
    file: &str,
    listed: &BTreeSet<String>,
    found: Found,
) -> Vec<Violation> {
    let idle = listed.iter().filter(|entry| !found.contains_key(*entry));
    let mut violations: Vec<Violation> = idle
        .map(|entry| Violation {
            path: file.into(),
            line: 0,
            rule,
            message: format!("\"{entry}\" {IDLE}"),
        })
        .collect();
    for (entry, mut violation) in found {
        if !listed.contains(&entry) {
            violation.message += &format!(" (\"{entry}\")");
            violations.push(violation);
        }
    }
    violations
}

/// `text` without the lines that `violations` call idle.
pub(super) fn without_idle(text: &str, violations: &[Violation]) -> String {
    let idle: BTreeSet<String> = violations
        .iter()
        .filter_map(|violation| violation.message.strip_suffix(IDLE))
        .map(|entry| format!("{},", entry.trim()))
        .collect();
    let kept = text.lines().filter(|line| !idle.contains(line.trim()));
    kept.flat_map(|line| [line, "\n"]).collect()
}

const IDLE: &str = "is listed and no longer needed: `cargo xtask fix` takes it out";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_only_shrink() {
        let breach = |line| Violation {
            path: "a.rs".into(),
            line,
            rule: "modules",
            message: "breach".into(),
        };
        let found = Found::from([("old".into(), breach(1)), ("new".into(), breach(2))]);
        let listed = BTreeSet::from(["old".to_string(), "gone".to_string()]);
        let violations = compare("modules", "list.toml", &listed, found);
        let places: Vec<_> = violations
            .iter()
            .map(|v| (v.path.as_str(), v.line))
            .collect();
        assert_eq!(places, [("list.toml", 0), ("a.rs", 2)]);
        let text = "arrows = [\n    \"gone\",\n    \"old\",\n]\n";
        let shorter = without_idle(text, &violations);
        assert_eq!(shorter, "arrows = [\n    \"old\",\n]\n");
    }
}
