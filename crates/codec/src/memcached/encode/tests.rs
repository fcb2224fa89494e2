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
