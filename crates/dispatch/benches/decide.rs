//! What one decision costs: an arrival and its completion, for 64 workers. Run with
//! `cargo bench -p curtail-dispatch`; the aim is below 50 ns a decision.

use std::{hint::black_box, time::Instant as Clock};

use curtail_dispatch::{
    Access, Completion, DispatchConfig, Dispatcher, Input, Output, Partition, Policy, Request,
    RequestId, SharedCredits, SharedWriters, Worker,
};
use curtail_types::Instant;

const DECISIONS: u32 = 10_000_000;

fn main() {
    for (name, policy) in [
        ("erew", Policy::Erew),
        ("crew", Policy::Crew),
        ("crcw", Policy::Crcw),
        ("d-crew", Policy::DynamicCrew),
    ] {
        let config = DispatchConfig::new(policy, 64);
        let mut dispatcher = Dispatcher::new(config, 1);
        report(name, |number| machine(&mut dispatcher, number));
    }
    let writers = SharedWriters::<{ 1 << 20 }>::new(63);
    report("shared writers", |number| {
        let partition = Partition(number.wrapping_mul(0x9e37_79b9) >> 12);
        if let curtail_dispatch::Claim::Granted(_, ticket) = writers.claim(partition, Worker(1)) {
            black_box(writers.release(ticket).is_ok());
        }
    });
    let credits = SharedCredits::new(64, 2);
    report("shared credits", |number| {
        if let Some(worker) = credits.take_shortest((number % 64) as u16) {
            credits.give_back(worker);
        }
    });
}

fn report(name: &str, mut decide: impl FnMut(u32)) {
    let start = Clock::now();
    (0..DECISIONS).for_each(&mut decide);
    let ns = start.elapsed().as_nanos() as f64 / f64::from(DECISIONS);
    println!("{name:16} {ns:6.1} ns for an arrival and its completion");
}

/// Half of all are writes, to a million partitions.
fn machine(dispatcher: &mut Dispatcher, number: u32) {
    let word = number.wrapping_mul(0x9e37_79b9);
    let access = match word & 1 {
        0 => Access::Read,
        _ => Access::Write,
    };
    let request = Request {
        id: RequestId(number),
        partition: Partition(word >> 12),
        access,
    };
    let now = Instant::default();
    let mut runs_on = None;
    dispatcher.step(now, Input::Arrive(request), |output| {
        if let Output::Run { worker, .. } = output {
            runs_on = Some(worker);
        }
    });
    let Some(worker) = runs_on else { return };
    let completion = Completion {
        worker,
        partition: request.partition,
        access,
        release: true,
        deferred: false,
    };
    dispatcher.step(now, Input::Complete(completion), |output| {
        black_box(output);
    });
}
