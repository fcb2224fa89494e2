//! Sessions: who may write, and which of its requests were taken already (JB-46).
//!
//! A session has slots with one request outstanding in each. A slot's word says how far it is:
//!
//! ```text
//!            claim(seq > s)                       commit
//!   Open s, Queued s, Accepted s  --->  Claimed seq  --->  Queued seq or Accepted seq
//!                                           |
//!                                           +-- reopen (no place) --->  Open seq
//!                                           +-- commit_executed  ---->  Queued seq, no position
//!                            Queued seq  ---- reopen_entry (damaged) -->  Open seq
//! ```
//!
//! `Open s`: everything below s is over, s itself may still come. `Queued`: it has its place, and
//! its executor answers. `Accepted`: it has its place, and may be acknowledged again whenever it is
//! sent again. The word carries the low bits of the session's generation, so that a datagram of a
//! former holder changes nothing.
//!
//! A claim is exclusive: whatever finds the word claimed is dropped, and sent again by its client.
//! So position and word are written by one claimant, or by who settles for one that died.

use curtail_types::numbered_enum;

use crate::{
    entry::{QueueEntry, SEQUENCE_MASK},
    layout::{SESSION_HEADER_WORDS, SESSION_SLOTS, SESSION_WORDS, session},
    sync::{AtomicU64, Ordering},
};

/// The session table in words that somebody lends.
#[derive(Clone, Copy, Debug)]
pub struct Sessions<'a> {
    words: &'a [AtomicU64],
}

/// Where a datagram came from: an IPv6 or mapped IPv4 address as two words, and a port.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Peer {
    /// The address.
    pub address: [u64; 2],
    /// The UDP port.
    pub port: u16,
}

/// A session as a client names it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct SessionName {
    /// Its place in the table.
    pub index: u32,
    /// How often the place was given out.
    pub generation: u32,
    /// What proves that it is the client's.
    pub token: u64,
}

numbered_enum! {
    /// How far a slot is.
    pub enum SlotState: u64 {
        /// This sequence number and higher ones may come.
        Open = 0,
        /// This one is being given its place.
        Claimed = 1,
        /// This one has its place; its executor answers.
        Queued = 2,
        /// This one has its place and may be acknowledged.
        Accepted = 3,
    }
}

/// What came of a claim.
#[derive(Debug, Eq, PartialEq)]
pub enum Claim {
    /// The request is new, and the caller's to give a place.
    Granted(ClaimTicket),
    /// It has its place already.
    Repeated {
        /// The position; `None` if it was executed past the queues.
        pos: Option<u64>,
        /// Whether it may be acknowledged; otherwise its executor answers, perhaps again.
        accepted: bool,
    },
    /// It is under way, or over.
    Stale,
    /// The session is not the sender's.
    Unknown,
}

/// The right to give a request its place: to be committed or reopened.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[must_use = "a claim that is neither committed nor reopened blocks the slot"]
pub struct ClaimTicket {
    index: usize,
    claimed: u64,
    /// The position word at the time of the claim.
    before: u64,
}

/// Why no session was granted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum GrantError {
    /// The address has as many sessions as it may; the client's fault, or its neighbours'.
    Address,
    /// All places that an address may have are taken by others; the operator gives more memory.
    Full,
}

/// Places that an address may have a session in; also the most that it can have.
pub const WAYS: usize = 16;

