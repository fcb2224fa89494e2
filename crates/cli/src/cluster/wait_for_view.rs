//! Waits until the cluster's view shows what the operator asked for.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use curtail_membership::{ClusterFile, Incarnation, Node, Roster};
use curtail_types::NodeId;

/// Waits until every slice is at its planned nodes; prints what is missing whenever that changes.
pub(super) fn wait(cluster: &ClusterFile, patience: Duration) -> anyhow::Result<()> {
    until(cluster, (patience, REBALANCE), missing)?;
    println!("every slice has its replicas, spread evenly over the nodes");
    Ok(())
}

/// The same, with a node among the members, in another life than the one given.
pub(super) fn wait_for(
    cluster: &ClusterFile,
    (id, life): (NodeId, Option<Incarnation>),
    patience: Duration,
) -> anyhow::Result<()> {
    until(cluster, (patience, REBALANCE), |roster| {
        let is_new = |node: &&Node| Some(node.incarnation) != life;
        match roster.node(id).filter(is_new) {
            None => Some("the node has not joined yet".to_owned()),
            Some(_) => missing(roster),
        }
    })?;
    println!("the node answers clients and has its share of the slices");
    Ok(())
}

/// Waits until node `id` is no member any more; the command `again` would wait on.
pub(super) fn wait_until_gone(
    cluster: &ClusterFile,
    id: NodeId,
    (patience, again): (Duration, &str),
) -> anyhow::Result<()> {
    until(cluster, (patience, again), |roster| {
        let member = roster.node(id).is_some();
        member.then(|| missing(roster).unwrap_or_else(|| "the node is leaving".to_owned()))
    })
}

/// What a settled cluster would have that this one lacks.
fn missing(roster: &Roster) -> Option<String> {
    let slices = match roster.slices() {
        None => return Some("the cluster is not formed yet".to_owned()),
        Some(_) if roster.is_settled() => return None,
        Some(slices) => slices,
    };
    let staying = roster.record.staying();
    if staying.is_empty() {
        return Some("all nodes leave".to_owned());
    }
    let waits = |(what, count): (&str, usize)| (count > 0).then(|| format!("{count} {what}"));
    let few = usize::from(roster.under_replicated());
    let behind = slices.rows();
    let behind = behind.filter(|(_, row)| !row.catching_up().is_empty());
    let on_leaving = slices.rows();
    let on_leaving = on_leaving.filter(|(_, row)| !staying.contains_all(row.holders));
    let told = [
        ("have fewer copies than `replicas` says", few),
        ("are being copied", behind.count()),
        ("are still on nodes that leave", on_leaving.count()),
    ];
    let told: Vec<String> = told.into_iter().filter_map(waits).collect();
    Some(match told.is_empty() {
        true => "slices are about to move".to_owned(),
        false => format!("of {} slices: {}", slices.slices(), told.join(", ")),
    })
}

fn until(
    cluster: &ClusterFile,
    (patience, again): (Duration, &str),
    lacks: impl Fn(&Roster) -> Option<String>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut store = cluster.open_store();
    let mut told = String::new();
    loop {
        let Some(stored) = store.read_roster()? else {
            ensure!(start.elapsed() < patience, "no node has joined yet");
            thread::sleep(PAUSE);
            continue;
        };
        let Some(lacking) = lacks(&stored.roster) else {
            return Ok(());
        };
        if start.elapsed() >= patience {
            bail!(
                "not done after {} s: {lacking}; the nodes continue, and `{again}` waits for them \
                 again",
                patience.as_secs()
            );
        }
        if lacking != told {
            println!("{lacking}");
            told = lacking;
        }
        thread::sleep(PAUSE);
    }
}

const PAUSE: Duration = Duration::from_millis(100);

/// Waits for whatever is under way.
const REBALANCE: &str = "curtail cluster rebalance";

#[cfg(test)]
mod tests {
    use curtail_consistency::{
        members::RecordChange,
        slice_placement::{PlacementGoal, wished_steps},
        slice_view::{RowChange, RowStep},
    };
    use curtail_membership::{Addresses, Settings};

    use super::*;

    fn after(roster: &Roster, change: &RecordChange, id: u8) -> Roster {
        let address = ([127, 0, 0, 1], 1).into();
        let own = Node {
            name: format!("node{id}"),
            addresses: Addresses {
                clients: address,
                links: address,
            },
            incarnation: Incarnation(u64::from(id) + 1),
        };
        roster.after(change, NodeId(id), &own).unwrap()
    }

    fn with_steps(roster: &Roster) -> Roster {
        let slices = roster.slices().unwrap();
        let mut steps = wished_steps(slices, &roster.goal());
        for (slice, row) in slices.rows() {
            let entered = row.catching_up().into_iter().map(RowStep::Enter);
            steps.extend(entered.map(|step| (slice, step)));
        }
        let view = slices.number;
        let change = |(slice, step)| RowChange { slice, view, step };
        let changes: Vec<_> = steps.into_iter().map(change).collect();
        after(roster, &RecordChange::Rows(changes.into()), 0)
    }

    #[test]
    fn what_is_missing_is_said() {
        let settings = Settings {
            model: Default::default(),
            replicas: 2,
            lease_ms: 1000,
        };
        let mut roster = Roster::empty("trial", settings);
        let says = |roster: &Roster| missing(roster).unwrap_or_default();
        assert_eq!(says(&roster), "the cluster is not formed yet");
        roster = after(&roster, &RecordChange::Join(Incarnation(1)), 0);
        roster = after(&roster, &RecordChange::Form, 0);
        assert_eq!(says(&roster), "", "one node holds what there is");
        roster = after(&roster, &RecordChange::Join(Incarnation(2)), 1);
        let all = "of 256 slices: 256 have fewer copies than `replicas` says";
        assert_eq!(says(&roster), all);
        roster = with_steps(&roster);
        let moves = PlacementGoal::MOVES_MAX;
        assert_eq!(says(&roster), format!("{all}, {moves} are being copied"));
        let leaving = after(&roster, &RecordChange::Drain(NodeId(0)), 0);
        let told = "256 are still on nodes that leave";
        let told = format!("of 256 slices: {moves} are being copied, {told}");
        assert_eq!(says(&leaving), told);
        for _ in 0..200 {
            if !roster.is_settled() {
                roster = with_steps(&roster);
            }
        }
        assert_eq!(missing(&roster), None);
    }
}
