//! Runs a plan: threads, connections, clocks and processor time around one of the drivers.
//!
//! ```text
//!   generated_when_due  draws each request when it is due: open or closed loop, any workload, over
//!                       streams of the text protocols or sessions of the native one
//!   pregenerated        sends blocks made beforehand and counts reply bytes: closed loop only, and
//!                       so cheap that a fast server, not the driver, is the limit
//! ```

mod arrivals;
mod framer;
mod generated_when_due;
mod native;
mod pregenerated;
mod request_accounting;
mod socket;
mod text_connections;

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use curtail_client::WhenFull;
use curtail_workload::Phases;
use serde::Serialize;

pub(crate) use self::native::store;
use self::{
    generated_when_due::Generated, native::Sessions, pregenerated::Pregenerated,
    text_connections::Streams,
};
use crate::{
    cpu::{self, ProcessTime},
    error::LoadError,
    measure::{Recorder, SIZE_LIMITS_MAX, Shape, SizeClasses},
    report::Report,
    request_source::Load,
    stop::Stop,
    terminal::Progress,
    text_protocol::Protocol,
    verify::Versions,
};

/// A driver takes the processor in turns as short as the kernel has, so that it sends when a
/// request is due and not when a server's turn ends.
const SLICE: Duration = Duration::from_micros(100);

/// Replies are awaited this long after an open loop's end. In a closed loop, what has waited so
/// long at the end was not answered.
const GRACE_NS: u64 = 1_000_000_000;

/// One run against one server.
#[derive(Clone, Debug)]
pub struct Plan {
    /// `HOST:PORT` of the server.
    pub target: String,
    /// Further nodes of the server's cluster: connections are dealt out in turn.
    pub other_nodes: Vec<String>,
    /// What is asked for.
    pub load: Load,
    /// Connections in all, spread over the threads.
    pub connections: usize,
    /// Driver threads.
    pub threads: usize,
    /// Requests under way on a connection at most.
    pub pipeline: usize,
    /// When requests are sent.
    pub pace: Pace,
    /// Time over which connections are set up, one after the other.
    pub ramp: Duration,
    /// Time before measuring starts.
    pub warm_up: Duration,
    /// Time measured.
    pub duration: Duration,
    /// Length of a window.
    pub window: Duration,
    /// Requests a thread makes in advance; `None` draws them on the go.
    pub pregenerated: Option<usize>,
    /// Cores for the threads in turn; empty leaves them free.
    pub cores: Vec<usize>,
    /// Polls without ever sleeping.
    pub spin: bool,
    /// Seed of every random choice.
    pub seed: u64,
    /// The server's processes, for their processor time; empty leaves it unknown.
    pub server_pids: Vec<u32>,
    /// A driver that sends a request later than this was late.
    pub late: Duration,
    /// Limits between size classes, in bytes of the value, ascending, at most 6.
    pub size_limits: Vec<u32>,
    /// What sessions of the native protocol make of a full queue.
    pub when_full: WhenFull,
    /// A fault of the driver's own, to see that it notices.
    pub stall: Option<Stall>,
}

/// When requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: every connection sends its next request when the last one is answered, after
    /// it has thought for this long on average.
    Closed {
        /// Nanoseconds; 0 sends at once.
        think_ns: u64,
    },
    /// Open loop: requests are sent when they are due, whatever became of those before.
    Open {
        /// Requests a second, from the start of the warm-up on.
        rate: Phases,
        /// Whether gaps are equal instead of those of a Poisson process.
        is_constant: bool,
    },
}

/// The driver's threads stop once.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// Since the start of the warm-up.
    pub at: Duration,
    /// For so long.
    pub length: Duration,
}

impl Stall {
    /// Stops this thread if it is time, once.
    fn happen(stall: &mut Option<Self>, clock: &Clock) {
        let is_due = |stall: &mut Self| clock.now_ns() >= stall.at.as_nanos() as u64;
        if let Some(stall) = stall.take_if(is_due) {
            std::thread::sleep(stall.length);
        }
    }
}

