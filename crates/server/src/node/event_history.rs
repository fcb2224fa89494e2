//! Events of the cluster as this node saw them: for `stats curtail` and `curtail top`.
//!
//! A change of the view is recorded as the difference of two rosters, so every node records the
//! same events, whichever node made the change. How many items a dead node had is known from its
//! last heartbeat.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::{self, Display},
    net::SocketAddr,
    sync::Arc,
};

use curtail_consistency::slice_view::{SliceRow, SliceView};
use curtail_membership::{Node, Roster};
use curtail_types::{KeyName, NodeId};
use tracing::{Level, info, warn};

use crate::{
    log::component,
    sync::{Mutex, lock},
};

/// The last changes, and what is known of the members.
#[derive(Debug, Default)]
pub(crate) struct EventHistory(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Seconds since the server's start, and what happened then; the oldest first.
    lines: VecDeque<(u64, String)>,
    roster: Option<Arc<Roster>>,
    /// What was heard of each node.
    heard: BTreeMap<NodeId, Heard>,
    hot: BTreeSet<KeyName>,
    became_hot: u64,
    ceased: u64,
    /// The same, as of the last line about them, and when that was.
    told: (u64, u64),
    told_at: u64,
    items_lost: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// How many items it said that it has.
    items: u64,
    /// Round-trip time to it, in microseconds: a moving mean.
    round_trip_us: Option<u64>,
}

/// Lines that are kept.
const LINES_MAX: usize = 32;

/// About so many round trips make a mean.
const ROUND_TRIPS: u64 = 8;

/// Seconds between two lines about the hot set.
const HOT_SECONDS: u64 = 10;

impl EventHistory {
    /// A heartbeat of another node, or of this one, said how many items its sender has.
    pub(super) fn note_items(&self, node: NodeId, items: u64) {
        lock(&self.0).heard.entry(node).or_default().items = items;
    }

    /// A round trip to `node` took so many microseconds.
    pub(super) fn note_round_trip(&self, node: NodeId, us: u64) {
        let mut known = lock(&self.0);
        let heard = known.heard.entry(node).or_default();
        let mean = heard.round_trip_us.get_or_insert(us);
        *mean = (*mean * (ROUND_TRIPS - 1) + us) / ROUND_TRIPS;
    }

    /// Another roster is in the store.
    pub(super) fn note_roster(&self, seconds: u64, roster: &Arc<Roster>) {
        let mut known = lock(&self.0);
        let before = known.roster.replace(Arc::clone(roster));
        let lines = match &before {
            Some(before) => known.differences(before, roster),
            None => Vec::new(),
        };
        let number = roster.record.number.0;
        for (level, line) in lines {
            match level {
                Level::WARN => warn!(target: component::CLUSTER, view = number, "{line}"),
                _ => info!(target: component::CLUSTER, view = number, "{line}"),
            }
            known.push(seconds, format!("view {number}: {line}"));
        }
    }

    /// These keys are shared with others now.
    pub(super) fn note_hot(&self, seconds: u64, hot: BTreeSet<KeyName>) {
        let mut known = lock(&self.0);
        known.became_hot += hot.difference(&known.hot).count() as u64;
        known.ceased += known.hot.difference(&hot).count() as u64;
        known.hot = hot;
        let now = (known.became_hot, known.ceased);
        let due = known.told_at == 0 || seconds >= known.told_at + HOT_SECONDS;
        if now != known.told && due {
            let (new, gone) = (now.0 - known.told.0, now.1 - known.told.1);
            let count = known.hot.len();
            known.told = now;
            known.told_at = seconds;
            let line = format!("{count} keys are hot: {new} promoted, {gone} demoted");
            info!(target: component::CLUSTER, "{line}");
            known.push(seconds, line);
        }
    }

    /// What is counted.
    pub(super) fn numbers(&self, mut stat: impl FnMut(&'static str, u64)) {
        let known = lock(&self.0);
        stat("cluster_became_hot", known.became_hot);
        stat("cluster_ceased_to_be_hot", known.ceased);
        stat("cluster_items_lost", known.items_lost);
    }

    /// The cluster's name, its model and its members, once there is a roster; `me` has `items`
    /// items.
    pub(crate) fn members(
        &self,
        (me, items): (NodeId, u64),
    ) -> Option<(String, &'static str, Vec<Member>)> {
        let known = lock(&self.0);
        let roster = known.roster.as_ref()?;
        let member = |(id, node): (NodeId, &Node)| {
            let heard = known.heard.get(&id).copied().unwrap_or_default();
            let share = roster.share(id);
            let has_slices = share.in_sync + share.catching_up > 0;
            Member {
                id,
                standing: roster.standing(id),
                keys: if has_slices { "yes" } else { "no" },
                items: if id == me { items } else { heard.items },
                name: node.name.clone(),
                clients: node.addresses.clients,
                round_trip_us: heard.round_trip_us.filter(|_| id != me),
            }
        };
        let members = roster.nodes().map(member).collect();
        Some((
            roster.cluster.clone(),
            roster.settings.model.name(),
            members,
        ))
    }

    /// Who is there and what happened, as rows of names and values; `me` has `items` items.
    pub(crate) fn tell(&self, me: (NodeId, u64), mut row: impl FnMut(&str, &dyn Display)) {
        if let Some((name, model, members)) = self.members(me) {
            row("cluster_name", &name);
            row("cluster_model", &model);
            for member in &members {
                row(&format!("cluster_member:{}", member.id.0), member);
            }
        }
        for (seconds, line) in &lock(&self.0).lines {
            row(&format!("cluster_event:{seconds}"), line);
        }
    }
}

impl Known {
    fn push(&mut self, seconds: u64, line: String) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back((seconds, line));
    }

