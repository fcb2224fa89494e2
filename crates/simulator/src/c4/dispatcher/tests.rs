//! Requests are neither lost nor run twice, partitions have one writer, and bounds hold.

use std::collections::{BTreeMap, VecDeque};

use curtail_workload::Random;

use super::*;

fn request(id: u32, partition: u32, access: Access) -> Arrival {
    Arrival {
        id: RequestId(id),
        partition: Partition(partition),
        access,
    }
}

fn done(worker: Worker, request: Arrival) -> Input {
    Input::Complete(Completion {
        worker,
        partition: request.partition,
        access: request.access,
        deferred: false,
    })
}

fn step(dispatcher: &mut Dispatcher, input: Input) -> Vec<(Arrival, Worker)> {
    let mut placed = Vec::new();
    dispatcher.step(input, |request, worker| placed.push((request, worker)));
    placed
}

fn workers(placed: &[(Arrival, Worker)]) -> Vec<u16> {
    placed.iter().map(|(_, worker)| worker.0).collect()
}

fn config(policy: Policy, workers: u16) -> DispatchConfig {
    DispatchConfig {
        tie_break: TieBreak::Lowest,
        ..DispatchConfig::new(policy, workers)
    }
}

/// C-4's Fig. 5: the first write is balanced, the second follows it although others are idle.
#[test]
fn a_dependent_write_follows_its_partitions_owner() {
    let mut dispatcher = Dispatcher::new(config(Policy::DynamicCrew, 4));
    let first = request(0, 9, Access::Write);
    let mut place = |request| workers(&step(&mut dispatcher, Input::Arrive(request)))[0];
    assert_eq!(place(first), 0);
    assert_eq!(place(request(1, 9, Access::Write)), 0);
    assert_eq!(place(request(2, 8, Access::Write)), 1);
    assert_eq!(place(request(3, 9, Access::Read)), 2);
    let owner = |dispatcher: &Dispatcher| dispatcher.writers.owner(Partition(9));
    step(&mut dispatcher, done(Worker(0), first));
    assert_eq!(owner(&dispatcher), Some(Worker(0)));
    step(&mut dispatcher, done(Worker(0), first));
    assert_eq!(owner(&dispatcher), None);
}

#[test]
fn static_policies_bind_to_the_partitions_owner() {
    for (policy, write, read) in [
        (Policy::Erew, 3, 3),
        (Policy::Crew, 3, 0),
        (Policy::Crcw, 0, 0),
        (Policy::Ideal, 0, 0),
    ] {
        for (access, expected) in [(Access::Write, write), (Access::Read, read)] {
            let mut dispatcher = Dispatcher::new(config(policy, 4));
            let placed = step(&mut dispatcher, Input::Arrive(request(0, 7, access)));
            assert_eq!(workers(&placed), [expected], "{policy:?} {access:?}");
        }
    }
}

/// Goal: what a sticky write does when all are full, in both settings. Method: two workers with two
/// reads each, a write to each owner, then one more read.
#[test]
fn sticky_writes_wait_as_they_are_told() {
    for (sticky, behind_full) in [(Sticky::WhileAllFull, 0), (Sticky::BehindHead, 1)] {
        let config = DispatchConfig {
            sticky,
            ..config(Policy::Crew, 2)
        };
        let mut dispatcher = Dispatcher::new(config);
        for id in 0..4 {
            step(&mut dispatcher, Input::Arrive(request(id, 0, Access::Read)));
        }
        let mut placed =
            |id, access| step(&mut dispatcher, Input::Arrive(request(id, 0, access))).len();
        assert_eq!(placed(4, Access::Write), behind_full, "{sticky:?}");
        assert_eq!(placed(5, Access::Read), 0);
        assert_eq!(placed(6, Access::Write), 0, "{sticky:?}");
    }
}

#[test]
fn a_full_table_and_a_full_partition_are_waited_out() {
    let full = DispatchConfig {
        entries_max: 1,
        writes_max: 2,
        ..config(Policy::DynamicCrew, 2)
    };
    let first = request(0, 1, Access::Write);
    for (before, waits) in [(1, 2), (2, 1)] {
        let mut dispatcher = Dispatcher::new(full);
        for _ in 0..before {
            step(&mut dispatcher, Input::Arrive(first));
        }
        let write = request(9, waits, Access::Write);
        assert!(step(&mut dispatcher, Input::Arrive(write)).is_empty());
        assert_eq!(workers(&step(&mut dispatcher, done(Worker(0), first))), [0]);
    }
}

