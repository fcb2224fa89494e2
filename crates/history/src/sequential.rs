//! The checker for sequential consistency, key by key.
//!
//! The same search as for linearizability, with another rule for what may come next: each
//! client's operations in its own order, real time aside. What was tried is remembered by how far
//! each client is and the state reached. In the worst case that is every combination of positions,
//! so this is for histories of a few clients and some hundred operations; beyond that it says so.

use alloc::{collections::BTreeMap, collections::BTreeSet, vec, vec::Vec};

use crate::{
    Verdict,
    record::{Entry, History, Outcome},
    register::State,
    violation::Violation,
};

/// Judges every key's register, each empty at the start. `steps_max` bounds the search of one key,
/// in placements tried.
pub fn check_sequential(history: &History, steps_max: u64) -> Verdict {
    let mut too_hard = None;
    for (key, entries) in history.by_key() {
        match explain(&entries, steps_max) {
            Ok(None) => {}
            Ok(Some(culprit)) => {
                return Verdict::Violation(Violation {
                    key,
                    culprit,
                    window: entries,
                    starts_missing: true,
                });
            }
            Err(TooHard) => {
                too_hard.get_or_insert(Verdict::TooHard {
                    key,
                    entries: entries.len(),
                });
            }
        }
    }
    too_hard.unwrap_or(Verdict::Consistent)
}

struct TooHard;

/// `None` if an order exists, else an entry that could not be placed after the most others.
fn explain(entries: &[Entry], steps_max: u64) -> Result<Option<Entry>, TooHard> {
    let mut clients: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        clients.entry(entry.client).or_default().push(*entry);
    }
    let queues: Vec<Vec<Entry>> = clients.into_values().collect();
    let mut seen = BTreeSet::new();
    let mut open = vec![(vec![0_usize; queues.len()], State::Missing)];
    let mut furthest = (0, None);
    let mut steps = 0;
    while let Some((positions, state)) = open.pop() {
        if is_done(&queues, &positions) {
            return Ok(None);
        }
        let placed: usize = positions.iter().sum();
        for (client, queue) in queues.iter().enumerate() {
            let Some(entry) = queue.get(positions[client]) else {
                continue;
            };
            steps += 1;
            if steps > steps_max {
                return Err(TooHard);
            }
            let nexts = after(state, entry);
            if nexts == [None; 2] && (furthest.1.is_none() || placed > furthest.0) {
                furthest = (placed, Some(*entry));
            }
            for next in nexts.into_iter().flatten() {
                let mut further = positions.clone();
                further[client] += 1;
                if seen.insert((further.clone(), next)) {
                    open.push((further, next));
                }
            }
        }
    }
    Ok(furthest.1)
}

/// The states that an entry may leave: one, or another if it may never have been carried out.
fn after(state: State, entry: &Entry) -> [Option<State>; 2] {
    let outcome = entry.returned.map(|(_, outcome)| outcome);
    let skipped = (outcome == Some(Outcome::Perhaps)).then_some(state);
    [state.after(entry.action, outcome), skipped]
}

/// Whether only operations are left whose outcome nobody knows: they need not have happened.
fn is_done(queues: &[Vec<Entry>], positions: &[usize]) -> bool {
    let mut left = queues
        .iter()
        .zip(positions)
        .flat_map(|(queue, &at)| &queue[at..]);
    left.all(|entry| entry.returned.is_none())
}
