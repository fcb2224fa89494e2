//! Runs a plan: threads, connections, clocks and processor time around one of the two drivers.
//!
//! ```text
//!   generated      draws each request as it is sent: open or closed loop, any workload
//!   pregenerated   sends blocks made beforehand and counts reply bytes: closed loop only, and so
//!                  cheap that a fast server, not the driver, is the limit
//! ```

mod framer;
mod generated;
mod pregenerated;
mod socket;

use std::time::{Duration, Instant};

use crate::{
    cpu::{self, ProcessTime},
    error::LoadError,
    measure::Recorder,
    report::Report,
    terminal::Progress,
    workload::Workload,
};

/// One run against one server.
#[derive(Clone, Debug)]
pub struct Plan {
    /// `HOST:PORT` of the server.
    pub target: String,
    /// What is asked for.
    pub workload: Workload,
    /// Connections in all, spread over the threads.
    pub connections: usize,
    /// Driver threads.
    pub threads: usize,
    /// Requests under way on a connection at most.
    pub pipeline: usize,
    /// Offered load in requests a second (open loop); `None` keeps every connection busy.
    pub rate: Option<f64>,
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
    /// The server's process, for its processor time.
    pub server_pid: Option<u32>,
}

/// Time shared by the threads of a run.
#[derive(Clone, Copy, Debug)]
struct Clock {
    origin: Instant,
    end_ns: u64,
}

/// A driver thread that is connected and ready.
enum Driver {
    Generated(Box<generated::Generated>),
    Pregenerated(Box<pregenerated::Pregenerated>),
}

impl Clock {
    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

impl Plan {
    fn check(&self) -> Result<(), LoadError> {
        self.workload.check()?;
        let refuse = |what: &str| Err(LoadError::Arguments(what.into()));
        if self.threads == 0 || self.connections < self.threads || self.pipeline == 0 {
            return refuse("at least one thread, a connection for each, and a pipeline of 1");
        }
        if self.rate.is_some() && self.pregenerated.is_some() {
            return refuse("an open loop cannot send requests made in advance in blocks");
        }
        if self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return refuse("a rate must be positive");
        }
        if self
            .pregenerated
            .is_some_and(|requests| requests < self.pipeline)
        {
            return refuse("fewer requests made in advance than one block has");
        }
        if self.duration.is_zero() {
            return refuse("a duration must be positive");
        }
        Ok(())
    }

    fn recorder(&self) -> Result<Recorder, LoadError> {
        Recorder::new(self.warm_up, self.warm_up + self.duration, self.window)
    }

    /// Connections of one thread: an even share.
    fn connections_of(&self, thread: usize) -> usize {
        self.connections * (thread + 1) / self.threads - self.connections * thread / self.threads
    }

    fn driver(&self, thread: usize) -> Result<Driver, LoadError> {
        Ok(match self.pregenerated {
            None => Driver::Generated(Box::new(generated::Generated::new(self, thread)?)),
            Some(requests) => {
                let driver = pregenerated::Pregenerated::new(self, thread, requests)?;
                Driver::Pregenerated(Box::new(driver))
            }
        })
    }
}

/// Runs the plan and reports what it measured. Reaching a server that answers wrongly is not an
/// error here: errors, misses and wrong sizes are counted in the report.
pub fn measure(plan: &Plan) -> Result<Report, LoadError> {
    plan.check()?;
    let drivers: Result<Vec<_>, _> = (0..plan.threads)
        .map(|thread| plan.driver(thread))
        .collect();
    let clock = Clock {
        origin: Instant::now(),
        end_ns: (plan.warm_up + plan.duration).as_nanos() as u64,
    };
    let (results, usage) = std::thread::scope(|scope| {
        let start = |(thread, driver): (usize, Driver)| {
            let core = plan.cores.get(thread % plan.cores.len().max(1)).copied();
            scope.spawn(move || {
                core.map_or(Ok(()), cpu::pin)?;
                match driver {
                    Driver::Generated(driver) => driver.run(clock),
                    Driver::Pregenerated(driver) => driver.run(clock),
                }
            })
        };
        let running: Vec<_> = drivers?.into_iter().enumerate().map(start).collect();
        let usage = watch(plan, clock);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Recorder, LoadError>>| {
            let panicked = |_| LoadError::Protocol("a driver thread panicked".into());
            thread.join().map_err(panicked)?
        };
        let results: Result<Vec<Recorder>, LoadError> = running.into_iter().map(join).collect();
        Ok((results, usage))
    })?;
    let mut total = plan.recorder()?;
    for recorder in &results? {
        total.merge(recorder)?;
    }
    Ok(Report::new(plan, &total, usage?))
}

/// Processor time that server and driver used while measuring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) server: Option<Duration>,
    pub(crate) driver: Duration,
    pub(crate) wall: Duration,
}

/// Sleeps through the run and reads processor times at both ends of the measured time.
fn watch(plan: &Plan, clock: Clock) -> Result<Usage, LoadError> {
    let progress = Progress::new("measure", 0);
    let sleep_to = |goal: Duration, doing: &str| {
        while let Some(left) = goal.checked_sub(clock.origin.elapsed()) {
            progress.text(&format!("{doing}, {:.0} s left", left.as_secs_f64()));
            std::thread::sleep(left.min(Duration::from_millis(500)));
        }
    };
    let times = || -> Result<_, LoadError> {
        let server = plan.server_pid.map(ProcessTime::of).transpose()?;
        let driver = ProcessTime::of(std::process::id())?;
        Ok((server, driver, Instant::now()))
    };
    sleep_to(plan.warm_up, "warming up");
    let before = times()?;
    sleep_to(plan.warm_up + plan.duration, "measuring");
    let after = times()?;
    progress.finish();
    Ok(Usage {
        server: match (&after.0, &before.0) {
            (Some(after), Some(before)) => Some(after.since(before)),
            _ => None,
        },
        driver: after.1.since(&before.1),
        wall: after.2 - before.2,
    })
}
