//! Windows open and close when they should, and answer every request once.

use alloc::collections::{BTreeMap, VecDeque};

use curtail_workload::Random;

use super::*;

const CONFIG: CompactionConfig = CompactionConfig {
    closing: Closing::DeadlineOnly,
    deadline: Deadline::AfterOpening { ns: 6_300 },
    answers: Answers::AfterApply,
    windows_max: 4,
    writes_max: 8,
};

fn at(ns: u64) -> Instant {
    Instant { ns }
}

fn put_aside(compactor: &mut Compactor, now: u64, id: u32, matches: bool) -> Decision {
    compactor.write(at(now), 5, RequestId(id), at(now), || matches)
}

fn step(compactor: &mut Compactor, now: u64, situation: Situation, matches: bool) -> Vec<Effect> {
    let mut effects = Vec::new();
    compactor.step(
        at(now),
        situation,
        |_| matches,
        |effect| effects.push(effect),
    );
    effects
}

fn answers(last: u32, ids: &[u32]) -> Vec<Effect> {
    let apply = [Effect::Apply(RequestId(last))];
    let answers = ids.iter().map(|id| Effect::Answer(RequestId(*id)));
    apply.into_iter().chain(answers).collect()
}

#[test]
fn a_window_opens_on_a_match_and_closes_at_its_deadline() {
    let mut compactor = Compactor::new(CONFIG);
    assert_eq!(put_aside(&mut compactor, 0, 0, false), Decision::Apply);
    assert_eq!(compactor.deadline(), None);
    assert_eq!(put_aside(&mut compactor, 100, 1, true), Decision::PutAside);
    assert_eq!(put_aside(&mut compactor, 200, 2, false), Decision::PutAside);
    assert_eq!(compactor.deadline(), Some(at(6_400)));
    assert!(step(&mut compactor, 6_399, Situation::Idle, false).is_empty());
    let effects = step(&mut compactor, 6_400, Situation::Idle, false);
    assert_eq!(effects, answers(2, &[1, 2]));
    assert_eq!((compactor.windows(), compactor.counts().writes), (0, 2));
}

/// Goal: each rule closes exactly in its situation. Method: the four situations of a window of two
/// writes 100 ns apart, looked at soon after.
#[test]
fn windows_close_early_by_their_rule() {
    use Situation::{Finished, Idle, PutAside};
    // Whether it closes: a write put aside with and without a match, after another request
    // without a match, and with nothing to do.
    for (closing, expected) in [
        (Closing::DeadlineOnly, [false, false, false, false]),
        (Closing::QueueEmpty, [false, false, false, true]),
        (Closing::NoMatch, [false, true, true, true]),
        (Closing::Reference, [false, true, false, false]),
        // Another write is expected at 300, so the queue is given until then.
        (Closing::Adaptive, [false, false, true, true]),
    ] {
        let looks = [
            (250, PutAside(5), true),
            (250, PutAside(5), false),
            (310, Finished, false),
            (250, Idle, false),
        ];
        for ((now, situation, matches), closes) in looks.into_iter().zip(expected) {
            let mut compactor = Compactor::new(CompactionConfig { closing, ..CONFIG });
            put_aside(&mut compactor, 100, 1, true);
            put_aside(&mut compactor, 200, 2, true);
            let effects = step(&mut compactor, now, situation, matches);
            assert_eq!(!effects.is_empty(), closes, "{closing:?} {situation:?}");
        }
    }
}

#[test]
fn the_deadline_leaves_time_to_answer_within_the_limit() {
    let mut compactor = Compactor::new(CompactionConfig {
        deadline: Deadline::BeforeLimit {
            limit_ns: 7_000,
            apply_ns: 600,
            answer_ns: 100,
        },
        ..CONFIG
    });
    // Arrived at 50, taken at 1,000: the wait in the queue counts.
    compactor.write(at(1_000), 5, RequestId(1), at(50), || true);
    assert_eq!(compactor.deadline(), Some(at(50 + 7_000 - 600 - 200)));
    compactor.write(at(1_100), 5, RequestId(2), at(60), || true);
    assert_eq!(compactor.deadline(), Some(at(50 + 7_000 - 600 - 300)));
}

