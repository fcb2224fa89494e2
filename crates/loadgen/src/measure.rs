//! What a run measured: counts, a histogram for each class of request, and short windows.
//!
//! Whole-run quantiles come from HDR histograms (three digits, 1 ns to 100 s), one for each
//! operation and size class. In open loop there are two of each: the latency counts from the
//! instant a request was meant to be sent, the service time from the instant it was.

mod class;
mod measurable_quantiles;
mod native;
mod windows;

use std::time::Duration;

use curtail_workload::Kind;
use hdrhistogram::{AdditionError, Histogram};
use serde::Serialize;

use self::{class::CLASSES, measurable_quantiles::us, windows::WINDOWS_MAX};
pub(crate) use self::{
    class::{Class, Operation, SIZE_LIMITS_MAX, SizeClasses},
    measurable_quantiles::{Judge, QUANTILES},
    native::NativeRecord,
    windows::{Windows, rank},
};
pub use self::{measurable_quantiles::Quantiles, native::NativeReport, windows::WindowQuantiles};
use crate::{error::LoadError, text_protocol::Reply};

/// Requests of a whole run by how they ended; `done` counts the measured time alone.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Requests answered while measuring.
    pub done: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Writes that were stored.
    pub stored: u64,
    /// Keys removed and counters changed.
    pub changed: u64,
    /// Changes that were not made, as the protocol foresees: not found, exists already.
    pub refused: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// Hits whose value had another length than was written.
    pub wrong_sizes: u64,
    /// Requests without an answer when the run ended; in closed loop, those that had waited for a
    /// second or longer.
    pub unfinished: u64,
    /// Values that were checked (`--verify`).
    pub verified: u64,
    /// Of these, values that were never written as a whole.
    pub torn: u64,
    /// Values of another key.
    pub foreign: u64,
    /// Values that had been overwritten or deleted before they were asked for.
    pub stale: u64,
}

/// What a recorder is made for.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The measured time since the run's origin.
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) window: Duration,
    pub(crate) sizes: SizeClasses,
    /// In open loop a request has an intended instant beside the one it is sent at.
    pub(crate) is_open: bool,
    /// A driver that is later than this was late.
    pub(crate) late: Duration,
}

/// One thread's measurements. Times are nanoseconds since the run's origin.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    from_ns: u64,
    to_ns: u64,
    late_limit_ns: u64,
    is_open: bool,
    sizes: SizeClasses,
    pub(crate) counts: Counts,
    classes: Vec<Option<Box<Pair>>>,
    late: Histogram<u64>,
    late_over: u64,
    /// Of small requests and of all others.
    windows: [Windows; 2],
    late_windows: Windows,
    /// What only the native protocol tells.
    pub(crate) native: Option<Box<NativeRecord>>,
}

/// The histograms of one class.
#[derive(Clone, Debug)]
struct Pair {
    class: Class,
    response: Histogram<u64>,
    /// Only in open loop.
    service: Option<Histogram<u64>>,
}

/// When a request was to be sent, was sent, and was answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Times {
    pub(crate) intended_ns: u64,
    /// 0 if it never was.
    pub(crate) sent_ns: u64,
    pub(crate) now_ns: u64,
}

/// How late the driver itself was in open loop.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Lateness {
    /// Requests whose sending was timed.
    pub count: u64,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Later than this counts as late.
    pub limit_us: f64,
    /// Share of the requests that were late.
    pub late_share: f64,
}

impl Recorder {
    pub(crate) fn new(shape: &Shape) -> Result<Self, LoadError> {
        let ns = |time: Duration| time.as_nanos() as u64;
        let (from_ns, to_ns) = (ns(shape.from), ns(shape.to));
        let window_ns = ns(shape.window).max(1);
        let count = (to_ns - from_ns).div_ceil(window_ns);
        if count > WINDOWS_MAX {
            return Err(LoadError::Arguments(format!(
                "{count} windows are more than {WINDOWS_MAX}: use longer windows"
            )));
        }
        Ok(Self {
            from_ns,
            to_ns,
            late_limit_ns: ns(shape.late),
            is_open: shape.is_open,
            sizes: shape.sizes.clone(),
            counts: Counts::default(),
            classes: vec![None; CLASSES],
            late: histogram()?,
            late_over: 0,
            windows: [(); 2].map(|()| Windows::new(window_ns, to_ns - from_ns)),
            late_windows: Windows::new(window_ns, to_ns - from_ns),
            native: None,
        })
    }

