//! The process as a whole: identity, limits, background, resources used.

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use thiserror::Error;

use crate::sync::{AtomicU32, Ordering};

/// A step of starting the process failed; the text says which and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// There is no user of this name.
    #[error("there is no user '{0}'")]
    NoSuchUser(String),
    /// The kernel refused the named step.
    #[error("cannot {0}: {1}")]
    Refused(&'static str, io::Error),
}

/// Resources the process has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUsage {
    /// Processor time in user mode, in microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// The largest resident size so far, in bytes.
    pub resident_bytes_max: u64,
}

/// Whether the process runs as root.
pub fn is_root() -> bool {
    // SAFETY: getuid has no preconditions and cannot fail.
    unsafe { libc::getuid() == 0 }
}

/// Becomes the user named, with that user's groups only. Call before any thread is started.
pub fn drop_privileges(user: &str) -> Result<(), ProcessError> {
    let no_such_user = || ProcessError::NoSuchUser(user.to_owned());
    let name = CString::new(user).map_err(|_| no_such_user())?;
    // SAFETY: `name` is a C string; nothing else uses the user database before threads start.
    let entry = unsafe { libc::getpwnam(name.as_ptr()) };
    if entry.is_null() {
        return Err(no_such_user());
    }
    // SAFETY: getpwnam gave a valid entry that stays until the next call of it.
    let entry = unsafe { entry.read() };
    let (uid, gid) = (entry.pw_uid, entry.pw_gid);
    // SAFETY: getuid and setters take plain numbers; a null list of zero groups is allowed.
    let groups = unsafe { libc::setgroups(0, std::ptr::null()) };
    checked("give up groups", groups)?;
    // SAFETY: as above.
    checked("become the group", unsafe { libc::setgid(gid) })?;
    // SAFETY: as above.
    checked("become the user", unsafe { libc::setuid(uid) })
}

/// Keeps all memory of the process, now and later, out of swap once it is touched. Untouched
/// memory stays untouched: address space that is only reserved for growth costs nothing.
pub fn lock_memory() -> Result<(), ProcessError> {
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: mlockall takes flags only.
    let answer = unsafe { libc::mlockall(flags) };
    checked("lock memory", answer)
}

/// Allows core dumps of any size.
pub fn allow_core_dumps() -> Result<(), ProcessError> {
    let mut limit = limit_of(libc::RLIMIT_CORE)?;
    limit.rlim_cur = libc::RLIM_INFINITY;
    limit.rlim_max = libc::RLIM_INFINITY;
    if set_limit(libc::RLIMIT_CORE, limit).is_ok() {
        return Ok(());
    }
    // Without the right to raise the hard limit, take what it allows.
    let mut limit = limit_of(libc::RLIMIT_CORE)?;
    limit.rlim_cur = limit.rlim_max;
    set_limit(libc::RLIMIT_CORE, limit)
}

/// Allows threads that step aside to step forward again, up to the ordinary niceness, also when
/// privileges are dropped later.
pub fn allow_stepping_forward() -> Result<(), ProcessError> {
    let mut limit = limit_of(libc::RLIMIT_NICE)?;
    // The kernel counts from 20, less the niceness.
    limit.rlim_cur = limit.rlim_cur.max(20);
    limit.rlim_max = limit.rlim_max.max(limit.rlim_cur);
    set_limit(libc::RLIMIT_NICE, limit)
}

/// How many descriptors the process may have open: now, and at most.
pub fn open_files_limit() -> Result<(u64, u64), ProcessError> {
    let limit = limit_of(libc::RLIMIT_NOFILE)?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Raises the limit of open descriptors to at least `wanted`, beyond the hard limit if the rights
/// allow it, and says what it is now.
pub fn raise_open_files_limit(wanted: u64) -> Result<u64, ProcessError> {
    let mut limit = limit_of(libc::RLIMIT_NOFILE)?;
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    limit.rlim_cur = wanted;
    limit.rlim_max = limit.rlim_max.max(wanted);
    if set_limit(libc::RLIMIT_NOFILE, limit).is_err() {
        limit = limit_of(libc::RLIMIT_NOFILE)?;
        limit.rlim_cur = limit.rlim_max.min(wanted);
        set_limit(libc::RLIMIT_NOFILE, limit)?;
    }
    Ok(limit.rlim_cur)
}

/// Processor time and memory used so far.
pub fn usage() -> ProcessUsage {
    // SAFETY: a rusage is made of integers, for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage for the kernel to fill in.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    if answer != 0 {
        return ProcessUsage::default();
    }
    let microseconds =
        |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    ProcessUsage {
        user_us: microseconds(usage.ru_utime),
        system_us: microseconds(usage.ru_stime),
        resident_bytes_max: usage.ru_maxrss.unsigned_abs() * 1024,
    }
}

