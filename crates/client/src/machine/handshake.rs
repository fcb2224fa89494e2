//! The handshake that begins a session: hello, cookie, confirm, grant.
//!
//! The server keeps nothing until the cookie has come back, so every step may be repeated; both
//! messages are sent again until they are answered, after a wait that doubles. A nonce names one
//! attempt, and confirming twice with it gives the same session.

use curtail_codec::native::{Echo, ErrorCode, Flags, Grant, Head, Opcode, Session};

use super::random::Random;

/// One attempt at a session. Times are nanoseconds.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Handshake {
    nonce: u64,
    cookie: Option<u64>,
    /// The stamp of the last message.
    stamp: u32,
    wait_ns: u64,
    due_ns: u64,
    refusal: Option<ErrorCode>,
}

impl Handshake {
    /// A handshake that begins at its first tick.
    pub(super) const fn new(nonce: u64) -> Self {
        Self {
            nonce,
            cookie: None,
            stamp: 0,
            wait_ns: WAIT_NS_MIN,
            due_ns: 0,
            refusal: None,
        }
    }

    /// None: no message is due, and no reply belongs to it.
    pub(super) const fn over(nonce: u64) -> Self {
        Self {
            due_ns: u64::MAX,
            ..Self::new(nonce)
        }
    }

    /// The next message, if it is time.
    pub(super) fn tick(&mut self, now_ns: u64, stamp: u32, random: &mut Random) -> Option<Head> {
        if now_ns < self.due_ns {
            return None;
        }
        self.due_ns = now_ns + random.around(self.wait_ns);
        self.wait_ns = (self.wait_ns * 2).min(WAIT_NS_MAX);
        self.stamp = stamp;
        let opcode = match self.cookie {
            None => Opcode::Hello,
            Some(_) => Opcode::Confirm,
        };
        let session = Session {
            token: self.cookie.unwrap_or(0),
            ..Session::default()
        };
        Some(Head {
            stamp,
            argument: self.nonce,
            ..Head::new(opcode, Flags::NONE, session)
        })
    }

    /// A cookie came; whether it is ours, to be confirmed at once.
    pub(super) fn cookie(&mut self, nonce: u64, cookie: u64) -> bool {
        let is_ours = nonce == self.nonce && self.cookie.is_none();
        if is_ours {
            self.cookie = Some(cookie);
            self.due_ns = 0;
            self.wait_ns = WAIT_NS_MIN;
        }
        is_ours
    }

    /// Whether a session is the one that was asked for.
    pub(super) fn grants(&mut self, grant: &Grant) -> bool {
        let is_ours = self.cookie.is_some() && grant.nonce == self.nonce;
        if is_ours {
            self.refusal = None;
        }
        is_ours
    }

    /// An error came; whether it is ours. A cookie that is not good any more is asked for again at
    /// once, everything else after a wait.
    pub(super) fn refused(
        &mut self,
        now_ns: u64,
        echo: Echo,
        code: ErrorCode,
        random: &mut Random,
    ) -> bool {
        let is_ours = echo.stamp == self.stamp && echo.sequence == 0;
        if !is_ours {
            return false;
        }
        self.refusal = Some(code);
        self.cookie = None;
        self.nonce = random.next();
        self.due_ns = match code {
            ErrorCode::Cookie => 0,
            _ => now_ns + random.around(self.wait_ns),
        };
        true
    }

    /// When the next message is due.
    pub(super) const fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// What the server said against it.
    pub(super) const fn refusal(&self) -> Option<ErrorCode> {
        self.refusal
    }
}

const WAIT_NS_MIN: u64 = 20_000_000;
const WAIT_NS_MAX: u64 = 1_000_000_000;
