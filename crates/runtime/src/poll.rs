//! Waiting for sockets: mio's edge-triggered epoll, under the names the server uses.
//!
//! Edge triggered means the kernel tells of a socket once per change. A worker therefore remembers
//! what it has not drained: a receive that filled its buffer keeps the connection in the worker's
//! ready list, a short one means there is nothing left and the next change will be told.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Names a watched socket; the server chooses the number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Token(pub usize);

/// What changed since the last wait, bounded at construction.
#[derive(Debug)]
pub struct Events {
    events: mio::Events,
}

/// One epoll instance.
#[derive(Debug)]
pub struct Poller {
    poll: mio::Poll,
}

/// Wakes a [`Poller`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker {
    waker: Arc<mio::Waker>,
}

/// Ends what a [`Poller`] watches, from any thread.
#[derive(Debug)]
pub struct Registrar {
    registry: mio::Registry,
}

/// A socket could not be watched; the process is out of memory or of epoll watches.
#[derive(Debug)]
pub struct WatchError(pub io::Error);

impl Poller {
    /// A new epoll instance.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            poll: mio::Poll::new()?,
        })
    }

    /// Something another thread can wake this poller with; the wake arrives under `token`. One per
    /// poller.
    pub fn waker(&self, token: Token) -> io::Result<Waker> {
        let waker = mio::Waker::new(self.poll.registry(), mio::Token(token.0))?;
        Ok(Waker {
            waker: Arc::new(waker),
        })
    }

    /// Something another thread can end this poller's watching with.
    pub fn registrar(&self) -> io::Result<Registrar> {
        let registry = self.poll.registry().try_clone()?;
        Ok(Registrar { registry })
    }

    /// Waits until something happens or `timeout` passes; `None` waits for ever and zero does not
    /// wait. An interrupted wait counts as nothing happened.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut events.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.events.clear();
                Ok(())
            }
            answer => answer,
        }
    }

    /// The same for a time that would be rounded up to a millisecond: a short sleep costs one more
    /// system call.
    pub fn wait_briefly(&mut self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        // SAFETY: the descriptor is open as long as `self.poll`, which outlives the borrow.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.poll.as_raw_fd()) };
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        // However it ends, the wait below finds what there is.
        let _ = Timespec::try_from(timeout).map(|time| poll(&mut descriptors, Some(&time)));
        self.wait(events, Some(Duration::ZERO))
    }

    pub(crate) fn registry(&self) -> &mio::Registry {
        self.poll.registry()
    }
}

impl Registrar {
    pub(crate) fn registry(&self) -> &mio::Registry {
        &self.registry
    }
}

impl Events {
    /// Room for `events_max` changes a wait; the others are told at the next one.
    pub fn with_capacity(events_max: usize) -> Self {
        Self {
            events: mio::Events::with_capacity(events_max),
        }
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Calls `each` with the token, whether it can be read (or was closed), and whether it can be
    /// written.
    pub fn for_each(&self, mut each: impl FnMut(Token, Readiness)) {
        for event in &self.events {
            let readiness = Readiness {
                read: event.is_readable() || event.is_read_closed() || event.is_error(),
                write: event.is_writable() || event.is_write_closed(),
                closed: event.is_read_closed() || event.is_error(),
            };
            each(Token(event.token().0), readiness);
        }
    }
}

/// What an event says of a socket.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Readiness {
    /// There are bytes, or the end of them, or an error to fetch.
    pub read: bool,
    /// Bytes can be sent again.
    pub write: bool,
    /// The peer will send no more: receive until the end is seen.
    pub closed: bool,
}

impl Readiness {
    /// Adds what was reported later.
    pub fn add(&mut self, other: Self) {
        self.read |= other.read;
        self.write |= other.write;
        self.closed |= other.closed;
    }
}

impl Waker {
    /// Wakes the poller; it may already be awake.
    pub fn wake(&self) {
        // The only failure is a poller that is gone, and then there is nobody to wake.
        let _ = self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Goal: a brief wait ends after its time, and at once when it is woken. Method: the best of
    /// several waits of 200 us, of which a rounded one would take a millisecond.
    #[test]
    fn a_brief_wait_is_brief() {
        let mut poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(4);
        let waker = poller.waker(Token(7)).unwrap();
        let mut wait = |time: Duration| {
            let started = Instant::now();
            poller.wait_briefly(&mut events, time).unwrap();
            (started.elapsed(), events.is_empty())
        };
        let brief = Duration::from_micros(200);
        let waits: Vec<_> = (0..50).map(|_| wait(brief)).collect();
        assert!(waits.iter().all(|(took, empty)| *took >= brief && *empty));
        let best = waits.iter().map(|(took, _)| *took).min();
        assert!(best < Some(Duration::from_micros(900)), "{best:?}");
        waker.wake();
        let (took, empty) = wait(Duration::from_secs(60));
        assert!(!empty && took < Duration::from_secs(30), "{took:?}");
    }
}