#[test]
fn full_windows_close_and_full_compactors_apply() {
    let config = CompactionConfig {
        windows_max: 1,
        writes_max: 2,
        ..CONFIG
    };
    let mut compactor = Compactor::new(config);
    put_aside(&mut compactor, 0, 1, true);
    let other = compactor.write(at(0), 6, RequestId(9), at(0), || true);
    assert_eq!(other, Decision::Apply);
    put_aside(&mut compactor, 1, 2, true);
    let effects = step(&mut compactor, 1, Situation::PutAside(5), true);
    assert_eq!(effects, answers(2, &[1, 2]));
}

#[test]
fn the_reference_answers_before_it_applies() {
    let mut compactor = Compactor::new(CompactionConfig {
        answers: Answers::Early,
        ..CONFIG
    });
    put_aside(&mut compactor, 0, 1, true);
    put_aside(&mut compactor, 1, 2, true);
    let mut effects = Vec::new();
    compactor.close_key(6, |effect| effects.push(effect));
    compactor.close_key(5, |effect| effects.push(effect));
    let early = [
        Effect::Answer(RequestId(1)),
        Effect::Apply(RequestId(2)),
        Effect::Answer(RequestId(2)),
    ];
    assert_eq!(effects, early);
}

/// Goal: every write is answered once and not before a value that covers it was applied; the last
/// value of a key is its last write's; windows close without further traffic. Method: a worker with
/// a random queue of writes to few keys, under every rule; the store keeps the last applied number.
#[test]
fn every_write_is_answered_once_after_its_value() {
    let rules = [
        Closing::DeadlineOnly,
        Closing::QueueEmpty,
        Closing::NoMatch,
        Closing::Adaptive,
        Closing::Reference,
    ];
    for (closing, seed) in rules
        .iter()
        .flat_map(|rule| (0..20).map(move |seed| (*rule, seed)))
    {
        let mut compactor = Compactor::new(CompactionConfig { closing, ..CONFIG });
        let mut worker = Worker::default();
        let (mut random, mut now) = (Random::new(seed), 0);
        let mut id = 0;
        while id < 400 || !worker.queue.is_empty() || compactor.windows() > 0 {
            if id < 400 && random.below(4) > 0 {
                let key = random.below(3);
                worker.queue.push_back((id, key, now));
                worker.key_of.push(key);
                id += 1;
            }
            if random.below(2) == 0 {
                now += 50;
                worker.turn(&mut compactor, now);
            }
            assert!(now < 10_000_000, "a window that never closes: {closing:?}");
        }
        assert!(worker.answered.values().all(|times| *times == 1));
        assert_eq!(worker.answered.len(), 400, "{closing:?}");
        for key in 0..3 {
            let last = worker.key_of.iter().rposition(|of| *of == key);
            assert_eq!(worker.store.get(&key).copied(), last.map(|id| id as u32));
        }
    }
}

#[derive(Default)]
struct Worker {
    queue: VecDeque<(u32, u64, u64)>,
    key_of: Vec<u64>,
    store: BTreeMap<u64, u32>,
    answered: BTreeMap<u32, u32>,
}

impl Worker {
    fn turn(&mut self, compactor: &mut Compactor, now: u64) {
        let mut situation = Situation::Idle;
        if let Some((id, key, arrived)) = self.queue.pop_front() {
            let queue = &self.queue;
            let matches = || queue.iter().any(|(_, other, _)| *other == key);
            situation = match compactor.write(at(now), key, RequestId(id), at(arrived), matches) {
                Decision::PutAside => Situation::PutAside(key),
                Decision::Apply => {
                    self.effect(Effect::Apply(RequestId(id)));
                    self.effect(Effect::Answer(RequestId(id)));
                    Situation::Finished
                }
            };
        }
        let mut effects = Vec::new();
        let queue = &self.queue;
        let matches = |key| queue.iter().any(|(_, other, _)| *other == key);
        compactor.step(at(now), situation, matches, |effect| effects.push(effect));
        effects.into_iter().for_each(|effect| self.effect(effect));
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Apply(RequestId(id)) => {
                let before = self.store.insert(self.key_of[id as usize], id);
                assert!(before.is_none_or(|before| before < id), "an older value");
            }
            Effect::Answer(RequestId(id)) => {
                let applied = self.store.get(&self.key_of[id as usize]);
                assert!(
                    applied.is_some_and(|applied| *applied >= id),
                    "answered early"
                );
                *self.answered.entry(id).or_insert(0) += 1;
            }
        }
    }
}
