//! `stats settings`: the options of the start under memcached's names.

use crate::{
    admin::{commands::shown_path, stats::Report},
    config::Config,
    sync::Relaxed,
    worker::shared::Shared,
};

/// `stats settings`.
pub(crate) fn settings(shared: &Shared) -> Vec<u8> {
    let config = &shared.config;
    let mut report = Report::default();
    report.stat("maxbytes", shared.store.memory().limit);
    report.stat("maxconns", config.connections_max);
    addresses(&mut report, shared);
    limits(&mut report, config, shared);
    memory(&mut report, config, shared);
    report.stat("idle_timeout", config.idle_timeout_seconds);
    report.stat("watcher_logbuf_size", config.watcher_bytes_max);
    report.stat("worker_logbuf_size", config.journal_bytes_max);
    report.stat("read_buf_mem_limit", config.buffer_bytes_max);
    report.stat("track_sizes", yes(config.echoed.track_sizes));
    report.stat("inline_ascii_response", "no");
    report.stat("ssl_enabled", "no");
    report.stat("num_napi_ids", "(null)");
    report.stat("memory_file", shown_path(config.memory_file.as_deref()));
    report.end()
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn addresses(report: &mut Report, shared: &Shared) {
    let config = &shared.config;
    let unix = config.unix.as_ref();
    let socket = unix.map(|unix| unix.path.display().to_string());
    report.stat("tcpport", config.echoed.tcp_port);
    report.stat("udpport", config.udp_port.unwrap_or(0));
    let interface = config.echoed.interface.as_deref();
    report.stat("inter", interface.unwrap_or("NULL"));
    report.stat("verbosity", shared.verbosity.load(Relaxed));
    report.stat("oldest", 0);
    report.stat("evictions", if config.evict { "on" } else { "off" });
    report.stat("domain_socket", socket.as_deref().unwrap_or("NULL"));
    let mode = unix.map_or(0o700, |unix| unix.mode);
    report.stat("umask", format_args!("{mode:o}"));
    report.stat("shutdown_command", yes(config.shutdown_allowed));
}

fn limits(report: &mut Report, config: &Config, shared: &Shared) {
    let echoed = &config.echoed;
    report.stat("growth_factor", format_args!("{:.2}", echoed.growth_factor));
    report.stat("chunk_size", echoed.chunk_bytes);
    report.stat("num_threads", config.workers);
    report.stat("num_threads_per_udp", 0);
    report.stat("stat_key_prefix", char::from(config.prefix_delimiter));
    report.stat("detail_enabled", yes(shared.prefixes.is_on()));
    report.stat("reqs_per_event", config.requests_per_turn_max);
    report.stat("cas_enabled", yes(config.cas));
    report.stat("tcp_backlog", config.backlog);
    report.stat("binding_protocol", echoed.protocol);
    report.stat("auth_enabled_sasl", "no");
    let auth_file = config.auth_file.as_deref();
    let auth_file = auth_file.map(|path| path.display().to_string());
    report.stat("auth_enabled_ascii", auth_file.as_deref().unwrap_or("no"));
    report.stat("item_size_max", config.item_bytes_max);
    report.stat("maxconns_fast", yes(config.refuse_connections_fast));
}

fn memory(report: &mut Report, config: &Config, shared: &Shared) {
    let echoed = &config.echoed;
    report.stat("hashpower_init", echoed.hash_power_initial);
    report.stat("slab_reassign", "no");
    report.stat("slab_automove", 0);
    report.stat("slab_automove_ratio", "0.80");
    report.stat("slab_automove_window", 30);
    report.stat("slab_chunk_max", echoed.slab_chunk_bytes_max);
    report.stat("lru_crawler", yes(shared.crawler.enabled.load(Relaxed)));
    report.stat("lru_crawler_sleep", shared.crawler.sleep_us.load(Relaxed));
    report.stat(
        "lru_crawler_tocrawl",
        shared.crawler.crawl_items_max.load(Relaxed),
    );
    report.stat("tail_repair_time", echoed.tail_repair_seconds);
    report.stat("flush_enabled", yes(config.flush_allowed));
    report.stat("dump_enabled", yes(config.dump_allowed));
    report.stat("hash_algorithm", "siphash13");
    report.stat("lru_maintainer_thread", yes(echoed.lru_maintainer));
    report.stat("lru_segmented", "no");
    report.stat("hot_lru_pct", 20);
    report.stat("warm_lru_pct", 40);
    report.stat("hot_max_factor", "0.20");
    report.stat("warm_max_factor", "2.00");
    report.stat("temp_lru", yes(echoed.temporary_ttl_seconds.is_some()));
    report.stat("temporary_ttl", echoed.temporary_ttl_seconds.unwrap_or(61));
}
