//! Processors: which one a thread runs on, and how much of one a process has used.

use std::{collections::BTreeMap, ffi::OsString, fs, num::NonZeroU64, time::Duration};

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_setaffinity},
};

use crate::error::LoadError;

/// Pins the calling thread, and with it the processes that it starts, to one core.
pub(crate) fn pin(core: usize) -> Result<(), LoadError> {
    let doing = || format!("pinning to core {core}");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if core >= CpuSet::MAX_CPU {
        return Err(LoadError::Arguments(format!(
            "core {core} is beyond this machine's {cores}"
        )));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|error| LoadError::machine(doing())(error.into()))
}

/// Lets the process have this many connections, as far as its hard limit allows; what the limit
/// forbids shows when connecting.
pub(crate) fn allow_connections(connections: usize) {
    let limits = getrlimit(Resource::Nofile);
    let wanted = connections as u64 + FILES_BESIDE;
    if limits.current.is_some_and(|current| current < wanted) {
        let current = limits.maximum.map_or(wanted, |maximum| wanted.min(maximum));
        let raised = Rlimit {
            current: Some(current),
            ..limits
        };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Makes the calling thread's sleeps end when they are meant to: by default the kernel may lengthen
/// them by 50 us to wake several threads at once.
pub(crate) fn wake_on_time() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Files that a process has open beside its connections.
const FILES_BESIDE: u64 = 64;

/// Raises the calling thread's priority as far as it is allowed; whether it was.
pub(crate) fn prioritize() -> bool {
    rustix::process::setpriority_process(None, -20).is_ok()
}

/// How far a thread steps back for all others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StepBack {
    /// To the lowest priority.
    Last,
    /// Altogether: a thread that wakes takes the processor from it at once, and finds it as good as
    /// idle. Where all of a transfer's threads do that, it takes several times as long.
    Aside,
}

/// Has the calling thread step back; what it does would be dearer without, not wrong.
pub(crate) fn step_back(how: StepBack) {
    let _ = rustix::process::setpriority_process(None, 19);
    if how == StepBack::Aside {
        let _ = curtail_runtime::ThreadId::current().step_aside();
    }
}

/// Processor time that a process has used so far.
#[derive(Clone, Debug)]
pub(crate) struct ProcessTime {
    /// By living thread, in nanoseconds; empty where the kernel keeps no scheduler statistics.
    threads: BTreeMap<OsString, u64>,
    /// Of all threads, ended ones too, in ticks of 10 ms.
    coarse: Duration,
}

impl ProcessTime {
    pub(crate) fn of(pid: u32) -> Result<Self, LoadError> {
        let path = format!("/proc/{pid}/stat");
        let stat =
            fs::read_to_string(&path).map_err(LoadError::machine(format!("reading {path}")))?;
        let mut threads = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let statistics = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let first = statistics.split_whitespace().next();
            if let Some(ns) = first.and_then(|ns| ns.parse().ok()) {
                threads.insert(task.file_name(), ns);
            }
        }
        Ok(Self {
            threads,
            coarse: ticks(&stat),
        })
    }

    /// Time used since an earlier look: to the nanosecond, unless a thread ended in between and
    /// took its statistics with it.
    pub(crate) fn since(&self, before: &Self) -> Duration {
        let all_live = before
            .threads
            .keys()
            .all(|thread| self.threads.contains_key(thread));
        if before.threads.is_empty() || !all_live {
            return self.coarse.saturating_sub(before.coarse);
        }
        let used = self.threads.iter().map(|(thread, ns)| {
            let ns_before = before.threads.get(thread).copied().unwrap_or(0);
            ns.saturating_sub(ns_before)
        });
        Duration::from_nanos(used.sum())
    }
}

/// User and system time of a `stat` line: fields 14 and 15, behind the parenthesised name.
fn ticks(stat: &str) -> Duration {
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Resident memory of a process in bytes; `None` when it is gone.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes = line.split_whitespace().nth(1)?.parse::<u64>().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_a_name_with_blanks_and_brackets() {
        let line = "7 (a) b) S 1 7 7 0 -1 4194560 99 0 0 0 250 50 0 0 20 0 4 0 100 0";
        assert_eq!(ticks(line), Duration::from_millis(3000));
    }

    /// Goal: processor time of a busy process grows by about the time it was busy. Method: this
    /// test's own process spins for 50 ms; other tests may run beside it.
    #[test]
    fn a_busy_process_uses_time() {
        let pid = std::process::id();
        let before = ProcessTime::of(pid).unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            std::hint::black_box(start);
        }
        let used = ProcessTime::of(pid).unwrap().since(&before);
        assert!(used > Duration::from_millis(5), "{used:?}");
        assert!(resident_bytes(pid).is_some_and(|bytes| bytes > 100_000));
    }

    #[test]
    fn a_thread_that_ended_makes_the_measure_coarse() {
        let at = |threads: &[(&str, u64)], coarse_ms| ProcessTime {
            threads: threads
                .iter()
                .map(|&(name, ns)| (name.into(), ns))
                .collect(),
            coarse: Duration::from_millis(coarse_ms),
        };
        let before = at(&[("1", 5), ("2", 7)], 10);
        let more = at(&[("1", 6), ("2", 17), ("3", 100)], 20);
        assert_eq!(more.since(&before), Duration::from_nanos(111));
        let fewer = at(&[("1", 6)], 40);
        assert_eq!(fewer.since(&before), Duration::from_millis(30));
    }
}
