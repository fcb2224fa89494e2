//! The hosts of back ends and cache: a network without delay, values that nobody looks at.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use curtail_consistency::replica::Ticket;
use curtail_consistency::tiered::{
    Admission, Admitted, BackEndHost, BackEndId, CacheHost, CacheId, CacheSession, KeyMessageKind,
    RuleQueue, TierMessage, TierRefusal, TierRequest,
};
use curtail_types::{Access, Instant, Load, RouteHash};

/// What switch and cache know of a key; what a packet meets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyState {
    /// The switch sends it to the cache.
    pub(super) has_rule: bool,
    /// Where its hits are counted, and of which session the copy is.
    pub(super) copy: Option<(Admitted, CacheSession)>,
}

/// By hashes that are random already.
pub(super) type KeyStates = HashMap<u64, KeyState, BuildHasherDefault<AsIs>>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// A message on its way, with the load of an instant report.
#[derive(Clone, Copy, Debug)]
pub(super) enum Parcel {
    ToCache(BackEndId, TierMessage, Option<Load>),
    ToBackEnd(BackEndId, TierMessage),
}

/// What a back end asks for.
pub(super) struct BackEndDesk<'a> {
    pub(super) me: BackEndId,
    pub(super) network: &'a mut VecDeque<Parcel>,
    pub(super) now: Instant,
    /// Of the instant report that is being sent.
    pub(super) load: Option<Load>,
}

impl BackEndHost for BackEndDesk<'_> {
    #[inline]
    fn run(&mut self, request: &TierRequest) -> bool {
        request.access != Access::Read
    }

    fn clear(&mut self, _: &[Ticket]) {
        unreachable!("nothing is flushed here");
    }

    #[inline]
    fn respond(&mut self, _: Ticket) {}

    fn refuse(&mut self, _: Ticket, refusal: TierRefusal) {
        // The limits of a step are far above what a slot brings.
        unreachable!("{refusal:?}");
    }

    fn has(&self, _: RouteHash) -> bool {
        true
    }

    fn send(&mut self, _: CacheId, message: &TierMessage) {
        let parcel = Parcel::ToCache(self.me, *message, self.load);
        self.network.push_back(parcel);
    }

    fn now(&self) -> Instant {
        self.now
    }
}

/// What the cache asks for.
pub(super) struct CacheDesk<'a> {
    pub(super) network: &'a mut VecDeque<Parcel>,
    pub(super) admission: &'a mut Admission,
    pub(super) rules: &'a mut RuleQueue,
    pub(super) keys: &'a mut KeyStates,
    pub(super) now: Instant,
    /// Of the instant report that came.
    pub(super) load: Option<Load>,
    /// Where hits of the admitted key are counted.
    pub(super) admitted: Option<Admitted>,
    /// Updates that were applied.
    pub(super) updates: u64,
}

impl CacheHost for CacheDesk<'_> {
    fn send(&mut self, to: BackEndId, message: &TierMessage) {
        self.updates += u64::from(message.key_of(KeyMessageKind::Applied).is_some());
        self.network.push_back(Parcel::ToBackEnd(to, *message));
    }

    /// Admits, and then has the rule installed (SW-15).
    fn admits(&mut self, _: BackEndId, key: RouteHash) -> bool {
        if self.rules.is_full() {
            return false;
        }
        self.admitted = self.admission.admit(key, self.load, self.now);
        let installs = self.admitted.is_some();
        if installs {
            let queued = match self.load {
                Some(_) => self.rules.install_first(key, self.now),
                None => self.rules.install(key, self.now),
            };
            debug_assert!(queued.is_ok(), "it is not full");
        }
        installs
    }

    fn has_incoming(&self) -> bool {
        true
    }

    fn store(&mut self, _: BackEndId, _: RouteHash) {}

    fn remove(&mut self, _: BackEndId, key: RouteHash) {
        self.admission.remove(key);
        if let Some(state) = self.keys.get_mut(&key.0) {
            state.copy = None;
        }
    }

    fn now(&self) -> Instant {
        self.now
    }
}
