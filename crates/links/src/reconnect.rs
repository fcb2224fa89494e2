//! The connections that this node has to open, and when it tries again.
//!
//! ```text
//!   Idle until a moment ---> Trying ---> Up
//!      ^                       |          |
//!      +------ failed ---------+          |   the pause doubles
//!      +------ lost ----------------------+   the pause is short again
//! ```
//!
//! The node with the lower number makes all connections of a pair of nodes, so that there are never
//! two for one link. There are as many pairs as the node with more workers has; how many the other
//! one has is learned from the first handshake.

use curtail_types::NodeId;

use crate::peer_list::PeerNode;

/// All connections to be made.
#[derive(Debug, Default)]
pub(crate) struct Dials {
    dials: Vec<Dial>,
    /// Counts attempts, so that each has a number of its own.
    attempts: u64,
}

/// One connection to be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Dial {
    pub(crate) peer: PeerNode,
    pub(crate) pair: u16,
    pub(crate) large: bool,
    state: DialState,
    pause_ns: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DialState {
    Idle { until_ns: u64 },
    Trying { attempt: u64 },
    Up { attempt: u64 },
}

/// The pause after the first failure.
const PAUSE_NS_MIN: u64 = 10_000_000;

/// The longest pause between two attempts.
const PAUSE_NS_MAX: u64 = 100_000_000;

impl Dials {
    /// Forgets all; attempts are counted on.
    pub(crate) fn clear(&mut self) {
        self.dials.clear();
    }

    /// Takes another list of peers; `me` has `workers`. What is unchanged goes on, and what failed
    /// is tried again at once.
    pub(crate) fn set_peers(&mut self, me: NodeId, workers: u16, peers: &[PeerNode]) {
        let higher = || peers.iter().filter(|peer| me < peer.node);
        self.dials
            .retain(|dial| higher().any(|peer| *peer == dial.peer));
        for dial in &mut self.dials {
            if let DialState::Idle { .. } = dial.state {
                dial.retry(0);
            }
        }
        for peer in higher() {
            self.add(*peer, workers);
        }
    }

    /// Has every pair below `pairs` connected.
    pub(crate) fn add(&mut self, peer: PeerNode, pairs: u16) {
        let known = self.dials.iter().filter(|dial| dial.peer == peer);
        let from = known.map(|dial| dial.pair + 1).max().unwrap_or(0);
        for pair in from..pairs {
            for large in [false, true] {
                self.dials.push(Dial {
                    peer,
                    pair,
                    large,
                    state: DialState::Idle { until_ns: 0 },
                    pause_ns: PAUSE_NS_MIN,
                });
            }
        }
    }

    /// One that is due, and the number of the attempt that now begins.
    pub(crate) fn next_due(&mut self, now_ns: u64) -> Option<(Dial, u64)> {
        let is_due = |dial: &&mut Dial| dial.due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        let dial = self.dials.iter_mut().find(is_due)?;
        self.attempts += 1;
        let attempt = self.attempts;
        dial.state = DialState::Trying { attempt };
        Some((*dial, attempt))
    }

    /// When the next one is due.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.dials.iter().filter_map(Dial::due_ns).min()
    }

    /// An attempt succeeded; whether it is still wanted.
    pub(crate) fn succeed(&mut self, attempt: u64) -> Option<Dial> {
        let dial = self.find(DialState::Trying { attempt })?;
        dial.state = DialState::Up { attempt };
        dial.pause_ns = PAUSE_NS_MIN;
        Some(*dial)
    }

    /// An attempt failed: it is made again after a pause that grows. The pauses of several links
    /// differ, so that they do not all come back at once.
    pub(crate) fn fail(&mut self, attempt: u64, now_ns: u64) {
        if let Some(dial) = self.find(DialState::Trying { attempt }) {
            let spread_ns = attempt % (dial.pause_ns / 2).max(1);
            dial.retry(now_ns + dial.pause_ns + spread_ns);
            dial.pause_ns = (dial.pause_ns * 2).min(PAUSE_NS_MAX);
        }
    }

    /// A link is not connected any more.
    pub(crate) fn lose(&mut self, attempt: u64, now_ns: u64) {
        if let Some(dial) = self.find(DialState::Up { attempt }) {
            dial.retry(now_ns + PAUSE_NS_MIN);
        }
    }

    /// Whether an attempt is still wanted.
    pub(crate) fn is_wanted(&self, attempt: u64) -> bool {
        let trying = DialState::Trying { attempt };
        self.dials.iter().any(|dial| dial.state == trying)
    }

    fn find(&mut self, state: DialState) -> Option<&mut Dial> {
        self.dials.iter_mut().find(|dial| dial.state == state)
    }
}

impl Dial {
    fn due_ns(&self) -> Option<u64> {
        match self.state {
            DialState::Idle { until_ns } => Some(until_ns),
            DialState::Trying { .. } | DialState::Up { .. } => None,
        }
    }

    fn retry(&mut self, until_ns: u64) {
        self.state = DialState::Idle { until_ns };
    }
}
