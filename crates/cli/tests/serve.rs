//! The server as an operator uses it: start, signals, errors, files, `doctor`.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use curtail_testing::{
    Client, PATIENCE, Process, assert_contains, eventually, listening, signal, temporary_file,
    temporary_path,
};

fn curtail(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_curtail"));
    command.args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server with these arguments.
fn serve(arguments: &[&str]) -> Process {
    Process::serve(env!("CARGO_BIN_EXE_curtail"), arguments)
}

#[test]
fn a_server_greets_serves_and_stops_on_either_signal() {
    for signal in ["TERM", "INT"] {
        let server = serve(&["-m32"]);
        assert_eq!(
            server.ask("set a 0 0 1\r\nx\r\nget a\r\n"),
            "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
        );
        let port = server.address().port();
        server.signal(signal);
        let (status, told) = server.wait();
        assert!(status.success(), "{status}");
        let lines: Vec<&str> = told.lines().collect();
        let greeting = lines[0];
        assert!(
            greeting.contains(&format!("listens on tcp:127.0.0.1:{port}")),
            "{told}"
        );
        assert!(greeting.contains(" memory_mib=32 workers=1 "), "{told}");
        let told_of = |words: &str| lines.iter().any(|line| line.contains(words));
        for words in ["started empty", "stopping;", "stopped"] {
            assert!(told_of(words), "{words}: {told}");
        }
        assert_eq!(lines.len(), 4, "{told}");
    }
}

#[test]
fn contents_survive_sigusr1() {
    let file = temporary_path();
    let path = file.to_str().unwrap();
    let server = serve(&["-e", path]);
    assert_eq!(server.ask("set a 7 0 5\r\nhello\r\n"), "STORED\r\n");
    server.signal("USR1");
    assert!(server.wait().0.success());
    assert!(file.exists());
    let server = serve(&["-e", path]);
    assert_eq!(server.ask("get a\r\n"), "VALUE a 7 5\r\nhello\r\nEND\r\n");
    assert!(
        !file.exists(),
        "old contents must not come back after a crash"
    );
    let (status, told) = server.stop();
    assert!(
        status.success() && told.contains("restored 1 items"),
        "{told}"
    );
}

/// Goal: a full disk is told, with a status that says so, and leaves no half-written file. Method:
/// a limit on the size of files, which the kernel enforces like a full disk.
#[test]
fn a_full_disk_fails_the_save() {
    let file = temporary_path();
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} serve -p -1 -t 1 -m 64 -e {}",
        env!("CARGO_BIN_EXE_curtail"),
        file.display()
    );
    let server = Process::start(Command::new("bash").args(["-c", &script]));
    let value = "v".repeat(100_000);
    assert_eq!(
        server.ask(&format!("set a 0 0 100000\r\n{value}\r\n")),
        "STORED\r\n"
    );
    server.signal("USR1");
    let (status, told) = server.wait();
    assert_eq!(status.code(), Some(1), "{told}");
    assert_contains(&told, "the contents are lost: cannot write ");
    assert_contains(&told, file.to_str().unwrap());
    assert!(!file.exists());
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let mut beside = fs::read_dir(file.parent().unwrap()).unwrap().flatten();
    let begins = |entry: &fs::DirEntry| {
        let found = entry.file_name();
        found.to_string_lossy().starts_with(&name)
    };
    assert!(
        !beside.any(|entry| begins(&entry)),
        "something is left beside it"
    );
}

#[test]
fn logins_are_read_again_on_sighup() {
    let file = temporary_file("a:b\n");
    let server = serve(&["-Y", file.to_str().unwrap()]);
    let login = |text: &str| server.ask(&format!("set x 0 0 {}\r\n{text}\r\n", text.len()));
    assert_eq!(login("a b"), "STORED\r\n");
    fs::write(&file, "c:d\n").unwrap();
    server.signal("HUP");
    eventually("the file is read", || login("c d") == "STORED\r\n");
    assert_eq!(login("a b"), "CLIENT_ERROR authentication failure\r\n");
}

