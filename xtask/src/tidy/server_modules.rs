//! Rules about the modules of the server: which may use which, and where a type's `impl` stands.
//!
//! A module is here a folder or a file at the top of `crates/server/src`, or a folder within that
//! has a line of its own in [`TABLE`]. The table has no circle, so a circle of imports goes through
//! an arrow that it lists as an exception.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::ratchet::{self, Found};
use super::source::Source;
use super::{Violation, rust_path_parser, text_files::TextFile};

/// Which module may use which, and where that is not so yet.
pub(super) const TABLE: &str = "xtask/tidy/server_modules.toml";
const ROOT: &str = "crates/server/src/";

struct Table {
    /// Modules that all others may use. What these modules use has lines in `arrows`.
    everywhere: BTreeSet<String>,
    arrows: BTreeMap<String, BTreeSet<String>>,
    exceptions: BTreeMap<String, BTreeSet<String>>,
}

/// A production file of the server.
struct Module<'a> {
    source: Source<'a>,
    /// Its path below [`ROOT`].
    file: &'a str,
    module: String,
}

/// Module to module, and what in which file leads there.
type Arrows<'a> = BTreeMap<(String, String), Vec<(&'a str, usize)>>;

pub(super) fn check(files: &[TextFile]) -> Result<Vec<Violation>> {
    let table = Table::read(files)?;
    let modules = modules(files, &table);
    let mut violations = table.mistakes();
    violations.extend(strays(&modules, &table));
    let arrows = arrows(&modules, &table);
    for (rule, found) in [
        ("arrows", forbidden_arrows(&arrows, &table)),
        ("circles", circles_found(&arrows)),
        ("impls", impls_elsewhere(&modules)),
        ("memcached", memcached_codec(&modules)),
        ("server_error", error_texts(&modules)),
    ] {
        let nothing = BTreeSet::new();
        let listed = table.exceptions.get(rule).unwrap_or(&nothing);
        violations.extend(ratchet::compare(rule, TABLE, listed, found));
    }
    Ok(violations)
}

/// The table without the exceptions that are no longer needed.
pub(super) fn shrunk(files: &[TextFile]) -> Result<String> {
    let table = files
        .iter()
        .find(|file| file.path == TABLE)
        .context(TABLE)?;
    Ok(ratchet::without_idle(&table.text, &check(files)?))
}

/// The arrows between the modules, for a person.
pub(super) fn drawing(files: &[TextFile]) -> Result<String> {
    let table = Table::read(files)?;
    let modules = modules(files, &table);
    let arrows = arrows(&modules, &table);
    let mut text =
        String::from("module -> the modules that it uses (files that do); ! is an exception\n\n");
    for module in table.arrows.keys() {
        let own = modules.iter().filter(|file| file.module == *module);
        let lines: usize = own
            .clone()
            .map(|file| file.source.production().count())
            .sum();
        write!(text, "{module} ({} files, {lines} lines) ->", own.count())?;
        for ((_, to), places) in arrows.iter().filter(|((from, _), _)| from == module) {
            let users: BTreeSet<&str> = places.iter().map(|(file, _)| *file).collect();
            let mark = if table.allows(module, to) { "" } else { "!" };
            write!(text, " {mark}{to}({})", users.len())?;
        }
        text.push('\n');
    }
    for circle in circles(&arrows) {
        write!(text, "\ncircle: {}\n", Vec::from_iter(circle).join(", "))?;
    }
    Ok(text)
}

impl Table {
    fn read(files: &[TextFile]) -> Result<Self> {
        let file = files.iter().find(|file| file.path == TABLE);
        let value: toml::Table = file.context(TABLE)?.text.parse().context(TABLE)?;
        let strings = |list: &toml::Value| {
            let entries = list.as_array().into_iter().flatten();
            let entries = entries.filter_map(toml::Value::as_str);
            entries.map(str::to_string).collect::<BTreeSet<String>>()
        };
        let section = |name: &str| {
            let lines = value.get(name).and_then(toml::Value::as_table);
            let lines = lines.into_iter().flatten();
            lines
                .map(|(key, list)| (key.clone(), strings(list)))
                .collect()
        };
        Ok(Self {
            everywhere: value.get("everywhere").map(strings).unwrap_or_default(),
            arrows: section("arrows"),
            exceptions: section("exceptions"),
        })
    }

