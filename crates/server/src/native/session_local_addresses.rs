//! The local address to which each session's client sends, for a server that listens at all
//! addresses: replies that an executor sends later leave from the same address.
//!
//! An entry of a queue has no room for it, and the XDP program, which fills most, has no
//! need for it. It is noted when a session is granted and when it reads or pings.

use std::net::{IpAddr, Ipv6Addr};

use crate::sync::{AtomicU64, Relaxed};

/// Two words for each session: the address in 16 bytes, IPv4 in its mapped form; 0 for none.
pub(crate) struct Locals {
    words: Box<[[AtomicU64; 2]]>,
}

impl Locals {
    /// For so many sessions; for none where every socket has one address.
    pub(super) fn new(sessions: usize) -> Self {
        let none = || [AtomicU64::new(0), AtomicU64::new(0)];
        Self {
            words: (0..sessions).map(|_| none()).collect(),
        }
    }

    /// The session's client has asked this address.
    #[inline]
    pub(super) fn note(&self, session: u32, local: Option<IpAddr>) {
        let (Some([high, low]), Some(local)) = (self.words.get(session as usize), local) else {
            return;
        };
        let bits = match local {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        for (word, bits) in [(high, (bits >> 64) as u64), (low, bits as u64)] {
            // Written only when it changes, as it hardly ever does.
            if word.load(Relaxed) != bits {
                word.store(bits, Relaxed);
            }
        }
    }

    /// What was noted last. While a session changes hands it may be half of each, and the answer is
    /// lost as on the network.
    #[inline]
    pub(super) fn of(&self, session: u32) -> Option<IpAddr> {
        let [high, low] = self.words.get(session as usize)?;
        let bits = u128::from(high.load(Relaxed)) << 64 | u128::from(low.load(Relaxed));
        (bits != 0).then(|| Ipv6Addr::from_bits(bits).to_canonical())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noted_address_is_found_unchanged() {
        let locals = Locals::new(2);
        assert_eq!(locals.of(1), None);
        for text in ["127.0.0.2", "::1", "10.0.0.1"] {
            let address = text.parse().ok();
            locals.note(1, address);
            assert_eq!(locals.of(1), address);
        }
        locals.note(1, None);
        assert!(locals.of(1).is_some() && locals.of(0).is_none());
        locals.note(7, "::1".parse().ok());
        assert_eq!(locals.of(7), None, "there is no such session");
        assert_eq!(Locals::new(0).of(0), None);
    }
}
