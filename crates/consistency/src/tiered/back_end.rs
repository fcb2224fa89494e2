//! The machine of a back end: which of its keys the cache may have, and what waits for the cache
//! (SW-23..38).

use alloc::{boxed::Box, collections::BTreeMap, collections::VecDeque, vec::Vec};

use curtail_types::{Access, Instant, RouteHash};

use super::{
    BackEndConfig, BackEndEvent, BackEndHost, CacheId, TierMutant, TierRefusal, TierRequest,
    message::{Generation, TierMessage},
};
use crate::replica::Ticket;

/// The machine of a back end.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TierBackEnd {
    config: BackEndConfig,
    mutant: Option<TierMutant>,
    /// The cache that it reports to.
    cache: Option<CacheId>,
    session: Option<Session>,
    /// Sessions so far, in this incarnation.
    sessions: u64,
    /// Until then leases of an earlier incarnation may hold.
    serves_at: Instant,
    /// Requests that wait, of all keys.
    waiting: usize,
    /// Who wants everything removed. No lease is granted meanwhile.
    flushes: Vec<Ticket>,
}

/// What the back end knows of its cache while that has a lease.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Session {
    cache: CacheId,
    /// The cache's number for it.
    number: u64,
    generation: Generation,
    /// The end of the lease.
    until: Instant,
    /// Numbers given to items and updates.
    sent: u64,
    /// The keys of which the cache may have a copy, and the number of the last message that had
    /// their item.
    entries: BTreeMap<RouteHash, u64>,
    /// Of these, the ones whose update is not acknowledged.
    rounds: BTreeMap<RouteHash, Box<Round>>,
}

/// An update that the cache has not acknowledged.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Round {
    number: u64,
    began: Instant,
    sent: Instant,
    /// Writes that ran, and are answered when it ends.
    written: Vec<Ticket>,
    /// What came since.
    queue: VecDeque<TierRequest>,
}

/// What a step works with.
#[derive(Clone, Copy, Debug)]
struct Context {
    config: BackEndConfig,
    now: Instant,
    mutant: Option<TierMutant>,
}

impl Context {
    fn has(&self, mutant: TierMutant) -> bool {
        cfg!(any(test, feature = "mutants")) && self.mutant == Some(mutant)
    }
}

impl TierBackEnd {
    /// A back end that begins at `now`. One that may have granted leases before, in another
    /// incarnation, refuses requests until those have ended (SW-37).
    pub const fn new(config: BackEndConfig, now: Instant, has_granted: bool) -> Self {
        Self {
            config,
            mutant: None,
            cache: None,
            session: None,
            sessions: 0,
            serves_at: match has_granted {
                true => config.terms.all_ended(now),
                false => Instant { ns: 0 },
            },
            waiting: 0,
            flushes: Vec::new(),
        }
    }

    /// The same with an error planted.
    #[cfg(any(test, feature = "mutants"))]
    #[must_use]
    pub fn with_mutant(mut self, mutant: TierMutant) -> Self {
        self.mutant = Some(mutant);
        self
    }

