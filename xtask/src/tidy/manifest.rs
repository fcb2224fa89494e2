//! Rules about dependencies between crates.

use anyhow::{Context, Result};

use super::Violation;
use super::source::PURE_CRATES;
use super::text_files::TextFile;
use crate::workspace::{Dependency, Member, Workspace};

/// The arrows between our crates: each may depend on those named and on `types`, no other.
/// ARCHITECTURE.md draws them. A crate that is not here is a violation until it gets its line.
const ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("codec", &[]),
    ("history", &[]),
    ("workload", &[]),
    ("dispatch", &[]),
    ("ordered_queue", &["dispatch"]),
    ("hotkeys", &[]),
    ("consistency", &[]),
    ("memory", &[]),
    ("table", &["memory"]),
    ("segments", &["memory"]),
    ("store", &["table", "segments"]),
    ("storage", &[]),
    ("runtime", &[]),
    ("membership", &["consistency"]),
    ("links", &["runtime", "codec", "membership"]),
    ("routing", &["runtime", "codec"]),
    (
        "tier",
        &[
            "runtime",
            "codec",
            "consistency",
            "hotkeys",
            "routing",
            "storage",
        ],
    ),
    ("checker", &["consistency"]),
    (
        "server",
        &[
            "runtime",
            "codec",
            "store",
            "storage",
            "dispatch",
            "ordered_queue",
            "hotkeys",
            "consistency",
            "membership",
            "links",
            "memory",
        ],
    ),
    ("client", &["codec"]),
    ("report", &[]),
    ("testing", &["client", "server"]),
    (
        "loadgen",
        &[
            "codec", "workload", "history", "client", "report", "runtime",
        ],
    ),
    (
        "simulator",
        &[
            "dispatch",
            "ordered_queue",
            "workload",
            "hotkeys",
            "consistency",
            "history",
            "report",
        ],
    ),
    (
        "cli",
        &[
            "server",
            "client",
            "codec",
            "membership",
            "runtime",
            "storage",
            "tier",
            "workload",
        ],
    ),
    ("lab", &["loadgen", "simulator", "checker", "runtime"]),
    ("xtask", &["client", "report"]),
];

/// What pure crates may take from outside.
const PURE_DEPENDENCIES: &[&str] = &["base64", "itoa", "memchr", "twox-hash"];
/// Who may answer with errors that only a person reads.
const ANYHOW_CRATES: &[&str] = &["cli", "lab", "xtask"];

pub(super) fn check(workspace: &Workspace, files: &[TextFile]) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for member in workspace.members() {
        violations.extend(arrows(&member));
        let path = format!("{}/Cargo.toml", member.folder);
        let manifest = files.iter().find(|file| file.path == path);
        violations.extend(manifest.and_then(takes_the_lints));
    }
    let root = files
        .iter()
        .find(|file| file.path == "Cargo.toml")
        .context("the root manifest")?;
    violations.extend(reasons(root));
    Ok(violations)
}

fn arrows(member: &Member) -> Vec<Violation> {
    let path = format!("{}/Cargo.toml", member.folder);
    let found = |rule, message| Violation {
        path: path.clone(),
        line: 0,
        rule,
        message,
    };
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == member.short) else {
        return vec![found(
            "arrows",
            format!("`{}` has no line in ARROWS", member.short),
        )];
    };
    let mut violations = Vec::new();
    for line in &member.dependencies {
        if let Some(ours) = line.name.strip_prefix("curtail-") {
            let ours = ours.replace('-', "_");
            let ours = ours.as_str();
            let forbidden = match line.kind.as_str() {
                "dev" => TOPS.contains(&ours),
                _ => ours != "types" && !allowed.contains(&ours),
            };
            if forbidden || member.short == "types" {
                let message = format!("`{}` may not depend on `{ours}`", member.short);
                violations.push(found("arrows", message));
            }
        } else if let Some(message) = outside(member, line) {
            violations.push(found("dependencies", message));
        }
    }
    violations
}

/// A dependency on somebody else's crate.
fn outside(member: &Member, line: &Dependency) -> Option<String> {
    let pure = PURE_CRATES.contains(&member.short.as_str());
    let for_loom = line
        .target
        .as_deref()
        .is_some_and(|target| target.contains("loom"));
    if pure && line.kind != "dev" && !for_loom && !PURE_DEPENDENCIES.contains(&line.name.as_str()) {
        return Some(format!(
            "a pure crate may take {PURE_DEPENDENCIES:?}, not `{}`",
            line.name
        ));
    }
    let anyhow = line.name == "anyhow" && line.kind != "dev";
    if anyhow && !ANYHOW_CRATES.contains(&member.short.as_str()) {
        return Some(format!("anyhow is for {ANYHOW_CRATES:?}"));
    }
    None
}