/// What all runs at one server share.
#[derive(Clone, Debug, Default)]
pub struct Session {
    stop: Stop,
    versions: Option<Arc<Versions>>,
}

/// Time shared by the threads of a run.
#[derive(Clone, Debug)]
struct Clock {
    origin: Instant,
    /// Of the origin, in nanoseconds since 1970; versions of values count in it.
    epoch_ns: u64,
    end_ns: u64,
    stop: Stop,
    /// One of the threads cannot go on.
    lost: Stop,
}

/// What a driver thread measured, and why it could not go on, if it could not.
struct Ended {
    recorder: Recorder,
    error: Option<LoadError>,
}

/// Why a run ended before its time.
#[derive(Clone, Debug, Serialize)]
pub struct Lost {
    /// Seconds since the start of the warm-up.
    pub seconds: f64,
    /// In words.
    pub reason: String,
}

/// A driver thread that is connected and ready.
type Driver = Box<dyn FnOnce(&Clock) -> Ended + Send>;

impl Session {
    /// Runs end early once `stop` is asked for.
    pub fn new(stop: Stop) -> Self {
        Self {
            stop,
            versions: Some(Arc::new(Versions::new())),
        }
    }

    /// Whether somebody asked to end early.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }

    /// The first values in words that were not what they should be.
    pub fn faults(&self) -> Vec<String> {
        self.versions
            .as_ref()
            .map_or(Vec::new(), |versions| versions.texts())
    }
}

impl Clock {
    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Whether the run is to end early, because somebody asked or another thread cannot go on.
    fn is_stopped(&self) -> bool {
        self.stop.is_asked() || self.lost.is_asked()
    }

    /// Ends the other threads too, if this one ended with an error.
    fn ended(&self, result: Result<(), LoadError>, recorder: Recorder) -> Ended {
        let error = result.err();
        if error.is_some() {
            self.lost.ask();
        }
        Ended { recorder, error }
    }
}

/// Nanoseconds since 1970; 0 before.
pub(crate) fn epoch_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

impl Pace {
    /// A Poisson process of this rate.
    pub fn poisson(rate: f64) -> Self {
        Self::Open {
            rate: Phases::fixed(rate),
            is_constant: false,
        }
    }

    /// Whether requests have an intended instant of their own.
    fn is_timed(&self) -> bool {
        !matches!(self, Self::Closed { think_ns: 0 })
    }

    /// Mean offered rate of the measured time.
    pub(crate) fn rate(&self, from: Duration, duration: Duration) -> Option<f64> {
        let Self::Open { rate, .. } = self else {
            return None;
        };
        const STEPS: u32 = 1000;
        let at = |step: u32| {
            let time = from + duration.mul_f64((f64::from(step) + 0.5) / f64::from(STEPS));
            rate.at(time.as_nanos() as u64)
        };
        Some((0..STEPS).map(at).sum::<f64>() / f64::from(STEPS))
    }
}

