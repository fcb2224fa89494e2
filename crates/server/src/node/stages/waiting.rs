//! The requests that a machine has, by their tickets: what was asked, by whom, and what it will be
//! answered.

use curtail_codec::node::{ItemAnswer, ItemRequest};
use curtail_consistency::replica::Ticket;
use curtail_store::Image;
use curtail_types::{Access, Cas, NodeId, Outcome, RouteHash};

use super::jobs::{End, Origin};

/// Requests by their tickets. A ticket is an index, and how often that was used before.
#[derive(Debug, Default)]
pub(super) struct WaitingRequests {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Place {
    uses: u32,
    waiting: Option<Waiting>,
}

/// A request that the machine has.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) origin: Origin,
    pub(super) key: RouteHash,
    pub(super) access: Access,
    /// What was asked.
    pub(super) bytes: Vec<u8>,
    /// How it ended, as soon as it has run.
    pub(super) end: End,
    /// What it shows of a value.
    pub(super) value: Vec<u8>,
    /// The write that the answer shows.
    pub(super) shown: Cas,
    /// How many nodes in sync have that.
    pub(super) copies: u8,
    /// Bytes of the item that it may store at most.
    pub(super) size: u32,
    /// Who was asked last to carry it out, and in which attempt.
    pub(super) sent: Option<(NodeId, u64)>,
    /// What it wrote to the copy of a hot key, without the value.
    pub(super) written: Option<Image>,
    /// What becomes of it when the machine has its answer.
    pub(super) next: Next,
}

/// What becomes of a request whose answer the machine lets go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// The requester is told.
    Answer,
    /// It did not run, because the item had grown: it is given to the machine again.
    Again,
    /// It removed what was there, because the write before it found no room: that is told.
    Refused(Outcome),
}

impl Waiting {
    pub(super) fn new(
        origin: Origin,
        (key, access): (RouteHash, Access),
        bytes: Vec<u8>,
        value: Vec<u8>,
    ) -> Self {
        Self {
            origin,
            key,
            access,
            bytes,
            end: End::Elsewhere,
            value,
            shown: Cas(0),
            copies: 0,
            size: 0,
            sent: None,
            written: None,
            next: Next::Answer,
        }
    }

    /// The flush of a slice.
    pub(super) fn flush(origin: Origin) -> Self {
        let of = (RouteHash(0), Access::Update);
        Self {
            end: End::Done(None),
            ..Self::new(origin, of, Vec::new(), Vec::new())
        }
    }

    /// Whether a reply is of the request's kind: another would corrupt the client's reply stream.
    pub(super) fn is_answered_by(&self, end: &End, value: &[u8]) -> bool {
        let End::Answered(outcome) = *end else {
            return true;
        };
        let request = ItemRequest::decode(&self.bytes);
        request.zip(outcome).is_some_and(|(request, outcome)| {
            request.is_answered_by(&ItemAnswer { outcome, value })
        })
    }
}

impl WaitingRequests {
    pub(super) fn keep(&mut self, waiting: Waiting) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        let Some(place) = self.places.get_mut(index as usize) else {
            return Ticket(u64::MAX);
        };
        place.waiting = Some(waiting);
        Ticket(u64::from(place.uses) << 32 | u64::from(index))
    }

    pub(super) fn get(&mut self, ticket: Ticket) -> Option<&mut Waiting> {
        self.place(ticket)?.waiting.as_mut()
    }

    /// The request at a place.
    pub(super) fn at(&mut self, index: u32) -> Option<(Ticket, &mut Waiting)> {
        let place = self.places.get_mut(index as usize)?;
        let ticket = Ticket(u64::from(place.uses) << 32 | u64::from(index));
        Some((ticket, place.waiting.as_mut()?))
    }

    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Waiting> {
        let place = self.place(ticket)?;
        let waiting = place.waiting.take()?;
        place.uses = place.uses.wrapping_add(1);
        self.free.push(ticket.0 as u32);
        Some(waiting)
    }

    /// Takes all.
    pub(super) fn drain(&mut self) -> Vec<Waiting> {
        let tickets = (0..).zip(&self.places);
        let tickets: Vec<Ticket> = tickets
            .filter(|(_, place)| place.waiting.is_some())
            .map(|(index, place)| Ticket(u64::from(place.uses) << 32 | index))
            .collect();
        tickets
            .into_iter()
            .filter_map(|ticket| self.take(ticket))
            .collect()
    }

    fn place(&mut self, ticket: Ticket) -> Option<&mut Place> {
        let place = self.places.get_mut(ticket.0 as u32 as usize)?;
        (u64::from(place.uses) == ticket.0 >> 32).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::stages::jobs::Asker;

    fn waiting(key: u64) -> Waiting {
        let origin = Origin {
            worker: 0,
            asker: Asker::Nobody,
        };
        Waiting::new(
            origin,
            (RouteHash(key), Access::Read),
            Vec::new(),
            Vec::new(),
        )
    }

    #[test]
    fn a_ticket_that_was_used_up_names_nothing() {
        let mut requests = WaitingRequests::default();
        let (first, second) = (requests.keep(waiting(1)), requests.keep(waiting(2)));
        assert_eq!(requests.take(first).map(|one| one.key), Some(RouteHash(1)));
        let third = requests.keep(waiting(3));
        assert!(requests.get(first).is_none() && requests.take(first).is_none());
        assert_ne!(first, third);
        assert_eq!(requests.get(second).map(|one| one.key), Some(RouteHash(2)));
        let keys: Vec<u64> = requests.drain().iter().map(|one| one.key.0).collect();
        assert_eq!(keys, [3, 2]);
        assert!(requests.drain().is_empty());
    }
}
