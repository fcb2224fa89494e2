//! The state of the cluster as one of its nodes reports it.

use serde::Serialize;

use super::{
    number_format::{age, count, known, percent, rate},
    panels::Panel,
    rates::{Change, Pair, Traffic},
    sample::Names,
};

/// What a node says of its cluster. Rates are its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) model: String,
    pub(crate) replicas: Option<u64>,
    /// The node that was asked.
    pub(crate) node: Option<u64>,
    /// Whether it may answer clients.
    pub(crate) serves: bool,
    pub(crate) view: Option<u64>,
    /// Whether keys are on their way.
    pub(crate) moves: bool,
    pub(crate) members: Vec<Member>,
    pub(crate) hot_keys: Option<u64>,
    /// Of its requests, 0 to 1, those that were answered here because their key is hot.
    pub(crate) hot_share: Option<f64>,
    /// Those that another node carried out.
    pub(crate) relayed_share: Option<f64>,
    /// A second, for other nodes.
    pub(crate) answered: Option<f64>,
    /// A second, that went through the protocol of hot keys or of several holders.
    pub(crate) protocol: Option<f64>,
    /// A second, to other nodes.
    pub(crate) keys_sent: Option<f64>,
    /// Since the start.
    pub(crate) became_hot: Option<u64>,
    pub(crate) ceased_to_be_hot: Option<u64>,
    /// With nodes that died, since the start.
    pub(crate) items_lost: Option<u64>,
    /// The last first.
    pub(crate) events: Vec<Change>,
}

/// A member.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Member {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) clients: String,
    /// `live`, `waiting` or `leaving`.
    pub(crate) standing: String,
    /// Whether keys are placed on it: `yes`, `no`, `coming` or `going`.
    pub(crate) keys: String,
    pub(crate) items: u64,
    /// How long a word from the node that was asked to this one and back takes.
    pub(crate) round_trip_us: Option<u64>,
}

impl Cluster {
    /// What a node tells; nothing if the server is none.
    pub(crate) fn of(own: &Pair<'_>, traffic: &Traffic) -> Option<Self> {
        let now = own.now;
        let number = |name: &str| now.number(name);
        let share = |name: &str| {
            let requests = traffic.requests.filter(|requests| *requests > 0.0)?;
            Some(own.rate(name)? / requests)
        };
        Some(Self {
            node: Some(number("cluster_node")?),
            name: now.text("cluster_name").unwrap_or("").to_owned(),
            model: now.text("cluster_model").unwrap_or("").to_owned(),
            replicas: number("cluster_replicas"),
            serves: number("cluster_serves") == Some(1),
            view: number("cluster_view"),
            moves: number("cluster_moves") == Some(1),
            members: now.behind("cluster_member:").filter_map(member).collect(),
            hot_keys: number("cluster_hot_keys"),
            hot_share: share("cluster_hot_reads"),
            relayed_share: share("cluster_relayed"),
            answered: own.rate("cluster_answered"),
            protocol: own.rate("cluster_protocol"),
            keys_sent: own.rate("cluster_keys_sent"),
            became_hot: number("cluster_became_hot"),
            ceased_to_be_hot: number("cluster_ceased_to_be_hot"),
            items_lost: number("cluster_items_lost"),
            events: events(now),
        })
    }
}

/// What a node says has happened, the last first.
pub(crate) fn events(now: &Names) -> Vec<Change> {
    let event = |(at, what): (&str, &str)| {
        Some(Change {
            at_seconds: at.parse().ok()?,
            what: what.to_owned(),
        })
    };
    let mut events: Vec<Change> = now.behind("cluster_event:").filter_map(event).collect();
    events.reverse();
    events
}

/// A row of a member: its number, and then standing, keys, items, name, address, and how far
/// away it is.
pub(crate) fn member((id, row): (&str, &str)) -> Option<Member> {
    let mut words = row.split(' ');
    let mut next = || words.next();
    Some(Member {
        id: id.parse().ok()?,
        standing: next()?.to_owned(),
        keys: next()?.to_owned(),
        items: next()?.parse().ok()?,
        name: next()?.to_owned(),
        clients: next()?.to_owned(),
        round_trip_us: next().and_then(|word| word.parse().ok()),
    })
}

