//! The command line of `curtail bench`, and what it asks for.

use std::{path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use clap::Args;
use curtail_client::WhenFull;
use curtail_client::memcached::Login;
use curtail_workload::quantity;
use curtail_workload::{Arrivals, Catalogue, Mix, Phases, Popularity, Workload, WorkloadError};

use super::{
    rate_range::{Range, Sweep},
    slo::Slo,
};
use crate::{
    drive::{Pace, Plan, Session, Stall},
    error::LoadError,
    recorded_trace::Recording,
    request_source::{Load, Marking, Source},
    stop::Stop,
    text_protocol::Protocol,
};

/// One run, or each of several.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Server to measure, [LABEL=]HOST:PORT; repeat the flag to measure several alternately and
    /// show them together. For a cluster, give its nodes as one server: HOST:PORT+HOST:PORT.
    #[arg(long, default_value = "127.0.0.1:11211", help_heading = "Servers")]
    pub target: Vec<Target>,
    /// Protocol to speak.
    #[arg(long, value_enum, default_value = "meta", help_heading = "Servers")]
    pub protocol: Protocol,
    /// User to log in as, for a server with -Y.
    #[arg(long, requires = "password_file", help_heading = "Servers")]
    pub user: Option<String>,
    /// File whose first line is the password.
    #[arg(long, value_name = "FILE", requires = "user", help_heading = "Servers")]
    pub password_file: Option<PathBuf>,
    /// Native protocol: which writes are marked, so that they complete when they are accepted.
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "sets",
        help_heading = "Servers"
    )]
    pub mark: Marking,
    /// Native protocol: after a refusal because a queue was full, send no writes to this queue for
    /// this many microseconds. Without the flag, the pause is random, and after it the client keeps
    /// fewer writes to this queue outstanding.
    #[arg(long, value_name = "US", help_heading = "Servers")]
    pub when_full_pause_us: Option<u64>,
    /// Process id of the server, to measure its processor time; give one for each target, and
    /// PID+PID for a cluster.
    #[arg(long, value_name = "PID", help_heading = "Servers")]
    pub server_pid: Vec<Processes>,

    /// Workload by name (etc:p-large=0.25, zipf:0.99, ycsb-a, twitter:cluster12, ..) or a file with
    /// a recorded trace.
    #[arg(long, value_name = "NAME|FILE", help_heading = "Load")]
    pub workload: Option<String>,
    /// Table of Twitter's clusters (CSV), for the workload twitter:NAME.
    #[arg(long, value_name = "FILE", help_heading = "Load")]
    pub clusters: Option<PathBuf>,
    /// Number of keys [default: 1000000, or the workload's].
    #[arg(long, value_parser = quantity::count_from_1, help_heading = "Load")]
    pub keys: Option<u64>,
    /// Length of keys in bytes [default: 16, or the workload's].
    #[arg(long, help_heading = "Load")]
    pub key_bytes: Option<usize>,
    /// Lengths of values in bytes: 64, or 64..1400, or with shares of the keys:
    /// 64..1400@0.995+500000@0.005 [default: 64, or the workload's].
    #[arg(long, help_heading = "Load")]
    pub value_bytes: Option<String>,
    /// Share of reads; the rest are sets [default: 0.95, or the workload's].
    #[arg(long, help_heading = "Load")]
    pub get_ratio: Option<f64>,
    /// Zipf exponent of key popularity; 0 is uniform [default: 0.99, or the workload's].
    #[arg(long, help_heading = "Load")]
    pub zipf: Option<f64>,
    /// Store every key once before the runs.
    #[arg(long, help_heading = "Load")]
    pub preload: bool,
    /// Maximum number of keys that --preload stores a second, for a server that needs time to move
    /// them to a disk (not with --protocol native).
    #[arg(long, value_name = "KEYS", value_parser = quantity::positive, help_heading = "Load")]
    pub preload_rate: Option<f64>,
    /// After a read that misses, store the key, as a cache's client does.
    #[arg(long, help_heading = "Load")]
    pub fill: bool,
    /// Write values that contain their key, version and a pattern, and check every value read.
    #[arg(long, help_heading = "Load")]
    pub verify: bool,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// Offered load in requests a second (open loop), one run for each number: 50k,100k,200k.
    /// Without it every connection sends its next request after a reply (closed loop).
    #[arg(long, value_delimiter = ',', value_parser = quantity::positive, help_heading = "Pace")]
    pub rate: Vec<f64>,

    /// Number of connections; with the native protocol, of sessions [default: 50; native: 1 for
    /// each thread].
    #[arg(long, help_heading = "Driver")]
    pub connections: Option<usize>,
    /// Number of threads that send requests.
    #[arg(long, default_value_t = 1, help_heading = "Driver")]
    pub threads: usize,
    /// Maximum outstanding requests on a connection [default: 1; native: 32].
    #[arg(long, help_heading = "Driver")]
    pub pipeline: Option<usize>,
    /// Prepare this many requests for each thread in advance, and compute the number of replies
    /// from the bytes received instead of parsing them, so that the load generator is faster than
    /// the server (closed loop only).
    #[arg(
        long,
        value_name = "REQUESTS",
        num_args = 0..=1,
        default_missing_value = "1000000",
        help_heading = "Driver"
    )]
    pub pregenerated: Option<usize>,
    /// Cores to which the threads that send requests are pinned: the first thread to the first
    /// core, and so on.
    #[arg(long, value_delimiter = ',', help_heading = "Driver")]
    pub pin: Vec<usize>,
    /// Poll without sleeping, for exact latencies on a dedicated core.
    #[arg(long, help_heading = "Driver")]
    pub spin: bool,
    /// Seconds over which the opening of connections is spread.
    #[arg(long, default_value_t = 0.0, help_heading = "Driver")]
    pub ramp: f64,

    /// Seconds measured in each run.
    #[arg(long, default_value_t = 5.0, help_heading = "Measuring")]
    pub duration: f64,
    /// Seconds of warm-up before each run.
    #[arg(long, default_value_t = 1.0, help_heading = "Measuring")]
    pub warm_up: f64,
    /// Boundaries between size classes of requests, in bytes of the value.
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "1400,65536",
        help_heading = "Measuring"
    )]
    pub size_classes: Vec<u32>,
    /// A request counts as late if it is sent more than this many microseconds after its due time.
    #[arg(
        long,
        value_name = "US",
        default_value_t = 100.0,
        help_heading = "Measuring"
    )]
    pub late_us: f64,
    /// Stops the driver once, AT:LENGTH in seconds, to see that it notices.
    #[arg(long, hide = true, value_name = "AT:LENGTH")]
    pub stall: Option<String>,

    /// Folder into which an HTML page, JSON and HDR histograms are written.
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub report: Option<PathBuf>,
}

