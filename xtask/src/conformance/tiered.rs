//! Clients of memcached against a gateway in front of a cache tier: a switch in user space, a cache
//! node and a few back ends, each a process.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::clients;
use crate::check_result::Outcome;
use crate::process::{Log, Running};
use crate::server::{Server, free_udp_ports, talk};
use crate::workspace::Workspace;

/// pymemcache's own tests at a gateway.
pub(super) fn pymemcache(workspace: &Workspace, log: &Log, server: &[String]) -> Result<Outcome> {
    let tier = Tier::start(workspace, server)?;
    clients::pymemcache_at(workspace, log, tier.gateway.port, PYMEMCACHE_CANNOT)
}

/// libmemcached's `memccapable` at a gateway.
pub(super) fn memccapable(workspace: &Workspace, log: &Log, server: &[String]) -> Result<Outcome> {
    let tier = Tier::start(workspace, server)?;
    clients::memccapable_at(log, tier.gateway.port)
}

/// Tests of pymemcache that cannot pass, and why.
const PYMEMCACHE_CANNOT: &clients::Cannot = &[(
    "test_get_set_large and serde1",
    "it stores values of 5 MiB, compressed to some KiB: more than a datagram",
)];

/// A tier and its gateway, until they are dropped.
struct Tier {
    gateway: Server,
    _tier: Running,
}

impl Tier {
    fn start(workspace: &Workspace, server: &[String]) -> Result<Self> {
        let program = server.first().context("no server is named")?;
        let folder = workspace.scratch("trial-tier")?;
        let file = folder.join("tier.toml");
        if file.exists() {
            std::fs::remove_file(&file)?;
        }
        // Nobody else may write to it.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        let mut tier = start_tier(program, &folder)?;
        wait_until(&mut tier, "the tier's file", || file.exists())?;
        let name = file.display().to_string();
        let gateway = Server::start(server, &["--tier-file", &name])?;
        let port = gateway.port;
        wait_until(&mut tier, "the tier's answer to a write", || {
            let said = talk(port, "set ready 0 0 1\r\nx\r\ndelete ready\r\nquit\r\n");
            said.is_ok_and(|said| said.contains("STORED") && said.contains("DELETED"))
        })?;
        Ok(Self {
            gateway,
            _tier: tier,
        })
    }
}

fn start_tier(program: &str, folder: &Path) -> Result<Running> {
    let log = std::fs::File::create(PathBuf::from(folder).join("up.log"))?;
    let mut command = Command::new(program);
    let port = free_udp_ports(BACK_ENDS + 4)?.to_string();
    command.args(["cluster", "up", "--tiered", "--port", &port]);
    command.args(["--back-ends", &BACK_ENDS.to_string(), "--limit", "0"]);
    command.arg("--dir").arg(folder);
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Running::start(&mut command)
}

fn wait_until(tier: &mut Running, what: &str, is: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !is() {
        if tier.has_ended()? || start.elapsed() > START_MAX {
            bail!(
                "{what} did not come within {START_MAX:?}: see up.log in target/xtask/trial-tier"
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

const BACK_ENDS: u16 = 3;
const START_MAX: Duration = Duration::from_secs(30);
