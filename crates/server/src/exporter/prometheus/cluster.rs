//! What a node of a cluster knows of itself and of the others.

use crate::{
    exporter::prometheus::{Family, Row, Samples, Source, found, label, sources::Look},
    metrics::counters::Count::{self, *},
    node::Member,
    worker::shared::Shared,
};

/// A node's numbers.
pub(super) struct ClusterLook {
    numbers: Vec<(&'static str, u64)>,
    identity: String,
    members: Vec<Member>,
    lease_ns: u64,
}

impl ClusterLook {
    pub(super) fn new(shared: &Shared, items: u64) -> Option<Self> {
        let cluster = shared.cluster.as_ref()?;
        let now = shared.clock.now();
        let mut numbers = Vec::new();
        cluster.statistics(now, |name, value| numbers.push((name, value)));
        let (name, model, members) = cluster
            .journal
            .members((cluster.me, items))
            .unwrap_or_default();
        Some(Self {
            numbers,
            identity: [
                label("node", &cluster.me.0.to_string()),
                label("cluster", &name),
                label("model", model),
            ]
            .join(","),
            members,
            lease_ns: cluster.lease_ns_left(now.instant),
        })
    }

    /// What it tells under this name.
    pub(super) fn number(&self, stat: &str) -> Option<u64> {
        let found = self.numbers.iter().find(|(name, _)| *name == stat);
        found.map(|(_, value)| *value)
    }
}

const fn of(count: Count) -> Row {
    (count.name(), Source::NodeCount(count))
}

const fn number(stat: &'static str) -> Row {
    (stat, Source::NodeNumber)
}

pub(super) const TABLE: &[Family] = families! {
    Gauge curtail_cluster_info "Labels say which node of which cluster this is; always 1.":
        found("cluster_node cluster_name cluster_model", info);
    Gauge curtail_cluster_in_service
        "1 if this node answers clients: it has its lease and knows the cluster's time.":
        number("cluster_serves");
    Gauge curtail_cluster_lease_remaining_seconds in Nanoseconds
        "Time until the lease of this node ends; 0 if it has ended.":
        found("", lease);
    Gauge curtail_cluster_view
        "Number of the view (members and holders of slices) that this node uses; 0 if it has \
         none.":
        number("cluster_view");
    Gauge curtail_cluster_nodes
        "Members of the cluster, by state: live (all in the view), placed (those that \
         hold slices).":
        {state="live"} number("cluster_nodes_live"),
        {state="placed"} number("cluster_nodes_placed");
    Gauge curtail_cluster_slices
        "Slices of the view, by state: all, primary (this node orders their changes), held (by \
         this node), catching_up (a holder catches up), under_replicated (fewer nodes are in \
         sync than replicas says).":
        {state="all"} number("cluster_slices"),
        {state="primary"} number("cluster_slices_primary"),
        {state="held"} number("cluster_slices_held"),
        {state="catching_up"} number("cluster_slices_catching_up"),
        {state="under_replicated"} number("cluster_slices_under_replicated");
    Gauge curtail_cluster_replicas "Number of nodes that each slice is to have (replicas).":
        number("cluster_replicas");
    Gauge curtail_cluster_moving "1 while slices move between nodes.":
        number("cluster_moves");
    Gauge curtail_cluster_member_info
        "One series for each member; labels have its number, name and state and say whether keys \
         are placed on it; always 1.":
        found("cluster_member:*", members);
    Gauge curtail_cluster_member_items "Items of each member, as it last reported.":
        found("cluster_member:*", member_items);
    Gauge curtail_cluster_member_round_trip_seconds in Microseconds
        "Round-trip time over the link to each member: a moving average of about eight \
         measurements.":
        found("cluster_member:*", member_round_trips);
    Counter curtail_cluster_items_lost_total
        "Approximate number of items lost with members that died, as known to this node.":
        number("cluster_items_lost");
    Gauge curtail_cluster_hot_keys "Number of hot keys, of which every node has a copy.":
        number("cluster_hot_keys");
    Counter curtail_cluster_hot_keys_promoted_total "Keys that became hot.":
        number("cluster_became_hot");
    Counter curtail_cluster_hot_keys_demoted_total "Keys that ceased to be hot.":
        number("cluster_ceased_to_be_hot");
    Gauge curtail_cluster_cost_seconds in Nanoseconds
        "Processor time that one request or message costs, summed over the nodes that take part, \
         as this node measured it: a request answered where it arrives (local), a request that \
         another node answers (forwarded), a message of the replication protocol (message). 0: \
         not known. These times decide which keys are hot.":
        {of="local"} number("cluster_cost_local_ns"),
        {of="forwarded"} number("cluster_cost_forwarded_ns"),
        {of="message"} number("cluster_cost_message_ns");
    Gauge curtail_cluster_clock_error_seconds in Microseconds
        "Maximum error with which this node knows the cluster's time.":
        number("cluster_clock_error_us");
    Gauge curtail_cluster_clock_offset_seconds in Microseconds
        "Distance of this node's own clock from the cluster's time.":
        number("cluster_clock_apart_us");
    Gauge curtail_cluster_view_store_slowest_seconds in Microseconds
        "Time of the slowest operation of the view store, by operation.":
        {operation="read"} number("cluster_view_read_us_max"),
        {operation="change"} number("cluster_view_change_us_max");
    Counter curtail_cluster_view_store_slow_total
        "Operations of the view store that took longer than a sixth of a lease.":
        number("cluster_view_slow");
    Counter curtail_cluster_hot_reads_total "Reads of hot keys answered by this node.":
        of(ClusterHot);
    Counter curtail_cluster_relayed_total
        "Times that a client request was relayed to the primary of its key.":
        of(ClusterRelayed);
    Counter curtail_cluster_answered_total
        "Requests relayed by other nodes and answered by this one.":
        of(ClusterAnswered);
    Counter curtail_cluster_protocol_requests_total
        "Requests that this node gave to the state machine of the replication protocol; the others \
         it executed directly or relayed.":
        of(ClusterProtocol);
    Counter curtail_cluster_keys_sent_total
        "Keys sent to nodes that become holders of their slices.":
        of(ClusterKeysSent);
    Counter curtail_cluster_link_frames_total "Frames sent over node links.":
        of(ClusterFramesSent);
    Counter curtail_cluster_link_parts_total
        "Requests, replies and protocol messages in the frames sent over node links.":
        of(ClusterPartsSent);
    Counter curtail_cluster_link_messages_total
        "Messages of the replication protocol sent over node links.":
        of(ClusterMessagesSent);
    Counter curtail_cluster_link_calls_total "System calls on node links, by direction.":
        {direction="sent"} of(ClusterLinkSends),
        {direction="received"} of(ClusterLinkReceives);
};

fn info(look: &Look<'_>, samples: &mut Samples<'_>) {
    if let Some(cluster) = &look.cluster {
        samples.add(&cluster.identity, 1);
    }
}

fn lease(look: &Look<'_>, samples: &mut Samples<'_>) {
    if let Some(cluster) = &look.cluster {
        samples.add("", cluster.lease_ns);
    }
}

fn members(look: &Look<'_>, samples: &mut Samples<'_>) {
    for member in members_of(look) {
        let labels = [
            label("member", &member.id.0.to_string()),
            label("name", &member.name),
            label("state", member.standing),
            label("keys", member.keys),
        ];
        samples.add(&labels.join(","), 1);
    }
}

fn member_items(look: &Look<'_>, samples: &mut Samples<'_>) {
    for member in members_of(look) {
        samples.add(&format!("member=\"{}\"", member.id.0), member.items);
    }
}

fn member_round_trips(look: &Look<'_>, samples: &mut Samples<'_>) {
    for member in members_of(look) {
        if let Some(us) = member.round_trip_us {
            samples.add(&format!("member=\"{}\"", member.id.0), us);
        }
    }
}

fn members_of<'a>(look: &'a Look<'_>) -> impl Iterator<Item = &'a Member> {
    look.cluster.iter().flat_map(|cluster| &cluster.members)
}