/// Several runs, and what is reported of them.
#[derive(Clone, Debug, Args)]
pub struct SeriesArgs {
    /// Store every key once and do nothing else.
    #[arg(long, help_heading = "Load")]
    pub preload_only: bool,
    /// Offered loads at equal distances: 50k..400k/8 means eight runs from 50k to 400k.
    #[arg(
        long,
        value_name = "LOW..HIGH/N",
        conflicts_with = "rate",
        help_heading = "Pace"
    )]
    pub sweep: Option<Sweep>,
    /// Latency bounds, such as p99<1ms,p99.9<5ms. With --rate or --sweep each run is judged by
    /// them; otherwise the command searches for the highest rate that meets them.
    #[arg(long, value_name = "BOUNDS", help_heading = "Pace")]
    pub slo: Option<Slo>,
    /// Lowest and highest rate of the search by --slo [default: 5k..5m].
    #[arg(
        long,
        value_name = "LOW..HIGH",
        requires = "slo",
        conflicts_with_all = ["rate", "sweep"],
        help_heading = "Pace"
    )]
    pub search: Option<Range>,
    /// How often every run is made, alternating between targets; reports show medians.
    #[arg(long, default_value_t = 1, help_heading = "Measuring")]
    pub repeat: usize,
    /// Length in ms of the windows of a run, in each of which quantiles are measured, too.
    #[arg(long, default_value_t = 20.0, help_heading = "Measuring")]
    pub window_ms: f64,
    /// Print one JSON object instead of tables.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// A single run.
