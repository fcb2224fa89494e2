//! `curtail top` against real servers: reports, logins, and the screen on a pseudo-terminal.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

use std::{
    fs::File,
    io::{Read, Write},
    net::TcpListener,
    os::fd::AsFd,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use curtail_testing::{
    PATIENCE, Process, assert_contains, eventually, temporary_file, temporary_path,
};
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_curtail");

/// A server with little memory and these arguments.
fn serve(arguments: &[&str]) -> Process {
    Process::serve(BINARY, &[&["-m", "32"], arguments].concat())
}

fn top(arguments: &[&str]) -> Output {
    let all = ["top", "-i", "0.3"].iter().chain(arguments);
    let mut command = Command::new(BINARY);
    command.args(all).stdin(Stdio::null()).output().unwrap()
}

fn told(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn told_as_json(arguments: &[&str]) -> Value {
    let all = [&["--json"], arguments].concat();
    serde_json::from_str(&told(&top(&all))).unwrap()
}

/// A client that asks one server for hits and misses until it is dropped.
struct Load {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Load {
    fn start(server: &Process) -> Self {
        let mut client = server.client();
        let over = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&over);
        let thread = thread::spawn(move || {
            while !asked.load(Relaxed) {
                client.demand(
                    "set hot 0 0 1\r\nx\r\nmg hot v\r\nmg hot v\r\nmg hot v\r\nmg cold\r\n",
                    "STORED\r\nVA 1\r\nx\r\nVA 1\r\nx\r\nVA 1\r\nx\r\nEN\r\n",
                );
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Goal: a pipe gets one report of what happened. Method: a known mix of requests meanwhile: of
/// five, one is a write, three hit and one misses.
#[test]
fn a_report_tells_what_the_server_does() {
    let server = serve(&["-t", "2"]);
    let address = server.address().to_string();
    let load = Load::start(&server);
    let text = told(&top(&[&address]));
    for words in [
        &address,
        "hits 75.",
        "\nWORKER ",
        "\n0 ",
        "\n1 ",
        "\nlarge 0 ",
        "\nPLAN size-aware+d-crew ",
        "threshold 32,768   cores 2+0\n",
        "\nSTAGE ",
        "\nqueue requests ahead ",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    let report = told_as_json(&[&address]);
    drop(load);
    let number = |path: &str| report.pointer(path).and_then(Value::as_f64).unwrap();
    let (requests, reads) = (number("/traffic/requests"), number("/traffic/reads"));
    let writes = number("/traffic/writes");
    assert!(
        reads > 0.0 && (reads / writes - 4.0).abs() < 0.5,
        "{report}"
    );
    assert!((requests / (reads + writes) - 1.0).abs() < 0.2, "{report}");
    assert!(
        (number("/traffic/hit_ratio") - 0.75).abs() < 0.05,
        "{report}"
    );
    assert_eq!(number("/clients/now"), 2.0);
    assert_eq!(report["workers"].as_array().unwrap().len(), 4);
    assert_eq!(report["workers"][2]["role"], "standby");
    assert_eq!(report["workers"][3]["role"], "idle");
    assert_eq!(report["plan"]["threshold"], 32_768);
    assert!(number("/stages/0/per_second") > 0.0);
    assert!(report.get("keys").is_none());
}

#[test]
fn the_hottest_key_is_first() {
    let server = serve(&[]);
    let address = server.address().to_string();
    let _load = Load::start(&server);
    let report = told_as_json(&["--keys", &address]);
    let keys = &report["keys"]["Ok"]["keys"];
    assert_eq!(
        (&keys[0]["key"], &keys[1]["key"]),
        (&"hot".into(), &"cold".into())
    );
    let seen = |index: usize| keys[index]["seen"].as_f64().unwrap();
    assert!((seen(0) / seen(1) - 4.0).abs() < 1.0, "{keys}");
    let text = told(&top(&["--keys", &address]));
    assert_contains(&text, "\nHOTTEST KEYS ");
}

/// Goal: a login is told to a server that asks for it, over a Unix socket too, and to no other,
/// which would store it as a value.
#[test]
fn logins_are_told_to_those_who_ask() {
    let (logins, password) = (temporary_file("me:secret\n"), temporary_file("secret\n"));
    let (logins, password) = (logins.to_str().unwrap(), password.to_str().unwrap());
    let login = ["--user", "me", "--password-file", password];
    let stranger = ["--user", "you", "--password-file", password];

    let server = serve(&["-Y", logins]);
    let address = &*server.address().to_string();
    told(&top(&[&login[..], &[address]].concat()));
    for (arguments, words) in [
        (vec![address], "--user NAME"),
        ([&stranger[..], &[address]].concat(), "does not know"),
    ] {
        let output = top(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }

    let open = serve(&[]);
    let report = told_as_json(&[&login[..], &[&open.address().to_string()]].concat());
    assert_eq!(report["memory"]["items"], 0);

    let socket = temporary_path();
    let path = socket.to_str().unwrap();
    let _unix = serve(&["-Y", logins, "-s", path]);
    told(&top(&[&login[..], &[path]].concat()));
}

/// Goal: `top` says that a peer is no memcached, and never hangs. Method: peers that answer in
/// another protocol, that hang up, and that are not there.
#[test]
fn what_is_no_server_is_said_and_fails() {
    let foreign = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [foreign.local_addr().unwrap().to_string()];
    thread::spawn(move || {
        for (number, stream) in foreign.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut word = [0; 7];
            stream.read_exact(&mut word).unwrap();
            if number == 0 {
                stream.write_all(b"-ERR \x1b[31munknown\r\n").unwrap();
            }
        }
    });
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    for (address, words) in [
        (&addresses[0], "not memcached's protocol: -ERR ?[31munknown"),
        (&addresses[0], "closed the connection"),
        (&gone, "refused"),
    ] {
        let output = top(&[address]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{said}");
        assert_contains(&said, words);
        assert_contains(&said, address.as_str());
    }
    for wrong in [
        &["-i", "0"][..],
        &["-i", "x"],
        &["--user", "a"],
        &["cache:0"],
    ] {
        assert_eq!(top(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// `curtail top` on a terminal of 80 by 24.
struct OnTerminal {
    child: Child,
    /// Our end, and the other, held open to be asked for its modes.
    ours: File,
    theirs: File,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start(arguments: &[&str]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let theirs = File::from(ioctl_tiocgptpeer(&ours, flags).unwrap());
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&theirs, size).unwrap();
        let child = Command::new(BINARY)
            .args(["top", "-i", "0.2"])
            .args(arguments)
            .env("TERM", "xterm")
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs.try_clone().unwrap())
            .spawn()
            .unwrap();
        let ours = File::from(ours);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, shown) = (ours.try_clone().unwrap(), Arc::clone(&seen));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(bytes @ 1..) = reader.read(&mut buffer) {
                shown.lock().unwrap().extend(&buffer[..bytes]);
            }
        });
        Self {
            child,
            ours,
            theirs,
            seen,
        }
    }

    /// Waits until `words` have been drawn behind what was last waited for.
    fn wait_for(&self, words: &str) {
        let start = Instant::now();
        loop {
            let mut seen = self.seen.lock().unwrap();
            let mut places = seen.windows(words.len());
            if let Some(place) = places.position(|place| place == words.as_bytes()) {
                seen.drain(..place + words.len());
                return;
            }
            let last = String::from_utf8_lossy(&seen).into_owned();
            drop(seen);
            let waited = start.elapsed();
            assert!(
                waited < PATIENCE,
                "no {words} in the {} bytes {last:.500}",
                last.len()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(self.theirs.as_fd()).unwrap().local_modes;
        !modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO)
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// The end: success, and a terminal as it was.
    fn ends_well(mut self) {
        eventually("it ends", || self.child.try_wait().unwrap().is_some());
        assert!(self.child.wait().unwrap().success());
        assert!(!self.is_raw(), "the terminal is still raw");
        self.wait_for(LEAVE);
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Enters and leaves the other screen of a terminal.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn the_screen_follows_keys_and_leaves_the_terminal_as_it_was() {
    let server = serve(&[]);
    let address = server.address().to_string();
    let mut screen = OnTerminal::start(&[&address]);
    screen.wait_for(ENTER);
    screen.wait_for("PLAN");
    assert!(screen.is_raw());
    screen.press("p");
    screen.wait_for("PAUSED");
    screen.press("?");
    screen.wait_for("this help");
    screen.press("?p");
    screen.wait_for("every");
    screen.press("k");
    screen.wait_for("seen,");
    screen.press("q");
    screen.ends_well();
}

/// Goal: a signal ends it like a key does.
#[test]
fn signals_leave_the_terminal_as_it_was() {
    let server = serve(&[]);
    let address = server.address().to_string();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let screen = OnTerminal::start(&[&address]);
        screen.wait_for("PLAN");
        let pid = Pid::from_raw(screen.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        screen.ends_well();
    }
}

/// Goal: a server may go and come back. Method: end it, see that this is said, and start another
/// one on the same port.
#[test]
fn a_server_that_comes_back_is_found() {
    let server = serve(&[]);
    let address = server.address().to_string();
    let mut screen = OnTerminal::start(&[&address]);
    screen.wait_for("PLAN");
    drop(server);
    screen.wait_for("trying again");
    let (_, port) = address.split_once(':').unwrap();
    let _server = serve(&["-p", port, "-t", "3"]);
    // Three workers have two large ones.
    screen.wait_for("large 1");
    screen.press("q");
    screen.ends_well();
}
