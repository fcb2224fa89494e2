//! A trial cluster as an operator uses it: up, status, kill, add, remove, and an end that leaves
//! nothing behind.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    ops::Range,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use curtail_testing::{Client, assert_contains};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(40);
const PORTS: Range<u16> = 25_096..31_240;

fn curtail() -> Command {
    Command::new(env!("CARGO_BIN_EXE_curtail"))
}

/// A trial cluster; its nodes end with it.
struct Trial {
    child: Child,
    port: u16,
    dir: TempDir,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Trial {
    fn up(nodes: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_ports(nodes + 1);
        let mut child = curtail()
            .args(["cluster", "up", "--lease-ms", "2000", "--threads", "1"])
            .args(["--nodes", &nodes.to_string(), "--port", &port.to_string()])
            .arg("--dir")
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let stream = BufReader::new(child.stdout.take().unwrap());
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            for line in stream.lines().map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        let trial = Self {
            child,
            port,
            dir,
            lines,
        };
        trial.wait_until("the nodes are up", || trial.said("nodes are up"));
        trial
    }

    fn said(&self, words: &str) -> bool {
        let lines = self.lines.lock().unwrap();
        lines.iter().any(|line| line.contains(words))
    }

    fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            let lines = self.lines.lock().unwrap();
            assert!(start.elapsed() < PATIENCE, "{what}\n{}", lines.join("\n"));
            drop(lines);
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn call(&self, words: &[&str]) -> Output {
        let mut command = curtail();
        command.arg("cluster").args(words).arg("--dir");
        command.arg(self.dir.path()).output().unwrap()
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.call(words);
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        let lines = self.lines.lock().unwrap().join("\n");
        assert!(
            output.status.success(),
            "{words:?}: {text}{errors}\n{lines}"
        );
        text
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.done(&["status", "--json"])).unwrap()
    }

