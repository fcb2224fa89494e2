//! The coordinator: one node decides which keys shall be hot and proposes them to their homes.
//!
//! Every node sees the same mix of requests, so the lowest live node decides by what its own
//! workers were asked for (ccKVS, section 4), once an epoch of the control thread. It only
//! proposes: a key's home decides. Every node knows the hot keys, because it holds them, so the
//! next coordinator continues with the current hot set.
//!
//! ```text
//!   workers' reports --> HotSet::end_epoch --> a proposal for each key --> worker 0 --> its home
//!   keys shared here -----------^                                     (here, or by link)
//! ```

use std::collections::BTreeSet;

use curtail_codec::node::{Class, Part};
use curtail_consistency::{
    hot_set::{HotSet, HotSetConfig, MessageBytes},
    symmetric::Model,
};
use curtail_types::{HotSetEpoch, Key, KeyName, Load, LoadReport};

use crate::{
    node::{
        Cluster, NodeWorker,
        control_messages::News,
        host::{NodeArrival, NodeContext, NodeHost},
        request_placement::route_of,
    },
    sync::{Relaxed, lock},
};

/// What decides, on every node; it is asked on one.
pub(crate) struct Coordinator {
    set: HotSet,
    epoch: u64,
}

/// A key that shall become hot, or cease to be.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) key: Box<[u8]>,
    pub(crate) hot: bool,
}

/// A key with less load is not worth a place: half a sample an epoch, which by the average over
/// epochs is a request in two epochs, or several long ago.
const LOAD_MIN: Load = Load(Load::ONE.0 / 2);

/// An epoch with fewer samples changes nothing: what was hot may be so again.
const TOTAL_MIN: Load = Load::of(128);

impl Coordinator {
    pub(crate) fn new(model: Model, keys_max: usize) -> Self {
        let bytes = match model {
            Model::Lin => MessageBytes::LIN,
            Model::Sc => MessageBytes::SC,
        };
        let config = HotSetConfig {
            bytes,
            load_min: LOAD_MIN,
            ..HotSetConfig::new(keys_max)
        };
        Self {
            set: HotSet::new(config),
            epoch: 0,
        }
    }
}

impl Cluster {
    /// The end of an epoch of the control thread.
    pub(crate) fn end_epoch(&self, host: &dyn NodeHost) {
        let in_force = self.views.current();
        let Some(view) = in_force.map(|in_force| in_force.view) else {
            return;
        };
        let hot: BTreeSet<KeyName> = self.shared_names();
        self.hot_count.store(hot.len(), Relaxed);
        self.journal.note_hot(host.uptime_seconds(), hot.clone());
        if view.live.first() != Some(self.me) || self.hot_keys_max == 0 {
            return;
        }
        let reports = host.key_loads();
        let Ok(Some(report)) = LoadReport::merged(&reports, usize::MAX) else {
            return;
        };
        if report.total < TOTAL_MIN {
            return;
        }
        let mut coordinator = lock(&self.coordinator);
        let Coordinator { set, epoch } = &mut *coordinator;
        let known: Vec<KeyName> = set.hot().copied().collect();
        known
            .iter()
            .filter(|key| !hot.contains(key))
            .for_each(|key| set.became_cold(key));
        hot.iter().for_each(|key| set.became_hot(*key));
        *epoch += 1;
        let change = set.end_epoch(HotSetEpoch(*epoch), &[report], view.live.len());
        let Ok(change) = change else {
            return;
        };
        let promote = change.promote.iter().map(|key| (key, true));
        let demote = change.demote.iter().map(|key| (key, false));
        for (key, hot) in promote.chain(demote) {
            let key = key.bytes().into();
            host.send(0, NodeArrival::Proposal(Box::new(Proposal { key, hot })));
        }
    }

    /// The keys that are shared with others as far as this node knows.
    fn shared_names(&self) -> BTreeSet<KeyName> {
        let mut names = BTreeSet::new();
        for slice in &self.slices {
            slice.each_shared(|key| {
                if let Ok(key) = Key::new(key) {
                    names.insert(KeyName::of(key));
                }
            });
        }
        names
    }
}

impl NodeWorker {
    /// Brings a proposal to the home of its key.
    pub(crate) fn propose(&mut self, cx: &NodeContext<'_>, proposal: &Proposal) {
        let Some(in_force) = &self.in_force else {
            return;
        };
        let home = in_force.home(route_of(&proposal.key));
        if home == self.cluster.me {
            return self
                .cluster
                .change_hot(cx.host, &proposal.key, proposal.hot);
        }
        let bytes = News::proposal(&proposal.key, proposal.hot);
        if let Some(to) = self.links.endpoint(home) {
            // A proposal that is lost is made again while its reason lasts.
            let _ = self.links.send(to, Class::Demand, &Part::Report(&bytes));
        }
    }
}
