//! Stores every key once before a run, and samples afterwards how many are still there.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use curtail_workload::{Kind, Random};

use crate::{
    blocking_connection::Exchange,
    drive::{self, epoch_ns},
    error::LoadError,
    request_source::{Load, Wording},
    stop::Stop,
    terminal::Progress,
    text_protocol::{Protocol, Reply},
};

/// Requests sent before their replies are read. Two blocks are under way at a time.
const BLOCK: u64 = 64;

/// Two blocks are under way, so that one has to fit into what the system buffers.
const BLOCK_BYTES_MAX: usize = 128 << 10;

/// Stores every key of a load over one connection a thread, `rate` of them a second at most; how
/// many writes were refused.
pub(crate) fn preload(
    target: &str,
    load: &Load,
    (threads, rate): (usize, Option<f64>),
    stop: &Stop,
) -> Result<u64, LoadError> {
    let (threads, keys) = (threads.max(1) as u64, load.keys());
    let wording = load.wording();
    let progress = Progress::new("preload", keys);
    let parts = (0..threads).map(|part| keys * part / threads..keys * (part + 1) / threads);
    let results: Vec<std::thread::Result<_>> = std::thread::scope(|scope| {
        let (progress, wording) = (&progress, &wording);
        let running: Vec<_> = parts
            .map(|part| {
                let pace = Pace {
                    begun: Instant::now(),
                    rate: rate.map(|rate| rate / threads as f64),
                };
                scope.spawn(move || store(target, (load, wording), (part, pace), progress, stop))
            })
            .collect();
        running.into_iter().map(|thread| thread.join()).collect()
    });
    progress.finish();
    let panicked = |_| LoadError::Protocol("a preloading thread panicked".into());
    let mut results = results.into_iter();
    results.try_fold(0, |sum, result| Ok(sum + result.map_err(panicked)??))
}

/// How fast one thread stores keys.
#[derive(Clone, Copy)]
struct Pace {
    begun: Instant,
    /// Keys a second; none for as fast as the server takes them.
    rate: Option<f64>,
}

impl Pace {
    /// Waits until `sent` keys are due, or somebody asks to end.
    fn wait(self, sent: u64, stop: &Stop) {
        const STEP: Duration = Duration::from_millis(50);
        let Some(rate) = self.rate else {
            return;
        };
        // A rate so low that its time is no `Duration` is never due.
        let due = Duration::try_from_secs_f64(sent as f64 / rate).unwrap_or(Duration::MAX);
        while let Some(early) = due.checked_sub(self.begun.elapsed())
            && !stop.is_asked()
        {
            std::thread::sleep(early.min(STEP));
        }
    }
}

fn store(
    target: &str,
    (load, wording): (&Load, &Wording),
    (keys, pace): (Range<u64>, Pace),
    progress: &Progress,
    stop: &Stop,
) -> Result<u64, LoadError> {
    if wording.protocol == Protocol::Native {
        return drive::store(target, wording, keys, progress, stop);
    }
    let mut exchange = Exchange::open(target, load)?;
    let version = epoch_ns();
    let mut block = Vec::new();
    let (mut refused, mut sent, mut received) = (0, keys.start, keys.start);
    let mut before = keys.start;
    while received < keys.end && !stop.is_asked() {
        let last_block = sent;
        block.clear();
        while sent < keys.end && sent - last_block < BLOCK && block.len() < BLOCK_BYTES_MAX {
            wording.put(&wording.store(sent), version, 0, &mut block);
            sent += 1;
        }
        pace.wait(last_block - keys.start, stop);
        exchange.send(&block)?;
        let due = if sent < keys.end { before } else { sent };
        while received < due {
            refused += u64::from(exchange.receive(Kind::Set)? != Reply::Done);
            received += 1;
        }
        before = sent;
        progress.part(&keys, received - keys.start);
    }
    Ok(refused)
}

/// Reads `samples` keys at random; the share that is there with the right length.
pub(crate) fn sample(target: &str, load: &Load, samples: u64) -> Result<f64, LoadError> {
    let mut exchange = Exchange::open(target, load)?;
    let mut random = Random::new(0x7361_6d70_6c65);
    let (wording, keys) = (load.wording(), load.keys());
    let mut found = 0;
    let mut asked = 0;
    while asked < samples {
        let count = BLOCK.min(samples - asked);
        let mut block = Vec::new();
        let read = |_| wording.read(random.below(keys));
        let requests: Vec<_> = (0..count).map(read).collect();
        for request in &requests {
            wording.put(request, 0, 0, &mut block);
        }
        exchange.send(&block)?;
        for request in &requests {
            let there = Reply::Hit {
                value_bytes: request.value_bytes as usize,
                token: 0,
            };
            found += u64::from(exchange.receive(Kind::Get)? == there);
        }
        asked += count;
    }
    Ok(found as f64 / samples.max(1) as f64)
}
