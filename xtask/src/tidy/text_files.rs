//! Rules about every text file.

use std::fs;

use anyhow::Result;

use super::Violation;
use crate::workspace::Workspace;

/// A file of the repository, read.
pub(super) struct TextFile {
    /// Relative to the root, with forward slashes.
    pub(super) path: String,
    pub(super) text: String,
}

impl TextFile {
    pub(super) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        Self { path, text }
    }
}

/// Every file that is text.
pub(super) fn read(workspace: &Workspace) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    for path in workspace.files()? {
        let bytes = fs::read(workspace.root.join(&path))?;
        if let Ok(text) = String::from_utf8(bytes)
            && !text.contains('\0')
        {
            files.push(TextFile::new(path, text));
        }
    }
    Ok(files)
}

pub(super) fn check(files: &[TextFile]) -> Vec<Violation> {
    files.iter().flat_map(forbidden_words).collect()
}

/// A path of somebody's machine or the host of a package registry ties the tree to one place.
fn forbidden_words(file: &TextFile) -> Vec<Violation> {
    if file.path == "Cargo.lock" || file.path == "fuzz/Cargo.lock" {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for word in FORBIDDEN_WORDS.iter().map(|halves| halves.concat()) {
            if line.contains(&word) {
                let message = format!("`{word}` is a machine's path or a registry's host");
                violations.push(violation(&file.path, number + 1, "forbidden", message));
            }
        }
    }
    violations
}

pub(super) fn violation(path: &str, line: usize, rule: &'static str, message: String) -> Violation {
    Violation {
        path: path.into(),
        line,
        rule,
        message,
    }
}

/// Written in halves so that this list is not its own first violation.
const FORBIDDEN_WORDS: &[[&str; 2]] = &[
    ["/wo", "rk/"],
    ["/fa", "rm/"],
    ["/ro", "ot/"],
    ["/tmp/st", "udio"],
    ["/tmp/pl", "an"],
    ["crates.io", "/api"],
    ["deb.deb", "ian.org"],
    ["registry.np", "mjs"],
    ["pypi", ".org"],
    ["proxy.gol", "ang"],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_machine_are_found() {
        let planted = format!("# Title\nsee {}\n", ["/ro", "ot/notes"].concat());
        let found = forbidden_words(&TextFile::new("docs/a.md", &planted));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert!(forbidden_words(&TextFile::new("Cargo.lock", &planted)).is_empty());
        assert!(forbidden_words(&TextFile::new("docs/a.md", "# Title\nhomework\n")).is_empty());
    }
}
