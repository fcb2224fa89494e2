//! What the nodes of a cluster agree on, and how the store holds it: JSON, so that an operator can
//! read it, with a number for its form.

use std::{collections::BTreeMap, fmt, net::SocketAddr};

use curtail_consistency::{
    membership::{Change, Incarnation, Members},
    symmetric::Model,
};
use curtail_types::{NodeId, NodeSet, View, ViewNumber};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The members of a cluster with their addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Roster {
    /// The cluster's name.
    pub cluster: String,
    /// What all nodes must agree on.
    pub settings: Settings,
    /// Who takes part, and how.
    pub members: Members,
    nodes: BTreeMap<NodeId, Node>,
}

/// What all nodes of a cluster must agree on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// How the copies of a hot key agree.
    pub model: Model,
    /// How many nodes hold a key.
    pub replicas: usize,
    /// How long a node may serve after it read the view, in milliseconds.
    pub lease_ms: u64,
}

/// A member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// What people call it.
    pub name: String,
    /// Where it listens.
    pub addresses: Addresses,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

/// Where a node listens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Addresses {
    /// For clients.
    pub clients: SocketAddr,
    /// For other nodes.
    pub links: SocketAddr,
}

/// Why a content of the store is not understood.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RosterError {
    /// It is not what a curtail of this version writes.
    #[error("no valid view of a cluster: {0}")]
    Malformed(String),
    /// A newer curtail wrote it.
    #[error("in format {0}, and this curtail reads format {FORM}: upgrade this node")]
    Form(u32),
}

impl Roster {
    /// A cluster without members.
    pub fn empty(cluster: &str, settings: Settings) -> Self {
        Self {
            cluster: cluster.to_owned(),
            settings,
            members: Members::NOBODY,
            nodes: BTreeMap::new(),
        }
    }

    /// Who takes part, and how.
    pub fn view(&self) -> &View {
        &self.members.view
    }

    /// The number of the view.
    pub fn number(&self) -> ViewNumber {
        self.members.view.number
    }

    /// A member.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// A node's state: `out`, `joining`, `live` or `leaving`.
    pub fn standing(&self, id: NodeId) -> &'static str {
        let view = self.view();
        match () {
            () if self.members.leaving.contains(id) => "leaving",
            () if view.live.contains(id) => "live",
            () if view.joining.contains(id) => "joining",
            () => "out",
        }
    }

    /// Whether keys are placed on a node: `yes`, `no`, `coming` or `going`.
    pub fn keys(&self, id: NodeId) -> &'static str {
        let view = self.view();
        match (view.placed_before.contains(id), view.placed.contains(id)) {
            (true, true) => "yes",
            (false, true) => "coming",
            (true, false) => "going",
            (false, false) => "no",
        }
    }

    /// All members, by number.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// The next roster, as node `me`, known to others as `own`, proposes it; nothing if the change
    /// does not fit.
    pub fn after(&self, change: Change, me: NodeId, own: &Node) -> Option<Self> {
        let members = self.members.after(change, me, self.settings.replicas)?;
        let mut nodes = self.nodes.clone();
        if let Change::Join(incarnation) = change {
            let joined = Node {
                incarnation,
                ..own.clone()
            };
            nodes.insert(me, joined);
        }
        nodes.retain(|id, _| members.view.followers().contains(*id));
        Some(Self {
            cluster: self.cluster.clone(),
            settings: self.settings,
            members,
            nodes,
        })
    }

    /// The next roster, in which `node` is to leave; nothing if it is no member or leaves already.
    pub fn draining(&self, node: NodeId) -> Option<Self> {
        let drain = Change::Drain(node);
        let members = self.members.after(drain, node, self.settings.replicas)?;
        Some(Self {
            members,
            ..self.clone()
        })
    }

    /// As the store holds it.
    pub fn to_json(&self) -> String {
        let view = &self.members.view;
        let roster = WireRoster {
            form: FORM,
            cluster: self.cluster.clone(),
            model: self.settings.model.to_string(),
            replicas: self.settings.replicas,
            lease_ms: self.settings.lease_ms,
            view: view.number.0,
            live: numbers(view.live),
            joining: numbers(view.joining),
            placed: numbers(view.placed),
            placed_before: numbers(view.placed_before),
            leaving: numbers(self.members.leaving),
            detached: numbers(self.members.detached),
            released: self.members.released.0,
            removal: self.members.removal.0,
            placement: self.members.placement.0,
            nodes: self.nodes.iter().map(WireNode::from).collect(),
        };
        serde_json::to_string_pretty(&roster).unwrap_or_default()
    }

    /// From what [`Roster::to_json`] made.
    ///
    /// # Errors
    /// When it is not that, or a newer version made it.
    pub fn from_json(text: &str) -> Result<Self, RosterError> {
        let malformed = |error: serde_json::Error| RosterError::Malformed(error.to_string());
        let form: WireForm = serde_json::from_str(text).map_err(malformed)?;
        if form.form != FORM {
            return Err(RosterError::Form(form.form));
        }
        let roster: WireRoster = serde_json::from_str(text).map_err(malformed)?;
        roster.understand().map_err(RosterError::Malformed)
    }
}

/// The model with this name.
pub(crate) fn model_named(name: &str) -> Result<Model, String> {
    name.parse().map_err(|why| format!("model {why}"))
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            model,
            replicas,
            lease_ms,
        } = self;
        write!(f, "model {model}, replicas {replicas}, lease_ms {lease_ms}")
    }
}

/// The form that this version writes.
const FORM: u32 = 2;

