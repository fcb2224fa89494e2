//! A trial tier of processes as an operator uses it, and what its clients saw while nodes were
//! killed: every key is linearizable.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]
#![expect(clippy::panic, reason = "a failure here is a test's failure")]

use std::{
    io::{Read as _, Write as _},
    net::UdpSocket,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use curtail_client::{
    memcached::Connection,
    tier::{TierClientError, TierSession, TierValue},
};
use curtail_history::{Action, Entry, History, Outcome, Verdict, check_linearizable};
use curtail_testing::{assert_contains, eventually, undisturbed};
use curtail_tier::{TierFile, ask_status};
use curtail_workload::Random;
use rustix::process::{Pid, Signal, kill_process};
use scopeguard::defer;
use tempfile::TempDir;

fn curtail() -> Command {
    Command::new(env!("CARGO_BIN_EXE_curtail"))
}

/// A trial tier; its nodes end with it.
struct TrialTier {
    child: Child,
    dir: TempDir,
    file: TierFile,
}

impl TrialTier {
    fn up(words: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let child = curtail()
            .args(["cluster", "up", "--tiered", "--port", &free_ports(5)])
            .args(words)
            .arg("--dir")
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let path = dir.path().join("tier.toml");
        eventually("there is a file", || TierFile::load(&path).is_ok());
        let file = TierFile::load(&path).unwrap();
        let tier = Self { child, dir, file };
        eventually(
            "every back end answers, and has a lease if there is a cache node",
            || {
                let back_ends = tier.file.back_ends.iter();
                let mut statuses = back_ends.map(|at| ask_status(*at, &tier.file.secret()));
                let leases = u64::from(!tier.file.caches.is_empty());
                statuses.all(|status| status.is_ok_and(|status| status.get("has_lease") == leases))
            },
        );
        tier
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("tier.toml")
    }

    fn call(&self, words: &[&str]) -> Output {
        let mut command = curtail();
        command.arg("tier").args(words).arg("--file");
        command.arg(self.path()).output().unwrap()
    }

    fn cluster(&self, words: &[&str]) -> String {
        let mut command = curtail();
        command.arg("cluster").args(words).arg("--dir");
        let output = command.arg(self.dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A counter of all back ends.
    fn sum(&self, name: &str) -> u64 {
        let secret = self.file.secret();
        let back_ends = self.file.back_ends.iter();
        let each = back_ends.map(|at| ask_status(*at, &secret).unwrap().get(name));
        each.sum()
    }

    fn client(&self, number: u32) -> TierSession {
        TierSession::open(self.file.target(), 256 + number).unwrap()
    }
}

impl Drop for TrialTier {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let _ = self.child.wait();
    }
}

/// The first of so many UDP ports that nobody has.
fn free_ports(count: u16) -> String {
    let id = std::process::id();
    // Tests of one process run beside each other: each looks elsewhere first.
    let test = TESTS.fetch_add(1, Relaxed) * 613;
    let starts = (0..1000_u32).map(|n| 20_000 + ((id * 31 + test + n * 17) % 5000) as u16);
    let is_free =
        |start: &u16| (0..count).all(|n| UdpSocket::bind(("127.0.0.1", start + n)).is_ok());
    starts.into_iter().find(is_free).unwrap().to_string()
}

/// Goal: the commands do what they say, bad input is refused with its reason, and the end leaves
/// nothing behind.
#[test]
fn a_tier_as_an_operator_uses_it() {
    let mut tier = TrialTier::up(&["--back-ends", "2", "--report-ms", "200"]);
    let does = |words: &[&str]| eventually("it is done", || tier.call(words).status.success());
    does(&["put", "greeting", "hello"]);
    // A node that stalls for half a second loses its lease, and the cache its copy, until the key
    // is read again: so all in one look.
    eventually("the cache answers, by a rule", || {
        let got = tier.call(&["get", "greeting"]);
        if !got.status.success() {
            return false; // A back end that stalls is busy.
        }
        assert_eq!(String::from_utf8(got.stdout).unwrap(), "hello\n");
        let by = String::from_utf8(got.stderr).unwrap();
        let status = tier.cluster(&["status"]);
        let shows = |words| status.contains(words);
        by.contains("cache node") && shows("1 keys, 2 leases") && shows("1 of 131072 rules")
    });
    let loaded = tier.call(&["load", "--keys", "50", "--warm-up", "1", "--seconds", "1"]);
    let text = String::from_utf8(loaded.stdout).unwrap();
    assert_contains(&text, "from the cache");
    let mut top = curtail();
    top.args(["top", "--once", "--tier-file"]).arg(tier.path());
    let top = String::from_utf8(top.output().unwrap().stdout).unwrap();
    assert_contains(&top, "of 131072 rules");
    assert_contains(&top, "the most loaded one has");
    let missing = tier.call(&["get", "no such key"]);
    assert!(!missing.status.success());
    // A delete whose answer is lost is repeated, and finds nothing then.
    eventually("it is deleted", || {
        let put = tier.call(&["put", "greeting", "again"]);
        put.status.success() && tier.call(&["delete", "greeting"]).status.success()
    });
    does(&["put", "greeting", "again"]);
    does(&["flush"]);
    let flushed = tier.call(&["get", "greeting"]);
    assert!(!flushed.status.success(), "{flushed:?}");

    let wrong = curtail()
        .args(["tier", "cache", "--file", "/no/such/file"])
        .output()
        .unwrap();
    assert_contains(&String::from_utf8(wrong.stderr).unwrap(), "/no/such/file");
    let taken = tier.call(&["back-end", "--id", "0"]);
    assert_contains(
        &String::from_utf8(taken.stderr).unwrap(),
        "cannot receive at",
    );
    let beyond = tier.call(&["back-end", "--id", "7"]);
    assert_contains(&String::from_utf8(beyond.stderr).unwrap(), "0 to 1, not 7");

    kill_process(Pid::from_child(&tier.child), Signal::INT).unwrap();
    assert!(tier.child.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(tier.dir.path()).unwrap().count(), 0);
    for at in &tier.file.back_ends {
        assert!(UdpSocket::bind(at).is_ok(), "{at} is free again");
    }
}

/// Goal: linearizable while back ends on disk, the cache node and the switch are killed (SIGKILL)
/// and started again. Method: clients of this process record what they saw; the judge looks at it.
#[test]
fn linearizable_while_processes_are_killed() {
    let tier = TrialTier::up(&[
        "--back-ends",
        "2",
        "--limit",
        "0",
        "--cached-keys",
        "8",
        "--report-ms",
        "50",
        "--on-disk",
    ]);
    let shared = Shared::default();
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (client, shared) = (tier.client(number), &shared);
            scope.spawn(move || run_client(number, client, shared));
        }
        defer! { shared.ends.store(true, Relaxed) }
        let victims = [
            "back-end0",
            "cache0",
            "back-end1",
            "switch",
            "back-end0",
            "cache0",
        ];
        for victim in victims {
            thread::sleep(Duration::from_millis(1800));
            tier.cluster(&["kill", victim]);
            tier.cluster(&["add", victim]);
        }
        thread::sleep(Duration::from_millis(1800));
    });
    let from_cache = shared.from_cache.into_inner();
    check_history(&shared.history.into_inner().unwrap(), from_cache);
}