    /// When [`BackEndEvent::Tick`] is due at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let Some(session) = &self.session else {
            return (!self.flushes.is_empty()).then_some(self.serves_at);
        };
        let sent = session.rounds.values().map(|round| round.sent).min();
        let again = sent.map(|sent| Instant {
            ns: sent.ns.saturating_add(self.config.retransmit_ns),
        });
        Some(again.map_or(session.until, |at| at.min(session.until)))
    }

    /// Keys of which the cache may have a copy.
    pub fn cached(&self) -> usize {
        self.session.as_ref().map_or(0, |one| one.entries.len())
    }

    /// Whether the cache may have a copy of this key.
    pub fn is_cached(&self, key: RouteHash) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.entries.contains_key(&key))
    }

    /// Requests that wait, flushes among them, and updates that are not acknowledged.
    pub fn waiting(&self) -> (usize, usize) {
        (
            self.waiting + self.flushes.len(),
            self.session.as_ref().map_or(0, |one| one.rounds.len()),
        )
    }

    /// Before that leases of an earlier incarnation may hold, and it serves nobody.
    pub const fn serves_from(&self) -> Instant {
        self.serves_at
    }

    /// The end of the cache's lease.
    pub fn lease_end(&self) -> Option<Instant> {
        self.session.as_ref().map(|session| session.until)
    }

    /// Takes in what happened.
    pub fn step(&mut self, event: BackEndEvent<'_>, host: &mut impl BackEndHost) {
        let cx = Context {
            config: self.config,
            now: host.now(),
            mutant: self.mutant,
        };
        if self.lease_end().is_some_and(|until| cx.now >= until) {
            self.end_session(&cx, host);
        }
        match event {
            BackEndEvent::Tick => self.send_again(&cx, host),
            BackEndEvent::Request(request) => self.request(&cx, host, request),
            BackEndEvent::Message(from, message) => self.receive(&cx, host, from, message),
            BackEndEvent::Report(key) => self.send_item(&cx, host, key),
            BackEndEvent::Changed(key) => self.note_changed(&cx, host, key),
            BackEndEvent::Assign(cache) => self.assign(&cx, host, cache),
            BackEndEvent::Flush(ticket) => self.flush(&cx, host, ticket),
        }
        self.flush_when_alone(&cx, host);
    }

    // ---- requests ----

    fn request(&mut self, cx: &Context, host: &mut impl BackEndHost, request: TierRequest) {
        if cx.now < self.serves_at && !self.serves_early(cx, &request) {
            return host.refuse(request.ticket, TierRefusal::Restarted);
        }
        let waiting = self.waiting;
        let is_passed = cx.has(TierMutant::NoReadQueue) && request.access == Access::Read;
        if let Some(round) = self.round(request.key)
            && !is_passed
        {
            if waiting >= cx.config.waiting_max {
                return host.refuse(request.ticket, TierRefusal::Busy);
            }
            round.queue.push_back(request);
            self.waiting += 1;
            return;
        }
        let changed = host.run(&request);
        if !changed || !self.is_cached(request.key) {
            return host.respond(request.ticket);
        }
        let written = self.hold(cx, host, request.ticket);
        self.begin_round(cx, host, request.key, (written, VecDeque::new()));
    }

    fn serves_early(&self, cx: &Context, request: &TierRequest) -> bool {
        match request.access {
            Access::Read => cx.has(TierMutant::ReadsAfterRestart),
            _ => cx.has(TierMutant::WritesAfterRestart),
        }
    }

    /// The answer of a write that ran waits.
    fn hold(&mut self, cx: &Context, host: &mut impl BackEndHost, ticket: Ticket) -> Vec<Ticket> {
        if cx.has(TierMutant::AnswersAtOnce) {
            host.respond(ticket);
            return Vec::new();
        }
        self.waiting += 1;
        alloc::vec![ticket]
    }

    /// The store changed the key: the cache is told, and nobody waits.
    fn note_changed(&mut self, cx: &Context, host: &mut impl BackEndHost, key: RouteHash) {
        let Some(session) = self.session.as_mut() else {
            return;
        };
        if session.entries.contains_key(&key) {
            let round = session.rounds.remove(&key);
            let held = round.map(|round| (round.written, round.queue));
            self.begin_round(cx, host, key, held.unwrap_or_default());
        }
    }

    // ---- flushes ----

    fn flush(&mut self, cx: &Context, host: &mut impl BackEndHost, ticket: Ticket) {
        if self.flushes.len() >= cx.config.waiting_max {
            return host.refuse(ticket, TierRefusal::Busy);
        }
        self.flushes.push(ticket);
    }

    /// Removes everything if that was asked for, as soon as no cache may show a copy.
    fn flush_when_alone(&mut self, cx: &Context, host: &mut impl BackEndHost) {
        let may_show = self.session.is_some() && !cx.has(TierMutant::FlushesAtOnce);
        let is_early = cx.now < self.serves_at && !cx.has(TierMutant::FlushesAfterRestart);
        if self.flushes.is_empty() || may_show || is_early {
            return;
        }
        let asked = core::mem::take(&mut self.flushes);
        host.clear(&asked);
        asked.iter().for_each(|ticket| host.respond(*ticket));
    }

    // ---- rounds ----

    fn begin_round(
        &mut self,
        cx: &Context,
        host: &mut impl BackEndHost,
        key: RouteHash,
        (written, queue): (Vec<Ticket>, VecDeque<TierRequest>),
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        session.sent += 1;
        let number = session.sent;
        session.entries.insert(key, number);
        let round = Round {
            number,
            began: cx.now,
            sent: cx.now,
            written,
            queue,
        };
        session.rounds.insert(key, Box::new(round));
        let update = TierMessage::Update {
            generation: session.generation,
            key,
            number,
        };
        host.send(session.cache, &update);
    }

    /// Answers the writes of a round, and runs what waited behind it: reads up to the next write,
    /// and then writes up to the next read, which have a round of their own.
    fn finish(&mut self, cx: &Context, host: &mut impl BackEndHost, key: RouteHash, round: Round) {
        self.waiting -= round.written.len();
        round
            .written
            .iter()
            .for_each(|ticket| host.respond(*ticket));
        let mut queue = round.queue;
        let mut written = Vec::new();
        while let Some(&request) = queue.front() {
            let is_read = request.access == Access::Read;
            if is_read && !written.is_empty() && self.is_cached(key) {
                break;
            }
            queue.pop_front();
            self.waiting -= 1;
            let changed = host.run(&request);
            if changed && self.is_cached(key) {
                written.extend(self.hold(cx, host, request.ticket));
            } else {
                // What did not change anything may show a write before it that is held back.
                match written.is_empty() {
                    true => host.respond(request.ticket),
                    false => {
                        self.waiting += 1;
                        written.push(request.ticket);
                    }
                }
            }
        }
        if !written.is_empty() || !queue.is_empty() {
            self.begin_round(cx, host, key, (written, queue));
        }
    }

    fn send_again(&mut self, cx: &Context, host: &mut impl BackEndHost) {
        let Some(session) = &mut self.session else {
            return;
        };
        if cx.has(TierMutant::NeverResends) {
            return;
        }
        let (cache, generation) = (session.cache, session.generation);
        for (&key, round) in &mut session.rounds {
            if cx.now.ns - round.sent.ns >= cx.config.retransmit_ns {
                round.sent = cx.now;
                let number = round.number;
                host.send(
                    cache,
                    &TierMessage::Update {
                        generation,
                        key,
                        number,
                    },
                );
            }
        }
    }

    // ---- messages ----

    fn receive(
        &mut self,
        cx: &Context,
        host: &mut impl BackEndHost,
        from: CacheId,
        message: &TierMessage,
    ) {
        if let &TierMessage::Renew { session, sent } = message {
            return self.renew(cx, host, from, (session, sent));
        }
        let Some(session) = &self.session else {
            return;
        };
        if session.cache != from {
            return;
        }
        let own = session.generation;
        match *message {
            TierMessage::Fetch { generation, key } if generation == own => {
                self.send_item(cx, host, key);
            }
            TierMessage::Applied {
                generation,
                key,
                number,
            } if generation == own => self.take_applied(cx, host, key, number),
            TierMessage::Dropped {
                generation,
                key,
                number,
            } if generation == own => self.take_dropped(cx, host, key, number),
            _ => {}
        }
    }

    fn renew(
        &mut self,
        cx: &Context,
        host: &mut impl BackEndHost,
        from: CacheId,
        (number, sent): (u64, Instant),
    ) {
        let is_flushing = !self.flushes.is_empty() && !cx.has(TierMutant::RenewsWhileFlushing);
        if self.cache != Some(from) || is_flushing {
            return;
        }
        if let Some(session) = &self.session {
            let is_same = session.cache == from;
            if is_same && session.number > number {
                return;
            }
            // Another cache waits until the lease of the one before it has ended.
            if !is_same && !cx.has(TierMutant::ReassignsAtOnce) {
                return;
            }
            if !is_same || session.number < number {
                // The cache has dropped all that it had.
                self.end_session(cx, host);
            }
        }
        if self.is_unanswered(cx) {
            return;
        }
        let until = cx.config.terms.grantor_end(cx.now);
        let session = match &mut self.session {
            Some(session) => session,
            none => {
                self.sessions += 1;
                let generation = (cx.config.incarnation << 32) + self.sessions;
                none.insert(Session {
                    cache: from,
                    number,
                    generation: Generation(generation),
                    until,
                    sent: 0,
                    entries: BTreeMap::new(),
                    rounds: BTreeMap::new(),
                })
            }
        };
        session.until = session.until.max(until);
        let lease = TierMessage::Lease {
            session: number,
            generation: session.generation,
            sent,
        };
        host.send(from, &lease);
    }

    /// Whether an update has no answer for so long that the cache had better lose its lease.
    fn is_unanswered(&self, cx: &Context) -> bool {
        let session = self.session.iter();
        let mut rounds = session.flat_map(|session| session.rounds.values());
        rounds.any(|round| cx.now.ns - round.began.ns >= cx.config.patience_ns)
    }

    /// Sends the item, and remembers that the cache may have it.
    fn send_item(&mut self, cx: &Context, host: &mut impl BackEndHost, key: RouteHash) {
        if !host.has(key) || cx.now < self.serves_at {
            return;
        }
        let Some(session) = &mut self.session else {
            return;
        };
        let is_known = session.entries.contains_key(&key);
        if !is_known && session.entries.len() >= cx.config.entries_max {
            return self.make_room(cx, host);
        }
        session.sent += 1;
        let number = session.sent;
        if !cx.has(TierMutant::Untracked) {
            session.entries.insert(key, number);
        }
        let item = TierMessage::Item {
            generation: session.generation,
            key,
            number,
        };
        host.send(session.cache, &item);
    }

    /// The set is full: the cache shall drop the key that was sent least recently, of which it may
    /// have no copy at all.
    fn make_room(&mut self, cx: &Context, host: &mut impl BackEndHost) {
        let Some(session) = &mut self.session else {
            return;
        };
        let rounds = &session.rounds;
        let entries = session.entries.iter();
        let idle = entries.filter(|(key, _)| !rounds.contains_key(key));
        let Some((&key, _)) = idle.min_by_key(|(_, number)| **number) else {
            return;
        };
        if cx.has(TierMutant::ForgetsWhenFull) {
            session.entries.remove(&key);
            return;
        }
        session.sent += 1;
        let removal = TierMessage::Revoke {
            generation: session.generation,
            key,
            number: session.sent,
        };
        host.send(session.cache, &removal);
    }

    fn take_applied(
        &mut self,
        cx: &Context,
        host: &mut impl BackEndHost,
        key: RouteHash,
        number: u64,
    ) {
        let any = cx.has(TierMutant::AnyAcknowledgement);
        let Some(session) = &mut self.session else {
            return;
        };
        let is_over = |round: &mut Box<Round>| any || number >= round.number;
        if let Some(round) = remove_if(&mut session.rounds, key, is_over) {
            self.finish(cx, host, key, *round);
        }
    }

    fn take_dropped(
        &mut self,
        cx: &Context,
        host: &mut impl BackEndHost,
        key: RouteHash,
        number: u64,
    ) {
        let any = cx.has(TierMutant::DroppedAnyNumber);
        let Some(session) = &mut self.session else {
            return;
        };
        let is_last = |last: &mut u64| any || number >= *last;
        remove_if(&mut session.entries, key, is_last);
        self.take_applied(cx, host, key, number);
    }

    // ---- sessions ----

    fn assign(&mut self, cx: &Context, host: &mut impl BackEndHost, cache: CacheId) {
        self.cache = Some(cache);
        if cx.has(TierMutant::ReassignsAtOnce) {
            self.end_session(cx, host);
        }
    }

    /// The cache has no copy any more, or must not show it.
    fn end_session(&mut self, cx: &Context, host: &mut impl BackEndHost) {
        let Some(session) = self.session.take() else {
            return;
        };
        for (key, mut round) in session.rounds {
            if cx.has(TierMutant::QueueLost) {
                self.waiting -= round.queue.len();
                round.queue.clear();
            }
            self.finish(cx, host, key, *round);
        }
    }

    fn round(&mut self, key: RouteHash) -> Option<&mut Round> {
        Some(self.session.as_mut()?.rounds.get_mut(&key)?)
    }
}

/// Takes out what is there for `key` if it is as it must be.
fn remove_if<T>(
    map: &mut BTreeMap<RouteHash, T>,
    key: RouteHash,
    is_right: impl FnOnce(&mut T) -> bool,
) -> Option<T> {
    let is_right = map.get_mut(&key).is_some_and(is_right);
    is_right.then(|| map.remove(&key)).flatten()
}
