//! Follows the memory that the limit leaves to items.

use crate::{
    Store,
    open_segments::RESERVE,
    sync::{AtomicUsize, Mutex, Ordering, lock},
};

/// How many segments there may be, as it was last followed.
#[derive(Debug, Default)]
pub(crate) struct ItemBudget {
    /// Below this many available segments, more are made.
    low_water: AtomicUsize,
    segments_allowed: AtomicUsize,
    /// Held while a budget that has changed is followed.
    following: Mutex<()>,
}

impl ItemBudget {
    pub(crate) fn low_water(&self) -> usize {
        self.low_water.load(Ordering::Relaxed)
    }

    pub(crate) fn segments_allowed(&self) -> usize {
        self.segments_allowed.load(Ordering::Relaxed)
    }
}

impl Store {
    /// Whether fewer segments are available than there should always be: a few loads.
    #[inline]
    pub fn is_short_of_room(&self) -> bool {
        self.segments().available() < self.reclaim.budget.low_water()
    }

    /// Follows what the rest of the process and the index take of the limit.
    pub(crate) fn follow_budget(&self) {
        let allowed = self.segments_allowed();
        if self.reclaim.budget.segments_allowed() != allowed {
            self.follow_changed_budget();
        }
    }

    fn follow_changed_budget(&self) {
        let budget = &self.reclaim.budget;
        // One thread at a time, and with the budget of now: who was overtaken between the two
        // stores would leave the segments an older one.
        let _following = lock(&budget.following);
        let allowed = self.segments_allowed();
        budget.segments_allowed.store(allowed, Ordering::Relaxed);
        self.segments().set_resident_max(allowed);
        let bytes = allowed * self.segments().segment_bytes();
        self.room.eviction.set_item_bytes(bytes as u64);
        self.follow_low_water();
    }

    /// Below how many available segments more are made: on a node so many that a promise can be
    /// made.
    pub(crate) fn follow_low_water(&self) {
        let allowed = self.reclaim.budget.segments_allowed();
        let low_water = RESERVE + (allowed / 128).clamp(2, 64) + self.segments_to_promise();
        let place = &self.reclaim.budget.low_water;
        place.store(low_water, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{StoreConfig, sync::AtomicBool};

    /// Goal: of two threads that follow the budget at once, the one that knows an older budget does
    /// not have the last word about how many segments may hold memory. Method: one comes to the
    /// segments while they are held, the other when they are given back; without a lock about one
    /// round in 700 goes wrong.
    #[test]
    fn the_segments_follow_the_last_budget() {
        let store = Store::new(StoreConfig::default()).expect("a store");
        for round in 0..1000 {
            let follow = |bytes| {
                store.account(bytes);
                store.follow_budget();
            };
            let begun = AtomicBool::new(false);
            thread::scope(|scope| {
                store.segments().keep(|_| {
                    let allowed = || store.reclaim.budget.segments_allowed();
                    let before = allowed();
                    scope.spawn(|| follow(4 << 20));
                    while allowed() == before {
                        thread::yield_now();
                    }
                    scope.spawn(|| {
                        begun.store(true, Ordering::Relaxed);
                        follow(4 << 20);
                    });
                    while !begun.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                    0
                });
            });
            store.follow_budget();
            let (_, _, allowed) = store.segments().resident();
            assert_eq!(allowed, store.segments_allowed(), "{round}");
            follow(-8 << 20);
        }
    }
}
