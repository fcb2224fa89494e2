//! A tournament tree: which core has the next event.
//!
//! A worker has at most one event ahead, so a tournament replaces a heap: every inner node holds
//! the earlier of its two children, changing one party's time is one walk to the top without a
//! branch that depends on the times, and nothing is ever inserted or removed.

/// The next appointment of each party.
#[derive(Clone, Debug)]
pub(crate) struct Tournament {
    /// Node 1 is the root, the leaves begin at `leaves`. A node is time and party in one word.
    nodes: Vec<u64>,
    leaves: usize,
}

impl Tournament {
    pub(crate) fn new(parties: usize) -> Self {
        assert!(parties <= 1 << PARTY_BITS);
        let leaves = parties.next_power_of_two().max(2);
        Self {
            nodes: vec![NEVER; 2 * leaves],
            leaves,
        }
    }

    /// The earliest appointment and whose it is; `u64::MAX >> 8` if there is none.
    #[inline]
    pub(crate) fn first(&self) -> (u64, usize) {
        let word = self.nodes[1];
        (
            word >> PARTY_BITS,
            (word & ((1 << PARTY_BITS) - 1)) as usize,
        )
    }

    #[inline]
    pub(crate) fn set(&mut self, party: usize, time: u64) {
        self.put(party, time << PARTY_BITS | party as u64);
    }

    #[inline]
    pub(crate) fn clear(&mut self, party: usize) {
        self.put(party, NEVER);
    }

    #[inline]
    fn put(&mut self, party: usize, word: u64) {
        let mut node = self.leaves + party;
        self.nodes[node] = word;
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
        }
    }
}

const PARTY_BITS: u32 = 8;
const NEVER: u64 = u64::MAX;
/// What [`Tournament::first`] says when nobody has an appointment.
pub(crate) const NO_TIME: u64 = NEVER >> PARTY_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the first is the first. Method: random changes against a plain search.
    #[test]
    fn agrees_with_a_search() {
        let mut tournament = Tournament::new(70);
        let mut times = [NO_TIME; 70];
        assert_eq!(tournament.first().0, NO_TIME);
        let mut random = curtail_workload::Random::new(4);
        for _ in 0..10_000 {
            let party = random.below(70) as usize;
            if random.below(3) == 0 {
                tournament.clear(party);
                times[party] = NO_TIME;
            } else {
                times[party] = random.below(1_000);
                tournament.set(party, times[party]);
            }
            let (time, party) = tournament.first();
            assert_eq!(Some(&time), times.iter().min());
            assert!(time == NO_TIME || times[party] == time);
        }
    }
}
