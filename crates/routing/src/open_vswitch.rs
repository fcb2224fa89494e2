//! An Open vSwitch of our own: its daemons run as children of this process, in this process's
//! network namespace, with their files in a directory of their own, so that no other Open vSwitch
//! of the machine is touched (SW-83). They end with the value.
//!
//! The datapath is in user space (`netdev`), since not every kernel has the module. The bridge
//! forwards nothing that no flow says (`fail_mode=secure`).

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::network::{Encoding, SwitchPort};

/// How Open vSwitch attaches to an interface.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum PortType {
    /// By AF_PACKET: works everywhere.
    #[default]
    System,
    /// By AF_XDP, without a thread that polls: faster, if Open vSwitch was built with it.
    AfXdp,
}

/// What the switch is made with.
#[derive(Clone, Debug)]
pub struct OpenVswitchOptions {
    /// Where its files go: sockets, database, logs. Nobody else may be able to write there.
    pub directory: PathBuf,
    /// Its ports: interfaces of this network namespace.
    pub ports: Vec<SwitchPort>,
    /// How it attaches to them.
    pub port_type: PortType,
    /// How addresses stand in frames.
    pub encoding: Encoding,
    /// Its name.
    pub datapath: u64,
    /// Whether it connects to a controller at [`OpenVswitch::controller_socket`]; a controller may
    /// connect to [`OpenVswitch::management_socket`] in any case.
    pub calls_controller: bool,
    /// Flows that a table takes; without, as many as there is memory for.
    pub flows_max: Option<u32>,
    /// The daemons are killed when the thread ends that started them, however it ends; needs
    /// `setpriv` (util-linux).
    pub ends_with_thread: bool,
}

/// The daemons.
#[derive(Debug)]
pub struct OpenVswitch {
    options: OpenVswitchOptions,
    database: Daemon,
    switch: Option<Daemon>,
}

/// A child that ends with the value.
#[derive(Debug)]
struct Daemon {
    child: Child,
}

const BRIDGE: &str = "tier";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// What its daemons leave in the directory.
const FILES: [&str; 7] = [
    "conf.db",
    ".conf.db.~lock~",
    "db.sock",
    "db.ctl",
    "switch.ctl",
    "tier.mgmt",
    "tier.snoop",
];
/// How long a daemon may take to start.
const START_MAX: Duration = Duration::from_secs(60);
/// Until a controller that does not answer is taken for dead, in milliseconds.
const PROBE_MS: u32 = 5_000;
/// Until the switch tries to reach its controller again, in milliseconds.
const BACKOFF_MS: u32 = 1_000;

impl OpenVswitch {
    /// Whether its programs are installed; Debian has them in `openvswitch-switch`.
    pub fn is_installed() -> bool {
        let programs = ["ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl"];
        let runs = |program: &&str| {
            let mut version = Command::new(program);
            version.arg("--version").stdout(Stdio::null());
            version.status().is_ok_and(|status| status.success())
        };
        programs.iter().all(runs) && Path::new(SCHEMA).exists()
    }

    /// Starts the daemons with a bridge that has these ports, and nothing else.
    pub fn start(options: OpenVswitchOptions) -> io::Result<Self> {
        std::fs::create_dir_all(&options.directory)?;
        let database_file = options.directory.join("conf.db");
        remove_files(&options.directory);
        let mut create = Command::new("ovsdb-tool");
        run(create.arg("create").arg(&database_file).arg(SCHEMA))?;
        let socket = options.directory.join("db.sock");
        let mut server = command("ovsdb-server", &options.directory);
        server
            .arg(&database_file)
            .arg(format!("--remote=punix:{}", socket.display()))
            .arg(format!(
                "--unixctl={}",
                options.directory.join("db.ctl").display()
            ));
        let database = Daemon::start(server, options.ends_with_thread)?;
        wait_for(&socket)?;
        let mut this = Self {
            options,
            database,
            switch: None,
        };
        this.configure()?;
        this.start_switch()?;
        Ok(this)
    }

    /// Where a switch in this directory looks for a controller; Open vSwitch allows no other Unix
    /// socket.
    pub fn controller_socket(directory: &Path) -> PathBuf {
        directory.join(format!("{BRIDGE}.controller"))
    }

