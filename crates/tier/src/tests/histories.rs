//! What clients saw, judged: every key is linearizable, whatever the network loses and whichever
//! node restarts; and the judge finds errors that are planted.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use curtail_client::tier::{TierClientError, TierSession, TierValue};
use curtail_consistency::tiered::TierMutant;
use curtail_history::{Action, Entry, History, Outcome, Verdict, check_linearizable};
use curtail_workload::Random;

use super::{LoopbackOptions, LoopbackTier, Roughness};

const ROUGH: Roughness = Roughness {
    lost: 20,
    doubled: 20,
    delayed: 100,
    delay_ms_max: 30,
};

/// What a run brought.
struct Run {
    verdict: Verdict,
    entries: usize,
    from_cache: u64,
    unanswered: usize,
}

/// What the clients of a run share.
struct Shared {
    history: Mutex<Vec<Entry>>,
    ends: AtomicBool,
    values: AtomicU64,
    from_cache: AtomicU64,
    began: Instant,
}

/// Clients read and write a few keys for a while, while `meanwhile` does what it does.
fn record(
    tier: &mut LoopbackTier,
    run_for: Duration,
    meanwhile: impl FnOnce(&mut LoopbackTier, &dyn Fn() -> Duration),
) -> Run {
    let shared = Shared {
        history: Mutex::default(),
        ends: AtomicBool::new(false),
        values: AtomicU64::new(1),
        from_cache: AtomicU64::new(0),
        began: Instant::now(),
    };
    let clients: Vec<_> = (0..CLIENTS).map(|number| tier.client(number)).collect();
    thread::scope(|scope| {
        for (number, client) in clients.into_iter().enumerate() {
            let shared = &shared;
            scope.spawn(move || run_client(number as u32, client, shared));
        }
        meanwhile(tier, &|| shared.began.elapsed());
        thread::sleep(run_for.saturating_sub(shared.began.elapsed()));
        shared.ends.store(true, Relaxed);
    });
    judge(
        shared.history.into_inner().unwrap(),
        shared.from_cache.into_inner(),
    )
}

fn run_client(number: u32, mut client: TierSession, shared: &Shared) {
    let mut random = Random::new(u64::from(number) + 1);
    let (mut name, mut own) = (number, Vec::new());
    let at = || curtail_types::Instant {
        ns: shared.began.elapsed().as_nanos() as u64,
    };
    while !shared.ends.load(Relaxed) {
        let key = random.below(KEYS);
        let invoked = at();
        let (action, outcome) = ask(&mut client, key, &mut random, shared);
        let returned = match outcome {
            Ok(outcome) => Some((at(), outcome)),
            Err(TierClientError::Unanswered | TierClientError::Busy) => None,
            Err(other) => panic!("{other}"),
        };
        own.push(Entry {
            client: name,
            key,
            invoked,
            action,
            returned,
        });
        if returned.is_none() {
            // It may still be under way: another client goes on.
            name += CLIENTS;
        }
    }
    shared.history.lock().unwrap().extend(own);
}

fn ask(
    client: &mut TierSession,
    key: u64,
    random: &mut Random,
    shared: &Shared,
) -> (Action, Result<Outcome, TierClientError>) {
    let name = format!("key {key}");
    match random.below(1000) {
        0..=149 => {
            let value = shared.values.fetch_add(1, Relaxed);
            let put = client.put(name.as_bytes(), &value.to_le_bytes(), 0, None);
            (Action::Write(value), put.map(|_| Outcome::Done))
        }
        // A deletion takes the key out of the cache, for a period at least.
        150 => {
            let deleted = client.delete(name.as_bytes());
            let outcome = |found| match found {
                true => Outcome::Done,
                false => Outcome::Missing,
            };
            (Action::Delete, deleted.map(outcome))
        }
        _ => {
            let read = client.get(name.as_bytes());
            let outcome = |found: TierValue| {
                let from_cache = u64::from(found.is_from_cache);
                shared.from_cache.fetch_add(from_cache, Relaxed);
                Outcome::Value(u64::from_le_bytes(found.value[..].try_into().unwrap()))
            };
            let read = read.map(|found| found.map_or(Outcome::Missing, outcome));
            (Action::Read, read)
        }
    }
}

fn judge(history: Vec<Entry>, from_cache: u64) -> Run {
    // A read without an answer says nothing.
    let (mut kept, mut unanswered) = (History::new(), 0);
    let entries = history.len();
    for entry in history {
        let is_open = entry.returned.is_none();
        unanswered += usize::from(is_open);
        if !is_open || entry.action != Action::Read {
            kept.push(entry);
        }
    }
    Run {
        verdict: check_linearizable(&kept, STEPS_MAX),
        entries,
        from_cache,
        unanswered,
    }
}

