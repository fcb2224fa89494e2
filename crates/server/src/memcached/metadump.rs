//! `lru_crawler metadump` and `mgdump`: a line for every item, for clients that read them all; and
//! `stats cachedump`, the same for some of them.
//!
//! ```text
//!   command ---> piece ---> sent ---> piece ---> sent ---> ... ---> END
//!                           (waits as long as the client does)
//! ```
//!
//! A dump belongs to its connection. It looks at a few buckets of the index when the client has
//! taken what came of the last few, so a slow client slows its dump and holds no more than a piece;
//! and all dumps of a worker together look at a bounded number of buckets in one turn.
//!
//! Not a snapshot: items that come, go or are moved between buckets while it runs may be missed or
//! listed twice.

use std::io::Write;

use curtail_types::{ItemStatus, Key};

use crate::{key_encoding, limits::CACHEDUMP_BYTES_MAX, store_context::StoreContext};

/// Buckets that all dumps of a worker look at in one turn: 8 items each, some 100 us.
pub(crate) const BUCKETS_A_TURN: usize = 64;

/// How an item is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DumpForm {
    /// `key=... exp=...`: `metadump`.
    Fields,
    /// A request that reads it: `mgdump`.
    Request,
    /// `ITEM key [.. b; .. s]`: `stats cachedump`.
    Listed,
}

/// A dump under way.
#[derive(Debug)]
pub(crate) struct Dump {
    form: DumpForm,
    /// The next bucket; nothing when all were seen.
    next: Option<usize>,
    /// Items and bytes that it may still have.
    left: (usize, usize),
}

impl Dump {
    /// A dump of all items; of none if they are not `wanted`.
    pub(crate) fn new(form: DumpForm, wanted: bool) -> Self {
        Self {
            form,
            next: wanted.then_some(0),
            left: (usize::MAX, usize::MAX),
        }
    }

    /// A dump of so many items, 0 for all, as far as they go into what such a dump may have; of
    /// none if they are not `wanted`.
    pub(crate) fn some(items: usize, wanted: bool) -> Self {
        let items_max = if items == 0 { usize::MAX } else { items };
        Self {
            left: (items_max, CACHEDUMP_BYTES_MAX),
            ..Self::new(DumpForm::Listed, wanted)
        }
    }

    /// The next lines, and whether they were the last.
    pub(crate) fn piece(
        &mut self,
        store_cx: &mut StoreContext,
        buckets: &mut usize,
    ) -> (Vec<u8>, bool) {
        let mut text = Vec::new();
        if let Some(from) = self.next {
            let buckets = std::mem::take(buckets);
            if buckets == 0 {
                return (text, false);
            }
            let (form, seconds) = (self.form, store_cx.now.unix_seconds());
            let (items_left, bytes_left) = &mut self.left;
            let each = |key: Key<'_>, status: &ItemStatus| {
                let before = text.len();
                form.push(&mut text, key, status, seconds);
                let bytes = text.len() - before;
                if *items_left == 0 || bytes > *bytes_left {
                    text.truncate(before);
                    *items_left = 0;
                } else if bytes > 0 {
                    *items_left -= 1;
                    *bytes_left -= bytes;
                }
            };
            self.next = store_cx
                .store
                .list(&mut store_cx.writer, store_cx.now, from, buckets, each)
                .filter(|_| self.left.0 > 0);
        }
        if self.next.is_none() {
            text.extend_from_slice(self.form.end());
        }
        (text, self.next.is_none())
    }
}

impl DumpForm {
    /// The line of one item. Classes do not exist here, so the class is always 1; the size is that
    /// of key and value.
    fn push(self, text: &mut Vec<u8>, key: Key<'_>, status: &ItemStatus, seconds: u32) {
        let bytes = key.bytes();
        match self {
            Self::Fields => {
                text.extend_from_slice(b"key=");
                key_encoding::push_percent(text, bytes);
                let end = status
                    .ttl_seconds
                    .map_or(-1, |ttl| i64::from(seconds) + i64::from(ttl));
                // Writing to a vector cannot fail.
                let _ = writeln!(
                    text,
                    " exp={end} la={} cas={} fetch={} cls=1 size={}",
                    seconds.saturating_sub(status.idle_seconds),
                    status.cas.0,
                    if status.fetched { "yes" } else { "no" },
                    bytes.len() + status.value_bytes as usize,
                );
            }
            Self::Request => {
                text.extend_from_slice(b"mg ");
                if key_encoding::is_plain(bytes) {
                    text.extend_from_slice(bytes);
                } else {
                    key_encoding::push_base64(text, bytes);
                    text.extend_from_slice(b" b");
                }
                text.extend_from_slice(b"\r\n");
            }
            // A key that only base64 can name has no place in such a line.
            Self::Listed if !key_encoding::is_plain(bytes) => {}
            Self::Listed => {
                let end = status
                    .ttl_seconds
                    .map_or(0, |ttl| seconds.saturating_add(ttl));
                text.extend_from_slice(b"ITEM ");
                text.extend_from_slice(bytes);
                // Writing to a vector cannot fail.
                let _ = write!(text, " [{} b; {end} s]\r\n", status.value_bytes);
            }
        }
    }

    fn end(self) -> &'static [u8] {
        match self {
            Self::Fields | Self::Listed => b"END\r\n",
            Self::Request => b"EN\r\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::Cas;

    use super::*;

    fn line(form: DumpForm, key: &[u8], status: &ItemStatus) -> String {
        let mut text = Vec::new();
        form.push(&mut text, Key::new(key).unwrap(), status, 1000);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_are_spelt_as_memcached_spells_them() {
        let mut status = ItemStatus {
            cas: Cas(7),
            value_bytes: 10,
            idle_seconds: 4,
            ..ItemStatus::default()
        };
        assert_eq!(
            line(DumpForm::Fields, b"a/b", &status),
            "key=a%2Fb exp=-1 la=996 cas=7 fetch=no cls=1 size=13\n"
        );
        status.ttl_seconds = Some(50);
        status.fetched = true;
        assert_eq!(
            line(DumpForm::Fields, b"k", &status),
            "key=k exp=1050 la=996 cas=7 fetch=yes cls=1 size=11\n"
        );
        assert_eq!(line(DumpForm::Request, b"a/b", &status), "mg a/b\r\n");
        assert_eq!(line(DumpForm::Request, b"a b", &status), "mg YSBi b\r\n");
        let listed = "ITEM a/b [10 b; 1050 s]\r\n";
        assert_eq!(line(DumpForm::Listed, b"a/b", &status), listed);
        assert_eq!(line(DumpForm::Listed, b"a b", &status), "");
    }
}
