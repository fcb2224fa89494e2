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

use crate::{NodeStatus, TierBaseline};

use super::{
    PATIENCE, Roughness, eventually, on_every_switch,
    test_tier::{SwitchKind, TestOptions, TestTier},
};

on_every_switch!(
    linearizable_on_a_smooth_network,
    linearizable_when_datagrams_are_lost_doubled_and_late,
    linearizable_while_the_cache_restarts,
    linearizable_in_the_baselines,
    linearizable_while_back_ends_restart,
    linearizable_while_the_switch_forgets,
    linearizable_while_the_controller_lags,
    linearizable_while_the_controller_is_away,
    linearizable_when_back_ends_restart_within_a_lease,
    linearizable_with_a_group_that_restarts,
);

const ROUGH: Roughness = Roughness {
    lost: 20,
    doubled: 20,
    delayed: 100,
    delay_ms_max: 30,
};

/// What a run brought.
struct Run {
    verdict: Verdict,
}

/// What a run goes on for.
#[derive(Clone, Copy, Debug)]
struct Enough {
    at_least: Duration,
    /// Requests that were answered, and by the cache node.
    answered: u64,
    from_cache: u64,
}

impl Enough {
    const fn seconds(seconds: u64) -> Self {
        Self {
            at_least: Duration::from_secs(seconds),
            answered: 1000,
            from_cache: 200,
        }
    }
}

/// What clients ask.
#[derive(Clone, Copy, Debug)]
struct Mix {
    clients: u32,
    keys: u64,
    /// Of 1000 requests.
    writes: u64,
}

impl Mix {
    const PLAIN: Self = Self {
        clients: 4,
        keys: 3,
        writes: 150,
    };
    /// A group is for keys that are read much more than written.
    const READ_MOSTLY: Self = Self {
        clients: 8,
        keys: 2,
        writes: 25,
    };
}

/// What the clients of a run share.
struct Shared {
    mix: Mix,
    history: Mutex<Vec<Entry>>,
    ends: AtomicBool,
    values: AtomicU64,
    answered: AtomicU64,
    from_cache: AtomicU64,
    began: Instant,
}

