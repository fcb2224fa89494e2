//! `-o`: memcached's extended options.
//!
//! Those that mean something here are honoured. Those that tune a part of memcached which does not
//! exist here are accepted in silence, so that start scripts keep working; unknown ones are
//! accepted with a warning.

use anyhow::{Context, bail};
use curtail_server::{Config, Niceness};

use crate::native_flags;

/// The end of `curtail serve --help`.
pub(crate) const HELP: &str = "\
Extended options (-o), comma separated; most have a 'no_' form to switch them off:
  maxconns_fast          close new connections at once above the limit (default: on)
  idle_timeout=SECONDS   close idle connections (default: 0, never)
  read_buf_mem_limit=MB  limit for connection buffers within -m (default: 0, no own limit)
  watcher_logbuf_size=KB lines that wait for one watcher (default: 256)
  worker_logbuf_size=KB  lines a worker writes for watchers in a turn (default: 64)
  compaction             carry neighbouring writes of one key out as one, each with its own answer
                         (default: on)
  size_threshold=BYTES   values so long are large for size-aware-static; no shorter ones are for
                         size-aware (default: 32768, at least 4097)
  size_queue=NUM         large requests under way on a thread for them, at most (default: 256)
  size_nice=0..19|idle   how far threads for large requests give way (default: idle, for everybody
                         unless they starve)
  size_epoch=MS          how often size-aware learns its threshold (default: 1000)
  native_backlog=NUM     writes that may wait in a queue for one to be acknowledged before it is
                         executed (default: 256)
  native_sessions=NUM    native sessions (default: 1024), native_address_sessions=NUM of one address
                         (default: 16, the most)
  native_lease_ms=MS     how long an unused session lasts (default: 60000)
  native_datagram=BYTES  longest datagram to and from other machines (default: 1452)
  native_attach=HOW      who runs the network card's program: native is the driver, generic the
                         kernel's stack (default: any, the stack for a veth, else the driver)
  native_placement=WHO   executes a queue: any worker, or its owner alone (default: any)
  native_service_us=US   processor time added to each execution, for experiments (default: 0)
Other options of memcached are accepted and change nothing; unknown ones are warned about.

Signals: SIGTERM, SIGINT stop; SIGUSR1 saves to the -e file and stops; SIGHUP reads -Y again.";

/// Options of memcached that change nothing here.
const IGNORED: [&str; 29] = [
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
    "drop_privileges",
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

/// Options whose presence would be taken for protection or storage that is not there.
const NOT_OFFERED: [&str; 3] = ["ssl_", "ext_", "proxy_config"];

/// Applies one list of options to `config`.
pub(crate) fn apply(
    config: &mut Config,
    list: &str,
    warnings: &mut Vec<String>,
) -> anyhow::Result<()> {
    for option in list.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        apply_one(config, name, value, warnings).with_context(|| format!("-o {option}"))?;
    }
    Ok(())
}

fn apply_one(
    config: &mut Config,
    name: &str,
    value: Option<&str>,
    warnings: &mut Vec<String>,
) -> anyhow::Result<()> {
    match name {
        "maxconns_fast" => config.refuse_connections_fast = true,
        "no_maxconns_fast" => config.refuse_connections_fast = false,
        "idle_timeout" => config.idle_timeout_seconds = number(value)?,
        "read_buf_mem_limit" => {
            let megabytes: usize = number(value)?;
            config.buffer_bytes_max = megabytes.checked_mul(1 << 20).context("too large")?;
        }
        "watcher_logbuf_size" => config.watcher_bytes_max = kilobytes(value)?,
        "worker_logbuf_size" => config.journal_bytes_max = kilobytes(value)?,
        "compaction" => {
            config.compaction = match value {
                None | Some("on") => true,
                Some("off") => false,
                Some(other) => bail!("'{other}' is neither on nor off"),
            };
        }
        "no_compaction" => config.compaction = false,
        "size_threshold" => config.threshold = Some(number(value)?),
        "size_percentile" => bail!(
            "no longer an option: size-aware learns its threshold from what requests cost, not \
             from a percentile; size_threshold sets the least"
        ),
        "size_queue" => config.large_connections_max = number(value)?,
        "size_nice" => {
            config.large_nice = match value {
                Some("idle") => Niceness::Idle,
                _ => Niceness::Level(number(value)?),
            };
            if !config.large_nice.is_valid() {
                bail!("from 0 to 19, or idle");
            }
        }
        "size_epoch" => {
            config.epoch_ms = number(value)?;
            if config.epoch_ms == 0 {
                bail!("at least 1 ms");
            }
        }
        "hashpower" => config.echoed.hash_power_initial = number(value)?,
        "tail_repair_time" => config.echoed.tail_repair_seconds = number(value)?,
        "slab_chunk_max" => {
            let kilobytes: u64 = number(value)?;
            config.echoed.slab_chunk_bytes_max = kilobytes.saturating_mul(1 << 10);
        }
        "temporary_ttl" => config.echoed.temporary_ttl_seconds = Some(number(value)?),
        "lru_crawler" => config.echoed.lru_crawler = true,
        "no_lru_crawler" => config.echoed.lru_crawler = false,
        "lru_maintainer" => config.echoed.lru_maintainer = true,
        "no_lru_maintainer" => config.echoed.lru_maintainer = false,
        "track_sizes" => config.echoed.track_sizes = true,
        "no_track_sizes" => config.echoed.track_sizes = false,
        _ if native_flags::apply(config, name, value, warnings)? => {}
        _ if IGNORED.contains(&name) => {}
        _ if NOT_OFFERED.iter().any(|prefix| name.starts_with(prefix)) => bail!("not offered"),
        _ => warnings.push(format!("-o {name}: unknown option, ignored")),
    }
    Ok(())
}

fn kilobytes(value: Option<&str>) -> anyhow::Result<usize> {
    let kilobytes: usize = number(value)?;
    kilobytes.checked_mul(1 << 10).context("too large")
}

fn number<T: std::str::FromStr>(value: Option<&str>) -> anyhow::Result<T> {
    let text = value.context("a value is missing")?;
    text.parse()
        .ok()
        .with_context(|| format!("'{text}' is not a fitting number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_honoured_swallowed_warned_about_or_refused() {
        let mut config = Config::default();
        let mut warnings = Vec::new();
        let list =
            "idle_timeout=7,,no_maxconns_fast,modern,slab_automove=1,what,watcher_logbuf_size=8";
        apply(&mut config, list, &mut warnings).unwrap();
        assert_eq!(config.idle_timeout_seconds, 7);
        assert!(!config.refuse_connections_fast);
        assert_eq!(config.watcher_bytes_max, 8 << 10);
        assert_eq!(warnings.len(), 1);
        for (list, on) in [
            ("no_compaction", false),
            ("no_compaction,compaction", true),
            ("compaction=off", false),
            ("compaction=on", true),
        ] {
            apply(&mut config, list, &mut warnings).unwrap();
            assert_eq!(config.compaction, on, "{list}");
        }
        for bad in [
            "idle_timeout",
            "idle_timeout=x",
            "compaction=maybe",
            "ssl_key=a",
            "ext_path=/a:1G",
        ] {
            assert!(apply(&mut config, bad, &mut warnings).is_err(), "{bad}");
        }
    }
}
