//! Runs of the load generator, and what they say.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Asked;
use super::systems::{Store, System};
use crate::bench::bounded_processes::{MemoryGroup, MemoryUse};

/// One run.
#[derive(Clone, Copy, Default)]
pub(super) struct Run {
    /// Requests answered in a second.
    pub(super) rate: f64,
    /// Reads that found their key, of all reads.
    pub(super) hit_ratio: f64,
    /// Reads answered with a value in a second.
    pub(super) values: f64,
    /// Quantiles inside of windows, then the median over windows, in microseconds.
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
    pub(super) longest_us: f64,
    /// Processors that the server used.
    pub(super) cores: f64,
    /// Error replies.
    pub(super) errors: u64,
    /// After the run.
    pub(super) memory: MemoryUse,
}

/// How keys are drawn and when requests are sent.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) zipf: f64,
    pub(super) get_ratio: f64,
    /// Requests a second; none in a closed loop.
    pub(super) rate: Option<f64>,
    pub(super) connections: usize,
    /// Another for every run, or a run asks for the keys that the one before has left in memory.
    pub(super) seed: u64,
}

/// The load generator against one server.
pub(super) struct Driver<'a> {
    pub(super) asked: &'a Asked,
    pub(super) binary: &'a Path,
}

impl Driver<'_> {
    fn command(&self, system: System, store: &Store) -> Command {
        let Asked {
            keys,
            value_bytes,
            driver_cores,
            ..
        } = self.asked;
        let mut command =
            MemoryGroup::unlimited().command(driver_cores, &[self.binary.display().to_string()]);
        command
            .args(["bench", "--verify", "--protocol", system.protocol()])
            .args(["--target", &format!("127.0.0.1:{}", store.port)])
            .args(["--keys", &keys.to_string()])
            .args(["--value-bytes", &value_bytes.to_string()])
            .stderr(Stdio::piped());
        command
    }

    /// Stores every key.
    pub(super) fn preload(&self, system: System, store: &Store) -> Result<()> {
        let mut command = self.command(system, store);
        command.arg("--preload-only").stdout(Stdio::null());
        if system.holds_all() {
            command.args(["--preload-rate", &self.asked.preload_rate.to_string()]);
        }
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let is_whole = output.status.success() && !said.contains("refused");
        ensure!(
            is_whole,
            "{}: keys could not be stored: {said}",
            system.name()
        );
        println!("{}: every key is stored", system.name());
        Ok(())
    }

    /// One run. A client of redis stores what it missed, as a cache's client does.
    pub(super) fn run(
        &self,
        (system, store, group): (System, &Store, &MemoryGroup),
        shape: Shape,
    ) -> Result<Run> {
        let seconds = self.asked.seconds;
        let mut command = self.command(system, store);
        command
            .args(["--server-pid", &store.process().to_string(), "--json"])
            .args(["--zipf", &shape.zipf.to_string()])
            .args(["--get-ratio", &shape.get_ratio.to_string()])
            .args(["--seed", &shape.seed.to_string()])
            .args(["--connections", &shape.connections.to_string()])
            .args(["--duration", &seconds.to_string()])
            .args(["--warm-up", &self.asked.warm_up.to_string()])
            .args(["--window-ms", &WINDOW_MS.to_string()]);
        if let Some(rate) = shape.rate {
            command.args(["--rate", &rate.to_string(), "--pipeline", "16"]);
            // One that sleeps is late itself by as much as a request takes.
            command.arg("--spin");
        }
        if !system.holds_all() {
            command.arg("--fill");
        }
        let output = command.output()?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let step = &report["steps"][0];
        for wrong in ["torn", "foreign", "stale", "wrong_sizes"] {
            let count = step["counts"][wrong].as_u64();
            ensure!(
                count == Some(0),
                "{}: {wrong} values: {count:?}",
                system.name()
            );
        }
        Ok(Run::of(step, group.memory()))
    }
}

/// Long enough for 1,000 requests of the slowest system, so that each window has a p99.9.
const WINDOW_MS: u32 = 500;

impl Run {
    fn of(step: &Value, memory: MemoryUse) -> Self {
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let count = |name: &str| step["counts"][name].as_u64().unwrap_or(0);
        let (hits, misses) = (count("hits") as f64, count("misses") as f64);
        let windows = &step["windows"];
        // Of redis' requests some store what was missed.
        let all = hits + misses + count("stored") as f64 + count("errors") as f64;
        let rate = number(&step["rate"]);
        Self {
            rate,
            hit_ratio: hits / (hits + misses).max(1.0),
            values: rate * hits / all.max(1.0),
            p50_us: windows["p50_us"].as_f64(),
            p99_us: windows["p99_us"].as_f64(),
            p999_us: windows["p999_us"].as_f64(),
            longest_us: number(&step["all"]["max_us"]),
            cores: number(&step["server_cores"]),
            errors: count("errors"),
            memory,
        }
    }
}
