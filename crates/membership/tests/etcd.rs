//! The store against a real etcd, started here on loopback with a folder of its own and ended by
//! its process id. Without etcd (Debian's package `etcd-server`) the tests say so and pass.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

use std::{
    fs,
    io::{Read, Write},
    iter,
    net::{TcpListener, TcpStream},
    ops::Range,
    path::Path,
    process::{Child, Command, Stdio},
    slice,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use curtail_consistency::{
    members::{Heartbeat, Incarnation, RecordChange},
    replica::Model,
    slice_view::RowChange,
};
use curtail_membership::{
    Addresses, EtcdStore, Member, MemberEvent, Node, NodeConfig, Observer, Roster, RosterStore,
    Secret, Settings, StoredRoster, ViewStoreError,
};
use curtail_types::{self as types, NodeId};

const PATIENCE: Duration = Duration::from_secs(30);
const KEY: &str = "/curtail/trial/view";
const PORTS: Range<u16> = 21_000..25_096;
/// How far apart the first ports of two runs of these tests are.
const PORTS_OF_ONE: usize = 64;
const LEASE: Duration = Duration::from_millis(400);

/// An etcd of one member, killed when the test is over.
struct Etcd {
    child: Child,
    folder: tempfile::TempDir,
    client: u16,
    peer: u16,
    /// The ports of all that are one store, this one's among them.
    peers: Vec<u16>,
}

impl Etcd {
    /// Starts one, unless there is none to start.
    fn start() -> Option<Self> {
        Self::start_all(1)?.pop()
    }

    /// Starts several that are one store.
    fn start_all(count: usize) -> Option<Vec<Self>> {
        let known = Command::new("etcd").arg("--version").output();
        if !known.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no etcd here; Debian has it in the package etcd-server");
            return None;
        }
        let peers: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let start_one = |&peer: &u16| {
            let folder = tempfile::tempdir().unwrap();
            let client = free_port();
            let child = launch(folder.path(), client, (peer, &peers));
            Self {
                child,
                folder,
                client,
                peer,
                peers: peers.clone(),
            }
        };
        let all: Vec<Self> = peers.iter().map(start_one).collect();
        all.iter().for_each(Self::wait_for_answers);
        Some(all)
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    fn store(&self) -> RosterStore {
        open(&[self.endpoint()], Duration::from_secs(5))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
        self.child = launch(self.folder.path(), self.client, (self.peer, &self.peers));
        self.wait_for_answers();
    }

    fn wait_for_answers(&self) {
        let start = Instant::now();
        let mut store = self.store();
        while let Err(error) = store.read_roster() {
            assert!(start.elapsed() < PATIENCE, "{error}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(folder: &Path, client: u16, (peer, peers): (u16, &[u16])) -> Child {
    let name = peer.to_string();
    let cluster = peers
        .iter()
        .map(|port| format!("{port}=http://127.0.0.1:{port}"));
    let cluster = cluster.collect::<Vec<_>>().join(",");
    let (client, peer) = (
        format!("http://127.0.0.1:{client}"),
        format!("http://127.0.0.1:{peer}"),
    );
    Command::new("etcd")
        .args(["--name", &name, "--unsafe-no-fsync", "--log-level", "error"])
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &cluster])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A port that nobody has, another one at each call, below those that the kernel gives to sockets
/// connects: while an etcd is dead, its peers' connections would be given its own otherwise.
fn free_port() -> u16 {
    static GIVEN: AtomicUsize = AtomicUsize::new(0);
    let first = std::process::id() as usize % 64 * PORTS_OF_ONE;
    loop {
        let index = first + GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (index % PORTS.len()) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn open(endpoints: &[String], patience: Duration) -> RosterStore {
    RosterStore::new(EtcdStore::new(endpoints, KEY, patience))
}

fn empty() -> Roster {
    let settings = Settings {
        model: Model::Lin,
        replicas: 1,
        lease_ms: 1000,
    };
    Roster::empty("trial", settings)
}

fn joined(roster: &Roster, id: u8, incarnation: u64) -> Roster {
    let incarnation = Incarnation(incarnation);
    let node = Node {
        name: format!("n{id}"),
        addresses: Addresses {
            clients: ([127, 0, 0, 1], 1).into(),
            links: ([127, 0, 0, 1], 2).into(),
        },
        incarnation,
    };
    roster
        .after(&RecordChange::Join(incarnation), NodeId(id), &node)
        .unwrap()
}

#[test]
fn what_was_replaced_is_read_and_who_is_late_is_told() {
    let Some(etcd) = Etcd::start() else {
        return;
    };
    let (mut one, mut two) = (etcd.store(), etcd.store());
    assert_eq!(one.read_roster().unwrap(), None);
    let roster = joined(&empty(), 0, 5);
    let revision = one.replace_roster(0, &roster).unwrap().unwrap();
    assert_eq!(
        two.replace_roster(0, &joined(&empty(), 1, 6)).unwrap(),
        None
    );
    let stored = two.read_roster().unwrap().unwrap();
    assert_eq!(stored, StoredRoster { revision, roster });
    let next = joined(&stored.roster, 1, 7);
    let later = two.replace_roster(revision, &next).unwrap().unwrap();
    assert!(later > revision);
    let lost = joined(&stored.roster, 2, 8);
    assert_eq!(one.replace_roster(revision, &lost).unwrap(), None);
    assert_eq!(one.read_roster().unwrap().unwrap().roster, next);
}

#[test]
fn of_many_at_once_exactly_one_wins_each_revision() {
    // Four threads add ten views each; none may be lost, so the last has number 40.
    let Some(etcd) = Etcd::start() else {
        return;
    };
    let beaten = AtomicUsize::new(0);
    thread::scope(|scope| {
        for id in 0..4 {
            let (etcd, beaten) = (&etcd, &beaten);
            scope.spawn(move || {
                let mut store = etcd.store();
                let mut won = 0;
                while won < 10 {
                    let stored = store.read_roster().unwrap();
                    let revision = stored.as_ref().map_or(0, |stored| stored.revision);
                    let roster = stored.map_or_else(empty, |stored| stored.roster);
                    let next = joined(&roster, id, 1 + revision * 8 + u64::from(id));
                    match store.replace_roster(revision, &next).unwrap() {
                        Some(_) => won += 1,
                        None => _ = beaten.fetch_add(1, Ordering::Relaxed),
                    }
                }
            });
        }
    });
    let number = etcd
        .store()
        .read_roster()
        .unwrap()
        .unwrap()
        .roster
        .record
        .number;
    assert_eq!(number.0, 40);
    assert!(beaten.into_inner() > 0, "there was no race");
}

#[test]
fn a_restart_of_etcd_loses_nothing_and_is_survived() {
    let Some(mut etcd) = Etcd::start() else {
        return;
    };
    let mut store = etcd.store();
    let roster = joined(&empty(), 0, 5);
    let revision = store.replace_roster(0, &roster).unwrap().unwrap();
    etcd.restart();
    assert_eq!(
        store.read_roster().unwrap().unwrap(),
        StoredRoster { revision, roster }
    );
    etcd.kill();
    let start = Instant::now();
    let unreachable = |error: ViewStoreError| matches!(error, ViewStoreError::Unreachable(_));
    assert!(store.read_roster().is_err_and(unreachable));
    let next = joined(&empty(), 1, 6);
    assert!(
        store
            .replace_roster(revision, &next)
            .is_err_and(unreachable)
    );
    assert!(start.elapsed() < Duration::from_secs(11));
    etcd.restart();
    assert_eq!(store.read_roster().unwrap().unwrap().revision, revision);
}

#[test]
fn endpoints_that_refuse_or_are_silent_are_passed_over() {
    // Of three endpoints the first refuses connections and the second accepts them and says
    // nothing; the third is found in time, and is the first to be asked from then on.
    let Some(etcd) = Etcd::start() else {
        return;
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let asked = || iter::from_fn(|| silent.accept().ok()).count();
    let endpoints = [
        format!("http://127.0.0.1:{}", free_port()),
        format!("http://{}", silent.local_addr().unwrap()),
        etcd.endpoint() + "/",
    ];
    let patience = Duration::from_millis(1500);
    let mut store = open(&endpoints, patience);
    let start = Instant::now();
    assert_eq!(store.read_roster().unwrap(), None);
    assert!(start.elapsed() < patience, "{:?}", start.elapsed());
    assert_eq!(asked(), 1);
    assert!(
        store
            .replace_roster(0, &joined(&empty(), 0, 5))
            .unwrap()
            .is_some()
    );
    assert_eq!(asked(), 0);
    // A change that may have arrived is not sent again: it would be beaten by itself.
    let mut store = open(&endpoints[1..], patience);
    let next = joined(&empty(), 1, 6);
    assert!(store.replace_roster(1, &next).is_err());
    let revision = store.read_roster().unwrap().unwrap().revision;
    assert!(store.replace_roster(revision, &next).unwrap().is_some());
}

/// Starts an endpoint that answers every request with this status and body, after a pause.
fn answering(status: &'static str, body: &'static str, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                thread::sleep(pause);
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
                let _ = stream.write_all((head + body).as_bytes());
            });
        }
    });
    url
}

const NO_USER: &str = r#"{"error":"etcdserver: user name is empty","code":3}"#;

/// Goal: a member that refuses what the others do, a learner for example, is passed over. Method:
/// one endpoint refuses with each status that etcd has for it, the next one is an etcd.
#[test]
fn an_endpoint_that_refuses_a_request_is_passed_over() {
    let Some(etcd) = Etcd::start() else {
        return;
    };
    for (number, status) in ["400 Bad Request", "404 Not Found", "429 Too Many Requests"]
        .into_iter()
        .enumerate()
    {
        let refusing = answering(status, NO_USER, Duration::ZERO);
        let endpoints = [refusing, etcd.endpoint()];
        let mut store = open(&endpoints, PATIENCE);
        let stored = store.read_roster().unwrap();
        let revision = stored.map_or(0, |stored| stored.revision);
        // A request that was refused has changed nothing: it goes to the next one, too.
        let mut store = open(&endpoints, PATIENCE);
        let next = joined(&empty(), number as u8, 5);
        let replaced = store.replace_roster(revision, &next).unwrap();
        assert!(replaced.is_some(), "{status}");
    }
}

/// Goal: who reads the log looks at etcd, not at the view, when etcd refuses requests.
#[test]
fn a_refusal_is_not_told_as_a_malformed_view() {
    let refusing = answering("400 Bad Request", NO_USER, Duration::ZERO);
    let mut store = open(slice::from_ref(&refusing), PATIENCE);
    let error = store.read_roster().unwrap_err();
    assert!(matches!(error, ViewStoreError::Refused(_)), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(&refusing) && text.contains("user name is empty"),
        "{text}"
    );
    assert!(!text.contains("valid view"), "{text}");
}

/// Goal: several endpoints are not given less time than a good store may take: a sixth of a lease,
/// which is two thirds of what a store has. Method: three endpoints take half of what it has.
#[test]
fn each_of_several_endpoints_has_time_to_answer() {
    let patience = Duration::from_secs(3);
    let endpoints = [(); 3].map(|()| answering("200 OK", "{}", patience / 2));
    assert_eq!(open(&endpoints, patience).read_roster().unwrap(), None);
}

/// Goal: a store of three goes on when any one of them dies. Method: each is killed in turn, read
/// from and written to through the endpoints of all three, and started again.
#[test]
fn of_three_etcds_any_one_may_die() {
    let Some(mut etcds) = Etcd::start_all(3) else {
        return;
    };
    let endpoints: Vec<String> = etcds.iter().map(Etcd::endpoint).collect();
    let mut roster = empty();
    let mut revision = 0;
    for (id, etcd) in etcds.iter_mut().enumerate() {
        etcd.kill();
        let mut store = open(&endpoints, Duration::from_secs(3));
        roster = joined(&roster, id as u8, 5);
        let start = Instant::now();
        // Until the two have a leader again, nothing is promised; what was not answered is read.
        revision = loop {
            let replaced = store.replace_roster(revision, &roster);
            let stored = store.read_roster().ok().flatten();
            match stored.filter(|stored| stored.roster == roster) {
                Some(stored) => break stored.revision,
                None => assert!(start.elapsed() < PATIENCE, "{replaced:?}"),
            }
            thread::sleep(Duration::from_millis(50));
        };
        etcd.restart();
    }
}

#[test]
fn what_is_no_roster_is_said_to_be_none() {
    let Some(etcd) = Etcd::start() else {
        return;
    };
    // The key and the word "nonsense" in base64.
    let body = r#"{"key":"L2N1cnRhaWwvdHJpYWwvdmlldw==","value":"bm9uc2Vuc2U="}"#;
    let mut stream = TcpStream::connect(("127.0.0.1", etcd.client)).unwrap();
    let head = "POST /v3/kv/put HTTP/1.1\r\nHost: etcd\r\nConnection: close";
    let length = body.len();
    write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let error = etcd.store().read_roster().unwrap_err();
    assert!(matches!(error, ViewStoreError::Roster(_)), "{error}");
}

/// Counts nothing and answers nothing: the lease tells enough.
struct Deaf;

impl Observer for Deaf {
    fn seen(&mut self, _: &Arc<Roster>, _: Incarnation) {}
    fn adopt(&mut self, _: &Arc<Roster>) {}
    fn heartbeat(&mut self, _: &[(NodeId, Heartbeat)]) {}
    fn proposals(&mut self, _: NodeId, _: &[RowChange]) {}
    fn lease_extended(&mut self) {}
    fn event(&mut self, _: &MemberEvent) {}
}

fn now() -> types::Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let passed = ORIGIN.get_or_init(Instant::now).elapsed();
    types::Instant {
        ns: u64::try_from(passed.as_nanos()).unwrap() + 1,
    }
}

