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
//! meaning of each name, one set of error messages, and the command line wins. Each name is tried
//! alone first, so that an error says in which line of which file it is; for what only shows
//! together with other flags, [`Origins`] remembers where each name stood.

use std::{ffi::OsString, fs, ops::Range, path::Path};

use anyhow::{Context, bail};
use clap::{Command, parser::ValueSource};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Where the flags of the configuration file stand in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    file: String,
    flags: Vec<Origin>,
}

#[derive(Clone, Debug)]
struct Origin {
    /// As messages begin that are about it: `--memory-limit`, and `-m` if it has a letter.
    spelled: Vec<String>,
    name: String,
    /// The values, as they are written behind the name.
    values: Vec<String>,
    line: usize,
}

/// Arguments, and where those of the configuration file come from.
#[derive(Debug, Default)]
pub(crate) struct Expanded {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) origins: Origins,
}

/// `arguments` with those of the configuration file, if one is named, behind the command's name.
/// `cli` is the whole command line's grammar.
pub(crate) fn expand(arguments: Vec<OsString>, cli: &Command) -> anyhow::Result<Expanded> {
    let is_serve = arguments.get(1).is_some_and(|command| command == "serve");
    let Some(path) = find(&arguments).filter(|_| is_serve) else {
        return Ok(Expanded {
            arguments,
            origins: Origins::default(),
        });
    };
    let file = Path::new(&path).display().to_string();
    let text = fs::read_to_string(Path::new(&path));
    let text = text.with_context(|| format!("configuration file {file}"))?;
    let mut origins = Origins {
        file,
        flags: Vec::new(),
    };
    let more = origins.read(&text, cli)?;
    origins.leave_out_overridden(&arguments, cli);
    let mut arguments = arguments;
    arguments.splice(2..2, more);
    Ok(Expanded { arguments, origins })
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

impl Origins {
    /// The place that a message is about, if its flag comes from the file.
    pub(crate) fn place_of(&self, message: &str) -> Option<String> {
        let mut words = message.split([' ', ':']);
        let (flag, value) = (words.next()?, words.next().unwrap_or_default());
        let origin = self.flags.iter().find(|origin| {
            let is_listed = |values: &String| values.split(',').any(|one| one == value);
            origin.spelled.iter().any(|spelled| spelled == flag)
                && (origin.name != "extended" || origin.values.iter().any(is_listed))
        })?;
        Some(self.place(origin.line, &origin.name))
    }

    fn place(&self, line: usize, name: &str) -> String {
        format!("configuration file {}, line {line}, {name}", self.file)
    }

    /// The arguments that `text` stands for.
    fn read(&mut self, text: &str, cli: &Command) -> anyhow::Result<Vec<OsString>> {
        let table = DeTable::parse(text).map_err(|error| {
            let line = line_of(text, &error.span().unwrap_or_default());
            let file = &self.file;
            anyhow::anyhow!(
                "configuration file {file}, line {line}: {}",
                error.message()
            )
        })?;
        let mut entries: Vec<_> = table.get_ref().iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut arguments = Vec::new();
        for (name, value) in entries {
            let line = line_of(text, &name.span());
            let name = name.get_ref().as_ref();
            let mut own = Vec::new();
            add(&mut own, name, value)
                .and_then(|()| try_alone(name, &own, cli))
                .with_context(|| self.place(line, name))?;
            self.flags.push(Origin {
                spelled: spellings(name, cli),
                name: name.to_owned(),
                values: own
                    .iter()
                    .filter_map(|argument| Some(argument.to_str()?.split_once('=')?.1.to_owned()))
                    .collect(),
                line,
            });
            arguments.extend(own);
        }
        Ok(arguments)
    }

    /// What the command line says itself does not come from the file; of the flags that add to each
    /// other, both do.
    fn leave_out_overridden(&mut self, arguments: &[OsString], cli: &Command) {
        let Ok(matches) = cli.clone().try_get_matches_from(arguments) else {
            return;
        };
        let Some(matches) = matches.subcommand_matches("serve") else {
            return;
        };
        self.flags.retain(|origin| {
            let id = origin.name.replace('-', "_");
            let is_known = matches.try_contains_id(&id).is_ok();
            let source = is_known.then(|| matches.value_source(&id)).flatten();
            source != Some(ValueSource::CommandLine)
                || matches!(origin.name.as_str(), "extended" | "listen")
        });
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.get(..span.start).unwrap_or(text);
    before.matches('\n').count() + 1
}

fn add(
    arguments: &mut Vec<OsString>,
    name: &str,
    value: &Spanned<DeValue<'_>>,
) -> anyhow::Result<()> {
    match value.get_ref() {
        DeValue::Boolean(_) | DeValue::String(_) if name == "config" => {
            bail!("a configuration file cannot name another one")
        }
        DeValue::Boolean(true) => arguments.push(format!("--{name}").into()),
        DeValue::Boolean(false) => {}
        DeValue::Integer(number) if name == "verbose" => {
            let times = number.as_str().parse().ok().filter(|times| *times <= 3);
            let times = times.with_context(|| format!("{number} is not from 0 to 3"))?;
            arguments.extend(std::iter::repeat_n(OsString::from("--verbose"), times));
        }
        DeValue::Integer(number) => {
            let number = i128::from_str_radix(number.as_str(), number.radix())
                .ok()
                .with_context(|| format!("{number} is too large"))?;
            arguments.push(format!("--{name}={number}").into());
        }
        DeValue::Float(number) => arguments.push(format!("--{name}={number}").into()),
        DeValue::String(text) => arguments.push(format!("--{name}={text}").into()),
        DeValue::Array(values) => {
            for value in values.iter() {
                add(arguments, name, value)?;
            }
        }
        DeValue::Table(_) => bail!("the value of a flag cannot be a table"),
        DeValue::Datetime(_) => bail!("the value of a flag cannot be a date"),
    }
    Ok(())
}

/// Whether the command line's grammar takes `arguments`. For `false` they are none: then the flag
/// has to be one that takes no value.
fn try_alone(name: &str, arguments: &[OsString], cli: &Command) -> anyhow::Result<()> {
    let negated = [OsString::from(format!("--{name}"))];
    let (arguments, is_false) = match arguments {
        [] => (&negated[..], true),
        given => (given, false),
    };
    let words = ["curtail", "serve"].map(OsString::from).into_iter();
    let tried = cli
        .clone()
        .try_get_matches_from(words.chain(arguments.iter().cloned()));
    let Err(error) = tried else {
        return Ok(());
    };
    if is_false && error.kind() != clap::error::ErrorKind::UnknownArgument {
        bail!("it takes a value, not false");
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    bail!("{}", first.strip_prefix("error: ").unwrap_or(first))
}

/// How messages name a flag.
fn spellings(name: &str, cli: &Command) -> Vec<String> {
    let serve = cli.find_subcommand("serve");
    let mut arguments = serve.into_iter().flat_map(Command::get_arguments);
    let found = arguments.find(|argument| argument.get_long() == Some(name));
    let letter = found.and_then(clap::Arg::get_short);
    let mut spelled = vec![format!("--{name}")];
    spelled.extend(letter.map(|letter| format!("-{letter}")));
    spelled
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn read(text: &str) -> anyhow::Result<(Vec<OsString>, Origins)> {
        let mut origins = Origins {
            file: "x.toml".to_owned(),
            flags: Vec::new(),
        };
        let arguments = origins.read(text, &crate::Cli::command())?;
        Ok((arguments, origins))
    }

    #[test]
    fn a_file_becomes_arguments() {
        let text = "port = 7\nlisten = [\"::1\", \"127.0.0.1\"]\ndisable-cas = true\n\
                    lock-memory = false\nverbose = 2\n";
        let (arguments, _) = read(text).unwrap();
        assert_eq!(
            arguments,
            [
                "--port=7",
                "--listen=::1",
                "--listen=127.0.0.1",
                "--disable-cas",
                "--verbose",
                "--verbose"
            ]
        );
    }

    /// Goal: an error names file, line and key, and nothing is ignored in silence. Method: a file
    /// for each kind of error, with the wrong key in its second line.
    #[test]
    fn errors_name_the_file_the_line_and_the_key() {
        for (second, words) in [
            ("a = ", "line 2"),
            (
                "memory-limt = 5",
                "line 2, memory-limt: unexpected argument",
            ),
            (
                "[a]\nb = 1",
                "line 2, a: the value of a flag cannot be a table",
            ),
            ("port = true", "line 2, port: a value is required"),
            ("port = false", "line 2, port: it takes a value, not false"),
            ("no-such = false", "line 2, no-such: unexpected argument"),
            ("disable-cas = 1", "line 2, disable-cas: unexpected value"),
            ("verbose = -1", "line 2, verbose: -1 is not from 0 to 3"),
            ("threads = \"x\"", "line 2, threads: invalid value 'x'"),
            (
                "config = \"y.toml\"",
                "line 2, config: a configuration file cannot name another",
            ),
            (
                "log-level = \"loud\"",
                "line 2, log-level: invalid value 'loud'",
            ),
        ] {
            let error = read(&format!("# one\n{second}\n")).err().unwrap();
            let told = format!("{error:#}");
            assert!(
                told.starts_with("configuration file x.toml, line 2"),
                "{told}"
            );
            assert!(told.contains(words), "{second}: {told}");
        }
    }

    #[test]
    fn a_later_message_finds_its_line() {
        let text = "memory-limit = \"1k\"\nextended = [\"idle_timeout=3,size_threshold=12\"]\n";
        let (_, origins) = read(text).unwrap();
        let place = |message| origins.place_of(message);
        let at = |line, name| Some(format!("configuration file x.toml, line {line}, {name}"));
        assert_eq!(place("-m 1k: too little"), at(1, "memory-limit"));
        assert_eq!(place("--memory-limit: x"), at(1, "memory-limit"));
        assert_eq!(place("-o size_threshold=12: no"), at(2, "extended"));
        assert_eq!(place("-o size_queue=0: no"), None, "from the command line");
        assert_eq!(place("-c 0: no"), None);
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
