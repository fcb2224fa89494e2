//! `lru_crawler ...`: its switches, which are stored and shown without effect, and its dumps, which
//! work.
//!
//! Expired items go without a crawler, so a crawl has nothing to do and is answered at once.

use curtail_codec::memcached::{Words, encode::Refusal};

use crate::{
    admin::commands::{self, number},
    connection::long_running::LongRunning,
    memcached::metadump::{Dump, DumpForm},
    sync::Relaxed,
    worker::Worker,
};

/// Slab classes that memcached could have: 1 to here.
pub(crate) const CLASSES_MAX: i64 = 63;

/// The longest sleep between two items, in microseconds.
const SLEEP_US_MAX: u32 = 1_000_000;

const DISABLED: &[u8] = b"CLIENT_ERROR lru crawler disabled\r\n";
const BAD_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";
const SLEEP_TOO_LONG: &[u8] = b"CLIENT_ERROR sleep must be one second or less\r\n";
const NOT_ALLOWED: &[u8] = b"ERROR metadump not allowed\r\n";

pub(crate) fn lru_crawler(worker: &mut Worker, slot: usize, mut words: Words<'_>) {
    let (name, argument, rest) = (words.next(), words.next(), words.next());
    let (Some(name), None) = (name, rest) else {
        return commands::refuse(worker, slot, Refusal::Error);
    };
    match (name, argument) {
        (b"enable", None) => switch(worker, slot, true),
        (b"disable", None) => switch(worker, slot, false),
        (b"tocrawl", Some(word)) => match number(word).map(u32::try_from) {
            Some(Ok(items)) => {
                let crawler = &worker.cx.shared.crawler;
                crawler.crawl_items_max.store(items, Relaxed);
                commands::ok(worker, slot, false);
            }
            _ => commands::refuse(worker, slot, Refusal::BadFormat),
        },
        (b"sleep", Some(word)) => match number(word).map(u32::try_from) {
            Some(Ok(us)) if us <= SLEEP_US_MAX => {
                worker.cx.shared.crawler.sleep_us.store(us, Relaxed);
                commands::ok(worker, slot, false);
            }
            Some(Ok(_)) => say(worker, slot, SLEEP_TOO_LONG),
            _ => commands::refuse(worker, slot, Refusal::BadFormat),
        },
        (b"crawl", Some(word)) => match has_items(word) {
            _ if !worker.cx.shared.crawler.enabled.load(Relaxed) => say(worker, slot, DISABLED),
            Some(_) if word != b"hash" => commands::ok(worker, slot, false),
            _ => say(worker, slot, BAD_CLASS),
        },
        (b"metadump", Some(word)) => dump(worker, slot, DumpForm::Fields, word),
        (b"mgdump", Some(word)) => dump(worker, slot, DumpForm::Request, word),
        _ => commands::refuse(worker, slot, Refusal::Error),
    }
}

fn switch(worker: &mut Worker, slot: usize, on: bool) {
    worker.cx.shared.crawler.enabled.store(on, Relaxed);
    commands::ok(worker, slot, false);
}

fn say(worker: &mut Worker, slot: usize, text: &[u8]) {
    worker.replies.write(slot, |sink| sink.push(text));
}

fn dump(worker: &mut Worker, slot: usize, form: DumpForm, classes: &[u8]) {
    if !worker.cx.shared.crawler.enabled.load(Relaxed) {
        return say(worker, slot, DISABLED);
    }
    if !worker.cx.shared.config.dump_allowed {
        return say(worker, slot, NOT_ALLOWED);
    }
    let Some(wanted) = has_items(classes) else {
        return say(worker, slot, BAD_CLASS);
    };
    if let Some(connection) = worker.slots.get_mut(slot) {
        let dump = Dump::new(form, wanted);
        connection.long_running = Some(Box::new(LongRunning::Dump(dump)));
    }
}

/// Whether the classes named (`all`, `hash`, or numbers with commas between) have items; nothing
/// if they name no class. All items count as class 1.
fn has_items(classes: &[u8]) -> Option<bool> {
    if classes == b"all" || classes == b"hash" {
        return Some(true);
    }
    let mut found = false;
    for class in classes.split(|&byte| byte == b',') {
        let class = number(class).filter(|class| (1..=CLASSES_MAX).contains(class))?;
        found |= class == 1;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_items_are_of_class_1() {
        assert_eq!(has_items(b"all"), Some(true));
        assert_eq!(has_items(b"3,1"), Some(true));
        assert_eq!(has_items(b"2,63"), Some(false));
        for wrong in [&b"0"[..], b"64", b"1,,2", b"one", b""] {
            assert_eq!(has_items(wrong), None);
        }
    }
}
