//! What a server of ours tells of the work ahead of small requests: in requests and in kilobytes,
//! which no stall of the machine lengthens.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

use serde::Serialize;

/// Small requests by what was ahead of them: amounts in classes, by the smallest amount above.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    requests: BTreeMap<u64, u64>,
    kilobytes: BTreeMap<u64, u64>,
}

/// Bounds of the 99th percentile: less than so many.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct AheadBounds {
    pub(crate) requests: u64,
    pub(crate) kilobytes: u64,
    /// Share of the small requests that had a kilobyte or more ahead of them.
    pub(crate) share: f64,
}

/// A server that does not answer for so long is not asked.
const PATIENCE: Duration = Duration::from_secs(5);

impl Ahead {
    /// What the server at `target` has counted so far; `None` if it does not say.
    pub(super) fn ask(target: &str) -> Option<Self> {
        let mut stream = TcpStream::connect(target).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(b"stats curtail\r\n").ok()?;
        let mut ahead = Self::default();
        for line in BufReader::new(stream).lines() {
            let line = line.ok()?;
            if line == "END" {
                return Some(ahead);
            }
            ahead.note(&line)?;
        }
        None
    }

    fn note(&mut self, line: &str) -> Option<()> {
        let (name, count) = line.strip_prefix("STAT ")?.split_once(' ')?;
        let Some(stage) = name.strip_prefix("stage:ahead_") else {
            return Some(());
        };
        let classes = match stage.split_once(":small:") {
            Some(("requests", class)) => Some((&mut self.requests, class)),
            Some(("kilobytes", class)) => Some((&mut self.kilobytes, class)),
            _ => None,
        };
        if let Some((classes, class)) = classes {
            let bound = class
                .strip_prefix("below_")
                .map_or(Ok(u64::MAX), str::parse);
            classes.insert(bound.ok()?, count.parse().ok()?);
        }
        Some(())
    }

    /// Adds what was counted from `before` to `after`.
    pub(super) fn add(&mut self, before: &Self, after: &Self) {
        let parts = [
            (&mut self.requests, &before.requests, &after.requests),
            (&mut self.kilobytes, &before.kilobytes, &after.kilobytes),
        ];
        for (sum, before, after) in parts {
            for (bound, count) in after {
                let more = count.saturating_sub(before.get(bound).copied().unwrap_or(0));
                *sum.entry(*bound).or_default() += more;
            }
        }
    }

    /// `None` if nothing was counted.
    pub(super) fn bounds(&self) -> Option<AheadBounds> {
        let all: u64 = self.kilobytes.values().sum();
        let least = self.kilobytes.get(&1).copied().unwrap_or(0);
        Some(AheadBounds {
            requests: p99(&self.requests)?,
            kilobytes: p99(&self.kilobytes)?,
            share: (all - least) as f64 / all as f64,
        })
    }
}

fn p99(classes: &BTreeMap<u64, u64>) -> Option<u64> {
    let all: u64 = classes.values().sum();
    let mut below = 0;
    let reached = |(bound, count): (&u64, &u64)| {
        below += count;
        (below * 100 >= all * 99).then_some(*bound)
    };
    (all > 0)
        .then(|| classes.iter().find_map(reached))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a run added is what its percentile is of. Method: two answers of a server.
    #[test]
    fn a_percentile_is_of_what_was_added() {
        let told = |lines: &[(&str, u64)]| {
            let mut ahead = Ahead::default();
            for (name, count) in lines {
                ahead.note(&format!("STAT {name} {count}")).unwrap();
            }
            ahead
        };
        let before = told(&[
            ("stage:ahead_requests:small:below_1", 1000),
            ("stage:ahead_kilobytes:small:below_1", 1000),
            ("stage:ahead_requests:large:below_8", 7),
            ("policy", 3),
        ]);
        let after = told(&[
            ("stage:ahead_requests:small:below_1", 1090),
            ("stage:ahead_requests:small:below_8", 10),
            ("stage:ahead_kilobytes:small:below_1", 1099),
            ("stage:ahead_kilobytes:small:more", 1),
        ]);
        let mut added = Ahead::default();
        assert!(added.bounds().is_none());
        added.add(&before, &after);
        let bounds = added.bounds().unwrap();
        assert_eq!((bounds.requests, bounds.kilobytes), (8, 1));
        assert!((bounds.share - 0.01).abs() < 1e-9);
    }
}