/// Goal: the same through two gateways, whose clients speak memcached's protocol: an item that one
/// has written the other finds, and every answer is the tier's while its nodes are killed.
#[test]
fn linearizable_through_gateways_while_processes_are_killed() {
    let tier = TrialTier::up(&[
        "--back-ends",
        "2",
        "--limit",
        "0",
        "--cached-keys",
        "8",
        "--report-ms",
        "50",
        "--on-disk",
    ]);
    let gateways = [Gateway::before(&tier), Gateway::before(&tier)];
    let shared = Shared::default();
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let connection = gateways[number as usize % 2].connect();
            let shared = &shared;
            scope.spawn(move || run_memcached_client(number, connection, shared));
        }
        defer! { shared.ends.store(true, Relaxed) }
        for victim in ["back-end0", "cache0", "back-end1", "cache0"] {
            thread::sleep(Duration::from_millis(1800));
            tier.cluster(&["kill", victim]);
            tier.cluster(&["add", victim]);
        }
        thread::sleep(Duration::from_millis(1800));
    });
    let from_cache = gateways.iter().map(|one| one.stat("tier_from_cache"));
    check_history(&shared.history.into_inner().unwrap(), from_cache.sum());
}

/// Goal: the baselines with real processes: every read is at the cache node, and one of a key that
/// is not cached visits a machine more than with rules; with look-aside the client asks twice.
/// Method: reads of a key that is cached and of keys that are not; what nodes and switch counted.
#[test]
fn baselines_take_more_transits_than_rules() {
    let transits = |words: &[&str]| {
        let words = [
            &["--back-ends", "2", "--limit", "0", "--report-ms", "200"],
            words,
        ]
        .concat();
        let tier = TrialTier::up(&words);
        let mut client = tier.client(1);
        client.put(b"hot", b"value", 0, None).unwrap();
        eventually("it is cached", || {
            client
                .get(b"hot")
                .unwrap()
                .is_some_and(|found| found.is_from_cache)
        });
        let seen = || -> [u64; 4] {
            let secret = tier.file.secret();
            let status = |at| ask_status(at, &secret).unwrap();
            let cache = status(tier.file.caches[0]);
            let back_ends = tier.file.back_ends.iter();
            let served = back_ends.map(|at| status(*at).get("gets")).sum();
            [
                cache.get("gets"),
                served,
                cache.get("passed_on"),
                cache.get("not_cached"),
            ]
        };
        let before = (seen(), client.repeated());
        for number in 0..READS {
            let found = client.get(format!("cold {number}").as_bytes()).unwrap();
            assert_eq!(found, None);
        }
        let after = (seen(), client.repeated());
        let counts: [u64; 4] = std::array::from_fn(|n| after.0[n] - before.0[n]);
        ask_by_other_clients(&tier);
        (counts, after.1 - before.1)
    };
    const READS: u64 = 300;
    let none: &[&str] = &[];
    let kinds = [
        (none, [0, READS, 0, 0]),
        (&["--baseline", "look-through"], [READS, READS, READS, 0]),
        (&["--baseline", "look-aside"], [READS, READS, 0, READS]),
    ];
    for (words, expected) in kinds {
        let (counts, repeated) = transits(words);
        // A read that a busy machine delays is sent again, past the cache node.
        for (count, expected) in counts.into_iter().zip(expected) {
            let is_near = count.abs_diff(expected) <= repeated;
            assert!(is_near, "{words:?}: {counts:?}, {repeated} repeated");
        }
        assert!(repeated < READS / 10, "{repeated}");
    }
}

