//! Workers, and what decides where they run requests.

use crate::{
    exporter::prometheus::{
        Family,
        Unit::{Bytes, Ratio, Whole},
        counter, found, gauge, sources,
        table::{by, of},
        workers,
    },
    metrics::counters::Count::*,
    worker::shared::WorkerHandle,
};

const fn each(
    name: &'static str,
    help: &'static str,
    stat: &'static str,
    read: fn(&WorkerHandle) -> u64,
) -> Family {
    workers(name, Whole, help, stat, read)
}

pub(in crate::exporter::prometheus) const TABLE: &[Family] = &[
    gauge(
        "curtail_workers",
        Whole,
        "Worker threads, by what they serve.",
        &[
            by("role=\"small\"", "threads num_threads", |look| {
                look.shared.small_workers().len() as u64
            }),
            by("role=\"large\"", "", |look| {
                look.shared.large_workers().len() as u64
            }),
        ],
    ),
    each(
        "curtail_requests_total",
        "Requests, by worker.",
        "requests worker:*:requests large:*:requests",
        |worker| worker.count(Requests),
    ),
    each(
        "curtail_turns_total",
        "Turns of the event loop, by worker.",
        "turns worker:*:turns large:*:turns",
        |worker| worker.count(Turns),
    ),
    each(
        "curtail_hand_offs_total",
        "Connections handed to large workers, by worker that did.",
        "hand_offs worker:*:hand_offs large:*:hand_offs",
        |worker| worker.count(HandOffs),
    ),
    each(
        "curtail_delegations_total",
        "Requests given to another worker to run, by worker that did.",
        "delegations worker:*:delegations large:*:delegations",
        |worker| worker.count(Delegations),
    ),
    each(
        "curtail_writes_compacted_total",
        "Writes answered together with a later write of their key, by worker.",
        "writes_compacted worker:*:writes_compacted large:*:writes_compacted",
        |worker| worker.count(Compacted),
    ),
    each(
        "curtail_worker_queue_depth",
        "Connections that found no room in a worker's last turn, and its mailbox.",
        "worker:*:queue_depth large:*:queue_depth",
        |worker| worker.queue_depth() as u64,
    ),
    each(
        "curtail_worker_mailbox_depth",
        "Messages of other threads that a worker has not taken.",
        "worker:*:mailbox large:*:mailbox",
        |worker| worker.mail.depth() as u64,
    ),
    found(
        "curtail_worker_connections",
        Whole,
        "Connections that a worker has.",
        "worker:*:connections large:*:connections",
        sources::worker_connections,
    ),
    found(
        "curtail_large_starvation_boosts_total",
        Whole,
        "How often a large worker that got no processor was raised, by worker.",
        "large:*:lifts",
        sources::boosts,
    ),
    found(
        "curtail_policy_info",
        Whole,
        "The policy in force; always 1.",
        "policy",
        sources::policy,
    ),
    counter(
        "curtail_plans_total",
        Whole,
        "Policies and plans put in force, the first included.",
        &[by("", "regime", |look| look.snapshot.generation)],
    ),
    counter(
        "curtail_plan_epochs_total",
        Whole,
        "Plans that the size control has made.",
        &[by("", "plan_epoch", |look| look.snapshot.plan.epoch)],
    ),
    gauge(
        "curtail_size_threshold_bytes",
        Bytes,
        "From which value size on the plan in force has a request as large.",
        &[by("", "threshold", |look| {
            u64::from(look.snapshot.plan.threshold)
        })],
    ),
    gauge(
        "curtail_plan_cores",
        Whole,
        "Cores by role in the plan in force.",
        &[
            by("role=\"small\"", "small_cores", |look| {
                u64::from(look.snapshot.plan.small)
            }),
            by("role=\"large\"", "large_cores", |look| {
                u64::from(look.snapshot.plan.cores - look.snapshot.plan.small)
            }),
        ],
    ),
    gauge(
        "curtail_plan_standby",
        Whole,
        "1 if the plan in force sets no core aside for large requests.",
        &[by("", "standby", |look| {
            u64::from(look.snapshot.plan.standby().is_some())
        })],
    ),
    found(
        "curtail_plan_large_from_bytes",
        Bytes,
        "From which value size on each large core of the plan serves.",
        "large:*:from_bytes",
        sources::large_ranges,
    ),
    gauge(
        "curtail_spinning",
        Whole,
        "1 if workers may look again before they sleep.",
        &[by("", "spinning", |look| u64::from(look.shared.spins))],
    ),
    counter(
        "curtail_spins_total",
        Whole,
        "Times a worker looked again before it slept, by whether it found something.",
        &[
            of("outcome=\"found\"", "spins_found", SpinsFound),
            of("outcome=\"vain\"", "spins_in_vain", SpinsInVain),
        ],
    ),
    counter(
        "curtail_delegations_refused_total",
        Whole,
        "Requests run where they arrived because too many were with other workers.",
        &[of("", "delegations_refused", DelegationsRefused)],
    ),
    counter(
        "curtail_delegation_batches_total",
        Whole,
        "Batches of requests sent to other workers.",
        &[of("", "parcels_sent", DelegatedBatchesSent)],
    ),
    counter(
        "curtail_delegation_batches_reclaimed_total",
        Whole,
        "Batches taken back because their worker did not come to them.",
        &[of("", "parcels_taken_back", DelegatedBatchesTakenBack)],
    ),
    counter(
        "curtail_late_releases_total",
        Whole,
        "Partitions given back later than at the end of their request.",
        &[of("", "late_releases", LateReleases)],
    ),
    counter(
        "curtail_hand_offs_relieved_total",
        Whole,
        "Connections that another large worker took than the plan says, because that one had a \
         queue.",
        &[of("", "hand_offs_relieved", HandOffsRelieved)],
    ),
    counter(
        "curtail_large_refused_total",
        Whole,
        "Large requests answered with `busy` because all large workers were full.",
        &[of("", "large_refused", LargeRefused)],
    ),
    counter(
        "curtail_small_behind_large_total",
        Whole,
        "Small requests that waited for something large in their worker.",
        &[of("", "small_behind_large", SmallBehindLarge)],
    ),
    counter(
        "curtail_connections_rebalanced_total",
        Whole,
        "Connections given to a worker with less to do.",
        &[of("", "connections_moved", ConnectionsMoved)],
    ),
    // Shares without the keys: those are clients' data, and each would be a series of its own.
    found(
        "curtail_hot_key_share_ratio",
        Ratio,
        "Share of all requests, by rank of their key among the hottest.",
        "hot_key:*",
        sources::hot_key_shares,
    ),
    found(
        "curtail_hot_key_write_ratio",
        Ratio,
        "Share of writes among the requests of a key, by its rank among the hottest.",
        "hot_key_writes:*",
        sources::hot_key_writes,
    ),
];
