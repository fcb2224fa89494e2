//! The view as the view store holds it: members with their addresses, settings, and the holders of
//! each slice, in JSON, so that an operator can read it, with a version of the format.
//!
//! A row of a slice is one line: `primary | in sync | catching up | term | born`.

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc};

use curtail_consistency::{
    members::{ClusterRecord, Incarnation, RecordChange, SlicePlan},
    replica::Model,
    slice_placement::{PlacementGoal, is_settled},
    slice_view::{SLICES, SliceRow, SliceView},
};
use curtail_types::{NodeId, NodeSet, ViewNumber};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use thiserror::Error;

/// The members of a cluster with their addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Roster {
    /// The cluster's name.
    pub cluster: String,
    /// What all nodes must agree on.
    pub settings: Settings,
    /// Who takes part, and who has which slice.
    pub record: ClusterRecord,
    nodes: BTreeMap<NodeId, Node>,
}

/// What all nodes of a cluster must agree on.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Settings {
    /// How the copies of a hot key agree.
    #[serde(deserialize_with = "read_model", serialize_with = "write_shown")]
    pub model: Model,
    /// How many nodes hold a key.
    pub replicas: usize,
    /// How long a node may serve after it read the view, in milliseconds.
    pub lease_ms: u64,
}

/// A member.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Node {
    /// What people call it.
    pub name: String,
    /// Where it listens.
    #[serde(flatten)]
    pub addresses: Addresses,
    /// Its incarnation; in hexadecimal: JSON's numbers end at 2^53 for many readers.
    #[serde(
        deserialize_with = "read_hexadecimal",
        serialize_with = "write_hexadecimal"
    )]
    pub incarnation: Incarnation,
}

/// Where a node listens.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Addresses {
    /// For clients.
    pub clients: SocketAddr,
    /// For other nodes.
    pub links: SocketAddr,
}

/// How many slices a node has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SliceShare {
    /// Those whose primary it is.
    pub primary: u16,
    /// Those that it has all of, as their primary or not.
    pub in_sync: u16,
    /// Those that it is sent.
    pub catching_up: u16,
}

/// Why a content of the store is not understood.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RosterError {
    /// It is not what a curtail of this version writes.
    #[error(
        "no valid view of a cluster ({0}): restore it, or stop all nodes (their contents are lost) \
         and remove it"
    )]
    Malformed(String),
    /// A newer curtail wrote it.
    #[error("in format {0}, but this curtail reads format {FORM}: upgrade this node")]
    Newer(u32),
    /// An older curtail wrote it.
    #[error(
        "in format {0}, which an older curtail wrote, and this node cannot join a cluster of older \
         nodes: stop all nodes (their contents are lost), remove the view from the store, and \
         start all nodes with one version"
    )]
    Older(u32),
}

impl Roster {
    /// A cluster without members.
    pub fn empty(cluster: &str, settings: Settings) -> Self {
        Self {
            cluster: cluster.to_owned(),
            settings,
            record: ClusterRecord::NOBODY,
            nodes: BTreeMap::new(),
        }
    }

    /// Who has which slice; `None` before the cluster is formed.
    pub fn slices(&self) -> Option<&Arc<SliceView>> {
        self.record.slices()
    }

    /// What the placement of slices shall reach.
    pub fn goal(&self) -> PlacementGoal {
        self.record.goal(self.settings.replicas)
    }

