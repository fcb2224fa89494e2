//! The hosts of the machines in a model: a store of a few items, copies, and a network.

use curtail_consistency::replica::Ticket;
use curtail_consistency::tiered::{
    BackEndHost, BackEndId, CacheHost, CacheId, TierMessage, TierRefusal, TierRequest,
};
use curtail_types::{Instant, RouteHash};

use super::TierSetup;
use super::world::{TierParcel, TierWorld};
use crate::judge::Written;
use crate::requests::{Kind, Label};

/// The only back end.
pub(super) const BACK_END: BackEndId = BackEndId(0);

/// The host of the back end during a step.
pub(super) struct BackEndDesk<'a> {
    pub(super) setup: &'a TierSetup,
    pub(super) world: &'a mut TierWorld,
    pub(super) now: u64,
}

/// The host of a cache during a step.
pub(super) struct CacheDesk<'a> {
    pub(super) world: &'a mut TierWorld,
    pub(super) me: CacheId,
    /// What came with the message of this step.
    pub(super) incoming: Option<Written>,
}

impl BackEndHost for BackEndDesk<'_> {
    fn run(&mut self, request: &TierRequest) -> bool {
        let label = Label(request.ticket.0 as u8);
        let kind = self.setup.operations[usize::from(label.0)].0;
        let node = self.world.back_end.edit();
        let before = node.items.get(&request.key).copied();
        let found = before.unwrap_or(Written::NOTHING);
        let (after, said) = found.outcome(label, kind);
        node.results.insert(request.ticket, said);
        match kind {
            Kind::Get => false,
            Kind::Delete => node.items.remove(&request.key).is_some(),
            Kind::Set | Kind::Append => {
                node.items.insert(request.key, after);
                true
            }
        }
    }

    fn clear(&mut self, _: &[Ticket]) {
        self.world.back_end.edit().items.clear();
    }

    fn respond(&mut self, ticket: Ticket) {
        let label = Label(ticket.0 as u8);
        if label == Label::FLUSH {
            return self.world.flushed();
        }
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        match self.world.back_end.edit().results.remove(&ticket) {
            Some(value) => self.world.answer(key, (label, kind), value),
            None => self.world.notes.fail("an answer of what has not run"),
        }
    }

    fn refuse(&mut self, ticket: Ticket, refusal: TierRefusal) {
        let label = Label(ticket.0 as u8);
        let key = self.setup.operations[usize::from(label.0)].1;
        self.world.refuse(key, label, Some(refusal));
    }

    fn has(&self, key: RouteHash) -> bool {
        self.world.back_end.items.contains_key(&key)
    }

    fn send(&mut self, to: CacheId, message: &TierMessage) {
        let key = message.carries_image();
        let image = key.and_then(|key| self.world.back_end.items.get(&key).copied());
        self.world.post(TierParcel {
            cache: to,
            is_to_cache: true,
            message: *message,
            image,
        });
    }

    fn now(&self) -> Instant {
        Instant { ns: self.now }
    }
}

impl CacheHost for CacheDesk<'_> {
    fn send(&mut self, _: BackEndId, message: &TierMessage) {
        self.world.post(TierParcel {
            cache: self.me,
            is_to_cache: false,
            message: *message,
            image: None,
        });
    }

    fn admits(&mut self, _: BackEndId, _: RouteHash) -> bool {
        true
    }

    fn has_incoming(&self) -> bool {
        self.incoming.is_some()
    }

    fn store(&mut self, _: BackEndId, key: RouteHash) {
        if let Some(value) = self.incoming {
            self.world.edit_cache(self.me).copies.insert(key, value);
        }
    }

    fn remove(&mut self, _: BackEndId, key: RouteHash) {
        self.world.edit_cache(self.me).copies.remove(&key);
    }

    fn now(&self) -> Instant {
        self.world.now(1 + usize::from(self.me.0))
    }
}