    /// The module of a path within the crate: the longest line of the table that it begins with.
    fn module_of(&self, path: &[String]) -> Option<&str> {
        (1..=path.len()).rev().find_map(|length| {
            let name = path[..length].join("/");
            self.arrows
                .get_key_value(&name)
                .map(|(module, _)| module.as_str())
        })
    }

    fn allows(&self, from: &str, to: &str) -> bool {
        let own = self.arrows.get(from);
        own.is_some_and(|own| own.contains(to))
            || (self.everywhere.contains(to) && !self.everywhere.contains(from))
    }

    /// What the table says wrongly of itself.
    fn mistakes(&self) -> Vec<Violation> {
        let named = self.arrows.values().flatten().chain(&self.everywhere);
        let unknown = named.filter(|module| !self.arrows.contains_key(*module));
        let unknown = unknown.map(|module| format!("`{module}` has no line in [arrows]"));
        let modules = || self.arrows.keys();
        let arrows = modules().flat_map(|from| modules().map(move |to| (from.clone(), to.clone())));
        let arrows = arrows.filter(|(from, to)| self.allows(from, to));
        let around = circles(&arrows.map(|arrow| (arrow, Vec::new())).collect()).into_iter();
        let around = around.map(|circle| format!("the table has a circle: {circle:?}"));
        let messages = unknown.chain(around);
        messages
            .map(|message| violation(TABLE, 0, "modules", message))
            .collect()
    }
}

fn modules<'a>(files: &'a [TextFile], table: &Table) -> Vec<Module<'a>> {
    let of_the_server = files.iter().filter_map(|text| {
        let file = text.path.strip_prefix(ROOT)?.strip_suffix(".rs")?;
        let source = Source::new(text);
        let module = table
            .module_of(&path_below(file))
            .unwrap_or_default()
            .to_string();
        (file != "lib" && !source.all_tests).then_some(Module {
            source,
            file,
            module,
        })
    });
    of_the_server.collect()
}

/// The names of the folders and of the file, without `mod`.
fn path_below(file: &str) -> Vec<String> {
    let parts = file.split('/').filter(|part| *part != "mod");
    parts.map(str::to_string).collect()
}

fn strays(modules: &[Module<'_>], table: &Table) -> Vec<Violation> {
    let strays = modules.iter().filter(|file| file.module.is_empty());
    let message = format!("its module has no line in {TABLE}");
    let strays = strays.map(|file| violation(file.source.path, 0, "modules", message.clone()));
    let is_empty = |name: &&String| !modules.iter().any(|file| file.module == **name);
    let empty = table.arrows.keys().filter(is_empty);
    let empty = empty.map(|name| violation(TABLE, 0, "modules", format!("`{name}` has no file")));
    strays.chain(empty).collect()
}

fn arrows<'a>(modules: &[Module<'a>], table: &Table) -> Arrows<'a> {
    let mut arrows = Arrows::new();
    for file in modules {
        for (line, path) in
            rust_path_parser::named(file.source.production(), &path_below(file.file))
        {
            let inside = path.first().is_some_and(|part| part == "crate");
            let to = inside.then(|| table.module_of(&path[1..])).flatten();
            if let Some(to) = to.filter(|to| *to != file.module) {
                let arrow = (file.module.clone(), to.to_string());
                arrows.entry(arrow).or_default().push((file.file, line));
            }
        }
    }
    arrows
}

fn forbidden_arrows(arrows: &Arrows<'_>, table: &Table) -> Found {
    let mut found = Found::new();
    for ((from, to), places) in arrows
        .iter()
        .filter(|((from, to), _)| !table.allows(from, to))
    {
        for (file, line) in places {
            let message = format!("module `{from}` may not use `{to}`");
            found
                .entry(format!("{file} -> {to}"))
                .or_insert_with(|| violation(&path_of(file), *line, "arrows", message));
        }
    }
    found
}

