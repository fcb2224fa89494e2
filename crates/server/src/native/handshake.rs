//! Handshakes: a client that has proved its address gets a session, at a bounded rate.
//!
//! A HELLO costs the server a hash and stores nothing. A CONFIRM with a good cookie takes a place
//! in the session table, of which an address can have only so many, and which only the unused ones
//! give back. Both are bounded in number a second, so that a flood of them takes no more than a
//! small share of the thread that receives; what is above is dropped, and sent again by its client.

use curtail_codec::native::{ErrorCode, Grant, Reply, ReplyError, Request, SLOTS, Session};
use curtail_ordered_queue::GrantError;

use crate::{
    limits::{CONFIRMS_PER_SECOND, HELLOS_PER_SECOND},
    native::{
        Native,
        reply_cache::Answers,
        reply_sender::{codec_peer, queue_peer},
    },
    sync::lock,
};

/// Grants one session at a time: the table is changed by one thread.
#[derive(Debug, Default)]
pub(crate) struct Grants(());

/// How many handshakes may still be answered in this second; of one thread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Budget {
    second: u32,
    hellos: u32,
    confirms: u32,
}

impl Budget {
    fn turn(&mut self, unix_seconds: u32) {
        if self.second != unix_seconds {
            *self = Self {
                second: unix_seconds,
                ..Self::default()
            };
        }
    }

    /// Whether one more HELLO may be answered.
    pub(crate) fn takes_hello(&mut self, unix_seconds: u32) -> bool {
        self.turn(unix_seconds);
        self.hellos += 1;
        self.hellos <= HELLOS_PER_SECOND
    }

    /// Whether one more CONFIRM may be looked at.
    pub(crate) fn takes_confirm(&mut self, unix_seconds: u32) -> bool {
        self.turn(unix_seconds);
        self.confirms += 1;
        self.confirms <= CONFIRMS_PER_SECOND
    }
}

impl Native {
    /// The cookie for a HELLO.
    pub(super) fn cookie(
        &self,
        request: &Request<'_>,
        from: std::net::SocketAddr,
        unix_seconds: u32,
    ) -> Reply<'static> {
        let nonce = request.head.argument;
        Reply::Cookie {
            nonce,
            cookie: self.cookies.cookie(codec_peer(from), nonce, unix_seconds),
            stamp: request.head.stamp,
        }
    }

    /// The session for a CONFIRM, or why there is none.
    pub(super) fn grant(
        &self,
        request: &Request<'_>,
        from: std::net::SocketAddr,
        unix_seconds: u32,
        monotonic_ns: u64,
    ) -> Reply<'static> {
        let head = &request.head;
        let (peer, nonce) = (codec_peer(from), head.argument);
        let refuse = |code| {
            Reply::Error(ReplyError {
                echo: head.echo(),
                code,
                incarnation: self.incarnation,
            })
        };
        let cookie = head.session.token;
        if !self.cookies.is_good(cookie, peer, nonce, unix_seconds) {
            return refuse(ErrorCode::Cookie);
        }
        let place = self.seed.hash(&peer.address).0;
        let token = |index, generation| {
            self.cookies
                .token(peer, index, generation, self.incarnation)
        };
        let limits = self.limits(monotonic_ns);
        let granting = lock(&self.grants);
        let granted = self
            .sessions()
            .grant(queue_peer(from), nonce, limits, place, token);
        drop(granting);
        let name = match granted {
            Ok(name) => name,
            Err(GrantError::Address | GrantError::Full) | Err(_) => {
                return refuse(ErrorCode::Sessions);
            }
        };
        self.answers.open(name);
        Reply::Grant(Grant {
            session: Session {
                index: name.index,
                generation: name.generation,
                token: name.token,
            },
            nonce,
            stamp: head.stamp,
            incarnation: self.incarnation,
            slots: SLOTS,
            queues: self.config.queues as u16,
            credits: self.first_window(),
            lease_ms: self.config.lease_ms,
            datagram_bytes_max: self.datagram_bytes_for(from) as u32,
        })
    }

    /// Writes that a new client may have outstanding.
    fn first_window(&self) -> u32 {
        let slots = self.queue(0).map_or(1, |queue| queue.backlog().free);
        u32::try_from(slots / 4)
            .unwrap_or(u32::MAX)
            .clamp(1, u32::from(SLOTS))
    }
}

/// Answers exist for exactly the sessions that exist.
pub(crate) fn answers_for(sessions: usize) -> Answers {
    Answers::new(sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_bounded_each_second() {
        let mut budget = Budget::default();
        let taken = (0..HELLOS_PER_SECOND + 9).filter(|_| budget.takes_hello(5));
        assert_eq!(taken.count(), HELLOS_PER_SECOND as usize);
        assert!(budget.takes_confirm(5), "counted apart");
        assert!(budget.takes_hello(6), "the next second");
        let taken = (0..CONFIRMS_PER_SECOND + 9).filter(|_| budget.takes_confirm(6));
        assert_eq!(taken.count(), CONFIRMS_PER_SECOND as usize);
    }
}
