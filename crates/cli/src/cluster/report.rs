//! `curtail cluster status`: the view and the processes, side by side.

use std::fmt;

use curtail_membership::{ClusterFile, Roster};
use curtail_types::NodeId;
use serde::Serialize;

use super::{control_socket::Process, node_stats::Numbers};
use crate::top::{number_format::age, reported_cluster::milliseconds};

/// Events that are told.
const EVENTS_MAX: usize = 8;

/// What is known of a cluster.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    cluster: String,
    model: String,
    replicas: usize,
    lease_ms: u64,
    view: u32,
    /// Whether slices are not at their planned nodes yet.
    moving: bool,
    slices: Slices,
    nodes: Vec<Line>,
}

/// How many slices are how.
#[derive(Debug, Serialize)]
struct Slices {
    all: u16,
    under_replicated: u16,
    catching_up: u16,
}

#[derive(Debug, Serialize)]
struct Line {
    id: u8,
    name: String,
    clients: String,
    /// What the others take it for.
    membership: &'static str,
    /// Slices whose primary it is, that it has all of, and that it is sent.
    primary: u16,
    in_sync: u16,
    catching_up: u16,
    process: Option<String>,
    pid: Option<u32>,
    /// Of a node that answers.
    numbers: Option<Numbers>,
}

impl Report {
    /// Puts together what the file, the store and the parent of the processes say.
    pub(super) fn new(
        cluster: &ClusterFile,
        roster: Option<Roster>,
        processes: Vec<Process>,
    ) -> Self {
        let settings = cluster.settings();
        let roster = roster.unwrap_or_else(|| Roster::empty(&cluster.name, settings));
        let mut ids: Vec<NodeId> = cluster.nodes.iter().map(|entry| entry.id).collect();
        ids.extend(roster.nodes().map(|(id, _)| id));
        ids.sort_unstable();
        ids.dedup();
        let catching_up = ids.iter().map(|id| roster.share(*id).catching_up).sum();
        let process = |id: NodeId| processes.iter().find(|process| process.id == id.0);
        let lines = ids
            .into_iter()
            .map(|id| line(cluster, &roster, id, process(id)));
        Self {
            cluster: cluster.name.clone(),
            model: settings.model.to_string(),
            replicas: settings.replicas,
            lease_ms: settings.lease_ms,
            view: roster.record.number.0,
            moving: roster.slices().is_some() && !roster.is_settled(),
            slices: Slices {
                all: roster.slices().map_or(0, |slices| slices.slices()),
                under_replicated: roster.under_replicated(),
                catching_up,
            },
            nodes: lines.collect(),
        }
    }
}

fn line(cluster: &ClusterFile, roster: &Roster, id: NodeId, process: Option<&Process>) -> Line {
    let (entry, share) = (cluster.entry(id), roster.share(id));
    let node = roster.node(id);
    let name = node.map(|node| node.name.clone());
    let address = node.map(|node| node.addresses.clients.to_string());
    let known = |text: &dyn Fn() -> Option<String>| text().unwrap_or_default();
    let clients = address.unwrap_or_else(|| known(&|| Some(entry?.clients.clone())));
    let runs = process.is_none_or(|process| process.state == "running");
    let numbers = (node.is_some() && runs).then(|| Numbers::ask(&clients));
    Line {
        numbers: numbers.flatten(),
        id: id.0,
        name: name.unwrap_or_else(|| known(&|| Some(entry?.name.clone()))),
        clients,
        membership: roster.standing(id),
        primary: share.primary,
        in_sync: share.in_sync,
        catching_up: share.catching_up,
        process: process.map(|process| process.state.clone()),
        pid: process.and_then(|process| process.pid),
    }
}

impl Report {
    /// How the slices are, in a sentence.
    fn placement(&self) -> String {
        let Slices {
            all,
            under_replicated,
            catching_up,
        } = self.slices;
        match all {
            0 => return "the cluster is not formed yet".to_owned(),
            _ if !self.moving => return format!("{all} slices, all at their planned nodes"),
            _ => {}
        }
        format!(
            "{all} slices; slices move: {under_replicated} have fewer copies than `replicas` says, \
             {catching_up} are being copied"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: view {}, model {}, replicas {}, lease {} ms",
            self.cluster, self.view, self.model, self.replicas, self.lease_ms
        )?;
        writeln!(f, "{}", self.placement())?;
        writeln!(
            f,
            "{:<4}{:<12}{:<24}{:<12}{:>8}{:>9}{:>9}  process",
            "id", "name", "clients", "membership", "primary", "in sync", "catch up"
        )?;
        for line in &self.nodes {
            let process = line.process.as_deref().unwrap_or("-");
            let pid = line.pid.map(|pid| format!(" (pid {pid})"));
            writeln!(
                f,
                "{:<4}{:<12}{:<24}{:<12}{:>8}{:>9}{:>9}  {process}{}",
                line.id,
                line.name,
                line.clients,
                line.membership,
                line.primary,
                line.in_sync,
                line.catching_up,
                pid.unwrap_or_default()
            )?;
        }
        let told = |line: &Line| line.numbers.clone().map(|numbers| (line.id, numbers));
        let told: Vec<(u8, Numbers)> = self.nodes.iter().filter_map(told).collect();
        if !told.is_empty() {
            writeln!(
                f,
                "\n{:<4}{:>9}{:>12}{:>12}{:>12}{:>11}{:>8}  round trips",
                "id", "hot keys", "hot reads", "relayed", "for others", "keys sent", "lost"
            )?;
        }
        for (id, numbers) in &told {
            let trip = |(to, us): (&u64, &u64)| format!("{to}: {}", milliseconds(*us));
            let trips: Vec<String> = numbers.round_trips_us.iter().map(trip).collect();
            writeln!(
                f,
                "{id:<4}{:>9}{:>12}{:>12}{:>12}{:>11}{:>8}  {}",
                numbers.hot_keys,
                numbers.hot_reads,
                numbers.relayed,
                numbers.answered,
                numbers.keys_sent,
                numbers.items_lost,
                trips.join(", ")
            )?;
        }
        // Every node reports the same events; the node that is up longest knows most of them.
        let longest = told.iter().max_by_key(|(_, numbers)| numbers.events.len());
        let Some((id, numbers)) = longest else {
            return Ok(());
        };
        writeln!(f, "\nWhat happened, as node {id} saw it:")?;
        for (seconds, what) in numbers.events.iter().take(EVENTS_MAX) {
            writeln!(f, "{} ago   {what}", age(*seconds))?;
        }
        Ok(())
    }
}