/// Modules that can be reached from themselves, grouped by who reaches whom.
fn circles(arrows: &Arrows<'_>) -> BTreeSet<BTreeSet<String>> {
    let mut reached: BTreeSet<(String, String)> = arrows.keys().cloned().collect();
    let modules: BTreeSet<String> = arrows
        .keys()
        .flat_map(|(a, b)| [a.clone(), b.clone()])
        .collect();
    for through in &modules {
        for from in &modules {
            for to in &modules {
                let has = |a: &String, b: &String| reached.contains(&(a.clone(), b.clone()));
                if has(from, through) && has(through, to) {
                    reached.insert((from.clone(), to.clone()));
                }
            }
        }
    }
    let both = |a: &String, b: &String| {
        reached.contains(&(a.clone(), b.clone())) && reached.contains(&(b.clone(), a.clone()))
    };
    let circle_of = |module: &String| {
        modules
            .iter()
            .filter(|other| both(module, other))
            .cloned()
            .collect()
    };
    modules
        .iter()
        .map(circle_of)
        .filter(|circle: &BTreeSet<String>| !circle.is_empty())
        .collect()
}

fn circles_found(arrows: &Arrows<'_>) -> Found {
    let modules = circles(arrows).into_iter().flatten();
    let found = modules.map(|module| {
        let message = format!("`{module}` has come into a circle: `cargo xtask tidy --modules`");
        (module, violation(TABLE, 0, "circles", message))
    });
    found.collect()
}

