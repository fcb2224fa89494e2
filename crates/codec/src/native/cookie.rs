//! Cookies: prove a client's address to the server, which stores nothing.
//!
//! ```text
//! client                                   server
//!   HELLO nonce              64 bytes ->
//!                            <- 64 bytes     COOKIE  (nothing is stored)
//!   CONFIRM nonce, cookie    64 bytes ->
//!                            <- 64 bytes     GRANT   (a session is taken)
//! ```
//!
//! A cookie is a keyed hash of the peer's address, port and nonce, and of the time window; only who
//! receives at that address can return it. The idea is that of TCP's SYN cookies (Bernstein, 1996)
//! and of DTLS's (RFC 6347, section 4.2.1). The hash is the one of keys, under a secret of its own.
//!
//! A session's token is the same hash over other words, so that it need not be drawn: it differs
//! between incarnations, generations and addresses, and cannot be guessed.

use curtail_types::HashSeed;

/// How long a window of cookies is; a cookie is good in its own and in the next one.
pub const COOKIE_WINDOW_SECONDS: u32 = 8;

/// Makes and checks cookies and tokens under a secret.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Cookies {
    secret: HashSeed,
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Peer {
    /// The address; IPv4 in its mapped form, ::ffff:a.b.c.d.
    pub address: [u8; 16],
    /// The UDP port.
    pub port: u16,
}

impl Cookies {
    /// Under this secret, which must be random, different from the keys' seed, and new with every
    /// incarnation.
    pub const fn new(secret: HashSeed) -> Self {
        Self { secret }
    }

    /// The cookie for a peer that says hello with `nonce` at `unix_seconds`.
    pub fn cookie(&self, peer: Peer, nonce: u64, unix_seconds: u32) -> u64 {
        let window = u64::from(unix_seconds / COOKIE_WINDOW_SECONDS);
        self.keyed(Purpose::Cookie, peer, nonce, window)
    }

    /// Whether `cookie` is one that `peer` was given for `nonce` in this window or the one before.
    pub fn is_good(&self, cookie: u64, peer: Peer, nonce: u64, unix_seconds: u32) -> bool {
        let before = unix_seconds.saturating_sub(COOKIE_WINDOW_SECONDS);
        [unix_seconds, before]
            .iter()
            .any(|seconds| self.cookie(peer, nonce, *seconds) == cookie)
    }

    /// The token of a session: of the `generation` of its index, bound to its peer.
    pub fn token(&self, peer: Peer, index: u32, generation: u32, incarnation: u64) -> u64 {
        let name = u64::from(index) | u64::from(generation) << 32;
        self.keyed(Purpose::Token, peer, name, incarnation)
    }

    fn keyed(&self, purpose: Purpose, peer: Peer, one: u64, other: u64) -> u64 {
        let mut bytes = [0; 40];
        let place = peer.port.to_le_bytes();
        let parts: [&[u8]; 6] = [
            &peer.address,
            &one.to_le_bytes(),
            &other.to_le_bytes(),
            &place,
            &[purpose as u8],
            &[0; 5],
        ];
        let source = parts.iter().flat_map(|part| part.iter());
        for (byte, from) in bytes.iter_mut().zip(source) {
            *byte = *from;
        }
        self.secret.hash(&bytes).0
    }
}

/// What a hash is for; no cookie is ever a token.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Purpose {
    Cookie = 1,
    Token = 2,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Peer = Peer {
        address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1],
        port: 4000,
    };

    /// Goal: a cookie is good for who got it, for what it was got for, and for two windows at most.
    /// Method: one cookie, and everything else changed in turn.
    #[test]
    fn a_cookie_is_bound_to_its_peer_nonce_and_time() {
        let cookies = Cookies::new(HashSeed([1, 2]));
        let cookie = cookies.cookie(HERE, 7, 800);
        assert!(cookies.is_good(cookie, HERE, 7, 800));
        assert!(cookies.is_good(cookie, HERE, 7, 815), "the next window");
        assert!(!cookies.is_good(cookie, HERE, 7, 816), "the one after");
        assert!(!cookies.is_good(cookie, HERE, 7, 799), "the one before");
        assert!(!cookies.is_good(cookie, HERE, 8, 800));
        let elsewhere = Peer { port: 4001, ..HERE };
        assert!(!cookies.is_good(cookie, elsewhere, 7, 800));
        let elsewhere = Peer {
            address: [0; 16],
            ..HERE
        };
        assert!(!cookies.is_good(cookie, elsewhere, 7, 800));
        let other = Cookies::new(HashSeed([1, 3]));
        assert!(!other.is_good(cookie, HERE, 7, 800));
    }

    #[test]
    fn a_token_changes_with_generation_incarnation_and_place() {
        let cookies = Cookies::new(HashSeed([1, 2]));
        let token = cookies.token(HERE, 3, 1, 9);
        let others = [
            cookies.token(HERE, 3, 2, 9),
            cookies.token(HERE, 4, 1, 9),
            cookies.token(HERE, 3, 1, 10),
            cookies.token(Peer { port: 1, ..HERE }, 3, 1, 9),
            cookies.cookie(HERE, 3 | 1 << 32, 9 * COOKIE_WINDOW_SECONDS),
        ];
        assert!(!others.contains(&token));
    }
}