impl Plan {
    /// One thread that sends this load over one connection, one request at a time, for a second.
    pub fn new(target: String, load: Load) -> Self {
        Self {
            target,
            other_nodes: Vec::new(),
            load,
            connections: 1,
            threads: 1,
            pipeline: 1,
            pace: Pace::Closed { think_ns: 0 },
            ramp: Duration::ZERO,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
            window: Duration::from_millis(20),
            pregenerated: None,
            cores: Vec::new(),
            spin: false,
            seed: 1,
            server_pids: Vec::new(),
            late: Duration::from_micros(100),
            size_limits: Vec::new(),
            when_full: WhenFull::Credits,
            stall: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), LoadError> {
        self.load.check()?;
        let refuse = |what: &str| Err(LoadError::Arguments(what.into()));
        if self.threads == 0 || self.connections < self.threads || self.pipeline == 0 {
            return refuse("at least one thread, one connection a thread and a pipeline of one");
        }
        if self.load.protocol == Protocol::Native {
            if self.pregenerated.is_some() {
                return refuse("requests of the native protocol are not made in advance");
            }
            if !self.other_nodes.is_empty() {
                return refuse("a session of the native protocol has one server");
            }
            if self.pipeline > usize::from(native::SLOTS) {
                return refuse("a session of the native protocol has 64 slots: --pipeline is more");
            }
        }
        if let Some(requests) = self.pregenerated {
            if self.pace.is_timed() {
                return refuse("only a closed loop can send requests made in advance in blocks");
            }
            if self.load.verify || self.load.depends_on_replies() {
                return refuse(
                    "requests made in advance cannot depend on replies (verify, fill, cas)",
                );
            }
            if requests < self.pipeline {
                return refuse("fewer requests made in advance than one block has");
            }
        }
        if let Pace::Open { rate, .. } = &self.pace {
            let fine = |rate: &f64| rate.is_finite() && *rate >= 0.0;
            if !rate.values().iter().all(fine) || rate.max() <= 0.0 {
                return refuse("a rate must be positive");
            }
        }
        if self.duration.is_zero() {
            return refuse("a duration must be positive");
        }
        if SizeClasses::new(&self.size_limits).is_none() {
            return Err(LoadError::Arguments(format!(
                "size classes are at most {SIZE_LIMITS_MAX} lengths in ascending order"
            )));
        }
        Ok(())
    }

    pub(crate) fn recorder(&self) -> Result<Recorder, LoadError> {
        let sizes = SizeClasses::new(&self.size_limits)
            .ok_or_else(|| LoadError::Arguments("size classes out of order".into()))?;
        Recorder::new(&Shape {
            from: self.warm_up,
            to: self.warm_up + self.duration,
            window: self.window,
            sizes,
            is_open: self.pace.is_timed(),
            late: self.late,
        })
    }

    /// Connections of one thread: an even share.
    fn connections_of(&self, thread: usize) -> usize {
        self.connections * (thread + 1) / self.threads - self.connections * thread / self.threads
    }

    /// Sockets of one thread, connected one after the other over its share of the ramp.
    fn connect(
        &self,
        poller: &socket::Poller,
        thread: usize,
    ) -> Result<Vec<socket::Socket>, LoadError> {
        let count = self.connections_of(thread);
        let gap = self.ramp.div_f64(self.connections as f64);
        let connect = |index: usize| {
            if index > 0 {
                std::thread::sleep(gap);
            }
            let number = self.connections * thread / self.threads + index;
            let login = self.load.login.as_ref();
            poller
                .connect(self.node(number), login, index)
                .map_err(|error| {
                    let number = number + 1;
                    error.while_doing(&format!("connection {number} of {}", self.connections))
                })
        };
        (0..count).map(connect).collect()
    }

    /// The address for a connection.
    fn node(&self, connection: usize) -> &str {
        match connection % (self.other_nodes.len() + 1) {
            0 => &self.target,
            other => &self.other_nodes[other - 1],
        }
    }

    fn driver(&self, session: &Session, thread: usize) -> Result<Driver, LoadError> {
        if let Some(requests) = self.pregenerated {
            let driver = Pregenerated::new(self, thread, requests)?;
            return Ok(Box::new(|clock| driver.run(clock)));
        }
        Ok(match self.load.protocol {
            Protocol::Native => {
                let sessions = Sessions::open(self, thread)?;
                let driver = Generated::new(self, session, thread, sessions)?;
                Box::new(|clock| driver.run(clock))
            }
            _ => {
                let streams = Streams::open(self, thread)?;
                let driver = Generated::new(self, session, thread, streams)?;
                Box::new(|clock| driver.run(clock))
            }
        })
    }
}

/// Runs the plan and reports what it measured. Reaching a server that answers wrongly is not an
/// error here: errors, misses and wrong values are counted in the report. A server that ends is.
pub fn measure(plan: &Plan, session: &Session) -> Result<Report, LoadError> {
    let report = measure_until_lost(plan, session)?;
    match &report.lost {
        None => Ok(report),
        Some(lost) => Err(LoadError::Protocol(lost.reason.clone())),
    }
}

/// The same, with a report of what was measured until the server ended, if it did while requests
/// were under way.
pub(crate) fn measure_until_lost(plan: &Plan, session: &Session) -> Result<Report, LoadError> {
    plan.check()?;
    cpu::allow_connections(plan.connections);
    let drivers: Result<Vec<_>, _> = (0..plan.threads)
        .map(|thread| plan.driver(session, thread))
        .collect();
    let drivers = drivers?;
    let clock = Clock {
        origin: Instant::now(),
        epoch_ns: epoch_ns(),
        end_ns: (plan.warm_up + plan.duration).as_nanos() as u64,
        stop: session.stop.clone(),
        lost: Stop::new(),
    };
    let (results, usage, lost_ns) = std::thread::scope(|scope| {
        let clock = &clock;
        let start = |(thread, driver): (usize, Driver)| {
            let core = plan.cores.get(thread % plan.cores.len().max(1)).copied();
            scope.spawn(move || {
                let pinned = core.map_or(Ok(()), cpu::pin);
                // The other threads would run on to the end of the plan.
                pinned.inspect_err(|_| clock.lost.ask())?;
                cpu::wake_on_time();
                // Where the kernel has no such thing it may be later.
                let _ = curtail_runtime::set_slice(SLICE);
                Ok(driver(clock))
            })
        };
        let running: Vec<_> = drivers.into_iter().enumerate().map(start).collect();
        let ended = || running.iter().any(|thread| thread.is_finished());
        let usage = watch(plan, clock, ended);
        let lost_ns = clock.now_ns();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Ended, LoadError>>| {
            let panicked = |_| LoadError::Protocol("a driver thread panicked".into());
            thread.join().map_err(panicked)?
        };
        let results: Vec<Result<Ended, LoadError>> = running.into_iter().map(join).collect();
        (results, usage, lost_ns)
    });
    let mut total = plan.recorder()?;
    let mut error = None;
    for ended in results {
        let ended = ended?;
        total.merge(&ended.recorder)?;
        error = error.or(ended.error);
    }
    let mut report = Report::new(plan, total, usage?)?;
    match error {
        None => {}
        Some(LoadError::Overload(why)) => report.doubt("overload", why),
        Some(error) => {
            report.lost = Some(Lost {
                seconds: lost_ns as f64 / 1e9,
                reason: error.to_string(),
            });
        }
    }
    Ok(report)
}

/// Processor time that server and driver used while measuring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) server: Option<Duration>,
    pub(crate) driver: Duration,
    pub(crate) wall: Duration,
    /// When measuring began.
    pub(crate) began: Instant,
}