/// Goal: how the cache follows the load is chosen by flags, of real processes: each way sends what
/// it says; without a cache node no read is from one; without the rule buffer the cache node never
/// holds more than its keys (SW-68). Method: reads of one key at busy back ends; what nodes have
/// counted.
#[test]
fn the_ways_of_cache_update_are_chosen_by_flags() {
    let ways = [
        ("both", [true, true]),
        ("periodic", [true, false]),
        ("instant", [false, true]),
        ("traditional", [false, false]),
    ];
    for (name, expected) in ways {
        undisturbed(|| {
            let tier = busy_tier(&["--cache-update", name]);
            let mut client = tier.client(1);
            read_for(Duration::from_secs(2), &mut client, &["hot"]);
            let cache = ask_status(tier.file.caches[0], &tier.file.secret()).unwrap();
            let seen = [cache.get("reports") > 0, tier.sum("bursts_sent") > 0];
            assert_eq!(seen, expected, "{name}");
            assert!(cache.get("hits") > 0 && cache.get("copies") == 1, "{name}");
        });
    }
    let tier = busy_tier(&["--cached-keys", "0"]);
    let hits = read_for(Duration::from_secs(1), &mut tier.client(1), &["hot"]);
    assert_eq!(hits, 0, "there is no cache node");
    for (delay_ms, is_held) in [("0", false), ("60000", true)] {
        undisturbed(|| {
            let words = ["--cache-update", "traditional", "--cached-keys", "2"];
            let rules = ["--rule-changes", "1", "--rule-delay-ms", delay_ms];
            let tier = busy_tier(&[&words[..], &rules[..]].concat());
            let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
            read_for(Duration::from_secs(2), &mut tier.client(1), &keys);
            let cache = ask_status(tier.file.caches[0], &tier.file.secret()).unwrap();
            assert_eq!(cache.get("copies") > 2, is_held, "{delay_ms}: {cache:?}");
        });
    }
}

