//! Rules that read one Rust file at a time.

use super::Violation;
use super::text_files::TextFile;

/// A Rust file, with what the rules ask of it worked out once.
pub(super) struct Source<'a> {
    pub(super) path: &'a str,
    /// The crate's folder name: `table`, `xtask`.
    home: &'a str,
    lines: Vec<&'a str>,
    /// First line (from zero) of the file's test module; the number of lines if it has none.
    tests_from: usize,
    /// The whole file is a test, a bench or an example.
    pub(super) all_tests: bool,
}

pub(super) fn check(file: &TextFile) -> Vec<Violation> {
    let source = Source::new(file);
    let mut violations = Vec::new();
    for rule in RULES {
        rule(&source, &mut |line, name, message| {
            let path = source.path.to_string();
            violations.push(Violation {
                path,
                line,
                rule: name,
                message,
            });
        });
    }
    violations
}

type Report<'r> = dyn FnMut(usize, &'static str, String) + 'r;

const RULES: &[fn(&Source<'_>, &mut Report<'_>)] = &[
    header,
    length,
    columns,
    names,
    imports,
    pure_crates,
    unsafe_stays_home,
    atomics_from_sync,
    orderings_name_partners,
    errors_may_grow,
    leftovers,
];

fn header(source: &Source<'_>, report: &mut Report<'_>) {
    if !source
        .lines
        .first()
        .is_some_and(|line| line.starts_with("//!"))
    {
        report(
            1,
            "header",
            "a file opens with `//!` and a sentence saying what it is".into(),
        );
    }
}

fn length(source: &Source<'_>, report: &mut Report<'_>) {
    if source.all_tests {
        return;
    }
    if source.tests_from > LINES_MAX {
        let message = format!(
            "{} lines; {LINES_MAX} at most without tests",
            source.tests_from
        );
        report(LINES_MAX + 1, "length", message);
    }
    let tests = source.lines.len() - source.tests_from;
    if tests > TEST_LINES_MAX {
        let message =
            format!("{tests} lines of tests; past {TEST_LINES_MAX} they move to tests.rs");
        report(source.tests_from + 1, "length", message);
    }
}

/// rustfmt leaves comments and strings alone; this does not, but for addresses.
fn columns(source: &Source<'_>, report: &mut Report<'_>) {
    for (number, line) in source.lines.iter().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !line.contains("://") {
            let message = format!("{columns} columns; {COLUMNS_MAX} at most");
            report(number + 1, "columns", message);
        }
    }
}

fn names(source: &Source<'_>, report: &mut Report<'_>) {
    let path = source.path.trim_end_matches(".rs");
    for part in path.split('/').filter(|part| BANNED_NAMES.contains(part)) {
        report(
            0,
            "names",
            format!("`{part}` says nothing about what is inside"),
        );
    }
    for (number, line) in source.code() {
        let name = line
            .trim()
            .trim_start_matches("pub ")
            .trim_start_matches("pub(crate) ");
        let name = name
            .strip_prefix("mod ")
            .map(|rest| rest.trim_end_matches([';', '{', ' ']));
        if let Some(name) = name.filter(|name| BANNED_NAMES.contains(name)) {
            report(
                number + 1,
                "names",
                format!("`{name}` says nothing about what is inside"),
            );
        }
    }
}

/// Imports stand in three blocks: std, crates, ours. A blank line is what separates blocks.
fn imports(source: &Source<'_>, report: &mut Report<'_>) {
    let mut block: Option<usize> = None;
    for (number, line) in source.lines.iter().enumerate() {
        let Some(path) = import(line) else {
            if line.trim().is_empty() || line.starts_with("#[") {
                block = None;
            }
            continue;
        };
        let rank = rank(path);
        if block.is_some_and(|earlier| earlier != rank) {
            report(
                number + 1,
                "imports",
                "blocks are std, crates, ours: a blank line between".into(),
            );
        }
        block = Some(rank);
    }
}

fn import(line: &str) -> Option<&str> {
    let line = line
        .trim_start_matches("pub(crate) ")
        .trim_start_matches("pub ");
    line.strip_prefix("use ")
}

fn rank(path: &str) -> usize {
    let first = path.split([':', ';', ' ', '{']).next().unwrap_or_default();
    match first {
        "std" | "core" | "alloc" => 0,
        "crate" | "super" | "self" => 2,
        _ => 1,
    }
}

/// A clock, a socket or a thread must not compile in a pure crate.
fn pure_crates(source: &Source<'_>, report: &mut Report<'_>) {
    if !PURE_CRATES.contains(&source.home) {
        return;
    }
    let is_root = source.path.ends_with("/src/lib.rs") && source.home != FLOATING_POINT;
    if is_root && !source.has_line("#![no_std]") {
        report(1, "pure", "a pure crate is `#![no_std]`".into());
    }
    for (number, line) in source.production() {
        if line.contains("extern crate std") {
            report(
                number + 1,
                "pure",
                "`extern crate std` brings the clock back".into(),
            );
        }
    }
}

