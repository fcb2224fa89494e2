//! Which sequence numbers of a sender have been seen: the sliding window of IPsec (RFC 4303,
//! section 3.4.3), so that a recorded message does nothing when it is sent again.

/// The highest number, and which of the 64 up to it have come.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct ReplayWindow {
    highest: u64,
    seen: u64,
}

impl ReplayWindow {
    /// How far behind the highest a number may come, in numbers.
    pub const NUMBERS: u64 = 64;

    /// Whether the message with this number is new; it counts as seen from now on. 0 is no number.
    /// A sender that restarts goes on above all that it has sent: it begins at its clock.
    pub const fn admit(&mut self, sequence: u64) -> bool {
        if sequence == 0 {
            return false;
        }
        if sequence > self.highest {
            let ahead = sequence - self.highest;
            self.seen = match ahead < Self::NUMBERS {
                true => self.seen << ahead | 1,
                false => 1,
            };
            self.highest = sequence;
            return true;
        }
        let behind = self.highest - sequence;
        if behind >= Self::NUMBERS || self.seen >> behind & 1 == 1 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every number is admitted once, in any order within the window, and never again.
    /// Method: a list of what was admitted beside the window, for numbers that jump about.
    #[test]
    fn every_number_is_admitted_once() {
        let mut random = curtail_workload::Random::new(21);
        let mut window = ReplayWindow::default();
        let mut admitted = [false; 1 << 16];
        let mut highest = 0;
        let (mut centre, mut late) = (1_u64, 0);
        for _ in 0..20_000 {
            centre += random.below(3);
            let sequence = (centre + random.below(40)).saturating_sub(random.below(120));
            let expected = sequence > 0
                && !admitted[sequence as usize]
                && sequence + ReplayWindow::NUMBERS > highest;
            assert_eq!(
                window.admit(sequence),
                expected,
                "{sequence} after {highest}"
            );
            late += u64::from(expected && sequence < highest);
            if expected {
                admitted[sequence as usize] = true;
                highest = highest.max(sequence);
            }
        }
        assert!(late > 1000, "numbers come out of order");
    }
}
