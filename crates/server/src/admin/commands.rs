//! Commands that are not about one item.
//!
//! They run where they arrive, in their place in the batch, and may allocate: nobody sends them by
//! the thousand. Commands that steer parts of memcached which do not exist here (slab classes, the
//! LRU) are answered as memcached does where that promises nothing, and with an error where it
//! would.

use std::{path::Path, sync::Arc};

use curtail_codec::memcached::{
    Admin, Words,
    encode::{self, Refusal},
};
use curtail_runtime::ControlEvent;
use curtail_types::Exptime;
use tracing::{info, warn};

use crate::{
    admin::{
        lru_crawler::{self, CLASSES_MAX},
        stats,
    },
    connection::{long_running::LongRunning, registry::ConnectionState},
    log::{self, component, log_flush},
    memcached::{metadump::Dump, watch::Interests},
    metrics::counters::Count,
    store_context::StoreContext,
    sync::Relaxed,
    turn::{execute, lifecycle},
    worker::Worker,
};

/// The smallest limit that `cache_memlimit` accepts, in MiB; memcached's.
const MEMLIMIT_MEGABYTES_MIN: u32 = 8;

/// More megabytes than this must have been meant as bytes; memcached's.
const MEMLIMIT_MEGABYTES_MAX: u32 = 1_000_000_000;

/// Carries out an administration command of the connection in `slot`.
pub(crate) fn administrate(worker: &mut Worker, slot: usize, admin: &Admin<'_>) {
    match *admin {
        Admin::Version => {
            worker
                .replies
                .write(slot, |sink| encode::version(sink, stats::VERSION));
        }
        Admin::Quit => lifecycle::close_after_replies(worker, slot),
        Admin::Stats(words) => stats(worker, slot, words),
        Admin::FlushAll { delay, noreply } => flush_all(worker, slot, delay, noreply),
        Admin::Verbosity { level, noreply } => {
            set_verbosity(worker, slot, u8::try_from(level).unwrap_or(u8::MAX));
            ok(worker, slot, noreply);
        }
        Admin::CacheMemlimit { megabytes, noreply } => {
            cache_memlimit(worker, slot, megabytes, noreply);
        }
        Admin::Shutdown(words) => shutdown(worker, slot, words),
        Admin::Slabs(words) => slabs(worker, slot, words),
        Admin::Lru(words) => lru(worker, slot, words),
        Admin::LruCrawler(words) => lru_crawler::lru_crawler(worker, slot, words),
        Admin::Watch(_) if !worker.cx.shared.config.watch_allowed => {
            refuse(worker, slot, Refusal::WatchNotAllowed);
        }
        Admin::Watch(words) => watch(worker, slot, words),
        Admin::DebugTime(words) if worker.cx.shared.config.debug_time => {
            debug_time(worker, slot, words);
        }
        Admin::Policy(words) => policy(worker, slot, words),
        Admin::Extstore(_) | Admin::Misbehave | Admin::DebugTime(_) | Admin::RefreshCerts => {
            refuse(worker, slot, Refusal::Error)
        }
    }
}

pub(crate) fn ok(worker: &mut Worker, slot: usize, noreply: bool) {
    worker.replies.write(slot, |sink| encode::ok(sink, noreply));
}

pub(crate) fn refuse(worker: &mut Worker, slot: usize, refusal: Refusal) {
    worker
        .replies
        .write(slot, |sink| encode::error(sink, refusal));
}

fn refuse_unless(worker: &mut Worker, noreply: bool, slot: usize, refusal: Refusal) {
    if !noreply {
        refuse(worker, slot, refusal);
    }
}

fn flush_all(worker: &mut Worker, slot: usize, delay: Exptime, noreply: bool) {
    if !worker.cx.shared.config.flush_allowed {
        refuse_unless(worker, noreply, slot, Refusal::FlushNotAllowed);
        return;
    }
    worker.cx.counts.add(Count::CmdFlush, 1);
    log_flush_of(worker, slot, delay);
    // The worker's part of a node is taken out while requests run.
    if worker.cx.shared.cluster.is_none() {
        let StoreContext { store, now, .. } = &worker.cx.store_cx;
        match worker.tier.as_deref_mut() {
            Some(tier) => tier.flush_all(store, *now, delay, slot),
            None => store.flush_all(*now, delay),
        }
    }
    if !noreply {
        // On a node this line waits until all primaries have emptied their slices.
        execute::end_parts(worker, slot, b"OK\r\n");
    }
}

