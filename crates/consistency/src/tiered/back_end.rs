//! The machine of a back end: which of its keys which cache may have, and what waits for the caches
//! (SW-23..38, CC-81).
//!
//! ```text
//!   write of a key -- at no cache --> answered
//!        |
//!        +-- at several: Revoke to all but one --dropped by all--+
//!        |                                                       v
//!        +-- at one: ------------------------------> Update --applied--> answered; then Item to
//!                                                                        those that dropped it
//! ```

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet, VecDeque},
    vec::Vec,
};

use curtail_types::{Access, Instant, RouteHash};

use super::{
    BackEndConfig, BackEndEvent, BackEndHost, CacheId, TierMutant, TierRefusal, TierRequest,
    message::{Generation, KeyMessage, KeyMessageKind, TierMessage},
};
use crate::replica::Ticket;

/// The machine of a back end.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct TierBackEnd {
    config: BackEndConfig,
    mutant: Option<TierMutant>,
    /// The cache that it reports to.
    home: Option<CacheId>,
    /// Others that may have copies (CC-81).
    group: BTreeSet<CacheId>,
    /// One with each cache that has a lease.
    sessions: BTreeMap<CacheId, Session>,
    /// The keys whose writes wait for caches.
    rounds: BTreeMap<RouteHash, Box<Round>>,
    /// Sessions so far, in this incarnation.
    sessions_begun: u64,
    /// Until then leases of an earlier incarnation may hold.
    serves_at: Instant,
    /// Requests that wait, of all keys.
    waiting: usize,
    /// Who wants everything removed. No lease is granted meanwhile.
    flushes: Vec<Ticket>,
}

/// What the back end knows of a cache while that has a lease.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Session {
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
}

/// A write that caches have not acknowledged.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Round {
    /// The cache that keeps its copy and gets the update, and the update's number; 0 before it is
    /// sent.
    holder: (CacheId, u64),
    /// Caches that have not dropped theirs, with the number of the message that says so.
    others: Vec<(CacheId, u64)>,
    began: Instant,
    sent: Instant,
    held: Held,
}

/// What waits behind a round.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Held {
    /// Writes that ran, and are answered when it ends.
    written: Vec<Ticket>,
    /// What came since.
    queue: VecDeque<TierRequest>,
    /// Caches that want the item afterwards.
    wanting: Vec<CacheId>,
}

/// What a step works with.
struct Context<'a> {
    config: BackEndConfig,
    now: Instant,
    mutant: Option<TierMutant>,
    host: &'a mut dyn BackEndHost,
}

