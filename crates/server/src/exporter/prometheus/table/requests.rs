//! The process, its connections, what clients asked for, and how long that took.

use crate::{
    exporter::prometheus::{Family, by, each, found, native::of as of_native, of, sources, stage},
    log,
    metrics::{counters::Count::*, stage_histograms::StageName::*},
    native::NativeCount,
    sync::Relaxed,
};

pub(in crate::exporter::prometheus) const TABLE: &[Family] = families! {
    Gauge curtail_build_info "The version that runs; always 1.":
        found("version", sources::build);
    Gauge curtail_uptime_seconds "Seconds since the start.":
        by("uptime", |look| look.uptime_seconds);
    Counter curtail_cpu_seconds_total in Microseconds "Processor time of the process, by mode.":
        {mode="user"} by("rusage_user", |look| look.usage.user_us),
        {mode="system"} by("rusage_system", |look| look.usage.system_us);
    Gauge curtail_resident_memory_bytes in Bytes "Resident memory of the process.":
        by("resident", |_| curtail_runtime::resident_bytes());
    Gauge curtail_ready "1 if /readyz answers 200 (the server is ready for new clients), else 0.":
        by("", |look| u64::from(look.is_ready));
    Gauge curtail_connections "Client connections that are open.":
        by("curr_connections", |look| look.shared.doors.connections_now.load(Relaxed) as u64);
    Gauge curtail_connections_highest "Highest number of client connections that were open at \
                                       the same time.":
        by("connection_structures", |look| look.shared.doors.connections_most.load(Relaxed) as u64);
    Gauge curtail_connections_limit "Client connections that may be open at the same time (-c).":
        by("max_connections maxconns", |look| look.shared.config.connections_max as u64);
    Counter curtail_connections_accepted_total "Client connections accepted and given to a worker.":
        by("total_connections", |look| look.shared.doors.accepted.total());
    Counter curtail_connections_refused_total
        "Client connections that were closed immediately after they were accepted, by reason: \
         limit (-c is reached), system (the kernel did not let a worker watch the socket).":
        {reason="limit"} by("rejected_connections", |look| look.shared.doors.refused.total()),
        {reason="system"} by("", |look| look.shared.doors.unwatched.total());
    Counter curtail_accept_errors_total
        "Attempts to accept a connection that failed, mostly for lack of file descriptors; the \
         connection stays in the kernel's queue.":
        by("", |look| look.shared.doors.accept_errors.total());
    Gauge curtail_accepting_connections
        "1 while the server accepts connections, 0 while it does not because the limit (-c) is \
         reached.":
        by("accepting_conns", |look| u64::from(look.shared.doors.accepting.load(Relaxed)));
    Counter curtail_accept_pauses_total "Times that the server stopped accepting connections \
                                         because the limit (-c) was reached.":
        by("listen_disabled_num", |look| look.shared.doors.pauses.total());
    Counter curtail_accept_paused_seconds_total in Microseconds
        "Time for which the server accepted no connections because the limit (-c) was reached.":
        by("time_in_listen_disabled_us", |look| look.shared.doors.disabled_us.load(Relaxed));
    Counter curtail_connections_closed_total
        "Connections that the server closed, by reason: idle (-o idle_timeout), slow_reader (the \
         client did not read values above 1 KiB), memory (no memory for a buffer).":
        {reason="idle"} of(IdleKicks),
        {reason="slow_reader"} of(SlowReadersClosed),
        {reason="memory"} of(ReadNoMemory);
    Counter curtail_network_bytes_total in Bytes "Bytes on client connections, by direction.":
        {direction="received"} of(BytesRead),
        {direction="sent"} of(BytesWritten);
    Counter curtail_network_calls_total "System calls on client connections, by direction.":
        {direction="received"} of(Receives),
        {direction="sent"} of(Sends);
    Counter curtail_connection_yields_total
        "Times that a connection had more requests than its worker executes for it in one turn \
         (-R).":
        of(ConnYields);
    Gauge curtail_buffers "Number of buffers that connections use.":
        by("read_buf_count", |look| look.shared.buffers_total(|gauges| &gauges.count));
    Gauge curtail_buffer_bytes in Bytes "Bytes of all connection buffers, including those that \
                                         no connection uses.":
        by("read_buf_bytes", |look| look.shared.buffers_total(|gauges| &gauges.bytes));
    Gauge curtail_buffer_unused_bytes in Bytes
        "Bytes of connection buffers that no connection uses.":
        by("read_buf_bytes_free", |look| look.shared.buffers_total(|gauges| &gauges.bytes_unused));
    Counter curtail_commands_total
        "Commands as memcached counts them: a get of several keys counts once for each key, and \
         a meta command counts as meta and also as its kind.":
        {command="get"} of(CmdGet),
        {command="set"} of(CmdSet),
        {command="flush"} of(CmdFlush),
        {command="touch"} of(CmdTouch),
        {command="meta"} of(CmdMeta);
    Counter curtail_operations_total "Operations on items, by kind and outcome.":
        {kind="get", outcome="hit"} of(GetHits),
        {kind="get", outcome="miss"} of(GetMisses),
        {kind="touch", outcome="hit"} of(TouchHits),
        {kind="touch", outcome="miss"} of(TouchMisses),
        {kind="delete", outcome="hit"} of(DeleteHits),
        {kind="delete", outcome="miss"} of(DeleteMisses),
        {kind="increment", outcome="hit"} of(IncrHits),
        {kind="increment", outcome="miss"} of(IncrMisses),
        {kind="decrement", outcome="hit"} of(DecrHits),
        {kind="decrement", outcome="miss"} of(DecrMisses),
        {kind="cas", outcome="stored"} of(CasHits),
        {kind="cas", outcome="miss"} of(CasMisses),
        {kind="cas", outcome="exists"} of(CasBadval);
    Counter curtail_dead_items_read_total
        "Reads that missed because the item had expired or was removed by flush_all, by reason.":
        {reason="expired"} by("get_expired", |look| look.items.get_expired),
        {reason="flushed"} by("get_flushed", |look| look.items.get_flushed);
    Counter curtail_writes_refused_total
        "Writes that were refused, by reason: too_large (above -I), no_memory (the store is full, \
         and -M is given or nothing could be evicted; for protocol native also accepted writes \
         that were lost).":
        {reason="too_large"} of(StoreTooLarge),
        {reason="no_memory"} of(StoreNoMemory),
        {reason="no_memory", protocol="native"} of_native(NativeCount::NoMemory);
    Counter curtail_reads_refused_total
        "Reads of values above 1 KiB that were refused because too many are being sent.":
        of(ReplyNoMemory);
    Counter curtail_logins_total "Login attempts.":
        of(AuthCmds);
    Counter curtail_logins_refused_total "Login attempts with a wrong name or password.":
        of(AuthErrors);
    Histogram curtail_request_duration_seconds in Nanoseconds
        "Time of requests in the server, by command and size class: from the start of the \
         worker's turn until the worker has given the reply to the kernel. Only the requests of \
         one turn in 64 and those served by a large worker are measured, so the count is not the \
         number of requests. A request is large if its value has at least \
         curtail_size_class_boundary_bytes.":
        found("", sources::latency);
    Gauge curtail_size_class_boundary_bytes in Bytes
        "Value size from which curtail_request_duration_seconds counts a request as large; it \
         does not change while the server runs.":
        by("", |look| u64::from(look.shared.config.threshold_first()));
    Histogram curtail_stage_duration_seconds in Microseconds
        "Time of requests by size and stage: queue (until the worker executes the turn's \
         requests), execute, and reply (until the kernel has the reply). Every request that a \
         large worker serves is measured. Of the others only those of one turn in 64 are \
         measured; each gets the durations of its turn.":
        {stage="queue", size="small"} stage("stage:queue_us:small:*", QueueSmall),
        {stage="queue", size="large"} stage("stage:queue_us:large:*", QueueLarge),
        {stage="execute", size="small"} stage("stage:execute_us:small:*", ExecuteSmall),
        {stage="execute", size="large"} stage("stage:execute_us:large:*", ExecuteLarge),
        {stage="reply", size="small"} stage("stage:reply_us:small:*", ReplySmall),
        {stage="reply", size="large"} stage("stage:reply_us:large:*", ReplyLarge);
    Histogram curtail_turn_requests_ahead "Requests that were executed before a request in the \
                                           same turn.":
        stage("stage:queue_requests_ahead:*", Queue);
    Histogram curtail_line_requests_ahead
        "For each connection that was served in a turn: requests of other connections that the \
         worker received while this one waited.":
        stage("stage:line_requests_ahead:*", Line);
    Histogram curtail_large_queue_connections_ahead
        "Connections that a large worker had when another connection was handed to it.":
        stage("stage:large_queue_connections_ahead:*", LargeQueue);
    Histogram curtail_reply_ahead_bytes in Bytes
        "Bytes, rounded down to KiB, of replies to other connections that were sent before a \
         connection's replies in the same turn.":
        stage("stage:reply_kilobytes_ahead:*", Reply);
    Histogram curtail_sampled_requests_ahead
        "As curtail_turn_requests_ahead, but for one turn in 64, and by the size of the request \
         that waited.":
        {size="small"} stage("stage:ahead_requests:small:*", AheadSmall),
        {size="large"} stage("stage:ahead_requests:large:*", AheadLarge);
    Histogram curtail_sampled_ahead_bytes in Bytes
        "For each request of one turn in 64, by its size: bytes of values, rounded down to KiB, \
         that the worker received and sent in this turn before it executed the request.":
        {size="small"} stage("stage:ahead_kilobytes:small:*", KilobytesSmall),
        {size="large"} stage("stage:ahead_kilobytes:large:*", KilobytesLarge);
    Histogram curtail_turn_cpu_seconds in Nanoseconds
        "Processor time of turns (passes of a worker's event loop), by worker; measured in one \
         turn of 64 and in every turn that follows background maintenance.":
        found("worker:*:turn_cpu_us_* large:*:turn_cpu_us_*", sources::turn_times);
    Gauge curtail_turn_cpu_highest_seconds in Nanoseconds
        "Longest measured turn of a worker, in processor time, since the start or the last \
         `stats reset`.":
        each("worker:*:turn_cpu_us_max large:*:turn_cpu_us_max", |worker| worker.turns.ns_max());
    Gauge curtail_watchers "Connections that receive the lines of `watch`.":
        by("log_watchers", |look| look.shared.watchers.count() as u64);
    Counter curtail_log_lines_dropped_total
        "Lines of the server's log that were dropped because standard error did not take them \
         fast enough.":
        by("log_lines_dropped", |_| log::dropped());
    Counter curtail_slow_requests_total
        "Requests that took at least as long as the threshold of the slow log, counted while the \
         log was on.":
        by("slow_requests", |look| look.shared.slow.total());
    Counter curtail_watch_lines_total
        "Lines that workers made for clients of `watch`, by outcome: written, or dropped because \
         the worker's buffer was full.":
        {outcome="written"} by("log_worker_written", |look| {
            look.shared.watchers.counts.worker_written.total()
        }),
        {outcome="dropped"} by("log_worker_dropped", |look| {
            look.shared.watchers.counts.worker_dropped.total()
        });
    Counter curtail_watcher_lines_total
        "Lines for clients of `watch`, counted once for each client, by outcome: sent, or \
         skipped because the client did not read.":
        {outcome="sent"} by("log_watcher_sent", |look| {
            look.shared.watchers.counts.watcher_sent.total()
        }),
        {outcome="skipped"} by("log_watcher_skipped", |look| {
            look.shared.watchers.counts.watcher_skipped.total()
        });
};
