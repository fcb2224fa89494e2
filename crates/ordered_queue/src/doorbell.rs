//! The bell: the word that an idle executor polls for new work.
//!
//! If it looked at the slot at head instead, it would take that line of memory away from the
//! producer that is filling it, several times an entry. Who has published an entry rings, as the
//! last thing that it does for it, and waits for nothing then. The bell says that something was
//! published since it was heard last, not what: the entry itself is looked for in its slot.
//!
//! ```text
//!   producer   publish p .. ring: bell = p + 1
//!   executor   bell as it was heard last, and nothing was there then?  nothing is there now
//!              otherwise: remember the bell, then look at head
//! ```
//!
//! No entry is missed. One that was not there when head was looked at is rung for after that, and
//! each number is rung once, so that the bell does not again say what it said before; whoever rings
//! late, with a smaller number, changes it as well. A bell that was rung late may say for a while
//! that all is executed when it is not, so an executor believes that only so often; before it
//! sleeps it asks once [after all](OrderedQueue::has_news_after_all).
//!
//! What an executor leaves because another one has the lease is that one's. Both may look at the
//! same moment, the one at the lease that is just being given back, the other at the queue that
//! just took an entry; a fence on either side, [`before_looking_again`], has one of them see the
//! other.
//!
//! ```text
//!   A   publish .. lease is held --- fence --- the lease once more: still held, it is B's
//!   B   give the lease back -------- fence --- the queue once more: nothing there, it is A's
//! ```

use crate::{
    layout::control,
    queue::OrderedQueue,
    sync::{Ordering, fence},
};

/// What one executor has seen of one queue's bell.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BellListener {
    heard: u64,
    /// How often it trusts the bell before it looks itself.
    patience: u8,
    /// Whether the queue was empty when the bell had the value `heard`.
    is_idle: bool,
}

/// How often in a row an executor trusts a bell by which everything is executed.
const PATIENCE: u8 = if cfg!(loom) { 1 } else { 128 };

impl BellListener {
    /// Has seen no value yet: looks first.
    pub const fn new() -> Self {
        Self {
            heard: 0,
            patience: 0,
            is_idle: false,
        }
    }
}

impl Default for BellListener {
    fn default() -> Self {
        Self::new()
    }
}

impl OrderedQueue<'_> {
    /// Whether the entry at head is there to be executed, as [`OrderedQueue::has_entry`], for who
    /// asks again and again.
    #[inline]
    pub fn has_news(&self, listener: &mut BellListener) -> bool {
        self.hear(listener, true)
    }

    /// The same for who sleeps if it is not: a bell that may have been rung late is not believed.
    /// A producer that publishes after this has to wake the sleeper.
    #[inline]
    pub fn has_news_after_all(&self, listener: &mut BellListener) -> bool {
        self.hear(listener, false)
    }

    #[inline]
    fn hear(&self, listener: &mut BellListener, is_patient: bool) -> bool {
        // Acquire pairs with the Release in `ring`: who hears of an entry finds it.
        let rung = self.control(control::BELL).load(Ordering::Acquire);
        if rung != listener.heard {
            listener.heard = rung;
            listener.patience = PATIENCE;
            listener.is_idle = false;
        } else if listener.is_idle {
            return false;
        }
        if is_patient && rung == self.head() && listener.patience > 0 {
            listener.patience -= 1;
            return false;
        }
        let is_there = self.has_entry();
        listener.is_idle = !is_there;
        is_there
    }

    /// How many entries a turn is to execute at most that leaves the slot behind what was rung for
    /// to its producer; as many as there are if the bell does not tell.
    #[inline]
    pub fn rung_for(&self) -> usize {
        // Acquire pairs with the Release in `ring`.
        let rung = self.control(control::BELL).load(Ordering::Acquire);
        let ahead = rung.checked_sub(self.head()).filter(|ahead| *ahead > 0);
        ahead.map_or(usize::MAX, |ahead| ahead as usize)
    }

    /// After the entry at `pos` was published.
    #[inline]
    pub(crate) fn ring(&self, pos: u64) {
        // Release pairs with the Acquire in `has_news`. An exchange, with Acquire, so that who
        // hears this bell finds the entries of those who rang before, too.
        self.control(control::BELL).swap(pos + 1, Ordering::AcqRel);
    }
}

/// To be called between giving a lease back and asking
/// [after all](OrderedQueue::has_news_after_all), and between finding a lease held and
/// [asking for it again](OrderedQueue::take_lease).
#[inline]
pub fn before_looking_again() {
    // SeqCst pairs with itself, on the other side: of two that both write and then look at what the
    // other one writes, one sees it.
    fence(Ordering::SeqCst);
}