impl Context<'_> {
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
            home: None,
            group: BTreeSet::new(),
            sessions: BTreeMap::new(),
            rounds: BTreeMap::new(),
            sessions_begun: 0,
            serves_at: match has_granted {
                true => config.terms.all_ended(now),
                false => Instant { ns: 0 },
            },
            waiting: 0,
            flushes: Vec::new(),
        }
    }

    /// The same with an error planted, if one is given and this build can plant it.
    #[must_use]
    pub fn with_mutant(mut self, mutant: impl Into<Option<TierMutant>>) -> Self {
        self.mutant = mutant.into();
        self
    }

    /// When [`BackEndEvent::Tick`] is due at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let ends = self.sessions.values().map(|session| session.until);
        let Some(end) = ends.min() else {
            return (!self.flushes.is_empty()).then_some(self.serves_at);
        };
        let sent = self.rounds.values().map(|round| round.sent).min();
        let again = sent.map(|sent| sent.later(self.config.retransmit_ns));
        Some(again.map_or(end, |at| at.min(end)))
    }

    /// Copies that caches may have, of all keys.
    pub fn cached(&self) -> usize {
        let sessions = self.sessions.values();
        sessions.map(|session| session.entries.len()).sum()
    }

    /// Whether a cache may have a copy of this key.
    pub fn is_cached(&self, key: RouteHash) -> bool {
        let mut sessions = self.sessions.values();
        sessions.any(|session| session.entries.contains_key(&key))
    }

    /// Requests that wait, flushes among them, and updates that are not acknowledged.
    pub fn waiting(&self) -> (usize, usize) {
        (self.waiting + self.flushes.len(), self.rounds.len())
    }

    /// Before that leases of an earlier incarnation may hold, and it serves nobody.
    pub const fn serves_from(&self) -> Instant {
        self.serves_at
    }

    /// When the last lease ends.
    pub fn lease_end(&self) -> Option<Instant> {
        self.sessions.values().map(|session| session.until).max()
    }

    /// Whether a lease has ended that the next step notes.
    pub fn has_ended(&self, now: Instant) -> bool {
        self.sessions.values().any(|session| now >= session.until)
    }

    /// Takes in what happened.
    pub fn step(&mut self, event: BackEndEvent<'_>, host: &mut impl BackEndHost) {
        let cx = &mut Context {
            config: self.config,
            now: host.now(),
            mutant: self.mutant,
            host,
        };
        while let Some(id) = self.first_ended(cx.now) {
            self.end_session(cx, id);
        }
        match event {
            BackEndEvent::Tick => self.send_again(cx),
            BackEndEvent::Request(request) => self.request(cx, request),
            BackEndEvent::Message(from, message) => self.receive(cx, from, message),
            BackEndEvent::Report(key) => {
                if let Some(home) = self.home {
                    self.send_item(cx, home, key);
                }
            }
            BackEndEvent::Changed(key) => self.note_changed(cx, key),
            BackEndEvent::Assign(cache) => self.assign(cx, cache),
            BackEndEvent::Join(cache) => {
                self.group.insert(cache);
            }
            BackEndEvent::Flush(ticket) => self.flush(cx, ticket),
        }
        self.flush_when_alone(cx);
    }

    // ---- requests ----

    fn request(&mut self, cx: &mut Context, request: TierRequest) {
        if cx.now < self.serves_at && !self.serves_early(cx, &request) {
            return cx.host.refuse(request.ticket, TierRefusal::Restarted);
        }
        let waiting = self.waiting;
        if let Some(round) = self.rounds.get_mut(&request.key)
            && !round.is_passed_by(cx, &request)
        {
            if waiting >= cx.config.waiting_max {
                return cx.host.refuse(request.ticket, TierRefusal::Busy);
            }
            round.held.queue.push_back(request);
            self.waiting += 1;
            return;
        }
        let changed = cx.host.run(&request);
        if !changed || !self.is_cached(request.key) {
            return cx.host.respond(request.ticket);
        }
        let written = self.hold(cx, request.ticket);
        let held = Held {
            written,
            ..Held::default()
        };
        self.begin_round(cx, request.key, held);
    }

    fn serves_early(&self, cx: &Context, request: &TierRequest) -> bool {
        match request.access {
            Access::Read => cx.has(TierMutant::ReadsAfterRestart),
            _ => cx.has(TierMutant::WritesAfterRestart),
        }
    }

    /// The answer of a write that ran waits.
    fn hold(&mut self, cx: &mut Context, ticket: Ticket) -> Vec<Ticket> {
        if cx.has(TierMutant::AnswersAtOnce) {
            cx.host.respond(ticket);
            return Vec::new();
        }
        self.waiting += 1;
        alloc::vec![ticket]
    }

    /// The store changed the key: the caches are told, and nobody waits.
    fn note_changed(&mut self, cx: &mut Context, key: RouteHash) {
        if self.is_cached(key) {
            let held = self.rounds.remove(&key).map(|round| round.held);
            self.begin_round(cx, key, held.unwrap_or_default());
        }
    }

    // ---- flushes ----

    fn flush(&mut self, cx: &mut Context, ticket: Ticket) {
        if self.flushes.len() >= cx.config.waiting_max {
            return cx.host.refuse(ticket, TierRefusal::Busy);
        }
        self.flushes.push(ticket);
    }

    /// Removes everything if that was asked for, as soon as no cache may show a copy.
    fn flush_when_alone(&mut self, cx: &mut Context) {
        let may_show = !self.sessions.is_empty() && !cx.has(TierMutant::FlushesAtOnce);
        let is_early = cx.now < self.serves_at && !cx.has(TierMutant::FlushesAfterRestart);
        if self.flushes.is_empty() || may_show || is_early {
            return;
        }
        let asked = core::mem::take(&mut self.flushes);
        cx.host.clear(&asked);
        asked.iter().for_each(|ticket| cx.host.respond(*ticket));
    }

    // ---- rounds ----

    /// Has all caches but one drop the key, which is in some session, and that one update it.
    fn begin_round(&mut self, cx: &mut Context, key: RouteHash, mut held: Held) {
        let has = |session: &Session| session.entries.contains_key(&key);
        let mut sessions = self.sessions.iter();
        let at_home = |home: &CacheId| self.sessions.get(home).is_some_and(has);
        let first = || {
            sessions
                .find(|(_, session)| has(session))
                .map(|(id, _)| *id)
        };
        let Some(holder) = self.home.filter(at_home).or_else(first) else {
            return;
        };
        let mut others = Vec::new();
        for (&id, session) in &mut self.sessions {
            if id == holder || !session.entries.contains_key(&key) {
                continue;
            }
            session.sent += 1;
            session.entries.insert(key, session.sent);
            others.push((id, session.sent));
            held.wanting.retain(|other| *other != id);
            held.wanting.push(id);
            cx.host.send(id, &session.revocation(key, session.sent));
        }
        let is_update = others.is_empty() || cx.has(TierMutant::UpdatesTogether);
        let round = Round {
            holder: (holder, 0),
            others,
            began: cx.now,
            sent: cx.now,
            held,
        };
        self.rounds.insert(key, Box::new(round));
        if is_update || cx.has(TierMutant::FirstAcknowledgement) {
            self.update_holder(cx, key);
        }
    }

    /// Nobody else has a copy: the last one is updated, or its cache has no lease any more.
    fn update_holder(&mut self, cx: &mut Context, key: RouteHash) {
        let Some(round) = self.rounds.get_mut(&key) else {
            return;
        };
        let holder = round.holder.0;
        let holds = |session: &&mut Session| session.entries.contains_key(&key);
        match self.sessions.get_mut(&holder).filter(holds) {
            Some(session) => {
                session.sent += 1;
                session.entries.insert(key, session.sent);
                round.holder.1 = session.sent;
                round.sent = cx.now;
                cx.host.send(holder, &session.update(key, session.sent));
            }
            None => self.finish_round(cx, key),
        }
    }

    /// A cache has dropped the key, or shows nothing older than what has this number.
    fn note_acknowledged(
        &mut self,
        cx: &mut Context,
        key: RouteHash,
        (from, number): (CacheId, u64),
    ) {
        let any = cx.has(TierMutant::AnyAcknowledgement);
        let Some(round) = self.rounds.get_mut(&key) else {
            return;
        };
        let is_over = |wanted: u64| any || number >= wanted;
        let any_revoked = cx.has(TierMutant::RevocationAnyNumber);
        let before = round.others.len();
        round
            .others
            .retain(|(id, wanted)| *id != from || !(any_revoked || is_over(*wanted)));
        let is_other = round.others.len() < before;
        let (holder, wanted) = round.holder;
        if is_other && cx.has(TierMutant::FirstAcknowledgement) {
            self.finish_round(cx, key);
        } else if is_other && round.others.is_empty() && wanted == 0 {
            self.update_holder(cx, key);
        } else if from == holder && wanted > 0 && is_over(wanted) && round.may_end(cx) {
            self.finish_round(cx, key);
        }
    }

    /// Answers the writes of a round, and runs what waited behind it: reads up to the next write,
    /// and then writes up to the next read, which have a round of their own. When none is left, the
    /// caches that dropped the key get it again.
    fn finish_round(&mut self, cx: &mut Context, key: RouteHash) {
        let Some(round) = self.rounds.remove(&key) else {
            return;
        };
        let mut held = round.held;
        self.waiting -= held.written.len();
        let written = held.written.drain(..);
        written.for_each(|ticket| cx.host.respond(ticket));
        while let Some(&request) = held.queue.front() {
            let is_read = request.access == Access::Read;
            if is_read && !held.written.is_empty() && self.is_cached(key) {
                break;
            }
            held.queue.pop_front();
            self.waiting -= 1;
            let changed = cx.host.run(&request);
            if changed && self.is_cached(key) {
                held.written.extend(self.hold(cx, request.ticket));
            } else {
                // What did not change anything may show a write before it that is held back.
                match held.written.is_empty() {
                    true => cx.host.respond(request.ticket),
                    false => {
                        self.waiting += 1;
                        held.written.push(request.ticket);
                    }
                }
            }
        }
        if !held.written.is_empty() || !held.queue.is_empty() {
            return self.begin_round(cx, key, held);
        }
        for id in held.wanting {
            self.send_item(cx, id, key);
        }
    }

    fn send_again(&mut self, cx: &mut Context) {
        if cx.has(TierMutant::NeverResends) {
            return;
        }
        for (&key, round) in &mut self.rounds {
            if cx.now.ns - round.sent.ns < cx.config.retransmit_ns {
                continue;
            }
            round.sent = cx.now;
            let is_revoked_again = !cx.has(TierMutant::RevocationNotResent);
            for &(id, number) in round.others.iter().filter(|_| is_revoked_again) {
                if let Some(session) = self.sessions.get(&id) {
                    cx.host.send(id, &session.revocation(key, number));
                }
            }
            let (holder, number) = round.holder;
            if let Some(session) = self.sessions.get(&holder)
                && number > 0
            {
                cx.host.send(holder, &session.update(key, number));
            }
        }
    }

    // ---- messages ----

    fn receive(&mut self, cx: &mut Context, from: CacheId, message: &TierMessage) {
        let &KeyMessage {
            kind,
            generation,
            key,
            number,
        } = match message {
            &TierMessage::Renew { session, sent } => {
                return self.renew(cx, from, (session, sent));
            }
            TierMessage::OfKey(message) => message,
            TierMessage::Lease { .. } => return,
        };
        let Some(session) = self.sessions.get(&from) else {
            return;
        };
        let is_own = generation == session.generation;
        let counts = is_own || cx.has(TierMutant::AcknowledgedInAnySession);
        match kind {
            KeyMessageKind::Fetch if is_own => self.send_item(cx, from, key),
            KeyMessageKind::Applied if counts => {
                self.note_acknowledged(cx, key, (from, number));
            }
            KeyMessageKind::Dropped if counts => self.take_dropped(cx, key, (from, number)),
            _ => {}
        }
    }

    fn renew(&mut self, cx: &mut Context, from: CacheId, (number, sent): (u64, Instant)) {
        let is_flushing = !self.flushes.is_empty() && !cx.has(TierMutant::RenewsWhileFlushing);
        let is_known = self.home == Some(from) || self.group.contains(&from);
        if !is_known || is_flushing {
            return;
        }
        match self.sessions.get(&from) {
            Some(session) if session.number > number => return,
            // The cache has dropped all that it had.
            Some(session) if session.number < number => self.end_session(cx, from),
            _ => {}
        }
        if self.is_unanswered(cx, from) {
            return;
        }
        let until = cx.config.terms.grantor_end(cx.now);
        let (begun, incarnation) = (&mut self.sessions_begun, cx.config.incarnation);
        let session = self.sessions.entry(from).or_insert_with(|| {
            *begun += 1;
            Session {
                number,
                generation: Generation((incarnation << 32) + *begun),
                until,
                sent: 0,
                entries: BTreeMap::new(),
            }
        });
        session.until = session.until.max(until);
        let lease = TierMessage::Lease {
            session: number,
            generation: session.generation,
            sent,
        };
        cx.host.send(from, &lease);
    }

    /// Whether a message has no answer for so long that the cache had better lose its lease.
    fn is_unanswered(&self, cx: &Context, from: CacheId) -> bool {
        let mut rounds = self.rounds.values();
        let awaits = |round: &Round| {
            let mut others = round.others.iter();
            (round.holder.0 == from && round.holder.1 > 0) || others.any(|(id, _)| *id == from)
        };
        rounds.any(|round| awaits(round) && cx.now.ns - round.began.ns >= cx.config.patience_ns)
    }

    /// Sends the item, and remembers that the cache may have it. During a round of the key only the
    /// holder gets it, and only when nobody else has a copy; others get it afterwards.
    fn send_item(&mut self, cx: &mut Context, to: CacheId, key: RouteHash) {
        if !cx.host.has(key) || cx.now < self.serves_at {
            return;
        }
        let Some(session) = self.sessions.get_mut(&to) else {
            return;
        };
        if let Some(round) = self.rounds.get_mut(&key)
            && (round.holder.0 != to || !round.others.is_empty())
            && !cx.has(TierMutant::SentInRound)
        {
            if !round.held.wanting.contains(&to) {
                round.held.wanting.push(to);
            }
            return;
        }
        let is_known = session.entries.contains_key(&key);
        if !is_known && session.entries.len() >= cx.config.entries_max {
            return self.make_room(cx, to);
        }
        session.sent += 1;
        let number = session.sent;
        if !cx.has(TierMutant::Untracked) {
            session.entries.insert(key, number);
        }
        let item = KeyMessageKind::Item.message(session.generation, key, number);
        cx.host.send(to, &item);
    }

    /// The set is full: the cache shall drop the key that was sent least recently, of which it may
    /// have no copy at all.
    fn make_room(&mut self, cx: &mut Context, id: CacheId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let rounds = &self.rounds;
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
        cx.host.send(id, &session.revocation(key, session.sent));
    }

    fn take_dropped(&mut self, cx: &mut Context, key: RouteHash, (from, number): (CacheId, u64)) {
        let any = cx.has(TierMutant::DroppedAnyNumber);
        if let Some(session) = self.sessions.get_mut(&from) {
            let last = session.entries.get(&key);
            if last.is_some_and(|last| number >= *last || any) {
                session.entries.remove(&key);
            }
        }
        self.note_acknowledged(cx, key, (from, number));
    }

    // ---- sessions ----

    /// Another cache is not renewed any more; until its lease has ended, it is one of several.
    fn assign(&mut self, cx: &mut Context, cache: CacheId) {
        self.home = Some(cache);
        self.group.clear();
        if cx.has(TierMutant::ReassignsAtOnce) {
            let others = self.sessions.keys().copied().filter(|id| *id != cache);
            let others: Vec<CacheId> = others.collect();
            others.iter().for_each(|id| self.end_session(cx, *id));
        }
    }

    fn first_ended(&self, now: Instant) -> Option<CacheId> {
        let mut sessions = self.sessions.iter();
        let ended = sessions.find(|(_, session)| now >= session.until);
        ended.map(|(id, _)| *id)
    }

    /// The cache has no copy any more, or must not show it.
    fn end_session(&mut self, cx: &mut Context, id: CacheId) {
        if self.sessions.remove(&id).is_none() {
            return;
        }
        let awaits = |round: &Round| {
            let mut others = round.others.iter();
            round.holder.0 == id || others.any(|(other, _)| *other == id)
        };
        let rounds = self.rounds.iter().filter(|(_, round)| awaits(round));
        let keys: Vec<RouteHash> = rounds.map(|(key, _)| *key).collect();
        for key in keys {
            let Some(round) = self.rounds.get_mut(&key) else {
                continue;
            };
            if cx.has(TierMutant::QueueLost) {
                self.waiting -= round.held.queue.len();
                round.held.queue.clear();
            }
            round.others.retain(|(other, _)| *other != id);
            if round.others.is_empty() && (round.holder.0 == id || round.holder.1 == 0) {
                // The holder is updated, or there is none any more.
                self.update_holder(cx, key);
            }
        }
    }
}

impl Session {
    /// The cache shall have no copy.
    const fn revocation(&self, key: RouteHash, number: u64) -> TierMessage {
        KeyMessageKind::Revoke.message(self.generation, key, number)
    }

    /// The item as it is now.
    const fn update(&self, key: RouteHash, number: u64) -> TierMessage {
        KeyMessageKind::Update.message(self.generation, key, number)
    }
}

impl Round {
    /// Whether a request does not wait behind it: only with an error planted.
    fn is_passed_by(&self, cx: &Context, request: &TierRequest) -> bool {
        let (_, update) = self.holder;
        let one_dropped = update > 0 && !self.held.wanting.is_empty();
        let is_early = one_dropped && cx.has(TierMutant::ServesWhenOneDropped);
        request.access == Access::Read && (is_early || cx.has(TierMutant::NoReadQueue))
    }

    /// Whether the holder's acknowledgement is the last one.
    fn may_end(&self, cx: &Context) -> bool {
        self.others.is_empty() || cx.has(TierMutant::FirstAcknowledgement)
    }
}