/// A type's inherent `impl` stands in the module that declares the type.
fn impls_elsewhere(modules: &[Module<'_>]) -> Found {
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in modules {
        for (_, name) in file.source.types(false) {
            homes.entry(name).or_default().insert(&file.module);
        }
    }
    let mut found = Found::new();
    for file in modules {
        for (line, name) in file.source.inherent_impls() {
            let is_away = homes
                .get(name)
                .is_some_and(|at| !at.contains(file.module.as_str()));
            if is_away {
                let message = format!("`{name}` is declared in another module: {:?}", homes[name]);
                let at = violation(file.source.path, line, "impls", message);
                found
                    .entry(format!("{name} in {}", file.file))
                    .or_insert(at);
            }
        }
    }
    found
}

/// Only the memcached front end spells and reads memcached's text.
fn memcached_codec(modules: &[Module<'_>]) -> Found {
    let away = ["node", "native"];
    let mut found = Found::new();
    for file in modules
        .iter()
        .filter(|file| away.iter().any(|module| file.file.starts_with(module)))
    {
        for (line, path) in
            rust_path_parser::named(file.source.production(), &path_below(file.file))
        {
            if path.starts_with(&["curtail_codec".into(), "memcached".into()]) {
                let message = "what is memcached's text belongs to the memcached front end".into();
                let at = violation(file.source.path, line, "memcached", message);
                found.entry(file.file.into()).or_insert(at);
            }
        }
    }
    found
}

/// Texts of errors are the codec's.
fn error_texts(modules: &[Module<'_>]) -> Found {
    let mut found = Found::new();
    for file in modules {
        let lines = file.source.production();
        for (number, _) in lines.filter(|(_, line)| line.contains("SERVER_ERROR")) {
            let message = "texts of errors are the codec's".into();
            let at = violation(file.source.path, number + 1, "server_error", message);
            found.entry(file.file.into()).or_insert(at);
        }
    }
    found
}

fn path_of(file: &str) -> String {
    format!("{ROOT}{file}.rs")
}

fn violation(path: &str, line: usize, rule: &'static str, message: String) -> Violation {
    Violation {
        path: path.into(),
        line,
        rule,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &str = "everywhere = [\"log\"]\n[arrows]\nlog = []\nmemcached = []\n\
        \"worker/context\" = []\nnode = [\"worker/context\"]\nworker = [\"node\"]\n";

    /// The rules that these files of the server break under a table, with the entry that would
    /// excuse each.
    fn broken(table: &str, sources: &[(&str, &str)]) -> Vec<String> {
        // Every module of the table has a file.
        let modules = [
            "log",
            "memcached/mod",
            "worker/context/mod",
            "node/mod",
            "worker/mod",
        ];
        let mut files: Vec<TextFile> = modules
            .iter()
            .map(|at| TextFile::new(path_of(at), "//! A.\n"))
            .collect();
        files.push(TextFile::new(TABLE, table));
        for (at, text) in sources {
            files.push(TextFile::new(path_of(at), *text));
        }
        let violations = check(&files).unwrap().into_iter();
        violations
            .map(|found| {
                format!(
                    "{} {}:{}: {}",
                    found.rule, found.path, found.line, found.message
                )
            })
            .collect()
    }

    #[track_caller]
    fn is_found(found: &[String], rule: &str, entry: &str) {
        let is_it = |line: &&String| line.starts_with(rule) && line.contains(entry);
        assert!(
            found.iter().any(|line| is_it(&line)),
            "{rule} {entry}: {found:#?}"
        );
    }

    #[test]
    fn an_arrow_that_the_table_lacks_is_found() {
        let honest = "//! A.\nuse crate::{log::warn, worker::context::Context};\n";
        assert_eq!(broken(ALLOWED, &[("node/a", honest)]), [""; 0]);
        let tests = "//! A.\n#[cfg(test)]\nmod tests {\nuse crate::worker::Worker;\n}\n";
        assert_eq!(broken(ALLOWED, &[("node/a", tests)]), [""; 0]);
        let planted = "//! A.\nfn f(\n    worker: &crate::worker::Worker) {}\n";
        let found = broken(ALLOWED, &[("node/a", planted)]);
        is_found(
            &found,
            "arrows crates/server/src/node/a.rs:3",
            "(\"node/a -> worker\")",
        );
        let from_log = "//! A.\nuse crate::node::Node;\n";
        is_found(
            &broken(ALLOWED, &[("log/a", from_log)]),
            "arrows",
            "(\"log/a -> node\")",
        );
    }

    #[test]
    fn a_listed_arrow_is_excused_and_an_idle_one_is_not() {
        let listed = format!("{ALLOWED}[exceptions]\narrows = [\n\"node/a -> memcached\",\n]\n");
        let planted = "//! A.\nuse crate::memcached::Text;\n";
        assert_eq!(broken(&listed, &[("node/a", planted)]), [""; 0]);
        let found = broken(&listed, &[]);
        is_found(
            &found,
            "arrows xtask/tidy/server_modules.toml",
            "\"node/a -> memcached\" is listed",
        );
    }

    #[test]
    fn circles_and_modules_without_a_line_are_found() {
        let up = ("node/a", "//! A.\nuse crate::worker::Worker;\n");
        let down = ("worker/a", "//! A.\nuse crate::node::Node;\n");
        is_found(&broken(ALLOWED, &[up, down]), "circles", "(\"node\")");
        is_found(
            &broken(ALLOWED, &[("attic", "//! A.\n")]),
            "modules",
            "no line",
        );
        let around = ALLOWED.replace("memcached = []", "memcached = [\"worker\"]");
        let around = around.replace("node = [", "node = [\"memcached\", ");
        is_found(&broken(&around, &[]), "modules", "the table has a circle");
        let unknown = ALLOWED.replace("memcached = []", "memcached = [\"cellar\"]");
        is_found(&broken(&unknown, &[]), "modules", "`cellar` has no line");
    }

    #[test]
    fn an_impl_far_from_its_type_is_found() {
        let home = (
            "worker/a",
            "//! A.\npub(super) struct Worker<T>(T);\nimpl<T> Worker<T> {}\n",
        );
        let traits = (
            "node/b",
            "//! B.\nimpl Send for Worker<u8> {}\nimpl Other {}\n",
        );
        assert_eq!(broken(ALLOWED, &[home, traits]), [""; 0]);
        let away = ("node/a", "//! A.\nimpl<F: Fn() -> u8> Worker<F> {\n}\n");
        let found = broken(ALLOWED, &[home, away]);
        is_found(
            &found,
            "impls crates/server/src/node/a.rs:2",
            "(\"Worker in node/a\")",
        );
    }

    #[test]
    fn memcached_text_behind_the_front_end_is_found() {
        let import = "//! A.\nuse curtail_codec::{memcached::{Reply}, node};\n";
        let text = "//! A.\nconst A: &[u8] = b\"SERVER_ERROR no\";\n";
        let front = [("memcached/a", import)];
        assert_eq!(broken(ALLOWED, &front), [""; 0]);
        is_found(
            &broken(ALLOWED, &[("node/a", import)]),
            "memcached",
            "(\"node/a\")",
        );
        is_found(
            &broken(ALLOWED, &[("node/a", text)]),
            "server_error",
            "(\"node/a\")",
        );
        let comment = "//! A.\n// SERVER_ERROR is the codec's.\n";
        assert_eq!(broken(ALLOWED, &[("node/a", comment)]), [""; 0]);
    }
}