#[derive(Deserialize)]
struct WireForm {
    form: u32,
}

#[derive(Deserialize, Serialize)]
struct WireRoster {
    form: u32,
    cluster: String,
    model: String,
    replicas: usize,
    lease_ms: u64,
    view: u32,
    live: Vec<u8>,
    joining: Vec<u8>,
    placed: Vec<u8>,
    placed_before: Vec<u8>,
    leaving: Vec<u8>,
    detached: Vec<u8>,
    released: u32,
    removal: u32,
    placement: u32,
    nodes: Vec<WireNode>,
}

#[derive(Deserialize, Serialize)]
struct WireNode {
    id: u8,
    name: String,
    clients: SocketAddr,
    links: SocketAddr,
    /// In hexadecimal: JSON's numbers end at 2^53 for many readers.
    incarnation: String,
}

impl From<(&NodeId, &Node)> for WireNode {
    fn from((id, node): (&NodeId, &Node)) -> Self {
        Self {
            id: id.0,
            name: node.name.clone(),
            clients: node.addresses.clients,
            links: node.addresses.links,
            incarnation: format!("{:016x}", node.incarnation.0),
        }
    }
}

impl WireNode {
    fn understand(self) -> Result<(NodeId, Node), String> {
        let incarnation = u64::from_str_radix(&self.incarnation, 16);
        let incarnation = incarnation.map_err(|_| format!("incarnation of node {}", self.id))?;
        let node = Node {
            name: self.name,
            addresses: Addresses {
                clients: self.clients,
                links: self.links,
            },
            incarnation: Incarnation(incarnation),
        };
        Ok((known_id(self.id)?, node))
    }
}

impl WireRoster {
    fn understand(self) -> Result<Roster, String> {
        let nodes = self.nodes.into_iter().map(WireNode::understand);
        let nodes: BTreeMap<NodeId, Node> = nodes.collect::<Result<_, _>>()?;
        let mut members = Members::NOBODY;
        members.view = View {
            number: ViewNumber(self.view),
            live: set(&self.live)?,
            joining: set(&self.joining)?,
            placed: set(&self.placed)?,
            placed_before: set(&self.placed_before)?,
        };
        members.leaving = set(&self.leaving)?;
        members.detached = set(&self.detached)?;
        members.released = ViewNumber(self.released);
        members.removal = ViewNumber(self.removal);
        members.placement = ViewNumber(self.placement);
        for (id, node) in &nodes {
            members = members.with_incarnation(*id, node.incarnation);
        }
        if nodes.keys().copied().collect::<NodeSet>() != members.view.followers() {
            return Err("the nodes are not those of the view".to_owned());
        }
        Ok(Roster {
            cluster: self.cluster,
            settings: Settings {
                model: model_named(&self.model)?,
                replicas: self.replicas,
                lease_ms: self.lease_ms,
            },
            members,
            nodes,
        })
    }
}

fn numbers(set: NodeSet) -> Vec<u8> {
    set.into_iter().map(|node| node.0).collect()
}

fn set(numbers: &[u8]) -> Result<NodeSet, String> {
    numbers.iter().map(|&number| known_id(number)).collect()
}

/// The node with this number, if a cluster can have that many.
pub(crate) fn known_id(number: u8) -> Result<NodeId, String> {
    if usize::from(number) < NodeSet::NODES_MAX {
        Ok(NodeId(number))
    } else {
        Err(format!(
            "node {number}: {} is the last",
            NodeSet::NODES_MAX - 1
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u8) -> Node {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port + u16::from(id)));
        Node {
            name: format!("n{id}"),
            addresses: Addresses {
                clients: at(11000),
                links: at(12000),
            },
            incarnation: Incarnation(u64::MAX - u64::from(id)),
        }
    }

    fn three() -> Roster {
        let settings = Settings {
            model: Model::Sc,
            replicas: 2,
            lease_ms: 500,
        };
        let mut roster = Roster::empty("trial", settings);
        for id in 0..3 {
            let join = Change::Join(node(id).incarnation);
            roster = roster.after(join, NodeId(id), &node(id)).unwrap();
        }
        roster.after(Change::Form, NodeId(0), &node(0)).unwrap()
    }

    #[test]
    fn a_roster_survives_the_store() {
        let roster = three();
        assert_eq!(Roster::from_json(&roster.to_json()).unwrap(), roster);
        let gone = Change::Remove(NodeSet::only(NodeId(1)));
        let two = roster.after(gone, NodeId(0), &node(0)).unwrap();
        assert_eq!(Roster::from_json(&two.to_json()).unwrap(), two);
        let alone = two.after(Change::Detach, NodeId(2), &node(2)).unwrap();
        assert_eq!(Roster::from_json(&alone.to_json()).unwrap(), alone);
        let again = alone.after(Change::Attach, NodeId(2), &node(2)).unwrap();
        assert_eq!(Roster::from_json(&again.to_json()).unwrap(), again);
        assert!(two.node(NodeId(1)).is_none());
        assert_eq!(two.node(NodeId(2)), Some(&node(2)));
    }

    #[test]
    fn what_is_not_a_roster_is_refused() {
        let text = three().to_json();
        assert!(Roster::from_json("").is_err());
        for (from, to) in [
            ("\"form\": 2", "\"form\": 3"),
            ("\"sc\"", "\"strict\""),
            ("\"id\": 2", "\"id\": 64"),
            ("\"id\": 2", "\"id\": 3"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text);
            assert!(Roster::from_json(&other).is_err(), "{to}");
        }
    }
}
