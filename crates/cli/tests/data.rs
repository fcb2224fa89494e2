//! `curtail serve --tier disk` as a process, kill -9, and `curtail data`.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::Instant,
};

use curtail_testing::{Process, assert_contains};

const BINARY: &str = env!("CARGO_BIN_EXE_curtail");

fn serve(dir: &Path, durability: &str) -> Process {
    let dir = dir.to_str().unwrap();
    let tier = ["--tier", "disk", "--data", dir, "--durability", durability];
    let small = ["-m", "16", "--disk-memory", "16", "--disk-reserve", "0"];
    Process::serve(BINARY, &[&tier[..], &small[..]].concat())
}

fn data(arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    let command = command.arg("data").args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

fn told(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

/// Goal: what `sync` acknowledged is there after kill -9, and the server says at its start what it
/// promises and what it found. Method: some rounds on one directory.
#[test]
fn a_killed_server_has_what_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let server = serve(folder.path(), "sync");
        let mut client = server.client();
        for number in 0..round * 20 {
            client.demand_value(format!("key-{number}"), format!("value-{number}"));
        }
        for number in round * 20..(round + 1) * 20 {
            client.set(format!("key-{number}"), format!("value-{number}"));
        }
        server.signal("KILL");
        server.wait();
    }
    let begun = Instant::now();
    let server = serve(folder.path(), "bounded");
    server.client().demand_value("key-0", "value-0");
    assert!(begun.elapsed().as_secs() < 10);
    let (_, text) = server.stop();
    assert_contains(&text, "all from one period of 100 ms");
    assert_contains(&text, "replayed=100");
}

/// Goal: the directory's tools show, verify, move and refuse. Method: a directory of a server, and
/// damage to a copy of it.
#[test]
fn the_tools_look_after_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let server = serve(&dir, "bounded");
    let mut client = server.client();
    client.demand("set text 7 0 5\r\nhello\r\n", "STORED\r\n");
    client.demand("set bytes 0 0 3\r\n\x00\r\n\r\n", "STORED\r\n");
    client.demand("set gone 0 -1 3\r\nabc\r\n", "STORED\r\n");
    let named = dir.to_str().unwrap();
    let refused = data(&["info", named]);
    assert!(!refused.status.success());
    assert_contains(
        &told(&refused),
        &format!("in use by process {}", server.id()),
    );
    server.stop();

    let info = data(&["info", named]);
    assert_contains(&told(&info), "items             2");
    let verified = data(&["verify", named]);
    assert!(verified.status.success(), "{}", told(&verified));

    let file = folder.path().join("export");
    let other = folder.path().join("other");
    let [export, to] = [&file, &other].map(|path| path.to_str().unwrap());
    assert_contains(
        &told(&data(&["export", named, "--to", export])),
        "items exported: 2",
    );
    assert_contains(
        &told(&data(&["import", to, "--from", export])),
        "items imported: 2",
    );
    let server = serve(&other, "sync");
    let mut client = server.client();
    client.demand(
        "get text bytes gone\r\n",
        "VALUE text 7 5\r\nhello\r\nVALUE bytes 0 3\r\n\x00\r\n\r\nEND\r\n",
    );
    server.stop();

    let log = fs::read_dir(dir.join("log")).unwrap();
    let log = log.map(|entry| entry.unwrap().path()).min().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    bytes[60] ^= 1;
    fs::write(&log, bytes).unwrap();
    let verified = data(&["verify", named]);
    assert!(!verified.status.success());
    assert_contains(&told(&verified), log.to_str().unwrap());
    let mut command = Command::new(BINARY);
    let start = command.args(["serve", "-p", "-1", "--tier", "disk", "--data", named]);
    let refused = start.stdin(Stdio::null()).output().unwrap();
    assert_contains(&told(&refused), "is damaged at byte");
    let missing = data(&["info", folder.path().join("nothing").to_str().unwrap()]);
    assert_contains(&told(&missing), "has no data of curtail");
}

/// Goal: flags that do not fit are refused with their reason. Method: each.
#[test]
fn flags_that_do_not_fit_are_refused() {
    for (arguments, reason) in [
        (&["--tier", "disk"][..], "give --data DIR"),
        (
            &["--tier", "disk", "--data", "/nowhere", "--policy", "erew"][..],
            "with --tier disk the policy is always crcw",
        ),
        (
            &["--tier", "disk", "--data", "/nowhere", "-M"][..],
            "given together with -M",
        ),
        (
            &["--tier", "disk", "--data", "/nowhere", "--native", "1"][..],
            "given together with --native",
        ),
        (
            &[
                "--tier",
                "disk",
                "--data",
                "/nowhere",
                "--loss-window-ms",
                "1",
            ][..],
            "is not a number from 10 to 60000",
        ),
        (
            &["--tier", "disk", "--data", "/proc/curtail"][..],
            "cannot be written",
        ),
    ] {
        let mut command = Command::new(BINARY);
        let output = command
            .arg("serve")
            .args(["-p", "-1"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert_contains(&told(&output), reason);
    }
}
