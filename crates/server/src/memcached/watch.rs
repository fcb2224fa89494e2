//! `watch`: connections that are sent a line for every event they asked for.
//!
//! ```text
//!   event -> journal of the worker -- end of turn --> lines of each watcher -- wake --> sent
//!            (bounded: more is dropped)               (bounded: more is skipped)
//! ```
//!
//! Nobody waits for a watcher: a line that finds no room is counted and left out, and the watcher
//! is told how many were once there is room again. While nobody watches, all of this costs each
//! worker a look at one word per turn.

use std::sync::{Arc, Mutex};

use crate::{
    limits::WATCHERS_MAX,
    metrics::counters::Tally,
    sync::{AtomicBool, AtomicU8, AtomicU64, Relaxed, lock},
};

/// Kinds of events, as a set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Interests(u8);

/// All watchers of the server.
#[derive(Debug)]
pub(crate) struct Watchers {
    /// What any of them wants.
    interests: AtomicU8,
    list: Mutex<Vec<Arc<Watcher>>>,
    last_id: AtomicU64,
    watcher_bytes_max: usize,
    pub(crate) counts: LogCounts,
}

/// What became of the lines, for `stats`.
#[derive(Debug, Default)]
pub(crate) struct LogCounts {
    /// Lines that found no room in a worker's journal.
    pub(crate) worker_dropped: Tally,
    /// Lines that did.
    pub(crate) worker_written: Tally,
    /// Lines that found no room with a watcher.
    pub(crate) watcher_skipped: Tally,
    /// Lines that did.
    pub(crate) watcher_sent: Tally,
}

/// One watching connection, as its writers see it.
#[derive(Debug)]
pub(crate) struct Watcher {
    interests: Interests,
    /// The worker that its connection belongs to.
    worker: usize,
    lines: Mutex<Lines>,
    /// Whether there are lines for it.
    waiting: AtomicBool,
}

#[derive(Debug, Default)]
struct Lines {
    text: Vec<u8>,
    skipped: u64,
}

/// Lines of one turn of one worker, each with its kind.
#[derive(Debug)]
pub(crate) struct Journal {
    text: Vec<u8>,
    ends: Vec<(Interests, usize)>,
    bytes_max: usize,
    dropped: u64,
}

impl Interests {
    pub(crate) const FETCHERS: Self = Self(1);
    pub(crate) const MUTATIONS: Self = Self(2);
    pub(crate) const EVICTIONS: Self = Self(4);
    pub(crate) const CONNECTIONS: Self = Self(8);
    /// Slow requests; see `slow`.
    pub(crate) const SLOW: Self = Self(16);

