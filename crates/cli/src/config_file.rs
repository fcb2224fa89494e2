//! `--config FILE`: the flags of `curtail serve` in TOML, under their long names.
//!
//! ```toml
//! port = 11211
//! memory-limit = 1024
//! disable-evictions = true
//! extended = ["idle_timeout=60"]
//! ```
//!
//! The file is turned into arguments that stand before those of the command line. So there is one
//! meaning of each name, one set of error messages, and the command line wins.

use std::{ffi::OsString, fs, path::Path};

use anyhow::{Context, bail};
use toml::Value;

/// `arguments` with those of the configuration file, if one is named, behind the command's name.
pub(crate) fn expand(arguments: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
    if arguments.get(1).is_none_or(|command| command != "serve") {
        return Ok(arguments);
    }
    let Some(path) = find(&arguments) else {
        return Ok(arguments);
    };
    let text = fs::read_to_string(Path::new(&path))
        .with_context(|| format!("configuration file {}", path.display()))?;
    let more =
        to_arguments(&text).with_context(|| format!("configuration file {}", path.display()))?;
    let mut expanded = arguments;
    expanded.splice(2..2, more);
    Ok(expanded)
}

fn find(arguments: &[OsString]) -> Option<OsString> {
    let mut rest = arguments.iter().skip(2);
    while let Some(argument) = rest.next() {
        if argument == "--config" {
            return rest.next().cloned();
        }
        let text = argument.to_string_lossy();
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(path.into());
        }
    }
    None
}

fn to_arguments(text: &str) -> anyhow::Result<Vec<OsString>> {
    let table: toml::Table = text.parse().context("not TOML")?;
    let mut arguments = Vec::new();
    for (name, value) in &table {
        add(&mut arguments, name, value)?;
    }
    Ok(arguments)
}

fn add(arguments: &mut Vec<OsString>, name: &str, value: &Value) -> anyhow::Result<()> {
    match value {
        Value::Boolean(true) => arguments.push(format!("--{name}").into()),
        Value::Boolean(false) => {}
        Value::Integer(number) if name == "verbose" => {
            let times = usize::try_from(*number).context("verbose: from 0 to 3")?;
            arguments.extend(std::iter::repeat_n(OsString::from("--verbose"), times));
        }
        Value::Integer(number) => arguments.push(format!("--{name}={number}").into()),
        Value::Float(number) => arguments.push(format!("--{name}={number}").into()),
        Value::String(text) => arguments.push(format!("--{name}={text}").into()),
        Value::Array(values) => {
            for value in values {
                add(arguments, name, value)?;
            }
        }
        Value::Table(_) | Value::Datetime(_) => bail!("{name}: not a kind of value that fits"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_arguments() {
        let text = "port = 7\nlisten = [\"::1\", \"127.0.0.1\"]\ndisable-cas = true\n\
                    lock-memory = false\nverbose = 2\n";
        let mut arguments = to_arguments(text).unwrap();
        arguments.sort();
        assert_eq!(
            arguments,
            [
                "--disable-cas",
                "--listen=127.0.0.1",
                "--listen=::1",
                "--port=7",
                "--verbose",
                "--verbose"
            ]
        );
        assert!(to_arguments("a = ").is_err());
        assert!(to_arguments("[a]\nb = 1").is_err());
    }

    #[test]
    fn the_file_is_found_on_the_command_line() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let found = find(&words("curtail serve -m 5 --config x.toml -v"));
        assert_eq!(found, Some("x.toml".into()));
        let found = find(&words("curtail serve --config=y.toml"));
        assert_eq!(found, Some("y.toml".into()));
        assert_eq!(find(&words("curtail serve -v")), None);
    }
}
