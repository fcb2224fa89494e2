//! Rules about the documents: titles, links, indexes, lengths, and the ids of requirements.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::text_files::{TextFile, violation};
use crate::chart;
use crate::workspace::{Member, Workspace};

pub(super) fn check(workspace: &Workspace, files: &[TextFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let pages = files.iter().filter(|file| file.path.ends_with(".md"));
    let anchors: Anchors = pages
        .clone()
        .map(|page| (page.path.as_str(), anchors(&page.text)))
        .collect();
    for page in pages {
        violations.extend(one_title(page));
        violations.extend(broken_links(page, &anchors, &|path| workspace.has(path)));
        violations.extend(too_long(page));
    }
    let text_of = |path: &str| files.iter().find(|file| file.path == path);
    for path in DOCUMENTS {
        if text_of(path).is_none() {
            let message = "this document is missing".into();
            violations.push(violation(path, 0, "documents", message));
        }
    }
    if let Some(architecture) = text_of("ARCHITECTURE.md") {
        violations.extend(names_every_crate(architecture, &workspace.members()));
    }
    for path in INDEXES {
        if let Some(index) = text_of(path) {
            violations.extend(lists_every_page(index, files));
        }
    }
    violations.extend(requirements(files));
    for (numbers, drawing) in chart::CHARTS {
        if let Some(message) = chart::disagreement(&workspace.root, numbers, drawing) {
            violations.push(violation(drawing, 0, "chart", message));
        }
    }
    violations
}

/// The places that links may lead to, by page.
type Anchors<'a> = BTreeMap<&'a str, BTreeSet<String>>;

/// A document has one title, on its first line.
fn one_title(page: &TextFile) -> Option<Violation> {
    let message = "a document opens with its title".into();
    (!page.text.starts_with("# ")).then(|| violation(&page.path, 1, "title", message))
}

/// A task is read in one go.
fn too_long(page: &TextFile) -> Option<Violation> {
    let is_task = ["docs/guide/", "docs/operations/"]
        .iter()
        .any(|folder| page.path.starts_with(folder));
    let words = page.text.split_whitespace().count();
    let message = format!("{words} words; a page about a task has at most {WORDS_MAX}");
    (is_task && words > WORDS_MAX).then(|| violation(&page.path, 0, "length", message))
}

/// A link to a file of ours leads to a file, and its anchor to a heading.
fn broken_links(
    page: &TextFile,
    anchors: &Anchors<'_>,
    exists: &dyn Fn(&str) -> bool,
) -> Vec<Violation> {
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut violations = Vec::new();
    for (number, line) in page.text.lines().enumerate() {
        let links = line.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            if link.contains("://") {
                continue;
            }
            let path = match target {
                "" => page.path.clone(),
                _ => joined(folder, target),
            };
            let of_page = anchors.get(path.as_str());
            let is_heading = of_page.is_none_or(|anchors| anchors.contains(anchor));
            if !exists(&path) || !anchor.is_empty() && !is_heading {
                let message = format!("the link to `{link}` leads nowhere");
                violations.push(violation(&page.path, number + 1, "links", message));
            }
        }
    }
    violations
}

/// The anchors of a page's headings, as code-hosting sites make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let headings = text.lines().filter_map(|line| {
        is_code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        (!is_code && heading.len() < line.len()).then(|| heading.trim())
    });
    let kept = |character: &char| character.is_alphanumeric() || " -_".contains(*character);
    headings
        .map(|heading| {
            let anchor: String = heading.to_lowercase().chars().filter(kept).collect();
            anchor.replace(' ', "-")
        })
        .collect()
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

