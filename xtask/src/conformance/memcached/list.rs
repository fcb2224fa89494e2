//! The reviewed list: the expected result of each file of the suite, and why.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// What becomes of one file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Decision {
    Run,
    Skip(String),
}

/// The decisions, by file name.
pub(super) struct List {
    decisions: BTreeMap<String, Decision>,
    /// Assertions (from one) that fail for the reason written beside them; all others must pass.
    may_fail: BTreeMap<String, Vec<u32>>,
    /// Files that do not run against a node of a cluster, with the reason.
    alone: BTreeMap<String, String>,
}

/// The files of one run.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Files {
    pub(super) run: Vec<String>,
    /// With the reason.
    pub(super) skipped: Vec<(String, String)>,
}

impl List {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse()?;
        let mut decisions = BTreeMap::new();
        for name in table["run"].as_array().context("run is a list of names")? {
            let name = name.as_str().context("run is a list of names")?;
            decisions.insert(name.to_string(), Decision::Run);
        }
        for (name, why) in reasons(&table, "skip")? {
            if decisions
                .insert(name.clone(), Decision::Skip(why))
                .is_some()
            {
                bail!("{name} is both run and skipped");
            }
        }
        let mut may_fail = BTreeMap::new();
        for (name, entry) in table["partly"].as_table().context("partly is a table")? {
            let why = entry
                .get("why")
                .and_then(|why| why.as_str())
                .unwrap_or_default();
            let numbers = entry.get("fails").and_then(|fails| fails.as_array());
            let numbers: Vec<u32> = numbers
                .into_iter()
                .flatten()
                .filter_map(|number| u32::try_from(number.as_integer()?).ok())
                .collect();
            if why.is_empty() || numbers.is_empty() {
                bail!("partly.{name} needs `fails` and `why`");
            }
            if decisions.insert(name.clone(), Decision::Run).is_some() {
                bail!("{name} is decided twice");
            }
            may_fail.insert(name.clone(), numbers);
        }
        let alone = reasons(&table, "alone")?;
        for name in alone.keys() {
            if decisions.get(name) != Some(&Decision::Run) {
                bail!("alone.{name} runs nowhere");
            }
        }
        Ok(List {
            decisions,
            may_fail,
            alone,
        })
    }

    /// The same list without the files that are about one server.
    pub(super) fn of_a_node(mut self) -> Self {
        for (name, why) in std::mem::take(&mut self.alone) {
            self.may_fail.remove(&name);
            self.decisions.insert(name, Decision::Skip(why));
        }
        self
    }

    /// The assertions of a file that fail, and are known to.
    pub(super) fn may_fail(&self, name: &str) -> &[u32] {
        self.may_fail
            .get(name)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// The files to run: all that the list runs, or those chosen by name whatever the list says.
    pub(super) fn choose(&self, existing: &[String], chosen: &[String]) -> Result<Files> {
        let mut files = Files {
            run: Vec::new(),
            skipped: Vec::new(),
        };
        if !chosen.is_empty() {
            for name in chosen {
                let name = name.trim_start_matches("t/").trim_end_matches(".t");
                files.run.push(format!("{name}.t"));
            }
            return match files.run.iter().find(|name| !existing.contains(name)) {
                Some(unknown) => bail!("the suite has no file {unknown}"),
                None => Ok(files),
            };
        }
        for name in existing {
            match self.decisions.get(name) {
                Some(Decision::Run) => files.run.push(name.clone()),
                Some(Decision::Skip(why)) => files.skipped.push((name.clone(), why.clone())),
                None => bail!("{name} is new: decide in xtask/conformance/memcached.toml"),
            }
        }
        Ok(files)
    }
}

/// A table of files, each with the reason why it stands there.
fn reasons(table: &toml::Table, key: &str) -> Result<BTreeMap<String, String>> {
    let files = table.get(key).and_then(toml::Value::as_table);
    let files = files.with_context(|| format!("{key} is a table of reasons"))?;
    let reason = |(name, why): (&String, &toml::Value)| {
        let why = why.as_str().filter(|why| !why.is_empty());
        let why = why.with_context(|| format!("{key}.{name} needs its reason"))?;
        Ok((name.clone(), why.to_string()))
    };
    files.iter().map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "run = [\"cas.t\", \"stats.t\"]\n[partly]\n[alone]\n\
                        \"stats.t\" = \"one node's\"\n[skip]\n\"lru.t\" = \"slab classes\"\n";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn a_file_that_nobody_decided_on_is_an_error() {
        let list = List::parse(TEXT).unwrap();
        assert!(
            list.choose(&names(&["cas.t", "lru.t", "new.t"]), &[])
                .is_err()
        );
        let files = list.choose(&names(&["cas.t", "lru.t"]), &[]).unwrap();
        assert_eq!(files.run, ["cas.t"]);
        assert_eq!(
            files.skipped,
            [("lru.t".to_string(), "slab classes".to_string())]
        );
    }

    #[test]
    fn a_node_does_not_run_what_is_about_one_server() {
        let existing = names(&["cas.t", "stats.t"]);
        let chosen = |list: List| list.choose(&existing, &[]).unwrap().run;
        assert_eq!(chosen(List::parse(TEXT).unwrap()), existing);
        assert_eq!(chosen(List::parse(TEXT).unwrap().of_a_node()), ["cas.t"]);
        assert!(List::parse(&TEXT.replace("\"stats.t\" =", "\"lru.t\" =")).is_err());
    }

    #[test]
    fn a_file_named_by_hand_runs_whatever_the_list_says() {
        let list = List::parse(TEXT).unwrap();
        let files = list
            .choose(&names(&["cas.t", "lru.t"]), &names(&["t/lru.t"]))
            .unwrap();
        assert_eq!(files.run, ["lru.t"]);
        assert!(
            list.choose(&names(&["cas.t"]), &names(&["absent"]))
                .is_err()
        );
    }

    #[test]
    fn what_may_fail_is_named() {
        let text = "run = []\n[alone]\n[partly.\"a.t\"]\nfails = [2, 3]\nwhy = \"UDP\"\n[skip]\n";
        let list = List::parse(text).unwrap();
        assert_eq!(list.may_fail("a.t"), [2, 3]);
        assert!(list.may_fail("b.t").is_empty());
        assert_eq!(list.choose(&names(&["a.t"]), &[]).unwrap().run, ["a.t"]);
        assert!(List::parse(&text.replace("UDP", "")).is_err());
    }

    #[test]
    fn a_skip_needs_its_reason() {
        for wrong in [
            "[]\n[skip]\n\"a.t\" = \"\"",
            "[\"a.t\"]\n[skip]\n\"a.t\" = \"x\"",
        ] {
            assert!(List::parse(&format!("run = {wrong}\n[partly]\n[alone]\n")).is_err());
        }
    }
}