    /// What the words of a `watch` command name; `None` for a word that is none.
    pub(crate) fn parse<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let Some(first) = words.next() else {
            return Some(Self::FETCHERS);
        };
        let all = std::iter::once(first).chain(words);
        all.map(|word| match word {
            b"fetchers" => Some(Self::FETCHERS),
            b"mutations" => Some(Self::MUTATIONS),
            b"evictions" => Some(Self::EVICTIONS),
            b"connevents" => Some(Self::CONNECTIONS),
            b"slow" => Some(Self::SLOW),
            // Events of parts of memcached that do not exist here: they never happen.
            b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => {
                Some(Self::default())
            }
            _ => None,
        })
        .try_fold(Self::default(), |set, one| Some(Self(set.0 | one?.0)))
    }

    /// Whether anything is watched that each request is looked at for.
    pub(crate) const fn any_of_requests(self) -> bool {
        self.0 & !Self::SLOW.0 != 0
    }

    pub(crate) const fn contain(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl Watchers {
    /// Each watcher has room for `watcher_bytes_max` bytes of lines.
    pub(crate) fn new(watcher_bytes_max: usize) -> Self {
        Self {
            interests: AtomicU8::new(0),
            list: Mutex::default(),
            last_id: AtomicU64::new(0),
            watcher_bytes_max,
            counts: LogCounts::default(),
        }
    }

    /// What anybody watches.
    pub(crate) fn interests(&self) -> Interests {
        Interests(self.interests.load(Relaxed))
    }

    /// Adds a watcher whose connection belongs to `worker`; `None` when there are too many.
    pub(crate) fn add(&self, interests: Interests, worker: usize) -> Option<Arc<Watcher>> {
        let mut list = lock(&self.list);
        if list.len() >= WATCHERS_MAX {
            return None;
        }
        let watcher = Arc::new(Watcher {
            interests,
            worker,
            lines: Mutex::default(),
            waiting: AtomicBool::new(false),
        });
        list.push(Arc::clone(&watcher));
        self.note_interests(&list);
        Some(watcher)
    }

    pub(crate) fn remove(&self, watcher: &Arc<Watcher>) {
        let mut list = lock(&self.list);
        list.retain(|other| !Arc::ptr_eq(other, watcher));
        self.note_interests(&list);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        lock(&self.list).len()
    }

    /// A number that no other line has.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// Hands the lines of `journal` to the watchers and empties it; calls `wake` with each worker
    /// that has something to send now.
    pub(crate) fn publish(&self, journal: &mut Journal, mut wake: impl FnMut(usize)) {
        let (written, dropped) = (journal.ends.len() as u64, journal.dropped);
        self.counts.worker_written.add(written);
        self.counts.worker_dropped.add(dropped);
        if written > 0 {
            for watcher in lock(&self.list).iter() {
                if self.hand_over(journal, watcher) {
                    wake(watcher.worker);
                }
            }
        }
        journal.clear();
    }

    /// Whether the watcher now has lines and had none before.
    fn hand_over(&self, journal: &Journal, watcher: &Watcher) -> bool {
        let mut lines = lock(&watcher.lines);
        let before = lines.text.len();
        let mut sent = 0;
        let mut skipped = 0;
        let wanted = journal
            .lines()
            .filter(|(kind, _)| watcher.interests.contain(*kind));
        for (_, line) in wanted {
            if lines.add(line, self.watcher_bytes_max) {
                sent += 1;
            } else {
                skipped += 1;
            }
        }
        self.counts.watcher_sent.add(sent);
        self.counts.watcher_skipped.add(skipped);
        watcher.waiting.store(!lines.text.is_empty(), Relaxed);
        before == 0 && !lines.text.is_empty()
    }

    fn note_interests(&self, list: &[Arc<Watcher>]) {
        let all = list
            .iter()
            .fold(0, |set, watcher| set | watcher.interests.0);
        self.interests.store(all, Relaxed);
    }
}

impl LogCounts {
    /// Starts over for `stats`.
    pub(crate) fn reset(&self) {
        self.worker_dropped.reset();
        self.worker_written.reset();
        self.watcher_skipped.reset();
        self.watcher_sent.reset();
    }
}

impl Watcher {
    /// Whether there are lines for it.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Relaxed)
    }

    /// Takes all lines there are.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut lines = lock(&self.lines);
        self.waiting.store(false, Relaxed);
        std::mem::take(&mut lines.text)
    }
}

impl Lines {
    /// Adds `line` if there is room, and before it how many found none.
    fn add(&mut self, line: &[u8], bytes_max: usize) -> bool {
        if self.text.len() + line.len() + SKIPPED_BYTES_MAX > bytes_max {
            self.skipped += 1;
            return false;
        }
        if self.skipped > 0 {
            let skipped = std::mem::take(&mut self.skipped);
            self.text
                .extend_from_slice(format!("skipped={skipped}\n").as_bytes());
        }
        self.text.extend_from_slice(line);
        true
    }
}

/// The longest `skipped` line.
const SKIPPED_BYTES_MAX: usize = 32;

