//! Whether dispatching and write compaction keep every key linearizable: recorded histories of
//! many small random runs go through a checker, which must also reject two planted faults.
//!
//! A run has a dispatcher, three workers with queues and compactors, and clients that ask one
//! thing at a time of two keys. One thing happens at each instant, chosen by the seed, so windows
//! open and close at every possible point.

use std::collections::{HashMap, VecDeque};

use curtail_dispatch::{
    Access, Answers, Closing, CompactionConfig, Compactor, Deadline, Decision, Effect, Partition,
    Policy, RequestId, Situation, Worker,
};
use curtail_history::{Action, Entry, History, Outcome, Verdict, check_linearizable};
use curtail_simulator::{Arrival, Completion, DispatchConfig, Dispatcher, Input};
use curtail_types::Instant;
use curtail_workload::Random;

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    Nothing,
    /// A write is answered when it is put aside (C-4's forbidden execution E1).
    AnswersAtOnce,
    /// A closing window answers before it applies, as the authors' simulator does.
    AnswersBeforeApply,
}

struct Run {
    dispatcher: Dispatcher,
    workers: Vec<Node>,
    clients: Vec<Option<u32>>,
    asked: Vec<Asked>,
    store: HashMap<u64, u64>,
    now: u64,
    random: Random,
    fault: Fault,
}

struct Node {
    queue: VecDeque<u32>,
    compactor: Compactor,
    script: VecDeque<Effect>,
}

#[derive(Clone, Copy)]
struct Asked {
    client: u32,
    key: u64,
    access: Access,
    invoked: u64,
    returned: Option<(u64, Outcome)>,
    worker: u16,
    answered: u32,
}

impl Run {
    fn new(policy: Policy, closing: Closing, fault: Fault, seed: u64) -> Self {
        let answers = match fault {
            Fault::AnswersBeforeApply => Answers::Early,
            _ => Answers::AfterApply,
        };
        let config = CompactionConfig {
            closing,
            deadline: Deadline::AfterOpening { ns: 40 },
            answers,
            windows_max: 2,
            writes_max: 6,
        };
        let worker = |_| Node {
            queue: VecDeque::new(),
            compactor: Compactor::new(config),
            script: VecDeque::new(),
        };
        let dispatch = DispatchConfig {
            entries_max: 64,
            ..DispatchConfig::new(policy, 3)
        };
        Self {
            dispatcher: Dispatcher::new(dispatch),
            workers: (0..3).map(worker).collect(),
            clients: vec![None; 6],
            asked: Vec::new(),
            store: HashMap::new(),
            now: 0,
            random: Random::new(seed),
            fault,
        }
    }

    /// Runs until `requests` were asked and all are answered; the history.
    fn history(mut self, requests: usize) -> History {
        while self.asked.len() < requests || self.clients.iter().any(Option::is_some) {
            self.now += 1;
            assert!(self.now < 1_000_000, "a request that is never answered");
            let client = self.random(6);
            if self.random(2) == 0 && self.clients[client].is_none() && self.asked.len() < requests
            {
                self.ask(client);
            } else {
                let worker = self.random(3);
                self.turn(worker);
            }
        }
        let mut history = History::new();
        for (id, asked) in self.asked.iter().enumerate() {
            assert_eq!(
                asked.answered, 1,
                "request {id} was answered {} times",
                asked.answered
            );
            history.push(Entry {
                client: asked.client,
                key: asked.key,
                invoked: Instant { ns: asked.invoked },
                action: match asked.access {
                    Access::Read => Action::Read,
                    Access::Write => Action::Write(id as u64),
                },
                returned: asked
                    .returned
                    .map(|(ns, outcome)| (Instant { ns }, outcome)),
            });
        }
        history
    }

