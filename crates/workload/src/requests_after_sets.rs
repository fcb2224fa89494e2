//! The share of the requests that are a set after which the same client sends another kind of
//! request within two seconds (Juneberry, NSDI 2025, Fig. 2).
//!
//! A set needs no result, so that a server may acknowledge it before it is executed; a request that
//! needs a result and follows at once waits for the execution of both. A recorded trace shows how
//! often that happens. The table of clusters does not record clients; there the share follows from
//! the rate of a client if clients are alike and independent.

use std::collections::BTreeMap;

use crate::{
    mix::Kind,
    trace::{self, Fault},
    twitter::{self, ClusterError, is_heading},
};

/// What is known of one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteGaps {
    /// Requests per second of an instance; `None` if only a trace is known.
    pub requests_per_s: Option<f64>,
    /// Sets among the requests.
    pub sets: f64,
    /// Sets with a gap of at most [`GAP_S`], among the requests, as recorded; `None` without a
    /// trace.
    pub recorded: Option<f64>,
}

/// The gap that counts, in seconds; traces have no finer clock.
pub const GAP_S: u64 = 2;

/// Requests of a trace that are looked at, as in the paper.
const REQUESTS_MAX: usize = 1_000_000;

impl WriteGaps {
    /// What a text says: the table of clusters, or a trace of one in Twitter's format.
    pub fn read(text: &str) -> Result<Vec<Self>, String> {
        if is_heading(text.lines().next().unwrap_or("")) {
            return Self::of_table(text).map_err(|error| error.to_string());
        }
        let of = |(index, fault): (usize, Fault)| format!("line {}: {fault}", index + 1);
        Self::of_trace(text).map(|one| vec![one]).map_err(of)
    }

    /// Every cluster of the table of which requests and their rate are known.
    fn of_table(text: &str) -> Result<Vec<Self>, ClusterError> {
        let of = |cluster: &twitter::Cluster| {
            let all: f64 = cluster.commands.iter().map(|(_, share)| share).sum();
            let sets = cluster
                .commands
                .iter()
                .filter(|(kind, _)| *kind == Kind::Set);
            let sets: f64 = sets.map(|(_, share)| share).sum();
            Some(Self {
                requests_per_s: Some(cluster.kilo_requests_per_s? * 1e3),
                sets: if all > 0.0 { sets / all } else { return None },
                recorded: None,
            })
        };
        Ok(twitter::clusters(text)?.iter().filter_map(of).collect())
    }

    fn of_trace(text: &str) -> Result<Self, (usize, Fault)> {
        let mut clients: BTreeMap<u32, Waiting> = BTreeMap::new();
        let (mut requests, mut sets, mut short) = (0_u64, 0_u64, 0_u64);
        for (index, line) in text.lines().enumerate().take(REQUESTS_MAX) {
            if line.is_empty() {
                continue;
            }
            let (second, client, record) =
                trace::session(line.as_bytes()).map_err(|fault| (index, fault))?;
            requests += 1;
            let waiting = clients.entry(client).or_default();
            if record.kind == Kind::Set {
                sets += 1;
                waiting.note_set(second);
            } else {
                short += waiting.end(second);
            }
        }
        let share = |part| {
            if requests > 0 {
                part as f64 / requests as f64
            } else {
                0.0
            }
        };
        Ok(Self {
            requests_per_s: None,
            sets: share(sets),
            recorded: Some(share(short)),
        })
    }

    /// The share if so many clients send the requests, each at times of its own.
    pub fn modelled(&self, clients: f64) -> Option<f64> {
        let others_per_s = self.requests_per_s? * (1.0 - self.sets) / clients;
        Some(self.sets * -(-others_per_s * GAP_S as f64).exp_m1())
    }
}

/// Sets of a client behind which nothing else has come yet.
#[derive(Default)]
struct Waiting {
    /// The last [`GAP_S`] + 1 seconds in which there were some, and how many.
    recent: Vec<(u64, u64)>,
}

impl Waiting {
    fn note_set(&mut self, second: u64) {
        match self.recent.last_mut() {
            Some((last, count)) if *last == second => *count += 1,
            _ => {
                self.forget_before(second);
                self.recent.push((second, 1));
            }
        }
    }

    /// A request of another kind has come: how many sets were at most [`GAP_S`] before it.
    fn end(&mut self, second: u64) -> u64 {
        self.forget_before(second);
        self.recent.drain(..).map(|(_, count)| count).sum()
    }

    fn forget_before(&mut self, second: u64) {
        self.recent
            .retain(|(of, _)| second.saturating_sub(*of) <= GAP_S);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::twitter::tests::table;

    #[test]
    fn gaps_are_counted_for_each_client() {
        let lines = [
            // Client 1: two sets, of which one is too old when its get comes; client 2 reads only.
            "0,a,1,5,1,set,0",
            "3,a,1,5,1,set,0",
            "3,a,1,5,2,get,0",
            "5,b,1,5,1,get,0",
            // No set is before this one any more.
            "5,b,1,5,1,get,0",
            // Client 3: nothing follows.
            "6,b,1,5,3,set,0",
            // Client 4: a delete is told what it did.
            "7,b,1,5,4,set,0",
            "7,b,1,5,4,delete,0",
        ];
        let found = WriteGaps::read(&lines.join("\n")).unwrap();
        let expected = WriteGaps {
            requests_per_s: None,
            sets: 0.5,
            recorded: Some(2.0 / 8.0),
        };
        assert_eq!(found, [expected]);
        assert_eq!(found[0].modelled(1.0), None);
        let error = WriteGaps::read("0,a,1,5,1,set,0\n0,a,1,5,1,frob,0").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
    }

    #[test]
    fn more_clients_have_longer_gaps() {
        let all = WriteGaps::read(&table()).unwrap();
        // One of the five rows says nothing.
        assert_eq!(all.len(), 4);
        let twelve = &all[0];
        assert_eq!((twelve.requests_per_s, twelve.sets), (Some(4_360.0), 0.8));
        let few = twelve.modelled(1.0).unwrap();
        assert!(
            (few - 0.8).abs() < 1e-9,
            "every set is followed by something"
        );
        // 872 gets a second of 872 clients: one a second, and 1 - e^-2 of the sets are followed.
        let some = twelve.modelled(872.0).unwrap();
        assert!(
            (some - 0.8 * (1.0 - (-2.0_f64).exp())).abs() < 1e-9,
            "{some}"
        );
        assert!(twelve.modelled(1e9).unwrap() < 1e-5);
    }
}