fn busy_tier(words: &[&str]) -> TrialTier {
    let usual = ["--back-ends", "2", "--limit", "100", "--report-ms", "200"];
    TrialTier::up(&[&usual[..], words].concat())
}

/// Stores the keys and reads them again and again; how many reads a cache node answered.
fn read_for(time: Duration, client: &mut TierSession, keys: &[&str]) -> u64 {
    for key in keys {
        eventually("it is stored", || {
            client.put(key.as_bytes(), b"value", 0, None).is_ok()
        });
    }
    let (began, mut hits) = (Instant::now(), 0);
    while began.elapsed() < time {
        for key in keys {
            // A back end that is busy says so.
            let found = client.get(key.as_bytes()).ok().flatten();
            hits += u64::from(found.is_some_and(|found| found.is_from_cache));
        }
    }
    hits
}

/// A gateway and the client in Python find items that are cached and items that are not.
fn ask_by_other_clients(tier: &TrialTier) {
    let gateway = Gateway::before(tier);
    let mut client = gateway.connect();
    assert_eq!(client.ask("set b 0 0 1\r\nx\r\n").unwrap(), "STORED");
    for (key, size, value) in [("hot", 5, "value"), ("b", 1, "x")] {
        let found = client.ask(format!("get {key}\r\n")).unwrap();
        assert_eq!(found, format!("VALUE {key} 0 {size}"));
        assert_eq!(client.line().unwrap(), value);
        assert_eq!(client.line().unwrap(), "END");
    }
    assert_eq!(client.ask("get cold\r\n").unwrap(), "END");
    assert!(gateway.stat("tier_from_cache") > 0);
    let program = "import sys; from curtail_tier import TierSession\n\
                   with TierSession(sys.argv[1]) as tier:\n    \
                   print(tier.get(b'hot').value, tier.get(b'b').value, tier.get(b'cold'))";
    let mut python = Command::new("python3");
    let python = python.args(["-c", program]).arg(tier.path());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python");
    let output = python.env("PYTHONPATH", folder).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown, "b'value' b'x' None\n", "{:?}", output.stderr);
}

/// What clients saw is linearizable, and was enough: the cache answered, and few got no answer.
fn check_history(entries: &[Entry], from_cache: u64) {
    let (mut history, mut unanswered) = (History::new(), 0);
    for entry in entries {
        unanswered += usize::from(entry.returned.is_none());
        // A read without an answer says nothing.
        if entry.returned.is_some() || entry.action != Action::Read {
            history.push(*entry);
        }
    }
    assert_eq!(
        check_linearizable(&history, 50_000_000),
        Verdict::Consistent
    );
    assert!(entries.len() > 500, "{}", entries.len());
    assert!(from_cache > 100, "{from_cache} of {}", entries.len());
    assert!(unanswered < 100, "{unanswered}");
}