impl Default for SeriesArgs {
    fn default() -> Self {
        Self {
            preload_only: false,
            sweep: None,
            slo: None,
            search: None,
            repeat: 1,
            window_ms: 20.0,
            json: false,
        }
    }
}

/// A server and what it is called in reports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// A name for tables and curves.
    pub label: String,
    /// `HOST:PORT`.
    pub address: String,
    /// Those of the other nodes, if it is a cluster.
    pub other_nodes: Vec<String>,
}

/// The processes of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Processes(Vec<u32>);

/// What is to be run, ready to run it.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) targets: Vec<Target>,
    pub(super) sessions: Vec<Session>,
    pub(super) plans: Vec<Plan>,
    pub(super) paces: Vec<Pace>,
    pub(super) search: Option<Range>,
    pub(super) slo: Option<Slo>,
    pub(super) repeat: usize,
    /// Keys a second that a preload stores at most.
    pub(super) preload_rate: Option<f64>,
    pub(super) stop: Stop,
}

/// Where a search looks unless it is told.
const SEARCH: Range = Range {
    low: 5_000.0,
    high: 5_000_000.0,
};

impl Setting {
    /// The first wrong values of all targets in words.
    pub(super) fn faults(&self) -> Vec<String> {
        let pairs = self.targets.iter().zip(&self.sessions);
        pairs
            .flat_map(|(target, session)| {
                let texts = session.faults();
                texts
                    .into_iter()
                    .map(|text| format!("{}: {text}", target.label))
            })
            .collect()
    }
}

impl LoadArgs {
    pub(super) fn setting(&self, series: &SeriesArgs, stop: &Stop) -> Result<Setting, LoadError> {
        let refuse = |what: &str| Err(LoadError::Arguments(what.into()));
        if !self.server_pid.is_empty() && self.server_pid.len() != self.target.len() {
            return refuse("give one --server-pid for each --target");
        }
        if series.repeat == 0 {
            return refuse("--repeat: give at least 1");
        }
        if self.preload_rate.is_some() && self.protocol == Protocol::Native {
            return refuse("--preload-rate: not with --protocol native");
        }
        let load = self.load()?;
        let (paces, search) = self.paces(series, &load)?;
        let mut labels: Vec<&str> = self.target.iter().map(|target| &*target.label).collect();
        labels.sort_unstable();
        labels.dedup();
        if labels.len() < self.target.len() {
            return refuse("every target needs a label of its own: --target LABEL=HOST:PORT");
        }
        let plans: Vec<Plan> = self
            .target
            .iter()
            .enumerate()
            .map(|(index, target)| {
                let window = seconds(series.window_ms / 1000.0, "window")?;
                let plan = self.plan(target, self.server_pid.get(index), &load)?;
                Ok(Plan { window, ..plan })
            })
            .collect::<Result<_, LoadError>>()?;
        for plan in &plans {
            plan.check()?;
        }
        Ok(Setting {
            targets: self.target.clone(),
            sessions: plans.iter().map(|_| Session::new(stop.clone())).collect(),
            plans,
            paces,
            search,
            slo: series.slo.clone(),
            repeat: series.repeat,
            preload_rate: self.preload_rate,
            stop: stop.clone(),
        })
    }

