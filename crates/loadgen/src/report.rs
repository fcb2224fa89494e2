//! What a run's outcome looks like, to programs (JSON) and to people (a table).

use std::fmt::Write;

use serde::Serialize;

use crate::{
    drive::{Plan, Usage},
    measure::{Counts, Quantiles, Recorder, WindowQuantiles},
    workload::Workload,
};

/// The outcome of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was asked for.
    pub workload: Workload,
    /// Connections in all.
    pub connections: usize,
    /// Requests under way on a connection at most.
    pub pipeline: usize,
    /// Offered load in requests a second; none in closed loop.
    pub rate_offered: Option<f64>,
    /// Seconds measured.
    pub seconds: f64,
    /// Requests answered a second.
    pub rate: f64,
    /// How requests ended.
    pub counts: Counts,
    /// The server's processor time per request in nanoseconds, if its process was named.
    pub server_ns_per_request: Option<f64>,
    /// Cores that the server used.
    pub server_cores: Option<f64>,
    /// Cores that the driver used; near its number of threads, the driver was the limit.
    pub driver_cores: f64,
    /// Latency of all requests.
    pub all: Quantiles,
    /// Latency of reads.
    pub get: Quantiles,
    /// Latency of writes.
    pub set: Quantiles,
    /// How late the driver itself was in open loop.
    pub driver_lag: Quantiles,
    /// Latency by windows.
    pub windows: WindowQuantiles,
}

impl Report {
    pub(crate) fn new(plan: &Plan, recorder: &Recorder, usage: Usage) -> Self {
        let [all, get, set, driver_lag] = recorder.quantiles();
        let counts = recorder.counts.clone();
        let wall_s = usage.wall.as_secs_f64();
        let per_request =
            |time: std::time::Duration| time.as_nanos() as f64 / counts.done.max(1) as f64;
        Self {
            workload: plan.workload.clone(),
            connections: plan.connections,
            pipeline: plan.pipeline,
            rate_offered: plan.rate,
            seconds: plan.duration.as_secs_f64(),
            rate: counts.done as f64 / plan.duration.as_secs_f64(),
            server_ns_per_request: usage.server.map(per_request),
            server_cores: usage.server.map(|time| time.as_secs_f64() / wall_s),
            driver_cores: usage.driver.as_secs_f64() / wall_s,
            counts,
            all,
            get,
            set,
            driver_lag,
            windows: recorder.window_quantiles(),
        }
    }

    /// Replies that are not what a sound server gives to keys that were preloaded.
    pub fn faults(&self) -> u64 {
        self.counts.errors + self.counts.wrong_sizes
    }

    /// The report as one JSON object on one line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }

    /// The report as a table of some lines.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        let counts = &self.counts;
        let load = match self.rate_offered {
            Some(rate) => format!("open loop, {rate:.0} requests/s offered"),
            None => "closed loop".into(),
        };
        writeln!(
            text,
            "{load}; {} connections, pipeline {}, {} of {} keys, get ratio {}",
            self.connections,
            self.pipeline,
            self.workload.popularity,
            self.workload.keys,
            self.workload.get_ratio
        )?;
        writeln!(
            text,
            "{:.0} requests/s over {:.1} s; hits {}, misses {}, stored {}, errors {}, wrong sizes \
             {}, unfinished {}",
            self.rate,
            self.seconds,
            counts.hits,
            counts.misses,
            counts.stored,
            counts.errors,
            counts.wrong_sizes,
            counts.unfinished
        )?;
        if let (Some(ns), Some(cores)) = (self.server_ns_per_request, self.server_cores) {
            writeln!(
                text,
                "server {ns:.0} ns of CPU per request, {cores:.2} cores"
            )?;
        }
        writeln!(text, "driver {:.2} cores", self.driver_cores)?;
        writeln!(
            text,
            "{:<16}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            "latency, us", "count", "mean", "p50", "p90", "p99", "p99.9", "max"
        )?;
        let rows = [
            ("all", &self.all),
            ("get", &self.get),
            ("set", &self.set),
            ("driver late", &self.driver_lag),
        ];
        for (name, q) in rows.into_iter().filter(|(_, q)| q.count > 0) {
            writeln!(
                text,
                "{name:<16}{:>10}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>9.1}{:>9.1}",
                q.count, q.mean_us, q.p50_us, q.p90_us, q.p99_us, q.p999_us, q.max_us
            )?;
        }
        let w = &self.windows;
        let name = format!("{:.0} ms windows", w.window_ms);
        writeln!(
            text,
            "{name:<16}{:>10}{:>9}{:>9.1}{:>9.1}{:>9.1}{:>9}{:>9.1}",
            w.count, "", w.p50_us, w.p90_us, w.p99_us, "", w.max_us
        )?;
        writeln!(
            text,
            "windows' p99: quartiles {:.1} to {:.1} us; {:.1} % of windows stalled above 1 ms",
            w.p99_lower_quartile_us,
            w.p99_upper_quartile_us,
            100.0 * w.stalled
        )
    }
}
