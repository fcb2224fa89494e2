//! Passes the events of the membership to the workers, the links and the log.
//!
//! ```text
//!   Member (thread) --- seen  ---> connector: whom to reach, as which life
//!                   --- adopt ---> views: workers find it at their next turn, stages are told
//!                   --- event ---> the log; removed: forget everything, join anew
//! ```
//!
//! A node that is to end leaves first: no new clients, slices to the others, out of the view.

use std::{
    sync::{Arc, OnceLock, Weak},
    thread::{self, JoinHandle},
};

use curtail_codec::node::{VERSION_MAX, VERSION_MIN};
use curtail_consistency::{
    control_messages::ControlMessage,
    members::{Heartbeat, Incarnation, MemberNotice, RecordChange},
    slice_view::RowChange,
};
use curtail_links::{Connector, ConnectorConfig, ConnectorHandle, NewLink, PeerNode, Tls};
use curtail_membership::{Addresses, Member, MemberEvent, NodeConfig, Observer, Roster};
use curtail_types::{NodeId, Now};
use tracing::{debug, error, info, warn};

use crate::{
    config::{Config, start_error::StartError},
    log::component,
    node::{
        Cluster, ViewInForce,
        host::{NodeArrival, NodeHost},
    },
    sync::{Relaxed, lock},
    test_faults::Fault,
};

/// What a node has before its workers run. Nothing of it runs yet: the server may not start.
pub(crate) struct Opening {
    pub(crate) cluster: Arc<Cluster>,
    /// Where links find the workers, once there are any.
    reach: Reach,
    connector: Connector,
}

type Reach = Arc<OnceLock<Weak<dyn NodeHost>>>;

/// What keeps a node in its cluster; to be stopped last.
pub(crate) struct Membership {
    member: Member,
    connector: ConnectorHandle,
    thread: JoinHandle<()>,
}

impl Opening {
    /// Listens for other nodes, if the server is to be a node.
    pub(crate) fn begin(
        config: &Config,
        threads: usize,
        now: Now,
    ) -> Result<Option<Self>, StartError> {
        let Some(node) = &config.node else {
            return Ok(None);
        };
        let entry = node.entry().ok_or_else(|| {
            StartError::Cluster("the cluster file does not name this node".into())
        })?;
        let unknown =
            |error| StartError::Cluster(format!("node links at {}: {error}", entry.links));
        let listen = entry.links_address().map_err(unknown)?;
        let tls = node.cluster.tls.as_ref().map(Tls::load).transpose();
        let tls = tls.map_err(|error| StartError::Cluster(format!("[tls]: {error}")))?;
        let reach: Reach = Arc::default();
        let deliver_to = Arc::clone(&reach);
        let deliver = move |worker: usize, link: NewLink| {
            if let Some(host) = deliver_to.get().and_then(Weak::upgrade) {
                host.send(worker, NodeArrival::Link(Box::new(link)));
            }
        };
        let connector = Connector::bind(ConnectorConfig {
            node: node.me,
            cluster: node.cluster.name.clone(),
            secret: node.cluster.secret().bytes().to_vec(),
            listen,
            workers: u16::try_from(config.workers).unwrap_or(u16::MAX),
            tls,
            versions: match config.faults.has(Fault::SpeaksOldVersion) {
                true => (VERSION_MIN, VERSION_MIN),
                false => (VERSION_MIN, VERSION_MAX),
            },
            deliver: Box::new(deliver),
            say: Box::new(|text: &str| warn!(target: component::CLUSTER, "{text}")),
        })
        .map_err(|error| StartError::Cluster(format!("node links at {}: {error}", entry.links)))?;
        let cluster = Cluster::new(
            (node.me, now),
            (
                node.cluster.model,
                node.cluster.replicas,
                node.cluster.settings().lease_ms,
            ),
            (config.hot_keys_max, config.faults),
            (config.workers, threads),
            connector.handle(),
        );
        Ok(Some(Self {
            cluster: Arc::new(cluster),
            reach,
            connector,
        }))
    }

    /// Joins the cluster, now that workers run.
    pub(crate) fn join(
        self,
        config: &NodeConfig,
        clients: std::net::SocketAddr,
        host: &Arc<dyn NodeHost>,
    ) -> Result<Membership, StartError> {
        let fail = |error: &dyn std::fmt::Display| StartError::Cluster(error.to_string());
        // It is set once, here.
        let _ = self.reach.set(Arc::downgrade(host));
        let connector = self.connector.handle();
        let addresses = Addresses {
            clients,
            links: connector.address(),
        };
        let clock = host.clock();
        let watcher = Watcher {
            host: Arc::downgrade(host),
            cluster: Arc::clone(&self.cluster),
            life: 0,
        };
        let now = move || clock.now().instant;
        let member = Member::start(config, addresses, now, watcher);
        let member = member.map_err(|error| fail(&error))?;
        // It is set once, here.
        let _ = self.cluster.member.set(member.handle().clone());
        let thread = thread::Builder::new().name("connector".to_owned());
        let thread = thread
            .spawn(move || self.connector.run())
            .map_err(StartError::no_thread)?;
        Ok(Membership {
            member,
            connector,
            thread,
        })
    }
}

