//! Keys that nobody touches while a cluster is in trouble: what is gone of them afterwards, and
//! what the nodes say is gone.

use std::{ops::Range, sync::Arc};

use curtail_testing::Client;

use crate::{
    losses::Views,
    processes::Processes,
    support::{answered, store},
};

/// Keys that were written before an episode.
pub(crate) struct Treasure {
    number: usize,
    /// A node to which nothing is done.
    spared: usize,
    /// What that node said before of losses.
    lost_before: u64,
}

/// What is left of them.
pub(crate) struct Found {
    /// Gone with all of their holders.
    pub(crate) lost: usize,
    pub(crate) lost_as_told: u64,
    /// Gone without a reason.
    pub(crate) wrongly: Vec<String>,
}

const KEPT: usize = 400;

impl Treasure {
    pub(crate) fn bury(cluster: &mut Processes, number: usize, spared: usize) -> Self {
        let lost_before = items_lost(cluster, spared);
        let mut client = client(cluster, spared);
        let treasure = Self {
            number,
            spared,
            lost_before,
        };
        for key in treasure.keys() {
            // A node that has joined is in service a moment after the view says so.
            store(&mut client, &key, "gold");
        }
        treasure
    }

    fn keys(&self) -> impl Iterator<Item = String> + use<> {
        let number = self.number;
        (0..KEPT).map(move |index| format!("kept{number}-{index}"))
    }

    /// Looks for all of them.
    pub(crate) fn dig(&self, cluster: &mut Processes, views: &mut Views) -> Found {
        let mut client = client(cluster, self.spared);
        let mut gone = Vec::new();
        for key in self.keys() {
            // A busy node may be out of service for a moment: what it refuses is not gone.
            match answered(&mut client, &format!("mg {key} v\r\n")) {
                answer if answer == "VA 4" => assert_eq!(client.line(), "gold", "{key}"),
                answer => gone.push((key, answer)),
            }
        }
        // A node that stalls after the trouble may be removed as late as now.
        views.note(cluster.roster().map(Arc::new));
        let may_be_gone = |(key, answer): &(String, String)| answer == "EN" && views.may_lose(key);
        let (lost, wrongly): (Vec<_>, Vec<_>) = gone.into_iter().partition(may_be_gone);
        Found {
            lost: lost.len(),
            lost_as_told: items_lost(cluster, self.spared).saturating_sub(self.lost_before),
            wrongly: wrongly.iter().map(|one| format!("{one:?}")).collect(),
        }
    }

    /// Leaves nothing of an episode behind.
    pub(crate) fn remove(&self, cluster: &mut Processes, keys: Range<u64>) {
        let mut client = client(cluster, self.spared);
        for key in self.keys().chain(keys.map(|key| format!("k{key}"))) {
            client.ask(format!("delete {key}\r\n"));
        }
    }
}

/// How many items were lost, as this node says.
pub(crate) fn items_lost(cluster: &mut Processes, id: usize) -> u64 {
    client(cluster, id).stat("curtail", "cluster_items_lost")
}

fn client(cluster: &mut Processes, id: usize) -> Client {
    Client::connect_to(cluster.stream_addresses()[id].unwrap())
}