    /// A member.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// A node's state: `out`, `waiting` (for the cluster to be formed), `live` or `leaving`.
    pub fn standing(&self, id: NodeId) -> &'static str {
        match () {
            () if self.record.leaving.contains(id) => "leaving",
            () if self.record.serving().contains(id) => "live",
            () if self.record.members().contains(id) => "waiting",
            () => "out",
        }
    }

    /// How many slices a node has.
    pub fn share(&self, id: NodeId) -> SliceShare {
        let mut share = SliceShare::default();
        for (_, row) in self.slices().into_iter().flat_map(|slices| slices.rows()) {
            share.primary += u16::from(row.primary == id);
            share.in_sync += u16::from(row.in_sync.contains(id));
            share.catching_up += u16::from(row.catching_up().contains(id));
        }
        share
    }

    /// Slices that fewer nodes have all of than there could.
    pub fn under_replicated(&self) -> u16 {
        let wanted = self.settings.replicas.min(self.record.staying().len());
        let rows = self.slices().into_iter().flat_map(|slices| slices.rows());
        let few = rows.filter(|(_, row)| row.in_sync.len() < wanted);
        u16::try_from(few.count()).unwrap_or(u16::MAX)
    }

    /// Whether every slice is where it shall be.
    pub fn is_settled(&self) -> bool {
        self.slices()
            .is_some_and(|slices| is_settled(slices, &self.goal()))
    }

    /// All members, by number.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// The next roster, as node `me`, known to others as `own`, proposes it; nothing if the change
    /// does not fit.
    pub fn after(&self, change: &RecordChange, me: NodeId, own: &Node) -> Option<Self> {
        let plan = SlicePlan {
            slices: SLICES,
            replicas: self.settings.replicas,
        };
        let record = self.record.after(change, me, plan)?;
        let mut nodes = self.nodes.clone();
        if let RecordChange::Join(incarnation) = change {
            let joined = Node {
                incarnation: *incarnation,
                ..own.clone()
            };
            nodes.insert(me, joined);
        }
        nodes.retain(|id, _| record.members().contains(*id));
        Some(Self {
            cluster: self.cluster.clone(),
            settings: self.settings,
            record,
            nodes,
        })
    }

    /// The next roster, in which `node` is to leave; nothing if it is no member or leaves already.
    pub fn draining(&self, node: NodeId) -> Option<Self> {
        let own = self.node(node)?;
        self.after(&RecordChange::Drain(node), node, own)
    }

    /// As the store holds it.
    pub fn to_json(&self) -> String {
        let record = &self.record;
        let joined = |id: &NodeId| {
            let joined = self.slices().and_then(|slices| slices.joined(*id));
            joined.unwrap_or_default()
        };
        let nodes = self.nodes.iter().map(|(id, node)| WireNode {
            id: id.0,
            node: node.clone(),
            joined: joined(id).0,
        });
        let rows = self.slices().into_iter().flat_map(|slices| slices.rows());
        let roster = WireRoster {
            form: FORM,
            cluster: self.cluster.clone(),
            settings: self.settings,
            slices: SLICES,
            view: record.number.0,
            formed: record.formed.0,
            leaving: numbers(record.leaving),
            detached: numbers(record.detached),
            released: record.released.0,
            removal: record.removal.0,
            nodes: nodes.collect(),
            rows: rows.map(|(_, row)| row_text(row)).collect(),
        };
        serde_json::to_string_pretty(&roster).unwrap_or_default()
    }

    /// From what [`Roster::to_json`] made.
    ///
    /// # Errors
    /// When it is not that, or another version made it.
    pub fn from_json(text: &str) -> Result<Self, RosterError> {
        let malformed = |error: serde_json::Error| RosterError::Malformed(error.to_string());
        let form: WireForm = serde_json::from_str(text).map_err(malformed)?;
        if form.form != FORM {
            return Err(match form.form < FORM {
                true => RosterError::Older(form.form),
                false => RosterError::Newer(form.form),
            });
        }
        let roster: WireRoster = serde_json::from_str(text).map_err(malformed)?;
        roster.understand().map_err(RosterError::Malformed)
    }
}