fn unsafe_stays_home(source: &Source<'_>, report: &mut Report<'_>) {
    let allowed = UNSAFE_CRATES.contains(&source.home);
    let is_root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
    if is_root && !allowed && !source.has_line("#![forbid(unsafe_code)]") {
        report(1, "unsafe", "the crate has to forbid unsafe code".into());
    }
    for (number, line) in source.code() {
        if !allowed && has_word(&unquoted(line), "unsafe") {
            report(number + 1, "unsafe", format!("only {UNSAFE_CRATES:?} may"));
        }
        if allowed && unquoted(line).contains("pub unsafe fn") {
            report(
                number + 1,
                "unsafe",
                "no `unsafe fn` leaves its crate".into(),
            );
        }
    }
}

/// Loom can stand in for the atomics only where they come through one door.
fn atomics_from_sync(source: &Source<'_>, report: &mut Report<'_>) {
    let watched = ATOMIC_CRATES.contains(&source.home) && source.path.contains("/src/");
    if !watched || source.path.ends_with("/sync.rs") {
        return;
    }
    for (number, line) in source.production() {
        let direct = ["std::sync::atomic", "core::sync::atomic", "loom::sync"];
        if direct.iter().any(|path| line.contains(path)) {
            report(
                number + 1,
                "atomics",
                "atomics come from the crate's sync.rs".into(),
            );
        }
    }
}

/// An ordering above Relaxed says what it pairs with, on its line or shortly above.
fn orderings_name_partners(source: &Source<'_>, report: &mut Report<'_>) {
    if !ORDERED_CRATES.contains(&source.home) || !source.path.contains("/src/") {
        return;
    }
    for (number, line) in source.production() {
        let ordered = ["Acquire", "Release", "AcqRel", "SeqCst"];
        if import(line.trim()).is_some() || !ordered.iter().any(|word| has_word(line, word)) {
            continue;
        }
        let near = &source.lines[number.saturating_sub(PARTNER_LINES_MAX)..=number];
        if !near
            .iter()
            .any(|line| comment(line).to_lowercase().contains("pair"))
        {
            report(
                number + 1,
                "orderings",
                "say what this ordering pairs with".into(),
            );
        }
    }
}

/// An error that users match on must be able to gain a variant.
fn errors_may_grow(source: &Source<'_>, report: &mut Report<'_>) {
    for (number, line) in source.production() {
        let name = line.trim().strip_prefix("pub enum ").unwrap_or_default();
        let name = name.split([' ', '<', '{']).next().unwrap_or_default();
        let attributes = &source.lines[number.saturating_sub(4)..number];
        let open = attributes
            .iter()
            .any(|line| line.trim() == "#[non_exhaustive]");
        if name.ends_with("Error") && !open {
            report(
                number + 1,
                "errors",
                format!("`{name}` is to be `#[non_exhaustive]`"),
            );
        }
    }
}

