//! What a change does to an item that depends on what is there (`add`, `cas`, `append`, `incr`,
//! `touch`): memcached's commands, as a back end carries them out.

use curtail_codec::{
    node::ItemRequest,
    tiered::{BODY_BYTES_MAX, TieredStatus},
};
use curtail_types::{Arithmetic, Cas, Delete, Exptime, Get, Now, Operation, Set, SetMode};

use crate::back_end_store::StoredItem;

/// What becomes of an item.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ChangedItem {
    /// It is this from now on.
    Stored(StoredItem),
    /// The same; it is the number that arithmetic came to.
    Counted(StoredItem, u64),
    /// It is removed.
    Removed,
    /// It stays as it is, and the client is told why.
    Refused(TieredStatus),
}

/// Carries a request out on the item that is there, if one is; `version` is what it gets.
pub(crate) fn change(
    found: Option<&StoredItem>,
    request: &ItemRequest<'_>,
    now: Now,
    version: Cas,
) -> ChangedItem {
    let changed = match &request.operation {
        Operation::Get(get) => touch(found, get, now),
        Operation::Set(set) => store(found, set, request.value, (now, version)),
        Operation::Delete(delete) => remove(found, delete),
        Operation::Arithmetic(arithmetic) => count(found, arithmetic, (now, version)),
    };
    match changed {
        // No more than a datagram has room for: a read could not show it.
        ChangedItem::Stored(item) | ChangedItem::Counted(item, _)
            if request.key.bytes().len() + item.value.len() > BODY_BYTES_MAX =>
        {
            ChangedItem::Refused(TieredStatus::TooLarge)
        }
        changed => changed,
    }
}

fn touch(found: Option<&StoredItem>, get: &Get, now: Now) -> ChangedItem {
    let Some(found) = found else {
        return ChangedItem::Refused(TieredStatus::NotFound);
    };
    let touched = get.touch.unwrap_or_default();
    ChangedItem::Stored(StoredItem {
        expiry: touched.expiry(now).to_bits(),
        ..found.clone()
    })
}

fn store(
    found: Option<&StoredItem>,
    set: &Set,
    value: &[u8],
    (now, version): (Now, Cas),
) -> ChangedItem {
    if let Err(status) = compare(found, set.compare) {
        return ChangedItem::Refused(status);
    }
    let item = |exptime: Exptime| StoredItem {
        version,
        flags: set.flags,
        expiry: exptime.expiry(now).to_bits(),
        value: value.to_vec(),
    };
    let joined = |found: &StoredItem, parts: [&[u8]; 2]| StoredItem {
        version,
        value: parts.concat(),
        ..found.clone()
    };
    let stored = match (set.mode, found) {
        (SetMode::Set, _) | (SetMode::Add, None) | (SetMode::Replace, Some(_)) => {
            Some(item(set.exptime))
        }
        (SetMode::Add, Some(_)) | (SetMode::Replace, None) => None,
        (SetMode::Append, Some(found)) => Some(joined(found, [&found.value, value])),
        (SetMode::Prepend, Some(found)) => Some(joined(found, [value, &found.value])),
        (SetMode::Append | SetMode::Prepend, None) => set.vivify.map(item),
    };
    let refused = ChangedItem::Refused(TieredStatus::NotStored);
    stored.map_or(refused, ChangedItem::Stored)
}

fn remove(found: Option<&StoredItem>, delete: &Delete) -> ChangedItem {
    match (found, compare(found, delete.compare)) {
        (None, _) => ChangedItem::Refused(TieredStatus::NotFound),
        (_, Err(status)) => ChangedItem::Refused(status),
        (Some(_), Ok(())) => ChangedItem::Removed,
    }
}

fn count(
    found: Option<&StoredItem>,
    arithmetic: &Arithmetic,
    (now, version): (Now, Cas),
) -> ChangedItem {
    let Some(found) = found else {
        let Some(exptime) = arithmetic.vivify else {
            return ChangedItem::Refused(TieredStatus::NotFound);
        };
        let item = StoredItem {
            version,
            flags: 0,
            expiry: exptime.expiry(now).to_bits(),
            value: arithmetic.initial.to_string().into_bytes(),
        };
        return ChangedItem::Counted(item, arithmetic.initial);
    };
    let Some(old) = number_in(&found.value) else {
        return ChangedItem::Refused(TieredStatus::NotANumber);
    };
    if let Err(status) = compare(Some(found), arithmetic.compare) {
        return ChangedItem::Refused(status);
    }
    let number = arithmetic.next(old);
    let touched = arithmetic
        .touch
        .map(|exptime| exptime.expiry(now).to_bits());
    let mut value = number.to_string().into_bytes();
    // As memcached does: over the old digits where the new ones fit.
    value.resize(value.len().max(found.value.len()), b' ');
    let item = StoredItem {
        version,
        flags: found.flags,
        expiry: touched.unwrap_or(found.expiry),
        value,
    };
    ChangedItem::Counted(item, number)
}

fn compare(found: Option<&StoredItem>, version: Option<Cas>) -> Result<(), TieredStatus> {
    match (found, version) {
        (_, None) => Ok(()),
        (None, Some(_)) => Err(TieredStatus::NotFound),
        (Some(found), Some(version)) if found.version == version => Ok(()),
        _ => Err(TieredStatus::Exists),
    }
}