/// A model by its name.
pub(crate) fn read_model<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Model, D::Error> {
    let named = String::deserialize(deserializer)?.parse();
    named.map_err(|why| D::Error::custom(format!("model {why}")))
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
const FORM: u32 = 3;

/// The highest number of a view that is read; a thousand views a second for 46 days do not come to
/// it. One that was set by hand to the last number there is would leave none for the next view:
/// nobody could be removed any more.
const VIEW_MAX: u32 = 4_000_000_000;

#[derive(Deserialize)]
struct WireForm {
    form: u32,
}

#[derive(Deserialize, Serialize)]
struct WireRoster {
    form: u32,
    cluster: String,
    #[serde(flatten)]
    settings: Settings,
    slices: u16,
    view: u32,
    formed: u32,
    leaving: Vec<u8>,
    detached: Vec<u8>,
    released: u32,
    removal: u32,
    nodes: Vec<WireNode>,
    /// By slice; none before the cluster is formed.
    rows: Vec<String>,
}

#[derive(Deserialize, Serialize)]
struct WireNode {
    id: u8,
    #[serde(flatten)]
    node: Node,
    /// The view in which it joined; 0 before the cluster is formed.
    joined: u32,
}

fn write_shown<T: fmt::Display, S: Serializer>(shown: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(shown)
}

fn write_hexadecimal<S: Serializer>(life: &Incarnation, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{:016x}", life.0))
}

fn read_hexadecimal<'de, D: Deserializer<'de>>(from: D) -> Result<Incarnation, D::Error> {
    let life = u64::from_str_radix(&String::deserialize(from)?, 16);
    life.map(Incarnation)
        .map_err(|_| D::Error::custom("incarnation of a node is no number"))
}

impl WireRoster {
    fn understand(self) -> Result<Roster, String> {
        if self.slices != SLICES {
            let there = self.slices;
            return Err(format!("{there} slices, and this curtail has {SLICES}"));
        }
        if self.view > VIEW_MAX {
            let there = self.view;
            return Err(format!("view number {there}: the highest is {VIEW_MAX}"));
        }
        let joined = self.nodes.iter();
        let joined = joined.map(|node| (NodeId(node.id), ViewNumber(node.joined)));
        let joined: Vec<_> = joined.collect();
        let number = self.nodes.len();
        let nodes = self.nodes.into_iter();
        let nodes = nodes.map(|wire| Ok((known_id(wire.id)?, wire.node)));
        let nodes: BTreeMap<NodeId, Node> = nodes.collect::<Result<_, String>>()?;
        if nodes.len() != number {
            return Err("a node is there twice".to_owned());
        }
        let number = ViewNumber(self.view);
        let slices = match self.rows.len() {
            0 => None,
            rows if rows == usize::from(SLICES) => {
                let rows = self.rows.iter().map(|text| row_of(text));
                let rows = rows.collect::<Result<Vec<_>, _>>()?;
                let view = SliceView::of_rows(number, joined, rows);
                Some(view.ok_or("a row contradicts itself or the list of members")?)
            }
            rows => return Err(format!("{rows} rows of {SLICES} slices")),
        };
        let members = nodes.keys().copied().collect();
        let mut record = ClusterRecord::NOBODY.stored(members, slices);
        record.number = number;
        record.formed = ViewNumber(self.formed);
        record.leaving = set(&self.leaving)?;
        record.detached = set(&self.detached)?;
        record.released = ViewNumber(self.released);
        record.removal = ViewNumber(self.removal);
        if !members.contains_all(record.leaving.union(record.detached)) {
            return Err("it marks a node as leaving or detached that is not a member".to_owned());
        }
        for (id, node) in &nodes {
            record = record.with_incarnation(*id, node.incarnation);
        }
        Ok(Roster {
            cluster: self.cluster,
            settings: self.settings,
            record,
            nodes,
        })
    }
}

fn row_text(row: &SliceRow) -> String {
    let list = |nodes: NodeSet| {
        let nodes = nodes.into_iter().map(|node| node.0.to_string());
        nodes.collect::<Vec<_>>().join(" ")
    };
    let (in_sync, behind) = (list(row.in_sync), list(row.catching_up()));
    let (primary, term, born) = (row.primary.0, row.term.0, row.born.0);
    format!("{primary} | {in_sync} | {behind} | {term} | {born}")
}

fn row_of(text: &str) -> Result<SliceRow, String> {
    let wrong = || format!("row \"{text}\"");
    let parts: Vec<&str> = text.split('|').map(str::trim).collect();
    let &[primary, in_sync, behind, term, born] = &parts[..] else {
        return Err(wrong());
    };
    let node = |text: &str| {
        let number = text.parse().map_err(|_| wrong())?;
        known_id(number).map_err(|_| wrong())
    };
    let list = |text: &str| {
        text.split_whitespace()
            .map(node)
            .collect::<Result<NodeSet, _>>()
    };
    let view = |text: &str| text.parse().map(ViewNumber).map_err(|_| wrong());
    let in_sync = list(in_sync)?;
    Ok(SliceRow {
        primary: node(primary)?,
        in_sync,
        holders: in_sync.union(list(behind)?),
        term: view(term)?,
        born: view(born)?,
    })
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
            "node {number}: the highest number is {}",
            NodeSet::NODES_MAX - 1
        ))
    }
}

