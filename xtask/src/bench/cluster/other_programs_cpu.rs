//! Processor time that other programs use during a measurement.

use std::fs;

use anyhow::{Context as _, Result};

/// The time that processes which are not of a run take from the cores, from a moment on.
pub(super) struct Others {
    nodes: Vec<u32>,
    busy: f64,
    own: f64,
    all: f64,
}

impl Others {
    /// Counts from now on; the processes `nodes`, this one and the programs that it runs and waits
    /// for are none of the others.
    pub(super) fn begin(nodes: Vec<u32>) -> Result<Self> {
        let (busy, all) = processors(&fs::read_to_string("/proc/stat")?)?;
        let own = own(&nodes)?;
        Ok(Self {
            nodes,
            busy,
            own,
            all,
        })
    }

    /// Their share of all cores' time.
    pub(super) fn end(self) -> Result<f64> {
        let (busy, all) = processors(&fs::read_to_string("/proc/stat")?)?;
        let others = (busy - self.busy) - (own(&self.nodes)? - self.own);
        Ok((others / (all - self.all).max(1.0)).max(0.0))
    }
}

/// Ticks that all cores were busy with processes or taken by the machine below, and all ticks.
/// Interrupts are left out: those of a run's own packets are among them.
fn processors(stat: &str) -> Result<(f64, f64)> {
    let line = stat.lines().next().context("an empty /proc/stat")?;
    let ticks: Vec<f64> = line
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let of = |index: usize| ticks.get(index).copied().unwrap_or(0.0);
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
    let busy = of(0) + of(1) + of(2) + of(7);
    Ok((busy, ticks.iter().take(8).sum()))
}

fn own(nodes: &[u32]) -> Result<f64> {
    let mut sum = 0.0;
    for node in nodes {
        let stat = fs::read_to_string(format!("/proc/{node}/stat"))?;
        sum += ticks(&stat, 2);
    }
    // This process and the children that it waited for.
    Ok(sum + ticks(&fs::read_to_string("/proc/self/stat")?, 4))
}

/// The first `count` of a process's utime, stime, cutime and cstime, summed.
fn ticks(stat: &str, count: usize) -> f64 {
    // The name in parentheses may hold spaces.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let words = after.split_ascii_whitespace().skip(UTIME);
    let numbers = words
        .take(count)
        .filter_map(|word| word.parse::<f64>().ok());
    numbers.sum()
}

/// Fields between the name and utime.
const UTIME: usize = 11;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the fields are those that the kernel documents. Method: lines as it writes them.
    #[test]
    fn ticks_are_found() {
        let stat = "cpu  10 20 30 400 5 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(processors(stat).unwrap(), (68.0, 486.0));
        let line = "7 (a b) c) S 1 7 7 0 -1 4194560 9 0 0 0 101 202 303 404 20 0 1 0 5";
        assert_eq!(ticks(line, 2), 303.0);
        assert_eq!(ticks(line, 4), 1010.0);
        assert!(processors("").is_err());
    }

    /// Goal: what the run itself does is not taken for others'. Method: a loop in this process,
    /// until it has had ten ticks.
    #[test]
    fn what_the_run_itself_does_is_its_own() {
        let (before, start) = (own(&[]).unwrap(), std::time::Instant::now());
        while own(&[]).unwrap() < before + 10.0 {
            assert!(start.elapsed().as_secs() < 20, "no tick is counted");
        }
        assert!(Others::begin(Vec::new()).unwrap().end().unwrap() >= 0.0);
        assert!(own(&[0]).is_err());
    }
}