/// The number that a value is: digits, perhaps padded with spaces.
fn number_in(value: &[u8]) -> Option<u64> {
    let text = value.trim_ascii_end();
    // `parse` would take a sign.
    let is_number = text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use curtail_codec::node::Shows;
    use curtail_types::{Direction, Key};

    use super::*;

    const NOW: Now = Now {
        instant: curtail_types::Instant { ns: 0 },
        unix_ns: 1_800_000_000_000_000_000,
    };

    fn changed(found: Option<&StoredItem>, operation: Operation, value: &[u8]) -> ChangedItem {
        let request = ItemRequest {
            key: Key::new(b"key").unwrap(),
            operation,
            shows: Shows::Nothing,
            value,
        };
        change(found, &request, NOW, Cas(9))
    }

    fn set(mode: SetMode, compare: Option<u64>) -> Operation {
        Operation::Set(Set {
            mode,
            compare: compare.map(Cas),
            flags: 7,
            exptime: Exptime(10),
            ..Set::default()
        })
    }

    fn item(value: &[u8]) -> StoredItem {
        StoredItem {
            version: Cas(3),
            flags: 1,
            expiry: 0,
            value: value.to_vec(),
        }
    }

    fn value_of(changed: &ChangedItem) -> &[u8] {
        match changed {
            ChangedItem::Stored(item) | ChangedItem::Counted(item, _) => &item.value,
            _ => b"(none)",
        }
    }

    #[test]
    fn what_is_stored_depends_on_what_is_there() {
        use TieredStatus as S;
        let old = item(b"old");
        let is = |mode, compare, found: Option<&StoredItem>, expected: Result<&[u8], S>| {
            let changed = changed(found, set(mode, compare), b"new");
            match expected {
                Ok(value) => assert_eq!(value_of(&changed), value, "{mode:?} {compare:?}"),
                Err(status) => assert_eq!(changed, ChangedItem::Refused(status), "{mode:?}"),
            }
        };
        is(SetMode::Add, None, None, Ok(b"new"));
        is(SetMode::Add, None, Some(&old), Err(S::NotStored));
        is(SetMode::Replace, None, None, Err(S::NotStored));
        is(SetMode::Replace, None, Some(&old), Ok(b"new"));
        is(SetMode::Append, None, Some(&old), Ok(b"oldnew"));
        is(SetMode::Prepend, None, Some(&old), Ok(b"newold"));
        is(SetMode::Append, None, None, Err(S::NotStored));
        is(SetMode::Set, Some(3), Some(&old), Ok(b"new"));
        is(SetMode::Set, Some(4), Some(&old), Err(S::Exists));
        is(SetMode::Set, Some(3), None, Err(S::NotFound));
        let stored = changed(None, set(SetMode::Add, None), b"new");
        let expected = StoredItem {
            version: Cas(9),
            flags: 7,
            expiry: 1_800_000_010,
            value: b"new".to_vec(),
        };
        assert_eq!(stored, ChangedItem::Stored(expected));
        let long = item(&[b'x'; BODY_BYTES_MAX - 4]);
        let joined = changed(Some(&long), set(SetMode::Append, None), b"new");
        assert_eq!(joined, ChangedItem::Refused(S::TooLarge));
    }

    #[test]
    fn numbers_are_counted_as_memcached_does() {
        let step = |direction, delta| {
            Operation::Arithmetic(Arithmetic {
                direction,
                delta,
                ..Arithmetic::default()
            })
        };
        let up = step(Direction::Increment, 5);
        let counted = changed(Some(&item(b"9")), up, b"");
        assert!(
            matches!(counted, ChangedItem::Counted(_, 14)),
            "{counted:?}"
        );
        let down = step(Direction::Decrement, 1);
        let counted = changed(Some(&item(b"10")), down, b"");
        assert_eq!(value_of(&counted), b"9 ");
        let counted = changed(Some(&item(b"9 ")), up, b"");
        assert_eq!(value_of(&counted), b"14");
        for text in ["", "x", "1x", "-1", "99999999999999999999"] {
            let refused = changed(Some(&item(text.as_bytes())), up, b"");
            assert_eq!(
                refused,
                ChangedItem::Refused(TieredStatus::NotANumber),
                "{text}"
            );
        }
        let missing = changed(None, up, b"");
        assert_eq!(missing, ChangedItem::Refused(TieredStatus::NotFound));
        let made = Operation::Arithmetic(Arithmetic {
            vivify: Some(Exptime(0)),
            initial: 40,
            ..Arithmetic::default()
        });
        assert_eq!(value_of(&changed(None, made, b"")), b"40");
    }

    #[test]
    fn what_is_touched_ends_then_and_is_else_the_same() {
        let touch = Operation::Get(Get {
            touch: Some(Exptime(60)),
            ..Get::default()
        });
        let expected = StoredItem {
            expiry: 1_800_000_060,
            ..item(b"old")
        };
        let touched = changed(Some(&item(b"old")), touch, b"");
        assert_eq!(touched, ChangedItem::Stored(expected));
        let missing = changed(None, touch, b"");
        assert_eq!(missing, ChangedItem::Refused(TieredStatus::NotFound));
    }

    #[test]
    fn what_is_removed_may_have_to_have_a_version() {
        let delete = |compare| {
            Operation::Delete(Delete {
                compare,
                ..Delete::default()
            })
        };
        let old = item(b"old");
        assert_eq!(
            changed(Some(&old), delete(Some(Cas(3))), b""),
            ChangedItem::Removed
        );
        let refused = changed(Some(&old), delete(Some(Cas(4))), b"");
        assert_eq!(refused, ChangedItem::Refused(TieredStatus::Exists));
        let missing = changed(None, delete(None), b"");
        assert_eq!(missing, ChangedItem::Refused(TieredStatus::NotFound));
    }
}
