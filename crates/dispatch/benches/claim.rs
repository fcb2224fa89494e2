//! The cost of a claim and its release in the table of exclusive writers. Run with `cargo bench -p
//! curtail-dispatch --bench claim`.

use std::{hint::black_box, time::Instant};

use curtail_dispatch::{Claim, Partition, SharedWriters, Worker};

const CLAIMS: u32 = 10_000_000;

fn main() {
    let writers = SharedWriters::<{ 1 << 20 }>::new(63);
    let start = Instant::now();
    for number in 0..CLAIMS {
        let partition = Partition(number.wrapping_mul(0x9e37_79b9) >> 12);
        if let Claim::Granted(_, ticket) = writers.claim(partition, Worker(1)) {
            black_box(writers.release(ticket).is_ok());
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(CLAIMS);
    println!("{ns:.1} ns for a claim and its release");
}
