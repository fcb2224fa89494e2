//! The machine of a cache node: of which keys it has copies, and until when it may show them
//! (SW-24..34).

use alloc::collections::BTreeMap;

use curtail_types::{Instant, RouteHash};

use super::{
    BackEndId, CacheConfig, CacheEvent, CacheHost, TierMutant,
    message::{Generation, KeyMessage, KeyMessageKind, TierMessage},
};

/// The machine of a cache node.
///
/// Reads run beside it. A reader finds a copy with [`look`](Self::look), takes its value, reads the
/// clock and asks [`shows`](Self::shows). A clock that was read before the request came will not
/// do: the process may have stood still since, and the lease have ended. If either says no, the
/// request goes on to the back end.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TierCache {
    config: CacheConfig,
    mutant: Option<TierMutant>,
    back_ends: BTreeMap<BackEndId, Session>,
    /// Sessions that this incarnation has begun.
    sessions: u64,
}

/// A number of the cache's that says which copies a reader looked at.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CacheSession(pub u64);

/// What the cache has of a back end.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Session {
    number: u64,
    /// The back end's; 0 while there is no lease.
    generation: Generation,
    /// The end of the lease.
    until: Instant,
    renew_at: Instant,
    /// Items with this number or a lower one are not taken for keys that have no copy.
    floor: u64,
    /// The keys with a copy, and the number of the message that it came with.
    copies: BTreeMap<RouteHash, u64>,
}

/// What a step works with.
struct Context<'a> {
    config: CacheConfig,
    now: Instant,
    mutant: Option<TierMutant>,
    from: BackEndId,
    host: &'a mut dyn CacheHost,
}

impl Context<'_> {
    fn has(&self, mutant: TierMutant) -> bool {
        cfg!(any(test, feature = "mutants")) && self.mutant == Some(mutant)
    }
}

impl TierCache {
    /// A cache without back ends, empty.
    pub const fn new(config: CacheConfig) -> Self {
        Self {
            config,
            mutant: None,
            back_ends: BTreeMap::new(),
            sessions: 0,
        }
    }

    /// The same with an error planted, if one is given and this build can plant it.
    #[must_use]
    pub fn with_mutant(mut self, mutant: impl Into<Option<TierMutant>>) -> Self {
        self.mutant = mutant.into();
        self
    }