impl Shared {
    /// Waits until so many more requests were answered, and by the cache node.
    fn wait_for_more(&self, answered: u64, from_cache: u64) {
        let began = Instant::now();
        let counts = || (self.answered.load(Relaxed), self.from_cache.load(Relaxed));
        let before = counts();
        loop {
            let now = counts();
            if now.0 >= before.0 + answered && now.1 >= before.1 + from_cache {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{before:?}, then {now:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Clients read and write a few keys until that is enough, while `meanwhile` does what it does.
fn record(
    tier: &mut TestTier,
    enough: Enough,
    meanwhile: impl FnOnce(&mut TestTier, &Shared),
) -> Run {
    record_mix(tier, Mix::PLAIN, enough, meanwhile)
}

fn record_mix(
    tier: &mut TestTier,
    mix: Mix,
    enough: Enough,
    meanwhile: impl FnOnce(&mut TestTier, &Shared),
) -> Run {
    let shared = Shared {
        mix,
        history: Mutex::default(),
        ends: AtomicBool::new(false),
        values: AtomicU64::new(1),
        answered: AtomicU64::new(0),
        from_cache: AtomicU64::new(0),
        began: Instant::now(),
    };
    let clients: Vec<_> = (0..mix.clients).map(|number| tier.client(number)).collect();
    thread::scope(|scope| {
        for (number, client) in clients.into_iter().enumerate() {
            let shared = &shared;
            scope.spawn(move || run_client(number as u32, client, shared));
        }
        scopeguard::defer! { shared.ends.store(true, Relaxed) }
        meanwhile(tier, &shared);
        thread::sleep(enough.at_least.saturating_sub(shared.began.elapsed()));
        let seen = (
            shared.answered.load(Relaxed),
            shared.from_cache.load(Relaxed),
        );
        shared.wait_for_more(
            enough.answered.saturating_sub(seen.0),
            enough.from_cache.saturating_sub(seen.1),
        );
    });
    judge(shared.history.into_inner().unwrap())
}

fn run_client(number: u32, mut client: TierSession, shared: &Shared) {
    let mut random = Random::new(u64::from(number) + 1);
    let (mut name, mut own) = (number, Vec::new());
    let at = || curtail_types::Instant {
        ns: shared.began.elapsed().as_nanos() as u64,
    };
    while !shared.ends.load(Relaxed) {
        let key = random.below(shared.mix.keys);
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
        shared
            .answered
            .fetch_add(u64::from(returned.is_some()), Relaxed);
        if returned.is_none() {
            // It may still be under way: another client goes on.
            name += shared.mix.clients;
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
        chance if chance < shared.mix.writes => {
            let value = shared.values.fetch_add(1, Relaxed);
            let put = client.put(name.as_bytes(), &value.to_le_bytes(), 0, None);
            (Action::Write(value), put.map(|_| Outcome::Done))
        }
        // A deletion takes the key out of the cache, for a period at least.
        chance if chance == shared.mix.writes => {
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

fn judge(history: Vec<Entry>) -> Run {
    // A read without an answer says nothing.
    let mut kept = History::new();
    for entry in history {
        if entry.returned.is_some() || entry.action != Action::Read {
            kept.push(entry);
        }
    }
    Run {
        verdict: check_linearizable(&kept, STEPS_MAX),
    }
}

#[track_caller]
fn assert_consistent(run: &Run) {
    assert_eq!(run.verdict, Verdict::Consistent);
}

fn hot_options() -> TestOptions {
    TestOptions {
        capacity: 3,
        period_ms: 50,
        lease_ms: 200,
        ..TestOptions::default()
    }
}

fn rough_options() -> TestOptions {
    TestOptions {
        roughness: Some(ROUGH),
        ..hot_options()
    }
}

fn linearizable_on_a_smooth_network(kind: SwitchKind) {
    let mut tier = TestTier::start(kind, hot_options());
    let run = record(&mut tier, Enough::seconds(2), |_, _| {});
    assert_consistent(&run);
}

fn linearizable_when_datagrams_are_lost_doubled_and_late(kind: SwitchKind) {
    let mut tier = TestTier::start(kind, rough_options());
    let run = record(&mut tier, Enough::seconds(4), |tier, shared| {
        while tier.cache_status().get("updates") < 40 {
            shared.wait_for_more(50, 10);
        }
    });
    assert_consistent(&run);
}

/// The cache node ends and begins again, again and again.
fn linearizable_while_the_cache_restarts(kind: SwitchKind) {
    let mut tier = TestTier::start(kind, rough_options());
    let run = record(&mut tier, Enough::seconds(0), |tier, shared| {
        for _ in 0..6 {
            shared.wait_for_more(100, 20);
            tier.stop_cache();
            shared.wait_for_more(10, 0);
            tier.start_cache();
        }
    });
    assert_consistent(&run);
}

/// Reads that go to the cache node first (SW-67), while it restarts.
fn linearizable_in_the_baselines(kind: SwitchKind) {
    for baseline in [TierBaseline::LookAside, TierBaseline::LookThrough] {
        let options = TestOptions {
            baseline: Some(baseline),
            ..rough_options()
        };
        let mut tier = TestTier::start(kind, options);
        let run = record(&mut tier, Enough::seconds(0), |tier, shared| {
            for _ in 0..2 {
                shared.wait_for_more(200, 40);
                tier.stop_cache();
                shared.wait_for_more(10, 0);
                tier.start_cache();
            }
        });
        assert_consistent(&run);
    }
}

/// Back ends on disk end and begin again; the switch does, too.
fn linearizable_while_back_ends_restart(kind: SwitchKind) {
    let mut tier = TestTier::start(
        kind,
        TestOptions {
            is_on_disk: true,
            ..rough_options()
        },
    );
    let run = record(&mut tier, Enough::seconds(0), |tier, shared| {
        for round in 0..6 {
            shared.wait_for_more(100, 20);
            tier.stop_back_end(round % 2);
            tier.start_back_end(round % 2);
            if round % 2 == 1 {
                tier.stop_switch();
                tier.start_switch();
            }
        }
    });
    assert_consistent(&run);
}

fn linearizable_while_the_switch_forgets(kind: SwitchKind) {
    let mut tier = TestTier::start(kind, rough_options());
    let run = record(&mut tier, Enough::seconds(0), |tier, shared| {
        for _ in 0..4 {
            shared.wait_for_more(100, 20);
            tier.forget_rules();
        }
    });
    assert_consistent(&run);
}

/// Rules are late both ways: there are more keys than copies, so that keys come and go.
fn linearizable_while_the_controller_lags(kind: SwitchKind) {
    let mut tier = TestTier::start(
        kind,
        TestOptions {
            capacity: 2,
            ..rough_options()
        },
    );
    let run = record(&mut tier, Enough::seconds(2), |tier, shared| {
        shared.wait_for_more(100, 20);
        tier.gate.lag(30);
        shared.wait_for_more(200, 40);
        for _ in 0..3 {
            tier.gate.close();
            shared.wait_for_more(100, 0);
            tier.gate.open();
            shared.wait_for_more(50, 10);
        }
    });
    assert_consistent(&run);
}

/// With Open vSwitch the rules stay meanwhile, with the others nothing is forwarded. If all keys
/// fit, reads go on reaching the cache; if not, keys come and go that have no rule.
fn linearizable_while_the_controller_is_away(kind: SwitchKind) {
    let all = hot_options();
    let some = TestOptions {
        capacity: 2,
        ..all.clone()
    };
    without_a_controller(kind, all, 40);
    without_a_controller(kind, some, 0);
}

impl TestTier {
    /// Stops the controller of an Open vSwitch while there are copies and a rule for each. One that
    /// ends while it has deleted the rules of a cache's last life, and not yet installed those of
    /// this one, leaves none; nor does one that ends right after the cache has dropped its copies.
    fn stop_controller_with_rules(&mut self) {
        let copies_of =
            |cache: &NodeStatus| ["copies", "admitted", "evicted"].map(|name| cache.get(name));
        let began = Instant::now();
        loop {
            let mut looked = [0; 3];
            eventually("the switch has a rule for each copy", || {
                let (cache, switch) = (self.cache_status(), self.switch_status());
                looked = copies_of(&cache);
                let [copies, ..] = looked;
                copies > 0 && copies == switch.get("rules") && switch.get("rules_unnamed") == 0
            });
            self.stop_switch();
            if copies_of(&self.cache_status()) == looked {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "copies come and go");
            self.start_switch();
        }
    }
}

fn without_a_controller(kind: SwitchKind, options: TestOptions, from_cache: u64) {
    let mut tier = TestTier::start(kind, options);
    let goes_on = kind.is_open_vswitch();
    let run = record(&mut tier, Enough::seconds(0), |tier, shared| {
        for _ in 0..4 {
            shared.wait_for_more(200, 40);
            match goes_on && from_cache > 0 {
                true => tier.stop_controller_with_rules(),
                false => tier.stop_switch(),
            }
            if goes_on {
                shared.wait_for_more(200, from_cache);
                // Its rules outlive the copies.
                tier.stop_cache();
                tier.start_cache();
                shared.wait_for_more(100, 0);
            }
            tier.start_switch();
        }
    });
    assert_consistent(&run);
}

/// Goal: the judge and these runs find errors. Method: plant one in both hosts' machines; some run
/// of a few must be refused.
fn is_caught(mutant: TierMutant) -> bool {
    (0..RUNS_MAX).any(|_| {
        let options = TestOptions {
            mutant: Some(mutant),
            ..rough_options()
        };
        let mut tier = TestTier::start(SwitchKind::UserSpace, options);
        let run = record(&mut tier, Enough::seconds(4), |_, _| {});
        matches!(run.verdict, Verdict::Violation(_))
    })
}

/// Back ends that restart within a lease: the cache must drop what it had of the life before, or
/// show it after it was written.
fn restarted_within_a_lease(kind: SwitchKind, mutant: Option<TierMutant>) -> Run {
    let options = TestOptions {
        is_on_disk: true,
        lease_ms: 1500,
        mutant,
        ..hot_options()
    };
    let mut tier = TestTier::start(kind, options);
    record(&mut tier, Enough::seconds(5), |tier, shared| {
        shared.wait_for_more(500, 100);
        for id in 0..2 {
            tier.stop_back_end(id);
            tier.start_back_end(id);
        }
    })
}

fn linearizable_when_back_ends_restart_within_a_lease(kind: SwitchKind) {
    assert_consistent(&restarted_within_a_lease(kind, None));
}

fn group_options() -> TestOptions {
    TestOptions {
        caches: 3,
        period_ms: 100,
        ..rough_options()
    }
}

/// Waits until cache nodes have answered so many more reads of other cache nodes' keys.
fn wait_for_guest_hits(tier: &TestTier, more: u64) {
    let hits = || tier.caches_count("guest_hits");
    let before = hits();
    eventually("guests are read", || hits() >= before + more);
}

/// Several cache nodes have copies of the same keys; each of them ends and begins again, empty.
fn linearizable_with_a_group_that_restarts(kind: SwitchKind) {
    let mut tier = TestTier::start(kind, group_options());
    let run = record_mix(
        &mut tier,
        Mix::READ_MOSTLY,
        Enough::seconds(0),
        |tier, shared| {
            for round in 0..6 {
                wait_for_guest_hits(tier, 100);
                tier.stop_cache_of(round % 3);
                shared.wait_for_more(50, 0);
                tier.start_cache_of(round % 3);
            }
            wait_for_guest_hits(tier, 100);
        },
    );
    assert_consistent(&run);
}

/// Errors of a back end that has several cache nodes (CC-81).
fn is_caught_in_a_group(mutant: TierMutant) -> bool {
    (0..RUNS_MAX).any(|_| {
        let options = TestOptions {
            mutant: Some(mutant),
            ..group_options()
        };
        let mut tier = TestTier::start(SwitchKind::UserSpace, options);
        let enough = Enough::seconds(4);
        let run = record_mix(&mut tier, Mix::READ_MOSTLY, enough, |tier, _| {
            wait_for_guest_hits(tier, 100);
        });
        matches!(run.verdict, Verdict::Violation(_))
    })
}

#[test]
fn a_write_answered_after_the_first_of_several_caches_is_caught() {
    assert!(is_caught_in_a_group(TierMutant::FirstAcknowledgement));
}

#[test]
fn a_cache_updated_before_the_others_have_dropped_is_caught() {
    assert!(is_caught_in_a_group(TierMutant::UpdatesTogether));
}

#[test]
fn messages_of_any_generation_are_caught() {
    let caught = |_| {
        let mutant = Some(TierMutant::NoGeneration);
        let run = restarted_within_a_lease(SwitchKind::UserSpace, mutant);
        matches!(run.verdict, Verdict::Violation(_))
    };
    assert!((0..RUNS_MAX).any(caught));
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

/// Runs within which a planted error is found. One run in two finds the one that is hardest to see.
const RUNS_MAX: u32 = 40;
const STEPS_MAX: u64 = 20_000_000;
