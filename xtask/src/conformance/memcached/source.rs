//! Debian's memcached source package, fetched without touching the system's configuration.
//!
//! The system's own package sources are copied into a temporary list with `deb` turned into
//! `deb-src`; apt gets that list, and folders of ours for its indexes, through options.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::Log;
use crate::workspace::Workspace;

/// The unpacked package; fetched once, then kept under the target folder.
pub(super) fn fetch(workspace: &Workspace, log: &Log) -> Result<PathBuf> {
    let folder = workspace.scratch("memcached")?;
    if let Some(unpacked) = unpacked(&folder)? {
        return Ok(unpacked);
    }
    let list = sources(Path::new("/etc/apt"))?;
    if list.is_empty() {
        bail!("no Debian package source is configured, so its memcached cannot be fetched");
    }
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::create_dir_all(folder.join("cache/archives/partial"))?;
    fs::write(folder.join("deb-src.sources"), list)?;
    let options = [
        format!(
            "Dir::Etc::sourcelist={}",
            folder.join("deb-src.sources").display()
        ),
        "Dir::Etc::sourceparts=/nonexistent".to_string(),
        format!("Dir::State::lists={}", folder.join("lists").display()),
        format!("Dir::Cache={}", folder.join("cache").display()),
        "APT::Sandbox::User=".to_string(),
    ];
    let apt = |word: &[&str]| {
        let mut command = Command::new("apt-get");
        for option in &options {
            command.args(["-o", option]);
        }
        command.arg("-q").args(word).current_dir(&folder);
        command
    };
    log.run(&mut apt(&["update"]))
        .context("the index of Debian's source packages")?;
    log.run(&mut apt(&["source", "memcached"]))
        .context("Debian's memcached source package")?;
    unpacked(&folder)?.context("apt-get source left no folder")
}

fn unpacked(folder: &Path) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.join("t/lib/MemcachedTest.pm").exists() && path.join("timedrun.c").exists() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The system's package sources as source-package sources, in the deb822 form that apt has read
/// since Debian 8.
fn sources(apt: &Path) -> Result<String> {
    let mut paths = vec![apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(apt.join("sources.list.d")) {
        paths.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    let mut list = String::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        let text = fs::read_to_string(path)?;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => list.push_str(&of_paragraphs(&text)),
            Some("list") => list.push_str(&of_lines(&text)),
            _ => {}
        }
    }
    Ok(list)
}

/// From the deb822 form: paragraphs of `Key: value`.
fn of_paragraphs(text: &str) -> String {
    let mut list = String::new();
    for paragraph in text.split("\n\n").filter(|paragraph| is_debian(paragraph)) {
        for line in paragraph.lines().filter(|line| !line.starts_with('#')) {
            let line = if line.starts_with("Types:") {
                "Types: deb-src"
            } else {
                line
            };
            list.push_str(line);
            list.push('\n');
        }
        list.push('\n');
    }
    list
}

/// From the older form: `deb [options] address suite components..`.
fn of_lines(text: &str) -> String {
    let mut list = String::new();
    for line in text
        .lines()
        .filter(|line| line.starts_with("deb ") && is_debian(line))
    {
        let options = line.find('[').zip(line.find(']'));
        let signed = options.and_then(|(from, to)| {
            let mut words = line[from + 1..to].split_whitespace();
            words.find_map(|word| word.strip_prefix("signed-by="))
        });
        let words = line[options.map_or(4, |(_, to)| to + 1)..].split_whitespace();
        let words: Vec<&str> = words.collect();
        let [address, suite, components @ ..] = words.as_slice() else {
            continue;
        };
        list.push_str(&format!(
            "Types: deb-src\nURIs: {address}\nSuites: {suite}\n"
        ));
        list.push_str(&format!("Components: {}\n", components.join(" ")));
        if let Some(key) = signed {
            list.push_str(&format!("Signed-By: {key}\n"));
        }
        list.push('\n');
    }
    list
}

/// Debian's own archives, their mirrors and derivatives have a component `main`.
fn is_debian(text: &str) -> bool {
    text.contains("debian") && text.split_whitespace().any(|word| word == "main")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_become_source_package_sources() {
        let modern = "Types: deb\n# a remark\nURIs: http://mirror.example/debian\n\
                      Suites: bookworm bookworm-updates\nComponents: main\nSigned-By: /a.gpg\n\n\
                      Types: deb\nURIs: https://vendor.example\nSuites: stable\nComponents: x\n";
        let expected = "Types: deb-src\nURIs: http://mirror.example/debian\n\
                        Suites: bookworm bookworm-updates\nComponents: main\nSigned-By: /a.gpg\n\n";
        assert_eq!(of_paragraphs(modern), expected);
        let old = "deb [arch=amd64 signed-by=/a.gpg] http://mirror.example/debian bookworm main\n\
                   # deb http://mirror.example/debian other main\n";
        let expected = "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm\n\
                        Components: main\nSigned-By: /a.gpg\n\n";
        assert_eq!(of_lines(old), expected);
    }
}
