//! `curtail top`: shows what a server does, refreshed on a terminal or as one report.
//!
//! ```text
//!   server <-- stats --- sampler --- samples --+
//!                          ^                   v
//!              terminal -- | -- keys ------> screen --- draw --> terminal
//!                          +--- orders ---------+
//! ```
//!
//! Two samples make a view (`rates`), a view makes panels of text (`panels`), and those are drawn
//! or printed. Only the sampler waits for the server, so keys are answered while it is gone.

pub(crate) mod address;
pub(crate) mod connection;
mod draw;
mod event_loop;
mod histogram;
mod history;
pub(crate) mod number_format;
mod panels;
mod rates;
mod report;
pub(crate) mod reported_cluster;
mod sample;
mod sampler;
mod screen_state;
mod terminal;
mod watched_keys;

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Args;
use curtail_client::memcached::Login;

use self::{
    address::Address, connection::Connection, history::History, rates::View, report::Report,
    sample::Sample, watched_keys::HotKeys,
};
use crate::{ranged_numbers, tier};

/// Options of `curtail top`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The server: HOST, HOST:PORT or the path of a Unix socket
    #[arg(value_name = "SERVER", default_value = "127.0.0.1:11211")]
    server: Address,
    /// File of a cache tier: show its switch, cache nodes and back ends instead of a server
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "keys", "user"])]
    tier_file: Option<PathBuf>,
    /// Seconds between two samples, from 0.1
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print one report after one interval; the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
    /// Print one report as JSON
    #[arg(long)]
    json: bool,
    /// Show the hottest keys by the command `watch`, for a tenth of a second of each interval; this
    /// slows the server down
    #[arg(short, long)]
    keys: bool,
    /// Name to log in with, if the server requires a login (-Y)
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
}

/// Whom to ask, and as whom.
#[derive(Clone, Debug)]
struct Target {
    address: Address,
    login: Option<Login>,
}

/// Shows a server until the user has seen enough, or once.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(path) = &options.tier_file {
        if options.once || options.json || !std::io::stdout().is_terminal() {
            tier::show_status(path, options.json)?;
        } else {
            tier::watch_status(path, options.interval)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let target = Target {
        address: options.server.clone(),
        login: login(options)?,
    };
    if options.once || options.json || !std::io::stdout().is_terminal() {
        return once(&target, options);
    }
    event_loop::run(target, options.interval, options.keys)
}

fn once(target: &Target, options: &Options) -> Result<ExitCode> {
    let report = observe(target, options)
        .with_context(|| format!("reading the statistics of {}", target.address))?;
    let text = match options.json {
        true => report.json()?,
        false => report.text(),
    };
    // A reader that has seen enough, such as `head`, is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Two samples, one interval apart.
fn observe(target: &Target, options: &Options) -> Result<Report> {
    let start = Instant::now();
    let mut connection = Connection::open(&target.address, target.login.as_ref())?;
    let mut history = History::default();
    let before = Sample::take(&mut connection, start.elapsed())?;
    history.add(&View::between(None, &before));
    std::thread::sleep(options.interval);
    let now = Sample::take(&mut connection, start.elapsed())?;
    let view = View::between(Some(&before), &now);
    history.add(&view);
    let watch = || HotKeys::watch(target).map_err(|fault| fault.to_string());
    Ok(Report {
        server: target.address.to_string(),
        view,
        keys: options.keys.then(watch),
        history,
    })
}

fn login(options: &Options) -> Result<Option<Login>> {
    let (Some(user), Some(path)) = (&options.user, &options.password_file) else {
        return Ok(None);
    };
    let login = Login::from_file(user, path);
    Ok(Some(login.with_context(|| {
        format!("password file {}", path.display())
    })?))
}

fn seconds(text: &str) -> Result<Duration> {
    let seconds = ranged_numbers::number(Some(text), 0.1..=3600.0);
    seconds.map(Duration::from_secs_f64)
}