impl<'a> Sessions<'a> {
    /// The table in these words: [`SESSION_WORDS`] for each session, all 0 at the start of an
    /// incarnation.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert!(!words.is_empty() && words.len().is_multiple_of(SESSION_WORDS));
        Self { words }
    }

    /// Places for sessions.
    pub const fn places(&self) -> usize {
        self.words.len() / SESSION_WORDS
    }

    /// Step 3: is the session the sender's, and the request new?
    #[inline]
    pub fn claim(&self, name: SessionName, peer: Peer, slot: u8, sequence: u64) -> Claim {
        if !self.is_known(name, peer) || usize::from(slot) >= SESSION_SLOTS {
            return Claim::Unknown;
        }
        let index = slot_index(name.index, slot);
        let word = &self.words[index];
        // Acquire pairs with the Release in `commit`: who finds it committed finds its position.
        let seen = word.load(Ordering::Acquire);
        if generation_of(seen) != name.generation as u16 {
            return Claim::Unknown;
        }
        let (state, newest) = (state_of(seen), sequence_of(seen));
        let is_new = sequence > newest || sequence == newest && state == SlotState::Open;
        if sequence == newest && matches!(state, SlotState::Queued | SlotState::Accepted) {
            let place = self.words[index + 1].load(Ordering::Relaxed);
            let pos = match place {
                place if place < NO_POSITION => Some(place.wrapping_sub(1)),
                place if place & EXECUTED == EXECUTED => None,
                // Its entry was damaged; it is about to be open.
                _ => return Claim::Stale,
            };
            let accepted = state == SlotState::Accepted;
            return Claim::Repeated { pos, accepted };
        }
        if !is_new || state == SlotState::Claimed || sequence > SEQUENCE_MASK {
            return Claim::Stale;
        }
        let before = self.words[index + 1].load(Ordering::Relaxed);
        let claimed = pack(SlotState::Claimed, sequence, name.generation);
        // Acquire pairs with the Release in `commit`, Release with the Acquire in `install`;
        // the loser is dropped and sent again.
        match word.compare_exchange(seen, claimed, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Claim::Granted(ClaimTicket {
                index,
                claimed,
                before,
            }),
            Err(_) => Claim::Stale,
        }
    }

    /// Step 8: the request has its place.
    #[inline]
    pub fn commit(&self, ticket: ClaimTicket, pos: u64, accepted: bool) {
        self.commit_at(ticket, pos + 1, accepted);
    }

    /// The request was executed past the queues: it has no position, and only its answer can be
    /// repeated.
    pub fn commit_executed(&self, ticket: ClaimTicket) {
        // Unlike any word before it, so that no late `commit` takes it for the one it claimed.
        let place = EXECUTED | ticket.claimed >> 2;
        self.commit_at(ticket, place, false);
    }

    #[inline]
    fn commit_at(&self, ticket: ClaimTicket, at: u64, accepted: bool) {
        let ClaimTicket {
            index,
            claimed,
            before,
        } = ticket;
        // Both fail if somebody settled it; the second must not move a word that is claimed anew.
        let place = &self.words[index + 1];
        let moved = place.compare_exchange(before, at, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_err_and(|there| there != at) {
            // Its entry is over, and the same request may have been claimed anew.
            return;
        }
        let done = with_state(claimed, committed(accepted));
        // Release pairs with the Acquire in `claim`.
        let _ =
            self.words[index].compare_exchange(claimed, done, Ordering::Release, Ordering::Relaxed);
    }

    /// The request got no place; it may be sent again.
    #[inline]
    pub fn reopen(&self, ticket: ClaimTicket) {
        let open = with_state(ticket.claimed, SlotState::Open);
        let word = &self.words[ticket.index];
        // Release pairs with the Acquire in `claim`.
        let _ = word.compare_exchange(ticket.claimed, open, Ordering::Release, Ordering::Relaxed);
    }

    /// Commits an entry's claim for a claimant that may have died: to be called before head passes
    /// the entry, wherever who admits can be stopped between publishing and committing.
    #[inline]
    pub fn settle(&self, entry: &QueueEntry<'_>) {
        let name = entry.session();
        let slot = entry.session_slot();
        if name.index as usize >= self.places() || usize::from(slot) >= SESSION_SLOTS {
            return;
        }
        let index = slot_index(name.index, slot);
        // Acquire pairs with the Release in `commit`, so that the word read next is no older.
        let before = self.words[index + 1].load(Ordering::Acquire);
        let claimed = pack(SlotState::Claimed, entry.sequence(), name.generation);
        // Acquire: the same pair.
        if self.words[index].load(Ordering::Acquire) == claimed {
            let ticket = ClaimTicket {
                index,
                claimed,
                before,
            };
            self.commit(ticket, entry.pos(), entry.is_accepted());
        }
    }

    /// An entry that was not acknowledged has no effect: its request may be sent again, as if it
    /// had found no place. To be called by its executor, after [`Sessions::settle`].
    pub fn reopen_entry(&self, entry: &QueueEntry<'_>) {
        let name = entry.session();
        let slot = entry.session_slot();
        if name.index as usize >= self.places() || usize::from(slot) >= SESSION_SLOTS {
            return;
        }
        let index = slot_index(name.index, slot);
        let queued = pack(SlotState::Queued, entry.sequence(), name.generation);
        let open = with_state(queued, SlotState::Open);
        // An executor that takes over finds entries that the one before reopened: their requests
        // may have another place by now. The position moves first, so that no late `commit` takes
        // the request's next claim for its own.
        let word = &self.words[index];
        // Acquire pairs with the Release in `commit`.
        if word.load(Ordering::Acquire) != queued {
            return;
        }
        let (at, over) = (entry.pos() + 1, REOPENED | (entry.pos() + 1));
        let place = &self.words[index + 1];
        let moved = place.compare_exchange(at, over, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_err_and(|there| there != over) {
            return;
        }
        // Release pairs with the Acquire in `claim`.
        let _ = word.compare_exchange(queued, open, Ordering::Release, Ordering::Relaxed);
    }

    /// Opens every claim that is left: those that got no place before their claimants died.
    /// Returns how many.
    pub(crate) fn reopen_all(&self) -> u64 {
        let mut count = 0;
        for session in self.words.chunks_exact(SESSION_WORDS) {
            for word in session[SESSION_HEADER_WORDS..].iter().step_by(2) {
                let seen = word.load(Ordering::Relaxed);
                if state_of(seen) == SlotState::Claimed {
                    // Release pairs with the Acquire in `claim`.
                    word.store(with_state(seen, SlotState::Open), Ordering::Release);
                    count += 1;
                }
            }
        }
        count
    }

    /// Gives `peer`, who has returned a cookie for `nonce`, a session: the one that it has for this
    /// nonce, a free one, or one whose lease has ended. `place` is a keyed hash of the address;
    /// `token` makes the session's token from its index and generation. One thread grants.
    pub fn grant(
        &self,
        peer: Peer,
        nonce: u64,
        limits: SessionLimits,
        place: u64,
        token: impl Fn(u32, u32) -> u64,
    ) -> Result<SessionName, GrantError> {
        let ways = WAYS.min(self.places());
        let first = (place % self.places() as u64) as usize;
        let indexes = (0..ways).map(|way| (first + way) % self.places());
        let mut held = 0;
        let mut free = None;
        for index in indexes {
            let header = self.header(index);
            let is_live = self.is_live(header, limits);
            let same_address = peer.address == address_of(header);
            if is_live && same_address {
                held += 1;
                let port = header[session::PORT].load(Ordering::Relaxed);
                if port == u64::from(peer.port)
                    && header[session::NONCE].load(Ordering::Relaxed) == nonce
                {
                    return Ok(self.name(index));
                }
            } else if !is_live && free.is_none() && self.is_idle(index) {
                free = Some(index);
            }
        }
        if held >= limits.per_address {
            return Err(GrantError::Address);
        }
        let index = free.ok_or(GrantError::Full)?;
        Ok(self.install(index, peer, nonce, limits.now_ns, token))
    }

    /// Ends a session at its client's wish; false if it is not the sender's.
    pub fn close(&self, name: SessionName, peer: Peer) -> bool {
        if !self.is_known(name, peer) {
            return false;
        }
        let ended = u64::from(name.generation) << 32;
        let word = &self.header(name.index as usize)[session::NAME];
        // Release pairs with the Acquire in `is_known` and `install`. Fails if the place is granted
        // anew by now: that session goes on.
        word.compare_exchange(ended | 1, ended, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// The session was used; a word is written only when an eighth of the lease has passed.
    #[inline]
    pub fn renew(&self, name: SessionName, limits: SessionLimits) {
        let used = &self.header(name.index as usize)[session::USED_NS];
        let since = limits.now_ns.saturating_sub(used.load(Ordering::Relaxed));
        if since > limits.lease_ns / 8 {
            used.store(limits.now_ns, Ordering::Relaxed);
        }
    }

    /// The sessions that are granted, a moment ago.
    pub fn granted(&self) -> impl Iterator<Item = SessionName> {
        let is_granted = |index: &usize| {
            let name = &self.header(*index)[session::NAME];
            name.load(Ordering::Relaxed) & 1 == 1
        };
        (0..self.places())
            .filter(is_granted)
            .map(|index| self.name(index))
    }

    /// How far a slot is, and with which sequence number.
    pub fn slot(&self, index: u32, slot: u8) -> (SlotState, u64) {
        // Acquire pairs with the Release in `commit`.
        let seen = self.words[slot_index(index, slot)].load(Ordering::Acquire);
        (state_of(seen), sequence_of(seen))
    }

    /// Where the session of this place was granted to, whoever has it now: for requests that come
    /// another way than by datagram, from the same address.
    pub fn peer_of(&self, index: u32) -> Option<Peer> {
        let header = self.words.get(index as usize * SESSION_WORDS..)?;
        let port = header.get(session::PORT)?.load(Ordering::Relaxed);
        Some(Peer {
            address: address_of(header),
            port: port as u16,
        })
    }

    /// Whether the session is the sender's.
    #[inline]
    pub fn is_known(&self, name: SessionName, peer: Peer) -> bool {
        if name.index as usize >= self.places() {
            return false;
        }
        let header = self.header(name.index as usize);
        let granted = u64::from(name.generation) << 32 | 1;
        // Acquire pairs with the Release in `install` and `close`.
        header[session::NAME].load(Ordering::Acquire) == granted
            && header[session::TOKEN].load(Ordering::Relaxed) == name.token
            && header[session::PORT].load(Ordering::Relaxed) == u64::from(peer.port)
            && address_of(header) == peer.address
    }

    fn is_live(&self, header: &[AtomicU64], limits: SessionLimits) -> bool {
        let is_granted = header[session::NAME].load(Ordering::Relaxed) & 1 == 1;
        let used_ns = header[session::USED_NS].load(Ordering::Relaxed);
        is_granted && limits.now_ns.saturating_sub(used_ns) < limits.lease_ns
    }

    /// Whether no claim is under way in it.
    fn is_idle(&self, index: usize) -> bool {
        let slots = &self.session(index)[SESSION_HEADER_WORDS..];
        let mut words = slots.iter().step_by(2);
        words.all(|word| state_of(word.load(Ordering::Relaxed)) != SlotState::Claimed)
    }

    fn install(
        &self,
        index: usize,
        peer: Peer,
        nonce: u64,
        now_ns: u64,
        token: impl Fn(u32, u32) -> u64,
    ) -> SessionName {
        let header = self.header(index);
        let before = header[session::NAME].load(Ordering::Relaxed) >> 32;
        let generation = (before as u32).wrapping_add(1);
        // Release pairs with the Acquire in `is_known`: from here on nobody is let in. An exchange,
        // whose Acquire pairs with the Release in `close`, so that a close by the former holder
        // comes before it or fails.
        header[session::NAME].swap(u64::from(generation) << 32, Ordering::AcqRel);
        for words in self.session(index)[SESSION_HEADER_WORDS..].chunks_exact(2) {
            // What was claimed meanwhile, under the former generation, does not come back: its
            // commit finds other words. Acquire pairs with the Release in `claim`: what a claimant
            // saw of the second word it saw before that is overwritten. Release pairs with the
            // Acquire in `claim`.
            words[0].swap(pack(SlotState::Open, 0, generation), Ordering::AcqRel);
            words[1].swap(NO_POSITION | u64::from(generation), Ordering::Relaxed);
        }
        let token = token(index as u32, generation);
        header[session::TOKEN].store(token, Ordering::Relaxed);
        header[session::ADDRESS].store(peer.address[0], Ordering::Relaxed);
        header[session::ADDRESS + 1].store(peer.address[1], Ordering::Relaxed);
        header[session::PORT].store(u64::from(peer.port), Ordering::Relaxed);
        header[session::NONCE].store(nonce, Ordering::Relaxed);
        header[session::USED_NS].store(now_ns, Ordering::Relaxed);
        let granted = u64::from(generation) << 32 | 1;
        // Release pairs with the Acquire in `is_known`.
        header[session::NAME].store(granted, Ordering::Release);
        SessionName {
            index: index as u32,
            generation,
            token,
        }
    }

    fn name(&self, index: usize) -> SessionName {
        let header = self.header(index);
        SessionName {
            index: index as u32,
            generation: (header[session::NAME].load(Ordering::Relaxed) >> 32) as u32,
            token: header[session::TOKEN].load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn header(&self, index: usize) -> &'a [AtomicU64] {
        &self.session(index)[..SESSION_HEADER_WORDS]
    }

    #[inline]
    fn session(&self, index: usize) -> &'a [AtomicU64] {
        &self.words[index * SESSION_WORDS..(index + 1) * SESSION_WORDS]
    }
}

/// What a session is held to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SessionLimits {
    /// The time, in nanoseconds.
    pub now_ns: u64,
    /// How long a session lasts unused, in nanoseconds.
    pub lease_ns: u64,
    /// Sessions of one address, up to [`WAYS`].
    pub per_address: usize,
}

/// Marks a position word that holds none; positions do not come near it.
const NO_POSITION: u64 = 1 << 63;

/// Marks the position word of a request that has none because it was executed past the queues.
const EXECUTED: u64 = NO_POSITION | 1 << 62;

/// Marks the position word of a request whose entry was damaged: it has that place no more.
const REOPENED: u64 = NO_POSITION | 1 << 61;

#[inline]
fn address_of(header: &[AtomicU64]) -> [u64; 2] {
    [session::ADDRESS, session::ADDRESS + 1].map(|word| header[word].load(Ordering::Relaxed))
}

#[inline]
const fn slot_index(index: u32, slot: u8) -> usize {
    index as usize * SESSION_WORDS + SESSION_HEADER_WORDS + 2 * slot as usize
}

#[inline]
const fn committed(accepted: bool) -> SlotState {
    match accepted {
        true => SlotState::Accepted,
        false => SlotState::Queued,
    }
}

#[inline]
const fn pack(state: SlotState, sequence: u64, generation: u32) -> u64 {
    state as u64 | (sequence & SEQUENCE_MASK) << 2 | (generation as u64) << 48
}

#[inline]
const fn with_state(word: u64, state: SlotState) -> u64 {
    word & !3 | state as u64
}

#[inline]
const fn state_of(word: u64) -> SlotState {
    match SlotState::from_number(word & 3) {
        Some(state) => state,
        None => SlotState::Accepted,
    }
}

#[inline]
const fn sequence_of(word: u64) -> u64 {
    word >> 2 & SEQUENCE_MASK
}

#[inline]
const fn generation_of(word: u64) -> u16 {
    (word >> 48) as u16
}
