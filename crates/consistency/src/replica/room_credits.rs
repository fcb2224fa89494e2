//! Room of followers' stores that primaries may count on, in bytes.
//!
//! A primary runs a write only when every follower that has to store it has promised the room, so
//! a change that was sent is never refused (CL-3). A pair of nodes has one account, whatever the
//! slice. Each request names what the primary still holds: the answer makes that, and what it
//! grants beyond, the whole promise. So a lost message leaks nothing for longer than until the next
//! request, and one that was applied but not acknowledged is counted twice, never too little.

use alloc::collections::BTreeMap;

use curtail_types::{Instant, NodeId, NodeSet, ViewNumber};

use super::{ReplicaMutant, machine::Context, message::ReplicaMessage};

/// The accounts of one machine with the other nodes.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct RoomCredits {
    /// Requests so far, whoever they went to: a later one has a higher number, also to a node that
    /// was out in between.
    asked: u64,
    /// What others have promised to this node.
    credits: BTreeMap<NodeId, Credit>,
    /// The last request of each node that was promised something.
    promised: BTreeMap<NodeId, u64>,
}

/// What one node has promised.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Credit {
    free: u64,
    /// In changes that it has not acknowledged.
    in_flight: u64,
    /// The last request for more.
    number: u64,
    /// What it wants, while it has no answer.
    asked: Option<u64>,
    /// Since when it waits for an answer.
    since: Instant,
    /// The node may keep room for changes that this one gave up, or for what this one asked in
    /// another life of either: it is to hear what is held now.
    is_stale: bool,
    /// The last answer gave nothing, and nothing will come by evictions.
    is_refused: bool,
}

impl RoomCredits {
    /// The first view that this machine follows. What a former life of the node asked for, and
    /// arrives late, has lower numbers than what this one asks for.
    pub(super) fn begin(&mut self, view: ViewNumber) {
        self.asked = u64::from(view.0) << 32;
    }

    /// What node `to` has promised counts no more, and it is asked anew.
    pub(super) fn doubt(&mut self, to: NodeId) {
        if let Some(credit) = self.credits.get_mut(&to) {
            credit.free = 0;
            credit.is_stale = true;
        }
    }

    /// Whether node `to` said that it will never have more.
    pub(super) fn is_refused(&self, to: NodeId) -> bool {
        let credit = self.credits.get(&to);
        credit.is_some_and(|credit| credit.is_refused)
    }

    /// For how long node `to` has not answered a request for room.
    pub(super) fn unanswered_ns(&self, now: Instant, to: NodeId) -> Option<u64> {
        let credit = self.credits.get(&to)?;
        credit.asked?;
        Some(now.ns.saturating_sub(credit.since.ns))
    }

    /// The number of the last request.
    pub(super) const fn asked(&self) -> u64 {
        self.asked
    }

    /// Whether what node `from` sent after its request `asked` has no room of its own any more.
    pub(super) fn is_void(&self, from: NodeId, asked: u64) -> bool {
        self.promised.get(&from).is_some_and(|last| asked < *last)
    }

    /// A change of so many bytes is sent.
    pub(super) fn spend(&mut self, to: NodeId, bytes: u32) {
        let Some(credit) = self.credits.get_mut(&to) else {
            return;
        };
        credit.free = credit.free.saturating_sub(u64::from(bytes));
        credit.in_flight += u64::from(bytes);
    }

    /// A change of so many bytes will not be sent again.
    pub(super) fn give_up(&mut self, to: NodeId, bytes: u32) {
        self.settle(to, bytes);
        if let Some(credit) = self.credits.get_mut(&to) {
            credit.is_stale |= bytes > 0;
        }
    }

    /// A change of so many bytes is acknowledged.
    pub(super) fn settle(&mut self, to: NodeId, bytes: u32) {
        if let Some(credit) = self.credits.get_mut(&to) {
            credit.in_flight = credit.in_flight.saturating_sub(u64::from(bytes));
        }
    }

    /// An answer; returns for how many bytes slices shared with the node are to be evicted.
    pub(super) fn take_answer(
        &mut self,
        from: NodeId,
        number: u64,
        bytes: u64,
        grows: bool,
    ) -> u64 {
        let Some(credit) = self.credits.get_mut(&from) else {
            return 0;
        };
        if credit.number != number {
            return 0;
        }
        let Some(wanted) = credit.asked.take() else {
            return 0;
        };
        credit.free += bytes;
        credit.is_refused = bytes == 0 && wanted > 0 && !grows;
        match bytes == 0 && grows {
            true => wanted,
            false => 0,
        }
    }

    /// The nodes that were promised room here.
    pub(super) fn creditors(&self) -> NodeSet {
        self.promised.keys().copied().collect()
    }

