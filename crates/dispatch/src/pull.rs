//! Baselines of size-aware sharding: which queue a core takes its next request from.
//!
//! Minos (Didona, Zwaenepoel, NSDI 2019, section 5.1) compares with three ways to bind requests to
//! cores: HKH, by hardware and key hash, early (as MICA); SHO, by hand-off cores, late (as
//! RAMCloud); HKH+WS, early with work stealing (as ZygOS). The driver owns the queues and asks.

use crate::request::{Access, Worker};

/// A queue that a core takes requests from.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Source {
    /// What the network delivered for this core.
    Rx(Worker),
    /// What was handed to this core by others: large requests.
    Ring(Worker),
    /// What this core has taken from its RX queue and not begun; others may steal it.
    Software(Worker),
    /// The one queue that hand-off cores fill and workers share.
    Shared,
}

/// Take up to `max` requests from a queue and run them, in order, before asking again; or, if it
/// was [`Puller::next`] that said so, move them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Take {
    /// The queue.
    pub from: Source,
    /// How many at most.
    pub max: u16,
}

/// What a core does next.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Pull {
    /// Take and run.
    Run(Take),
    /// Take and put at the end of another queue, then ask again.
    Move(Take, Source),
}

/// How requests are bound to cores.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Binding {
    /// HKH: what arrived at a core runs there.
    Early,
    /// SHO: the first `hand_off` cores move what arrives to the shared queue, the others take one
    /// at a time. With 0 the network itself fills the shared queue: ideal late binding.
    Late {
        /// Cores that move and do not run.
        hand_off: u16,
    },
    /// HKH+WS: as `Early`, and an idle core takes what others have not begun.
    EarlyStealing,
}

/// One core's behaviour.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Puller {
    binding: Binding,
    me: Worker,
    cores: u16,
    batch: u16,
}

impl Binding {
    /// The queue that a request is sent to. Writes, and under EREW reads, go by key; other reads
    /// to any core: `random` is any number, anew for each request.
    pub fn arrival(self, hash: u64, access: Access, erew: bool, random: u64, cores: u16) -> Source {
        let word = match access {
            Access::Write => hash,
            Access::Read if erew => hash,
            Access::Read => random,
        };
        let receivers = match self {
            Self::Late { hand_off: 0 } => return Source::Shared,
            Self::Late { hand_off } => hand_off,
            Self::Early | Self::EarlyStealing => cores,
        };
        let core = (u128::from(word) * u128::from(receivers)) >> 64;
        Source::Rx(Worker(core as u16))
    }
}

impl Puller {
    /// Core `me` of `cores`; hand-off cores must leave at least one to run requests.
    pub fn new(binding: Binding, me: Worker, cores: u16, batch: u16) -> Self {
        assert!(batch > 0 && me.0 < cores);
        if let Binding::Late { hand_off } = binding {
            assert!(hand_off < cores, "nobody would run requests");
        }
        Self {
            binding,
            me,
            cores,
            batch,
        }
    }

    /// What to do now, or `None` if there is nothing for this core. `depth` says how many requests
    /// a queue holds.
    #[inline]
    pub fn next(&self, depth: impl Fn(Source) -> usize) -> Option<Pull> {
        let take = |from, max| Some(Take { from, max }).filter(|take| depth(take.from) > 0);
        match self.binding {
            Binding::Early => take(Source::Rx(self.me), self.batch).map(Pull::Run),
            Binding::Late { hand_off } if self.me.0 < hand_off => {
                let all = take(Source::Rx(self.me), self.batch)?;
                Some(Pull::Move(all, Source::Shared))
            }
            Binding::Late { .. } => take(Source::Shared, 1).map(Pull::Run),
            Binding::EarlyStealing => {
                let own = Source::Software(self.me);
                if let Some(one) = take(own, 1) {
                    return Some(Pull::Run(one));
                }
                if let Some(all) = take(Source::Rx(self.me), self.batch) {
                    return Some(Pull::Move(all, own));
                }
                let others = || (1..self.cores).map(|n| Worker((self.me.0 + n) % self.cores));
                let mut stealable = others()
                    .map(Source::Software)
                    .chain(others().map(Source::Rx));
                stealable.find_map(|from| take(from, 1)).map(Pull::Run)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(binding: Binding, me: u16, waiting: &[Source]) -> Option<Pull> {
        let puller = Puller::new(binding, Worker(me), 4, 32);
        puller.next(|source| usize::from(waiting.contains(&source)))
    }

    const RX: fn(u16) -> Source = |core| Source::Rx(Worker(core));
    const SOFTWARE: fn(u16) -> Source = |core| Source::Software(Worker(core));

    fn one(from: Source) -> Take {
        Take { from, max: 1 }
    }

    #[test]
    fn early_binding_looks_at_its_own_queue() {
        let batch = Take {
            from: RX(1),
            max: 32,
        };
        assert_eq!(next(Binding::Early, 1, &[RX(1)]), Some(Pull::Run(batch)));
        assert_eq!(next(Binding::Early, 1, &[RX(0), SOFTWARE(0)]), None);
    }

    #[test]
    fn late_binding_moves_on_some_cores_and_runs_on_others() {
        let late = Binding::Late { hand_off: 1 };
        let batch = Take {
            from: RX(0),
            max: 32,
        };
        let moved = Pull::Move(batch, Source::Shared);
        assert_eq!(next(late, 0, &[RX(0), Source::Shared]), Some(moved));
        assert_eq!(next(late, 0, &[Source::Shared]), None);
        let run = Some(Pull::Run(one(Source::Shared)));
        assert_eq!(next(late, 1, &[RX(0), Source::Shared]), run);
        assert_eq!(late.arrival(u64::MAX, Access::Write, false, 0, 4), RX(0));
    }

    #[test]
    fn stealing_takes_software_queues_before_rx_queues() {
        let steal = |waiting: &[Source]| next(Binding::EarlyStealing, 2, waiting);
        let run = |from| Some(Pull::Run(one(from)));
        assert_eq!(steal(&[SOFTWARE(2), RX(2)]), run(SOFTWARE(2)));
        let batch = Take {
            from: RX(2),
            max: 32,
        };
        let moved = Some(Pull::Move(batch, SOFTWARE(2)));
        assert_eq!(steal(&[RX(2), SOFTWARE(1)]), moved);
        assert_eq!(steal(&[RX(3), SOFTWARE(1)]), run(SOFTWARE(1)));
        assert_eq!(steal(&[RX(1)]), run(RX(1)));
        assert_eq!(steal(&[]), None);
    }

    #[test]
    fn writes_go_by_key_and_reads_anywhere() {
        let to = |access, erew, random| Binding::Early.arrival(1 << 63, access, erew, random, 4);
        assert_eq!(to(Access::Write, false, 0), RX(2));
        assert_eq!(to(Access::Read, true, 0), RX(2));
        assert_eq!(to(Access::Read, false, 0), RX(0));
        assert_eq!(to(Access::Read, false, u64::MAX), RX(3));
    }
}