    /// Whether a time is within the measured time.
    #[inline]
    pub(crate) fn measures(&self, now_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&now_ns)
    }

    /// The class of a request that ended like this.
    #[inline]
    pub(crate) fn class(&self, operation: Operation, value_bytes: u32) -> Class {
        self.sizes.class(operation, value_bytes)
    }

    /// `requests` of one class were answered.
    #[inline]
    pub(crate) fn latency(&mut self, class: Class, times: Times, requests: u64) {
        if (self.from_ns..self.to_ns).contains(&times.now_ns) {
            self.counts.done += requests;
        }
        self.latency_only(class, times, requests);
    }

    /// A request that was not answered when the run ended: its latency is at least this.
    pub(crate) fn unfinished(&mut self, class: Class, times: Times) {
        self.counts.unfinished += 1;
        self.latency_only(class, times, 1);
    }

    fn latency_only(&mut self, class: Class, times: Times, requests: u64) {
        let intended_ns = times.intended_ns;
        if requests == 0 || !(self.from_ns..self.to_ns).contains(&intended_ns) {
            return;
        }
        let latency_ns = times.now_ns.saturating_sub(intended_ns);
        let is_open = self.is_open;
        let Some(pair) = pair(&mut self.classes[class.index()], class, is_open) else {
            return;
        };
        pair.response.saturating_record_n(latency_ns, requests);
        if let Some(service) = &mut pair.service
            && times.sent_ns > 0
        {
            let service_ns = times.now_ns.saturating_sub(times.sent_ns);
            service.saturating_record_n(service_ns, requests);
        }
        let at_ns = intended_ns - self.from_ns;
        let [small, other] = &mut self.windows;
        let windows = if class.is_small() { small } else { other };
        windows.record(at_ns, latency_ns, requests);
    }

    /// The driver sent a request, or found it waiting for a connection, this long after it was
    /// meant to be sent.
    #[inline]
    pub(crate) fn late(&mut self, intended_ns: u64, noticed_ns: u64) {
        if !(self.from_ns..self.to_ns).contains(&intended_ns) {
            return;
        }
        let late_ns = noticed_ns.saturating_sub(intended_ns);
        self.late.saturating_record(late_ns);
        self.late_over += u64::from(late_ns > self.late_limit_ns);
        self.late_windows
            .record(intended_ns - self.from_ns, late_ns, 1);
    }

    /// What a reply's first line said, against the length that was written, if it is known; returns
    /// the operation's class.
    #[inline]
    pub(crate) fn reply(
        &mut self,
        verb: Kind,
        reply: Reply,
        value_bytes: u32,
        known: bool,
    ) -> Class {
        let mut bytes = value_bytes;
        match reply {
            Reply::Hit {
                value_bytes: found, ..
            } => {
                self.counts.hits += 1;
                bytes = u32::try_from(found).unwrap_or(u32::MAX);
                self.counts.wrong_sizes += u64::from(known && bytes != value_bytes);
            }
            Reply::Miss => self.counts.misses += 1,
            Reply::Done if verb.has_value() => self.counts.stored += 1,
            Reply::Done => self.counts.changed += 1,
            Reply::Refused => self.counts.refused += 1,
            Reply::Error => self.counts.errors += 1,
        }
        self.class(Operation::of(verb, reply), bytes)
    }

    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), LoadError> {
        self.merged(other).map_err(odd)
    }

    fn merged(&mut self, other: &Self) -> Result<(), AdditionError> {
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            join(mine, theirs, |mine, theirs| mine.merge(theirs))?;
        }
        self.late.add(&other.late)?;
        self.late_over += other.late_over;
        for (mine, theirs) in self.windows.iter_mut().zip(&other.windows) {
            mine.merge(theirs)?;
        }
        self.late_windows.merge(&other.late_windows)?;
        self.counts.merge(&other.counts);
        let native = &mut self.native;
        join(native, &other.native, |mine, theirs| mine.merge(theirs))
    }

    /// Every class that occurred, with its name, size class, latencies and service times.
    pub(crate) fn classes(&self) -> impl Iterator<Item = Recorded<'_>> {
        self.classes.iter().flatten().map(|pair| Recorded {
            operation: pair.class.operation,
            size: self.sizes.name(pair.class),
            response: &pair.response,
            service: pair.service.as_ref(),
        })
    }

    /// Latencies, or service times, of the classes for which `choose` says yes, as one histogram.
    pub(crate) fn sum(
        &self,
        service: bool,
        choose: impl Fn(Operation) -> bool,
    ) -> Result<Histogram<u64>, LoadError> {
        let mut sum = histogram()?;
        for recorded in self.classes().filter(|class| choose(class.operation)) {
            let own = match (service, recorded.service) {
                (true, Some(service)) => service,
                _ => recorded.response,
            };
            sum.add(own).map_err(odd)?;
        }
        Ok(sum)
    }

    /// What is known about the run's own faults.
    pub(crate) fn judge(&self, contain_lateness: bool) -> Judge<'_> {
        let responses = self.classes().map(|class| class.response.len());
        let all: u64 = responses.sum();
        Judge {
            late: &self.late,
            unanswered: self.counts.unfinished as f64 / all.max(1) as f64,
            contain_lateness,
        }
    }

    /// How late the driver was with every request, in nanoseconds; empty in closed loop.
    pub(crate) fn late_histogram(&self) -> &Histogram<u64> {
        &self.late
    }

    pub(crate) fn lateness(&self) -> Lateness {
        if self.late.is_empty() {
            return Lateness::default();
        }
        let at = |quantile| us(self.late.value_at_quantile(quantile));
        Lateness {
            count: self.late.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(self.late.max()),
            limit_us: us(self.late_limit_ns),
            late_share: self.late_over as f64 / self.late.len() as f64,
        }
    }

    /// The quantiles of the windows; `closed_ns` is how long a closed loop ran.
    pub(crate) fn window_quantiles(&self, closed_ns: Option<u64>) -> WindowQuantiles {
        self.all_windows().quantiles(&self.late_windows, closed_ns)
    }

    /// A quantile of every window, in microseconds, with the window's middle in seconds.
    pub(crate) fn window_each(&self, quantile: f64) -> Vec<(f64, f64)> {
        self.all_windows().each(quantile)
    }

    /// The same for small requests, those without a value or with one of the lowest size class, and
    /// for all others, where windows with a single latency count, too.
    pub(crate) fn window_each_by_size(&self, quantile: f64) -> [Vec<(f64, f64)>; 2] {
        let [small, other] = &self.windows;
        [small.each(quantile), other.each_of(quantile, 1)]
    }

    fn all_windows(&self) -> Windows {
        let [small, other] = &self.windows;
        let mut all = small.clone();
        // They grow as they need to.
        let _ = all.merge(other);
        all
    }

    /// The same of the driver's lateness.
    pub(crate) fn late_each(&self, quantile: f64) -> Vec<(f64, f64)> {
        self.late_windows.each(quantile)
    }
}

