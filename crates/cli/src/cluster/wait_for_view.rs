//! Waits until the cluster's view shows what the operator asked for.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use curtail_membership::{ClusterFile, Incarnation, Roster};
use curtail_types::NodeId;

/// Waits until keys are placed on every node that stays and none is on its way; says what is
/// awaited whenever that changes.
pub(super) fn wait(cluster: &ClusterFile, patience: Duration) -> anyhow::Result<()> {
    until(cluster, patience, missing)?;
    println!("keys are placed on every node that stays");
    Ok(())
}

/// The same, with a node among those that serve, in another life than the one given.
pub(super) fn wait_for(
    cluster: &ClusterFile,
    (id, life): (NodeId, Option<Incarnation>),
    patience: Duration,
) -> anyhow::Result<()> {
    until(cluster, patience, |roster| {
        let live = roster.view().live.contains(id);
        match roster
            .node(id)
            .filter(|node| Some(node.incarnation) != life)
        {
            None => Some("it has not joined yet".to_owned()),
            Some(_) if !live => Some("it has joined and fetches the hot keys".to_owned()),
            Some(_) => missing(roster),
        }
    })?;
    println!("it serves, and keys are placed on it");
    Ok(())
}

/// Waits until node `id` is no member any more.
pub(super) fn wait_until_gone(
    cluster: &ClusterFile,
    id: NodeId,
    patience: Duration,
) -> anyhow::Result<()> {
    until(cluster, patience, |roster| {
        let member = roster.node(id).is_some();
        member.then(|| missing(roster).unwrap_or_else(|| "it leaves".to_owned()))
    })
}

/// What a settled cluster would have that this one lacks.
fn missing(roster: &Roster) -> Option<String> {
    let view = roster.view();
    if view.moves() {
        return Some("keys are moving".to_owned());
    }
    if view.live.is_empty() {
        return Some("no node is live".to_owned());
    }
    let staying = roster.members.staying();
    (!staying.is_empty() && view.placed != staying).then(|| "keys are about to move".to_owned())
}

fn until(
    cluster: &ClusterFile,
    patience: Duration,
    lacks: impl Fn(&Roster) -> Option<String>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut store = cluster.open_store();
    let mut told = String::new();
    loop {
        let Some(stored) = store.read()? else {
            ensure!(start.elapsed() < patience, "no node has joined yet");
            thread::sleep(PAUSE);
            continue;
        };
        let Some(lacking) = lacks(&stored.roster) else {
            return Ok(());
        };
        if start.elapsed() >= patience {
            bail!("after {} s: {lacking}", patience.as_secs());
        }
        if lacking != told {
            println!("{lacking}");
            told = lacking;
        }
        thread::sleep(PAUSE);
    }
}

const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use curtail_types::NodeSet;

    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let settings = curtail_membership::Settings {
            model: Default::default(),
            replicas: 1,
            lease_ms: 1000,
        };
        let mut roster = Roster::empty("trial", settings);
        let says = |roster: &Roster| missing(roster).unwrap_or_default();
        assert_eq!(says(&roster), "no node is live");
        roster.members.view.live = NodeSet::from_bits(3);
        assert_eq!(says(&roster), "keys are about to move");
        roster.members.view.placed = NodeSet::from_bits(3);
        assert_eq!(says(&roster), "keys are moving");
        roster.members.view.placed_before = NodeSet::from_bits(3);
        assert_eq!(missing(&roster), None);
    }
}