/// A worker that puts a write aside takes another request, and the partition stays its own.
#[test]
fn a_deferred_write_keeps_its_partition_and_returns_its_credit() {
    let mut dispatcher = Dispatcher::new(DispatchConfig {
        depth: Some(1),
        ..config(Policy::DynamicCrew, 1)
    });
    let write = request(0, 1, Access::Write);
    step(&mut dispatcher, Input::Arrive(write));
    assert!(step(&mut dispatcher, Input::Arrive(request(1, 2, Access::Read))).is_empty());
    let placed = step(&mut dispatcher, Input::Defer(Worker(0)));
    assert_eq!(workers(&placed), [0]);
    let owner = |dispatcher: &Dispatcher| dispatcher.writers.owner(Partition(1));
    assert_eq!(owner(&dispatcher), Some(Worker(0)));
    let answered = Input::Complete(Completion {
        worker: Worker(0),
        partition: Partition(1),
        access: Access::Write,
        deferred: true,
    });
    step(&mut dispatcher, answered);
    assert_eq!(owner(&dispatcher), None);
    assert_eq!(dispatcher.queues.outstanding(Worker(0)), 1);
}

/// A driver's view of a run: what was handed to whom, and what must hold of it.
struct Run {
    dispatcher: Dispatcher,
    policy: Policy,
    queues: Vec<VecDeque<Arrival>>,
    /// Times each request was emitted.
    emitted: Vec<u32>,
    /// Workers with writes of a partition outstanding, and how many.
    writing: BTreeMap<u32, (u16, u32)>,
    last_write: BTreeMap<u32, u32>,
}

impl Run {
    fn step(&mut self, input: Input) {
        for (request, worker) in step(&mut self.dispatcher, input) {
            self.run(request, worker);
        }
        let entries_max = 2 * self.queues.len();
        assert!(self.dispatcher.entries() as usize <= entries_max);
    }

    fn run(&mut self, request: Arrival, worker: Worker) {
        self.emitted[request.id.0 as usize] += 1;
        self.queues[worker.index()].push_back(request);
        let exclusive = !matches!(self.policy, Policy::Crcw | Policy::Ideal);
        if request.access == Access::Write && exclusive {
            let partition = request.partition.0;
            let writer = self.writing.entry(partition).or_insert((worker.0, 0));
            assert_eq!(writer.0, worker.0, "two writers of one partition");
            writer.1 += 1;
            let before = self.last_write.insert(partition, request.id.0);
            assert!(before.is_none_or(|id| id < request.id.0), "out of order");
        }
    }

    fn finish(&mut self, worker: u16) {
        let Some(request) = self.queues[usize::from(worker)].pop_front() else {
            return;
        };
        if let Some(writer) = self.writing.get_mut(&request.partition.0)
            && request.access == Access::Write
        {
            writer.1 -= 1;
        }
        self.writing.retain(|_, (_, writes)| *writes > 0);
        self.step(done(Worker(worker), request));
    }
}

/// Goal: no request is lost or run twice, a partition has one writer at a time whose writes stay in
/// order, and the table needs no more than depth x workers entries. Method: random arrivals on few
/// partitions and random completions, every policy and setting; then everything is completed.
#[test]
fn nothing_is_lost_and_writers_are_alone() {
    let policies = [
        Policy::Erew,
        Policy::Crew,
        Policy::Crcw,
        Policy::DynamicCrew,
        Policy::Ideal,
    ];
    let stickies = [Sticky::WhileAllFull, Sticky::BehindHead];
    for (round, policy) in (0..20).zip(policies.iter().cycle()) {
        let config = DispatchConfig {
            sticky: stickies[round / 5 % 2],
            writes_max: 8,
            ..DispatchConfig::new(*policy, 5)
        };
        let mut run = Run {
            dispatcher: Dispatcher::new(config),
            policy: *policy,
            queues: vec![VecDeque::new(); 5],
            emitted: vec![0; 2_000],
            writing: BTreeMap::new(),
            last_write: BTreeMap::new(),
        };
        let mut random = Random::new(round as u64);
        let mut id = 0;
        while id < 2_000 {
            if random.below(2) == 0 {
                run.finish(random.below(5) as u16);
                continue;
            }
            let access = [Access::Read, Access::Write][random.below(2) as usize];
            run.step(Input::Arrive(request(id, random.below(13) as u32, access)));
            id += 1;
        }
        while run.queues.iter().any(|queue| !queue.is_empty()) {
            (0..5).for_each(|worker| run.finish(worker));
        }
        assert!(run.emitted.iter().all(|&times| times == 1), "{policy:?}");
        assert_eq!(run.dispatcher.waiting(), 0);
        assert_eq!(run.dispatcher.entries(), 0);
        let queues = &run.dispatcher.queues;
        assert!((0..5).all(|worker| queues.outstanding(Worker(worker)) == 0));
    }
}
