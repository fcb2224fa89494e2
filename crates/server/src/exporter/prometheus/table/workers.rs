//! Workers, and what decides where they run requests.

use crate::{
    exporter::prometheus::{Family, by, each, found, of, sources},
    metrics::counters::Count::*,
};

pub(in crate::exporter::prometheus) const TABLE: &[Family] = families! {
    Gauge curtail_workers "Worker threads, by what they serve: small (all but large values), \
                           large (only large values).":
        {role="small"} by("threads num_threads", |look| look.shared.small_workers().len() as u64),
        {role="large"} by("", |look| look.shared.large_workers().len() as u64);
    Counter curtail_requests_total "Requests, by worker.":
        each("requests worker:*:requests large:*:requests", |worker| worker.count(Requests));
    Counter curtail_turns_total "Turns of the event loop, by worker.":
        each("turns worker:*:turns large:*:turns", |worker| worker.count(Turns));
    Counter curtail_hand_offs_total
        "Connections handed to large workers, by the worker that handed them over.":
        each("hand_offs worker:*:hand_offs large:*:hand_offs", |worker| worker.count(HandOffs));
    Counter curtail_delegations_total
        "Requests delegated to another worker, by the worker that delegated them.":
        each("delegations worker:*:delegations large:*:delegations", |worker| {
            worker.count(Delegations)
        });
    Counter curtail_writes_compacted_total
        "Writes that were executed as one with the write of the same key before them, by worker.":
        each("writes_compacted worker:*:writes_compacted large:*:writes_compacted", |worker| {
            worker.count(Compacted)
        });
    Gauge curtail_worker_queue_depth
        "Connections for which a worker's last turn had no room, plus messages from other \
         threads that it has not processed.":
        each("worker:*:queue_depth large:*:queue_depth", |worker| worker.queue_depth() as u64);
    Gauge curtail_worker_mailbox_depth
        "Messages from other threads that a worker has not processed.":
        each("worker:*:mailbox large:*:mailbox", |worker| worker.mail.depth() as u64);
    Gauge curtail_worker_connections "Connections that a worker has.":
        found("worker:*:connections large:*:connections", sources::worker_connections);
    Counter curtail_large_starvation_boosts_total
        "Times that the server gave a large worker normal priority for about 50 ms because it got \
         no processor, by worker.":
        found("large:*:starvation_boosts", sources::boosts);
    Gauge curtail_policy_info "The policy in force; always 1.":
        found("policy", sources::policy);
    Counter curtail_plans_total "Changes of policy or plan; the first plan counts too.":
        by("regime", |look| look.snapshot.generation);
    Counter curtail_plan_epochs_total "Plans computed by size-aware sharding.":
        by("plan_epoch", |look| look.snapshot.plan.epoch);
    Gauge curtail_size_threshold_bytes in Bytes
        "Value size from which the active plan treats a request as large.":
        by("threshold", |look| u64::from(look.snapshot.plan.threshold));
    Gauge curtail_plan_cores "Cores that the active plan provides, by role: for small and for \
                              large requests.":
        {role="small"} by("small_cores", |look| u64::from(look.snapshot.plan.small)),
        {role="large"} by("large_cores", |look| {
            u64::from(look.snapshot.plan.cores - look.snapshot.plan.small)
        });
    Gauge curtail_plan_standby "1 if the active plan provides no core for large requests.":
        by("standby", |look| u64::from(look.snapshot.plan.standby().is_some()));
    Gauge curtail_plan_large_from_bytes in Bytes
        "Value size from which each large worker serves requests under the active plan.":
        found("large:*:from_bytes", sources::large_ranges);
    Gauge curtail_spinning "1 if workers may poll for a moment before they sleep.":
        by("spinning", |look| u64::from(look.shared.spins));
    Counter curtail_spins_total
        "Times that a worker polled before it slept, by outcome: found (work), vain (no work).":
        {outcome="found"} of(SpinsFound),
        {outcome="vain"} of(SpinsInVain);
    Counter curtail_delegations_refused_total
        "Requests that their worker executed itself instead of delegating them, because too many \
         delegated ones were outstanding.":
        of(DelegationsRefused);
    Counter curtail_delegation_batches_total "Batches of requests delegated to other workers.":
        of(DelegatedBatchesSent);
    Counter curtail_delegation_batches_reclaimed_total
        "Delegated batches that the delegating worker reclaimed, because the other worker had \
         not begun them in time.":
        of(DelegatedBatchesTakenBack);
    Counter curtail_late_releases_total
        "Times that a worker gave up its right to write a slice of keys when that right had \
         already ended: an error in curtail; must stay 0.":
        of(LateReleases);
    Counter curtail_hand_offs_relieved_total
        "Connections handed to another large worker than the plan chose, because connections \
         waited at the planned one.":
        of(HandOffsRelieved);
    Counter curtail_large_refused_total
        "Large requests refused as busy because all large workers had their maximum of \
         connections (-o size_queue).":
        of(LargeRefused);
    Counter curtail_small_behind_large_total
        "Small requests that waited while their worker served another connection's value of at \
         least -o size_threshold. If all requests of a connection waited, they can count as one.":
        of(SmallBehindLarge);
    Counter curtail_connections_rebalanced_total "Connections moved to a worker with less load.":
        of(ConnectionsMoved);
    // Shares without the keys: those are clients' data, and each would be a series of its own.
    Gauge curtail_hot_key_share_ratio in Ratio
        "Share of all requests that are for the key of this rank.":
        found("hot_key:*", sources::hot_key_shares);
    Gauge curtail_hot_key_write_ratio in Ratio
        "Share of writes among the requests for the key of this rank.":
        found("hot_key_writes:*", sources::hot_key_writes);
};
