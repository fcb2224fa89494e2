//! `-o`: memcached's extended options.
//!
//! Those that mean something here are honoured. Those that tune a part of memcached which does not
//! exist here are accepted with a warning, so that start scripts keep working, and so are unknown
//! ones. What would be taken for protection or storage that is not there is refused.

use anyhow::{Context, bail};
use curtail_server::{Config, Niceness};

use crate::{flag_errors::Faults, native_flags, ranged_numbers::number};

/// The end of `curtail serve --help`.
pub(crate) const HELP: &str = "\
Extended options (-o), separated by commas:
  maxconns_fast          close connections above the limit (-c) at once (default); no_maxconns_fast:
                         let them wait
  idle_timeout=SECONDS   close connections that are idle for this long (default: 0, never)
  read_buf_mem_limit=MiB limit for connection buffers, which are part of -m (default: 0, a quarter
                         of -m)
  watcher_logbuf_size=KiB  buffer for the lines that one client of `watch` has not read yet
                         (default: 256)
  worker_logbuf_size=KiB buffer of each worker thread for new lines of `watch` (default: 64)
  compaction             execute consecutive writes of one key as one, each with its own reply
                         (default); no_compaction: execute each
  size_threshold=BYTES   size from which a value is large; under size-aware the server can choose a
                         larger size, under size-aware-static not (default: 32768, at least 4097)
  size_queue=NUM         maximum connections at a time on a large worker, a thread for large
                         values (default: 256)
  size_nice=0..19|idle   priority of large workers: a nice value, or idle (SCHED_IDLE; a worker that
                         gets no processor gets normal priority for a moment) (default: idle)
  slow_us=US             the slow log (`stats slow`, `watch slow`) gets requests that take at least
                         this long; `stats slow threshold US` changes it (default: 0, off)
  size_epoch=MS          length of an epoch, after which the server decides again what is large,
                         balances connections, and writes summaries to the log (default: 1000)
  native_backlog=NUM     if this many writes wait in a queue, further ones are acknowledged only
                         after they are executed (default: 256)
  native_read_wait_us=US longest time that a read should wait for acknowledged writes: if these
                         execute slowly, the server lowers the limit native_backlog (default: 1000;
                         0: it never lowers it)
  native_sessions=NUM    maximum number of native sessions (default: 1024)
  native_address_sessions=NUM  maximum number of native sessions from one client address (1 to 16,
                         default: 16)
  native_lease_ms=MS     time after which an unused native session ends (default: 60000)
  native_datagram=BYTES  longest native datagram to and from other machines (default: 1452)
  native_attach=HOW      where the XDP program runs: native (in the driver), generic (in the
                         kernel's stack) or any (in the stack if the driver cannot run programs or
                         the interface is a veth, else in the driver) (default: any)
  native_placement=WHO   worker that executes a native request: any, owner (the worker of its
                         queue), arrival (the worker that received it) (default: any); stealing or
                         hand-off only in a program that was built with --features baselines
  native_choice=HOW      in the modes deferred and raw: which worker receives a native datagram:
                         flow (by the client's address and port), random, key, or writes (writes
                         by key, reads at random) (default: flow)
  native_service_us=US   processor time added to each native execution, for experiments (default:
                         0)
memcached's other options and unknown options only cause a warning. With ssl_*, ext_*, proxy_config,
drop_privileges and size_percentile the server does not start.

Signals: SIGTERM and SIGINT stop the server; SIGUSR1 saves the contents to the -e file and stops it;
SIGHUP makes the server read the -Y file again.

Environment: MEMCACHED_PORT_FILENAME names a file into which the server writes its TCP ports once it
listens (lines `TCP INET: PORT` and `TCP INET6: PORT`).";

/// Options of memcached that change nothing here.
const IGNORED: [&str; 28] = [
    "hash_algorithm",
    "hashpower_init",
    "hot_lru_pct",
    "hot_max_factor",
    "warm_lru_pct",
    "warm_max_factor",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "slab_reassign",
    "slab_automove",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_automove_freeratio",
    "slab_sizes",
    "no_hashexpand",
    "hashexpand",
    "modern",
    "no_modern",
    "no_drop_privileges",
    "relaxed_privileges",
    "sock_cookie_id",
    "inline_ascii_resp",
    "no_inline_ascii_resp",
    "lru_segmented",
    "no_lru_segmented",
    "no_slab_reassign",
    "no_slab_automove",
    "proxy_arg",
];