/// Goal: the tier does what memcached's clients ask for, in the order of each connection; what
/// it does not offer is refused with its reason. Method: one pipeline, and single requests.
#[test]
fn memcached_clients_at_a_gateway() {
    let tier = TrialTier::up(&["--back-ends", "3", "--report-ms", "200"]);
    let (gateway, other) = (Gateway::before(&tier), Gateway::before(&tier));
    let (mut client, mut second) = (gateway.connect(), other.connect());
    let pipeline = "set a 7 0 2\r\nhi\r\nget a\r\nset n 0 0 1\r\n9\r\nincr n 5\r\nget a n none\r\n\
                    delete a\r\nget a\r\nmn\r\n";
    client.send(pipeline).unwrap();
    let lines: Vec<String> = (0..13).map(|_| client.line().unwrap()).collect();
    let expected = [
        "STORED",
        "VALUE a 7 2",
        "hi",
        "END",
        "STORED",
        "14",
        "VALUE a 7 2",
        "hi",
        "VALUE n 0 2",
        "14",
        "END",
        "DELETED",
        "END",
    ];
    assert_eq!(lines, expected);
    assert_eq!(client.line().unwrap(), "MN");
    assert_eq!(second.ask("add n 0 0 1\r\nx\r\n").unwrap(), "NOT_STORED");
    assert_eq!(second.ask("append n 0 0 1\r\n0\r\n").unwrap(), "STORED");
    assert_eq!(client.ask("decr n 1\r\n").unwrap(), "139");
    assert_eq!(client.ask("touch n 100\r\n").unwrap(), "TOUCHED");
    assert_eq!(client.ask("cas n 0 0 1 5\r\nx\r\n").unwrap(), "EXISTS");
    let gets = client.ask("gets n\r\n").unwrap();
    let version = gets.rsplit(' ').next().unwrap();
    assert_eq!(client.line().unwrap(), "139");
    assert_eq!(client.line().unwrap(), "END");
    let compared = format!("cas n 0 0 1 {version}\r\n7\r\n");
    assert_eq!(client.ask(compared).unwrap(), "STORED");
    assert_eq!(second.ask("mg n v t\r\n").unwrap(), "VA 1 t-1");
    assert_eq!(second.line().unwrap(), "7");

    let refused = "CLIENT_ERROR a cache tier does not offer this";
    for request in ["gat 5 n\r\n", "mg n h\r\n", "me n\r\n", "flush_all 10\r\n"] {
        assert_eq!(client.ask(request).unwrap(), refused, "{request}");
    }
    let long = "x".repeat(1348);
    let set = format!("set n 0 0 1348\r\n{long}\r\n");
    assert_contains(&client.ask(set).unwrap(), "too large");
    let set = format!("set n 0 0 9999\r\n{}\r\n", "x".repeat(9999));
    assert_contains(&client.ask(set).unwrap(), "too large");
    assert_eq!(second.ask("get n\r\n").unwrap(), "END", "as memcached does");

    for number in 0..20 {
        let set = format!("set key{number} 0 0 1\r\nx\r\n");
        assert_eq!(client.ask(set).unwrap(), "STORED");
    }
    assert_eq!(client.ask("flush_all\r\n").unwrap(), "OK");
    for number in 0..20 {
        let get = format!("get key{number}\r\n");
        assert_eq!(second.ask(get).unwrap(), "END");
    }
    tier.cluster(&["kill", "switch"]);
    let told = client.ask("get n\r\n").unwrap();
    assert_eq!(
        told,
        "SERVER_ERROR timed out; a write may still take effect"
    );
}

/// Goal: several cache nodes, each for its own back ends (SW-65): both answer, a key has one cache,
/// and one that is killed costs the other nothing. Method: a tier whose file this test writes.
#[test]
fn several_cache_nodes() {
    let port: u16 = free_ports(6).parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tier.toml");
    let file = file_with_two_caches(port);
    file.save(&path).unwrap();
    let start = |words: &[&str]| {
        let mut command = curtail();
        command.arg("tier").args(words).arg("--file").arg(&path);
        EndsWithTest(command.stdout(Stdio::null()).spawn().unwrap())
    };
    let mut nodes = vec![
        start(&["switch"]),
        start(&["back-end", "--id", "0"]),
        start(&["back-end", "--id", "1"]),
        start(&["cache", "--id", "0"]),
        start(&["cache", "--id", "1"]),
    ];
    let status = |at: std::net::SocketAddr, name: &str| {
        ask_status(at, &file.secret()).map_or(0, |status| status.get(name))
    };
    eventually("every back end has a lease", || {
        file.back_ends
            .iter()
            .all(|at| status(*at, "has_lease") == 1)
    });
    let mut client = TierSession::open(file.target(), 300).unwrap();
    let keys: Vec<String> = (0..8).map(|number| format!("key{number}")).collect();
    for key in &keys {
        client.put(key.as_bytes(), b"1", 0, None).unwrap();
    }
    let from_caches = |client: &mut TierSession| {
        let found = keys
            .iter()
            .map(|key| client.get(key.as_bytes()).unwrap().unwrap());
        found.filter(|found| found.is_from_cache).count()
    };
    eventually("caches answer for every key", || {
        from_caches(&mut client) == keys.len()
    });
    assert!(status(file.caches[0], "hits") > 0 && status(file.caches[1], "hits") > 0);
    let copies = status(file.caches[0], "copies") + status(file.caches[1], "copies");
    assert_eq!(copies, keys.len() as u64, "a key is in one cache");
    for (number, key) in keys.iter().enumerate() {
        client
            .put(key.as_bytes(), number.to_string().as_bytes(), 0, None)
            .unwrap();
        let found = client.get(key.as_bytes()).unwrap().unwrap();
        assert_eq!(found.value, number.to_string().as_bytes());
    }
    drop(nodes.pop());
    eventually("one cache answers alone", || {
        let answers = from_caches(&mut client);
        0 < answers && answers < keys.len()
    });
    eventually(
        "the keys of the other are read at their back end at once",
        || {
            let began = Instant::now();
            from_caches(&mut client);
            began.elapsed() < Duration::from_millis(20)
        },
    );
}

