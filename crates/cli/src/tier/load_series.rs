//! What a load brought from second to second while popularity changed, and how long after each
//! change the tier served as much as before.

use std::{fmt, time::Duration};

/// The slices of a measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadSeries {
    slices: Vec<LoadSlice>,
}

/// What happened in one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadSlice {
    pub(super) sent: u64,
    pub(super) served: u64,
    pub(super) from_cache: u64,
    /// Changes of popularity.
    pub(super) changes: u64,
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Dip {
    /// The lowest share of requests that was served in a slice after it.
    lowest: f64,
    /// When the share was as before, if it was before the next change.
    recovered: Option<Duration>,
}

impl LoadSeries {
    /// The slice of this time is the present one from now on.
    pub(super) fn go_to(&mut self, at: Duration) {
        let count = at.as_millis() / SLICE.as_millis() + 1;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(SLICES_MAX);
        if self.slices.len() < count {
            self.slices.resize(count, LoadSlice::default());
        }
    }

    /// The present slice.
    pub(super) fn now(&mut self) -> &mut LoadSlice {
        if self.slices.is_empty() {
            self.slices.push(LoadSlice::default());
        }
        let last = self.slices.len() - 1;
        &mut self.slices[last]
    }

    /// What each change did; the last slice is not whole.
    fn dips(&self) -> Vec<Dip> {
        let whole = &self.slices[..self.slices.len().saturating_sub(1)];
        let changes = (0..whole.len()).filter(|at| whole[*at].changes > 0);
        let changes: Vec<usize> = changes.collect();
        let ends = changes.iter().skip(1).copied().chain([whole.len()]);
        let mut before = LoadSlice::default();
        let first = changes.first().copied().unwrap_or(0);
        whole[..first].iter().for_each(|slice| before.add(slice));
        let normal = NORMAL * before.share();
        let pairs = changes.iter().zip(ends);
        pairs
            .map(|(from, to)| dip(&whole[*from..to], normal))
            .collect()
    }
}

/// The last slice that is below what is normal ends the dip.
fn dip(slices: &[LoadSlice], normal: f64) -> Dip {
    let shares = slices.iter().map(LoadSlice::share);
    let lowest = shares.clone().fold(1.0, f64::min);
    let last = shares.rev().position(|share| share < normal);
    let recovered = match last {
        None => Some(0),
        Some(0) => None,
        Some(after) => Some(slices.len() - after),
    };
    let recovered = recovered.and_then(|count| u32::try_from(count).ok());
    Dip {
        lowest,
        recovered: recovered.map(|count| SLICE * count),
    }
}

impl LoadSlice {
    fn share(&self) -> f64 {
        match self.sent {
            0 => 1.0,
            sent => self.served as f64 / sent as f64,
        }
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.served += other.served;
        self.from_cache += other.from_cache;
        self.changes += other.changes;
    }
}

impl fmt::Display for LoadSeries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dips = self.dips();
        let lowest = dips.iter().map(|dip| dip.lowest).fold(1.0, f64::min);
        let times = dips.iter().filter_map(|dip| dip.recovered);
        let slowest = times.clone().max().unwrap_or_default().as_secs_f64();
        let recovered = times.count();
        writeln!(
            f,
            "the tier recovered from {recovered} of {} changes before the next one, within \
             {slowest:.2} s at most (recovered: the share of requests that it serves is at \
             least {:.0} % of the share before the first change); in the interval of {} ms \
             in which it served least, it served {:.1} % of the requests\n",
            dips.len(),
            100.0 * NORMAL,
            SLICE.as_millis(),
            100.0 * lowest,
        )?;
        writeln!(f, "| second | sent | served | from the cache | changes |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        for (second, slices) in self.slices.chunks(SLICES_A_SECOND).enumerate() {
            let mut all = LoadSlice::default();
            slices.iter().for_each(|slice| all.add(slice));
            let LoadSlice {
                sent,
                served,
                from_cache,
                changes,
            } = all;
            writeln!(
                f,
                "| {second} | {sent} | {served} | {from_cache} | {changes} |"
            )?;
        }
        Ok(())
    }
}

const SLICE: Duration = Duration::from_millis(250);
const SLICES_A_SECOND: usize = 4;
/// A day.
const SLICES_MAX: usize = SLICES_A_SECOND * 86_400;
/// The part of what was served before the first change that ends a dip: a slice has few requests.
const NORMAL: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a change that is over and one that is not are told apart. Method: slices by hand.
    #[test]
    fn a_dip_ends_with_its_last_low_slice() {
        let slice = |served, changes| LoadSlice {
            sent: 100,
            served,
            changes,
            ..LoadSlice::default()
        };
        let slices = vec![
            slice(100, 0),
            slice(50, 1),
            slice(99, 0),
            slice(90, 0),
            slice(100, 0),
            slice(100, 1),
            slice(99, 0),
            slice(98, 1),
            slice(60, 0),
            slice(0, 0), // not whole
        ];
        let dips = LoadSeries { slices }.dips();
        let expected = [(0.5, Some(3)), (0.99, Some(0)), (0.6, None)];
        let expected = expected.map(|(lowest, slices)| Dip {
            lowest,
            recovered: slices.map(|count| SLICE * count),
        });
        assert_eq!(dips, expected);
    }
}