    /// The socket that a controller may connect to.
    pub fn management_socket(&self) -> PathBuf {
        self.options.directory.join(format!("{BRIDGE}.mgmt"))
    }

    /// Ends the switch and starts it again: it comes back without a flow.
    pub fn restart(&mut self) -> io::Result<()> {
        if !matches!(self.database.child.try_wait(), Ok(None)) {
            return Err(io::Error::other("its database has ended"));
        }
        self.switch = None;
        let _ = std::fs::remove_file(self.management_socket());
        self.start_switch()
    }

    /// Whether its daemons run.
    pub fn runs(&mut self) -> bool {
        let runs = |daemon: &mut Daemon| matches!(daemon.child.try_wait(), Ok(None));
        runs(&mut self.database) && self.switch.as_mut().is_some_and(runs)
    }

    /// The process numbers of its daemons.
    pub fn processes(&self) -> Vec<u32> {
        let switch = self.switch.iter().map(|daemon| daemon.child.id());
        [self.database.child.id()]
            .into_iter()
            .chain(switch)
            .collect()
    }

    /// How many flows its datapath has cached.
    pub fn cached_flows(&self) -> io::Result<u64> {
        let text = self.control(&["dpctl/show"])?;
        let count = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("flows: "));
        let count = count.and_then(|count| count.parse().ok());
        count.ok_or_else(|| io::Error::other("dpctl/show tells no flows"))
    }

    fn start_switch(&mut self) -> io::Result<()> {
        let directory = &self.options.directory;
        let mut switch = command("ovs-vswitchd", directory);
        switch
            .arg(format!("unix:{}", directory.join("db.sock").display()))
            .arg(format!(
                "--unixctl={}",
                directory.join("switch.ctl").display()
            ));
        let _ = std::fs::remove_file(directory.join("switch.ctl"));
        self.switch = Some(Daemon::start(switch, self.options.ends_with_thread)?);
        wait_for(&self.management_socket())?;
        self.check_ports()
    }

    /// Every port has the number that was asked for; Open vSwitch itself says nothing of those that
    /// it could not attach to.
    fn check_ports(&self) -> io::Result<()> {
        let (mut touch, mut look) = (Vec::new(), Vec::new());
        for port in &self.options.ports {
            let name = port.interface.as_str();
            // `ovs-vsctl` waits until the switch has done what was configured, if it changes
            // something.
            let external = "external_ids:curtail=port";
            touch.extend(["--", "set", "interface", name, external]);
            look.extend(["--", "get", "interface", name, "ofport"]);
        }
        if touch.is_empty() {
            return Ok(());
        }
        self.database(&touch)?;
        let numbers = self.database(&look)?;
        for (port, number) in self.options.ports.iter().zip(numbers.lines()) {
            if number.trim() != port.number.0.to_string() {
                let name = &port.interface;
                let error = self.database(&["get", "interface", name, "error"])?;
                return Err(io::Error::other(format!(
                    "Open vSwitch cannot attach to {name} as port {}: {} (port {})",
                    port.number.0,
                    error.trim(),
                    number.trim(),
                )));
            }
        }
        Ok(())
    }

    /// Writes the bridge into the database, before the switch runs.
    fn configure(&self) -> io::Result<()> {
        let bridge = |setting: &str| ["set".into(), "bridge".into(), BRIDGE.into(), setting.into()];
        let mut words: Vec<Vec<String>> = vec![
            ["add-br", BRIDGE].map(String::from).to_vec(),
            bridge("datapath_type=netdev").to_vec(),
            bridge("fail_mode=secure").to_vec(),
            bridge("protocols=OpenFlow13").to_vec(),
            bridge(&format!(
                "other_config:datapath-id={:016x}",
                self.options.datapath
            ))
            .to_vec(),
        ];
        for port in &self.options.ports {
            let kind = match self.options.port_type {
                PortType::System => "system",
                PortType::AfXdp => "afxdp-nonpmd",
            };
            words.push(
                ["add-port", BRIDGE, &port.interface]
                    .map(String::from)
                    .to_vec(),
            );
            let number = format!("ofport_request={}", port.number.0);
            let kind = format!("type={kind}");
            let set = ["set", "interface", &port.interface, &number, &kind];
            words.push(set.map(String::from).to_vec());
        }
        let mut call: Vec<&str> = vec!["--no-wait", "init"];
        for command in &words {
            call.push("--");
            call.extend(command.iter().map(String::as_str));
        }
        self.database(&call)?;
        self.configure_tables()?;
        match self.options.calls_controller {
            true => self.configure_controller(),
            false => Ok(()),
        }
    }

    /// Table 0 of encoding `ipv6` and table 1 of `mac` have the keys.
    fn configure_tables(&self) -> io::Result<()> {
        let mut settings = Vec::new();
        let number = match self.options.encoding {
            Encoding::Ipv6 { .. } => {
                settings.push("prefixes=ipv6_dst".to_string());
                0
            }
            Encoding::Mac { .. } => 1,
        };
        if let Some(flows) = self.options.flows_max {
            settings.push(format!("flow_limit={flows}"));
            settings.push("overflow_policy=refuse".to_string());
        }
        if settings.is_empty() {
            return Ok(());
        }
        let table = format!("flow_tables:{number}=@table");
        let mut call = vec!["--no-wait", "--", "--id=@table", "create", "Flow_Table"];
        call.extend(settings.iter().map(String::as_str));
        call.extend(["--", "set", "bridge", BRIDGE, &table]);
        self.database(&call).map(|_| ())
    }

    fn configure_controller(&self) -> io::Result<()> {
        let path = Self::controller_socket(&self.options.directory);
        let target = format!("unix:{}", path.display());
        self.database(&["--no-wait", "set-controller", BRIDGE, &target])?;
        let (probe, backoff) = (
            format!("inactivity_probe={PROBE_MS}"),
            format!("max_backoff={BACKOFF_MS}"),
        );
        let set = ["--no-wait", "set", "controller", BRIDGE, &probe, &backoff];
        self.database(&set).map(|_| ())
    }

    /// Runs `ovs-vsctl` on this switch's database.
    fn database(&self, words: &[&str]) -> io::Result<String> {
        let socket = self.options.directory.join("db.sock");
        let mut call = command("ovs-vsctl", &self.options.directory);
        call.arg(format!("--db=unix:{}", socket.display()));
        call.arg("--timeout=60").args(words);
        run(&mut call)
    }

    /// Runs `ovs-appctl` on the switch.
    fn control(&self, words: &[&str]) -> io::Result<String> {
        let socket = self.options.directory.join("switch.ctl");
        let mut call = command("ovs-appctl", &self.options.directory);
        call.arg("-t").arg(socket).args(words);
        run(&mut call)
    }
}

