//! One name, one type: lists names that several files declare.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use super::source::Source;
use super::{Violation, text_files::TextFile};

/// The names that stand for several types today, and for how many; no number may grow.
pub(super) const LIST: &str = "xtask/tidy/homonyms.toml";

/// By name the files that declare it, and where.
type Places<'a> = BTreeMap<&'a str, BTreeMap<&'a str, usize>>;

pub(super) fn check(files: &[TextFile]) -> Result<Vec<Violation>> {
    let list = files.iter().find(|file| file.path == LIST).context(LIST)?;
    let list: BTreeMap<String, usize> = toml::from_str(&list.text).context(LIST)?;
    Ok(compare(&list, &places(files)))
}

fn compare(list: &BTreeMap<String, usize>, places: &Places<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut report = |path: &str, line, message| {
        violations.push(Violation {
            path: path.into(),
            line,
            rule: "homonyms",
            message,
        });
    };
    let names: BTreeSet<&str> = list
        .keys()
        .map(String::as_str)
        .chain(places.keys().copied())
        .collect();
    for name in names {
        let nowhere = BTreeMap::new();
        let there = places.get(name).unwrap_or(&nowhere);
        let allowed = list.get(name).copied().unwrap_or(1);
        let is_idle = list.contains_key(name) && there.len().max(1) < allowed.max(2);
        if is_idle {
            let now = there.len();
            let message =
                format!("`{name} = {allowed}`, but {now} now: `cargo xtask fix` shrinks it");
            report(LIST, 0, message);
        } else if there.len() > allowed {
            let all: Vec<&str> = there.keys().copied().collect();
            for (path, line) in there {
                report(
                    path,
                    *line,
                    format!("`{name}` is declared in {}", all.join(", ")),
                );
            }
        }
    }
    violations
}

fn places(files: &[TextFile]) -> Places<'_> {
    let mut places = Places::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        for (line, name) in Source::new(file).types(true) {
            places
                .entry(name)
                .or_default()
                .entry(&file.path)
                .or_insert(line);
        }
    }
    places
}

/// The list with lower numbers where there are fewer types now.
pub(super) fn shrunk(files: &[TextFile]) -> Result<String> {
    let list = files.iter().find(|file| file.path == LIST).context(LIST)?;
    let places = places(files);
    let shrunk = list.text.lines().filter_map(|line| {
        let Some((name, allowed)) = line.split_once(" = ") else {
            return Some(format!("{line}\n"));
        };
        let now = places.get(name).map_or(0, BTreeMap::len);
        let lower = allowed.parse().unwrap_or(now).min(now);
        (lower > 1).then(|| format!("{name} = {lower}\n"))
    });
    Ok(shrunk.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_type_of_a_name_is_found() {
        let files = [
            TextFile::new(
                "crates/a/src/a.rs",
                "//! A.\npub struct Event;\nstruct Own;\n",
            ),
            TextFile::new(
                "crates/b/src/b.rs",
                "//! B.\npub(crate) enum Event<T> {\n}\nstruct Own;\n",
            ),
            TextFile::new("crates/b/src/tests.rs", "//! B.\npub struct Event;\n"),
            TextFile::new(LIST, "# Names.\nEvent = 3\nGone = 2\n"),
        ];
        let found = |list: &[(&str, usize)]| {
            let list = list
                .iter()
                .map(|(name, count)| (name.to_string(), *count))
                .collect();
            let found = compare(&list, &places(&files)).into_iter();
            found
                .map(|violation| (violation.path, violation.line))
                .collect::<Vec<_>>()
        };
        let both = [
            ("crates/a/src/a.rs".into(), 2),
            ("crates/b/src/b.rs".into(), 2),
        ];
        assert_eq!(found(&[]), both);
        assert_eq!(found(&[("Event", 2)]), []);
        assert_eq!(found(&[("Event", 3)]), [(LIST.into(), 0)]);
        assert_eq!(found(&[("Event", 2), ("Gone", 2)]), [(LIST.into(), 0)]);
        assert_eq!(shrunk(&files).unwrap(), "# Names.\nEvent = 2\n");
    }
}