/// What was recorded of one class.
#[derive(Clone, Debug)]
pub(crate) struct Recorded<'a> {
    pub(crate) operation: Operation,
    pub(crate) size: String,
    pub(crate) response: &'a Histogram<u64>,
    pub(crate) service: Option<&'a Histogram<u64>>,
}

impl Counts {
    fn merge(&mut self, more: &Self) {
        self.done += more.done;
        self.hits += more.hits;
        self.misses += more.misses;
        self.stored += more.stored;
        self.changed += more.changed;
        self.refused += more.refused;
        self.errors += more.errors;
        self.wrong_sizes += more.wrong_sizes;
        self.unfinished += more.unfinished;
        self.verified += more.verified;
        self.torn += more.torn;
        self.foreign += more.foreign;
        self.stale += more.stale;
    }
}

impl Pair {
    fn merge(&mut self, other: &Self) -> Result<(), AdditionError> {
        self.response.add(&other.response)?;
        match (&mut self.service, &other.service) {
            (Some(mine), Some(theirs)) => mine.add(theirs),
            _ => Ok(()),
        }
    }
}

/// Takes what another thread has, or adds it to what there is.
fn join<T: Clone>(
    mine: &mut Option<T>,
    theirs: &Option<T>,
    add: impl FnOnce(&mut T, &T) -> Result<(), AdditionError>,
) -> Result<(), AdditionError> {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) => add(mine, theirs),
        (mine @ None, Some(theirs)) => {
            *mine = Some(theirs.clone());
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

fn odd(_: AdditionError) -> LoadError {
    LoadError::Arguments("histograms of different shape".into())
}

/// The histograms of a class, made when it first occurs.
fn pair(slot: &mut Option<Box<Pair>>, class: Class, is_open: bool) -> Option<&mut Pair> {
    if slot.is_none() {
        let response = histogram().ok()?;
        let service = if is_open { histogram().ok() } else { None };
        *slot = Some(Box::new(Pair {
            class,
            response,
            service,
        }));
    }
    slot.as_deref_mut()
}

fn histogram() -> Result<Histogram<u64>, LoadError> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3)
        .map_err(|error| LoadError::Arguments(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn shape() -> Shape {
        let ms = Duration::from_millis;
        Shape {
            from: ms(100),
            to: ms(200),
            window: ms(20),
            sizes: SizeClasses::new(&[1400]).unwrap(),
            is_open: true,
            late: ms(1),
        }
    }

    fn times(intended_ns: u64, now_ns: u64) -> Times {
        Times {
            intended_ns,
            sent_ns: intended_ns + 1000,
            now_ns,
        }
    }

    #[test]
    fn only_what_falls_into_the_measured_time_counts() {
        let mut recorder = Recorder::new(&shape()).unwrap();
        let get = recorder.class(Operation::GetHit, 10);
        let set = recorder.class(Operation::Change(Kind::Set), 10);
        recorder.latency(get, times(99 * MS, 101 * MS), 1); // meant before, done within
        recorder.latency(get, times(150 * MS, 150 * MS + 5000), 3);
        recorder.latency(set, times(199 * MS, 201 * MS), 1); // meant within, done after
        recorder.unfinished(get, times(180 * MS, 280 * MS));
        let all = recorder.sum(false, |_| true).unwrap();
        let gets = recorder
            .sum(false, |operation| operation == Operation::GetHit)
            .unwrap();
        assert_eq!(recorder.counts.done, 4);
        assert_eq!((all.len(), gets.len()), (5, 4));
        assert_eq!(recorder.counts.unfinished, 1);
        assert!(us(all.max()) > 99_000.0);
        assert!((recorder.judge(true).unanswered - 0.2).abs() < 1e-9);
    }

    #[test]
    fn service_time_counts_from_the_real_sending() {
        let mut recorder = Recorder::new(&shape()).unwrap();
        let class = recorder.class(Operation::Change(Kind::Set), 5000);
        recorder.latency(class, times(150 * MS, 150 * MS + 5000), 1);
        let recorded: Vec<Recorded<'_>> = recorder.classes().collect();
        let [only] = recorded.as_slice() else {
            panic!("{recorded:?}");
        };
        assert_eq!(
            (only.operation, only.size.as_str()),
            (Operation::Change(Kind::Set), "above 1400 B")
        );
        assert!(only.response.max() >= 5000 && only.response.max() < 5010);
        let service = only.service.unwrap().max();
        assert!((4000..4005).contains(&service), "{service}");
    }

    #[test]
    fn threads_add_up() {
        let (mut one, mut two) = (
            Recorder::new(&shape()).unwrap(),
            Recorder::new(&shape()).unwrap(),
        );
        let (value_bytes, token) = (3, 0);
        let hit = Reply::Hit { value_bytes, token };
        let class = two.reply(Kind::Get, hit, 4, true);
        one.latency(class, times(110 * MS, 111 * MS), 60);
        two.latency(class, times(112 * MS, 114 * MS), 60);
        two.latency(class, times(170 * MS, 171 * MS), 200);
        two.late(170 * MS, 172 * MS);
        two.late(170 * MS, 170 * MS);
        two.late(90 * MS, 99 * MS); // while warming up
        one.merge(&two).unwrap();
        assert_eq!(one.sum(false, |_| true).unwrap().len(), 320);
        assert_eq!(one.window_quantiles(None).count, 2);
        assert_eq!((one.counts.hits, one.counts.wrong_sizes), (1, 1));
        let lateness = one.lateness();
        assert_eq!((lateness.count, lateness.late_share), (2, 0.5));
    }

    #[test]
    fn too_many_windows_are_refused() {
        let shape = Shape {
            to: Duration::from_secs(10_000),
            ..shape()
        };
        assert!(Recorder::new(&shape).is_err());
    }
}