fn file_with_two_caches(port: u16) -> TierFile {
    let at = |number: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port + number));
    TierFile {
        secret: "0123456789abcdef0123456789abcdef".to_string(),
        epoch: 1,
        lease_ms: 500,
        period_ms: 100,
        group_keys: 0,
        baseline: None,
        network: curtail_tier::TierFileNetwork::Forwarder(at(0)),
        control: at(1),
        caches: vec![at(2), at(3)],
        back_ends: vec![at(4), at(5)],
    }
}

struct EndsWithTest(Child);

impl Drop for EndsWithTest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that sends what its clients ask to a tier.
struct Gateway {
    process: EndsWithTest,
    port: String,
}

impl Gateway {
    fn before(tier: &TrialTier) -> Self {
        // Not one that the system gives to clients: one that waits could connect to itself.
        let port = free_ports(1);
        let mut command = curtail();
        command.args([
            "serve",
            "-l",
            "127.0.0.1",
            "-t",
            "2",
            "-p",
            &port,
            "--tier-file",
        ]);
        command.arg(tier.path()).stderr(Stdio::null());
        let gateway = Self {
            process: EndsWithTest(command.spawn().unwrap()),
            port,
        };
        eventually("a gateway answers", || {
            let connected = Connection::to(gateway.address(), Duration::from_secs(1));
            connected.is_ok_and(|mut client| client.ask("version\r\n").is_ok())
        });
        gateway
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn connect(&self) -> Connection {
        assert!(self.process.0.id() > 0);
        Connection::to(self.address(), Duration::from_secs(20)).unwrap()
    }

    fn stat(&self, name: &str) -> u64 {
        let stats = self.connect().stats("curtail").unwrap();
        let found = stats.iter().find(|(own, _)| own == name);
        found.unwrap().1.parse().unwrap()
    }
}

fn run_memcached_client(number: u32, mut client: Connection, shared: &Shared) {
    let mut random = Random::new(u64::from(number) + 1);
    let (mut name, mut own) = (number, Vec::new());
    let at = || curtail_types::Instant {
        ns: curtail_runtime::monotonic_ns(),
    };
    while !shared.ends.load(Relaxed) {
        let key = random.below(4);
        let invoked = at();
        let (action, line) = match random.below(10) {
            0 => {
                let value = shared.values.fetch_add(1, Relaxed);
                let text = value.to_string();
                let set = format!("set key{key} 0 0 {}\r\n{text}\r\n", text.len());
                (Action::Write(value), client.ask(set).unwrap())
            }
            _ => (
                Action::Read,
                client.ask(format!("get key{key}\r\n")).unwrap(),
            ),
        };
        let outcome = match line.as_str() {
            "STORED" => Some(Outcome::Done),
            "END" => Some(Outcome::Missing),
            found if found.starts_with("VALUE ") => {
                let value = client.line().unwrap().parse().unwrap();
                assert_eq!(client.line().unwrap(), "END");
                Some(Outcome::Value(value))
            }
            failed if failed.starts_with("SERVER_ERROR") => None,
            other => panic!("{other}"),
        };
        own.push(Entry {
            client: name,
            key,
            invoked,
            action,
            returned: outcome.map(|outcome| (at(), outcome)),
        });
        if outcome.is_none() {
            // It may still be under way: another client goes on.
            name += CLIENTS;
        }
    }
    shared.history.lock().unwrap().extend(own);
}

#[test]
fn a_tier_in_network_namespaces_with_xdp() {
    in_network_namespaces(&["--xdp"]);
}

#[test]
fn a_tier_in_network_namespaces_with_open_vswitch() {
    in_network_namespaces(&["--ovs"]);
}

#[test]
fn a_tier_of_frames_with_xdp() {
    in_network_namespaces(&["--xdp", "--encoding", "mac"]);
}

#[test]
fn a_tier_of_frames_with_open_vswitch() {
    in_network_namespaces(&["--ovs", "--encoding", "mac"]);
}

/// Who cannot send or forward frames says so, and what to do: the switch in user space, a trial
/// tier with it, a client without an address of the tier's network, the client in Python.
#[test]
fn encoding_mac_is_refused_where_there_are_no_frames() {
    let up = curtail()
        .args(["cluster", "up", "--tiered", "--encoding", "mac"])
        .output()
        .unwrap();
    let said = String::from_utf8(up.stderr).unwrap();
    assert!(!up.status.success());
    assert_contains(&said, "it needs --xdp or --ovs");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tier.toml");
    let text = "secret = \"0123456789abcdef0123456789abcdef\"\n\
                control = \"10.77.255.0:11300\"\n\
                caches = [\"10.77.254.0:11300\"]\n\
                back_ends = [\"10.77.0.0:11300\"]\n\
                network = { mac = { network = \"10.77.0.0/16\", port = 11300 } }\n";
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = |words: &[&str]| {
        let mut command = curtail();
        let output = command.arg("tier").args(words).arg("--file").arg(&path);
        let output = output.output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_contains(&said(&["switch"]), "the forwarder in user space cannot");
    // No interface of this machine is in the tier's network, or none has a host's MAC address.
    let refused = said(&["get", "key"]);
    assert_contains(&refused, "cannot open a socket to the tier");
    let program = "import sys; from curtail_tier import TierSession\nTierSession(sys.argv[1])";
    let mut python = Command::new("python3");
    let python = python.args(["-c", program]).arg(&path);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/python");
    let output = python.env("PYTHONPATH", folder).output().unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    assert_contains(&shown, "encoding mac, which this client does not speak");
}

/// Goal: a tier with another switch, between network namespaces; it lives through the death of the
/// switch's process, and no namespace, process or file is left. Without root it is skipped, and
/// says so.
fn in_network_namespaces(words: &[&str]) {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || std::env::var_os("CURTAIL_WITHOUT_XDP").is_some() {
        let _ = std::io::stderr().write_all(b"SKIPPED: no namespaces and no XDP here\n");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let port = free_ports(1);
    let mut child = curtail()
        .args([
            "cluster",
            "up",
            "--tiered",
            "--back-ends",
            "2",
            "--report-ms",
            "200",
        ])
        .args(words)
        .args(["--port", &port, "--dir"])
        .arg(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let file = dir.path().join("tier.toml");
    let call = |words: &[&str]| {
        let clients = format!("curtail-{port}-host257");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &clients]);
        command
            .args([env!("CARGO_BIN_EXE_curtail"), "tier"])
            .args(words);
        let output = command.arg("--file").arg(&file).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    eventually("an item is stored", || {
        call(&["put", "a", "b"]).0.contains("stored")
    });
    eventually("the cache answers", || {
        let (value, by) = call(&["get", "a"]);
        value == "b\n" && by.contains("cache node")
    });
    call(&["put", "a", "c"]);
    assert_eq!(call(&["get", "a"]).0, "c\n");
    for order in ["kill", "add"] {
        let mut command = curtail();
        command.args(["cluster", order, "switch", "--dir"]);
        let output = command.arg(dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    // A node that stalls for half a second loses its lease, and the cache its copy, until the key
    // is read again: so both in one look.
    eventually("the cache answers again, by a rule", || {
        let (value, by) = call(&["get", "a"]);
        let mut status = curtail();
        status.args(["cluster", "status", "--dir"]).arg(dir.path());
        let status = String::from_utf8(status.output().unwrap().stdout).unwrap();
        value == "c\n" && by.contains("cache node") && status.contains("1 of 131072 rules")
    });
    let (loaded, said) = call(&["load", "--keys", "20", "--warm-up", "1", "--seconds", "1"]);
    assert!(loaded.contains("cache"), "{loaded}{said}");
    through_a_gateway(&port, &file);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_nothing_left(&port, dir.path());
}

/// A client of memcached's protocol uses the tier through a gateway in the clients' namespace.
fn through_a_gateway(port: &str, file: &std::path::Path) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway");
    let clients = format!("curtail-{port}-host257");
    let mut gateway = Command::new("ip");
    gateway.args(["netns", "exec", &clients]);
    gateway.args([
        env!("CARGO_BIN_EXE_curtail"),
        "serve",
        "-m",
        "64",
        "-u",
        "root",
        "-s",
    ]);
    gateway.arg(&socket).arg("--tier-file").arg(file);
    let mut gateway = gateway.spawn().unwrap();
    eventually("the gateway listens", || {
        UnixStream::connect(&socket).is_ok()
    });
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream
        .write_all(b"set a 0 0 1\r\nd\r\nget a\r\nget none\r\nquit\r\n")
        .unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert_eq!(answers, "STORED\r\nVALUE a 0 1\r\nd\r\nEND\r\nEND\r\n");
    kill_process(Pid::from_child(&gateway), Signal::INT).unwrap();
    gateway.wait().unwrap();
}

#[track_caller]
fn assert_nothing_left(port: &str, dir: &std::path::Path) {
    let left = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    assert!(!left.contains(&format!("curtail-{port}-")), "{left}");
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
    let path = dir.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let named = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let mut named = named.map(|words| String::from_utf8_lossy(&words).into_owned());
    let daemon = named.find(|words| words.contains(path));
    assert_eq!(daemon, None, "it has outlived its tier");
}

#[derive(Default)]
struct Shared {
    history: Mutex<Vec<Entry>>,
    ends: AtomicBool,
    values: AtomicU64,
    from_cache: AtomicU64,
}

fn run_client(number: u32, mut client: TierSession, shared: &Shared) {
    let mut random = Random::new(u64::from(number) + 1);
    let (mut name, mut own) = (number, Vec::new());
    let at = || curtail_types::Instant {
        ns: curtail_runtime::monotonic_ns(),
    };
    while !shared.ends.load(Relaxed) {
        let key = random.below(4);
        let invoked = at();
        let (action, outcome) = ask(&mut client, key, &mut random, shared);
        let returned = match outcome {
            Ok(outcome) => Some((at(), outcome)),
            Err(TierClientError::Unanswered | TierClientError::Busy) => None,
            Err(other) => panic!("{other}"),
        };
        own.push(Entry {
            client: name,
            key,
            invoked,
            action,
            returned,
        });
        if returned.is_none() {
            // It may still be under way: another client goes on.
            name += CLIENTS;
        }
    }
    shared.history.lock().unwrap().extend(own);
}

fn ask(
    client: &mut TierSession,
    key: u64,
    random: &mut Random,
    shared: &Shared,
) -> (Action, Result<Outcome, TierClientError>) {
    let name = format!("key {key}");
    if random.below(10) == 0 {
        let value = shared.values.fetch_add(1, Relaxed);
        let put = client.put(name.as_bytes(), &value.to_le_bytes(), 0, None);
        return (Action::Write(value), put.map(|_| Outcome::Done));
    }
    let found = |found: TierValue| {
        shared
            .from_cache
            .fetch_add(u64::from(found.is_from_cache), Relaxed);
        Outcome::Value(u64::from_le_bytes(found.value[..].try_into().unwrap()))
    };
    let read = client.get(name.as_bytes());
    (
        Action::Read,
        read.map(|item| item.map_or(Outcome::Missing, found)),
    )
}

const CLIENTS: u32 = 4;
static TESTS: AtomicU32 = AtomicU32::new(0);
