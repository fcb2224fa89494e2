//! The model against the queues whose latencies are known in closed form: M/M/1, M/D/1 and M/M/c.

use curtail_dispatch::pull_baselines::Binding;
use curtail_workload::{ClosedLoop, Workload};

use super::{
    Outcome, Point,
    arrivals::Arrivals,
    dispatchers::Deciders,
    outstanding_requests::Request,
    times::{Around, Times},
};

/// Service times of this mean, the same or exponentially distributed.
struct Drawn {
    exponential: Option<ClosedLoop>,
}

const MEAN_NS: u64 = 10_000;
const REQUESTS: u64 = 400_000;

impl Drawn {
    fn next(&mut self) -> u64 {
        let drawn = self.exponential.as_mut().map(|times| times.after(0));
        drawn.unwrap_or(MEAN_NS)
    }
}

impl Times for Drawn {
    fn around(&self) -> Around {
        Around::nothing()
    }

    fn read_ns(&mut self, _: usize, _: &Request, _: f64) -> u64 {
        self.next()
    }

    fn write_ns(&mut self, _: usize, _: &Request, _: f64) -> u64 {
        self.next()
    }
}

/// Reads that keep so many cores busy for this share of their time.
fn run(cores: u16, binding: Binding, busy: f64, is_exponential: bool, seed: u64) -> Outcome {
    let workload: Workload = "uniform:keys=100000,key=10,value=50,get=1".parse().unwrap();
    let rate = busy * f64::from(cores) * 1e9 / MEAN_NS as f64;
    let times = Drawn {
        exponential: is_exponential.then(|| ClosedLoop::new(MEAN_NS, seed ^ 99)),
    };
    let arrivals = Arrivals::of_workload(&workload, rate, REQUESTS, seed);
    let deciders = Deciders::bound(binding, false, cores, 1);
    Point::new(cores, arrivals, deciders, times, seed).run()
}

fn mean_ns(outcome: &Outcome) -> f64 {
    const PARTS: u32 = 4_000;
    let at = |part: u32| (f64::from(part) + 0.5) / f64::from(PARTS);
    let quantile = |part| outcome.all.quantile(at(part)).unwrap_or(0) as f64;
    (0..PARTS).map(quantile).sum::<f64>() / f64::from(PARTS)
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    let ratio = found / expected;
    assert!((0.95..1.05).contains(&ratio), "{found} is not {expected}");
}

/// A time in an M/M/1 queue is exponentially distributed; its mean is that of a service, divided by
/// the share of the time that the core is idle. Poisson arrivals that are spread at random over
/// cores make such a queue of each.
#[test]
fn one_exponential_core_is_m_m_1() {
    for (cores, busy, seed) in [(1, 0.5, 1), (1, 0.7, 2), (8, 0.7, 3)] {
        let outcome = run(cores, Binding::Early, busy, true, seed);
        let mean = MEAN_NS as f64 / (1.0 - busy);
        assert_near(mean_ns(&outcome), mean);
        for share in [0.5, 0.9, 0.99] {
            let quantile = outcome.all.quantile(share).unwrap() as f64;
            assert_near(quantile, -mean * (1.0 - share).ln());
        }
        assert_near(outcome.utilization(0), busy);
    }
}

/// Pollaczek's and Khinchine's formula for services of one length.
#[test]
fn one_core_with_equal_services_is_m_d_1() {
    for (busy, seed) in [(0.5, 4), (0.8, 5)] {
        let outcome = run(1, Binding::Early, busy, false, seed);
        let waits = busy / (2.0 * (1.0 - busy));
        assert_near(mean_ns(&outcome), MEAN_NS as f64 * (1.0 + waits));
    }
}

/// Erlang's C formula for cores that share a queue.
#[test]
fn cores_that_share_a_queue_are_m_m_c() {
    for (cores, busy, seed) in [(2_u16, 0.8, 6), (8, 0.8, 7)] {
        let outcome = run(cores, Binding::Late { hand_off: 0 }, busy, true, seed);
        let offered = busy * f64::from(cores);
        // Erlang's B by its recursion, and C from it.
        let blocked = (1..=cores).fold(1.0, |blocked, n| {
            let arriving = offered * blocked;
            arriving / (f64::from(n) + arriving)
        });
        let waiting = blocked / (1.0 - busy * (1.0 - blocked));
        let wait_ns = waiting * MEAN_NS as f64 / (f64::from(cores) * (1.0 - busy));
        assert_near(mean_ns(&outcome), MEAN_NS as f64 + wait_ns);
    }
}

/// Goal: a seed decides everything. Method: one run twice, and another seed.
#[test]
fn one_seed_is_one_outcome() {
    let histogram = |seed| run(4, Binding::EarlyStealing, 0.8, true, seed).all;
    assert!(histogram(8) == histogram(8));
    assert!(histogram(8) != histogram(9));
}