    fn differences(&mut self, before: &Roster, now: &Roster) -> Vec<(Level, String)> {
        let mut lines = Vec::new();
        let life = |roster: &Roster, id| roster.node(id).map(|node| node.incarnation);
        if let (Some(old), Some(new)) = (before.slices(), now.slices()) {
            lines.extend(self.loss(old, new).map(|line| (Level::WARN, line)));
        }
        for (id, node) in before.nodes() {
            if life(now, id) == life(before, id) {
                continue;
            }
            let name = &node.name;
            lines.push(match before.record.leaving.contains(id) {
                true => (Level::INFO, format!("{name} has left")),
                false => (Level::WARN, format!("{name} was removed")),
            });
            self.heard.remove(&id);
        }
        let mut note = |line: String| lines.push((Level::INFO, line));
        let was_formed = before.slices().is_some();
        for (id, node) in now.nodes() {
            let (name, is_new) = (&node.name, life(now, id) != life(before, id));
            let is_formed = now.slices().is_some();
            match (is_new, is_formed && (is_new || !was_formed)) {
                (_, true) => note(format!("{name} is in service")),
                (true, false) => note(format!("{name} joins")),
                (false, false) => {}
            }
            if now.record.leaving.contains(id) && !before.record.leaving.contains(id) {
                note(format!("{name} starts to leave"));
            }
        }
        let is_settled = |roster: &Roster| roster.slices().is_none() || roster.is_settled();
        match (is_settled(before), is_settled(now)) {
            (true, false) => note("slices begin to move".to_owned()),
            (false, true) => note("all slices have moved".to_owned()),
            _ => {}
        }
        lines
    }

    /// What was lost between two views: slices of whose in-sync sets nobody lived. A dead primary's
    /// last heartbeat told how many items it had.
    fn loss(&mut self, old: &SliceView, new: &SliceView) -> Option<String> {
        let lost = |row: &SliceRow, now: &SliceRow| now.born > row.born;
        let (mut slices, mut items) = (0, 0);
        for node in old.members {
            let rows = || old.rows().zip(new.rows());
            let held = rows().filter(|((_, row), _)| row.holders.contains(node));
            let held = held.count().max(1) as u64;
            let own = rows().filter(|((_, row), (_, now))| row.primary == node && lost(row, now));
            let own = own.count() as u64;
            slices += own;
            items += self.heard.get(&node).map_or(0, |heard| heard.items) * own / held;
        }
        self.items_lost += items;
        let line = format!("{slices} slices lost their contents, about {items} items");
        (slices > 0).then_some(line)
    }
}

/// A member in one row: standing, keys, items, name, address for clients, and the round trip to it
/// in microseconds if there was one.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) id: NodeId,
    pub(crate) standing: &'static str,
    pub(crate) keys: &'static str,
    pub(crate) items: u64,
    pub(crate) name: String,
    clients: SocketAddr,
    pub(crate) round_trip_us: Option<u64>,
}

impl Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            standing,
            keys,
            items,
            name,
            clients,
            ..
        } = self;
        write!(f, "{standing} {keys} {items} {name} {clients}")?;
        match self.round_trip_us {
            Some(us) => write!(f, " {us}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_consistency::members::{Incarnation, RecordChange};
    use curtail_membership::{Addresses, Settings};

    use super::*;

    fn after(roster: &Roster, change: &RecordChange, me: u8) -> Arc<Roster> {
        let address = ([127, 0, 0, 1], 1000 + u16::from(me)).into();
        let own = Node {
            name: format!("node{me}"),
            addresses: Addresses {
                clients: address,
                links: address,
            },
            incarnation: Incarnation(7),
        };
        Arc::new(roster.after(change, NodeId(me), &own).unwrap())
    }

    fn rows(journal: &EventHistory) -> Vec<String> {
        let mut rows = Vec::new();
        journal.numbers(|name, value| rows.push(format!("{name} {value}")));
        journal.tell((NodeId(0), 5), |name, value| {
            rows.push(format!("{name} {value}"))
        });
        rows
    }

    /// Goal: each node reports what happened to all nodes, and what is lost. Method: two
    /// nodes form a cluster, one says what it has and dies.
    #[test]
    fn a_node_death_is_recorded_with_the_items_lost() {
        let settings = Settings {
            model: Default::default(),
            replicas: 1,
            lease_ms: 1000,
        };
        let journal = EventHistory::default();
        let mut roster = Arc::new(Roster::empty("trial", settings));
        journal.note_roster(0, &roster);
        let dead = [NodeId(1)].into_iter().collect();
        for (seconds, (change, me)) in [
            (RecordChange::Join(Incarnation(7)), 0),
            (RecordChange::Join(Incarnation(7)), 1),
            (RecordChange::Form, 0),
            (RecordChange::Remove(dead), 0),
        ]
        .into_iter()
        .enumerate()
        {
            roster = after(&roster, &change, me);
            journal.note_roster(seconds as u64, &roster);
            journal.note_items(NodeId(1), 1200);
            journal.note_round_trip(NodeId(0), 70);
        }
        let rows = rows(&journal);
        let has = |row: &str| assert!(rows.iter().any(|found| found == row), "{row}: {rows:#?}");
        has("cluster_name trial");
        has("cluster_member:0 live yes 5 node0 127.0.0.1:1000");
        has("cluster_event:1 view 2: node1 joins");
        has("cluster_event:2 view 3: node1 is in service");
        has("cluster_event:3 view 4: node1 was removed");
        has("cluster_event:3 view 4: 128 slices lost their contents, about 1200 items");
        has("cluster_items_lost 1200");
    }
}