    /// When [`CacheEvent::Tick`] is due at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let sessions = self.back_ends.values();
        let due = sessions.map(|session| match session.generation {
            Generation(0) => session.renew_at,
            _ => session.renew_at.min(session.until),
        });
        due.min()
    }

    /// The session of the copy of a key, if there is one.
    pub fn look(&self, from: BackEndId, key: RouteHash) -> Option<CacheSession> {
        let session = self.back_ends.get(&from)?;
        let has_copy = session.copies.contains_key(&key);
        has_copy.then_some(CacheSession(session.number))
    }

    /// The present session with a back end.
    pub fn session(&self, from: BackEndId) -> Option<CacheSession> {
        let session = self.back_ends.get(&from)?;
        Some(CacheSession(session.number))
    }

    /// Whether a copy that was looked at in this session may be shown, by a clock that was read
    /// after the request came.
    pub fn shows(&self, from: BackEndId, session: CacheSession, now: Instant) -> bool {
        let Some(own) = self.back_ends.get(&from) else {
            return false;
        };
        let ignores =
            cfg!(any(test, feature = "mutants")) && self.mutant == Some(TierMutant::LeaseIgnored);
        own.number == session.0 && (now < own.until || ignores)
    }

    /// The end of the lease of this back end, if there is one.
    pub fn lease_end(&self, from: BackEndId) -> Option<Instant> {
        let session = self.back_ends.get(&from)?;
        (session.generation != Generation(0)).then_some(session.until)
    }

    /// The keys of a back end that have a copy.
    pub fn copies(&self, from: BackEndId) -> impl Iterator<Item = RouteHash> {
        let session = self.back_ends.get(&from).into_iter();
        session.flat_map(|session| session.copies.keys().copied())
    }

    /// Takes in what happened.
    pub fn step(&mut self, event: CacheEvent<'_>, host: &mut impl CacheHost) {
        let from = match event {
            CacheEvent::Tick => BackEndId::default(),
            CacheEvent::Message(from, _)
            | CacheEvent::Join(from)
            | CacheEvent::Leave(from)
            | CacheEvent::Fetch(from, _)
            | CacheEvent::Evict(from, _) => from,
        };
        let cx = &mut Context {
            config: self.config,
            now: host.now(),
            mutant: self.mutant,
            from,
            host,
        };
        match event {
            CacheEvent::Tick => self.tick(cx),
            CacheEvent::Join(_) => self.join(cx),
            CacheEvent::Leave(_) => {
                if let Some(session) = self.back_ends.remove(&from) {
                    session.remove_all(cx);
                }
            }
            CacheEvent::Message(_, message) => {
                if self.end_if_over(cx) {
                    self.receive(cx, message);
                }
            }
            CacheEvent::Fetch(_, key) => {
                let session = self.back_ends.get(&from);
                let generation = session.map(|one| one.generation).unwrap_or_default();
                if generation != Generation(0) {
                    let fetch = KeyMessageKind::Fetch.message(generation, key, 0);
                    cx.host.send(from, &fetch);
                }
            }
            CacheEvent::Evict(_, key) => {
                if let Some(session) = self.back_ends.get_mut(&from)
                    && let Some(&number) = session.copies.get(&key)
                {
                    session.drop_copy(cx, key, number);
                }
            }
        }
    }

    // ---- sessions ----

    fn join(&mut self, cx: &mut Context) {
        if !self.back_ends.contains_key(&cx.from) {
            let session = Session::new(self.next_session(cx));
            self.back_ends.insert(cx.from, session);
            self.renew(cx);
        }
    }

    fn next_session(&mut self, cx: &Context) -> u64 {
        self.sessions += 1;
        match cx.has(TierMutant::SessionReused) {
            true => self.sessions,
            false => (cx.config.incarnation << 32) + self.sessions,
        }
    }

    fn tick(&mut self, cx: &mut Context) {
        let mut at = BackEndId::default();
        while let Some((&from, session)) = self.back_ends.range(at..).next() {
            cx.from = from;
            let is_due = cx.now >= session.renew_at;
            if self.end_if_over(cx) && is_due {
                self.renew(cx);
            }
            match from.0.checked_add(1) {
                Some(next) => at = BackEndId(next),
                None => return,
            }
        }
    }

    /// Ends a session whose lease has ended; whether it goes on.
    fn end_if_over(&mut self, cx: &mut Context) -> bool {
        let Some(session) = self.back_ends.get(&cx.from) else {
            return false;
        };
        let is_over = session.generation != Generation(0) && cx.now >= session.until;
        if is_over && !cx.has(TierMutant::LeaseIgnored) {
            self.begin_again(cx);
        }
        !is_over
    }

    /// Drops everything of the back end and begins another session.
    fn begin_again(&mut self, cx: &mut Context) {
        let next = Session::new(self.next_session(cx));
        if let Some(last) = self.back_ends.insert(cx.from, next) {
            last.remove_all(cx);
        }
        self.renew(cx);
    }

    fn renew(&mut self, cx: &mut Context) {
        let Some(session) = self.back_ends.get_mut(&cx.from) else {
            return;
        };
        session.renew_at = cx.now.later(cx.config.renew_ns);
        let renew = TierMessage::Renew {
            session: session.number,
            sent: cx.now,
        };
        cx.host.send(cx.from, &renew);
    }

    // ---- messages ----

    fn receive(&mut self, cx: &mut Context, message: &TierMessage) {
        let &KeyMessage {
            kind,
            generation,
            key,
            number,
        } = match message {
            &TierMessage::Lease {
                session,
                generation,
                sent,
            } => return self.take_lease(cx, (session, generation, sent)),
            TierMessage::OfKey(message) => message,
            TierMessage::Renew { .. } => return,
        };
        let Some(session) = self.back_ends.get_mut(&cx.from) else {
            return;
        };
        if generation != session.generation && !cx.has(TierMutant::NoGeneration) {
            return;
        }
        match kind {
            KeyMessageKind::Item => session.take_item(cx, key, number),
            KeyMessageKind::Update => session.take_update(cx, key, number),
            KeyMessageKind::Revoke => {
                let is_newer = session.copies.get(&key).is_some_and(|own| *own > number);
                if !is_newer {
                    session.drop_copy(cx, key, number);
                }
            }
            KeyMessageKind::Fetch | KeyMessageKind::Applied | KeyMessageKind::Dropped => {}
        }
    }

    fn take_lease(
        &mut self,
        cx: &mut Context,
        (number, generation, sent): (u64, Generation, Instant),
    ) {
        let Some(session) = self.back_ends.get_mut(&cx.from) else {
            return;
        };
        if session.number != number || generation < session.generation {
            return;
        }
        let is_first = session.generation == Generation(0);
        if !is_first && generation != session.generation && !cx.has(TierMutant::NoGeneration) {
            // The back end has begun again, and knows nothing of the copies.
            return self.begin_again(cx);
        }
        let sent = match cx.has(TierMutant::LeaseFromReply) {
            true => cx.now,
            false => sent,
        };
        session.generation = generation;
        session.until = session.until.max(cx.config.terms.holder_end(sent));
    }
}

