//! What the nodes of a tier have counted, as a table: load, hits, rules and budget.

use std::{
    fmt::Write as _,
    io::Write as _,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use curtail_tier::{GROUP_KEY, NodeStatus, StatusError, TierFile, ask_status};
use serde_json::{Map, Value, json};

/// A look at every node.
struct TierSample {
    at: Instant,
    switch: Option<NodeStatus>,
    caches: Vec<Option<NodeStatus>>,
    back_ends: Vec<Option<NodeStatus>>,
}

/// Prints the status of the tier that a file describes.
pub(crate) fn show_status(path: &Path, is_json: bool) -> anyhow::Result<()> {
    let file = TierFile::load(path)?;
    let first = TierSample::take(&file)?;
    let text = match is_json {
        true => serde_json::to_string_pretty(&first.to_json())? + "\n",
        false => {
            thread::sleep(INTERVAL);
            let second = TierSample::take(&file)?;
            describe(&file, &first, &second)?
        }
    };
    // The reader may have closed the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Shows the same again and again on a terminal, until the process is ended.
pub(crate) fn watch_status(path: &Path, interval: Duration) -> anyhow::Result<()> {
    let file = TierFile::load(path)?;
    let mut out = std::io::stdout();
    let mut before = TierSample::take(&file)?;
    loop {
        thread::sleep(interval);
        let now = TierSample::take(&file)?;
        let text = describe(&file, &before, &now)?;
        // To the top, each line over what was there, and nothing below the last one.
        let lines = text.replace('\n', "\x1b[K\n");
        out.write_all(format!("\x1b[H{lines}\x1b[J").as_bytes())?;
        out.flush()?;
        before = now;
    }
}

impl TierSample {
    fn take(file: &TierFile) -> anyhow::Result<Self> {
        let secret = file.secret();
        let ask = |at: &SocketAddr| match ask_status(*at, &secret) {
            Ok(status) => Ok(Some(status)),
            Err(StatusError::Silent(_)) => Ok(None),
            Err(error) => Err(error).with_context(|| at.to_string()),
        };
        let all = |them: &[SocketAddr]| them.iter().map(ask).collect::<anyhow::Result<_>>();
        Ok(Self {
            at: Instant::now(),
            switch: ask(&file.control)?,
            caches: all(&file.caches)?,
            back_ends: all(&file.back_ends)?,
        })
    }

    fn to_json(&self) -> Value {
        let one = |status: &Option<NodeStatus>| match status {
            None => Value::Null,
            Some(status) => {
                let counters = status.counters.iter();
                let counters = counters.map(|(name, number)| (name.clone(), json!(number)));
                Value::Object(counters.collect::<Map<_, _>>())
            }
        };
        json!({
            "switch": one(&self.switch),
            "caches": self.caches.iter().map(one).collect::<Vec<_>>(),
            "back_ends": self.back_ends.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

/// How much a counter grew in a second.
struct Rates<'a> {
    before: &'a Option<NodeStatus>,
    after: &'a NodeStatus,
    seconds: f64,
}

impl Rates<'_> {
    fn of(&self, name: &str) -> f64 {
        let before = self.before.as_ref().map_or(0, |status| status.get(name));
        // A node that has restarted counts from 0.
        self.after.get(name).saturating_sub(before) as f64 / self.seconds
    }
}

fn describe(file: &TierFile, first: &TierSample, second: &TierSample) -> anyhow::Result<String> {
    let seconds = second.at.duration_since(first.at).as_secs_f64();
    let rates = |before, after| Rates {
        before,
        after,
        seconds,
    };
    let mut text = String::new();
    match &second.switch {
        None => writeln!(text, "switch      does not answer at {}", file.control)?,
        Some(now) => {
            let rates = rates(&first.switch, now);
            writeln!(
                text,
                "switch      {:.0}/s by rules, {:.0}/s to back ends; {} of {} rules; {} datagrams \
                 without a route",
                rates.of("by_rules"),
                rates.of("to_back_ends"),
                now.get("rules"),
                now.get("rules_max"),
                now.get("unknown"),
            )?;
        }
    }
    let caches = first.caches.iter().zip(&second.caches);
    for (id, (before, now)) in caches.enumerate() {
        match now {
            None => writeln!(text, "cache {id:<5} does not answer at {}", file.caches[id])?,
            Some(now) => describe_cache(&mut text, id, &rates(before, now))?,
        }
    }
    describe_group(&mut text, second)?;
    describe_back_ends(&mut text, file, first, second)?;
    Ok(text)
}

/// The keys of which all cache nodes have copies: of each cache node the hottest.
fn describe_group(text: &mut String, sample: &TierSample) -> std::fmt::Result {
    let Some(switch) = sample.switch.as_ref() else {
        return Ok(());
    };
    let sharing = switch.get("caches_sharing");
    if sharing < 2 {
        return Ok(());
    }
    let spread = switch.get("rules_spread");
    write!(
        text,
        "group       {sharing} cache nodes share {spread} keys"
    )?;
    let all = sample.caches.iter().flatten();
    let named = all.flat_map(|status| status.counters.iter());
    let named = named.filter_map(|(name, load)| Some((name.strip_prefix(GROUP_KEY)?, *load)));
    let mut named: Vec<_> = named.collect();
    named.sort_unstable_by_key(|(name, load)| (std::cmp::Reverse(*load), *name));
    for (at, (name, load)) in named.iter().take(GROUP_SHOWN).enumerate() {
        let before = if at == 0 { "; reads in a period:" } else { "," };
        write!(text, "{before} {name} {load}")?;
    }
    writeln!(text)
}

fn describe_cache(text: &mut String, id: usize, rates: &Rates<'_>) -> std::fmt::Result {
    let now = rates.after;
    let waiting = now.get("rule_installs_waiting") + now.get("rule_withdrawals_waiting");
    writeln!(
        text,
        "cache {id:<5} {:.0}/s hits ({:.0}/s of other caches' keys), {:.0}/s passed on to back \
         ends, {:.0}/s returned to clients as not cached, {:.0}/s refused; {} keys, {} leases; \
         rules: at most {} changes a second, {waiting} changes wait (the oldest {} ms)",
        rates.of("hits"),
        rates.of("guest_hits"),
        rates.of("passed_on"),
        rates.of("not_cached"),
        rates.of("refused"),
        now.get("copies"),
        now.get("leases"),
        now.get("rules_per_s"),
        now.get("rule_age_ms"),
    )
}

fn describe_back_ends(
    text: &mut String,
    file: &TierFile,
    first: &TierSample,
    second: &TierSample,
) -> std::fmt::Result {
    let seconds = second.at.duration_since(first.at).as_secs_f64();
    let pairs = first.back_ends.iter().zip(&second.back_ends);
    let mut loads = Vec::new();
    writeln!(text, "back end    served/s  refused/s  limit  cached keys")?;
    for (id, (before, now)) in pairs.enumerate() {
        let Some(after) = now else {
            writeln!(text, "{id:<11} does not answer at {}", file.back_ends[id])?;
            continue;
        };
        let rates = Rates {
            before,
            after,
            seconds,
        };
        let served = rates.of("served");
        loads.push(served);
        writeln!(
            text,
            "{id:<11} {served:>8.0} {:>10.0} {:>6} {:>12}",
            rates.of("refused"),
            after.get("limit_per_s"),
            after.get("cached_keys"),
        )?;
    }
    let sum: f64 = loads.iter().sum();
    let mean = sum / loads.len().max(1) as f64;
    let most = loads.iter().copied().fold(0.0, f64::max);
    let ratio = if mean > 0.0 { most / mean } else { 1.0 };
    writeln!(
        text,
        "all         {sum:>8.0}  the most loaded one has {ratio:.2} times the mean"
    )
}

/// Keys of the group that are named.
const GROUP_SHOWN: usize = 4;
/// Between the two looks that rates are made of.
const INTERVAL: Duration = Duration::from_secs(1);