/// Run by people; nothing may build on them.
const TOPS: &[&str] = &["cli", "lab", "xtask"];

fn takes_the_lints(manifest: &TextFile) -> Option<Violation> {
    let taken = manifest.text.contains("[lints]\nworkspace = true");
    (!taken).then(|| Violation {
        path: manifest.path.clone(),
        line: 0,
        rule: "lints",
        message: "`[lints] workspace = true` is missing".into(),
    })
}

/// Each member and each dependency of the root manifest says why it is there.
fn reasons(root: &TextFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut section = "";
    for (number, line) in root.text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            section = trimmed;
        } else if trimmed.starts_with("members") {
            section = "members";
        }
        let asks = match section {
            "members" => trimmed.starts_with('"'),
            "[workspace.dependencies]" => {
                trimmed.contains('=')
                    && !trimmed.starts_with("curtail-")
                    && !trimmed.starts_with('#')
            }
            _ => false,
        };
        if asks && !trimmed.contains(" # ") {
            violations.push(Violation {
                path: root.path.clone(),
                line: number + 1,
                rule: "reasons",
                message: "say in a comment on this line why it is here".into(),
            });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(short: &str, dependencies: &[(&str, &str)]) -> Member {
        let dependencies = dependencies.iter().map(|(name, kind)| Dependency {
            name: name.to_string(),
            kind: kind.to_string(),
            target: None,
        });
        Member {
            short: short.into(),
            name: format!("curtail-{short}"),
            folder: format!("crates/{short}"),
            dependencies: dependencies.collect(),
            targets: Vec::new(),
        }
    }

    fn rules(violations: &[Violation]) -> Vec<&'static str> {
        violations.iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn an_arrow_against_the_drawing_is_found() {
        let allowed = member(
            "store",
            &[("curtail-table", "normal"), ("curtail-types", "normal")],
        );
        assert!(arrows(&allowed).is_empty());
        let backwards = member("table", &[("curtail-store", "normal")]);
        assert_eq!(rules(&arrows(&backwards)), ["arrows"]);
        let downwards = member("types", &[("curtail-codec", "dev")]);
        assert_eq!(rules(&arrows(&downwards)), ["arrows"]);
        let on_top = member("loadgen", &[("curtail-cli", "dev")]);
        assert_eq!(rules(&arrows(&on_top)), ["arrows"]);
        let for_a_test = member("store", &[("curtail-history", "dev")]);
        assert!(arrows(&for_a_test).is_empty());
        assert_eq!(rules(&arrows(&member("newcomer", &[]))), ["arrows"]);
    }

    #[test]
    fn a_pure_crate_takes_little() {
        assert!(arrows(&member("codec", &[("memchr", "normal")])).is_empty());
        assert!(arrows(&member("codec", &[("proptest", "dev")])).is_empty());
        assert_eq!(
            rules(&arrows(&member("codec", &[("tokio", "normal")]))),
            ["dependencies"]
        );
        assert_eq!(
            rules(&arrows(&member("server", &[("anyhow", "normal")]))),
            ["dependencies"]
        );
    }

    #[test]
    fn a_line_without_a_reason_is_found() {
        let text = "members = [\n    \"crates/a\",\n    \"crates/b\", # run: b\n]\n\
                    [workspace.dependencies]\n# Ours.\ncurtail-a = { path = \"a\" }\n\
                    libc = \"0.2\"\nmemchr = \"2\" # lines\n[profile.release]\nlto = \"fat\"\n";
        let root = TextFile::new("Cargo.toml", text);
        let lines: Vec<usize> = reasons(&root)
            .iter()
            .map(|violation| violation.line)
            .collect();
        assert_eq!(lines, [2, 8]);
    }

    #[test]
    fn a_manifest_without_the_lints_is_found() {
        let with = TextFile::new("a", "[lints]\nworkspace = true\n");
        let without = TextFile::new("a", "[package]\n");
        assert!(takes_the_lints(&with).is_none());
        assert!(takes_the_lints(&without).is_some());
    }
}
