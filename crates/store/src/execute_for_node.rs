//! Executes operations for the state machine of a node: with a version that it chose, without
//! evicting, and with a report of what happened to the item.

use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, DeleteOutcome, Get, ItemStatus, Key, KeyHash, Now,
    Operation, Outcome, SetMode, SetOutcome,
};

use crate::{
    COPY_BYTES_MAX, ItemView, Store, Writer,
    replica::LOOK,
    write::{ChangeContext, Taker},
};

/// What an operation did to its item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ItemChange {
    /// Nothing that anybody else sees.
    Unchanged,
    /// It stored an item of so many [bytes](Store::item_bytes).
    Stored(u32),
    /// It removed the item.
    Removed,
    /// There was no room that the store may make alone: nothing is changed.
    NoRoom,
    /// The item has grown since its size was asked, and might come to take more than that: nothing
    /// is changed.
    Outgrown,
}

/// Room that an item may grow by between [`Store::request_bytes`] and [`Store::run`], in bytes and
/// in parts of its length.
const GROWTH_BYTES: usize = 1024;
const GROWTH_PARTS: usize = 4;

/// The longest number that is counted in, in digits.
const DIGITS_MAX: usize = 20;

impl Store {
    /// Executes `operation`, a write of `value`; whatever it writes, an expiry or a mark included,
    /// gets `version`, or without one the next version of `writer`. It never evicts, and stores
    /// nothing that takes more than `room_max` bytes.
    /// `view` is shown the item that a read finds, perhaps more than once: what it saw last is
    /// true.
    ///
    /// What it says of the change holds if nobody else writes the key meanwhile.
    #[allow(clippy::too_many_arguments)] // the request's parts, passed through once
    pub fn run(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        operation: &Operation,
        value: &[u8],
        version: Option<Cas>,
        room_max: u32,
        mut view: impl FnMut(&ItemView<'_>),
    ) -> (Outcome, ItemChange) {
        if operation.is_read() {
            let outcome = self.execute(writer, now, (key, hash), operation, value, &mut view);
            return (outcome, ItemChange::Unchanged);
        }
        let before = self.status_of(writer, now, key, hash);
        let need = bytes_at_most(
            key,
            operation,
            value.len(),
            before.as_ref(),
            self.item_max(),
        );
        if need > room_max {
            return (Outcome::Missing, ItemChange::Outgrown);
        }
        let operation = with_version(operation, version);
        let evicts_freely = std::mem::replace(&mut writer.evicts_freely, false);
        let mut outcome = self.execute(writer, now, (key, hash), &operation, value, &mut view);
        writer.evicts_freely = evicts_freely;
        // An item that the read created has its end and its version.
        if let (Operation::Get(get), Outcome::Found(status), Some(_)) =
            (&operation, &mut outcome, &before)
            && let Some(version) = version
            && (get.touch.is_some() || (get.recache.is_some() && status.won))
        {
            self.give_version(writer, now, key, hash, version);
            status.cas = version;
        }
        let after = self.status_of(writer, now, key, hash);
        let is_ours = |after: &ItemStatus| match version {
            Some(version) => after.cas == version,
            // Another thread may have stored the item that is there.
            None if outcome == Outcome::Missing || is_out_of_memory(&outcome) => false,
            None => before.as_ref().is_none_or(|before| before.cas != after.cas),
        };
        let change = match (&before, after) {
            (_, Some(after)) if is_ours(&after) => {
                let bytes = Self::item_bytes(key.bytes().len(), after.value_bytes as usize);
                ItemChange::Stored(bytes)
            }
            (Some(_), None) => ItemChange::Removed,
            // An item without a place for the end that the read gives it has to be written anew.
            (Some(_), Some(_)) if outcome == Outcome::Missing => ItemChange::NoRoom,
            _ if is_out_of_memory(&outcome) => ItemChange::NoRoom,
            _ => ItemChange::Unchanged,
        };
        (outcome, change)
    }

    /// The bytes that the item of `key` takes at most if `operation`, a write of `value_bytes`,
    /// stores it; 0 if it stores nothing.
    pub fn request_bytes(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        operation: &Operation,
        value_bytes: usize,
    ) -> u32 {
        let mut status = match depends_on_item(operation) {
            true => self.status_of(writer, now, key, hash),
            false => None,
        };
        if let Some(status) = &mut status {
            let bytes = status.value_bytes as usize;
            status.value_bytes = (bytes + bytes / GROWTH_PARTS + GROWTH_BYTES) as u32;
        }
        bytes_at_most(
            key,
            operation,
            value_bytes,
            status.as_ref(),
            self.item_max(),
        )
    }

    fn item_max(&self) -> usize {
        self.config().item_bytes_max
    }

    fn status_of(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
    ) -> Option<ItemStatus> {
        self.get(writer, now, key, hash, &LOOK, |view| view.status())
    }

    fn execute(
        &self,
        writer: &mut Writer,
        now: Now,
        (key, hash): (Key<'_>, KeyHash),
        operation: &Operation,
        value: &[u8],
        view: &mut impl FnMut(&ItemView<'_>),
    ) -> Outcome {
        match operation {
            Operation::Get(get) => {
                let status = self.get(writer, now, key, hash, get, |item| {
                    view(item);
                    item.status()
                });
                status.map_or(Outcome::Missing, Outcome::Found)
            }
            Operation::Set(set) => Outcome::Set(self.set(writer, now, key, hash, set, value)),
            Operation::Delete(delete) => {
                Outcome::Delete(self.delete(writer, now, key, hash, delete))
            }
            Operation::Arithmetic(arithmetic) => {
                Outcome::Arithmetic(self.arithmetic(writer, now, key, hash, arithmetic))
            }
        }
    }

    /// Gives the item of `key` another version.
    fn give_version(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        version: Cas,
    ) {
        let mut context = ChangeContext {
            writer,
            now,
            key,
            hash,
            locked: self.index.lock(hash),
            taker: Taker::Writer,
        };
        if let Some(found) = self.find_present(&mut context) {
            self.item(found.reference).set_word(0, version.0);
            context.locked.changed(found.position);
        }
    }
}

/// Whether what an operation stores depends on the value that is there.
fn depends_on_item(operation: &Operation) -> bool {
    match operation {
        Operation::Get(get) => get.changes(),
        Operation::Set(set) => matches!(set.mode, SetMode::Append | SetMode::Prepend),
        Operation::Delete(delete) => delete.invalidate || delete.drop_value,
        Operation::Arithmetic(_) => false,
    }
}

/// What an item takes at most after an operation, given what is there.
fn bytes_at_most(
    key: Key<'_>,
    operation: &Operation,
    value_bytes: usize,
    status: Option<&ItemStatus>,
    value_max: usize,
) -> u32 {
    let there = status.map_or(0, |status| status.value_bytes as usize);
    let value_bytes = match operation {
        Operation::Get(Get {
            touch: None,
            vivify: None,
            recache: None,
            ..
        })
        | Operation::Delete(Delete {
            invalidate: false,
            drop_value: false,
            ..
        }) => return 0,
        // It may be longer than what may be written here: another node may write longer values.
        Operation::Get(_) | Operation::Delete(_) => there,
        Operation::Set(set) => match set.mode {
            SetMode::Append | SetMode::Prepend => (there + value_bytes).min(value_max),
            SetMode::Set | SetMode::Add | SetMode::Replace => value_bytes.min(value_max),
        },
        // A number that was padded stays as long as it is; longer values are none.
        Operation::Arithmetic(_) => COPY_BYTES_MAX.max(DIGITS_MAX),
    };
    Store::item_bytes(key.bytes().len(), value_bytes)
}

/// The operation with the version that it is to give.
fn with_version(operation: &Operation, new_cas: Option<Cas>) -> Operation {
    match *operation {
        Operation::Get(get) => Operation::Get(Get { new_cas, ..get }),
        Operation::Set(set) => Operation::Set(curtail_types::Set { new_cas, ..set }),
        Operation::Delete(delete) => Operation::Delete(Delete { new_cas, ..delete }),
        Operation::Arithmetic(arithmetic) => Operation::Arithmetic(Arithmetic {
            new_cas,
            ..arithmetic
        }),
    }
}

fn is_out_of_memory(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Set(SetOutcome::OutOfMemory)
            | Outcome::Delete(DeleteOutcome::OutOfMemory)
            | Outcome::Arithmetic(ArithmeticOutcome::OutOfMemory)
    )
}

#[cfg(test)]
mod tests {
    use curtail_types::{Exptime, Set, WriterId};

    use super::*;
    use crate::StoreConfig;

    const NOW: Now = Now {
        unix_ns: 1_700_000_000_000_000_000,
        instant: curtail_types::Instant { ns: 0 },
    };

    fn read(touch: Option<Exptime>) -> Operation {
        Operation::Get(Get {
            touch,
            keep_token: false,
            quiet_access: false,
            ..LOOK
        })
    }

    /// A read that finds no room for the item's new end runs again, once others have made some.
    /// Before, the first run gave the right to recache a stale item away; the second, whose outcome
    /// the client was told, no more: nobody stored the item again. It also counted as an access.
    /// Method: a stale item without a place for its end, in a full store; what a look shows then;
    /// and the read again, after room has been made.
    #[test]
    fn a_touching_read_without_room_leaves_everything_as_it_was() {
        let store = Store::new(StoreConfig {
            memory_bytes_max: 8 << 20,
            evict: false,
            ..StoreConfig::default()
        });
        let store = store.expect("a store");
        let mut writer = store.writer(WriterId(1));
        let key = Key::new(b"stale").expect("a key");
        let hash = store.hash(key.bytes());
        let set = Set::default();
        let stored = store.set(&mut writer, NOW, key, hash, &set, b"value");
        assert!(matches!(stored, SetOutcome::Stored(_)));
        let marks = Delete {
            invalidate: true,
            ..Delete::default()
        };
        store.delete(&mut writer, NOW, key, hash, &marks);
        for bytes in [3_000, 8] {
            let is_full = (0..1_000_000_u32).any(|number| {
                let name = format!("filler{bytes}-{number}");
                let filler = Key::new(name.as_bytes()).expect("a key");
                let (hash, value) = (store.hash(filler.bytes()), vec![0; bytes]);
                let stored = store.set(&mut writer, NOW, filler, hash, &set, &value);
                stored == SetOutcome::OutOfMemory
            });
            assert!(is_full);
        }
        let touches = read(Some(Exptime(100)));
        let mut run = |store: &Store, version| {
            let (writer, room_max) = (&mut writer, u32::MAX);
            let (outcome, change) = store.run(
                writer,
                NOW,
                key,
                hash,
                &touches,
                b"",
                Some(version),
                room_max,
                |_| {},
            );
            let there = store.status_of(writer, NOW, key, hash);
            (outcome, change, there.expect("the item"))
        };
        let (_, change, there) = run(&store, Cas(7));
        assert_eq!(change, ItemChange::NoRoom);
        assert!(there.stale && !there.contended && !there.fetched);
        assert_eq!(there.ttl_seconds, None);
        assert!(store.set_memory_bytes_max(16 << 20));
        let (outcome, change, there) = run(&store, Cas(8));
        assert!(matches!(change, ItemChange::Stored(_)), "{change:?}");
        assert!(matches!(outcome, Outcome::Found(found) if found.won && !found.fetched));
        assert!(there.contended && there.fetched);
        assert_eq!(there.ttl_seconds, Some(100));
    }

    /// Goal: the versions of an item rise, whichever thread is behind, and rise above that of which
    /// a state machine tells the threads.
    /// Method: a writer whose turn began a second ago runs after another one, whose versions the
    /// store tells; then the first is told of a version that is ahead of both.
    #[test]
    fn a_writer_that_is_behind_gives_higher_versions() {
        let store = Store::new(StoreConfig {
            memory_bytes_max: 8 << 20,
            ..StoreConfig::default()
        });
        let store = store.expect("a store");
        let (mut behind, mut ahead) = (store.writer(WriterId(1)), store.writer(WriterId(2)));
        let key = Key::new(b"key").expect("a key");
        let hash = store.hash(key.bytes());
        let later = Now {
            unix_ns: NOW.unix_ns + 1_000_000_000,
            ..NOW
        };
        let set = Set::default();
        store.set(&mut ahead, later, key, hash, &set, b"value");
        let mut version = store
            .status_of(&mut behind, NOW, key, hash)
            .expect("set")
            .cas;
        assert!(store.last_cas() >= version);
        let append = Operation::Set(Set {
            mode: SetMode::Append,
            new_cas: Some(Cas(1)),
            ..set
        });
        for raised in [Cas(0), Cas::new(version.clock() + 1_000, WriterId(0))] {
            store.raise_versions(raised);
            let (writer, room_max) = (&mut behind, u32::MAX);
            let (_, change) = store.run(
                writer,
                NOW,
                key,
                hash,
                &append,
                b"s",
                None,
                room_max,
                |_| {},
            );
            assert!(matches!(change, ItemChange::Stored(_)), "{change:?}");
            let next = store
                .status_of(writer, NOW, key, hash)
                .expect("the item")
                .cas;
            assert!(
                next > version && next > raised,
                "{next:?} {version:?} {raised:?}"
            );
            version = next;
        }
        assert!(store.last_cas() >= version);
    }
}