impl Journal {
    /// A journal with room for `bytes_max` bytes of lines in a turn.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            text: Vec::new(),
            ends: Vec::new(),
            bytes_max,
            dropped: 0,
        }
    }

    /// Has `write` append one line, with its end.
    pub(crate) fn add(&mut self, kind: Interests, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.text.len();
        write(&mut self.text);
        if self.text.len() > self.bytes_max {
            self.text.truncate(before);
            self.dropped += 1;
        } else {
            self.ends.push((kind, self.text.len()));
        }
    }

    /// Counts a line that was never written.
    pub(crate) fn drop_lines(&mut self, lines: u64) {
        self.dropped += lines;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.dropped == 0
    }

    fn lines(&self) -> impl Iterator<Item = (Interests, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(kind, end)| {
            let line = self.text.get(start..end).unwrap_or_default();
            start = end;
            (kind, line)
        })
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.dropped = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(journal: &mut Journal, kind: Interests, line: &str) {
        journal.add(kind, |text| text.extend_from_slice(line.as_bytes()));
    }

    fn parsed(words: &[&str]) -> Option<Interests> {
        Interests::parse(words.iter().map(|word| word.as_bytes()))
    }

    #[test]
    fn plain_watch_means_fetchers() {
        assert_eq!(parsed(&[]), Some(Interests::FETCHERS));
        let both = parsed(&["mutations", "evictions"]).unwrap();
        assert!(both.contain(Interests::MUTATIONS) && both.contain(Interests::EVICTIONS));
        assert!(!both.contain(Interests::FETCHERS));
        assert_eq!(parsed(&["sysevents"]), Some(Interests::default()));
        assert_eq!(parsed(&["fetchers", "what"]), None);
    }

    #[test]
    fn each_watcher_gets_what_it_asked_for_and_is_woken_once() {
        let watchers = Watchers::new(1000);
        let fetchers = watchers.add(Interests::FETCHERS, 3).unwrap();
        let both = parsed(&["fetchers", "mutations"]).unwrap();
        let both = watchers.add(both, 5).unwrap();
        let mut journal = Journal::new(1000);
        let mut woken = Vec::new();
        for _ in 0..2 {
            record(&mut journal, Interests::FETCHERS, "get\n");
            record(&mut journal, Interests::MUTATIONS, "set\n");
            watchers.publish(&mut journal, |worker| woken.push(worker));
            assert!(journal.is_empty());
        }
        assert_eq!(woken, [3, 5]);
        assert_eq!(fetchers.take(), b"get\nget\n");
        assert_eq!(both.take(), b"get\nset\nget\nset\n");
        assert!(!both.is_waiting());
        watchers.remove(&both);
        assert_eq!(watchers.interests(), Interests::FETCHERS);
        watchers.remove(&fetchers);
        assert_eq!(watchers.interests(), Interests::default());
    }

    #[test]
    fn a_watcher_that_does_not_read_is_told_what_it_missed() {
        let watchers = Watchers::new(50);
        let watcher = watchers.add(Interests::FETCHERS, 0).unwrap();
        let mut journal = Journal::new(1000);
        for _ in 0..5 {
            record(&mut journal, Interests::FETCHERS, "123456789\n");
        }
        watchers.publish(&mut journal, |_| ());
        assert_eq!(watcher.take(), b"123456789\n");
        record(&mut journal, Interests::FETCHERS, "more\n");
        watchers.publish(&mut journal, |_| ());
        assert_eq!(watcher.take(), b"skipped=4\nmore\n");
        assert_eq!(watchers.counts.watcher_skipped.total(), 4);
        assert_eq!(watchers.counts.watcher_sent.total(), 2);
    }

    #[test]
    fn a_journal_is_bounded_and_so_are_watchers() {
        let mut journal = Journal::new(8);
        record(&mut journal, Interests::FETCHERS, "12345\n");
        record(&mut journal, Interests::FETCHERS, "12345\n");
        let watchers = Watchers::new(1000);
        for _ in 0..WATCHERS_MAX {
            watchers.add(Interests::FETCHERS, 0).unwrap();
        }
        assert!(watchers.add(Interests::FETCHERS, 0).is_none());
        watchers.publish(&mut journal, |_| ());
        assert_eq!(watchers.counts.worker_written.total(), 1);
        assert_eq!(watchers.counts.worker_dropped.total(), 1);
    }
}