    /// What `top` shows of a node.
    fn top(&self, node: u16) -> String {
        let address = format!("127.0.0.1:{}", self.port + node);
        let output = curtail()
            .args(["top", &address, "--once"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the status says of a node.
    fn node(&self, id: usize, what: &str) -> Value {
        self.status()["nodes"][id][what].clone()
    }

    fn wait_for(&self, id: usize, what: &str, value: &str) {
        let label = format!("node {id}: {what} {value}");
        self.wait_until(&label, || self.node(id, what) == value);
    }

    /// Sends a request to a node and demands this answer. On a machine with much else to do a
    /// node's lease may end for a moment: then it is asked again.
    fn demand(&self, node: u16, request: &str, answer: &str) {
        let mut client = Client::connect_to(([127, 0, 0, 1], self.port + node).into());
        let not_in_service = "SERVER_ERROR this node is not in service";
        let mut first = String::new();
        self.wait_until("the node serves", || {
            first = client.ask(request);
            first != not_in_service
        });
        let rest = client.take(answer.len().saturating_sub(first.len() + "\r\n".len()));
        assert_eq!(
            format!("{first}\r\n{}", String::from_utf8(rest).unwrap()),
            answer
        );
    }

    fn pids(&self) -> Vec<Pid> {
        let status = self.status();
        let nodes = status["nodes"].as_array().unwrap().clone();
        let pid = |node: &Value| Pid::from_raw(i32::try_from(node["pid"].as_i64()?).ok()?);
        nodes.iter().filter_map(pid).collect()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = kill_process(self.pid(), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// The first of as many ports in a row that nobody has, others at each call, below those that the
/// kernel gives to connecting sockets: a node that is down would find its own taken otherwise.
fn free_ports(count: u16) -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Two runs at the same time begin elsewhere.
    let first = std::process::id() as u16 % 48 * 128;
    loop {
        let index = first.wrapping_add(GIVEN.fetch_add(count, Ordering::Relaxed));
        let port = PORTS.start + index % PORTS.len() as u16;
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (port..port + count).all(free) {
            return port;
        }
    }
}

#[test]
fn a_cluster_is_up_and_any_node_answers() {
    // Two nodes; each key set at one is read at the other; then Ctrl-C, and nothing is left.
    let mut trial = Trial::up(2);
    for node in 0..2 {
        let key = format!("key{node}");
        trial.demand(node, &format!("set {key} 0 0 2\r\nhi\r\n"), "STORED\r\n");
        let found = format!("VALUE {key} 0 2\r\nhi\r\nEND\r\n");
        trial.demand(1 - node, &format!("get {key}\r\n"), &found);
    }
    let status = trial.done(&["status"]);
    assert_contains(&status, "node1");
    assert_contains(&status, "live");
    let file = trial.dir.path().join("cluster.toml");
    let file = file.to_str().unwrap();
    let status = ["cluster", "status", "--file", file];
    let output = curtail().args(status).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Only a trial cluster has processes to act on.
    let kill = ["cluster", "kill", "0", "--file", file];
    let output = curtail().args(kill).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_contains(&told, "unexpected argument '--file'");
    assert!(trial.refused(&["kill", "9"]).contains("no node 9"));
    let second = trial.refused(&["up", "--port", "1"]);
    assert_contains(&second, "runs in");
    let pids = trial.pids();
    assert_eq!(pids.len(), 2);
    kill_process(trial.pid(), Signal::INT).unwrap();
    assert!(trial.child.wait().unwrap().success());
    for pid in pids {
        assert!(test_kill_process(pid).is_err(), "{pid:?} still runs");
    }
    assert_eq!(std::fs::read_dir(trial.dir.path()).unwrap().count(), 0);
    let starts = format!("starts, for clients at tcp:127.0.0.1:{}", trial.port);
    let listens = format!("in service and listens on tcp:127.0.0.1:{}", trial.port);
    for words in [
        &*starts,
        "started empty; at SIGTERM this node first moves its keys",
        &listens,
    ] {
        assert!(trial.said(words), "{words}: {:#?}", trial.lines);
    }
    assert!(trial.refused(&["status"]).contains("no trial cluster runs"));
}

#[test]
fn a_node_that_dies_is_removed_and_comes_back() {
    let trial = Trial::up(3);
    trial.done(&["kill", "node2"]);
    assert_eq!(trial.node(2, "process"), "ended by signal 9");
    assert!(trial.refused(&["pause", "2"]).contains("does not run"));
    trial.wait_for(2, "membership", "out");
    assert_eq!(trial.node(0, "membership"), "live");
    // `top` shows it as soon as the view without the node is in force.
    let told = || trial.top(0);
    trial.wait_until("top tells of it", || told().contains("node2 was removed"));
    assert!(told().contains("slices lost their contents"), "{}", told());
    for words in [
        "WARN  cluster: node 2 sends no heartbeats",
        "WARN  cluster: node2 was removed",
        "WARN  cluster: 85 slices lost their contents",
    ] {
        trial.wait_until(words, || trial.said(words));
    }
    assert!(trial.refused(&["add", "1"]).contains("runs already"));
    let added = trial.done(&["add", "2"]);
    assert_contains(&added, "its share of the slices");
    assert_eq!(trial.node(2, "membership"), "live");
    let share = trial.node(2, "primary").as_u64().unwrap();
    assert!((85..=86).contains(&share), "{share} of 256 slices");
    // Each move of a slice is a change of the view: too many for the default level.
    assert!(!trial.said("changes of the holders"), "{:#?}", trial.lines);
}

#[test]
fn a_node_joins_and_another_leaves_with_nothing_lost() {
    let trial = Trial::up(2);
    for key in 0..50 {
        let set = format!("set key{key} 0 0 2\r\nhi\r\n");
        trial.demand(0, &set, "STORED\r\n");
    }
    trial.done(&["add"]);
    trial.done(&["rebalance"]);
    trial.done(&["remove", "0"]);
    // So it can be added again at once.
    assert_eq!(trial.node(0, "process"), "ended");
    for key in 0..50 {
        let found = format!("VALUE key{key} 0 2\r\nhi\r\nEND\r\n");
        trial.demand(1 + key % 2, &format!("get key{key}\r\n"), &found);
    }
}

/// Goal: a `remove` that ran out of time is continued by the same command: it waits while the node
/// leaves; when the node has left meanwhile it ends the node's process, and the node can be added
/// again. Method: a first command that does not wait at all; then the same again, at once and when
/// the node is out.
#[test]
fn a_removal_is_continued_by_the_same_command() {
    let trial = Trial::up(3);
    for node in [1, 2] {
        let id = node.to_string();
        let told = trial.refused(&["remove", &id, "--wait", "0"]);
        // The remedy names this trial's cluster, or it would act on another one.
        let at = trial.dir.path().display();
        let again = format!("`curtail cluster remove node{node} --dir {at}` waits for them again");
        assert_contains(&told, &again);
        if node == 2 {
            trial.wait_for(node, "membership", "out");
            assert_eq!(trial.node(node, "process"), "running");
        }
        let told = trial.done(&["remove", &id]);
        let progress = match node {
            1 => "node1 is leaving already",
            _ => "node2 is not a member",
        };
        assert_contains(&told, progress);
        assert_eq!(trial.node(node, "process"), "ended");
    }
    assert_contains(&trial.done(&["add", "2"]), "its share of the slices");
    let told = trial.refused(&["remove", "7"]);
    assert_contains(&told, "names no node 7");
}

#[test]
fn a_pause_is_survived_and_no_process_outlives_the_trial() {
    let mut trial = Trial::up(3);
    trial.done(&["pause", "1"]);
    trial.wait_for(1, "membership", "out");
    trial.done(&["resume", "1"]);
    trial.wait_for(1, "membership", "live");
    let pids = trial.pids();
    assert_eq!(pids.len(), 3);
    kill_process(trial.pid(), Signal::KILL).unwrap();
    trial.child.wait().unwrap();
    for pid in pids {
        trial.wait_until("the end of the nodes", || test_kill_process(pid).is_err());
    }
}

/// Goal: SIGHUP while a node leaves does not cut the leave short. Method: a node gets SIGTERM and,
/// once its leave has begun, SIGHUP; then the other node has every key.
#[test]
fn a_reload_does_not_end_a_leave() {
    let trial = Trial::up(2);
    for key in 0..50 {
        let set = format!("set key{key} 0 0 2\r\nhi\r\n");
        trial.demand(0, &set, "STORED\r\n");
    }
    let leaving = trial.pids()[0];
    kill_process(leaving, Signal::TERM).unwrap();
    trial.wait_until("the leave begins", || trial.said("node 0 starts to leave"));
    kill_process(leaving, Signal::HUP).unwrap();
    trial.wait_until("the log says so", || trial.said("SIGHUP: ignored"));
    trial.wait_for(0, "process", "ended");
    for key in 0..50 {
        let found = format!("VALUE key{key} 0 2\r\nhi\r\nEND\r\n");
        trial.demand(1, &format!("get key{key}\r\n"), &found);
    }
}