/// Bytes of memory resident now; 0 if the kernel does not tell.
pub fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    // SAFETY: sysconf takes a constant and has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * page_bytes.unsigned_abs()
}

/// Goes on in the background: a child in a session of its own, without a terminal. Call before any
/// thread is started. The parent waits until the child calls [`stop_waiting_parent`] and ends with
/// status 0, or ends with status 1 when the child died first, so that a caller learns whether the
/// server came up.
pub fn daemonize() -> Result<(), ProcessError> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    let answer = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    checked("make a pipe", answer)?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    let reading = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let writing = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    // SAFETY: the process has one thread (the caller's contract), so the child is complete.
    let child = unsafe { libc::fork() };
    match child {
        ..0 => checked("go to the background", -1),
        0 => {
            drop(reading);
            become_daemon(writing)
        }
        _ => {
            drop(writing);
            let mut byte = [0];
            let came_up = File::from(reading)
                .read(&mut byte)
                .is_ok_and(|count| count == 1);
            // The child owns everything from here on, so no destructor of ours may run.
            // SAFETY: _exit ends the process at once and has no preconditions.
            unsafe { libc::_exit(i32::from(!came_up)) }
        }
    }
}

/// Tells the parent of [`daemonize`] that the server is up, and lets go of the terminal. Does
/// nothing in a process that was not daemonized.
pub fn stop_waiting_parent(keep_errors: bool) {
    // Nobody else swaps: the ordering only has to make it happen once.
    let number = PARENT.swap(NO_PARENT, Ordering::Relaxed);
    let Ok(number) = i32::try_from(number) else {
        return;
    };
    // SAFETY: `become_daemon` left the open writing end here, and the swap makes us its only owner.
    let mut parent = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    let _ = parent.write_all(b"+");
    let _ = attach_null(keep_errors);
}

const NO_PARENT: u32 = u32::MAX;
static PARENT: AtomicU32 = AtomicU32::new(NO_PARENT);

fn become_daemon(writing: OwnedFd) -> Result<(), ProcessError> {
    // SAFETY: setsid takes nothing; a fresh child is never a group leader.
    checked("start a session", unsafe { libc::setsid() })?;
    let number = writing.as_raw_fd().unsigned_abs();
    std::mem::forget(writing);
    PARENT.store(number, Ordering::Relaxed);
    Ok(())
}

fn attach_null(keep_errors: bool) -> io::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let last = if keep_errors { 1 } else { 2 };
    for number in 0..=last {
        // SAFETY: both are descriptors of this process; the old one is closed by the kernel.
        if unsafe { libc::dup2(null.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn limit_of(resource: libc::__rlimit_resource_t) -> Result<libc::rlimit, ProcessError> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit for the kernel to fill in.
    let answer = unsafe { libc::getrlimit(resource, &mut limit) };
    checked("read a limit", answer).map(|()| limit)
}

fn set_limit(resource: libc::__rlimit_resource_t, limit: libc::rlimit) -> Result<(), ProcessError> {
    // SAFETY: `limit` is a valid rlimit for the kernel to read.
    checked("set a limit", unsafe { libc::setrlimit(resource, &limit) })
}

fn checked(step: &'static str, answer: i32) -> Result<(), ProcessError> {
    if answer < 0 {
        Err(ProcessError::Refused(step, io::Error::last_os_error()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_usage_are_told() {
        let (now, most) = open_files_limit().unwrap();
        assert!(now <= most);
        assert!(raise_open_files_limit(64).unwrap() >= 64);
        assert!(resident_bytes() > 100_000);
        assert!(usage().resident_bytes_max > 100_000);
    }

    #[test]
    fn an_unknown_user_is_said_so() {
        assert!(matches!(
            drop_privileges("no-such-user-here"),
            Err(ProcessError::NoSuchUser(_))
        ));
    }
}
