//! Rules about every text file, and about the documents at the root.

use std::fs;

use anyhow::Result;

use super::Violation;
use crate::workspace::{Member, Workspace};

/// A file of the repository, read.
pub(super) struct TextFile {
    /// Relative to the root, with forward slashes.
    pub(super) path: String,
    pub(super) text: String,
}

/// Every file that is text.
pub(super) fn read(workspace: &Workspace) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    for path in workspace.files()? {
        let bytes = fs::read(workspace.root.join(&path))?;
        if let Ok(text) = String::from_utf8(bytes)
            && !text.contains('\0')
        {
            files.push(TextFile { path, text });
        }
    }
    Ok(files)
}

pub(super) fn check(workspace: &Workspace, files: &[TextFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        violations.extend(forbidden_words(file));
        violations.extend(one_title(file));
    }
    let text_of = |path: &str| files.iter().find(|file| file.path == path);
    for path in DOCUMENTS {
        if text_of(path).is_none() {
            violations.push(violation(
                path,
                0,
                "documents",
                "this document is missing".into(),
            ));
        }
    }
    if let Some(architecture) = text_of("ARCHITECTURE.md") {
        violations.extend(names_every_crate(architecture, &workspace.members()));
    }
    violations
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

/// A document has one title, on its first line.
fn one_title(file: &TextFile) -> Option<Violation> {
    let wrong = file.path.ends_with(".md") && !file.text.starts_with("# ");
    wrong.then(|| {
        violation(
            &file.path,
            1,
            "title",
            "a document opens with its title".into(),
        )
    })
}

/// The map is no map if a house is missing.
fn names_every_crate(architecture: &TextFile, members: &[Member]) -> Vec<Violation> {
    let named = |member: &&Member| !architecture.text.contains(&format!("`{}`", member.short));
    let missing = members.iter().filter(named);
    missing
        .map(|member| {
            let message = format!("`{}` is not named", member.short);
            violation(&architecture.path, 0, "documents", message)
        })
        .collect()
}

fn violation(path: &str, line: usize, rule: &'static str, message: String) -> Violation {
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

const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "STYLE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "docs/decisions/README.md",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        let planted = format!("# Title\nsee {}\n", ["/ro", "ot/notes"].concat());
        let found = forbidden_words(&file("docs/a.md", &planted));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert!(forbidden_words(&file("Cargo.lock", &planted)).is_empty());
        assert!(forbidden_words(&file("docs/a.md", "# Title\nhomework\n")).is_empty());
    }

    #[test]
    fn a_document_without_title_is_found() {
        assert!(one_title(&file("docs/a.md", "Some text\n")).is_some());
        assert!(one_title(&file("docs/a.md", "# Title\n")).is_none());
        assert!(one_title(&file("a.toml", "[a]\n")).is_none());
    }

    #[test]
    fn a_crate_missing_on_the_map_is_found() {
        let member = |short: &str| Member {
            short: short.into(),
            name: String::new(),
            folder: String::new(),
            dependencies: Vec::new(),
            targets: Vec::new(),
        };
        let map = file("ARCHITECTURE.md", "# Map\n`table` is the index\n");
        let missing = names_every_crate(&map, &[member("table"), member("store")]);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].message.contains("store"));
    }
}
