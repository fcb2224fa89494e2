//! `curtail simulate`: figures by name, with every parameter open.

use std::{
    error::Error,
    fmt,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::ValueEnum;
use curtail_workload::quantity;

use crate::{
    cluster::{self, ClusterArgs},
    figures::{Figure, Options, figure, figures},
    parallel_points::Threads,
    report,
    rows::{Row, csv, measured, table},
};

/// Simulates a figure of a paper, in virtual time. Beside the paper's own mechanism stands what the
/// server ships of it: series `shipped` in C-4's figures, `curtail` in Minos's.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The figure; `list` names them all, `cluster` simulates whole clusters instead.
    pub figure: String,
    /// Of figures.
    #[command(flatten)]
    pub options: Options,
    /// Number of threads that simulate points; 0 means one for each processor.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Of whole clusters.
    #[command(flatten)]
    pub cluster_run: ClusterArgs,
    /// Folder with CSV files of measured rows, in the form of `--format csv`; the rows are shown
    /// beside the simulated ones as series `real-...`.
    #[arg(long)]
    pub real: Option<PathBuf>,
    /// Format of standard output.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// Folder into which NAME.csv, NAME.json and NAME.html (charts, without outside files) are
    /// written.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// Forms of output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// `figure,series,params,x,metric,value,paper`.
    Csv,
    /// A list of objects with these fields.
    Json,
}

/// Runs the command; `Err` is for a person to read. Once `stop` is set no further point is begun,
/// and what was simulated is printed and written, marked as partial.
pub fn run(args: &Args, stop: &Arc<AtomicBool>) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    args.check()?;
    let is_partial = || stop.load(Ordering::Relaxed);
    if args.figure == "list" {
        print(&list())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.figure == "cluster" {
        let threads = Threads::new(args.threads).until(stop);
        let seed = args.options.seed.unwrap_or(1);
        let nodes = args.options.nodes.first().copied();
        let (text, went_well) = cluster::simulate(&args.cluster_run, seed, nodes, &threads)?;
        print(&text)?;
        if is_partial() {
            eprintln!("{PARTIAL}");
        }
        return Ok(if went_well {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        });
    }
    let figure = figure(&args.figure)?;
    let mut rows = figure.rows(&args.options, &Threads::new(args.threads).until(stop))?;
    // Files of a part have names of their own, so that they replace no whole one.
    let (part, mark) = match is_partial() {
        true => (".partial", PARTIAL),
        false => ("", ""),
    };
    if let Some(folder) = &args.real {
        rows.extend(real(folder, figure.name, &rows)?);
    }
    let json = || serde_json::to_string_pretty(&rows);
    if let Some(folder) = &args.out {
        let write = |ending: &str, text: String| {
            let path = folder.join(format!("{}{part}.{ending}", figure.name));
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        write("csv", csv(&rows))?;
        write("json", json()?)?;
        write(
            "html",
            report::html(
                figure,
                format!("{} {mark}", args.command()).trim_end(),
                &rows,
            ),
        )?;
    }
    match args.format {
        Format::Table => print(&format!("{}\n\n{}", heading(figure, args), table(&rows)))?,
        Format::Csv => print(&csv(&rows))?,
        Format::Json => print(&(json()? + "\n"))?,
    }
    if is_partial() {
        eprintln!("{PARTIAL}");
    }
    Ok(ExitCode::SUCCESS)
}

/// What was simulated when somebody stopped it.
const PARTIAL: &str = "PARTIAL: ended early; points that were not simulated are missing, and \
                       numbers that compare points compare those that were";

impl Args {
    /// `list` takes no options, `cluster` its own, and figures none of `cluster`'s; what a figure
    /// takes it says itself.
    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let of_cluster = self.cluster_run.given();
        let (name, taken): (&str, &[&str]) = match self.figure.as_str() {
            "list" => ("list", &[]),
            "cluster" => ("cluster", &["--seed", "--nodes"]),
            other => match of_cluster.first() {
                Some(flag) => {
                    return Err(format!("{other} does not take {flag}; cluster does").into());
                }
                None => return Ok(()),
            },
        };
        let mut given: Vec<&str> = self.options.choices().into_iter().collect();
        let of_report = [
            ("--series", !self.options.series.is_empty()),
            ("--real", self.real.is_some()),
            ("--out", self.out.is_some()),
            ("--format", self.format != Format::Table),
        ];
        given.extend(
            of_report
                .iter()
                .filter(|(_, given)| *given)
                .map(|(flag, _)| flag),
        );
        if name == "list" {
            given.extend(&of_cluster);
        }
        if let Some(flag) = given.iter().find(|flag| !taken.contains(flag)) {
            return Err(format!("{name} does not take {flag}").into());
        }
        if self.options.nodes.len() > 1 {
            return Err(format!("{name} takes one --nodes, not a list").into());
        }
        Ok(())
    }

    /// The command line that gives these rows again.
    fn command(&self) -> String {
        let mut words = vec![format!("curtail simulate {}", self.figure)];
        words.extend(self.options.words());
        let real = self.real.iter();
        words.extend(real.map(|path| format!("--real {}", path.display())));
        words.join(" ")
    }
}

