//! `stats detail`: how often the keys of each prefix are read, written and removed.
//!
//! Off by default, and then it costs a look at one flag per turn. While it is on, every request
//! takes a lock: it is a tool for an hour of looking, not for every day.

use std::{collections::BTreeMap, fmt::Write, sync::Mutex};

use crate::sync::{AtomicBool, Relaxed, lock};

/// Counts per prefix.
#[derive(Debug)]
pub(crate) struct Prefixes {
    on: AtomicBool,
    delimiter: u8,
    entries: Mutex<BTreeMap<Box<[u8]>, PrefixCounts>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PrefixCounts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KeyEvent {
    /// Read, with or without success.
    Get {
        /// It was there.
        hit: bool,
    },
    /// Written.
    Set,
    /// Removed, or not there to be removed.
    Delete,
}

/// Prefixes that are told apart; later ones are not counted.
const PREFIXES_MAX: usize = 10_000;

impl Prefixes {
    pub(crate) fn new(on: bool, delimiter: u8) -> Self {
        Self {
            on: AtomicBool::new(on),
            delimiter,
            entries: Mutex::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Relaxed);
    }

    pub(crate) fn clear(&self) {
        lock(&self.entries).clear();
    }

    /// Counts `event` for the prefix of `key`; a key without the delimiter has none.
    pub(crate) fn count(&self, key: &[u8], event: KeyEvent) {
        let Some(end) = key.iter().position(|&byte| byte == self.delimiter) else {
            return;
        };
        let prefix = key.get(..end).unwrap_or_default();
        let mut entries = lock(&self.entries);
        if !entries.contains_key(prefix) {
            if entries.len() >= PREFIXES_MAX {
                return;
            }
            entries.insert(prefix.into(), PrefixCounts::default());
        }
        let Some(counts) = entries.get_mut(prefix) else {
            return;
        };
        match event {
            KeyEvent::Get { hit } => {
                counts.gets += 1;
                counts.hits += u64::from(hit);
            }
            KeyEvent::Set => counts.sets += 1,
            KeyEvent::Delete => counts.deletes += 1,
        }
    }

    /// The lines of `stats detail dump`, with the end.
    pub(crate) fn dump(&self) -> Vec<u8> {
        let mut text = String::new();
        for (prefix, counts) in lock(&self.entries).iter() {
            let _ = write!(
                text,
                "PREFIX {} get {} hit {} set {} del {}\r\n",
                String::from_utf8_lossy(prefix),
                counts.gets,
                counts.hits,
                counts.sets,
                counts.deletes
            );
        }
        text.push_str("END\r\n");
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_by_prefix() {
        let prefixes = Prefixes::new(true, b':');
        prefixes.count(b"foo:1", KeyEvent::Set);
        prefixes.count(b"foo:2", KeyEvent::Get { hit: false });
        prefixes.count(b"foo:1", KeyEvent::Get { hit: true });
        prefixes.count(b"plain", KeyEvent::Delete);
        prefixes.count(b"bar:x:y", KeyEvent::Delete);
        assert_eq!(
            prefixes.dump(),
            b"PREFIX bar get 0 hit 0 set 0 del 1\r\n\
              PREFIX foo get 2 hit 1 set 1 del 0\r\nEND\r\n"
        );
        prefixes.clear();
        assert_eq!(prefixes.dump(), b"END\r\n");
    }
}