/// Options whose presence would be taken for protection or storage that is not there, and what to
/// use instead.
const NOT_OFFERED: [(&str, &str); 4] = [
    ("ssl_", "TLS for clients is not offered; use a TLS proxy"),
    ("ext_", "extstore is not offered; use --tier disk"),
    ("proxy_config", "the proxy is not offered"),
    (
        "drop_privileges",
        "the server does not filter its system calls; let systemd do it (SystemCallFilter in \
         packaging/curtail.service)",
    ),
];

/// What is accepted for memcached's sake and changes nothing, or is unknown.
#[derive(Debug, Default)]
pub(crate) struct Unused {
    pub(crate) meaningless: Vec<String>,
    pub(crate) unknown: Vec<String>,
}

impl Unused {
    /// One line for each kind.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let line = |what: &[String], why: &str| {
            let listed = what.join(", ");
            (!what.is_empty()).then(|| format!("{listed}: {why}"))
        };
        let why = "of no effect in curtail; accepted because memcached has it";
        let lines = [
            line(&self.meaningless, why),
            line(&self.unknown, "unknown option, of no effect"),
        ];
        lines.into_iter().flatten().collect()
    }
}

/// Applies one list of options to `config`; each error begins with its option.
pub(crate) fn apply(
    config: &mut Config,
    list: &str,
    unused: &mut Unused,
    warnings: &mut Vec<String>,
    faults: &mut Faults,
) {
    for option in list.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let applied = apply_one(config, name, value, warnings);
        match faults.keep(applied.with_context(|| format!("-o {option}"))) {
            Applied::Meant => {}
            Applied::Meaningless => unused.meaningless.push(format!("-o {name}")),
            Applied::Unknown => unused.unknown.push(format!("-o {name}")),
        }
    }
}

/// What became of an option.
#[derive(Clone, Copy, Debug, Default)]
enum Applied {
    #[default]
    Meant,
    Meaningless,
    Unknown,
}

fn apply_one(
    config: &mut Config,
    name: &str,
    value: Option<&str>,
    warnings: &mut Vec<String>,
) -> anyhow::Result<Applied> {
    match name {
        "maxconns_fast" | "no_maxconns_fast" => {
            config.refuse_connections_fast = switch(name, value)?;
        }
        "idle_timeout" => config.idle_timeout_seconds = number(value, 0..)?,
        "read_buf_mem_limit" => config.buffer_bytes_max = megabytes(value)?,
        "watcher_logbuf_size" => config.watcher_bytes_max = kilobytes(value)?,
        "worker_logbuf_size" => config.journal_bytes_max = kilobytes(value)?,
        "compaction" => {
            config.compaction = match value {
                None | Some("on") => true,
                Some("off") => false,
                Some(other) => bail!("'{other}' is neither on nor off"),
            };
        }
        "no_compaction" => config.compaction = switch(name, value)?,
        "size_threshold" => {
            config.threshold = Some(number(value, Config::THRESHOLD_LEAST..)?);
        }
        "size_percentile" => bail!(
            "not offered any more: size-aware computes its threshold from the costs of requests, \
             not from a percentile; size_threshold sets the lowest threshold"
        ),
        "size_queue" => config.large_connections_max = number(value, 1..)?,
        "size_nice" => {
            config.large_nice = match value {
                Some("idle") => Niceness::Idle,
                _ => match number(value, 0..=Niceness::LEVEL_MAX) {
                    Ok(level) => Niceness::Level(level),
                    Err(error) => bail!("{error}, and not idle"),
                },
            };
        }
        "slow_us" => config.slow_us = number(value, 0..)?,
        "size_epoch" => config.epoch_ms = number(value, 1..)?,
        _ if native_flags::apply(config, name, value, warnings)? => {}
        _ => return apply_unused(config, name, value),
    }
    Ok(Applied::Meant)
}

