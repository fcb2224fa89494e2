//! Two network namespaces, a link for each server between them, and the servers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::process::Running;

/// Which processors the servers have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cores {
    /// One, that all threads of a server share.
    One,
    /// Two: the thread that acknowledges has the driver's, everything else the other one.
    Two,
}

/// How a server is started, and what its rows are called.
pub(super) struct Way {
    /// Its name in tables.
    pub(super) label: &'static str,
    /// The simulator's name for it.
    pub(super) series: &'static str,
    pub(super) mode: &'static str,
    /// Arguments of its own.
    pub(super) arguments: Vec<String>,
}

impl Way {
    pub(super) fn new(
        label: &'static str,
        series: &'static str,
        mode: &'static str,
        arguments: &[&str],
    ) -> Self {
        Self {
            label,
            series,
            mode,
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        }
    }
}

/// The namespaces and what runs in them, until this is dropped.
pub(super) struct Link {
    binary: PathBuf,
    names: [String; 2],
    servers: Vec<Running>,
    /// Keeps the servers' processor from halting, at the lowest priority there is.
    awake: Option<Running>,
}

/// How the namespaces of servers and driver are called; the number of the process follows.
const NAMESPACES: [&str; 2] = ["curtail-servers-", "curtail-driver-"];

/// How a server's interface is called; the number of its way follows.
const INTERFACE: &str = "one";

/// Where a server pins its program, under the interface's name.
const PINS: &str = "/sys/fs/bpf/curtail";

/// A server that does not answer by then never will.
const START_MAX: Duration = Duration::from_secs(10);

impl std::str::FromStr for Cores {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "one" => Ok(Self::One),
            "two" => Ok(Self::Two),
            _ => bail!("{name} is not one or two"),
        }
    }
}

impl Link {
    /// Starts every way behind a link of its own: way `n` listens at 10.77.n+1.1.
    pub(super) fn start(
        binary: &Path,
        ways: &[Way],
        cores: Cores,
        arguments: &[String],
        folder: &Path,
    ) -> Result<Self> {
        remove_leftovers()?;
        let id = std::process::id();
        let mut link = Self {
            binary: binary.to_owned(),
            names: NAMESPACES.map(|name| format!("{name}{id}")),
            servers: Vec::new(),
            awake: None,
        };
        let [servers, driver] = &link.names;
        ip(&["netns", "add", servers])?;
        ip(&["netns", "add", driver])?;
        ip(&["-n", servers, "link", "set", "lo", "up"])?;
        mount_bpf()?;
        for (index, way) in ways.iter().enumerate() {
            let number = index + 1;
            let [one, two] = [format!("{INTERFACE}{number}"), format!("two{number}")];
            ip(&[
                "link", "add", &one, "netns", servers, "type", "veth", "peer", "name", &two,
                "netns", driver,
            ])?;
            for (namespace, name, end) in [(servers, &one, 1), (driver, &two, 2)] {
                let address = format!("10.77.{number}.{end}/24");
                ip(&["-n", namespace, "addr", "add", &address, "dev", name])?;
                ip(&["-n", namespace, "link", "set", name, "up"])?;
            }
            let log = folder.join(format!("nic-{}.log", way.label));
            let mut command = link.server(way, number, cores, arguments);
            let file = fs::File::create(&log)?;
            command.stdout(file.try_clone()?).stderr(file);
            link.servers.push(Running::start(&mut command)?);
            await_start(&log, link.servers.last_mut())?;
            if let (Cores::Two, Some(server)) = (cores, link.servers.last()) {
                part(server.id())?;
            }
        }
        if cores == Cores::One {
            // In the servers' namespace, so that the next run finds it if this one is killed.
            let mut awake = Command::new("nsenter");
            awake.arg(format!("--net=/run/netns/{}", link.names[0]));
            awake.args(["chrt", "--idle", "0", "taskset", "-c", "0", "sh", "-c"]);
            awake.arg("while :; do :; done");
            link.awake = Some(Running::start(&mut awake)?);
        }
        Ok(link)
    }