/// The client of the connection in `slot`, for the log.
fn peer(worker: &mut Worker, slot: usize) -> String {
    let connection = worker.slots.get_mut(slot);
    connection.map_or_else(String::new, |connection| connection.visible.address.clone())
}

#[cold]
fn log_flush_of(worker: &mut Worker, slot: usize, delay: Exptime) {
    if delay == Exptime(0) {
        let peer = peer(worker, slot);
        let limit = &worker.cx.shared.limits.admin;
        return log_flush(limit, worker.cx.store_cx.now, &peer);
    }
    if let Some((peer, suppressed)) = may_log(worker, slot) {
        let exptime = delay.0;
        info!(
            target: component::ADMIN,
            peer,
            exptime,
            suppressed,
            "received flush_all with delay {exptime}; when due, it removes all items"
        );
    }
}

/// The client of the connection in `slot` and how many lines were suppressed, unless the limit of
/// log lines about commands is reached.
fn may_log(worker: &mut Worker, slot: usize) -> Option<(String, u64)> {
    let second = worker.cx.store_cx.now.unix_seconds();
    let suppressed = worker.cx.shared.limits.admin.pass(second.into())?;
    Some((peer(worker, slot), suppressed))
}

fn set_verbosity(worker: &mut Worker, slot: usize, level: u8) {
    let before = worker.cx.shared.verbosity.swap(level, Relaxed);
    log::set_verbosity(level);
    if let Some((peer, suppressed)) = may_log(worker, slot) {
        info!(
            target: component::ADMIN,
            peer,
            suppressed,
            "verbosity changes from {before} to {level}"
        );
    }
}

/// From how many microseconds on requests are slow; 0 ends the slow log.
fn set_slow_threshold(worker: &mut Worker, slot: usize, us: u64) {
    worker.cx.shared.slow.set_threshold_us(us);
    if let Some((peer, suppressed)) = may_log(worker, slot) {
        info!(
            target: component::ADMIN,
            peer,
            suppressed,
            "the threshold of the slow log changes to {us} us"
        );
    }
    ok(worker, slot, false);
}

fn log_memlimit(worker: &mut Worker, slot: usize, before: u64, wanted: usize, is_set: bool) {
    let Some((peer, suppressed)) = may_log(worker, slot) else {
        return;
    };
    let (before, wanted) = (before >> 20, wanted >> 20);
    let bounds = worker.cx.store_cx.store.memory_bounds();
    if is_set {
        info!(
            target: component::ADMIN,
            peer,
            suppressed,
            "the memory limit changes from {before} to {wanted} MiB"
        );
    } else {
        warn!(
            target: component::ADMIN,
            peer,
            suppressed,
            "the memory limit stays {before} MiB, because {wanted} MiB is not possible: the \
             address space that was reserved at the start permits {} to {} MiB",
            bounds.start().div_ceil(1 << 20),
            bounds.end() >> 20
        );
    }
}

fn cache_memlimit(worker: &mut Worker, slot: usize, megabytes: u32, noreply: bool) {
    let refusal = match megabytes {
        0..MEMLIMIT_MEGABYTES_MIN => Refusal::MemlimitTooSmall,
        MEMLIMIT_MEGABYTES_MAX.. => Refusal::MemlimitInBytes,
        _ => {
            let wanted = megabytes as usize * (1 << 20);
            let before = worker.cx.store_cx.store.memory().limit;
            let is_set = worker.cx.store_cx.store.set_memory_bytes_max(wanted);
            log_memlimit(worker, slot, before, wanted, is_set);
            if is_set {
                return ok(worker, slot, noreply);
            }
            Refusal::MemlimitFailed
        }
    };
    refuse_unless(worker, noreply, slot, refusal);
}

