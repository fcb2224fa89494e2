//! The native datagram path, if it is on.

use crate::{
    exporter::prometheus::{
        Family, Row, Samples, Source, Unit::Whole, counter, found, gauge, label, sources::Look,
    },
    native::{
        Native,
        NativeCount::{self, *},
        NativeCounts, NativeQueues,
    },
};

/// Its numbers.
pub(super) struct NativeLook {
    pub(super) counts: NativeCounts,
    queues: NativeQueues,
    mode: &'static str,
    corrupt: u64,
}

impl NativeLook {
    pub(super) fn new(native: &Native) -> Self {
        Self {
            counts: native.counts_total(),
            queues: native.queues(),
            mode: native.mode.name(),
            corrupt: native.corrupt(),
        }
    }
}

const fn of(labels: &'static str, stat: &'static str, count: NativeCount) -> Row {
    (labels, stat, Source::NativeCount(count))
}

const fn by(labels: &'static str, stat: &'static str, read: fn(&NativeLook) -> u64) -> Row {
    (labels, stat, Source::Native(read))
}

pub(super) const TABLE: &[Family] = &[
    found(
        "curtail_native_info",
        Whole,
        "Mode in which native writes are acknowledged; always 1.",
        "native:mode",
        mode,
    ),
    counter(
        "curtail_native_accepted_total",
        Whole,
        "Native writes acknowledged before they were executed.",
        &[by("", "native:accepted", |native| native.queues.accepted)],
    ),
    counter(
        "curtail_native_queued_total",
        Whole,
        "Native writes acknowledged after execution.",
        &[by("", "native:queued", |native| native.queues.queued)],
    ),
    counter(
        "curtail_native_found_full_total",
        Whole,
        "Native writes that found their queue full.",
        &[by("", "native:found_full", |native| {
            native.queues.found_full
        })],
    ),
    found(
        "curtail_native_queue_depth",
        Whole,
        "Native writes waiting to be executed, by queue.",
        "native:queue:*:depth native:backlog native:backlog_max",
        depths,
    ),
    gauge(
        "curtail_native_acknowledges_early",
        Whole,
        "1 while writes may be acknowledged early, 0 since a damaged one was found.",
        &[by("", "", |native| u64::from(native.corrupt == 0))],
    ),
    counter(
        "curtail_native_corrupt_total",
        Whole,
        "Accepted writes whose bytes were damaged before they were executed; must stay 0.",
        &[of("", "native:corrupt_after_ack", CorruptAfterAck)],
    ),
    counter(
        "curtail_native_datagrams_total",
        Whole,
        "Datagrams of the native path, by direction.",
        &[
            of("direction=\"received\"", "native:received", Received),
            of("direction=\"sent\"", "native:sent", Sent),
        ],
    ),
    counter(
        "curtail_native_receive_calls_total",
        Whole,
        "System calls that received native datagrams.",
        &[of("", "native:receives", Receives)],
    ),
    counter(
        "curtail_native_lost_sending_total",
        Whole,
        "Native datagrams not sent because the kernel's buffer was full.",
        &[of("", "native:lost_sending", LostSending)],
    ),
    counter(
        "curtail_native_executed_total",
        Whole,
        "Queued native writes that were executed.",
        &[of("", "native:executed", Executed)],
    ),
    counter(
        "curtail_native_compacted_total",
        Whole,
        "Queued native writes superseded by a later one of their key before execution.",
        &[of("", "native:compacted", Compacted)],
    ),
    counter(
        "curtail_native_leases_total",
        Whole,
        "Times that a worker took the lease of a queue.",
        &[of("", "native:leases", Leases)],
    ),
    counter(
        "curtail_native_helped_total",
        Whole,
        "Times that a thread executed a queue on behalf of a waiting read or direct write.",
        &[of("", "native:helped", Helped)],
    ),
    counter(
        "curtail_native_reacknowledged_total",
        Whole,
        "Repeated native writes that were acknowledged again.",
        &[of("", "native:reacknowledged", Reacknowledged)],
    ),
    counter(
        "curtail_native_replayed_total",
        Whole,
        "Repeated native requests whose result was sent again.",
        &[of("", "native:replayed", Replayed)],
    ),
    counter(
        "curtail_native_refused_total",
        Whole,
        "Native requests refused, by reason: full (their queue), not_ready (the server starts or \
         stops), busy (too many reads wait).",
        &[
            of("reason=\"full\"", "native:nack_full", NackFull),
            of(
                "reason=\"not_ready\"",
                "native:nack_not_ready",
                NackNotReady,
            ),
            of("reason=\"busy\"", "native:nack_busy", NackBusy),
        ],
    ),
    counter(
        "curtail_native_errors_total",
        Whole,
        "Native datagrams answered with an error.",
        &[of("", "native:errors", Errors)],
    ),
    counter(
        "curtail_native_dropped_total",
        Whole,
        "Native datagrams dropped, by reason: foreign (not of this protocol), stale (in progress \
         or superseded), handshakes (above the rate), absent (the server's heartbeat stopped).",
        &[
            of(
                "reason=\"foreign\"",
                "native:dropped_foreign",
                DroppedForeign,
            ),
            of("reason=\"stale\"", "native:dropped_stale", DroppedStale),
            of(
                "reason=\"handshakes\"",
                "native:dropped_handshakes",
                DroppedHandshakes,
            ),
            of("reason=\"absent\"", "native:dropped_absent", DroppedAbsent),
        ],
    ),
    counter(
        "curtail_native_cookies_total",
        Whole,
        "Cookies sent to clients that begin a session.",
        &[of("", "native:cookies", Cookies)],
    ),
    counter(
        "curtail_native_sessions_granted_total",
        Whole,
        "Sessions granted; a repeated handshake may count twice.",
        &[of("", "native:grants", Grants)],
    ),
    counter(
        "curtail_native_sessions_refused_total",
        Whole,
        "Sessions refused.",
        &[of("", "native:grants_refused", GrantsRefused)],
    ),
    counter(
        "curtail_native_gets_total",
        Whole,
        "Reads over the native path, by outcome.",
        &[
            of("outcome=\"hit\"", "native:get_hits", GetHits),
            of("outcome=\"miss\"", "native:get_misses", GetMisses),
        ],
    ),
    counter(
        "curtail_native_forwarded_total",
        Whole,
        "Native reads answered from a queue.",
        &[of("", "native:forwarded", Forwarded)],
    ),
    counter(
        "curtail_native_parked_total",
        Whole,
        "Native reads that waited for a queue to be executed.",
        &[of("", "native:parked", Parked)],
    ),
    counter(
        "curtail_native_stolen_total",
        Whole,
        "Native requests that a worker stole from another one.",
        &[of("", "native:stolen", Stolen)],
    ),
    counter(
        "curtail_native_direct_writes_total",
        Whole,
        "Native writes executed without a queue: over TCP, and flushes.",
        &[of("", "native:direct", Direct)],
    ),
];

fn mode(look: &Look<'_>, samples: &mut Samples<'_>) {
    if let Some(native) = &look.native {
        samples.add(&label("mode", native.mode), 1);
    }
}

fn depths(look: &Look<'_>, samples: &mut Samples<'_>) {
    let native = look.native.iter();
    for (queue, depth) in native.flat_map(|native| &native.queues.depths).enumerate() {
        samples.add(&format!("queue=\"{queue}\""), *depth);
    }
}