impl Membership {
    /// Begins to leave the cluster without loss; false if this node is no member, and has nothing
    /// to give. One whose lease is over for a moment has what it had.
    pub(crate) fn leave(&self, host: &dyn NodeHost, cluster: &Cluster) -> bool {
        cluster.is_leaving.store(true, Relaxed);
        host.set_open(false);
        self.member.handle().leave();
        cluster.views.current().is_some()
    }

    pub(crate) fn stop(self) {
        self.member.stop();
        self.connector.stop();
        // A thread that panicked has said so itself.
        let _ = self.thread.join();
    }
}

/// Receives the events of the membership.
struct Watcher {
    host: Weak<dyn NodeHost>,
    cluster: Arc<Cluster>,
    /// Which of this node's lives it is.
    life: u64,
}

impl Observer for Watcher {
    fn seen(&mut self, roster: &Arc<Roster>, life: Incarnation) {
        let others = roster.nodes().filter(|(id, _)| *id != self.cluster.me);
        let peers = others.map(|(node, entry)| PeerNode {
            node,
            address: entry.addresses.links,
            incarnation: entry.incarnation.0,
        });
        // Another process may have taken this node's place: its links are not made here.
        let own = Some(own_life(roster, self.cluster.me));
        let own = own.filter(|own| *own == life.0).unwrap_or(0);
        self.life = life.0;
        if let Some(host) = self.host.upgrade() {
            let seconds = host.uptime_seconds();
            self.cluster.journal.note_roster(seconds, roster);
        }
        self.cluster.connector.set_peers(own, peers.collect());
    }

    fn adopt(&mut self, roster: &Arc<Roster>) {
        let me = self.cluster.me;
        if let (Some(host), Some(slices)) = (self.host.upgrade(), roster.slices()) {
            let now = host.clock().now().instant;
            self.cluster.clock.note_view(now, slices);
        }
        // Another process may have taken this node's place.
        let is_member = own_life(roster, me) == self.life;
        let slices = roster.slices().filter(|_| is_member);
        let in_force = slices.map(|slices| ViewInForce::new(Arc::clone(slices), roster.goal()));
        self.put_in_force(in_force.map(Arc::new));
        self.let_clients_in();
    }

    fn proposals(&mut self, to: NodeId, changes: &[RowChange]) {
        if let Some(host) = self.host.upgrade() {
            let news = ControlMessage::Proposals(changes.into());
            self.cluster.tell(&*host, to, news);
        }
    }

    fn heartbeat(&mut self, heartbeats: &[(NodeId, Heartbeat)]) {
        lock(&self.cluster.outbox).heartbeats = Some(heartbeats.to_vec());
        self.let_clients_in();
        self.wake();
    }

    fn lease_extended(&mut self) {
        self.let_clients_in();
    }

    fn event(&mut self, event: &MemberEvent) {
        log_event(self.cluster.me, event);
        let MemberEvent::Notice(notice) = event else {
            return;
        };
        match notice {
            MemberNotice::Removed => {
                // The workers count from here on what has forgotten: they hear of it next.
                self.cluster.forgotten.store(0, Relaxed);
                self.put_in_force(None);
                self.nothing_to_give();
            }
            MemberNotice::Replaced => {
                self.put_in_force(None);
                self.nothing_to_give();
            }
            MemberNotice::Departed => self.cluster.has_left.store(true, Relaxed),
            // Also a view of another cluster changes nothing: if it stays, the lease ends.
            _ => {}
        }
    }
}

/// Which of its lives a node has, 0 if it is no member.
fn own_life(roster: &Roster, me: NodeId) -> u64 {
    roster.node(me).map_or(0, |node| node.incarnation.0)
}

impl Watcher {
    fn put_in_force(&self, in_force: Option<Arc<ViewInForce>>) {
        self.cluster.put_in_force(in_force);
        self.wake();
    }

    /// Who was taken out while it was leaving has left.
    fn nothing_to_give(&self) {
        let is_leaving = self.cluster.is_leaving.load(Relaxed);
        self.cluster.has_left.fetch_or(is_leaving, Relaxed);
    }

    /// From when it is first in service: before, a client is better off elsewhere.
    fn let_clients_in(&self) {
        let Some(host) = self.host.upgrade() else {
            return;
        };
        let is_leaving = self.cluster.is_leaving.load(Relaxed);
        if !is_leaving && self.cluster.holds_lease(host.clock().now().instant) {
            host.set_open(true);
        }
    }

    fn wake(&self) {
        if let Some(host) = self.host.upgrade() {
            host.wake_all();
        }
    }
}

/// Writes an event to the log, as important as it is.
fn log_event(me: NodeId, event: &MemberEvent) {
    use MemberEvent::{Mismatch, Notice, StoreAnswers};
    use MemberNotice::{Departed, Heard, Proposed, Removed, Replaced, Resumed};
    let node = me.0;
    match event {
        event if event.is_routine() => debug!(target: component::CLUSTER, node, "{event}"),
        Notice(Proposed(RecordChange::Detach)) => {
            warn!(target: component::CLUSTER, node, "{event}")
        }
        Notice(Resumed | Heard(_) | Departed | Proposed(_)) | StoreAnswers => {
            info!(target: component::CLUSTER, node, "{event}");
        }
        Notice(Removed | Replaced) | Mismatch(_) => {
            error!(target: component::CLUSTER, node, "{event}");
        }
        _ => warn!(target: component::CLUSTER, node, "{event}"),
    }
}