#[track_caller]
fn assert_consistent(run: &Run) {
    assert_eq!(run.verdict, Verdict::Consistent);
    // What a machine that is busy with other things brings, too.
    assert!(run.entries > 300, "{} entries", run.entries);
    let (from_cache, entries) = (run.from_cache, run.entries);
    assert!(from_cache > 50, "{from_cache} of {entries}");
    let unanswered = run.unanswered;
    assert!(unanswered * 20 < entries + 500, "{unanswered} unanswered");
}

fn hot_options() -> LoopbackOptions {
    LoopbackOptions {
        capacity: 3,
        period_ms: 50,
        lease_ms: 200,
        ..LoopbackOptions::default()
    }
}

#[test]
fn linearizable_on_a_smooth_network() {
    let mut tier = LoopbackTier::start(hot_options());
    let run = record(&mut tier, Duration::from_secs(3), |_, _| {});
    assert_consistent(&run);
}

#[test]
fn linearizable_when_datagrams_are_lost_doubled_and_late() {
    let mut tier = LoopbackTier::start(LoopbackOptions {
        roughness: Some(ROUGH),
        ..hot_options()
    });
    let run = record(&mut tier, Duration::from_secs(6), |_, _| {});
    assert_consistent(&run);
    assert!(tier.cache_status().get("updates") > 20);
}

/// The cache node ends and begins again, again and again.
#[test]
fn linearizable_while_the_cache_restarts() {
    let mut tier = LoopbackTier::start(LoopbackOptions {
        roughness: Some(ROUGH),
        ..hot_options()
    });
    let run = record(&mut tier, Duration::from_secs(8), |tier, elapsed| {
        while elapsed() < Duration::from_secs(7) {
            thread::sleep(Duration::from_millis(900));
            tier.stop_cache();
            thread::sleep(Duration::from_millis(100));
            tier.start_cache();
        }
    });
    assert_consistent(&run);
}

/// Back ends on disk end and begin again; the switch does once.
#[test]
fn linearizable_while_back_ends_restart() {
    let mut tier = LoopbackTier::start(LoopbackOptions {
        roughness: Some(ROUGH),
        is_on_disk: true,
        ..hot_options()
    });
    let run = record(&mut tier, Duration::from_secs(10), |tier, elapsed| {
        let mut id = 0;
        while elapsed() < Duration::from_secs(9) {
            thread::sleep(Duration::from_millis(1000));
            tier.stop_back_end(id);
            tier.start_back_end(id);
            id = 1 - id;
            if id == 0 {
                tier.stop_switch();
                tier.start_switch();
            }
        }
    });
    assert_consistent(&run);
}

/// Goal: the judge and these runs find errors. Method: plant one in both hosts' machines; some run
/// of a few must be refused.
fn is_caught(mutant: TierMutant) -> bool {
    (0..6).any(|_| {
        let mut tier = LoopbackTier::start(LoopbackOptions {
            roughness: Some(ROUGH),
            mutant: Some(mutant),
            ..hot_options()
        });
        let run = record(&mut tier, Duration::from_secs(4), |_, _| {});
        matches!(run.verdict, Verdict::Violation(_))
    })
}

/// Back ends that restart within a lease: the cache must drop what it had of the life before, or
/// show it after it was written.
fn restarted_within_a_lease(mutant: Option<TierMutant>) -> Run {
    let mut tier = LoopbackTier::start(LoopbackOptions {
        is_on_disk: true,
        lease_ms: 1500,
        mutant,
        ..hot_options()
    });
    record(&mut tier, Duration::from_secs(7), |tier, _| {
        thread::sleep(Duration::from_millis(3000));
        for id in 0..2 {
            tier.stop_back_end(id);
            tier.start_back_end(id);
        }
    })
}

#[test]
fn linearizable_when_back_ends_restart_within_a_lease() {
    let run = restarted_within_a_lease(None);
    assert_eq!(run.verdict, Verdict::Consistent);
    assert!(run.from_cache > 100, "{}", run.from_cache);
}

#[test]
fn messages_of_any_generation_are_caught() {
    let caught = |_| {
        let run = restarted_within_a_lease(Some(TierMutant::NoGeneration));
        matches!(run.verdict, Verdict::Violation(_))
    };
    assert!((0..4).any(caught));
}

#[test]
fn a_write_answered_before_the_caches_acknowledgement_is_caught() {
    assert!(is_caught(TierMutant::AnswersAtOnce));
}

#[test]
fn reads_that_do_not_wait_for_an_update_are_caught() {
    assert!(is_caught(TierMutant::NoReadQueue));
}

#[test]
fn an_older_update_that_replaces_a_later_copy_is_caught() {
    assert!(is_caught(TierMutant::OrderIgnored));
}

const CLIENTS: u32 = 4;
const KEYS: u64 = 3;
const STEPS_MAX: u64 = 20_000_000;
