//! `curtail data`: looks after a data directory that no server has open.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use clap::{Args, Subcommand};
use curtail_storage::{StorageInfo, VerifyReport};

/// What is to be done with a data directory.
#[derive(Args, Debug)]
pub(crate) struct DataOptions {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Read every byte and compare every checksum; if any is wrong, fail and name the files
    Verify {
        /// The data directory
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Show what is in a data directory (reads every item)
    Info {
        /// The data directory
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Write all items as text, for `import` on this or another machine
    Export {
        /// The data directory
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// File to write; without it, standard output
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Store all items of an export; they replace items with the same keys
    Import {
        /// The data directory, created if it does not exist
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// File to read; without it, standard input
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
}

/// Carries out the task.
pub(crate) fn run(options: &DataOptions) -> anyhow::Result<ExitCode> {
    match &options.task {
        Task::Verify { dir } => Ok(report(&curtail_storage::verify(dir)?)),
        Task::Info { dir } => {
            show(&curtail_storage::info(dir, now_seconds())?)?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Export { dir, to } => export(dir, to.as_ref()),
        Task::Import { dir, from } => import(dir, from.as_ref()),
    }
}

fn report(report: &VerifyReport) -> ExitCode {
    for damage in &report.damage {
        eprintln!("damaged: {damage}");
    }
    let VerifyReport { files, records, .. } = report;
    println!("undamaged records: {records}, undamaged files: {files}");
    match report.damage.len() {
        0 => ExitCode::SUCCESS,
        count => {
            eprintln!("{count} places are damaged");
            ExitCode::FAILURE
        }
    }
}

fn show(info: &StorageInfo) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut row = |name: &str, value: u64| writeln!(out, "{name:<18}{value}");
    row("items", info.items)?;
    row("key bytes", info.key_bytes)?;
    row("value bytes", info.value_bytes)?;
    row("expired, flushed", info.gone)?;
    row("table files", info.tables)?;
    row("table bytes", info.table_bytes)?;
    row("log operations", info.log_operations)?;
    row("incomplete bytes", info.torn_bytes)?;
    row("highest CAS", info.highest_cas)?;
    row("flush at", u64::from(info.flush_at))
}

fn export(dir: &std::path::Path, to: Option<&PathBuf>) -> anyhow::Result<ExitCode> {
    let items = match to {
        None => curtail_storage::export(dir, now_seconds(), &mut io::stdout().lock())?,
        Some(path) => {
            let named = || format!("--to {}", path.display());
            let file = File::create(path).with_context(named)?;
            let mut file = BufWriter::new(file);
            let items = curtail_storage::export(dir, now_seconds(), &mut file)?;
            file.get_ref().sync_all().with_context(named)?;
            items
        }
    };
    eprintln!("items exported: {items}");
    Ok(ExitCode::SUCCESS)
}

fn import(dir: &std::path::Path, from: Option<&PathBuf>) -> anyhow::Result<ExitCode> {
    let items = match from {
        None => curtail_storage::import(dir, now_seconds(), &mut io::stdin().lock())?,
        Some(path) => {
            let file = File::open(path).with_context(|| format!("--from {}", path.display()))?;
            curtail_storage::import(dir, now_seconds(), &mut BufReader::new(file))?
        }
    };
    eprintln!("items imported: {items}");
    Ok(ExitCode::SUCCESS)
}

fn now_seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    })
}
