//! Reference pages of flags in `docs/reference`: every flag of every command, from what clap knows.
//!
//! `cargo xtask reference` writes the pages; their tests fail while page and flags differ.

use std::{collections::HashSet, env, fmt::Write as _, fs};

use clap::{Arg, Command};

/// Holds the page against the flags of a program, or writes it if that is asked for.
pub(crate) fn check(page: &str, program: &Command) {
    let path = format!("{}/../../docs/reference/{page}", env!("CARGO_MANIFEST_DIR"));
    let mut text = format!("# Flags of {}\n{HEAD}", program.get_name());
    describe(program, "", &mut HashSet::new(), &mut text);
    if env::var_os("CURTAIL_REFERENCE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert!(kept == text, "{path}: run `cargo xtask reference`");
}

/// A command's table, and those of its subcommands; rows that stand `above` are named only.
fn describe(command: &Command, parent: &str, above: &mut HashSet<String>, page: &mut String) {
    let path = format!("{parent} {}", command.get_name());
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    let (known, new): (Vec<_>, Vec<_>) = shown.map(row).partition(|row| above.contains(row));
    if !known.is_empty() || !new.is_empty() {
        let about = command.get_about().map(ToString::to_string);
        let about = about.unwrap_or_default();
        write!(page, "\n##{path}\n\n{about}.\n\n").unwrap();
    }
    if !new.is_empty() {
        page.push_str("| flag | default | meaning |\n|---|---|---|\n");
        page.extend(new.iter().map(String::as_str));
    }
    if !known.is_empty() {
        let known = known.iter().filter_map(|row| row.split(" | ").next());
        let known: Vec<_> = known.map(|name| name.trim_start_matches("| ")).collect();
        let blank = if new.is_empty() { "" } else { "\n" };
        writeln!(page, "{blank}As above: {}.", known.join(", ")).unwrap();
    }
    if let Some(more) = command.get_after_help() {
        write!(page, "\n```text\n{more}\n```\n").unwrap();
    }
    above.extend(new);
    for subcommand in command.get_subcommands() {
        if parent.is_empty() {
            above.clear(); // the next command of the program, with flags of its own
        }
        describe(subcommand, &path, above, page);
    }
}

fn row(flag: &Arg) -> String {
    let short = flag.get_short().map(|short| format!("`-{short}`"));
    let long = flag.get_long().map(|long| format!("`--{long}`"));
    let mut name: String = [short, long]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ");
    if let Some([value, ..]) = flag.get_value_names()
        && flag.get_action().takes_values()
    {
        let _ = write!(name, " {value}");
    }
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let told = [" (default: ", " [default: "];
    let told = told.iter().find_map(|word| help.rsplit_once(word));
    let (help, told) = match told {
        Some((help, default)) => (help, default.trim_end_matches([')', ']'])),
        None => (help.as_str(), ""),
    };
    let values = flag.get_default_values().iter();
    let mut default = values
        .map(|value| value.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    if !flag.get_action().takes_values() || default.is_empty() {
        default = told.to_owned();
    }
    let choices = flag.get_possible_values();
    let choices = choices
        .iter()
        .map(|choice| format!("`{}`", choice.get_name()));
    let choices = choices.collect::<Vec<_>>().join(" ");
    let is_choice = flag.get_action().takes_values() && !choices.is_empty();
    let choices = if is_choice {
        format!(": {choices}")
    } else {
        String::new()
    };
    let cells = [name, default, format!("{help}{choices}")].map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

const HEAD: &str = "
Written by `cargo xtask reference` from the flags that the commands take; `--help` prints the same.
";
