//! Signals, and requests of the server's own threads to stop.
//!
//! Signals are blocked in every thread and read from a descriptor, so no code of ours ever runs in
//! a signal handler. [`Controls`] must be made before the first thread is started, because threads
//! inherit the blocked set.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{Arc, Mutex},
    time::Duration,
};

use thiserror::Error;

use crate::lock;

/// What an operator or a thread asks of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ControlEvent {
    /// SIGTERM, SIGINT or a `shutdown` command: answer what is in flight and end.
    Stop,
    /// SIGUSR1 or `shutdown graceful`: save what is to survive, then end.
    StopAndSave,
    /// SIGHUP: read the authentication file again.
    Reload,
}

/// Signals cannot be received; the process must not start.
#[derive(Debug, Error)]
#[error("cannot receive signals: {0}")]
pub struct SignalError(pub io::Error);

/// Receives control events; owned by the main thread.
#[derive(Debug)]
pub struct Controls {
    poll: mio::Poll,
    events: mio::Events,
    signals: OwnedFd,
    handle: ControlsHandle,
}

/// Sends control events from any thread.
#[derive(Clone, Debug)]
pub struct ControlsHandle {
    asked: Arc<Mutex<Vec<ControlEvent>>>,
    waker: Arc<mio::Waker>,
}

const SIGNALS: mio::Token = mio::Token(0);
const WAKER: mio::Token = mio::Token(1);
const ASKED_MAX: usize = 16;

impl Controls {
    /// Blocks the signals in this thread and its later children, and opens a descriptor for them.
    pub fn new() -> Result<Self, SignalError> {
        Self::open().map_err(SignalError)
    }

    fn open() -> io::Result<Self> {
        let signals = open_signals()?;
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKER)?;
        poll.registry().register(
            &mut mio::unix::SourceFd(&signals.as_raw_fd()),
            SIGNALS,
            mio::Interest::READABLE,
        )?;
        Ok(Self {
            poll,
            events: mio::Events::with_capacity(8),
            signals,
            handle: ControlsHandle {
                asked: Arc::default(),
                waker: Arc::new(waker),
            },
        })
    }

    /// Something for other threads to ask with.
    pub fn handle(&self) -> ControlsHandle {
        self.handle.clone()
    }

    /// Waits for the next event, or until `timeout` passes.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Option<ControlEvent> {
        if let Some(event) = self.take() {
            return Some(event);
        }
        // An interrupted wait is answered like one that timed out.
        let _ = self.poll.poll(&mut self.events, timeout);
        self.take()
    }

    fn take(&mut self) -> Option<ControlEvent> {
        let asked = {
            let mut asked = lock(&self.handle.asked);
            (!asked.is_empty()).then(|| asked.remove(0))
        };
        asked.or_else(|| self.take_signal())
    }

    fn take_signal(&mut self) -> Option<ControlEvent> {
        let mut buffer = [0_u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: the descriptor is open as long as `self.signals`, and the kernel writes at most
        // `buffer.len()` bytes into `buffer`.
        let bytes = unsafe {
            libc::read(
                self.signals.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        };
        if bytes != buffer.len() as isize {
            return None;
        }
        // `ssi_signo` is the first field: 32 bits in the machine's order.
        let number = buffer
            .first_chunk()
            .map(|bytes| i32::from_ne_bytes(*bytes))?;
        match number {
            libc::SIGTERM | libc::SIGINT => Some(ControlEvent::Stop),
            libc::SIGUSR1 => Some(ControlEvent::StopAndSave),
            libc::SIGHUP => Some(ControlEvent::Reload),
            _ => None,
        }
    }
}

impl ControlsHandle {
    /// Asks for `event`; forgotten when more than a handful are already waiting.
    pub fn ask(&self, event: ControlEvent) {
        let mut asked = lock(&self.asked);
        if asked.len() < ASKED_MAX {
            asked.push(event);
        }
        drop(asked);
        let _ = self.waker.wake();
    }
}

fn open_signals() -> io::Result<OwnedFd> {
    // SAFETY: a sigset_t is an array of integers, for which all zeroes is a valid value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGHUP] {
        // SAFETY: `set` is a valid sigset_t and `signal` a valid signal number.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    // SAFETY: `set` is a valid sigset_t; the old set is not asked for.
    let answer = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
    if answer != 0 {
        return Err(io::Error::from_raw_os_error(answer));
    }
    let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
    // SAFETY: `set` is a valid sigset_t; -1 asks for a new descriptor.
    let descriptor = unsafe { libc::signalfd(-1, &set, flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: signals and requests both arrive. Method: send SIGHUP to this very thread, so that
    /// other tests of the process are not disturbed, and ask from another thread.
    #[test]
    fn signals_and_requests_arrive() {
        let mut controls = Controls::new().unwrap();
        assert_eq!(controls.wait(Some(Duration::ZERO)), None);
        // SAFETY: the signal is blocked in this thread, so raising it only marks it as pending.
        unsafe { libc::raise(libc::SIGHUP) };
        assert_eq!(
            controls.wait(Some(Duration::from_secs(5))),
            Some(ControlEvent::Reload)
        );
        let handle = controls.handle();
        let asking = std::thread::spawn(move || handle.ask(ControlEvent::StopAndSave));
        asking.join().unwrap();
        assert_eq!(
            controls.wait(Some(Duration::from_secs(5))),
            Some(ControlEvent::StopAndSave)
        );
    }
}
