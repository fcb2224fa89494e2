//! A thread's handle on a request that is outstanding.
//!
//! Two types, because there are two promises: a [`Write`] is a marked request and ends when it is
//! accepted; a [`Call`] ends when it was executed and has an answer. Both can be waited for, tried,
//! or awaited; a handle that is dropped forgets its answer and changes nothing about the request.

use std::{
    cell::RefCell,
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant as Clock},
};

use curtail_codec::native::{Promise, Status};

use crate::{
    error::ClientError,
    outcome::{Accepted, Answer},
    request_cells::CallEnd,
    session::{Session, SessionShared},
};

/// A marked write that is under way; it ends when it is accepted.
#[must_use = "an error of a write is only seen by a caller that asks for it"]
#[derive(Debug)]
pub struct Write(Ticket);

/// A request that is under way and will have an answer.
#[must_use = "an answer is only seen by a caller that asks for it"]
#[derive(Debug)]
pub struct Call(Ticket);

/// A cell, while a handle has it.
struct Ticket {
    shared: Arc<SessionShared>,
    index: u32,
}

impl Write {
    pub(crate) fn new(shared: &Arc<SessionShared>, index: u32) -> Self {
        Self(Ticket::new(shared, index))
    }

    /// Waits until the write is accepted: it has its place in the order, is held once in the
    /// memory of the server's kernel, and will be executed once if that kernel keeps running. Says
    /// nothing about stable storage.
    pub fn accepted(mut self) -> Result<Accepted, ClientError> {
        accepted(self.0.wait())
    }

    /// The same if it is known by now; ask no more once it is.
    pub fn try_accepted(&mut self) -> Option<Result<Accepted, ClientError>> {
        self.0.attempt().map(accepted)
    }

    /// Waits until the write is accepted, and then until it has been executed. A node of a cluster
    /// acknowledges nothing before that; a server that is alone is asked until it has.
    ///
    /// # Errors
    /// [`ClientError::NotExecuted`] if it is not within that time; it stays accepted.
    pub fn executed(self, session: &Session, within: Duration) -> Result<Accepted, ClientError> {
        let start = Clock::now();
        let accepted = self.accepted()?;
        session.executed(accepted, within.saturating_sub(start.elapsed()))
    }

    /// Waits until the write is acknowledged as replicated: every node in sync has it, which are
    /// several, so that it survives one of them.
    ///
    /// # Errors
    /// [`ClientError::NotReplicated`] if it was acknowledged with less, because no other node was
    /// in sync for example. It stays as it is; written again later it may be replicated.
    pub fn replicated(self) -> Result<Accepted, ClientError> {
        let accepted = self.accepted()?;
        match accepted.promise {
            Promise::Replicated => Ok(accepted),
            _ => Err(ClientError::NotReplicated(accepted.copies())),
        }
    }

    /// Waits until the write is accepted, and then until it is durable: on stable storage.
    ///
    /// # Errors
    /// [`ClientError::NotDurable`] if it is not within that time, which it never is at a server
    /// that promises nothing but `accepted`; it stays accepted.
    pub fn durable(self, session: &Session, within: Duration) -> Result<Accepted, ClientError> {
        let start = Clock::now();
        let accepted = self.accepted()?;
        session.durable(accepted, within.saturating_sub(start.elapsed()))?;
        Ok(accepted)
    }
}

impl Call {
    pub(crate) fn new(shared: &Arc<SessionShared>, index: u32) -> Self {
        Self(Ticket::new(shared, index))
    }

    /// Waits for the answer.
    pub fn result(mut self) -> Result<Answer, ClientError> {
        answered(self.0.wait())
    }

    /// The answer if it is there; ask no more once it is.
    pub fn try_result(&mut self) -> Option<Result<Answer, ClientError>> {
        self.0.attempt().map(answered)
    }
}

/// Resolves when the write is accepted.
impl Future for Write {
    type Output = Result<Accepted, ClientError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(accepted)
    }
}

/// Resolves when the answer is there.
impl Future for Call {
    type Output = Result<Answer, ClientError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(answered)
    }
}

impl Ticket {
    fn new(shared: &Arc<SessionShared>, index: u32) -> Self {
        let shared = Arc::clone(shared);
        Self { shared, index }
    }

    fn attempt(&self) -> Option<CallEnd> {
        if !self.shared.cells.is_done(self.index) {
            return None;
        }
        match self.poll(&Context::from_waker(Waker::noop())) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => Some(CallEnd::Failed(ClientError::Closed)), // it was taken before
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<CallEnd> {
        self.shared.cells.poll(self.index, context)
    }

    fn wait(&mut self) -> CallEnd {
        let spin = self.shared.config.spin;
        let start = (!spin.is_zero()).then(Clock::now);
        while start.is_some_and(|start| start.elapsed() < spin) {
            if let Some(end) = self.attempt() {
                return end;
            }
            std::hint::spin_loop();
        }
        Parker::with(|parker, waker| {
            let context = Context::from_waker(waker);
            loop {
                if let Poll::Ready(end) = self.poll(&context) {
                    return end;
                }
                parker.park();
            }
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.cells.forsake(self.index);
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.index)
    }
}

/// A marked write may be answered by a result: if it could not be stored.
fn accepted(end: CallEnd) -> Result<Accepted, ClientError> {
    match end {
        CallEnd::Accepted(accepted) => Ok(accepted),
        CallEnd::Answered(answer) => match answer.status {
            Status::OutOfMemory | Status::TooLarge => Err(ClientError::NotStored(answer.status)),
            _ => Ok(Accepted {
                promise: answer.promise(),
                place: answer.place,
            }),
        },
        CallEnd::Failed(error) => Err(error),
    }
}

fn answered(end: CallEnd) -> Result<Answer, ClientError> {
    match end {
        CallEnd::Answered(answer) => Ok(answer),
        CallEnd::Failed(error) => Err(error),
        CallEnd::Accepted(_) => Err(ClientError::Mark),
    }
}

/// A thread that sleeps until it is woken, as a waker.
struct Parker {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Parker {
    /// The calling thread's own, made once.
    fn with<T>(run: impl FnOnce(&Self, &Waker) -> T) -> T {
        thread_local! {
            static OWN: RefCell<Option<(Arc<Parker>, Waker)>> = const { RefCell::new(None) };
        }
        let own = OWN.with(|own| own.borrow().clone());
        let (parker, waker) = own.unwrap_or_else(|| {
            let parker = Arc::new(Self {
                thread: thread::current(),
                is_woken: AtomicBool::new(false),
            });
            let made = (Arc::clone(&parker), Waker::from(parker));
            OWN.with(|own| own.replace(Some(made.clone())));
            made
        });
        run(&parker, &waker)
    }

    /// Sleeps until somebody woke this thread since it last slept.
    fn park(&self) {
        // Acquire pairs with the Release in `wake_by_ref`.
        while !self.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release pairs with the Acquire in `park`.
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
