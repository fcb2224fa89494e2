//! One core under a plan: what it does next, and where it puts requests of other cores.
//!
//! Minos, section 3.2: small cores read all receive (RX) queues, their own and a share of the large
//! cores', so that all drain alike; large cores read nothing but their ring. The driver owns the
//! queues; it asks [`SizeCore::next`] where to take from and [`SizePlan::route`] where to put what
//! proved to be large.
//!
//! Beside the paper's text: a core that has work in its ring, or is doing it, is *in large mode*
//! whatever the plan says (a standby core, or one that was large until now), and the others drain
//! its RX queue. Without that the requests that arrive at a standby core wait behind the large one.

use curtail_dispatch::{
    Worker,
    pull_baselines::{Source, Take},
    size_aware::SizePlan,
};

/// One core's behaviour. What it remembers is where its round through other queues stands.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SizeCore {
    me: Worker,
    batch: u16,
    stealing: Stealing,
    /// Rounds so far; shares of a batch that are no whole number rotate with it.
    rounds: u64,
    /// The next RX queue of this round: 0 the own, then the large cores' in order.
    position: u16,
}

/// Whether idle cores look further than their share.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Stealing {
    /// They do not (the paper's system).
    #[default]
    Off,
    /// An idle small core takes one request of another small core's RX queue. What proves to be
    /// large is handed on as always, so no small request waits behind a large one.
    SmallCores,
    /// As `Off`, and a standby core keeps its RX queue to itself while it serves a large request.
    /// For showing why it must not.
    NaiveStandby,
}

impl SizeCore {
    /// Core `me`, which takes `batch` requests of its RX queue at a time (32 in the paper).
    pub fn new(me: Worker, batch: u16, stealing: Stealing) -> Self {
        assert!(batch > 0);
        Self {
            me,
            batch,
            stealing,
            rounds: 0,
            position: 0,
        }
    }

    /// Where to take from now, or `None` if there is nothing for this core. `depth` says how many
    /// requests a queue holds; of a ring it counts the one in service too.
    #[inline]
    pub fn next(&mut self, plan: &SizePlan, depth: impl Fn(Source) -> usize) -> Option<Take> {
        let ring = Source::Ring(self.me);
        if depth(ring) > 0 {
            return Some(Take { from: ring, max: 1 });
        }
        if !plan.is_small(self.me) {
            return self.steal_as_large(plan, &depth);
        }
        let taken = self.round(plan, &depth);
        taken.or_else(|| self.steal_as_small(plan, &depth))
    }

    /// Own queue, then the share of each large core's; a round ends where it began.
    fn round(&mut self, plan: &SizePlan, depth: &impl Fn(Source) -> usize) -> Option<Take> {
        for _ in 0..=plan.cores {
            let position = self.position;
            let (queue, max) = match position {
                0 => (Some(self.me), self.batch),
                _ => {
                    let large = self.large_mode(plan, depth, position);
                    (large, self.share(plan, position))
                }
            };
            self.position = match queue {
                Some(_) => position + 1,
                None => 0,
            };
            self.rounds += u64::from(queue.is_none());
            let from = queue.map(Source::Rx);
            if let Some(from) = from.filter(|from| max > 0 && depth(*from) > 0) {
                return Some(Take { from, max });
            }
        }
        // A round in which this core had no share of what there is: one is taken all the same.
        let mut others = (1..=plan.cores).map_while(|n| self.large_mode(plan, depth, n));
        let found = others.find(|queue| depth(Source::Rx(*queue)) > 0)?;
        Some(Take {
            from: Source::Rx(found),
            max: 1,
        })
    }

    /// The `number`th core (from 1) whose RX queue others drain.
    fn large_mode(
        &self,
        plan: &SizePlan,
        depth: &impl Fn(Source) -> usize,
        number: u16,
    ) -> Option<Worker> {
        let busy = |core: &Worker| {
            let naive = self.stealing == Stealing::NaiveStandby;
            !plan.is_small(*core) || (!naive && depth(Source::Ring(*core)) > 0)
        };
        let others = (0..plan.cores).map(Worker).filter(|core| *core != self.me);
        others.filter(busy).nth(usize::from(number) - 1)
    }

    /// This core's share of a batch of the large core at `position`: batch / small cores, and the
    /// remainder in turn.
    fn share(&self, plan: &SizePlan, position: u16) -> u16 {
        let small = u64::from(plan.small);
        let turn = self.rounds + u64::from(position) + u64::from(self.me.0);
        let before = turn * u64::from(self.batch) / small;
        let after = (turn + 1) * u64::from(self.batch) / small;
        (after - before) as u16
    }

    /// An extra large core takes single requests of small cores when its ring is empty.
    fn steal_as_large(&self, plan: &SizePlan, depth: &impl Fn(Source) -> usize) -> Option<Take> {
        if !plan.extra_large {
            return None;
        }
        longest((0..plan.small).map(Worker), depth)
    }

    fn steal_as_small(&self, plan: &SizePlan, depth: &impl Fn(Source) -> usize) -> Option<Take> {
        if self.stealing != Stealing::SmallCores {
            return None;
        }
        let others = (0..plan.small).map(Worker).filter(|core| *core != self.me);
        longest(others, depth)
    }
}

