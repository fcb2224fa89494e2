//! The thread that samples the server once per interval, and reconnects after a failure.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use super::{
    Target,
    connection::{Connection, Fault},
    sample::Sample,
    screen_state::{News, Order},
    watched_keys::HotKeys,
};

/// Asks the server.
#[derive(Debug)]
pub(crate) struct Sampler {
    target: Target,
    connection: Option<Connection>,
    started: Instant,
    interval: Duration,
    paused: bool,
    keys: bool,
    samples: u64,
}

/// The second sample comes soon, so that there are rates at once.
const FIRST_INTERVAL: Duration = Duration::from_millis(400);
/// A server that is gone is looked for at least so often.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl Sampler {
    /// Samples `target`; looks at keys too if `keys`.
    pub(crate) fn new(target: Target, interval: Duration, keys: bool) -> Self {
        Self {
            target,
            connection: None,
            started: Instant::now(),
            interval,
            paused: false,
            keys,
            samples: 0,
        }
    }

    /// Samples until nobody wants to know.
    pub(crate) fn run(mut self, orders: &Receiver<Order>, news: &Sender<News>) {
        loop {
            let begun = Instant::now();
            if !self.paused && !self.tell(news) {
                return;
            }
            if !self.wait(begun, orders) {
                return;
            }
        }
    }

    /// Looks and tells; false when nobody listens.
    fn tell(&mut self, news: &Sender<News>) -> bool {
        let looked = self.look();
        let there = matches!(looked, News::Sampled(_));
        if news.send(looked).is_err() {
            return false;
        }
        if !self.keys || !there {
            return true;
        }
        let keys = HotKeys::watch(&self.target).map_err(|fault| fault.to_string());
        news.send(News::Keys(keys)).is_ok()
    }

    fn look(&mut self) -> News {
        match self.sample() {
            Ok(sample) => {
                self.samples += 1;
                News::Sampled(Box::new(sample))
            }
            Err(fault) => {
                self.connection = None;
                News::Gone(fault.to_string())
            }
        }
    }

    fn sample(&mut self) -> Result<Sample, Fault> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(
                &self.target.address,
                self.target.login.as_ref(),
            )?),
        };
        Sample::take(connection, self.started.elapsed())
    }

    /// Waits for the next look, and follows orders meanwhile; false when it is over.
    fn wait(&mut self, begun: Instant, orders: &Receiver<Order>) -> bool {
        loop {
            let pause = begun + self.pause();
            let left = pause.saturating_duration_since(Instant::now());
            match orders.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
                Ok(Order::Interval(interval)) => self.interval = interval,
                Ok(Order::Pause(paused)) => self.paused = paused,
                Ok(Order::Keys(keys)) => self.keys = keys,
            }
        }
    }

    fn pause(&self) -> Duration {
        match (self.connection.is_some(), self.samples) {
            (false, _) => self.interval.min(RETRY_INTERVAL),
            (true, 1) => self.interval.min(FIRST_INTERVAL),
            (true, _) => self.interval,
        }
    }
}
