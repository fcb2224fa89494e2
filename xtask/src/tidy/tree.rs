//! Rules about every text file, and about the documents at the root.

use std::fs;

use anyhow::Result;

use super::Violation;
use crate::chart;
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

pub(super) fn check(workspace: &Workspace, files: &[TextFile]) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for file in files {
        violations.extend(forbidden_words(file));
        violations.extend(one_title(file));
        violations.extend(broken_links(file, &|path| workspace.has(path)));
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
    if let Some(index) = text_of("docs/decisions/README.md") {
        violations.extend(lists_every_decision(index, files));
    }
    for (numbers, drawing) in chart::CHARTS {
        if let Some(message) = chart::disagreement(&workspace.root, numbers, drawing) {
            violations.push(violation(drawing, 0, "chart", message));
        }
    }
    Ok(violations)
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

/// A link to a file of ours leads to a file.
fn broken_links(file: &TextFile, exists: &dyn Fn(&str) -> bool) -> Vec<Violation> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut violations = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for target in line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let target = target.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !exists(&joined(folder, target)) {
                let message = format!("the link to `{target}` leads nowhere");
                violations.push(violation(&file.path, number + 1, "links", message));
            }
        }
    }
    violations
}

/// `target` as seen from `folder`, from the root.
fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A decision that the index does not list is not found again.
fn lists_every_decision(index: &TextFile, files: &[TextFile]) -> Vec<Violation> {
    let pages = files.iter().filter_map(|file| {
        let name = file.path.strip_prefix("docs/decisions/")?;
        (name.ends_with(".md") && name != "README.md").then_some(name)
    });
    let missing = pages.filter(|name| !index.text.contains(&format!("]({name})")));
    missing
        .map(|name| {
            violation(
                &index.path,
                0,
                "documents",
                format!("`{name}` is not listed"),
            )
        })
        .collect()
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
    fn a_link_that_leads_nowhere_is_found() {
        let page = "# A\n[b](../b.md#part), [c](c.md), [d](https://d.example/), [e](#here)\n";
        let exists = |path: &str| path == "docs/b.md";
        let found = broken_links(&file("docs/guide/a.md", page), &exists);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("c.md"));
    }

    #[test]
    fn a_decision_that_is_not_listed_is_found() {
        let index = file(
            "docs/decisions/README.md",
            "# Decisions\n[one](0001-one.md)\n",
        );
        let pages = [
            file("docs/decisions/0001-one.md", "# 1"),
            file("docs/decisions/0002-two.md", "#"),
        ];
        let found = lists_every_decision(&index, &pages);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("0002"));
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