#[test]
fn a_member_serves_only_while_etcd_answers() {
    let Some(mut etcd) = Etcd::start() else {
        return;
    };
    Secret::create(&etcd.folder.path().join("secret")).unwrap();
    let endpoint = etcd.endpoint();
    let text = format!(
        "name = \"trial\"\nsecret_file = \"secret\"\nlease_ms = {}\n\
         store = {{ kind = \"etcd\", endpoints = [\"{endpoint}\"] }}\n\
         [[node]]\nid = 0\nclients = \"127.0.0.1:1\"\nlinks = \"127.0.0.1:2\"\n",
        LEASE.as_millis()
    );
    let path = etcd.folder.path().join("cluster.toml");
    fs::write(&path, text).unwrap();
    let config = NodeConfig::load(&path, "0").unwrap();
    let addresses = Addresses {
        clients: ([127, 0, 0, 1], 1).into(),
        links: ([127, 0, 0, 1], 2).into(),
    };
    let member = Member::start(&config, addresses, now, Deaf).unwrap();
    let wait_until_lease = |held: bool| {
        let start = Instant::now();
        while member.handle().lease().holds(now()) != held {
            assert!(start.elapsed() < PATIENCE, "lease held: {}", !held);
            thread::sleep(Duration::from_millis(5));
        }
    };
    wait_until_lease(true);
    etcd.kill();
    let over = types::Instant {
        ns: now().ns + LEASE.as_nanos() as u64,
    };
    // What etcd answered last was asked before it died, however late anybody looks.
    let lease = || member.handle().lease();
    assert!(!lease().holds(over));
    wait_until_lease(false);
    assert!(!lease().holds(over));
    etcd.restart();
    wait_until_lease(true);
    member.stop();
}