fn shutdown(worker: &mut Worker, slot: usize, mut words: Words<'_>) {
    if !worker.cx.shared.config.shutdown_allowed {
        return refuse(worker, slot, Refusal::ShutdownNotEnabled);
    }
    let event = match (words.next(), words.next()) {
        (None, _) => ControlEvent::Stop,
        (Some(b"graceful"), None) => ControlEvent::StopAndSave,
        _ => return refuse(worker, slot, Refusal::BadShutdownMode),
    };
    let peer = peer(worker, slot);
    info!(target: component::ADMIN, peer, "a client asks the server to shut down");
    (worker.cx.shared.ask)(event);
}

/// There are no slab classes: automatic moving is always on in a way and may be set; a move by
/// hand finds nothing to move.
fn slabs(worker: &mut Worker, slot: usize, mut words: Words<'_>) {
    let noreply = words.noreply();
    match (words.next(), words.next(), words.next()) {
        (Some(b"automove"), Some(level), _) if number(level).is_some() => {
            ok(worker, slot, noreply);
        }
        (Some(b"automove"), Some(b"ratio"), Some(_)) => ok(worker, slot, noreply),
        (Some(b"automove"), Some(_), _) => refuse(worker, slot, Refusal::BadFormat),
        (Some(b"reassign"), Some(from), Some(to)) => {
            let classes = number(from).zip(number(to));
            let text: &[u8] = match classes {
                None => Refusal::BadFormat.reply(),
                Some((from, to)) if from == to => b"SAME src and dst class are identical\r\n",
                Some(_) => b"BADCLASS invalid src or dst class id\r\n",
            };
            worker.replies.write(slot, |sink| sink.push(text));
        }
        _ => refuse(worker, slot, Refusal::Error),
    }
}

/// The eviction has no LRU to tune; the settings are accepted so that start scripts run.
fn lru(worker: &mut Worker, slot: usize, mut words: Words<'_>) {
    let noreply = words.noreply();
    match (words.next(), words.next()) {
        (Some(b"mode"), Some(b"flat" | b"segmented"))
        | (Some(b"tune"), Some(_))
        | (Some(b"temp_ttl"), Some(_)) => ok(worker, slot, noreply),
        _ => refuse(worker, slot, Refusal::Error),
    }
}

/// `policy` shows what is in force, `policy <name>` puts another one in force.
fn policy(worker: &mut Worker, slot: usize, mut words: Words<'_>) {
    let peer = peer(worker, slot);
    let shared = &worker.cx.shared;
    let text: &[u8] = match (words.next(), words.next()) {
        (None, _) => &format!("POLICY {}\r\n", shared.snapshots.current().name).into_bytes(),
        (Some(_), _) if !shared.config.policy_change_allowed => {
            b"CLIENT_ERROR the policy is fixed (--fixed-policy, --tier disk or --tier-file)\r\n"
        }
        (Some(name), None) => match std::str::from_utf8(name).map(str::parse) {
            Ok(Ok(name)) => {
                shared.change_policy(name, &peer);
                b"OK\r\n"
            }
            _ => b"CLIENT_ERROR no such policy\r\n",
        },
        _ => Refusal::Error.reply(),
    };
    worker.replies.write(slot, |sink| sink.push(text));
}

/// From now on the connection is sent a line for every event of the kinds named.
fn watch(worker: &mut Worker, slot: usize, words: Words<'_>) {
    let Some(interests) = Interests::parse(words) else {
        return refuse(worker, slot, Refusal::Error);
    };
    let Some(watcher) = worker.cx.shared.watchers.add(interests, worker.index) else {
        let text = b"WATCHER_TOO_MANY log watcher limit reached\r\n";
        worker.replies.write(slot, |sink| sink.push(text));
        return;
    };
    if let Some(connection) = worker.slots.get_mut(slot) {
        connection.long_running = Some(Box::new(LongRunning::Watch(watcher)));
        worker.slots.watching.push(slot);
    }
    ok(worker, slot, false);
}

