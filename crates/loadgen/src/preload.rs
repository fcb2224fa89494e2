//! Stores every key once before a run, and samples afterwards how many are still there.

use crate::{
    error::LoadError,
    exchange::Exchange,
    protocol::Reply,
    random::Random,
    terminal::Progress,
    workload::{Kind, Workload},
};

/// Requests sent before their replies are read. Two blocks are under way at a time.
const BLOCK: u64 = 64;

/// What a preload met.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Preloaded {
    /// Writes that were refused, of all.
    pub(crate) refused: u64,
}

/// Stores keys 0..`workload.keys` over one connection a thread.
pub(crate) fn preload(
    target: &str,
    workload: &Workload,
    threads: usize,
) -> Result<Preloaded, LoadError> {
    let threads = threads.max(1) as u64;
    let progress = Progress::new("preload", workload.keys);
    let parts = (0..threads).map(|part| {
        let from = workload.keys * part / threads;
        let to = workload.keys * (part + 1) / threads;
        from..to
    });
    let results: Vec<_> = std::thread::scope(|scope| {
        let progress = &progress;
        let running: Vec<_> = parts
            .map(|part| scope.spawn(move || store(target, workload, part, progress)))
            .collect();
        running.into_iter().map(|thread| thread.join()).collect()
    });
    progress.finish();
    let mut total = Preloaded::default();
    for result in results {
        let panicked = |_| LoadError::Protocol("a preloading thread panicked".into());
        total.refused += result.map_err(panicked)??;
    }
    Ok(total)
}

fn store(
    target: &str,
    workload: &Workload,
    keys: std::ops::Range<u64>,
    progress: &Progress,
) -> Result<u64, LoadError> {
    let mut exchange = Exchange::open(target, workload.protocol)?;
    let body = workload.body();
    let mut block = Vec::new();
    let (mut refused, mut sent, mut received) = (0, keys.start, keys.start);
    while received < keys.end {
        let to = keys.end.min(sent + BLOCK);
        if sent < to {
            block.clear();
            (sent..to).for_each(|key| workload.put_set(key, &body, &mut block));
            exchange.send(&block)?;
            sent = to;
        }
        let due = if sent < keys.end {
            sent.saturating_sub(BLOCK)
        } else {
            sent
        };
        while received < due {
            refused += u64::from(exchange.receive(Kind::Set)? != Reply::Stored);
            received += 1;
        }
        progress.part(&keys, received - keys.start);
    }
    Ok(refused)
}

/// Reads `samples` keys at random; the share that is there with the right length.
pub(crate) fn sample(target: &str, workload: &Workload, samples: u64) -> Result<f64, LoadError> {
    let mut exchange = Exchange::open(target, workload.protocol)?;
    let mut random = Random::new(0x7361_6d70_6c65);
    let mut found = 0;
    let mut asked = 0;
    while asked < samples {
        let count = BLOCK.min(samples - asked);
        let keys: Vec<u64> = (0..count).map(|_| random.below(workload.keys)).collect();
        let mut block = Vec::new();
        keys.iter()
            .for_each(|&key| workload.put_get(key, &mut block));
        exchange.send(&block)?;
        for &key in &keys {
            let value_bytes = workload.sizes.of(key) as usize;
            let there = Reply::Hit { value_bytes };
            found += u64::from(exchange.receive(Kind::Get)? == there);
        }
        asked += count;
    }
    Ok(found as f64 / samples.max(1) as f64)
}