fn leftovers(source: &Source<'_>, report: &mut Report<'_>) {
    for (number, line) in source.lines.iter().enumerate() {
        for word in ["todo!(", "unimplemented!(", "dbg!("] {
            if code(line).contains(word) && !code(line).contains('"') {
                report(
                    number + 1,
                    "leftovers",
                    format!("`{word}..)` is not for the repository"),
                );
            }
        }
        for word in ["TODO", "FIXME", "XXX"] {
            if has_word(comment(line), word) {
                report(
                    number + 1,
                    "leftovers",
                    format!("`{word}`: do it, or write an issue"),
                );
            }
        }
    }
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a TextFile) -> Self {
        let lines: Vec<&str> = file.text.lines().collect();
        let path = file.path.as_str();
        let parts: Vec<&str> = path.split('/').collect();
        let home = match parts.as_slice() {
            ["crates", home, ..] => home,
            [home, ..] => home,
            [] => "",
        };
        let name = parts.last().copied().unwrap_or_default();
        let in_test_folder = parts.iter().any(|part| TEST_FOLDERS.contains(part));
        let all_tests = in_test_folder || TEST_FILES.contains(&name);
        let tests_from = lines
            .windows(2)
            .position(|two| two[0].starts_with("#[cfg(") && is_test_module(two[0], two[1]))
            .unwrap_or(lines.len());
        Source {
            path,
            home,
            lines,
            tests_from,
            all_tests,
        }
    }

    fn is_test(&self, number: usize) -> bool {
        self.all_tests || number >= self.tests_from
    }

    fn has_line(&self, wanted: &str) -> bool {
        self.lines.contains(&wanted)
    }

    /// The types and traits that production code declares, each with its line; all of them, or only
    /// those that are `pub` or `pub(crate)`.
    pub(super) fn types(&self, shared: bool) -> impl Iterator<Item = (usize, &'a str)> {
        self.production().filter_map(move |(number, line)| {
            let line = line.trim_start();
            let public = line
                .strip_prefix("pub(crate) ")
                .or(line.strip_prefix("pub "));
            let item = match shared {
                true => public?,
                false => public.or(line.strip_prefix("pub(super) ")).unwrap_or(line),
            };
            let kinds = ["struct ", "enum ", "union ", "trait ", "type "];
            let name = kinds.iter().find_map(|kind| item.strip_prefix(kind))?;
            Some((number + 1, first_name(name)))
        })
    }

    /// The types whose inherent `impl` blocks production code holds, each with its line.
    pub(super) fn inherent_impls(&self) -> impl Iterator<Item = (usize, &'a str)> {
        self.production().filter_map(|(number, line)| {
            let rest = line.strip_prefix("impl")?;
            let name = match rest.strip_prefix('<') {
                Some(generics) => after_generics(generics)?,
                None => rest.strip_prefix(' ')?,
            };
            (!line.contains(" for ")).then(|| (number + 1, first_name(name)))
        })
    }

    /// Every line of production code, without its comment.
    pub(super) fn production(&self) -> impl Iterator<Item = (usize, &'a str)> {
        self.code().filter(|(number, _)| !self.is_test(*number))
    }

    /// Every line without its comment.
    fn code(&self) -> impl Iterator<Item = (usize, &'a str)> {
        self.lines.iter().map(|line| code(line)).enumerate()
    }
}

fn first_name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// What follows the generics of an `impl`, whose first `<` is already read.
fn after_generics(text: &str) -> Option<&str> {
    let mut depth = 1;
    let end = text.char_indices().find(|&(at, c)| {
        let arrow = text[..at].ends_with('-');
        depth += i32::from(c == '<') - i32::from(c == '>' && !arrow);
        depth == 0
    });
    Some(text[end?.0 + 1..].trim_start())
}

fn is_test_module(attribute: &str, item: &str) -> bool {
    attribute.contains("test")
        && item.trim_start_matches("pub(crate) ").starts_with("mod ")
        && item.ends_with('{')
}

/// The line up to its comment. A `//` inside a string counts as text: an odd number of quotes
/// stands before it.
fn code(line: &str) -> &str {
    let mut from = 0;
    while let Some(found) = line[from..].find("//") {
        let at = from + found;
        if line[..at].matches('"').count().is_multiple_of(2) {
            return &line[..at];
        }
        from = at + 2;
    }
    line
}

/// The line without what stands between quotes.
pub(super) fn unquoted(line: &str) -> String {
    line.replace("\\\"", "").split('"').step_by(2).collect()
}

fn comment(line: &str) -> &str {
    &line[code(line).len()..]
}

/// `word` stands in `text` with no letter, digit, underscore or quote beside it.
fn has_word(text: &str, word: &str) -> bool {
    let joined = |c: char| c.is_alphanumeric() || c == '_' || c == '"';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(joined) && !after.is_some_and(joined)
    })
}

/// Longest file, without its tests.
const LINES_MAX: usize = 800;
/// Longest test module at the foot of a file.
const TEST_LINES_MAX: usize = 200;
pub(crate) const COLUMNS_MAX: usize = 100;
/// How far above an ordering its partner may be named.
const PARTNER_LINES_MAX: usize = 10;

const BANNED_NAMES: &[&str] = &[
    "util", "utils", "common", "core", "helper", "helpers", "misc", "manager", "base",
];
pub(super) const PURE_CRATES: &[&str] = &[
    "types",
    "codec",
    "history",
    "workload",
    "dispatch",
    "ordered_queue",
    "hotkeys",
    "consistency",
];
/// The pure crate whose mathematics needs std.
const FLOATING_POINT: &str = "workload";
const UNSAFE_CRATES: &[&str] = &["memory", "table", "segments", "runtime"];
const ATOMIC_CRATES: &[&str] = &["memory", "table", "segments", "dispatch", "ordered_queue"];
const ORDERED_CRATES: &[&str] = &["table", "segments", "dispatch", "ordered_queue"];
const TEST_FOLDERS: &[&str] = &["tests", "benches", "examples", "fuzz", "fuzz_targets"];
const TEST_FILES: &[&str] = &["tests.rs", "loom.rs", "loom_tests.rs"];

#[cfg(test)]
mod tests;
