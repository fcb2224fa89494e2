//! The keys that are requested most, from the lines of a server's `watch`.
//!
//! `watch` is memcached's: the server sends a line for every request until the connection is
//! closed, as long as there is room for it. That costs the server something for each request, so
//! it is done only when wanted, and for a moment at a time: a key that matters shows in a moment.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    Target,
    connection::{Connection, Fault},
};

/// The keys of a moment.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct HotKeys {
    /// Requests that were seen, and that the server had no room to tell of.
    pub(crate) seen: u64,
    pub(crate) skipped: u64,
    /// The hottest first; as the server writes them, which is with `%` for unusual characters.
    pub(crate) keys: Vec<HotKey>,
}

/// A key and how often it was seen.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct HotKey {
    pub(crate) key: String,
    pub(crate) seen: u64,
}

/// How long one look is, and how many lines end it earlier.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
const LINES_MAX: u64 = 20_000;
/// Keys that are told.
const KEYS_MAX: usize = 20;

impl HotKeys {
    /// Watches for a moment.
    pub(crate) fn watch(target: &Target) -> Result<Self, Fault> {
        let mut connection = Connection::open(&target.address, target.login.as_ref())?;
        // Writes look their key up too, so they are told of among the fetches, and only once.
        connection.send("watch fetchers\r\n")?;
        let answer = connection.line()?;
        if answer != "OK" {
            return Err(Fault::Unwatched(answer));
        }
        let deadline = Instant::now() + LOOK;
        let mut lines = Vec::new();
        while (lines.len() as u64) < LINES_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match connection.line_within(left)? {
                Some(line) => lines.push(line),
                None => break,
            }
        }
        Ok(Self::of(lines.iter().map(String::as_str)))
    }

    /// Counts what `watch` said.
    fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let (mut seen, mut skipped) = (0, 0);
        let mut counts: HashMap<&str, u64> = HashMap::new();
        for line in lines {
            match field(line, "key=") {
                Some(key) => {
                    seen += 1;
                    *counts.entry(key).or_insert(0) += 1;
                }
                None => skipped += field(line, "skipped=").map_or(0, number),
            }
        }
        let mut keys: Vec<HotKey> = counts
            .into_iter()
            .map(|(key, seen)| HotKey {
                key: key.to_owned(),
                seen,
            })
            .collect();
        keys.sort_by(|one, other| (other.seen, &one.key).cmp(&(one.seen, &other.key)));
        keys.truncate(KEYS_MAX);
        Self {
            seen,
            skipped,
            keys,
        }
    }
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_and_the_hottest_is_first() {
        let lines = [
            "ts=1.2 gid=1 type=item_get key=b status=found clsid=1 cfd=18 size=3",
            "ts=1.3 gid=2 type=item_store key=a%25 status=stored cmd=set ttl=0 clsid=1 cfd=1",
            "ts=1.3 gid=3 type=item_get key=a%25 status=not_found clsid=0 cfd=18 size=0",
            "skipped=40",
            "ts=1.3 gid=5 type=item_get key=c status=found clsid=1 cfd=18 size=3",
            "something else",
        ];
        let hot = HotKeys::of(lines.into_iter());
        let key = |key: &str, seen| HotKey {
            key: key.to_owned(),
            seen,
        };
        assert_eq!((hot.seen, hot.skipped), (4, 40));
        assert_eq!(hot.keys, [key("a%25", 2), key("b", 1), key("c", 1)]);
    }

    #[test]
    fn few_are_told() {
        let lines: Vec<String> = (0..100).map(|n| format!("key={n} x")).collect();
        let hot = HotKeys::of(lines.iter().map(String::as_str));
        assert_eq!((hot.seen, hot.keys.len()), (100, KEYS_MAX));
    }
}