/// The panel: the nodes, what is hot, what happened.
pub(crate) fn panel(cluster: &Cluster, now_seconds: u64) -> Panel {
    let serves = if cluster.serves {
        ""
    } else {
        ", not in service"
    };
    let moves = if cluster.moves {
        "   keys are moving"
    } else {
        ""
    };
    let heading = format!(
        "CLUSTER {}   {}   replicas {}   view {}{moves}   asked: node {}{serves}",
        cluster.name,
        cluster.model,
        known(cluster.replicas),
        known(cluster.view),
        known(cluster.node),
    );
    let mut lines = vec![
        format!(
            "hot keys {}   their copies answer {} of requests   {} go to other nodes",
            known(cluster.hot_keys),
            percent(cluster.hot_share),
            percent(cluster.relayed_share),
        ),
        format!(
            "for other nodes {}/s   to replication {}/s   keys sent {}/s   items lost {}",
            rate(cluster.answered),
            rate(cluster.protocol),
            rate(cluster.keys_sent),
            known(cluster.items_lost),
        ),
    ];
    let members = cluster.members.iter().map(|member| {
        let Member {
            id,
            name,
            clients,
            standing,
            keys,
            items,
            round_trip_us,
        } = member;
        let items = count(*items);
        let trip = match round_trip_us {
            Some(us) => format!("  {}", milliseconds(*us)),
            None => String::new(),
        };
        format!("{id:>3} {name:<10} {clients:<21} {standing:<7} keys {keys:<6} items {items}{trip}")
    });
    lines.extend(members);
    let least = lines.len() + EVENTS_LEAST.min(cluster.events.len());
    lines.extend(cluster.events.iter().map(|event| {
        let ago = age(now_seconds.saturating_sub(event.at_seconds));
        format!("{ago} ago   {}", event.what)
    }));
    Panel {
        heading,
        lines,
        least,
    }
}

/// A round trip, as people read it.
pub(crate) fn milliseconds(us: u64) -> String {
    format!("{}.{:02} ms", us / 1000, us % 1000 / 10)
}

/// What happened last matters.
const EVENTS_LEAST: usize = 4;

#[cfg(test)]
mod tests {
    use curtail_testing::assert_contains;

    use super::*;

    /// Goal: a death is seen in what one node tells. Method: the rows of such a node.
    #[test]
    fn a_node_tells_of_its_cluster() {
        let rows = Names::of(
            "cluster_node 1\ncluster_name trial\ncluster_model lin\ncluster_replicas 1\n\
             cluster_view 5\ncluster_serves 1\ncluster_moves 0\ncluster_hot_keys 12\n\
             cluster_relayed 30\ncluster_hot_reads 50\ncluster_items_lost 7\n\
             cluster_member:0 live yes 1200 node0 127.0.0.1:11300 345\n\
             cluster_event:3 view 4: node2 is in service\n\
             cluster_event:9 view 5: node2 was removed",
        );
        let before = Names::of("cluster_relayed 10\ncluster_hot_reads 10");
        let pair = Pair::new(Some(&before), &rows, Some(2.0));
        let traffic = Traffic {
            requests: Some(100.0),
            ..Traffic::default()
        };
        let cluster = Cluster::of(&pair, &traffic).unwrap();
        assert_eq!(
            (cluster.hot_share, cluster.relayed_share),
            (Some(0.2), Some(0.1))
        );
        assert_eq!(cluster.members[0].items, 1200);
        assert_eq!(cluster.members[0].round_trip_us, Some(345));
        let panel = panel(&cluster, 10);
        assert_contains(&panel.heading, "view 5   asked: node 1");
        assert!(
            panel.lines[2].contains("live    keys yes    items 1,200  0.34 ms"),
            "{:?}",
            panel.lines
        );
        assert_eq!(panel.lines[3], "00:00:01 ago   view 5: node2 was removed");
        assert!(
            panel.lines.iter().all(|line| line.len() <= 80),
            "{:?}",
            panel.lines
        );
        assert_eq!(
            Cluster::of(&Pair::new(None, &Names::of("a 1"), None), &traffic),
            None
        );
    }
}
