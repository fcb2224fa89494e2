//! The process, its connections, what clients asked for, and how long that took.

use crate::{
    exporter::prometheus::{
        Family,
        Unit::{Bytes, Microseconds, Nanoseconds, Whole},
        counter, found, gauge, histogram, sources,
        table::{by, of},
        workers,
    },
    log,
    metrics::counters::Count::*,
    sync::Relaxed,
};

pub(in crate::exporter::prometheus) const TABLE: &[Family] = &[
    found(
        "curtail_build_info",
        Whole,
        "The version that runs; always 1.",
        "version",
        sources::build,
    ),
    gauge(
        "curtail_uptime_seconds",
        Whole,
        "Seconds since the start.",
        &[by("", "uptime", |look| look.uptime_seconds)],
    ),
    counter(
        "curtail_cpu_seconds_total",
        Microseconds,
        "Processor time of the process, by mode.",
        &[
            by("mode=\"user\"", "rusage_user", |look| look.usage.user_us),
            by("mode=\"system\"", "rusage_system", |look| {
                look.usage.system_us
            }),
        ],
    ),
    gauge(
        "curtail_resident_memory_bytes",
        Bytes,
        "Resident memory of the process.",
        &[by("", "resident", |_| curtail_runtime::resident_bytes())],
    ),
    gauge(
        "curtail_ready",
        Whole,
        "1 if /readyz answers 200, else 0.",
        &[by("", "", |look| u64::from(look.is_ready))],
    ),
    gauge(
        "curtail_connections",
        Whole,
        "Client connections that are open.",
        &[by("", "curr_connections", |look| {
            look.shared.doors.connections_now.load(Relaxed) as u64
        })],
    ),
    gauge(
        "curtail_connections_highest",
        Whole,
        "Highest number of client connections open at once.",
        &[by("", "connection_structures", |look| {
            look.shared.doors.connections_most.load(Relaxed) as u64
        })],
    ),
    gauge(
        "curtail_connections_limit",
        Whole,
        "Client connections allowed at once (-c).",
        &[by("", "max_connections maxconns", |look| {
            look.shared.config.connections_max as u64
        })],
    ),
    counter(
        "curtail_connections_accepted_total",
        Whole,
        "Client connections accepted and given to a worker.",
        &[by("", "total_connections", |look| {
            look.shared.doors.accepted.total()
        })],
    ),
    counter(
        "curtail_connections_refused_total",
        Whole,
        "Client connections accepted and closed at once, by reason: limit (-c is reached), system \
         (the kernel did not let a worker watch the socket).",
        &[
            by("reason=\"limit\"", "rejected_connections", |look| {
                look.shared.doors.refused.total()
            }),
            by("reason=\"system\"", "", |look| {
                look.shared.doors.unwatched.total()
            }),
        ],
    ),
    counter(
        "curtail_accept_errors_total",
        Whole,
        "Attempts to accept a connection that the kernel refused, mostly for lack of descriptors; \
         the connection waits in the kernel's queue.",
        &[by("", "", |look| look.shared.doors.accept_errors.total())],
    ),
    gauge(
        "curtail_accepting_connections",
        Whole,
        "1 while connections are accepted, 0 while the limit (-c) stops accepting.",
        &[by("", "accepting_conns", |look| {
            u64::from(look.shared.doors.accepting.load(Relaxed))
        })],
    ),
    counter(
        "curtail_accept_pauses_total",
        Whole,
        "How often the connection limit stopped accepting.",
        &[by("", "listen_disabled_num", |look| {
            look.shared.doors.pauses.total()
        })],
    ),
    counter(
        "curtail_accept_paused_seconds_total",
        Microseconds,
        "Time for which the connection limit stopped accepting.",
        &[by("", "time_in_listen_disabled_us", |look| {
            look.shared.doors.disabled_us.load(Relaxed)
        })],
    ),
    counter(
        "curtail_connections_closed_total",
        Whole,
        "Connections that the server closed, by reason.",
        &[
            of("reason=\"idle\"", "idle_kicks", IdleKicks),
            of(
                "reason=\"slow_reader\"",
                "slow_readers_closed",
                SlowReadersClosed,
            ),
            of("reason=\"memory\"", "read_buf_oom", ReadNoMemory),
        ],
    ),
    counter(
        "curtail_network_bytes_total",
        Bytes,
        "Bytes on client connections, by direction.",
        &[
            of("direction=\"received\"", "bytes_read", BytesRead),
            of("direction=\"sent\"", "bytes_written", BytesWritten),
        ],
    ),
    counter(
        "curtail_network_calls_total",
        Whole,
        "System calls on client connections, by direction.",
        &[
            of("direction=\"received\"", "receives", Receives),
            of("direction=\"sent\"", "sends", Sends),
        ],
    ),
    counter(
        "curtail_connection_yields_total",
        Whole,
        "Times that a connection had more requests than one turn executes (-R).",
        &[of("", "conn_yields", ConnYields)],
    ),
    gauge(
        "curtail_buffers",
        Whole,
        "Buffers that connections hold.",
        &[by("", "read_buf_count", |look| {
            look.buffers(|gauges| &gauges.count)
        })],
    ),
    gauge(
        "curtail_buffer_bytes",
        Bytes,
        "Bytes of connection buffers, unused ones included.",
        &[by("", "read_buf_bytes", |look| {
            look.buffers(|gauges| &gauges.bytes)
        })],
    ),
    gauge(
        "curtail_buffer_unused_bytes",
        Bytes,
        "Bytes of connection buffers that no connection holds.",
        &[by("", "read_buf_bytes_free", |look| {
            look.buffers(|gauges| &gauges.bytes_unused)
        })],
    ),
    counter(
        "curtail_commands_total",
        Whole,
        "Commands as memcached counts them: a get of several keys counts each key, and a meta \
         command counts under both meta and its kind.",
        &[
            of("command=\"get\"", "cmd_get", CmdGet),
            of("command=\"set\"", "cmd_set", CmdSet),
            of("command=\"flush\"", "cmd_flush", CmdFlush),
            of("command=\"touch\"", "cmd_touch", CmdTouch),
            of("command=\"meta\"", "cmd_meta", CmdMeta),
        ],
    ),
    counter(
        "curtail_operations_total",
        Whole,
        "Operations on items, by kind and outcome.",
        &[
            of("kind=\"get\",outcome=\"hit\"", "get_hits", GetHits),
            of("kind=\"get\",outcome=\"miss\"", "get_misses", GetMisses),
            of("kind=\"touch\",outcome=\"hit\"", "touch_hits", TouchHits),
            of(
                "kind=\"touch\",outcome=\"miss\"",
                "touch_misses",
                TouchMisses,
            ),
            of("kind=\"delete\",outcome=\"hit\"", "delete_hits", DeleteHits),
            of(
                "kind=\"delete\",outcome=\"miss\"",
                "delete_misses",
                DeleteMisses,
            ),
            of("kind=\"increment\",outcome=\"hit\"", "incr_hits", IncrHits),
            of(
                "kind=\"increment\",outcome=\"miss\"",
                "incr_misses",
                IncrMisses,
            ),
            of("kind=\"decrement\",outcome=\"hit\"", "decr_hits", DecrHits),
            of(
                "kind=\"decrement\",outcome=\"miss\"",
                "decr_misses",
                DecrMisses,
            ),
            of("kind=\"cas\",outcome=\"stored\"", "cas_hits", CasHits),
            of("kind=\"cas\",outcome=\"miss\"", "cas_misses", CasMisses),
            of("kind=\"cas\",outcome=\"exists\"", "cas_badval", CasBadval),
        ],
    ),
    counter(
        "curtail_dead_items_read_total",
        Whole,
        "Reads that missed because the item had expired or been flushed, by reason.",
        &[
            by("reason=\"expired\"", "get_expired", |look| {
                look.items.get_expired
            }),
            by("reason=\"flushed\"", "get_flushed", |look| {
                look.items.get_flushed
            }),
        ],
    ),
    counter(
        "curtail_writes_refused_total",
        Whole,
        "Writes that were refused, by reason.",
        &[
            of("reason=\"too_large\"", "store_too_large", StoreTooLarge),
            of("reason=\"no_memory\"", "store_no_memory", StoreNoMemory),
        ],
    ),
    counter(
        "curtail_reads_refused_total",
        Whole,
        "Reads of large values that were refused because too many are being sent.",
        &[of("", "response_obj_oom", ReplyNoMemory)],
    ),
    counter(
        "curtail_logins_total",
        Whole,
        "Logins tried.",
        &[of("", "auth_cmds", AuthCmds)],
    ),
    counter(
        "curtail_logins_refused_total",
        Whole,
        "Logins with a wrong name or password.",
        &[of("", "auth_errors", AuthErrors)],
    ),
    histogram(
        "curtail_request_duration_seconds",
        Nanoseconds,
        "Server time of requests, by command and size class: from the receive that brought a \
         request to the reply handed to the kernel. Sampled: the requests of one turn in 64, and \
         all that a large worker served, so rates are not those of requests. A value is large \
         from curtail_size_class_boundary_bytes on.",
        "",
        sources::latency,
    ),
    gauge(
        "curtail_size_class_boundary_bytes",
        Bytes,
        "Value size from which curtail_request_duration_seconds counts a request as large; fixed \
         at the start.",
        &[by("", "", |look| {
            u64::from(look.shared.config.threshold_first())
        })],
    ),
    histogram(
        "curtail_stage_duration_seconds",
        Microseconds,
        "Time that requests spend in each stage, by stage and size. Small requests are sampled in \
         one turn of 64, those served by a large worker are all counted.",
        "stage:queue_us:* stage:execute_us:* stage:reply_us:*",
        sources::stage_times,
    ),
    histogram(
        "curtail_turn_requests_ahead",
        Whole,
        "Requests executed before a request in its turn.",
        "stage:queue_requests_ahead:*",
        sources::turn_ahead,
    ),
    histogram(
        "curtail_line_requests_ahead",
        Whole,
        "Requests executed between the queueing of a connection and its first request.",
        "stage:line_requests_ahead:*",
        sources::line_ahead,
    ),
    histogram(
        "curtail_large_queue_connections_ahead",
        Whole,
        "Connections that a large worker had when it was handed another.",
        "stage:large_queue_connections_ahead:*",
        sources::large_ahead,
    ),
    histogram(
        "curtail_reply_ahead_bytes",
        Bytes,
        "Bytes of replies sent in a turn before those of a connection, in whole KiB.",
        "stage:reply_kilobytes_ahead:*",
        sources::reply_ahead,
    ),
    histogram(
        "curtail_sampled_requests_ahead",
        Whole,
        "Requests executed before a request in its turn, by its size; sampled in one turn of 64.",
        "stage:ahead_requests:*",
        sources::sampled_ahead,
    ),
    histogram(
        "curtail_sampled_ahead_bytes",
        Bytes,
        "Bytes received, copied and sent before a request since its worker last polled, by its \
         size, in whole KiB; sampled in one turn of 64.",
        "stage:ahead_kilobytes:*",
        sources::sampled_bytes_ahead,
    ),
    histogram(
        "curtail_turn_cpu_seconds",
        Nanoseconds,
        "Processor time of turns, by worker; sampled: one turn of 64, and all with maintenance.",
        "worker:*:turn_cpu_us_* large:*:turn_cpu_us_*",
        sources::turn_times,
    ),
    workers(
        "curtail_turn_cpu_highest_seconds",
        Nanoseconds,
        "Longest sampled turn of a worker, in processor time, since the last `stats reset`.",
        "worker:*:turn_cpu_us_max large:*:turn_cpu_us_max",
        |worker| worker.turns.ns_max(),
    ),
    gauge(
        "curtail_watchers",
        Whole,
        "Connections that sent `watch`.",
        &[by("", "log_watchers", |look| {
            look.shared.watchers.count() as u64
        })],
    ),
    counter(
        "curtail_log_lines_dropped_total",
        Whole,
        "Lines of the server's own log that were dropped because its output was too slow.",
        &[by("", "log_lines_dropped", |_| log::dropped())],
    ),
    counter(
        "curtail_slow_requests_total",
        Whole,
        "Requests that took at least the threshold of the slow log; 0 while it is off.",
        &[by("", "slow_requests", |look| look.shared.slow.total())],
    ),
    counter(
        "curtail_watch_lines_total",
        Whole,
        "Lines for watchers, by outcome: written, or dropped because the worker's buffer was full.",
        &[
            by("outcome=\"written\"", "log_worker_written", |look| {
                look.shared.watchers.counts.worker_written.total()
            }),
            by("outcome=\"dropped\"", "log_worker_dropped", |look| {
                look.shared.watchers.counts.worker_dropped.total()
            }),
        ],
    ),
    counter(
        "curtail_watcher_lines_total",
        Whole,
        "Lines for one watcher, by outcome: sent, or skipped because it did not read.",
        &[
            by("outcome=\"sent\"", "log_watcher_sent", |look| {
                look.shared.watchers.counts.watcher_sent.total()
            }),
            by("outcome=\"skipped\"", "log_watcher_skipped", |look| {
                look.shared.watchers.counts.watcher_skipped.total()
            }),
        ],
    ),
];