impl Session {
    const fn new(number: u64) -> Self {
        Self {
            number,
            generation: Generation(0),
            until: Instant { ns: 0 },
            renew_at: Instant { ns: 0 },
            floor: 0,
            copies: BTreeMap::new(),
        }
    }

    fn remove_all(&self, cx: &mut Context) {
        let keys = self.copies.keys();
        keys.for_each(|key| cx.host.remove(cx.from, *key));
    }

    fn take_item(&mut self, cx: &mut Context, key: RouteHash, number: u64) {
        let own = self.copies.get(&key).copied();
        if own.is_some_and(|own| own >= number) {
            return;
        }
        let is_above = number > self.floor || cx.has(TierMutant::NoFloor);
        let is_taken = own.is_some() || (is_above && cx.host.admits(cx.from, key));
        if is_taken && cx.host.has_incoming() {
            self.copies.insert(key, number);
            cx.host.store(cx.from, key);
        } else {
            self.drop_copy(cx, key, number);
        }
    }

    fn take_update(&mut self, cx: &mut Context, key: RouteHash, number: u64) {
        let own = self.copies.get(&key).copied();
        if own.is_none() && cx.has(TierMutant::AbsentApplied) {
            return self.answer_applied(cx, key, number);
        }
        let is_newer = own.is_none_or(|own| number > own) || cx.has(TierMutant::OrderIgnored);
        if is_newer && (own.is_none() || !cx.host.has_incoming()) {
            return self.drop_copy(cx, key, number);
        }
        if is_newer {
            self.copies.insert(key, number);
            cx.host.store(cx.from, key);
        }
        self.answer_applied(cx, key, number);
    }

    fn answer_applied(&self, cx: &mut Context, key: RouteHash, number: u64) {
        let applied = KeyMessageKind::Applied.message(self.generation, key, number);
        cx.host.send(cx.from, &applied);
    }

    /// There is no copy from now on, and none comes with this number or a lower one.
    fn drop_copy(&mut self, cx: &mut Context, key: RouteHash, number: u64) {
        if self.copies.remove(&key).is_some() {
            cx.host.remove(cx.from, key);
        }
        self.floor = self.floor.max(number);
        let dropped = KeyMessageKind::Dropped.message(self.generation, key, number);
        cx.host.send(cx.from, &dropped);
    }
}
