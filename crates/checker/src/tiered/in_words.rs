//! Steps and messages of tiers in words.

use curtail_consistency::tiered::{CacheId, KeyMessage, KeyMessageKind, TierMessage, TierRefusal};
use curtail_types::RouteHash;

use super::actions::TierAction;
use super::world::{Stage, TierParcel, TierWorld};
use super::{TierDriverMutant, TierSetup};
use crate::judge::Written;
use crate::requests::Label;

impl TierSetup {
    pub(super) fn action_in_words(&self, before: &TierWorld, action: &TierAction) -> String {
        match *action {
            TierAction::Ask(label) => {
                let request = self.request_in_words(label);
                format!("a client sends {request} to the back end")
            }
            TierAction::Look(label, cache) => self.look_in_words(label, cache),
            TierAction::Confirm(label) => self.confirm_in_words(before, label),
            TierAction::Deliver(index, stays) => {
                let parcel = self.parcel_in_words(&before.parcels[index]);
                match stays {
                    true => format!("{parcel} (it will arrive once more)"),
                    false => parcel,
                }
            }
            TierAction::Lose(index) => {
                let parcel = self.parcel_in_words(&before.parcels[index]);
                format!("the network loses {parcel}")
            }
            TierAction::Fetch(cache, key) => format!("{} fetches key {key}", named(cache)),
            TierAction::Evict(cache, key) => format!("{} evicts key {key}", named(cache)),
            TierAction::Report(key) => format!("the load of key {key} rises suddenly"),
            TierAction::Expire(key) => format!("key {key} expires at the back end"),
            TierAction::Flush => "a client flushes the back end".to_owned(),
            TierAction::Pass => format!("the time is {}", before.clocks[0] + 1),
            TierAction::TickBackEnd => "a timer of the back end expires".to_owned(),
            TierAction::TickCache(cache) => format!("a timer of {} expires", named(cache)),
            TierAction::CrashBackEnd => "the back end crashes".to_owned(),
            TierAction::RestartBackEnd => "the back end restarts with its store".to_owned(),
            TierAction::CrashCache(cache) => format!("{} crashes", named(cache)),
            TierAction::RestartCache(cache) => format!("{} restarts empty", named(cache)),
            TierAction::Reassign => {
                let next = named(CacheId(1 - before.back_end.cache.0));
                format!("the back end is to report to {next}")
            }
        }
    }

    fn look_in_words(&self, label: u8, cache: CacheId) -> String {
        let (request, cache) = (self.request_in_words(label), named(cache));
        match self.has(TierDriverMutant::ReadsByOldClock) {
            true => format!("{cache} reads the clock before {request} arrives"),
            false => format!("a client sends {request} to {cache}, which looks up its copy"),
        }
    }

    fn confirm_in_words(&self, before: &TierWorld, label: u8) -> String {
        let label = Label(label);
        match before.operations[usize::from(label.0)] {
            Stage::Looked(cache, _, value) => {
                let cache = named(cache);
                format!("{cache} reads the clock for {label}; its copy has {value}")
            }
            Stage::Clock(cache, _) => {
                let request = self.request_in_words(label.0);
                format!("a client sends {request} to {}", named(cache))
            }
            _ => format!("{label} ends"),
        }
    }

    fn parcel_in_words(&self, parcel: &TierParcel) -> String {
        let cache = named(parcel.cache);
        let (from, to) = match parcel.is_to_cache {
            true => ("the back end", cache.as_str()),
            false => (cache.as_str(), "the back end"),
        };
        let message = self.message_in_words(&parcel.message);
        let item = parcel.message.carries_image().map(|_| {
            let value = parcel.image.unwrap_or(Written::NOTHING);
            format!(" ({value})")
        });
        format!("{from} -> {to}: {message}{}", item.unwrap_or_default())
    }

    fn message_in_words(&self, message: &TierMessage) -> String {
        match *message {
            TierMessage::Renew { session, sent } => {
                format!("renew the lease of session {session}, at {}", sent.ns)
            }
            TierMessage::Lease {
                session,
                generation,
                sent,
            } => {
                let (generation, sent) = (generation.0, sent.ns);
                format!("lease of session {session} from {sent}, generation {generation}")
            }
            TierMessage::OfKey(message) => self.key_message_in_words(&message),
        }
    }

    fn key_message_in_words(&self, message: &KeyMessage) -> String {
        let (key, number) = (self.key(message.key), message.number);
        match message.kind {
            KeyMessageKind::Fetch => format!("send a copy of {key}"),
            KeyMessageKind::Item => format!("item {number}, of {key}"),
            KeyMessageKind::Update => format!("update {number}, of {key}"),
            KeyMessageKind::Revoke => format!("drop the copy of {key} ({number})"),
            KeyMessageKind::Applied => format!("update {number} of {key} is applied"),
            KeyMessageKind::Dropped => {
                format!("there is no copy of {key}, and none will be taken up to {number}")
            }
        }
    }

    fn request_in_words(&self, label: u8) -> String {
        let (kind, key) = self.operations[usize::from(label)];
        format!("{} ({kind} key {key})", Label(label))
    }

    fn key(&self, key: RouteHash) -> String {
        let index = self.keys.iter().position(|one| *one == key);
        format!("key {}", index.unwrap_or_default())
    }
}

/// A cache node as people read it.
fn named(cache: CacheId) -> String {
    format!("cache node {}", cache.0)
}

/// Why a request is refused.
pub(super) const fn refusal_in_words(refusal: Option<TierRefusal>) -> &'static str {
    match refusal {
        Some(TierRefusal::Busy) => "too many requests wait",
        Some(TierRefusal::Restarted) => "the back end has just restarted",
        None => "the back end is down",
    }
}
