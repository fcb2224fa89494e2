//! What the benches of this crate share: the table that they measure, keys, pinned threads,
//! medians and a printed table.
//!
//! The machine may be shared and change its speed, so everything is measured in rounds that
//! alternate between the candidates, and medians and ratios of the same round are what is shown.

#![allow(dead_code)] // Each bench uses its part.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use curtail_workload::mix;

pub(crate) use indexed_pairs::{Indexed, SeededHash};

mod indexed_pairs;

/// Keys that are looked up or inserted at once.
pub(crate) const BATCH: usize = 32;

/// Key number `index`: a fixed bijection, so that keys are distinct and look random.
#[inline(always)]
pub(crate) fn key(index: u64) -> u64 {
    mix(index.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// The cheapest random number generator, because it runs inside what is measured: the next number
/// in `0..bound` (below 2^32).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    #[inline(always)]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        ((self.0 >> 32) * bound) >> 32
    }
}

/// Runs `work(thread)` on this many pinned threads at once; returns how long it took: by the clock
/// on the wall, or with `--clock cpu` the processor time per thread, which other programs on the
/// machine disturb less, but which leaves out waiting asleep.
pub(crate) fn timed(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let cpu_clock = option("--clock").is_some_and(|clock| clock == "cpu");
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|thread| {
                let (work, barrier) = (&work, &barrier);
                scope.spawn(move || {
                    pin(thread);
                    barrier.wait();
                    let (wall, cpu) = (Instant::now(), thread_time());
                    work(thread);
                    (wall.elapsed(), thread_time().saturating_sub(cpu))
                })
            })
            .collect();
        let times: Vec<_> = runs
            .into_iter()
            .map(|run| run.join().unwrap_or_else(|_| panic!("a thread died")))
            .collect();
        if cpu_clock {
            times.iter().map(|it| it.1).sum::<Duration>() / threads as u32
        } else {
            times.iter().map(|it| it.0).max().unwrap_or_default()
        }
    })
}

/// The same for one thread and work that may not be shared between threads.
pub(crate) fn timed_here(work: impl FnOnce()) -> Duration {
    let cpu_clock = option("--clock").is_some_and(|clock| clock == "cpu");
    let (wall, cpu) = (Instant::now(), thread_time());
    work();
    if cpu_clock {
        thread_time().saturating_sub(cpu)
    } else {
        wall.elapsed()
    }
}

/// Processor time that the calling thread has used.
fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Pins the calling thread to a core, if the system lets it.
fn pin(core: usize) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: a zeroed cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index is below the size of the set.
    unsafe { libc::CPU_SET(core % cores, &mut set) };
    // SAFETY: the set is a local of the size given. Failure leaves the thread where it is.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}

/// Millions per second.
pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64() / 1e6
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
    }
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// The value of `--name VALUE` on the command line.
pub(crate) fn option(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.next();
    arguments.next()
}

pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    option(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// A table of results: one row per candidate, one column per measurement, every round's value.
pub(crate) struct Report {
    columns: Vec<String>,
    rows: Vec<(String, Vec<Vec<f64>>)>,
}

impl Report {
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    /// Notes one value; NaN if there is none.
    pub(crate) fn add(&mut self, row: &str, column: &str, value: f64) {
        let Some(column) = self.columns.iter().position(|it| it == column) else {
            panic!("no column {column}");
        };
        let index = self
            .rows
            .iter()
            .position(|it| it.0 == row)
            .unwrap_or_else(|| {
                self.rows
                    .push((row.to_string(), vec![Vec::new(); self.columns.len()]));
                self.rows.len() - 1
            });
        self.rows[index].1[column].push(value);
    }

    /// Prints the medians, as Markdown.
    pub(crate) fn print(&self, title: &str) {
        println!("\n{title}\n\n| | {} |", self.columns.join(" | "));
        println!("|---|{}", "---|".repeat(self.columns.len()));
        for (row, values) in &self.rows {
            let cells: Vec<String> = values.iter().map(|values| show(median(values))).collect();
            println!("| {row} | {} |", cells.join(" | "));
        }
    }

    /// Prints for each column the median of the rounds' ratios of `row` to every other row.
    pub(crate) fn print_ratios(&self, row: &str) {
        let Some((_, ours)) = self.rows.iter().find(|it| it.0 == row) else {
            return;
        };
        println!("\nRatio of {row} to each (median of the rounds' ratios)\n");
        println!("| | {} |", self.columns.join(" | "));
        println!("|---|{}", "---|".repeat(self.columns.len()));
        for (name, values) in self.rows.iter().filter(|it| it.0 != row) {
            let cells: Vec<String> = values
                .iter()
                .zip(ours)
                .map(|(theirs, ours)| {
                    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
                    show(median(&ratios))
                })
                .collect();
            println!("| {name} | {} |", cells.join(" | "));
        }
    }
}

fn show(value: f64) -> String {
    if value.is_nan() {
        "-".to_string()
    } else {
        format!("{value:.2}")
    }
}
