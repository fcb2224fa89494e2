//! Processors: which ones this process may use, how many of them it is allowed to keep busy, and
//! pinning a thread to one.

use std::{fs, io, thread, time::Duration};

use rustix::{
    process::{getpriority_process, setpriority_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::control_group::ControlGroups;

/// The processors this process may be scheduled on, in ascending order. Empty only if the kernel
/// refuses to tell.
pub fn cpus_allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// How many processors can be kept busy: the affinity mask, or the control group's quota when
/// that is lower; at least 1.
pub fn cpus_usable() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The lowest processor quota of the process's control groups, in processors, if one is set.
pub fn quota_cpus() -> Option<f64> {
    ControlGroups::own().processor_quota()
}

/// Keeps the calling thread on processor `cpu`.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Makes the calling thread step back for others by `niceness`, 0 to 19.
pub fn lower_priority(niceness: i32) -> io::Result<()> {
    Ok(setpriority_process(None, niceness)?)
}

/// A thread, as the scheduler knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ThreadId(libc::pid_t);

impl ThreadId {
    /// The calling thread.
    pub fn current() -> Self {
        // SAFETY: takes nothing and returns an integer.
        Self(unsafe { libc::gettid() })
    }

    /// Makes the thread step back for every other that wants its processor (`SCHED_IDLE`): one that
    /// wakes takes the processor at once, and the scheduler places it as if the processor were
    /// idle. What is left is a share of 3 to 1024 where others want it all the time.
    pub fn step_aside(self) -> io::Result<()> {
        self.schedule(libc::SCHED_IDLE)
    }

    /// Gives the thread its turns among the others again, at the niceness that it had. Without
    /// privilege this takes a limit (`RLIMIT_NICE`) of 20 less that niceness.
    pub fn step_forward(self) -> io::Result<()> {
        self.schedule(libc::SCHED_OTHER)
    }

    /// Whether the thread, one of this process, runs or waits for nothing but a processor.
    pub fn is_runnable(self) -> bool {
        let text = fs::read_to_string(format!("/proc/self/task/{}/stat", self.0));
        // Its name comes before that, and may contain anything.
        let state = |text: &str| Some(text.rsplit_once(") ")?.1.starts_with('R'));
        text.is_ok_and(|text| state(&text) == Some(true))
    }

    fn schedule(self, policy: libc::c_int) -> io::Result<()> {
        let nothing = libc::sched_param { sched_priority: 0 };
        // SAFETY: `nothing` is a valid sched_param that lives through the call; a thread that is
        // gone is refused.
        match unsafe { libc::sched_setscheduler(self.0, policy, &raw const nothing) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether a thread of this process that has stepped aside may step forward again.
pub fn may_step_forward() -> bool {
    let tried = thread::spawn(|| {
        let me = ThreadId::current();
        me.step_aside().and_then(|()| me.step_forward()).is_ok()
    });
    tried.join().unwrap_or(false)
}

/// Has the calling thread take the processor in turns of `slice`, 0.1 to 100 ms, where the
/// scheduler knows such a thing (Linux 6.12 and later; others take no notice). A thread that wakes
/// with a shorter turn than the running one's does not wait for the end of that turn; with equal
/// ones it may wait for a millisecond and more, however little the running one counts. A thread
/// that was given another policy than the ordinary one keeps it.
pub fn set_slice(slice: Duration) -> io::Result<()> {
    // SAFETY: takes and returns integers; 0 names the calling thread.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return Ok(());
    }
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: getpriority_process(None)?,
        sched_priority: 0,
        sched_runtime: slice.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: `attributes` is a valid sched_attr that tells its size, and lives through the call;
    // 0 names the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_on_its_processor() {
        let pinned = thread::spawn(|| {
            let cpu = cpus_allowed()[0];
            pin_current_thread(cpu).unwrap();
            (cpu, cpus_allowed())
        });
        let (cpu, allowed) = pinned.join().unwrap();
        assert_eq!(allowed, [cpu]);
        assert!(cpus_usable() >= 1);
        assert!(pin_current_thread(1 << 20).is_err());
    }

    #[test]
    fn a_shorter_turn_leaves_the_priority_as_it_is() {
        let nice = thread::spawn(|| {
            lower_priority(7).unwrap();
            set_slice(Duration::from_micros(500)).unwrap();
            assert!(
                set_slice(Duration::MAX).is_ok(),
                "the scheduler has bounds of its own"
            );
            getpriority_process(None).unwrap()
        });
        assert_eq!(nice.join().unwrap(), 7);
    }

    #[test]
    fn who_steps_aside_has_the_policy_of_idle_threads() {
        let policies = thread::spawn(|| {
            // SAFETY: takes and returns integers; 0 names the calling thread.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            ThreadId::current().step_aside().unwrap();
            let aside = policy();
            let is_forward = ThreadId::current().step_forward().is_ok();
            (aside, is_forward, policy())
        });
        let (aside, is_forward, policy) = policies.join().unwrap();
        assert_eq!(aside, libc::SCHED_IDLE);
        assert_eq!(is_forward, may_step_forward());
        assert_eq!(policy == libc::SCHED_OTHER, is_forward);
    }

    #[test]
    fn a_shorter_turn_leaves_another_policy_as_it_is() {
        let policy = thread::spawn(|| {
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: `none` is a valid sched_param; 0 names the calling thread.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &none) };
            assert_eq!(set, 0);
            set_slice(Duration::from_micros(500)).unwrap();
            // SAFETY: takes and returns integers; 0 names the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(policy.join().unwrap(), libc::SCHED_BATCH);
    }
}