    /// Whether an answer is missing.
    pub(super) fn waits(&self) -> bool {
        self.credits.values().any(Credit::waits)
    }

    /// Whether any request is counted.
    pub(super) fn is_numbered(&self) -> bool {
        self.asked > 0 || self.promised.values().any(|number| *number > 0)
    }

    /// Begins to count anew; see [`Replica::renumber`](super::Replica::renumber).
    pub(super) fn renumber(&mut self) {
        self.asked = 0;
        let credits = self.credits.values_mut();
        credits.for_each(|credit| credit.number = 0);
        self.promised.values_mut().for_each(|number| *number = 0);
    }
}

impl Context<'_> {
    /// Whether node `to` has so much room promised; if not, it is asked.
    pub(super) fn has_room(&mut self, to: NodeId, bytes: u64) -> bool {
        if self.config.room_ask == 0 || self.has(ReplicaMutant::RoomIgnored) {
            return true;
        }
        let credit = self.credits.credits.entry(to).or_default();
        if credit.free >= bytes {
            return true;
        }
        if credit.asked.is_none() {
            self.ask_room(to, bytes.max(self.config.room_ask));
        }
        false
    }

    /// Whether node `to` has answered what it was asked last; if it was asked nothing, it is asked.
    pub(super) fn is_answered(&mut self, to: NodeId) -> bool {
        if self.config.room_ask == 0 {
            return true;
        }
        if let Some(credit) = self.credits.credits.get(&to) {
            return !credit.waits();
        }
        self.ask_room(to, 0);
        false
    }

    /// Another node wants room here; returns how much it got beyond what it held.
    pub(super) fn promise_room(
        &mut self,
        from: NodeId,
        (number, held, wanted): (u64, u64, u64),
    ) -> Option<u64> {
        let last = self.credits.promised.entry(from).or_default();
        if number <= *last {
            return None;
        }
        *last = number;
        let bytes = self.host.promise(from, held, wanted);
        let grows = self.host.evicts();
        let message = ReplicaMessage::Room {
            number,
            bytes,
            grows,
        };
        self.host.send(NodeSet::only(from), &message);
        Some(bytes)
    }

    /// Asks again what has found no answer.
    pub(super) fn ask_room_again(&mut self) {
        let credits = self.credits.credits.iter();
        let waiting = credits.filter(|(_, credit)| credit.waits());
        let waiting: NodeSet = waiting.map(|(&to, _)| to).collect();
        for to in waiting {
            let credit = self.credits.credits.get(&to);
            self.ask_room(to, credit.and_then(|credit| credit.asked).unwrap_or(0));
        }
    }

    /// Gives back what a node has promised and this one has no use for now.
    pub(super) fn give_room_back(&mut self, to: NodeId) {
        if let Some(credit) = self.credits.credits.get_mut(&to)
            && credit.free > 0
        {
            credit.free = 0;
            self.ask_room(to, 0);
        }
    }

    /// Another view: credit that is not in use goes back, and nodes that have left have none. Nodes
    /// of which one has `joined` since the other's last view begin with an empty account: a request
    /// that this node sent in an earlier view may have reached, and been granted by, a life of the
    /// other that this node did not know yet.
    pub(super) fn enter_view(&mut self, members: NodeSet, joined: NodeSet) {
        let credits = &mut self.credits.credits;
        credits.retain(|to, _| members.contains(*to));
        if self.config.room_ask > 0 {
            for to in joined {
                credits.entry(to).or_default().is_stale = true;
            }
        }
        let others: NodeSet = credits.keys().copied().collect();
        credits
            .values_mut()
            .for_each(|credit| credit.is_refused = false);
        others.into_iter().for_each(|to| self.give_room_back(to));
        if self.has(ReplicaMutant::PromiseKept) {
            return;
        }
        self.credits.promised.retain(|&from, _| {
            let stays = members.contains(from);
            if !stays {
                self.host.promise(from, 0, 0);
            }
            stays
        });
    }

    fn ask_room(&mut self, to: NodeId, wanted: u64) {
        let RoomCredits { asked, credits, .. } = &mut *self.credits;
        let credit = credits.entry(to).or_default();
        *asked += 1;
        if credit.asked.is_none() {
            credit.since = self.now;
        }
        credit.number = *asked;
        credit.is_stale = false;
        credit.asked = Some(wanted);
        let message = ReplicaMessage::RoomWanted {
            number: credit.number,
            held: credit.free + credit.in_flight,
            wanted,
        };
        self.host.send(NodeSet::only(to), &message);
    }
}

impl Credit {
    /// Whether an answer is missing.
    fn waits(&self) -> bool {
        self.asked.is_some() || self.is_stale
    }
}
