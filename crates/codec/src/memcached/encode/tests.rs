//! The bound on replies; their words are in `tests/scenarios`.

use curtail_types::{Cas, ItemStatus, Key};

use super::*;
use crate::memcached::{Meta, OPAQUE_BYTES_MAX, Return, Returns};

/// Goal: the bound holds for the longest reply there is. Method: a hit that returns everything at
/// its greatest length, and the longest line for human readers.
#[test]
fn the_longest_replies_fit() {
    let text = [b'A'; Key::BYTES_MAX / 4 * 4];
    let key = Key::new(&text)
        .ok()
        .and_then(|text| WireKey::plain(text).as_base64());
    let key = key.expect("whole groups of base64");
    let mut returns = Returns::default();
    for what in [
        Return::Size,
        Return::Ttl,
        Return::Cas,
        Return::Flags,
        Return::Idle,
        Return::Fetched,
        Return::Opaque,
        Return::Key,
    ] {
        returns.push(what);
    }
    let form = Form::Meta(Meta {
        returns,
        opaque: &[b'o'; OPAQUE_BYTES_MAX],
        value: true,
        quiet: false,
    });
    let status = ItemStatus {
        flags: u32::MAX,
        cas: Cas(u64::MAX),
        value_bytes: u32::MAX,
        ttl_seconds: Some(u32::MAX),
        idle_seconds: u32::MAX,
        fetched: true,
        won: true,
        stale: true,
        contended: true,
    };
    for form in [form, Form::Debug] {
        let mut buffer = [0; REPLY_BYTES_MAX];
        let mut sink = Sink::new(&mut buffer);
        if hit(&mut sink, &key, &form, &status) {
            value_end(&mut sink, &form);
        }
        assert!(!sink.overflowed());
        assert!(sink.len() > 300, "this is a long one");
    }
}

#[test]
fn returns_keep_their_order() {
    let mut returns = Returns::default();
    assert!(returns.is_empty());
    for what in [Return::Key, Return::Size, Return::Opaque] {
        returns.push(what);
    }
    assert!(returns.eq([Return::Key, Return::Size, Return::Opaque]));
}

/// Goal: a plain reply is the general one, byte for byte. Method: both ways for every length that
/// has a plain reply and some beyond, in every form, with short and long keys.
#[test]
fn a_plain_reply_is_the_general_one() {
    let mut returns = Returns::default();
    returns.push(Return::Key);
    let meta = |value, returns| Meta {
        returns,
        value,
        ..Meta::NONE
    };
    let forms = [
        (Form::Meta(meta(true, Returns::default())), true),
        (Form::Meta(meta(false, Returns::default())), false),
        (Form::Meta(meta(true, returns)), false),
        (value_form(false, true), true),
        (value_form(false, false), true),
        (value_form(true, true), false),
        (Form::Line { noreply: false }, false),
        (Form::Debug, false),
    ];
    for (form, has_plain) in forms {
        for (length, key) in (0..1002).flat_map(|length| [(length, "k"), (length, LONG_KEY)]) {
            let key = WireKey::plain(Key::new(key.as_bytes()).expect("a key"));
            let mut room = [b'#'; 2048];
            let plain = plain(&mut room, &key, &form, length);
            assert_eq!(
                plain.is_some(),
                has_plain && length < 1000,
                "{form:?} {length}"
            );
            let Some(plain) = plain else { continue };
            let mut buffer = [0; 2048];
            let mut sink = Sink::new(&mut buffer);
            let status = ItemStatus {
                value_bytes: length as u32,
                cas: Cas(7),
                ..ItemStatus::default()
            };
            assert!(hit(&mut sink, &key, &form, &status));
            sink.push(&[b'v'; 1002][..length]);
            value_end(&mut sink, &form);
            assert_eq!(plain, sink.written(), "{form:?}");
        }
    }
}

/// A plain reply with a value of so many bytes, if the form has one.
fn plain<'r>(
    room: &'r mut [u8],
    key: &WireKey<'_>,
    form: &Form<'_>,
    length: usize,
) -> Option<&'r [u8]> {
    let value_at = plain_head(room, key, form, length)?;
    let end_at = value_at + length;
    room[value_at..end_at].fill(b'v');
    let end = plain_end(&mut room[end_at..], form)?;
    Some(&room[..end_at + end])
}

const fn value_form(with_cas: bool, last: bool) -> Form<'static> {
    Form::Value { with_cas, last }
}

const LONG_KEY: &str = match str::from_utf8(&[b'k'; Key::BYTES_MAX]) {
    Ok(key) => key,
    Err(_) => "",
};

/// Goal: a reply that does not fit is left alone. Method: room that is one byte too short for what
/// is written at once.
#[test]
fn a_plain_reply_without_room_is_none() {
    let key = WireKey::plain(Key::new(b"key").expect("a key"));
    let form = Form::Meta(Meta {
        value: true,
        ..Meta::NONE
    });
    assert_eq!(plain_head(&mut [0; 7], &key, &form, 10), None);
    assert_eq!(plain_head(&mut [0; 8], &key, &form, 10), Some(7));
    assert_eq!(plain_end(&mut [0; 6], &form), None);
    assert_eq!(plain_end(&mut [0; 7], &form), Some(2));
    assert_eq!(
        plain_head(&mut [0; 16], &key, &value_form(false, true), 10),
        None
    );
    assert_eq!(
        plain_head(&mut [0; 17], &key, &value_form(false, true), 10),
        Some(16)
    );
}