#[cfg(test)]
mod tests {
    use curtail_consistency::slice_view::{RowChange, RowStep, SliceId};

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
            let join = RecordChange::Join(node(id).incarnation);
            roster = roster.after(&join, NodeId(id), &node(id)).unwrap();
            assert_eq!(Roster::from_json(&roster.to_json()).unwrap(), roster);
        }
        assert_eq!(roster.standing(NodeId(2)), "waiting");
        roster
            .after(&RecordChange::Form, NodeId(0), &node(0))
            .unwrap()
    }

    #[test]
    fn a_roster_survives_the_store() {
        let three = three();
        let changes = [
            (RecordChange::Rows(wishes(&three).into()), 0),
            (RecordChange::Drain(NodeId(0)), 0),
            (RecordChange::Remove(NodeSet::only(NodeId(1))), 0),
            (RecordChange::Detach, 2),
            (RecordChange::Attach, 2),
            (RecordChange::Join(Incarnation(77)), 0),
        ];
        let mut roster = three;
        for (change, me) in changes {
            roster = roster.after(&change, NodeId(me), &node(me)).unwrap();
            let again = Roster::from_json(&roster.to_json()).unwrap();
            assert!(again == roster, "{change:?}");
        }
        assert!(roster.node(NodeId(1)).is_none());
        assert_eq!(roster.node(NodeId(2)), Some(&node(2)));
        assert!(roster.to_json().len() < 32 << 10);
    }

    /// A node more for every slice of node 0.
    fn wishes(roster: &Roster) -> Vec<RowChange> {
        let slices = roster.slices().unwrap();
        let led = slices.rows().filter(|(_, row)| row.primary == NodeId(0));
        let change = |(slice, row): (SliceId, &SliceRow)| RowChange {
            slice,
            view: slices.number,
            step: RowStep::Hold(slices.members.difference(row.holders).first().unwrap()),
        };
        led.map(change).collect()
    }

    #[test]
    fn what_a_node_has_is_counted() {
        let roster = three();
        let change = RecordChange::Rows(wishes(&roster).into());
        let roster = roster.after(&change, NodeId(0), &node(0)).unwrap();
        let shares = [0, 1, 2].map(|id| roster.share(NodeId(id)));
        let sum = |which: fn(&SliceShare) -> u16| shares.iter().map(which).sum::<u16>();
        assert_eq!(sum(|share| share.primary), SLICES);
        assert_eq!(sum(|share| share.in_sync), 2 * SLICES);
        assert_eq!(sum(|share| share.catching_up), shares[0].primary);
        assert!(!roster.is_settled() && three().is_settled());
        let gone = RecordChange::Remove(NodeSet::only(NodeId(1)));
        let two = three().after(&gone, NodeId(0), &node(0)).unwrap();
        assert_eq!(three().under_replicated(), 0);
        assert_eq!(two.under_replicated(), shares[1].in_sync);
        assert_eq!(roster.standing(NodeId(0)), "live");
        let leaving = roster.draining(NodeId(0)).unwrap();
        assert_eq!(leaving.standing(NodeId(0)), "leaving");
        assert_eq!(
            (
                leaving.record.staying().to_bits(),
                leaving.draining(NodeId(0))
            ),
            (0b110, None)
        );
    }

    #[test]
    fn what_is_not_a_roster_is_refused() {
        let text = three().to_json();
        assert!(Roster::from_json("").is_err());
        let says = |text: &str| Roster::from_json(text).unwrap_err().to_string();
        for (from, to, why) in [
            ("\"form\": 3", "\"form\": 4", "upgrade this node"),
            ("\"form\": 3", "\"form\": 2", "stop all nodes"),
            ("\"sc\"", "\"strict\"", "model"),
            ("\"id\": 2", "\"id\": 64", "the highest number is 63"),
            ("\"id\": 2", "\"id\": 3", "a row contradicts"),
            ("\"id\": 2", "\"id\": 1", "twice"),
            ("\"slices\": 256", "\"slices\": 64", "64 slices"),
            ("\"view\": 4,", "\"view\": 4294967295,", "view number"),
            ("| 4 | 4", "| 4 | 5", "a row contradicts"),
            ("| 4 | 4", "| 4", "row \""),
            ("0 | 0 1 |", "0 | 0 64 |", "row \""),
            ("0 | 0 1 |", "2 | 0 1 |", "a row contradicts"),
            ("\"leaving\": []", "\"leaving\": [7]", "not a member"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text, "{to}");
            let error = says(&other);
            assert!(error.contains(why), "{to}: {error}");
        }
        let row = text.lines().find(|line| line.contains(" | ")).unwrap();
        assert!(says(&text.replacen(&format!("{row}\n"), "", 1)).contains("255 rows"));
    }
}