/// The figure's rows in a folder's CSV files, in the order of their names.
fn real(folder: &Path, figure: &'static str, known: &[Row]) -> Result<Vec<Row>, String> {
    let named = |path: &Path, error: &dyn fmt::Display| format!("{}: {error}", path.display());
    let entries = std::fs::read_dir(folder).map_err(|error| named(folder, &error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "csv"));
    paths.sort();
    let mut rows = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| named(&path, &error))?;
        let found = measured(&text, figure, known).map_err(|error| named(&path, &error))?;
        rows.extend(found);
    }
    Ok(rows)
}

fn heading(figure: &Figure, args: &Args) -> String {
    let Figure { title, about, .. } = figure;
    format!("{title}\n{about}\nx: {}. {}", figure.x, args.command())
}

fn list() -> String {
    let mut text = String::new();
    for figure in figures() {
        let series = figure.series;
        text += &format!(
            "{:18} {}\n{:18} series: {series}\n{:18} takes: {}\n",
            figure.name,
            figure.title,
            "",
            "",
            figure.takes()
        );
    }
    text
}

/// A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// What one of several values is called on the command line.
pub(crate) fn name_of<T: ValueEnum>(value: &T) -> String {
    let name = value.to_possible_value();
    name.map_or_else(String::new, |name| name.get_name().into())
}

/// `200000`, `200k`, `5m`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let count = quantity::count(text)?;
    let fits = (1..=1_000_000_000_000).contains(&count);
    fits.then_some(count)
        .ok_or_else(|| format!("{text:?} is not 1 to 10^12"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::try_parse_from(line.split(' ')).unwrap().args
    }

    #[test]
    fn lists_are_lists_and_the_command_says_them_again() {
        let args = args("x c4-fig3 --writes 50,75 --cores 4,8 --requests 20k --rules paper");
        let options = &args.options;
        assert_eq!(
            (&options.writes, &options.cores),
            (&vec![50.0, 75.0], &vec![4, 8])
        );
        let again = "curtail simulate c4-fig3 --cores 4,8 --writes 50,75 \
                     --requests 20000 --rules paper";
        assert_eq!(args.command(), again);
    }

    #[test]
    fn counts_have_units() {
        for (text, number) in [
            ("7", 7),
            ("200k", 200_000),
            ("0.5M", 500_000),
            ("2g", 2_000_000_000),
        ] {
            assert_eq!(count(text), Ok(number));
        }
        for text in ["", "0", "-1", "1.5", "k", "1kk", "nan", "9999g"] {
            assert!(count(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_does_not_exist_is_told() {
        let threads = Threads::new(1);
        assert!(
            figure("c4-fig5")
                .unwrap_err()
                .to_string()
                .contains("c4-fig3")
        );
        let fig3 = figure("c4-fig3").unwrap();
        for line in [
            "--series none",
            "--load 0",
            "--writes 101",
            "--cores 0",
            "--cores 300",
            "--limit 10",
            "--writes 5,5",
        ] {
            let options = args(&format!("x c4-fig3 {line}")).options;
            let refused = fig3.rows(&options, &threads).unwrap_err().to_string();
            let (flag, _) = line.split_once(' ').unwrap();
            assert!(refused.contains("c4-fig3"), "{line}: {refused}");
            let names = flag == "--series" || refused.contains(flag) && refused.contains("--depth");
            assert!(names, "{line}: {refused}");
        }
    }

    /// Goal: the guide's commands are taken. Method: every line of it that is one.
    #[test]
    fn the_guides_commands_are_taken() {
        let guide = include_str!("../../../docs/guide/simulate.md");
        let commands = guide
            .lines()
            .filter(|line| line.starts_with("curtail simulate "));
        let mut taken = 0;
        for line in commands {
            let line = line.trim_start_matches("curtail simulate");
            let args = args(&format!("x{line}"));
            args.check().unwrap();
            if let Ok(figure) = figure(&args.figure) {
                let checked = figure.check(&args.options, &figure.series_names());
                assert_eq!(checked, Ok(()), "{line}");
                taken += 1;
            }
        }
        assert!(taken > 9, "{taken} commands");
    }

    /// Goal: `list` and `cluster` take what is theirs, and figures nothing that is `cluster`'s.
    #[test]
    fn options_of_others_are_refused() {
        for line in [
            "x list --cores 4",
            "x cluster --cores 4",
            "x cluster --nodes 3,5",
            "x cluster --out somewhere",
            "x c4-fig3 --runs 3",
            "x c4-fig3 --mutant early-valid",
        ] {
            let Ok(line) = Line::try_parse_from(line.split(' ')) else {
                continue;
            };
            assert!(line.args.check().is_err(), "{:?}", line.args);
        }
        assert!(
            args("x cluster --nodes 3 --seed 2 --runs 1")
                .check()
                .is_ok()
        );
    }
}
