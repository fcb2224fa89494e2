//! What can go wrong with a request, in words that say whether it may have had an effect.
//!
//! That is the one question that matters for a write, so it decides the variants:
//! [`ClientError::Indeterminate`] is the only one after which a write may have taken place.

use std::{fmt, io};

use curtail_codec::native::{ErrorCode, Malformed, NackReason};

/// Why a request has no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ClientError {
    /// A write was sent, and it is not known whether it was executed; it may even be executed
    /// later, as long as copies of it are under way.
    Indeterminate(Reason),
    /// The patience ended, and nothing was done: a read, or a write that was never sent.
    TimedOut,
    /// The server refused the request, and nothing was done.
    Refused(ErrorCode),
    /// The request cannot be written; nothing was sent. The caller's fault.
    Command(Malformed),
    /// A marked request where an answer is expected, or the other way round. The caller's fault.
    Mark,
    /// The server granted no session in time; what it said, if it said anything.
    NoSession(Option<ErrorCode>),
    /// No room for another request right now.
    Busy,
    /// As many handles as there may be are kept with their answers; some have to be dropped.
    Handles,
    /// A position's queues are gone: the accepted write may be lost.
    Incarnation,
    /// It is accepted, and it did not become durable in time.
    NotDurable,
    /// The session was closed, or its thread ended.
    Closed,
    /// The system refused something.
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
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// No answer came while the patience lasted.
    Silence,
    /// The last answers said that nothing was done yet; a copy may still be.
    Refused(NackReason),
    /// The session ended with the write outstanding.
    SessionLost,
    /// The client ended with the write outstanding.
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

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Indeterminate(reason) => {
                write!(f, "not known whether the write was executed: {reason}")
            }
            Self::TimedOut => write!(f, "no answer in time; nothing was done"),
            Self::Refused(code) => write!(f, "refused ({code:?}); nothing was done"),
            Self::Command(why) => write!(f, "the request makes no sense: {why:?}"),
            Self::Mark => write!(
                f,
                "a request with an answer and one without are asked apart"
            ),
            Self::NoSession(None) => write!(f, "the server did not answer"),
            Self::NoSession(Some(code)) => write!(f, "the server granted no session ({code:?})"),
            Self::Busy => write!(f, "no room for another request now"),
            Self::Handles => write!(f, "too many handles are kept"),
            Self::Incarnation => write!(f, "the server's queues are new: the write may be lost"),
            Self::NotDurable => write!(f, "accepted, but not durable in time"),
            Self::Closed => write!(f, "the session is closed"),
            Self::Machine { doing, text, .. } => write!(f, "{doing}: {text}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silence => write!(f, "no answer in time"),
            Self::Refused(reason) => write!(f, "refused for now ({reason:?}) until patience ended"),
            Self::SessionLost => write!(f, "the session ended"),
            Self::Closed => write!(f, "the client ended"),
        }
    }
}

impl std::error::Error for ClientError {}