/// Shifts the clock that items see; memcached's debug builds have this for their tests. Time
/// cannot be stopped here, so `p` and `r` (pause and resume) are no commands.
fn debug_time(worker: &mut Worker, slot: usize, mut words: Words<'_>) {
    match words.next().and_then(number) {
        None => refuse(worker, slot, Refusal::Error),
        Some(seconds) => {
            worker
                .cx
                .shared
                .time_shift_seconds
                .fetch_add(seconds, Relaxed);
            worker.cx.store_cx.now = worker.cx.shared.now();
            ok(worker, slot, false);
        }
    }
}

/// `stats cachedump <class> <items>`: some keys, as people and clients ask for who look into a
/// cache. There are no classes, so class 1 has them all.
fn cachedump(worker: &mut Worker, slot: usize, mut words: Words<'_>) {
    let text: &[u8] = if !worker.cx.shared.config.dump_allowed {
        b"CLIENT_ERROR stats cachedump not allowed\r\n"
    } else {
        let (Some(class), Some(items)) = (words.next(), words.next()) else {
            let text = b"CLIENT_ERROR bad command line\r\n";
            return worker.replies.write(slot, |sink| sink.push(text));
        };
        let items = number(items).and_then(|items| usize::try_from(items).ok());
        match number(class).zip(items) {
            None => Refusal::BadFormat.reply(),
            Some((0..=CLASSES_MAX, items)) => {
                let dump = Dump::some(items, number(class) == Some(1));
                if let Some(connection) = worker.slots.get_mut(slot) {
                    connection.long_running = Some(Box::new(LongRunning::Dump(dump)));
                }
                return;
            }
            Some(_) => b"CLIENT_ERROR Illegal slab id\r\n",
        }
    };
    worker.replies.write(slot, |sink| sink.push(text));
}

fn stats(worker: &mut Worker, slot: usize, mut words: Words<'_>) {
    // The numbers include everything that was answered before in this turn.
    if let Some(handle) = worker.cx.shared.workers.get(worker.index) {
        handle.counts.publish(&worker.cx.counts);
    }
    let shared = &Arc::clone(&worker.cx.shared);
    let mut rest = words;
    let report = match (words.next(), words.next()) {
        (Some(b"cachedump"), _) => {
            rest.next();
            return cachedump(worker, slot, rest);
        }
        (None, _) => stats::general(shared, worker.cx.store_cx.now),
        (Some(b"settings"), _) => stats::settings(shared),
        (Some(b"items"), _) => stats::items(shared),
        (Some(b"slabs"), _) => stats::slabs(shared),
        (Some(b"sizes"), _) => stats::sizes(),
        (Some(b"memory"), _) => stats::memory(shared),
        (Some(b"curtail"), _) => stats::curtail(shared),
        (Some(b"slow"), None) => stats::slow(&shared.slow, shared.config.dump_allowed),
        (Some(b"slow"), Some(b"threshold")) => {
            rest.next();
            rest.next();
            match (rest.next().and_then(number).map(u64::try_from), rest.next()) {
                (Some(Ok(us)), None) => set_slow_threshold(worker, slot, us),
                _ => refuse(worker, slot, Refusal::BadFormat),
            }
            return;
        }
        (Some(b"conns"), _) => {
            if let Some(connection) = worker.slots.get_mut(slot) {
                connection.visible.show(ConnectionState::Parse);
            }
            stats::connections(shared, worker.cx.store_cx.now)
        }
        (Some(b"reset"), _) => {
            shared.reset_counts();
            b"RESET\r\n".to_vec()
        }
        (Some(b"detail"), Some(b"dump")) => shared.prefixes.dump(),
        (Some(b"detail"), Some(word @ (b"on" | b"off"))) => {
            shared.prefixes.switch(word == b"on");
            worker.cx.turn.detail = word == b"on";
            return ok(worker, slot, false);
        }
        (Some(b"detail"), _) => return refuse(worker, slot, Refusal::BadStatsDetail),
        _ => return refuse(worker, slot, Refusal::Error),
    };
    worker.replies.owned(slot, report);
}

pub(crate) fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A path as a line of `stats` can show it.
pub(crate) fn shown_path(path: Option<&Path>) -> String {
    path.map_or_else(|| "(null)".to_owned(), |path| path.display().to_string())
}