    fn random(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn ask(&mut self, client: usize) {
        let id = self.asked.len() as u32;
        let (key, access) = match self.random(10) {
            0..3 => (self.random(2) as u64, Access::Read),
            3 => (1, Access::Write),
            _ => (0, Access::Write),
        };
        self.asked.push(Asked {
            client: client as u32,
            key,
            access,
            invoked: self.now,
            returned: None,
            worker: 0,
            answered: 0,
        });
        self.clients[client] = Some(id);
        self.dispatch(Input::Arrive(Arrival {
            id: RequestId(id),
            partition: Partition(key as u32),
            access,
        }));
    }

    fn dispatch(&mut self, input: Input) {
        let (workers, asked) = (&mut self.workers, &mut self.asked);
        self.dispatcher.step(input, |request, worker| {
            asked[request.id.0 as usize].worker = worker.0;
            workers[worker.index()].queue.push_back(request.id.0);
        });
    }

    /// One worker does one thing.
    fn turn(&mut self, worker: usize) {
        if let Some(effect) = self.workers[worker].script.pop_front() {
            return self.carry_out(effect);
        }
        let situation = match self.workers[worker].queue.pop_front() {
            Some(id) => self.take(worker, id),
            None => Situation::Idle,
        };
        let asked = &self.asked;
        let Node {
            queue,
            compactor,
            script,
        } = &mut self.workers[worker];
        let matches = |key| {
            queue
                .iter()
                .any(|id| is_write_of(&asked[*id as usize], key))
        };
        let now = Instant { ns: self.now };
        compactor.step(now, situation, matches, |effect| script.push_back(effect));
    }

    fn take(&mut self, worker: usize, id: u32) -> Situation {
        let Asked {
            key,
            access,
            invoked,
            ..
        } = self.asked[id as usize];
        if access == Access::Read {
            let found = self.store.get(&key).copied();
            self.answer(id, found.map_or(Outcome::Missing, Outcome::Value));
            return Situation::Finished;
        }
        let asked = &self.asked;
        let Node {
            queue,
            compactor,
            script,
        } = &mut self.workers[worker];
        let decision = compactor.write(
            Instant { ns: self.now },
            key,
            RequestId(id),
            Instant { ns: invoked },
            || {
                queue
                    .iter()
                    .any(|id| is_write_of(&asked[*id as usize], key))
            },
        );
        if decision == Decision::Apply {
            script.extend([Effect::Apply(RequestId(id)), Effect::Answer(RequestId(id))]);
            return Situation::Finished;
        }
        if self.fault == Fault::AnswersAtOnce {
            self.answer(id, Outcome::Done);
        }
        Situation::PutAside(key)
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Apply(RequestId(id)) => {
                self.store
                    .insert(self.asked[id as usize].key, u64::from(id));
            }
            Effect::Answer(RequestId(id)) => {
                if self.asked[id as usize].answered == 0 {
                    self.answer(id, Outcome::Done);
                }
            }
        }
    }

    fn answer(&mut self, id: u32, outcome: Outcome) {
        let asked = &mut self.asked[id as usize];
        asked.answered += 1;
        asked.returned = Some((self.now, outcome));
        self.clients[asked.client as usize] = None;
        let completion = Completion {
            worker: Worker(asked.worker),
            partition: Partition(asked.key as u32),
            access: asked.access,
            deferred: false,
        };
        self.dispatch(Input::Complete(completion));
    }
}

fn is_write_of(asked: &Asked, key: u64) -> bool {
    asked.key == key && asked.access == Access::Write
}

/// Histories of many runs that the checker does not explain, and how many runs there were.
fn violations(policy: Policy, closing: Closing, fault: Fault) -> (usize, usize) {
    let runs = 60;
    let violated = (0..runs).filter(|seed| {
        let history = Run::new(policy, closing, fault, *seed).history(60);
        match check_linearizable(&history, 1_000_000) {
            Verdict::Consistent => false,
            Verdict::Violation(_) => true,
            Verdict::TooHard { .. } => panic!("seed {seed} is too hard"),
        }
    });
    (violated.count(), runs as usize)
}

const POLICIES: [Policy; 4] = [
    Policy::Erew,
    Policy::Crew,
    Policy::DynamicCrew,
    Policy::Crcw,
];
const CLOSINGS: [Closing; 5] = [
    Closing::DeadlineOnly,
    Closing::QueueEmpty,
    Closing::NoMatch,
    Closing::Adaptive,
    Closing::Reference,
];

#[test]
fn every_policy_and_window_is_linearizable() {
    for policy in POLICIES {
        for closing in CLOSINGS {
            let (violated, runs) = violations(policy, closing, Fault::Nothing);
            assert_eq!(violated, 0, "{policy:?} {closing:?}: {violated} of {runs}");
        }
    }
}

#[test]
fn answering_at_once_is_found() {
    let (violated, _) = violations(Policy::Crew, Closing::DeadlineOnly, Fault::AnswersAtOnce);
    assert!(violated > 5, "only {violated}");
}

#[test]
fn answering_before_applying_is_found() {
    let (violated, _) = violations(Policy::Crew, Closing::NoMatch, Fault::AnswersBeforeApply);
    assert!(violated > 5, "only {violated}");
}
