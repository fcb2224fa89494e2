//! Whether requests are neither lost nor run twice, partitions have one writer, and bounds hold.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};

use super::*;
use crate::request::RequestId;

fn request(id: u32, partition: u32, access: Access) -> Request {
    Request {
        id: RequestId(id),
        partition: Partition(partition),
        access,
    }
}

fn done(worker: Worker, request: Request) -> Input {
    Input::Complete(Completion {
        worker,
        partition: request.partition,
        access: request.access,
        release: true,
        deferred: false,
    })
}

fn step(dispatcher: &mut Dispatcher, input: Input) -> Vec<Output> {
    let mut outputs = Vec::new();
    dispatcher.step(Instant::default(), input, |output| outputs.push(output));
    outputs
}

fn workers(outputs: &[Output]) -> Vec<u16> {
    let run = |output: &Output| match output {
        Output::Run { worker, .. } => worker.0,
        Output::Refuse { .. } => u16::MAX,
    };
    outputs.iter().map(run).collect()
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
    let mut dispatcher = Dispatcher::new(config(Policy::DynamicCrew, 4), 0);
    let first = request(0, 9, Access::Write);
    let mut place = |request| workers(&step(&mut dispatcher, Input::Arrive(request)))[0];
    assert_eq!(place(first), 0);
    assert_eq!(place(request(1, 9, Access::Write)), 0);
    assert_eq!(place(request(2, 8, Access::Write)), 1);
    assert_eq!(place(request(3, 9, Access::Read)), 2);
    step(&mut dispatcher, done(Worker(0), first));
    assert_eq!(dispatcher.writer(Partition(9)), Some(Worker(0)));
    step(&mut dispatcher, done(Worker(0), first));
    assert_eq!(dispatcher.writer(Partition(9)), None);
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
            let mut dispatcher = Dispatcher::new(config(policy, 4), 0);
            let outputs = step(&mut dispatcher, Input::Arrive(request(0, 7, access)));
            assert_eq!(workers(&outputs), [expected], "{policy:?} {access:?}");
        }
    }
}

/// Goal: what a sticky write does when all are full, in the three settings. Method: two workers
/// with two reads each, a write to each owner, then one more read.
#[test]
fn sticky_writes_wait_as_they_are_told() {
    for (sticky, behind_full, behind_head) in [
        (Sticky::WhileAllFull, 0, 0),
        (Sticky::BehindHead, 1, 0),
        (Sticky::Bypasses, 1, 1),
    ] {
        let config = DispatchConfig {
            sticky,
            ..config(Policy::Crew, 2)
        };
        let mut dispatcher = Dispatcher::new(config, 0);
        for id in 0..4 {
            step(&mut dispatcher, Input::Arrive(request(id, 0, Access::Read)));
        }
        let mut placed =
            |id, access| step(&mut dispatcher, Input::Arrive(request(id, 0, access))).len();
        assert_eq!(placed(4, Access::Write), behind_full, "{sticky:?}");
        assert_eq!(placed(5, Access::Read), 0);
        assert_eq!(placed(6, Access::Write), behind_head, "{sticky:?}");
    }
}

#[test]
fn fullness_is_told_or_waited_out() {
    let full = DispatchConfig {
        overflow: Overflow::Refuse,
        waiting_max: 1,
        entries_max: 1,
        writes_max: 2,
        ..config(Policy::DynamicCrew, 2)
    };
    let mut dispatcher = Dispatcher::new(full, 0);
    let mut refusal = |id, partition, access| {
        let outputs = step(
            &mut dispatcher,
            Input::Arrive(request(id, partition, access)),
        );
        outputs.iter().find_map(|output| match output {
            Output::Refuse { reason, .. } => Some(*reason),
            Output::Run { .. } => None,
        })
    };
    assert_eq!(refusal(0, 1, Access::Write), None);
    assert_eq!(refusal(1, 2, Access::Write), Some(Refusal::Table));
    assert_eq!(refusal(2, 1, Access::Write), None);
    assert_eq!(refusal(3, 1, Access::Write), Some(Refusal::Partition));
    for id in 4..7 {
        assert_eq!(refusal(id, 1, Access::Read), None);
    }
    assert_eq!(refusal(7, 1, Access::Read), Some(Refusal::Waiting));

    let mut dispatcher = Dispatcher::new(
        DispatchConfig {
            overflow: Overflow::Wait,
            ..full
        },
        0,
    );
    let first = request(0, 1, Access::Write);
    step(&mut dispatcher, Input::Arrive(first));
    assert!(step(&mut dispatcher, Input::Arrive(request(1, 2, Access::Write))).is_empty());
    assert_eq!(workers(&step(&mut dispatcher, done(Worker(0), first))), [0]);
}

