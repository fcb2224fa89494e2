//! Clients of sequential consistency: each keeps to one node and records the versions that it wrote
//! or read. A session ends with the first answer that does not come; the next is another's.

use std::{ops::Range, sync::atomic::Ordering, thread};

use curtail_history::{Action, Entry, Numbered, Outcome};

use crate::recording_clients::{Caller, Run};

/// Sessions that one client may have, one after the other.
const LIVES: u32 = 100_000;

/// What a client saw at `node` that asks for `keys`; of three requests one writes, or all of them,
/// or none.
pub(crate) fn sessions(
    run: &Run,
    (number, node): (u32, usize),
    keys: Range<u64>,
    writes: Option<bool>,
) -> Vec<Numbered> {
    let mut caller = Caller::new(run, number, 0, Some(node));
    let mut seen: Vec<Numbered> = Vec::new();
    let mut client = number * LIVES;
    while !run.done.load(Ordering::Relaxed) {
        let key = keys.start + caller.draw(keys.end - keys.start);
        let invoked = caller.now();
        let is_write = writes.unwrap_or(caller.draw(3) == 0);
        let (action, answer) = match is_write {
            true => {
                let value = caller.value();
                let version = write(&mut caller, key, value);
                let done = version.map(|version| (Outcome::Done, version));
                (Action::Write(value), done)
            }
            false => {
                let found = caller.look(key).map(|(value, version)| {
                    (value.map_or(Outcome::Missing, Outcome::Value), version)
                });
                (Action::Read, found)
            }
        };
        if answer.is_none() {
            client += 1;
            run.requests_failed.fetch_add(1, Ordering::Relaxed);
        }
        if answer.is_some() || is_write {
            let returned = answer.map(|(outcome, _)| (caller.now(), outcome));
            seen.push(Numbered {
                entry: Entry {
                    client,
                    key,
                    invoked,
                    action,
                    returned,
                },
                number: answer.map_or(0, |(_, version)| version),
                replaced: 0,
            });
        }
        thread::sleep(run.plan.pace);
    }
    seen
}

fn write(caller: &mut Caller<'_>, key: u64, value: u64) -> Option<u64> {
    let answer = caller.ask(&format!("ms k{key} 20 c\r\n{value:020}\r\n"))?;
    answer.trim_end().strip_prefix("HD c")?.parse().ok()
}

/// Gives each write whose answer nobody heard the number that somebody read with its value.
pub(crate) fn number_the_unanswered(seen: &mut [Numbered]) {
    let read: std::collections::BTreeMap<u64, u64> = seen
        .iter()
        .filter_map(|one| match one.entry.returned {
            Some((_, Outcome::Value(value))) => Some((value, one.number)),
            _ => None,
        })
        .collect();
    for one in seen.iter_mut().filter(|one| one.entry.returned.is_none()) {
        if let Action::Write(value) = one.entry.action {
            one.number = read.get(&value).copied().unwrap_or(0);
        }
    }
}