/// A page that no index lists is not found: the index of its folder, or else that of `docs`.
fn lists_every_page(index: &TextFile, files: &[TextFile]) -> Vec<Violation> {
    let folder = index.path.trim_end_matches("README.md");
    let is_elsewhere = |path: &str| {
        let of = |other: &&&str| other.len() > index.path.len();
        let mut deeper = INDEXES.iter().filter(of);
        path.ends_with("README.md")
            || deeper.any(|other| path.starts_with(other.trim_end_matches("README.md")))
    };
    let pages = files
        .iter()
        .filter(|file| file.path.ends_with(".md") && !is_elsewhere(&file.path));
    let names = pages.filter_map(|file| file.path.strip_prefix(folder));
    let missing = names.filter(|name| !index.text.contains(&format!("]({name})")));
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

/// An id of a requirement means what the page of requirements says, and the page has no other.
fn requirements(files: &[TextFile]) -> Vec<Violation> {
    let mut declared: BTreeMap<&str, usize> = BTreeMap::new();
    let mut violations = Vec::new();
    let page = files.iter().find(|file| file.path == REQUIREMENTS);
    for (number, line) in page.iter().flat_map(|page| page.text.lines()).enumerate() {
        let id = line.strip_prefix("| ").and_then(|row| ids(row).next());
        if let Some(id) = id
            && declared.insert(id, number + 1).is_some()
        {
            let message = format!("`{id}` stands here twice");
            violations.push(violation(REQUIREMENTS, number + 1, "requirements", message));
        }
    }
    let mut used = BTreeSet::new();
    for file in files.iter().filter(|file| file.path != REQUIREMENTS) {
        for (number, line) in file.text.lines().enumerate() {
            for id in ids(line) {
                used.insert(id);
                if !declared.contains_key(id) {
                    let message = format!("`{id}` is not in {REQUIREMENTS}");
                    violations.push(violation(&file.path, number + 1, "requirements", message));
                }
            }
        }
    }
    declared.retain(|id, _| !used.contains(id));
    violations.extend(declared.into_iter().map(|(id, line)| {
        let message = format!("nothing refers to `{id}`");
        violation(REQUIREMENTS, line, "requirements", message)
    }));
    violations
}

/// The ids in a line: one of the families, a hyphen and a number.
fn ids(line: &str) -> impl Iterator<Item = &str> {
    let words =
        line.split(|character: char| !character.is_ascii_alphanumeric() && character != '-');
    words.filter(|word| {
        word.split_once('-').is_some_and(|(family, number)| {
            FAMILIES.contains(&family)
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    })
}

/// Words on a page about a task.
const WORDS_MAX: usize = 1500;

/// The families of requirements: symmetric caching, the table, the cluster, the ordered queue,
/// size-aware sharding, and key tracking with leases.
const FAMILIES: [&str; 6] = ["CC", "CK", "CL", "JB", "MI", "SW"];

const REQUIREMENTS: &str = "docs/reference/requirements.md";

const INDEXES: [&str; 2] = ["docs/README.md", "docs/decisions/README.md"];

const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "STYLE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "docs/README.md",
    "docs/decisions/README.md",
    REQUIREMENTS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_without_title_is_found() {
        assert!(one_title(&TextFile::new("docs/a.md", "Some text\n")).is_some());
        assert!(one_title(&TextFile::new("docs/a.md", "# Title\n")).is_none());
    }

    #[test]
    fn a_task_of_too_many_words_is_found() {
        let text = "word ".repeat(WORDS_MAX + 1);
        assert!(too_long(&TextFile::new("docs/guide/a.md", &text)).is_some());
        assert!(too_long(&TextFile::new("docs/guide/a.md", &text[5..])).is_none());
        assert!(too_long(&TextFile::new("docs/research/a.md", &text)).is_none());
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let page = "# A\n[b](../b.md#the-part), [c](c.md), [d](https://d.example/), [e](#here)\n\
                    ```\n# here\n```\n[f](../b.md#part)\n";
        let other = "# B\n## The `part`?\n";
        let anchors = BTreeMap::from([
            ("docs/b.md", anchors(other)),
            ("docs/guide/a.md", anchors(page)),
        ]);
        let exists = |path: &str| anchors.contains_key(path);
        let found = broken_links(&TextFile::new("docs/guide/a.md", page), &anchors, &exists);
        let found: Vec<&str> = found.iter().map(|found| found.message.as_str()).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("`c.md`") && found[1].contains("`#here`"));
        assert!(found[2].contains("`../b.md#part`"));
    }

    #[test]
    fn a_page_that_is_not_listed_is_found() {
        let pages = [
            TextFile::new("docs/decisions/one.md", "# 1"),
            TextFile::new("docs/decisions/two.md", "# 2"),
            TextFile::new("docs/guide/three.md", "# 3"),
            TextFile::new("docs/README.md", "# Index\n"),
            TextFile::new("docs/decisions/README.md", "# Decisions\n[one](one.md)\n"),
        ];
        let top = lists_every_page(&pages[3], &pages);
        assert_eq!(top.len(), 1, "{top:?}");
        assert!(top[0].message.contains("guide/three.md"));
        let decisions = lists_every_page(&pages[4], &pages);
        assert_eq!(decisions.len(), 1, "{decisions:?}");
        assert!(decisions[0].message.contains("two.md"));
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
        let map = TextFile::new("ARCHITECTURE.md", "# Map\n`table` is the index\n");
        let missing = names_every_crate(&map, &[member("table"), member("store")]);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].message.contains("store"));
    }

    // Ids are put together here, or the rule would look for them.
    #[test]
    fn ids_without_a_line_and_lines_without_an_id_are_found() {
        let id = |number: u32| format!("C{}-{number}", 'K');
        let page = format!(
            "# R\n\n| {} | one |\n| {} | two |\n| {0} | x |\n",
            id(1),
            id(2)
        );
        let code = format!("// {}: so; {}..9, {}a, X-1\n", id(1), id(3), id(4));
        let found = requirements(&[
            TextFile::new(REQUIREMENTS, &page),
            TextFile::new("a.rs", &code),
        ]);
        let found: Vec<&str> = found.iter().map(|found| found.message.as_str()).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("twice") && found[1].contains(&id(3)));
        assert!(found[2].contains(&id(2)) && found[2].contains("nothing refers"));
    }
}