/// A worker that puts a write aside takes another request, and the partition stays its own.
#[test]
fn a_deferred_write_keeps_its_partition_and_returns_its_credit() {
    let mut dispatcher = Dispatcher::new(
        DispatchConfig {
            depth: Some(1),
            ..config(Policy::DynamicCrew, 1)
        },
        0,
    );
    let write = request(0, 1, Access::Write);
    step(&mut dispatcher, Input::Arrive(write));
    assert!(step(&mut dispatcher, Input::Arrive(request(1, 2, Access::Read))).is_empty());
    assert_eq!(
        workers(&step(&mut dispatcher, Input::Defer(Worker(0)))),
        [0]
    );
    assert_eq!(dispatcher.writer(Partition(1)), Some(Worker(0)));
    let answered = Input::Complete(Completion {
        worker: Worker(0),
        partition: Partition(1),
        access: Access::Write,
        release: true,
        deferred: true,
    });
    step(&mut dispatcher, answered);
    assert_eq!(dispatcher.writer(Partition(1)), None);
    assert_eq!(dispatcher.outstanding(Worker(0)), 1);
}

/// A driver's view of a run: what was handed to whom, and what must hold of it.
struct Run {
    dispatcher: Dispatcher,
    policy: Policy,
    queues: Vec<VecDeque<Request>>,
    /// Times each request was emitted.
    emitted: Vec<u32>,
    /// Workers with writes of a partition outstanding, and how many.
    writing: BTreeMap<u32, (u16, u32)>,
    last_write: BTreeMap<u32, u32>,
    refused: usize,
}

impl Run {
    fn step(&mut self, input: Input) {
        for output in step(&mut self.dispatcher, input) {
            match output {
                Output::Run { request, worker } => self.run(request, worker),
                Output::Refuse { request, .. } => {
                    self.emitted[request.id.0 as usize] += 1;
                    self.refused += 1;
                }
            }
        }
        let entries_max = 2 * self.queues.len();
        assert!(self.dispatcher.entries() as usize <= entries_max);
    }

    fn run(&mut self, request: Request, worker: Worker) {
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
    let stickies = [Sticky::WhileAllFull, Sticky::BehindHead, Sticky::Bypasses];
    let overflows = [Overflow::Refuse, Overflow::Wait];
    for (round, policy) in (0..30).zip(policies.iter().cycle()) {
        let config = DispatchConfig {
            sticky: stickies[round / 5 % 3],
            overflow: overflows[round / 15],
            waiting_max: 50,
            writes_max: 8,
            tie_break: TieBreak::Random,
            ..DispatchConfig::new(*policy, 5)
        };
        let mut run = Run {
            dispatcher: Dispatcher::new(config, round as u64),
            policy: *policy,
            queues: vec![VecDeque::new(); 5],
            emitted: vec![0; 2_000],
            writing: BTreeMap::new(),
            last_write: BTreeMap::new(),
            refused: 0,
        };
        let mut word = round as u64 + 1;
        let mut id = 0;
        while id < 2_000 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if word >> 63 == 0 {
                run.finish((word >> 40) as u16 % 5);
                continue;
            }
            let access = if word & (1 << 62) == 0 {
                Access::Read
            } else {
                Access::Write
            };
            run.step(Input::Arrive(request(id, (word >> 33) as u32 % 13, access)));
            id += 1;
        }
        while run.queues.iter().any(|queue| !queue.is_empty()) {
            (0..5).for_each(|worker| run.finish(worker));
        }
        assert!(run.emitted.iter().all(|&times| times == 1), "{policy:?}");
        assert_eq!(run.dispatcher.waiting(), 0);
        assert_eq!(run.dispatcher.entries(), 0);
        assert_eq!(run.dispatcher.late_releases(), 0);
        assert!((0..5).all(|worker| run.dispatcher.outstanding(Worker(worker)) == 0));
        assert!(run.refused < 1_500, "{policy:?} refused {}", run.refused);
    }
}
