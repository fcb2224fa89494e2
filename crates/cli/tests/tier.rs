//! A trial tier of processes as an operator uses it, and what its clients saw while nodes were
//! killed: every key is linearizable.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]
#![expect(clippy::panic, reason = "a failure here is a test's failure")]

use std::{
    io::Write as _,
    net::UdpSocket,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use curtail_client::tier::{TierClientError, TierSession, TierTarget, TierValue};
use curtail_history::{Action, Entry, History, Outcome, Verdict, check_linearizable};
use curtail_testing::assert_contains;
use curtail_tier::{TierFile, ask_status};
use curtail_workload::Random;
use rustix::process::{Pid, Signal, kill_process};
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
        eventually("every back end has a lease", || {
            let back_ends = tier.file.back_ends.iter();
            let mut statuses = back_ends.map(|at| ask_status(*at, &tier.file.secret()));
            statuses.all(|status| status.is_ok_and(|status| status.get("has_lease") == 1))
        });
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

    fn client(&self, number: u32) -> TierSession {
        let target = TierTarget {
            network: self.file.network(),
            map: self.file.map(),
        };
        TierSession::open(target, 256 + number).unwrap()
    }
}

impl Drop for TrialTier {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let _ = self.child.wait();
    }
}

#[track_caller]
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The first of so many UDP ports that nobody has.
fn free_ports(count: u16) -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    // Namespaces have the port in their names: every call gets other ones.
    let id = std::process::id() + 100 * CALLS.fetch_add(1, Relaxed) as u32;
    let starts = (0..1000_u32).map(|n| 20_000 + ((id * 31 + n * 17) % 5000) as u16);
    let is_free =
        |start: &u16| (0..count).all(|n| UdpSocket::bind(("127.0.0.1", start + n)).is_ok());
    starts.into_iter().find(is_free).unwrap().to_string()
}

/// Goal: the commands do what they say, bad input is refused with its reason, and the end leaves
/// nothing behind.
#[test]
fn a_tier_as_an_operator_uses_it() {
    let mut tier = TrialTier::up(&["--back-ends", "2", "--report-ms", "200"]);
    let stored = tier.call(&["put", "greeting", "hello"]);
    assert!(stored.status.success(), "{stored:?}");
    let get = || {
        let got = tier.call(&["get", "greeting"]);
        assert_eq!(String::from_utf8(got.stdout).unwrap(), "hello\n");
        String::from_utf8(got.stderr).unwrap()
    };
    eventually("the cache answers", || get().contains("cache node"));
    let status = tier.cluster(&["status"]);
    assert_contains(&status, "1 keys, 2 leases");
    assert_contains(&status, "1 of 131072 rules");
    let loaded = tier.call(&["load", "--keys", "50", "--warm-up", "1", "--seconds", "1"]);
    let text = String::from_utf8(loaded.stdout).unwrap();
    assert_contains(&text, "from the cache");
    let missing = tier.call(&["get", "no such key"]);
    assert!(!missing.status.success());
    let removed = tier.call(&["delete", "greeting"]);
    assert!(removed.status.success());

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
        shared.ends.store(true, Relaxed);
    });
    let mut history = History::new();
    let (entries, mut unanswered) = (shared.history.into_inner().unwrap(), 0);
    for entry in &entries {
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
    let from_cache = shared.from_cache.into_inner();
    assert!(from_cache > 100, "{from_cache} of {}", entries.len());
    assert!(unanswered < 100, "{unanswered}");
}

#[test]
fn a_tier_in_network_namespaces_with_xdp() {
    in_network_namespaces("--xdp");
}

#[test]
fn a_tier_in_network_namespaces_with_open_vswitch() {
    in_network_namespaces("--ovs");
}

/// Goal: a tier with another switch, between network namespaces; it lives through the death of the
/// switch's process, and no namespace, process or file is left. Without root it is skipped, and
/// says so.
fn in_network_namespaces(switch: &str) {
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
            switch,
            "--back-ends",
            "2",
            "--report-ms",
            "200",
        ])
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
    eventually("the cache answers again", || {
        let (value, by) = call(&["get", "a"]);
        value == "c\n" && by.contains("cache node")
    });
    let mut status = curtail();
    status.args(["cluster", "status", "--dir"]).arg(dir.path());
    let status = status.output().unwrap();
    assert_contains(
        &String::from_utf8(status.stdout).unwrap(),
        "1 of 131072 rules",
    );
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_nothing_left(&port, dir.path());
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
