//! `curtail serve --check-config`: prints the configuration that flags and files result in, without
//! a start.
//!
//! The configuration is printed as memcached's `stats settings` and the flags name it, one `name =
//! value` a line, warnings before it. What only a start can show (a port that is taken, too little
//! address space) is not checked.

use std::{fmt::Display, io::Write, process::ExitCode};

use curtail_server::Config;

use crate::{
    disk_flags,
    flags::{Flags, Settled},
};

/// Prints the configuration that `flags` come to, or what is wrong with them.
pub(crate) fn check(flags: &Flags) -> anyhow::Result<ExitCode> {
    let Settled { config, warnings } = flags.settle()?;
    for warning in &warnings {
        eprintln!("curtail: warning: {warning}");
    }
    let mut text = String::new();
    for (name, value) in rows(flags, &config) {
        text.push_str(&format!("{name} = {value}\n"));
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn rows(flags: &Flags, config: &Config) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let mut row = |name, value: &dyn Display| rows.push((name, value.to_string()));
    for listen in &config.listen {
        row("listen", &listen.address);
    }
    if let Some(unix) = &config.unix {
        row("unix-socket", &unix.path.display());
        row("unix-mask", &format_args!("{:o}", unix.mode));
    }
    if let Some(port) = config.udp_port {
        row("udp-port", &port);
    }
    if let Some(address) = config.admin {
        row("admin-port", &address);
    }
    settings(&mut row, config);
    if let Some(file) = &config.auth_file {
        row("auth-file", &file.display());
    }
    if let Some(file) = &config.memory_file {
        row("memory-file", &file.display());
    }
    native(&mut row, config);
    if let Some(node) = &config.node {
        row("cluster", &node.cluster.name);
        row("node", &node.me.0);
        row("hot-keys", &config.hot_keys_max);
        row("leave-seconds", &flags.cluster.leave_seconds());
    }
    if let Some(disk) = &config.disk {
        row("data", &disk.dir.display());
        row("durability", &disk_flags::promise(disk.durability));
        row("disk-memory-bytes", &disk.memory_bytes);
        row("disk-threads", &disk.readers);
        row("disk-reserve-bytes", &disk.reserve_bytes);
    }
    if let Some(tier) = &config.cache_tier {
        row("tier-back-ends", &tier.map.back_ends);
        row("tier-epoch", &tier.map.epoch);
    }
    row("log-format", &flags.log_format);
    row("log-level", &flags.log_level);
    row("verbose", &config.verbosity);
    rows
}

type Row<'a> = dyn FnMut(&'static str, &dyn Display) + 'a;

fn settings(row: &mut Row<'_>, config: &Config) {
    row("memory-limit-bytes", &config.memory_bytes_max);
    row("max-item-size-bytes", &config.item_bytes_max);
    row("conn-limit", &config.connections_max);
    row("threads", &config.workers);
    row("max-reqs-per-event", &config.requests_per_turn_max);
    row("listen-backlog", &config.backlog);
    row("idle_timeout", &config.idle_timeout_seconds);
    row("read_buf_mem_limit-bytes", &config.buffer_bytes_max);
    row("watcher_logbuf_size-bytes", &config.watcher_bytes_max);
    row("worker_logbuf_size-bytes", &config.journal_bytes_max);
    row("slow_us", &config.slow_us);
    row("evictions", &config.evict);
    row("cas", &config.cas);
    row("largepages", &config.huge_pages);
    row("pin", &config.pin);
    row("maxconns_fast", &config.refuse_connections_fast);
    row("shutdown-command", &config.shutdown_allowed);
    row("flush_all-command", &config.flush_allowed);
    row("dump-commands", &config.dump_allowed);
    row("watch-command", &config.watch_allowed);
    row("policy-change", &config.policy_change_allowed);
    row("policy", &config.policy);
    row("size_threshold", &config.threshold_first());
    row("compaction", &config.compaction);
    row("size_queue", &config.large_connections_max);
    row("size_nice", &config.large_nice);
    row("size_epoch", &config.epoch_ms);
}

fn native(row: &mut Row<'_>, config: &Config) {
    let Some(native) = &config.native else {
        return;
    };
    row("native", &native.port);
    row(
        "native-mode",
        &native.mode.map_or("any", |mode| mode.name()),
    );
    if let Some(interface) = &native.interface {
        row("native-interface", interface);
    }
    row("native-queues", &native.queues);
    match native.slots {
        Some(slots) => row("native-slots", &slots),
        None => row(
            "native-slots",
            &"as many as fit into an eighth of -m, 64 to 4096",
        ),
    }
    row("native-pin", &native.pin.display());
    row("native_backlog", &native.backlog_max);
    row("native_read_wait_us", &native.read_wait_us);
    row("native_sessions", &native.sessions);
    row("native_address_sessions", &native.sessions_per_address);
    row("native_lease_ms", &native.lease_ms);
    row("native_datagram", &native.datagram_bytes_max);
    row("native_attach", &native.attach);
    row("native_placement", &native.placement);
    row("native_choice", &native.choice);
    row("native_service_us", &(native.service_ns as f64 / 1000.0));
}