/// How long after its end it is noticed at most that a run has ended early.
pub(crate) const WATCH_STEP: Duration = Duration::from_millis(20);

/// Sleeps through the run and reads processor times at both ends of the measured time; returns
/// early when a driver ended or somebody asked to stop.
fn watch(plan: &Plan, clock: &Clock, ended: impl Fn() -> bool) -> Result<Usage, LoadError> {
    let progress = Progress::new("measure", 0);
    let sleep_to = |goal: Duration, doing: &str| {
        while let Some(left) = goal.checked_sub(clock.origin.elapsed()) {
            if clock.is_stopped() || ended() {
                break;
            }
            progress.text(&format!("{doing}, {:.0} s left", left.as_secs_f64()));
            std::thread::sleep(left.min(WATCH_STEP));
        }
    };
    let times = || -> Result<_, LoadError> {
        let servers = plan.server_pids.iter().map(|pid| ProcessTime::of(*pid));
        let servers: Vec<ProcessTime> = servers.collect::<Result<_, _>>()?;
        let driver = ProcessTime::of(std::process::id())?;
        Ok((servers, driver, Instant::now()))
    };
    sleep_to(plan.warm_up, "warming up");
    let before = times()?;
    sleep_to(plan.warm_up + plan.duration, "measuring");
    let after = times()?;
    progress.finish();
    let servers = after.0.iter().zip(&before.0);
    let server = servers.map(|(after, before)| after.since(before)).sum();
    Ok(Usage {
        server: (!plan.server_pids.is_empty()).then_some(server),
        driver: after.1.since(&before.1),
        wall: after.2 - before.2,
        began: before.2,
    })
}
