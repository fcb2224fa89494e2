//! The native datagram path, if it is on.

use crate::{
    exporter::prometheus::{Family, Row, Samples, Source, found, label, sources::Look},
    native::{
        Native,
        NativeCount::{self, *},
        NativeCounts, NativeQueues, QueueEarly,
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

pub(super) const fn of(count: NativeCount) -> Row {
    (count.name(), Source::NativeCount(count))
}

const fn by(stat: &'static str, read: fn(&NativeLook) -> u64) -> Row {
    (stat, Source::Native(read))
}

pub(super) const TABLE: &[Family] = families! {
    Gauge curtail_native_info "The label has the mode in which native writes are acknowledged; \
                               always 1.":
        found("native:mode", mode);
    Counter curtail_native_accepted_total "Native writes acknowledged before they were executed.":
        by("native:accepted", |native| native.queues.accepted);
    Counter curtail_native_queued_total "Native writes queued without early acknowledgement.":
        by("native:queued", |native| native.queues.queued);
    Counter curtail_native_found_full_total
        "Native writes refused because their queue was full, by the server or, in mode xdp, by the \
         program in the kernel.":
        by("native:found_full", |native| native.queues.found_full);
    Gauge curtail_native_queue_depth "Native writes waiting to be executed, by queue.":
        found("native:queue:*:depth native:backlog native:backlog_max", depths);
    Gauge curtail_native_early_limit
        "If this many native writes wait in a queue, further ones are acknowledged only after \
         execution; by queue.":
        found("native:early_limit", limits);
    Gauge curtail_native_execution_seconds in Nanoseconds
        "Time to execute one native write, a moving average, by queue.":
        found("native:execution_ns", execution_times);
    Gauge curtail_native_early_credits_bytes in Bytes
        "Bytes of native writes that the server may still acknowledge before execution, by queue. \
         The metric exists only if the early limit, multiplied by the length of the longest \
         write, is more than an eighth of -m.":
        found("native:queue:*:credits", credits);
    Gauge curtail_native_acknowledges_early
        "0 after a queued write was found damaged (from then on no write is acknowledged \
         before it is executed), else 1.":
        by("", |native| u64::from(native.corrupt == 0));
    Counter curtail_native_corrupt_total
        "Native writes whose bytes were damaged in a queue, before they were executed; must stay \
         0.":
        of(CorruptAfterAck);
    Counter curtail_native_datagrams_total "Datagrams of the native protocol, by direction.":
        {direction="received"} of(Received),
        {direction="sent"} of(Sent);
    Counter curtail_native_receive_calls_total "System calls that received native datagrams.":
        of(Receives);
    Counter curtail_native_lost_sending_total
        "Native datagrams not sent because the kernel's buffer was full.":
        of(LostSending);
    Counter curtail_native_executed_total "Queued native writes that were executed.":
        of(Executed);
    Counter curtail_native_compacted_total
        "Queued native writes that were executed as one with a later set of the same key.":
        of(Compacted);
    Counter curtail_native_leases_total "Times that a worker claimed a queue to execute its \
                                         writes.":
        of(Leases);
    Counter curtail_native_helped_total
        "Times that a thread executed a queue because a read, or a write outside the queues, \
         waited for it.":
        of(Helped);
    Counter curtail_native_reacknowledged_total
        "Repeated native writes that were acknowledged again.":
        of(Reacknowledged);
    Counter curtail_native_replayed_total "Repeated native requests whose result was sent again.":
        of(Replayed);
    Counter curtail_native_refused_total
        "Native requests that the server itself refused, by reason: full (their queue), not_ready \
         (the server starts or stops), busy (too many requests wait). Refusals of the program in \
         the kernel (mode xdp) are not in it.":
        {reason="full"} of(NackFull),
        {reason="not_ready"} of(NackNotReady),
        {reason="busy"} of(NackBusy);
    Counter curtail_native_errors_total "Native datagrams answered with an error.":
        of(Errors);
    Counter curtail_native_dropped_total
        "Native datagrams dropped, by reason: foreign (not of this protocol), stale (a \
         repeated request that is still in progress, or an old request whose place in its \
         session a newer request has taken), handshakes (too many in a second), absent (mode xdp: \
         the server's heartbeat stopped).":
        {reason="foreign"} of(DroppedForeign),
        {reason="stale"} of(DroppedStale),
        {reason="handshakes"} of(DroppedHandshakes),
        {reason="absent"} of(DroppedAbsent);
    Counter curtail_native_cookies_total "Cookies sent to clients that begin a session.":
        of(Cookies);
    Counter curtail_native_sessions_granted_total
        "Native sessions granted; a repeated handshake may count twice.":
        of(Grants);
    Counter curtail_native_sessions_refused_total "Native sessions refused, because there are \
                                                   too many, in all or from one address.":
        of(GrantsRefused);
    Counter curtail_native_gets_total "Reads over the native protocol, by outcome.":
        {outcome="hit"} of(GetHits),
        {outcome="miss"} of(GetMisses);
    Counter curtail_native_forwarded_total "Native reads answered from a queue.":
        of(Forwarded);
    Counter curtail_native_parked_total "Native reads that waited until earlier writes of their \
                                         queue were executed.":
        of(Parked);
    Counter curtail_native_stolen_total "Native requests that a worker took from another worker \
                                         (-o native_placement=stealing).":
        of(Stolen);
    Counter curtail_native_direct_writes_total
        "Native writes that were executed without a queue: those over TCP, and flushes.":
        of(Direct);
};

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

fn limits(look: &Look<'_>, samples: &mut Samples<'_>) {
    by_queue(look, samples, |early| Some(early.limit));
}

fn execution_times(look: &Look<'_>, samples: &mut Samples<'_>) {
    by_queue(look, samples, |early| Some(early.execution_ns));
}

fn credits(look: &Look<'_>, samples: &mut Samples<'_>) {
    by_queue(look, samples, |early| early.credits);
}

fn by_queue(look: &Look<'_>, samples: &mut Samples<'_>, number: fn(&QueueEarly) -> Option<u64>) {
    let native = look.native.iter();
    for (queue, early) in native.flat_map(|native| &native.queues.early).enumerate() {
        if let Some(number) = number(early) {
            samples.add(&format!("queue=\"{queue}\""), number);
        }
    }
}
