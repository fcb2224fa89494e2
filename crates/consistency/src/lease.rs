//! How long a lease holds for who holds it, and for who granted it (Gray and Cheriton, SOSP 1989).
//!
//! ```text
//!   holder   sent = s ------------------> until s + length - margin
//!                  \
//!   grantor         received = r, r > s -----------> until r + length
//! ```
//!
//! Both read their own monotonic clocks, of which only the rates are relied on: each may be wrong
//! by 1 % (SwitchKV requirement SW-32). So the holder stops first, whatever the message took.

use curtail_types::Instant;

/// The length of a lease, and what its holder does without.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LeaseTerms {
    /// How long it holds for who grants it.
    pub length_ns: u64,
    /// What two clocks may differ by over a lease, and what passes between a look at the clock and
    /// the reply that it allows.
    pub margin_ns: u64,
}

impl LeaseTerms {
    /// A margin of 2 %, 1 % for either clock, and 5 ms.
    pub const fn of(length_ns: u64) -> Self {
        Self {
            length_ns,
            margin_ns: length_ns / 50 + 5_000_000,
        }
    }

    /// When the lease has ended for its holder, who asked for it at `sent`.
    pub const fn holder_end(self, sent: Instant) -> Instant {
        sent.later(self.length_ns.saturating_sub(self.margin_ns))
    }

    /// When it has ended for who granted it on being asked at `received`.
    pub const fn grantor_end(self, received: Instant) -> Instant {
        received.later(self.length_ns)
    }

    /// When every lease has ended that anybody may have granted before `now`.
    pub const fn all_ended(self, now: Instant) -> Instant {
        now.later(self.length_ns.saturating_add(self.margin_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the holder stops before the grantor, with clocks that are wrong by 1 % either way and
    /// a message that takes any time. Method: real times of both ends, over lengths and delays.
    #[test]
    fn the_holder_stops_first_whatever_the_clocks() {
        for length_ms in [50, 500, 5_000, 60_000] {
            let terms = LeaseTerms::of(length_ms * 1_000_000);
            for delay_ns in [0, 1_000_000, 400_000_000] {
                for (holder_rate, grantor_rate) in [(0.99, 1.01), (1.0, 1.0), (1.01, 0.99)] {
                    let start = Instant { ns: 0 };
                    let holder = terms.holder_end(start).ns as f64 / holder_rate;
                    let grantor =
                        delay_ns as f64 + terms.grantor_end(start).ns as f64 / grantor_rate;
                    assert!(
                        holder < grantor,
                        "{length_ms} {delay_ns} {holder} {grantor}"
                    );
                }
            }
        }
        let short = LeaseTerms::of(1);
        assert_eq!(short.holder_end(Instant { ns: 7 }), Instant { ns: 7 });
    }
}