/// One request of the fullest of these cores' RX queues.
fn longest(cores: impl Iterator<Item = Worker>, depth: &impl Fn(Source) -> usize) -> Option<Take> {
    let from = cores.map(Source::Rx).max_by_key(|from| depth(*from))?;
    (depth(from) > 0).then_some(Take { from, max: 1 })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use curtail_dispatch::size_aware::SizeClasses;

    use super::*;

    const W: fn(u16) -> Worker = Worker;

    fn plan(cores: u16, small: u16) -> SizePlan {
        let mut plan = SizePlan::all_small(cores, SizeClasses::LogLinear);
        plan.small = small;
        plan
    }

    fn taken(core: &mut SizeCore, plan: &SizePlan, queues: &[(Source, usize)]) -> Option<Take> {
        let queues: BTreeMap<Source, usize> = queues.iter().copied().collect();
        core.next(plan, |source| queues.get(&source).copied().unwrap_or(0))
    }

    /// Goal: all RX queues drain alike (section 3.2). Method: endless queues, 100 rounds of every
    /// small core, for shares that are and are not whole numbers.
    #[test]
    fn all_queues_drain_at_one_rate() {
        for (cores, small, batch) in [(8, 4, 32), (8, 7, 32), (64, 60, 32), (8, 5, 1)] {
            let plan = plan(cores, small);
            let mut drained = vec![0_u64; usize::from(cores)];
            for me in 0..small {
                let mut core = SizeCore::new(W(me), batch, Stealing::Off);
                while core.rounds < 20 * u64::from(small) {
                    let endless = |source| match source {
                        Source::Rx(_) => 1_000,
                        _ => 0,
                    };
                    let Some(take) = core.next(&plan, endless) else {
                        panic!("endless work");
                    };
                    if let Source::Rx(queue) = take.from {
                        drained[queue.index()] += u64::from(take.max);
                    }
                }
            }
            let (least, most) = (drained.iter().min(), drained.iter().max());
            let (least, most) = (*least.unwrap() as f64, *most.unwrap() as f64);
            assert!(most / least < 1.05, "{cores} {small}: {drained:?}");
        }
    }

    #[test]
    fn large_cores_serve_their_ring_and_nothing_else() {
        let plan = plan(4, 3);
        let mut core = SizeCore::new(W(3), 32, Stealing::SmallCores);
        let waiting = [(Source::Rx(W(3)), 5), (Source::Rx(W(0)), 5)];
        assert_eq!(taken(&mut core, &plan, &waiting), None);
        let ring = (Source::Ring(W(3)), 2);
        let take = taken(&mut core, &plan, &[ring, waiting[0]]);
        assert_eq!(
            take,
            Some(Take {
                from: ring.0,
                max: 1
            })
        );
        // The extra large core of section 6.4 takes single small requests.
        let mut extra = plan;
        extra.extra_large = true;
        let take = taken(&mut core, &extra, &waiting);
        let expected = Take {
            from: waiting[1].0,
            max: 1,
        };
        assert_eq!(take, Some(expected));
    }

    #[test]
    fn a_busy_standby_cores_queue_is_drained_by_the_others() {
        let plan = plan(4, 4);
        assert_eq!(plan.standby(), Some(W(3)));
        let waiting = [(Source::Rx(W(3)), 5), (Source::Ring(W(3)), 1)];
        for (stealing, taken_from) in [
            (Stealing::Off, Some(Source::Rx(W(3)))),
            (Stealing::NaiveStandby, None),
        ] {
            let mut core = SizeCore::new(W(0), 4, stealing);
            let take = taken(&mut core, &plan, &waiting);
            assert_eq!(take.map(|take| take.from), taken_from);
        }
        // The standby core itself goes to its ring first, and is small when that is empty.
        let mut standby = SizeCore::new(W(3), 4, Stealing::Off);
        let take = taken(&mut standby, &plan, &waiting);
        assert_eq!(take.map(|take| take.from), Some(Source::Ring(W(3))));
        let take = taken(&mut standby, &plan, &waiting[..1]);
        assert_eq!(take.map(|take| take.from), Some(Source::Rx(W(3))));
    }

    #[test]
    fn an_idle_small_core_takes_one_request_of_the_fullest() {
        let plan = plan(4, 4);
        let waiting = [(Source::Rx(W(1)), 5), (Source::Rx(W(2)), 7)];
        for (stealing, expected) in [
            (Stealing::Off, None),
            (Stealing::SmallCores, Some(Source::Rx(W(2)))),
        ] {
            let mut core = SizeCore::new(W(0), 4, stealing);
            let take = taken(&mut core, &plan, &waiting);
            assert_eq!(take.map(|take| take.from), expected);
            assert!(take.is_none_or(|take| take.max == 1));
        }
    }

    #[test]
    fn one_core_does_both() {
        let plan = plan(1, 1);
        let mut core = SizeCore::new(W(0), 4, Stealing::Off);
        let ring = (Source::Ring(W(0)), 1);
        let rx = (Source::Rx(W(0)), 1);
        let take = taken(&mut core, &plan, &[ring, rx]);
        assert_eq!(take.map(|take| take.from), Some(ring.0));
        let take = taken(&mut core, &plan, &[rx]);
        assert_eq!(take.map(|take| take.from), Some(rx.0));
    }
}
