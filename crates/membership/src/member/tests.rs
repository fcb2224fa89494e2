//! Members of one process, with a file as their store and heartbeats through their handles.

use std::{
    sync::{Mutex, OnceLock},
    time,
};

use curtail_consistency::{
    slice_placement::{is_settled, wished_steps},
    slice_view::RowStep,
};

use super::*;
use crate::{ClusterFile, Secret};

const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster of members in this process.
struct Trial {
    folder: tempfile::TempDir,
    lines: Arc<Mutex<Vec<Option<MemberHandle>>>>,
    heard: Arc<Mutex<Vec<(NodeId, MemberEvent)>>>,
    adopted: Arc<Mutex<Vec<Option<Arc<Roster>>>>>,
}

struct Ear {
    me: NodeId,
    lines: Arc<Mutex<Vec<Option<MemberHandle>>>>,
    heard: Arc<Mutex<Vec<(NodeId, MemberEvent)>>>,
    adopted: Arc<Mutex<Vec<Option<Arc<Roster>>>>>,
    own: Arc<OnceLock<MemberHandle>>,
}

impl Observer for Ear {
    fn seen(&mut self, _: &Arc<Roster>, _: Incarnation) {}

    fn adopt(&mut self, roster: &Arc<Roster>) {
        self.adopted.lock().unwrap()[usize::from(self.me.0)] = Some(Arc::clone(roster));
        let Some(slices) = roster.slices() else {
            return;
        };
        // What a replica would want, if keys were nothing to carry.
        let own = self.own.wait();
        let mut steps = wished_steps(slices, &roster.goal());
        for (slice, row) in slices.rows() {
            let entered = row.catching_up().into_iter().map(RowStep::Enter);
            steps.extend(entered.map(|step| (slice, step)));
        }
        for (slice, step) in steps {
            if slices.row(slice).unwrap().primary == self.me {
                let view = slices.number;
                own.propose(RowChange { slice, view, step });
            }
        }
    }

    fn proposals(&mut self, to: NodeId, changes: &[RowChange]) {
        let lines = self.lines.lock().unwrap();
        if let Some(Some(line)) = lines.get(usize::from(to.0)) {
            line.proposed(self.me, changes.to_vec());
        }
    }

    fn lease_extended(&mut self) {}

    fn heartbeat(&mut self, heartbeats: &[(NodeId, Heartbeat)]) {
        for (node, heartbeat) in heartbeats {
            let lines = self.lines.lock().unwrap();
            if let Some(Some(line)) = lines.get(usize::from(node.0)) {
                line.heard(self.me, *heartbeat);
            }
        }
    }

    fn event(&mut self, event: &MemberEvent) {
        self.heard.lock().unwrap().push((self.me, event.clone()));
    }
}

impl Trial {
    fn new(nodes: u8, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Secret::create(&folder.path().join("secret")).unwrap();
        let mut text =
            format!("name = \"trial\"\nsecret_file = \"secret\"\nlease_ms = 300\n{more}");
        for id in 0..nodes {
            text += &format!("[[node]]\nid = {id}\nclients = \"h:1\"\nlinks = \"h:2\"\n");
        }
        std::fs::write(folder.path().join("cluster.toml"), text).unwrap();
        Self {
            folder,
            lines: Arc::new(Mutex::new(vec![None; 8])),
            heard: Arc::default(),
            adopted: Arc::new(Mutex::new(vec![None; 8])),
        }
    }

    fn start(&self, id: u8) -> Member {
        let config = NodeConfig {
            me: NodeId(id),
            cluster: Arc::new(ClusterFile::load(&self.folder.path().join("cluster.toml")).unwrap()),
        };
        let own = Arc::new(OnceLock::new());
        let ear = Ear {
            me: NodeId(id),
            lines: Arc::clone(&self.lines),
            heard: Arc::clone(&self.heard),
            adopted: Arc::clone(&self.adopted),
            own: Arc::clone(&own),
        };
        let addresses = Addresses {
            clients: ([127, 0, 0, 1], 1000 + u16::from(id)).into(),
            links: ([127, 0, 0, 1], 2000 + u16::from(id)).into(),
        };
        let member = Member::start(&config, addresses, now, ear).unwrap();
        own.set(member.handle().clone()).unwrap();
        self.lines.lock().unwrap()[usize::from(id)] = Some(member.handle().clone());
        member
    }

    /// Ends a member as a crash would.
    fn kill(&self, id: u8, member: Member) {
        self.lines.lock().unwrap()[usize::from(id)] = None;
        member.stop();
    }

    fn adopted(&self, id: u8) -> Option<Arc<Roster>> {
        self.adopted.lock().unwrap()[usize::from(id)].clone()
    }

    fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = time::Instant::now();
        while !done() {
            let events = self.heard.lock().unwrap();
            assert!(start.elapsed() < PATIENCE, "{what}: {events:?}");
            drop(events);
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn wait_for_live(&self, bits: u64, at: &[u8]) {
        self.wait_until("live nodes", || {
            at.iter().all(|&id| {
                let settled = |roster: Arc<Roster>| {
                    let settled = |slices| is_settled(slices, &roster.goal());
                    roster.record.serving().to_bits() == bits
                        && roster.slices().map(AsRef::as_ref).is_some_and(settled)
                };
                self.adopted(id).is_some_and(settled)
            })
        });
    }
}

fn now() -> Instant {
    static ORIGIN: OnceLock<time::Instant> = OnceLock::new();
    let passed = ORIGIN.get_or_init(time::Instant::now).elapsed();
    Instant {
        ns: u64::try_from(passed.as_nanos()).unwrap() + 1,
    }
}

#[test]
fn nodes_form_a_cluster_lose_one_and_take_it_back() {
    // Three members form a cluster; one dies and is removed; it comes back with another life.
    let trial = Trial::new(3, "");
    let mut members: Vec<_> = (0..3).map(|id| trial.start(id)).collect();
    trial.wait_for_live(0b111, &[0, 1, 2]);
    for member in &members {
        let lease = member.handle().lease();
        trial.wait_until("a lease", || lease.holds(now()));
    }
    let address = |id: u8| {
        let roster = trial.adopted(0).unwrap();
        roster.node(NodeId(id)).unwrap().addresses.clients.port()
    };
    assert_eq!((address(0), address(2)), (1000, 1002));
    let lease = members[2].handle().lease().clone();
    trial.kill(2, members.remove(2));
    assert!(!lease.holds(now()));
    trial.wait_for_live(0b011, &[0, 1]);
    members.push(trial.start(2));
    trial.wait_for_live(0b111, &[0, 1, 2]);
    for member in members {
        member.stop();
    }
}

#[test]
fn a_node_leaves_without_being_waited_for() {
    let trial = Trial::new(2, "");
    let members: Vec<_> = (0..2).map(|id| trial.start(id)).collect();
    trial.wait_for_live(0b11, &[0, 1]);
    members[0].handle().leave();
    let departed = (NodeId(0), MemberEvent::Notice(MemberNotice::Departed));
    trial.wait_until("departure", || {
        trial.heard.lock().unwrap().contains(&departed)
    });
    assert!(!members[0].handle().lease().holds(now()));
    trial.wait_for_live(0b10, &[1]);
    let roster = trial.adopted(1).unwrap();
    assert_eq!(roster.record.removal, ViewNumber(0));
    let mut rows = roster.slices().unwrap().rows();
    assert!(
        rows.all(|(_, row)| row.born == roster.record.formed),
        "nothing is lost"
    );
    for member in members {
        member.stop();
    }
}

#[test]
fn a_node_of_another_mind_takes_no_part() {
    let trial = Trial::new(1, "");
    let member = trial.start(0);
    trial.wait_for_live(0b1, &[0]);
    let path = trial.folder.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let other = text.replace("lease_ms = 300", "lease_ms = 400");
    let more = "[[node]]\nid = 1\nclients = \"h:1\"\nlinks = \"h:2\"\n";
    std::fs::write(&path, other + more).unwrap();
    let stranger = trial.start(1);
    trial.wait_until("a complaint", || {
        let heard = trial.heard.lock().unwrap();
        let complaint = |(node, event): &(NodeId, MemberEvent)| {
            *node == NodeId(1) && matches!(event, MemberEvent::Mismatch(_))
        };
        heard.iter().any(complaint)
    });
    assert_eq!(trial.adopted(0).unwrap().record.members().len(), 1);
    assert!(!stranger.handle().lease().holds(now()));
    member.stop();
    stranger.stop();
}

/// Goal: a view that is missing, older, unreadable or malformed is told as what it is. Method: one
/// node in force; its view file is removed, set back, replaced by a folder, and damaged.
#[test]
fn each_fault_of_the_view_file_has_its_own_message() {
    let trial = Trial::new(1, "");
    let member = trial.start(0);
    trial.wait_for_live(0b1, &[0]);
    let path = trial.folder.path().join("view.json");
    let newest = std::fs::read_to_string(&path).unwrap();
    let mut older: serde_json::Value = serde_json::from_str(&newest).unwrap();
    let empty = Roster::empty("trial", trial.adopted(0).unwrap().settings);
    older["roster"] = serde_json::from_str(&empty.to_json()).unwrap();
    let heard_now = |words: &str| {
        trial.wait_until(words, || {
            let heard = trial.heard.lock().unwrap();
            heard
                .iter()
                .any(|(_, event)| event.to_string().contains(words))
        });
        trial.heard.lock().unwrap().clear();
        std::fs::write(&path, &newest).unwrap();
        trial.wait_until("service again", || member.handle().lease().holds(now()));
        trial.heard.lock().unwrap().clear();
    };
    std::fs::remove_file(&path).unwrap();
    heard_now("was removed from the view store");
    std::fs::write(&path, older.to_string()).unwrap();
    heard_now("an older view than before");
    std::fs::write(&path, "{").unwrap();
    heard_now("holds no valid view");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    trial.wait_until("unreadable", || {
        let heard = trial.heard.lock().unwrap();
        let told =
            |(_, event): &(NodeId, MemberEvent)| event.to_string().contains("may read and write");
        heard.iter().any(told)
    });
    member.stop();
}

/// Goal: a view that was given the last number that there is, by hand, is not believed: no view
/// could follow it, and no dead node be removed. Method: one node in force; the file says so, then
/// what it said before; a second node joins.
#[test]
fn a_view_after_which_none_could_follow_is_refused() {
    let trial = Trial::new(2, "");
    let member = trial.start(0);
    trial.wait_for_live(0b1, &[0]);
    let path = trial.folder.path().join("view.json");
    let before = std::fs::read_to_string(&path).unwrap();
    let number = trial.adopted(0).unwrap().record.number;
    let mut last: serde_json::Value = serde_json::from_str(&before).unwrap();
    last["roster"]["view"] = u32::MAX.into();
    std::fs::write(&path, last.to_string()).unwrap();
    let words = "no valid view of a cluster (view number 4294967295: the highest is 4000000000)";
    trial.wait_until(words, || {
        let heard = trial.heard.lock().unwrap();
        let mut events = heard.iter();
        events.any(|(_, event)| event.to_string().contains(words))
    });
    assert_eq!(trial.adopted(0).unwrap().record.number, number);
    std::fs::write(&path, &before).unwrap();
    let other = trial.start(1);
    trial.wait_for_live(0b11, &[0, 1]);
    member.stop();
    other.stop();
}