    fn server(&self, way: &Way, number: usize, cores: Cores, arguments: &[String]) -> Command {
        let list = match cores {
            Cores::One => "0",
            Cores::Two => "0,1",
        };
        let address = format!("10.77.{number}.1");
        let mut command = prioritized(&self.names[0], list, &self.binary);
        command.args(["serve", "-l", &address, "--open-to-network", "-p", "11211"]);
        command.args(["-t", "1", "-m", "1024", "--native", "11311"]);
        command.args(["--native-mode", way.mode]);
        if way.mode == "xdp" {
            command.args(["--native-interface", &format!("{INTERFACE}{number}")]);
        }
        command.args(&way.arguments).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// The driver, in its namespace and on its processor; it sleeps if it shares that.
    pub(super) fn driver(&self) -> Command {
        let mut command = prioritized(&self.names[1], "1", &self.binary);
        command.args(["bench", "--protocol", "native", "--json"]);
        if self.awake.is_some() {
            command.arg("--spin");
        }
        command
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.awake.take());
        // A server that is asked to stop takes its program from the interface; one that does not
        // stop is killed.
        for server in &self.servers {
            let id = server.id().to_string();
            let _ = Command::new("kill").args(["-TERM", &id]).status();
        }
        let end = Instant::now() + Duration::from_secs(3);
        let running = |server: &mut Running| !server.has_ended().unwrap_or(true);
        while self.servers.iter_mut().any(running) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.servers.clear();
        for name in &self.names {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

/// Takes away what a run that was killed has left: its namespaces, the servers in them, and the
/// programs that those had pinned.
fn remove_leftovers() -> Result<()> {
    let Ok(namespaces) = fs::read_dir("/run/netns") else {
        return Ok(()); // there never was one
    };
    let mut lives = false;
    for namespace in namespaces {
        let name = namespace?.file_name().to_string_lossy().into_owned();
        let Some(owner) = NAMESPACES.iter().find_map(|own| name.strip_prefix(own)) else {
            continue;
        };
        if Path::new("/proc").join(owner).exists() {
            lives = true;
            continue;
        }
        println!("removing {name}, which a run that was killed has left");
        let inside = Command::new("ip").args(["netns", "pids", &name]).output()?;
        for process in String::from_utf8_lossy(&inside.stdout).split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", process]).status();
        }
        ip(&["netns", "del", &name])?;
    }
    if let (false, Ok(pins)) = (lives, fs::read_dir(PINS)) {
        for pin in pins {
            let pin = pin?;
            let name = pin.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix(INTERFACE);
            if number.is_some_and(|number| number.parse::<u8>().is_ok()) {
                fs::remove_dir_all(pin.path()).with_context(|| pin.path().display().to_string())?;
            }
        }
    }
    Ok(())
}

/// The address of way `index`.
pub(super) fn target(index: usize) -> String {
    format!("10.77.{}.1:11311", index + 1)
}

/// `binary` in a namespace and on some processors, before everything else: its session has a group
/// of its own in the scheduler, whose priority counts.
fn prioritized(namespace: &str, cores: &str, binary: &Path) -> Command {
    let mut command = Command::new("setsid");
    command.args(["-w", "nsenter", &format!("--net=/run/netns/{namespace}")]);
    command
        .args(["sh", "-c", PRIORITIZED, "sh", cores])
        .arg(binary);
    command
}

/// The first argument is a list of processors, the rest a command.
const PRIORITIZED: &str = "cores=$1; shift; echo -20 > /proc/self/autogroup; \
                           exec nice -n -20 taskset -c $cores \"$@\"";

fn ip(words: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(words).status().context("ip")?;
    if !status.success() {
        bail!("ip {} ended with {status}", words.join(" "));
    }
    Ok(())
}

/// Gives the thread that acknowledges the second processor, and all others the first.
fn part(process: u32) -> Result<()> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?;
        let name = fs::read_to_string(thread.path().join("comm"))?;
        let core = match name.trim_end() {
            "native-io" => "1",
            _ => "0",
        };
        let id = thread.file_name();
        let mut command = Command::new("taskset");
        command
            .args(["-p", "-c", core])
            .arg(&id)
            .stdout(Stdio::null());
        if !command.status()?.success() {
            bail!("pinning thread {} did not work", id.display());
        }
    }
    Ok(())
}

/// The file system in which the program is pinned, if the system has not mounted it.
fn mount_bpf() -> Result<()> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    if mounts.contains(" /sys/fs/bpf bpf ") {
        return Ok(());
    }
    let status = Command::new("mount")
        .args(["-t", "bpf", "bpf", "/sys/fs/bpf"])
        .status()?;
    if !status.success() {
        bail!("mounting /sys/fs/bpf ended with {status}");
    }
    Ok(())
}

/// Waits for the line with which a server says that it listens.
fn await_start(log: &Path, server: Option<&mut Running>) -> Result<()> {
    let Some(server) = server else {
        return Ok(());
    };
    let end = Instant::now() + START_MAX;
    while Instant::now() < end {
        let text = fs::read_to_string(log).unwrap_or_default();
        if text.contains("native protocol on") {
            return Ok(());
        }
        if server.has_ended()? {
            bail!("a server ended at once: {}", text.trim_end());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("a server did not start; see {}", log.display())
}