    fn plan(
        &self,
        target: &Target,
        pids: Option<&Processes>,
        load: &Load,
    ) -> Result<Plan, LoadError> {
        let (connections, pipeline) = match self.protocol {
            Protocol::Native => (self.threads, 32),
            _ => (50, 1),
        };
        Ok(Plan {
            other_nodes: target.other_nodes.clone(),
            connections: self.connections.unwrap_or(connections),
            threads: self.threads,
            pipeline: self.pipeline.unwrap_or(pipeline),
            ramp: seconds(self.ramp, "ramp")?,
            warm_up: seconds(self.warm_up, "warm-up")?,
            duration: seconds(self.duration, "duration")?,
            pregenerated: self.pregenerated,
            cores: self.pin.clone(),
            spin: self.spin,
            seed: self.seed,
            server_pids: pids.map_or(Vec::new(), |pids| pids.0.clone()),
            late: seconds(self.late_us / 1e6, "lateness")?,
            size_limits: self.size_classes.clone(),
            when_full: match self.when_full_pause_us {
                None => WhenFull::Credits,
                Some(us) => WhenFull::NotReady(Duration::from_micros(us)),
            },
            stall: self.stall()?,
            ..Plan::new(target.address.clone(), load.clone())
        })
    }

    /// The paces of the runs, or where to search.
    fn paces(
        &self,
        series: &SeriesArgs,
        load: &Load,
    ) -> Result<(Vec<Pace>, Option<Range>), LoadError> {
        let workload = match &load.source {
            Source::Drawn(workload) => Some(workload),
            Source::Recorded(_) => None,
        };
        let arrivals = workload.map_or(Arrivals::Poisson, |workload| workload.arrivals);
        let is_constant = arrivals == Arrivals::Constant;
        let open = |rate| Pace::Open { rate, is_constant };
        let rates = match &series.sweep {
            Some(sweep) => sweep.rates(),
            None => self.rate.clone(),
        };
        let closed = match arrivals {
            Arrivals::Closed { think_ns } => Some(Pace::Closed { think_ns }),
            _ => None,
        };
        let timed = !rates.is_empty() || series.slo.is_some();
        if closed.is_some() && timed {
            return Err(LoadError::Arguments(
                "the workload is a closed loop (arrivals=closed): it has no rate".into(),
            ));
        }
        if !rates.is_empty() {
            let paces = rates.into_iter().map(|rate| open(Phases::fixed(rate)));
            return Ok((paces.collect(), None));
        }
        if series.slo.is_some() {
            return Ok((
                vec![open(Phases::fixed(1.0))],
                Some(series.search.unwrap_or(SEARCH)),
            ));
        }
        let own = workload
            .and_then(|workload| workload.rate.clone())
            .map(open);
        let pace = closed.or(own).unwrap_or(Pace::Closed { think_ns: 0 });
        Ok((vec![pace], None))
    }

    fn load(&self) -> Result<Load, LoadError> {
        let source = match &self.workload {
            Some(name) => self.named(name)?,
            None => Source::Drawn(Box::new(
                self.adjusted("zipf:0.99".parse().map_err(arguments)?)?,
            )),
        };
        Ok(Load {
            protocol: self.protocol,
            source,
            fill: self.fill,
            verify: self.verify,
            marking: self.mark,
            login: self.login()?,
        })
    }

    fn login(&self) -> Result<Option<Login>, LoadError> {
        let both = self.user.as_deref().zip(self.password_file.as_deref());
        both.map(|(user, path)| {
            let doing = format!("reading the password in {}", path.display());
            Login::from_file(user, path).map_err(LoadError::machine(doing))
        })
        .transpose()
    }

    /// A workload of the catalogue, or else a trace if there is such a file.
    fn named(&self, name: &str) -> Result<Source, LoadError> {
        let catalogue = match &self.clusters {
            None => Catalogue::new(),
            Some(path) => {
                let doing = format!("reading {}", path.display());
                let text = std::fs::read_to_string(path).map_err(LoadError::machine(doing))?;
                Catalogue::with_clusters(&text)
                    .map_err(|error| LoadError::Arguments(error.to_string()))?
            }
        };
        match catalogue.workload(name) {
            Ok(workload) => Ok(Source::Drawn(Box::new(self.adjusted(workload)?))),
            Err(WorkloadError::Name(_)) if std::path::Path::new(name).is_file() => {
                if self.has_adjustments() {
                    return Err(LoadError::Arguments(
                        "a trace has its own keys, lengths and mix: remove --keys, --key-bytes, \
                         --value-bytes, --get-ratio and --zipf"
                            .into(),
                    ));
                }
                let recording = Recording::open(name.as_ref())?;
                Ok(Source::Recorded(Arc::new(recording)))
            }
            Err(WorkloadError::NoClusters) => Err(LoadError::Arguments(
                "twitter: needs the table of clusters: --clusters FILE".into(),
            )),
            Err(error) => Err(arguments(error)),
        }
    }