/// Options that change nothing but what `stats settings` repeats, are refused, or are unknown.
fn apply_unused(config: &mut Config, name: &str, value: Option<&str>) -> anyhow::Result<Applied> {
    let echoed = &mut config.echoed;
    match name {
        "hashpower" => echoed.hash_power_initial = number(value, 12..=32)?,
        "tail_repair_time" => echoed.tail_repair_seconds = number(value, 10..)?,
        "slab_chunk_max" => echoed.slab_chunk_bytes_max = number(value, 1..=1 << 20)? << 10,
        "temporary_ttl" => echoed.temporary_ttl_seconds = Some(number(value, 0..)?),
        "lru_crawler" | "no_lru_crawler" => echoed.lru_crawler = switch(name, value)?,
        "lru_maintainer" | "no_lru_maintainer" => echoed.lru_maintainer = switch(name, value)?,
        "track_sizes" | "no_track_sizes" => echoed.track_sizes = switch(name, value)?,
        _ if IGNORED.contains(&name) => {}
        _ => {
            let mut refused = NOT_OFFERED.iter();
            if let Some((_, why)) = refused.find(|(prefix, _)| name.starts_with(prefix)) {
                bail!("{why}");
            }
            return Ok(Applied::Unknown);
        }
    }
    Ok(Applied::Meaningless)
}

/// An option that is switched on by its name and off by `no_` before it.
fn switch(name: &str, value: Option<&str>) -> anyhow::Result<bool> {
    if let Some(value) = value {
        bail!("it takes no value: remove '={value}'");
    }
    Ok(!name.starts_with("no_"))
}

fn kilobytes(value: Option<&str>) -> anyhow::Result<usize> {
    Ok(number::<usize>(value, 1..=KILOBYTES_MAX)? << 10)
}

fn megabytes(value: Option<&str>) -> anyhow::Result<usize> {
    Ok(number::<usize>(value, 0..=KILOBYTES_MAX)? << 20)
}

/// A tebibyte in kilobytes; no buffer is larger.
const KILOBYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_file::Origins;

    fn applied(list: &str) -> (Config, Unused, Option<String>) {
        let mut config = Config::default();
        let (mut unused, mut faults) = (Unused::default(), Faults::default());
        apply(&mut config, list, &mut unused, &mut Vec::new(), &mut faults);
        let fault = faults.end(&Origins::default()).err();
        (config, unused, fault.map(|faults| faults.to_string()))
    }

    #[test]
    fn options_are_honoured_warned_about_or_refused() {
        let list =
            "idle_timeout=7,,no_maxconns_fast,modern,slab_automove=1,what,watcher_logbuf_size=8";
        let (config, unused, fault) = applied(list);
        assert_eq!(config.idle_timeout_seconds, 7);
        assert!(!config.refuse_connections_fast);
        assert_eq!(config.watcher_bytes_max, 8 << 10);
        assert_eq!(unused.meaningless, ["-o modern", "-o slab_automove"]);
        assert_eq!(unused.unknown, ["-o what"]);
        assert_eq!(fault, None);
    }

    #[test]
    fn compaction_is_switched_both_ways() {
        for (list, on) in [
            ("no_compaction", false),
            ("no_compaction,compaction", true),
            ("compaction=off", false),
            ("compaction=on", true),
        ] {
            let (config, _, fault) = applied(list);
            assert_eq!((config.compaction, fault), (on, None), "{list}");
        }
        for bad in ["compaction=maybe", "no_compaction=1"] {
            assert!(applied(bad).2.is_some(), "{bad}");
        }
    }

    /// Goal: what looks like a sandbox and is none is refused with what to do, and all that is
    /// wrong is said at once.
    #[test]
    fn what_would_protect_or_store_is_refused() {
        let (_, _, fault) = applied("drop_privileges,ssl_key=a,ext_path=/a:1G,idle_timeout=x");
        let fault = fault.unwrap();
        let lines: Vec<&str> = fault.lines().collect();
        assert_eq!(lines.len(), 4, "{fault}");
        assert!(lines[0].contains("-o drop_privileges: ") && lines[0].contains("systemd"));
        let (_, unused, fault) = applied("no_drop_privileges,relaxed_privileges");
        assert_eq!((unused.meaningless.len(), fault), (2, None));
    }
}
