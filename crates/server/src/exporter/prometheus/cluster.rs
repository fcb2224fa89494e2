//! What a node of a cluster knows of itself and of the others.

use crate::{
    exporter::prometheus::{
        Family, Row, Samples, Source,
        Unit::{Microseconds, Nanoseconds, Whole},
        counter, found, gauge, label,
        sources::Look,
    },
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
        let (name, model, members) = cluster.members(items).unwrap_or_default();
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

const fn of(labels: &'static str, stat: &'static str, count: Count) -> Row {
    (labels, stat, Source::NodeCount(count))
}

const fn number(labels: &'static str, stat: &'static str) -> Row {
    (labels, stat, Source::NodeNumber)
}

pub(super) const TABLE: &[Family] = &[
    found(
        "curtail_cluster_info",
        Whole,
        "Which node of which cluster this is; always 1.",
        "cluster_node cluster_name cluster_model",
        info,
    ),
    gauge(
        "curtail_cluster_in_service",
        Whole,
        "1 if this node holds its lease and knows the cluster's time, so that it answers clients.",
        &[number("", "cluster_serves")],
    ),
    found(
        "curtail_cluster_lease_remaining_seconds",
        Nanoseconds,
        "Time until the lease of this node ends; 0 if it has ended.",
        "",
        lease,
    ),
    gauge(
        "curtail_cluster_view",
        Whole,
        "Number of the view that this node acts on; 0 for none.",
        &[number("", "cluster_view")],
    ),
    gauge(
        "curtail_cluster_nodes",
        Whole,
        "Nodes of the view, by state: live, joining, placed (keys are placed on it).",
        &[
            number("state=\"live\"", "cluster_nodes_live"),
            number("state=\"joining\"", "cluster_nodes_joining"),
            number("state=\"placed\"", "cluster_nodes_placed"),
        ],
    ),
    gauge(
        "curtail_cluster_replicas",
        Whole,
        "Nodes that hold each key.",
        &[number("", "cluster_replicas")],
    ),
    gauge(
        "curtail_cluster_moving",
        Whole,
        "1 while keys move between nodes.",
        &[number("", "cluster_moves")],
    ),
    found(
        "curtail_cluster_member_info",
        Whole,
        "The members, by node, name, state and whether keys are placed on it; always 1.",
        "cluster_member:*",
        members,
    ),
    found(
        "curtail_cluster_member_items",
        Whole,
        "Items of a member, as it last reported.",
        "cluster_member:*",
        member_items,
    ),
    found(
        "curtail_cluster_member_round_trip_seconds",
        Microseconds,
        "Round-trip time over the link to a member: mean of about the last eight.",
        "cluster_member:*",
        member_round_trips,
    ),
    counter(
        "curtail_cluster_items_lost_total",
        Whole,
        "Approximate number of items lost with members that died, as known to this node.",
        &[number("", "cluster_items_lost")],
    ),
    gauge(
        "curtail_cluster_hot_keys",
        Whole,
        "Hot keys, which every node answers for.",
        &[number("", "cluster_hot_keys")],
    ),
    counter(
        "curtail_cluster_hot_keys_promoted_total",
        Whole,
        "Keys that became hot.",
        &[number("", "cluster_became_hot")],
    ),
    counter(
        "curtail_cluster_hot_keys_demoted_total",
        Whole,
        "Hot keys that were demoted.",
        &[number("", "cluster_ceased_to_be_hot")],
    ),
    gauge(
        "curtail_cluster_clock_error_seconds",
        Microseconds,
        "Maximum error of the cluster's time at this node.",
        &[number("", "cluster_clock_error_us")],
    ),
    gauge(
        "curtail_cluster_clock_offset_seconds",
        Microseconds,
        "Distance of this node's own clock from the cluster's time.",
        &[number("", "cluster_clock_apart_us")],
    ),
    gauge(
        "curtail_cluster_view_store_slowest_seconds",
        Microseconds,
        "Slowest operation of the store of the view, by operation.",
        &[
            number("operation=\"read\"", "cluster_view_read_us_max"),
            number("operation=\"change\"", "cluster_view_change_us_max"),
        ],
    ),
    counter(
        "curtail_cluster_view_store_slow_total",
        Whole,
        "Operations of the store of the view that took longer than a sixth of a lease.",
        &[number("", "cluster_view_slow")],
    ),
    counter(
        "curtail_cluster_hot_reads_total",
        Whole,
        "Reads of hot keys answered by this node.",
        &[of("", "cluster_hot_reads", ClusterHot)],
    ),
    counter(
        "curtail_cluster_relayed_total",
        Whole,
        "Client requests relayed to the node that holds the key.",
        &[of("", "cluster_relayed", ClusterRelayed)],
    ),
    counter(
        "curtail_cluster_answered_total",
        Whole,
        "Requests relayed by other nodes and answered by this one.",
        &[of("", "cluster_answered", ClusterAnswered)],
    ),
    counter(
        "curtail_cluster_protocol_requests_total",
        Whole,
        "Requests executed through the consistency protocol.",
        &[of("", "cluster_protocol", ClusterProtocol)],
    ),
    counter(
        "curtail_cluster_keys_sent_total",
        Whole,
        "Keys sent to their new node in the background.",
        &[of("", "cluster_keys_sent", ClusterKeysSent)],
    ),
    counter(
        "curtail_cluster_keys_asked_total",
        Whole,
        "Keys sent to their new node on its request.",
        &[of("", "cluster_keys_asked", ClusterKeysAsked)],
    ),
    counter(
        "curtail_cluster_keys_unfit_total",
        Whole,
        "Keys dropped because their new node refused the value as too long.",
        &[of("", "cluster_keys_unfit", ClusterKeysUnfit)],
    ),
    counter(
        "curtail_cluster_moves_held_total",
        Whole,
        "Times that moving keys paused because too many were in flight.",
        &[of("", "cluster_moves_held", ClusterMovesHeld)],
    ),
    counter(
        "curtail_cluster_move_batches_total",
        Whole,
        "Batches of moved keys.",
        &[of("", "cluster_move_batches", ClusterMoveBatches)],
    ),
    counter(
        "curtail_cluster_shown_total",
        Whole,
        "Replies with the value of a shared key.",
        &[of("", "cluster_shown", ClusterShown)],
    ),
    counter(
        "curtail_cluster_link_frames_total",
        Whole,
        "Frames sent over node links.",
        &[of("", "cluster_frames_sent", ClusterFramesSent)],
    ),
    counter(
        "curtail_cluster_link_parts_total",
        Whole,
        "Requests, replies and messages in frames sent over node links.",
        &[of("", "cluster_parts_sent", ClusterPartsSent)],
    ),
    counter(
        "curtail_cluster_link_messages_total",
        Whole,
        "Messages of the consistency protocol sent over node links.",
        &[of("", "cluster_messages_sent", ClusterMessagesSent)],
    ),
    counter(
        "curtail_cluster_link_calls_total",
        Whole,
        "System calls on node links, by direction.",
        &[
            of("direction=\"sent\"", "cluster_link_sends", ClusterLinkSends),
            of(
                "direction=\"received\"",
                "cluster_link_receives",
                ClusterLinkReceives,
            ),
        ],
    ),
];

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