    fn has_adjustments(&self) -> bool {
        self.keys.is_some()
            || self.key_bytes.is_some()
            || self.value_bytes.is_some()
            || self.get_ratio.is_some()
            || self.zipf.is_some()
    }

    /// A workload with what the command line says besides its name.
    fn adjusted(&self, mut workload: Workload) -> Result<Workload, LoadError> {
        let refuse = |what: String| LoadError::Arguments(what);
        if let Some(keys) = self.keys {
            workload.keys = keys;
        }
        if let Some(key_bytes) = self.key_bytes {
            workload.key_bytes = key_bytes;
        }
        if let Some(text) = &self.value_bytes {
            // A comma between ranges is as good as a plus.
            workload.sizes = text.replace(',', "+").parse().map_err(refuse)?;
        }
        if let Some(ratio) = self.get_ratio {
            workload.mix = Mix::get_share(ratio)
                .ok_or_else(|| refuse(format!("get ratio {ratio} is not in 0..=1")))?;
        }
        match self.zipf {
            Some(0.0) => workload.popularity = Popularity::Uniform,
            Some(exponent) => workload.popularity = Popularity::Zipf { exponent },
            None => {}
        }
        workload.check().map_err(arguments)?;
        Ok(workload)
    }

    fn stall(&self) -> Result<Option<Stall>, LoadError> {
        let Some(text) = &self.stall else {
            return Ok(None);
        };
        let number = |text: &str| text.parse::<f64>().ok();
        let pair = text.split_once(':');
        let pair = pair.and_then(|(at, length)| Some((number(at)?, number(length)?)));
        let (at, length) =
            pair.ok_or_else(|| LoadError::Arguments(format!("{text:?} is not AT:LENGTH")))?;
        Ok(Some(Stall {
            at: seconds(at, "stall")?,
            length: seconds(length, "stall")?,
        }))
    }
}

fn arguments(error: WorkloadError) -> LoadError {
    LoadError::Arguments(error.to_string())
}

fn seconds(number: f64, what: &str) -> Result<Duration, LoadError> {
    Duration::try_from_secs_f64(number)
        .map_err(|_| LoadError::Arguments(format!("{what} of {number} s")))
}

/// `[LABEL=]HOST:PORT[+HOST:PORT..]`; without a label the address is its own.
impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (label, addresses) = text.split_once('=').unwrap_or((text, text));
        let is_address = |address: &&str| {
            let port = address.rsplit_once(':').map(|(_, port)| port.parse());
            matches!(port, Some(Ok::<u16, _>(_)))
        };
        let mut addresses = addresses.split('+');
        if label.is_empty() || !addresses.clone().all(|address| is_address(&address)) {
            return Err(format!("{text:?} is not [LABEL=]HOST:PORT[+HOST:PORT..]"));
        }
        Ok(Self {
            label: label.into(),
            address: addresses.next().unwrap_or_default().into(),
            other_nodes: addresses.map(str::to_owned).collect(),
        })
    }
}

