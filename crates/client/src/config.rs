//! The configuration of a session; the defaults suit a server in the same data centre.

use std::time::Duration;

use curtail_codec::native::SLOTS;

/// How a session behaves. Every field has a use of its own; [`Config::default`] has them all.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Config {
    /// How long a request is tried before it is given up: sent again, or kept back while the server
    /// is full.
    pub patience: Duration,
    /// How long opening a session is tried.
    pub connect_patience: Duration,
    /// The shortest wait before a request is sent again.
    pub resend_min: Duration,
    /// The longest wait before a request is sent again.
    pub resend_max: Duration,
    /// The shortest pause after the server said that it is full; doubled with every further time.
    pub pause_min: Duration,
    /// The longest such pause.
    pub pause_max: Duration,
    /// Writes that one queue may have outstanding at most, 1 to 64.
    pub window_max: u32,
    /// What the session makes of a full queue.
    pub when_full: WhenFull,
    /// Whether a session that is idle is kept alive.
    pub keep_alive: bool,
    /// Requests that all handles of a [`Session`](crate::Session) may stand for at a time, a power
    /// of two, 64 to 65536.
    pub handles_max: usize,
    /// How long a thread that has nothing to do polls before it sleeps. Zero unless there are cores
    /// to spare.
    pub spin: Duration,
}

/// What a session makes of a queue that was full.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum WhenFull {
    /// Its window narrows and closes for a random time, and is held below the queue's credits.
    #[default]
    Credits,
    /// As a reliable connection of RDMA whose receiver is not ready (Juneberry, NSDI 2025, section
    /// 7): everything to that queue stands still for this fixed time and is then sent as before,
    /// whatever the credits say. For comparison: above the server's capacity it collapses.
    NotReady(Duration),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            connect_patience: Duration::from_secs(5),
            resend_min: Duration::from_millis(5),
            resend_max: Duration::from_secs(1),
            pause_min: Duration::from_micros(100),
            pause_max: Duration::from_millis(50),
            window_max: SLOTS as u32,
            when_full: WhenFull::default(),
            keep_alive: true,
            handles_max: 1024,
            spin: Duration::ZERO,
        }
    }
}