impl Daemon {
    /// Its output goes to where this process's standard error goes only if it is an emergency.
    fn start(daemon: Command, ends_with_thread: bool) -> io::Result<Self> {
        let mut command = match ends_with_thread {
            true => ending_with_thread(&daemon),
            false => daemon,
        };
        let quiet = ["-vconsole:emer", "-vsyslog:off"];
        command
            .args(quiet)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command.spawn()?;
        Ok(Self { child })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for OpenVswitch {
    fn drop(&mut self) {
        // The switch before its database, so that it does not wait for that.
        self.switch = None;
        let _ = self.database.child.kill();
        let _ = self.database.child.wait();
        remove_files(&self.options.directory);
        // If nobody else has put something there.
        let _ = std::fs::remove_dir(&self.options.directory);
    }
}

/// Removes what daemons leave, or have left that were killed: a socket that is there is taken for
/// one that somebody listens at.
fn remove_files(directory: &Path) {
    for file in FILES {
        let _ = std::fs::remove_file(directory.join(file));
    }
}

/// The same command, killed at the end of the thread that starts it.
fn ending_with_thread(daemon: &Command) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]);
    command.arg(daemon.get_program()).args(daemon.get_args());
    for (name, value) in daemon.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
}

/// A program of Open vSwitch that keeps its files in `directory`.
fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
        command.env(name, directory);
    }
    command
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let program = command.get_program().to_string_lossy();
    Err(io::Error::other(format!("{program}: {}", said.trim())))
}

fn wait_for(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + START_MAX;
    while !path.exists() {
        if Instant::now() > deadline {
            let what = format!("{} did not appear", path.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