#[test]
fn what_cannot_be_done_is_said_and_fails() {
    let taken = serve(&[]);
    let port = taken.address().port().to_string();
    for (arguments, words) in [
        (vec!["serve", "-p", &port], "already in use"),
        (vec!["serve", "-l", "0.0.0.0"], "without a login"),
        (vec!["serve", "-c", "0"], "at least one connection"),
        (
            vec!["serve", "-m", "8388608", "-p", "-1"],
            "-m 8388608: the greatest memory limit is 8388607 MiB",
        ),
        (
            vec!["serve", "-Y", "/no/such/file", "-p", "-1"],
            "login file",
        ),
        (
            vec!["serve", "--config", "/no/such/file"],
            "configuration file",
        ),
        (vec!["serve", "--no-such-flag"], "unexpected argument"),
        (vec!["nothing"], "unrecognized subcommand"),
    ] {
        let output = curtail(&arguments).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
}

#[test]
fn a_configuration_file_counts_less_than_the_command_line() {
    let file = temporary_file("memory-limit = 77\nconn-limit = 5\n");
    let server = serve(&["--config", file.to_str().unwrap(), "-c", "9"]);
    let settings = server.ask("stats settings\r\n");
    assert_contains(&settings, &format!("STAT maxbytes {}\r\n", 77 << 20));
    assert_contains(&settings, "STAT maxconns 9\r\n");
}

#[test]
fn a_daemon_comes_up_and_leaves_a_pid_file() {
    let file = temporary_path();
    let ports = temporary_path();
    let path = file.to_str().unwrap();
    let started = curtail(&["serve", "-d", "-P", path, "-p", "-1", "-t", "1"])
        .env("MEMCACHED_PORT_FILENAME", &ports)
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    // The parent waits for the child, so both files are there now.
    let pid = fs::read_to_string(&file).unwrap();
    Client::connect_to(listening(&ports)).demand("mn\r\n", "MN\r\n");
    signal(pid.trim(), "TERM");
    eventually("the pid file is removed", || !file.exists());
    let taken = serve(&[]);
    let port = taken.address().port().to_string();
    let failed = curtail(&["serve", "-d", "-p", &port]).output().unwrap();
    assert!(
        !failed.status.success(),
        "a daemon that cannot start says so"
    );
}

#[test]
fn help_version_and_doctor_answer() {
    for (arguments, words) in [
        (vec!["--help"], "serve"),
        (vec!["serve", "-h"], "-m, --memory-limit <NUM>"),
        (vec!["serve", "--help"], "--unix-socket"),
        (vec!["serve", "-V"], "curtail "),
        (vec!["--version"], "curtail "),
        (vec!["doctor"], "processors"),
        (vec!["doctor", "--format", "json"], "\"verdict\""),
        (vec!["bench", "--help"], "--pipeline"),
        (vec!["soak", "--help"], "--target"),
    ] {
        let output = curtail(&arguments).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{arguments:?}");
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
}

/// Goal: locking memory locks what is in use, not what is reserved for growth. Method: `-k` where
/// the rights allow it; where they do not, the server warns and serves.
#[test]
fn locked_memory_is_not_touched_beforehand() {
    let server = serve(&["-k", "-m", "64"]);
    assert_eq!(server.ask("set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    let resident = server.client().stat("memory", "resident");
    assert!(resident < 96 << 20, "{resident} bytes are resident");
}

/// Goal: a server whose limit is far above what the machine has starts, serves, and takes no memory
/// for what it may grow to. Method: limits from 96 GiB to the greatest, huge pages prepared as by
/// default; a machine that reserves no more than it has is told apart by its setting.
#[test]
fn limits_of_a_terabyte_and_more_start() {
    let mode = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    for megabytes in [96_u64 << 10, 256 << 10, 1 << 20, (8 << 20) - 1] {
        let limit = megabytes.to_string();
        if mode.trim() == "2" {
            let output = curtail(&["serve", "-p", "-1", "-m", &limit])
                .output()
                .unwrap();
            let told = String::from_utf8(output.stderr).unwrap();
            assert_contains(&told, "vm.overcommit_memory is 2");
            continue;
        }
        let server = serve(&["-m", &limit]);
        assert_eq!(server.ask("set a 0 0 1\r\nx\r\n"), "STORED\r\n");
        assert_eq!(server.ask("get a\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
        let stat = |name| server.client().stat("memory", name);
        assert_eq!(stat("limit"), megabytes << 20);
        let resident = stat("resident");
        assert!(
            resident < 128 << 20,
            "-m {limit}: {resident} bytes are resident"
        );
    }
}

/// Goal: who may not have the address space is told which limit to raise, and by which flag to ask
/// for less. Method: a server under `ulimit -v`.
#[test]
fn a_limit_of_address_space_is_named() {
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -v 4194304 && exec \"$0\" serve -p -1 -m 1048576",
        ])
        .arg(env!("CARGO_BIN_EXE_curtail"))
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    for words in ["-m 1048576", "4096 MiB in all (RLIMIT_AS, ulimit -v)"] {
        assert_contains(&told, words);
    }
}

/// Goal: `-vv` shows connections and commands, never values, and a plain start shows none. Method:
/// the same requests to both.
#[test]
fn very_verbose_shows_connections_and_commands() {
    for (_name, flags, shows) in [("loud", &["-vv"][..], true), ("still", &[], false)] {
        let server = serve(flags);
        server.ask("set a 0 0 6\r\nsecret\r\nget a b\r\nquit\r\n");
        let (_, told) = server.stop();
        let lines = |end: &str| {
            let ends = told.lines().filter(|line| line.ends_with(end));
            ends.count()
        };
        for wanted in [
            " new ascii client connection.",
            " set a 0 0 6",
            " get a b",
            " quit",
            " connection closed.",
        ] {
            assert_eq!(lines(wanted), usize::from(shows), "{wanted} in {told}");
        }
        assert!(!told.contains("secret"), "{told}");
    }
}

/// Goal: what an operator has to know is in the log, with time, level and component; no password
/// and no value is. Method: a server with logins that does all of it, its log in JSON.
#[test]
fn the_log_tells_what_happened_to_whom() {
    let file = temporary_file("ada:lovelace\n");
    let flags = ["--log-format", "json", "-Y", file.to_str().unwrap()];
    let server = serve(&flags);
    let login = |text: &str| format!("set x 0 0 {}\r\n{text}\r\n", text.len());
    server.ask(&login("ada wrongsecret"));
    let commands = "set k 0 0 5\r\ns3crt\r\nflush_all\r\ncache_memlimit 72\r\npolicy crew\r\n\
                    verbosity 1\r\nstats slow threshold 5000\r\n";
    server.ask(&(login("ada lovelace") + commands));
    server.signal("HUP");
    // Signals are taken one after another, so the first is done before the second.
    std::thread::sleep(Duration::from_millis(100));
    let port = server.address().port();
    let (_, told) = server.stop();
    let row = |line: &str| -> serde_json::Value { serde_json::from_str(line).unwrap() };
    let rows: Vec<serde_json::Value> = told.lines().map(row).collect();
    let has = |level: &str, component: &str, words: &str| {
        let found = rows.iter().find(|row| {
            row["component"] == component && row["message"].as_str().unwrap().contains(words)
        });
        let row = found.unwrap_or_else(|| panic!("{words}: {told}"));
        assert_eq!(row["level"], level, "{words}");
        row.clone()
    };
    let greeting = has(
        "info",
        "server",
        &format!("listens on tcp:127.0.0.1:{port}"),
    );
    assert!(
        greeting["workers"] == 1 && greeting["logins"] == true,
        "{greeting}"
    );
    let refused = has("warn", "auth", "a login was refused");
    assert!(
        refused["peer"]
            .as_str()
            .unwrap()
            .starts_with("tcp:127.0.0.1:")
    );
    assert!(has("info", "admin", "flush_all")["peer"].is_string());
    for (component, words) in [
        ("auth", "a client logged in"),
        ("admin", "from 64 to 72 MiB"),
        ("policy", "from size-aware+d-crew to crew"),
        ("admin", "verbosity changes from 0 to 1"),
        ("admin", "slow log changes to 5000 us"),
        ("auth", "was read again and has 1 logins"),
        ("server", "stopped"),
    ] {
        has("info", component, words);
    }
    for secret in ["wrongsecret", "lovelace", "s3crt"] {
        assert!(!told.contains(secret), "{secret}: {told}");
    }
    for row in &rows {
        let time = row["time"].as_str().unwrap();
        assert!(time.len() == 27 && time.ends_with('Z'), "{time}");
    }
}

/// Goal: a thousand refused logins make a few lines, and none is uncounted. Method: the lines, and
/// the sum of what they say was suppressed.
#[test]
fn a_flood_of_refused_logins_makes_few_lines() {
    let file = temporary_file("ada:lovelace\n");
    let server = serve(&["-Y", file.to_str().unwrap()]);
    let begun = Instant::now();
    server.ask(&"set x 0 0 3\r\na b\r\n".repeat(1000));
    let seconds = begun.elapsed().as_secs() as usize;
    let (_, told) = server.stop();
    let lines: Vec<&str> = told
        .lines()
        .filter(|line| line.contains(" auth: "))
        .collect();
    assert!(lines.len() <= 11 * (seconds + 1), "{} lines", lines.len());
    let singles = lines
        .iter()
        .filter(|line| line.contains("a login was refused"));
    let number = |line: &str| line.rsplit_once("suppressed=")?.1.parse::<usize>().ok();
    let suppressed: usize = lines.iter().filter_map(|line| number(line)).sum();
    assert_eq!(singles.count() + suppressed, 1000, "{told}");
}

/// Goal: connections above the limit are in the log, with what to do. Method: `-c 1`, and a second
/// connection.
#[test]
fn refused_connections_are_logged_with_the_remedy() {
    let server = serve(&["-c", "1"]);
    let mut first = server.client();
    first.demand("mn\r\n", "MN\r\n");
    let answer = server.client().line();
    assert_contains(&answer, "Too many open connections");
    let (_, told) = server.stop();
    assert_contains(&told, " WARN  connections: 1 connections were refused");
    assert_contains(&told, "raise -c");
}

/// Goal: under a low limit of open files the server lowers `-c` and refuses the clients beyond; if
/// descriptors run out all the same, new connections wait until there is one, those that exist are
/// served, and the log says once what to do. Method: `ulimit -n 64`, without root's right to raise
/// it; a quarter of that is left for clients; native connections take the rest.
#[test]
fn a_low_limit_of_open_files_is_lived_with() {
    const LIMIT: usize = 64;
    let script = "ulimit -n 64; \
                  [ $(id -u) = 0 ] && set -- setpriv --bounding-set=-sys_resource \"$@\"; \
                  exec \"$@\"";
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let native = free.unwrap();
    let port = native.port().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_curtail"), "serve"]);
    shell.args(["-p", "-1", "-t", "1", "-m", "64", "--native", &port]);
    let server = Process::start(&mut shell);
    let mut clients: Vec<Client> = (0..LIMIT / 4).map(|_| server.client()).collect();
    for client in &mut clients {
        client.demand("mn\r\n", "MN\r\n");
    }
    assert_contains(&server.client().line(), "Too many open connections");

    let open = || {
        let files = fs::read_dir(format!("/proc/{}/fd", server.id()));
        files.unwrap().count()
    };
    let mut streams = Vec::new();
    // The server may open another one meanwhile and close it: not each adds one for good.
    while open() < LIMIT {
        assert!(streams.len() < LIMIT, "{} descriptors are open", open());
        let (before, asked) = (open(), Instant::now());
        streams.push(TcpStream::connect(native).unwrap());
        while open() <= before && asked.elapsed() < Duration::from_secs(1) {
            thread::sleep(Duration::from_millis(2));
        }
    }
    // One may still have found a descriptor.
    streams.extend((0..3).map(|_| TcpStream::connect(native).unwrap()));
    let mut last = TcpStream::connect(native).unwrap();
    // Until the server has tried.
    thread::sleep(Duration::from_millis(100));
    clients[0].demand("mn\r\n", "MN\r\n");
    // The poller does not tell of the stream again, and none that the server serves ends.
    drop(clients);
    // A stream that carries no request is closed, once it is accepted.
    last.write_all(&[b'x'; 64]).unwrap();
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    let is_closed = match last.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    assert!(is_closed, "it still waits");
    eventually("descriptors are free", || open() < LIMIT);

    let (_, told) = server.stop();
    assert_contains(&told, "the limit of open files is 64");
    assert_contains(&told, "at most 16 clients may be connected");
    let lines = told.lines();
    let lines = lines.filter(|line| line.contains("no connection can be accepted"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 1, "{told}");
    assert_contains(lines[0], "ulimit -n");
}

/// Goal: `--check-config` tells what a server would run with, or all that is wrong, and starts
/// nothing. Method: a right and a wrong configuration, on a port that is taken.
#[test]
fn a_configuration_is_checked_without_a_start() {
    let taken = serve(&[]);
    let port = taken.address().port().to_string();
    let check = |arguments: &[&str]| {
        let mut command = curtail(&["serve", "--check-config"]);
        let output = command.args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (status, told, warned) = check(&["-p", &port, "-m", "77", "-o", "modern"]);
    assert_eq!(status, Some(0), "{warned}");
    assert_contains(&told, &format!("listen = 127.0.0.1:{port}\n"));
    assert_contains(&told, "memory-limit-bytes = 80740352\n");
    assert_contains(&warned, "-o modern: of no effect in curtail");
    let native = ["--native", "11311", "-o", "native_choice=key"];
    let (status, told, warned) = check(&native);
    assert_eq!(status, Some(0), "{warned}");
    assert_contains(&told, "native_choice = key\n");
    // What the start would refuse because of -m is refused here, too.
    let (status, _, warned) = check(&["--native", "11311", "--native-slots", "65536"]);
    assert_eq!(status, Some(1));
    assert_contains(&warned, "more than half of -m");
    let text = "# ours\nmax-item-size = \"1g\"\nextended = [\"size_queue=0\"]\n";
    let file = temporary_file(text);
    let path = file.to_str().unwrap();
    let (status, told, warned) = check(&["--config", path, "-c", "0", "-Y", "/no/such/file"]);
    assert_eq!((status, told.as_str()), (Some(1), ""), "{warned}");
    for words in [
        format!("configuration file {path}, line 2, max-item-size: -I 1g: "),
        format!("configuration file {path}, line 3, extended: -o size_queue=0: "),
        "curtail: -c 0: ".to_owned(),
        "curtail: -Y /no/such/file: ".to_owned(),
    ] {
        assert!(warned.contains(&words), "{words} in {warned}");
    }
}