/// `PID[+PID..]`.
impl FromStr for Processes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pids: Result<_, _> = text.split('+').map(str::parse).collect();
        let refuse = |_| format!("{text:?} is not PID[+PID..]");
        pids.map(Self).map_err(refuse)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: LoadArgs,
        #[command(flatten)]
        series: SeriesArgs,
    }

    fn setting(words: &[&str]) -> Result<Setting, LoadError> {
        let words = ["bench"].iter().chain(words);
        let Command { args, series } = Command::try_parse_from(words).unwrap();
        args.setting(&series, &Stop::new())
    }

    fn drawn(setting: &Setting) -> &Workload {
        match &setting.plans[0].load.source {
            Source::Drawn(workload) => workload,
            Source::Recorded(_) => panic!("a trace"),
        }
    }

    #[test]
    fn the_default_is_a_closed_loop_on_a_zipf_workload() {
        let setting = setting(&[]).unwrap();
        let workload = drawn(&setting);
        assert_eq!((workload.keys, workload.key_bytes), (1_000_000, 16));
        assert_eq!(workload.popularity, Popularity::Zipf { exponent: 0.99 });
        assert_eq!(setting.paces, [Pace::Closed { think_ns: 0 }]);
    }

    #[test]
    fn a_workload_is_adjusted_by_what_stands_beside_it() {
        let words = [
            "--workload",
            "etc:p-large=0.25,keys=100k",
            "--zipf",
            "0",
            "--get-ratio",
            "0.5",
        ];
        let setting = setting(&words).unwrap();
        let workload = drawn(&setting);
        assert_eq!(workload.keys, 100_000);
        assert_eq!(workload.popularity, Popularity::Uniform);
        assert!((workload.mix.write_share() - 0.5).abs() < 1e-9);
        assert!(workload.large.is_some());
    }

    #[test]
    fn rates_sweeps_and_searches_are_told_apart() {
        let rates = setting(&["--rate", "50k,100k"]).unwrap();
        assert_eq!(rates.paces, [Pace::poisson(5e4), Pace::poisson(1e5)]);
        assert_eq!(setting(&["--sweep", "1k..2k/3"]).unwrap().paces.len(), 3);
        let search = setting(&["--slo", "p99<1ms", "--search", "1k..9k"]).unwrap();
        assert_eq!(search.search.map(|range| range.high), Some(9e3));
        let judged = setting(&["--slo", "p99<1ms", "--rate", "5k"]).unwrap();
        assert!(judged.search.is_none() && judged.slo.is_some());
        let own = setting(&["--workload", "zipf:rate=5k,arrivals=constant"]).unwrap();
        let is_constant = true;
        let rate = Phases::fixed(5e3);
        assert_eq!(own.paces, [Pace::Open { rate, is_constant }]);
        let thinks = setting(&["--workload", "zipf:arrivals=closed:10us"]).unwrap();
        assert_eq!(thinks.paces, [Pace::Closed { think_ns: 10_000 }]);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for words in [
            &["--target", "127.0.0.1:1", "--target", "127.0.0.1:1"][..],
            &["--server-pid", "1", "--server-pid", "2"],
            &["--workload", "nonsense"],
            &["--workload", "twitter:cluster1"],
            &["--workload", "zipf:arrivals=closed", "--rate", "5k"],
            &["--pregenerated", "--rate", "5k"],
            &["--rate", "5k", "--pregenerated", "100", "--pipeline", "200"],
            &["--verify", "--pregenerated"],
            &["--protocol", "native", "--pregenerated"],
            &["--protocol", "native", "--pipeline", "65"],
            &["--size-classes", "9,3"],
            &["--repeat", "0"],
        ] {
            // A pace is part of a plan only when it is run.
            let refused = setting(words).and_then(|setting| {
                let pace = setting.paces[0].clone();
                Plan {
                    pace,
                    ..setting.plans[0].clone()
                }
                .check()
            });
            assert!(refused.is_err(), "{words:?}");
        }
    }

    #[test]
    fn targets_have_labels() {
        let target: Target = "ours=localhost:11211".parse().unwrap();
        assert_eq!(
            (&*target.label, &*target.address),
            ("ours", "localhost:11211")
        );
        assert_eq!("h:1".parse::<Target>().unwrap().label, "h:1");
        let cluster: Target = "three=a:1+b:2+c:3".parse().unwrap();
        assert_eq!(cluster.address, "a:1");
        assert_eq!(cluster.other_nodes, ["b:2", "c:3"]);
        assert!("1+x".parse::<Processes>().is_err());
        assert_eq!("1+2".parse::<Processes>().unwrap().0, [1, 2]);
        for wrong in ["", "host", "=h:1", "h:x", "a:1+", "a:1+b"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong:?}");
        }
    }
}
