//! What can go wrong with a request, in words that say whether it may have had an effect.
//!
//! That is the one question that matters for a write, so it decides the variants:
//! [`ClientError::Indeterminate`] is the only one after which a write may have taken place.

use std::io;

use curtail_codec::native::{ErrorCode, Malformed, NackReason, Status};
use thiserror::Error;

/// Why a request has no answer.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ClientError {
    /// A write was sent, and it is not known whether it was executed; it may even be executed
    /// later, as long as copies of it are under way.
    #[error("not known whether the write was executed: {0}")]
    Indeterminate(Reason),
    /// The patience ended, and nothing was done: a read, or a write that was never sent.
    #[error("timed out: a read without an answer, or a write that was not sent")]
    TimedOut,
    /// The server refused the request, and nothing was done.
    #[error("refused ({0:?}); nothing was done")]
    Refused(ErrorCode),
    /// The request cannot be written; nothing was sent. The caller's fault.
    #[error("the request is invalid: {0:?}")]
    Command(Malformed),
    /// A marked request where an answer is expected, or the other way round. The caller's fault.
    #[error("marked requests go to `write`, all others to `call`")]
    Mark,
    /// The server granted no session in time; what it said, if it said anything.
    #[error("the server {}", no_session(*.0))]
    NoSession(Option<ErrorCode>),
    /// No room for another request right now.
    #[error("too many requests are outstanding")]
    Busy,
    /// As many handles as there may be are kept with their answers; some have to be dropped.
    #[error("too many handles exist: drop some")]
    Handles,
    /// A position's queues are gone: the accepted write may be lost.
    #[error("the server has new queues: the write may be lost")]
    Incarnation,
    /// The server executed a marked write and could not store it, for lack of room for example:
    /// its key may have lost its older value.
    #[error("the server could not store it ({0:?})")]
    NotStored(Status),
    /// It is accepted, and it was not executed in time.
    #[error("accepted, but not executed in time")]
    NotExecuted,
    /// It has no second copy, as far as the server says: so many nodes in sync have it. It stays
    /// accepted, or executed.
    #[error("not replicated; copies: {0}")]
    NotReplicated(u8),
    /// It is accepted, and it did not become durable in time.
    #[error("accepted, but it is not durable")]
    NotDurable,
    /// The session was closed, or its thread ended.
    #[error("the session is closed")]
    Closed,
    /// The system refused something.
    #[error("{doing}: {text}")]
    Machine {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        kind: io::ErrorKind,
        /// In words.
        text: String,
    },
}

/// Why it is not known what became of a write.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// No answer arrived within the timeout (`Config::patience`).
    #[error("no answer in time")]
    Silence,
    /// The last answers refused the write; an earlier datagram may still be executed.
    #[error(
        "refused ({0:?}) until the timeout, but a copy of the request that was sent earlier may \
         still be executed"
    )]
    Refused(NackReason),
    /// The session ended with the write outstanding.
    #[error("the session ended")]
    SessionLost,
    /// The client ended with the write outstanding.
    #[error("the client ended")]
    Closed,
}

impl ClientError {
    /// Whether a write may have had an effect.
    pub const fn may_have_happened(&self) -> bool {
        matches!(self, Self::Indeterminate(_))
    }

    pub(crate) fn machine(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Machine {
            doing,
            kind: error.kind(),
            text: error.to_string(),
        }
    }
}

fn no_session(said: Option<ErrorCode>) -> String {
    match said {
        None => "did not answer".into(),
        Some(code) => format!("granted no session ({code:?})"),
    }
}
