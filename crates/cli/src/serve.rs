//! `curtail serve`: starts a server from its flags, waits for signals, and stops it.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use curtail_runtime::{
    ControlEvent, Controls, ControlsHandle, Service, ServiceState, stop_waiting_parent,
};
use curtail_server::{
    Config, Restored, Server, StartError,
    log::{self, LogOptions, component},
};
use tracing::{error, info, warn};

use crate::{
    check_config, disk_flags,
    flags::{Flags, Settled},
};

/// Descriptors that are not client connections: in all, and for each worker with the large worker
/// that may go with it.
const OWN_DESCRIPTORS: u64 = 64;
const THREAD_DESCRIPTORS: u64 = 6;

/// Those of a disk tier: its tree keeps 256 tables open, and a compaction opens all that it merges.
const DISK_DESCRIPTORS: u64 = 512;

/// Connections over which native requests of large values come.
const NATIVE_DESCRIPTORS: u64 = 256;

/// How often a node is looked at that is on its way in or out.
const GLANCE: Duration = Duration::from_millis(10);

/// Runs a server until it is told to stop.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    if flags.version {
        println!("{}", version());
        return Ok(ExitCode::SUCCESS);
    }
    if flags.check_config {
        return check_config::check(flags);
    }
    let Settled {
        mut config,
        mut warnings,
    } = flags.settle()?;
    prepare_process(flags, &mut config, &mut warnings)?;
    // Before the first thread: threads inherit the blocked signals.
    let mut controls = Controls::new()?;
    let log = log::install(LogOptions {
        format: flags.log_format,
        level: flags.log_level,
        verbosity: config.verbosity,
    });
    let _log = log.map_err(anyhow::Error::msg)?;
    for warning in &warnings {
        warn!(target: component::SERVER, "{warning}");
    }
    // From here on the log says, too, why there is no server.
    let answer = serve(flags, config, &mut controls);
    if let Err(error) = &answer {
        error!(target: component::SERVER, "{error:#}");
    }
    Ok(answer.unwrap_or(ExitCode::FAILURE))
}

fn serve(flags: &Flags, config: Config, controls: &mut Controls) -> anyhow::Result<ExitCode> {
    let service = Service::from_environment();
    let server = start(config.clone(), controls.handle())?;
    // After the store has its address space, so that a low limit is a warning and not an end.
    if flags.lock_memory
        && let Err(error) = curtail_runtime::lock_memory()
    {
        warn!(
            target: component::SERVER,
            "-k: {error}; raise the limit of locked memory (ulimit -l, LimitMEMLOCK)"
        );
    }
    if let Some(path) = &flags.pidfile {
        write_pid(path)?;
    }
    write_ports(&server)?;
    greet(&server, &config);
    stop_waiting_parent(config.verbosity > 0);
    let early = await_service(controls, &server, &service);
    if early.is_none() && config.node.is_some() {
        info!(
            target: component::SERVER,
            "this node is in service and listens on {}",
            server.names().join(", ")
        );
    }
    let last = match early {
        Some(last) => last,
        None => wait_for_the_end(controls, &server, &service),
    };
    service.extending(|| leave(controls, &server, &service, flags));
    let saves = last == ControlEvent::StopAndSave;
    info!(
        target: component::SERVER,
        uptime_s = server.uptime_seconds(),
        "stopping{}; the server first answers the requests that have arrived",
        if saves { " and saving the contents" } else { "" }
    );
    service.tell(
        ServiceState::Stopping,
        "answering the requests that have arrived",
    );
    let answer = finish(server, last, &service);
    if let Some(path) = &flags.pidfile {
        let _ = fs::remove_file(path);
    }
    answer
}

/// What `-V` says.
pub(crate) fn version() -> &'static str {
    concat!(
        "curtail ",
        env!("CARGO_PKG_VERSION"),
        " (memcached protocol 1.6.18)"
    )
}

fn prepare_process(
    flags: &Flags,
    config: &mut Config,
    warnings: &mut Vec<String>,
) -> anyhow::Result<()> {
    if flags.enable_coredumps {
        curtail_runtime::allow_core_dumps().context("-r")?;
    }
    let (wanted, asked) = (descriptors_wanted(config), config.connections_max);
    match curtail_runtime::raise_open_files_limit(wanted) {
        Ok(got) if got >= wanted => {}
        Ok(got) => {
            config.connections_max = connections_within(got, wanted, asked);
            warnings.push(format!(
                "the limit of open files is {got}, and -c {asked} needs {wanted}; at most {} \
                 clients may be connected; raise the limit (LimitNOFILE, ulimit -n)",
                config.connections_max
            ));
        }
        Err(error) => warnings.push(format!(
            "the limit of open files cannot be raised to the {wanted} that -c {asked} needs: \
             {error}; raise it (LimitNOFILE, ulimit -n)"
        )),
    }
    if let Some(user) = &flags.user
        && curtail_runtime::is_root()
        && user != "root"
    {
        // Without, threads for large requests give way by their niceness.
        let _ = curtail_runtime::allow_stepping_forward();
        curtail_runtime::drop_privileges(user).context("-u")?;
    }
    if flags.daemon {
        curtail_runtime::daemonize().context("-d")?;
    }
    Ok(())
}

/// Descriptors with which neither connections nor files want for one. A file that cannot be opened
/// makes the disk tier fail.
fn descriptors_wanted(config: &Config) -> u64 {
    let of_disk = config.disk.as_ref().map_or(0, |_| DISK_DESCRIPTORS);
    let of_native = config.native.as_ref().map_or(0, |_| NATIVE_DESCRIPTORS);
    let of_threads = THREAD_DESCRIPTORS * config.workers as u64;
    config.connections_max as u64 + OWN_DESCRIPTORS + of_threads + of_disk + of_native
}

/// The connections for which `got` descriptors of the `wanted` ones suffice, so that clients take
/// none that anything else needs, and one too many is told so. A quarter of them at least: not
/// everything that may need a descriptor does.
fn connections_within(got: u64, wanted: u64, connections_max: usize) -> usize {
    let others = wanted.saturating_sub(connections_max as u64);
    let left = got.saturating_sub(others).max(got / 4).max(1);
    connections_max.min(usize::try_from(left).unwrap_or(usize::MAX))
}

fn start(config: Config, controls: ControlsHandle) -> anyhow::Result<Server> {
    let file = config.auth_file.clone().unwrap_or_default();
    let megabytes = config.memory_bytes_max >> 20;
    let server = Server::start(config, move |event| controls.ask(event));
    server.map_err(|error| match error {
        StartError::Logins(_) => {
            anyhow::Error::new(error).context(format!("-Y {}", file.display()))
        }
        StartError::Store(_) => anyhow::Error::new(error).context(format!("-m {megabytes}")),
        error => error.into(),
    })
}

fn write_pid(path: &Path) -> anyhow::Result<()> {
    write_whole(path, &format!("{}\n", std::process::id()))
        .with_context(|| format!("-P {}", path.display()))
}

/// The ports, in case the system chose them: where `MEMCACHED_PORT_FILENAME` says.
fn write_ports(server: &Server) -> anyhow::Result<()> {
    let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME") else {
        return Ok(());
    };
    let lines: String = server
        .addresses()
        .iter()
        .map(|address| {
            let family = if address.is_ipv4() { "INET" } else { "INET6" };
            format!("TCP {family}: {}\n", address.port())
        })
        .collect();
    write_whole(Path::new(&path), &lines).context("MEMCACHED_PORT_FILENAME")
}

/// Writes a file so that a reader finds all of it or nothing.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    fs::write(&beside, text)?;
    fs::rename(&beside, path)
}

fn greet(server: &Server, config: &Config) {
    let where_to = match server.names() {
        [] => "no TCP port and no Unix socket".to_owned(),
        names => names.join(", "),
    };
    // A node listens once it is in service.
    let begins = match config.node {
        None => "listens on",
        Some(_) => "starts, for clients at",
    };
    info!(
        target: component::SERVER,
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        memory_mib = config.memory_bytes_max >> 20,
        workers = config.workers,
        policy = %config.policy,
        connections_max = config.connections_max,
        evictions = config.evict,
        logins = config.auth_file.is_some(),
        "curtail {} {begins} {where_to}",
        env!("CARGO_PKG_VERSION")
    );
    greet_beside(server);
    if let Some(tier) = &config.cache_tier {
        return info!(
            target: component::SERVER,
            back_ends = tier.map.back_ends,
            epoch = tier.map.epoch,
            "the items are in a cache tier of {} back ends (--tier-file)",
            tier.map.back_ends
        );
    }
    if let (Some(disk), Some((replayed, torn_bytes))) = (&config.disk, server.recovered()) {
        info!(
            target: component::DISK,
            dir = %disk.dir.display(),
            replayed,
            torn_bytes,
            memory_mib = disk.memory_bytes >> 20,
            "memory is the cache of {}; {}",
            disk.dir.display(),
            disk_flags::promise(disk.durability)
        );
        return;
    }
    greet_contents(server, config);
}

/// What became of the contents of an earlier process, and what will become of these.
fn greet_contents(server: &Server, config: &Config) {
    match (server.restored(), &config.memory_file) {
        (Restored::Items(items), Some(file)) => info!(
            target: component::SERVER,
            items,
            file = %file.display(),
            "restored {items} items, and removed the file because it would soon be out of date"
        ),
        (Restored::Failed(error), Some(file)) => warn!(
            target: component::SERVER,
            file = %file.display(),
            "started empty: {error}; to use the -e file, stop with SIGTERM (SIGUSR1 overwrites \
             it), remove the cause and start again"
        ),
        (_, Some(file)) => info!(
            target: component::SERVER,
            file = %file.display(),
            "started empty, because the -e file does not exist; a stop by SIGUSR1 or `shutdown \
             graceful` saves the contents, any other end of the process loses them"
        ),
        (_, None) if config.node.is_some() => info!(
            target: component::SERVER,
            "started empty; at SIGTERM this node first moves its keys to other nodes"
        ),
        (_, None) => info!(
            target: component::SERVER,
            "started empty; the contents are lost when the process ends (with -e FILE, a stop by \
             SIGUSR1 or `shutdown graceful` would save them)"
        ),
    }
}

/// The other ways in.
fn greet_beside(server: &Server) {
    if let Some(address) = server.admin_address() {
        info!(target: component::SERVER, "/metrics, /livez and /readyz are at http://{address}");
    }
    let datagrams = server.udp_addresses();
    if !datagrams.is_empty() {
        let addresses = listed(datagrams);
        info!(target: component::SERVER, "listening for memcached's datagrams on {addresses}");
    }
    if let Some(native) = server.native() {
        info!(
            target: component::NATIVE,
            mode = native.mode.name(),
            "native protocol on {}, mode {}: {}",
            listed(native.addresses),
            native.mode.name(),
            native.promise
        );
        if let Some(note) = native.note {
            info!(target: component::NATIVE, "{note}");
        }
    }
}

fn listed(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(", ")
}

/// Tells that the server is ready as soon as it is. A node is when it is in service; how it may be
/// told to stop before is returned.
fn await_service(
    controls: &mut Controls,
    server: &Server,
    service: &Service,
) -> Option<ControlEvent> {
    while !server.is_in_service() {
        match controls.wait(Some(GLANCE)) {
            None => {}
            Some(ControlEvent::Reload) => reload(server),
            last => return last,
        }
    }
    let text = format!("listening on {}", server.names().join(", "));
    service.tell(ServiceState::Ready, &text);
    None
}

/// A node gives its keys to the others before it ends.
fn leave(controls: &mut Controls, server: &Server, service: &Service, flags: &Flags) {
    let seconds = flags.cluster.leave_seconds();
    if seconds == 0 || !server.leave() {
        return;
    }
    service.tell(ServiceState::Stopping, "giving its keys to other nodes");
    let start = Instant::now();
    while !server.has_left() {
        if start.elapsed() >= Duration::from_secs(seconds) {
            warn!(
                target: component::CLUSTER,
                "not all keys moved to other nodes within {seconds} s; keys that no other node has \
                  are lost; raise --leave-seconds"
            );
            return;
        }
        match controls.wait(Some(GLANCE)) {
            None => {}
            Some(ControlEvent::Reload) => info!(
                target: component::AUTH,
                "SIGHUP: ignored, because this node is leaving the cluster"
            ),
            Some(_) => return,
        }
    }
}

fn wait_for_the_end(controls: &mut Controls, server: &Server, service: &Service) -> ControlEvent {
    loop {
        match controls.wait(None) {
            Some(ControlEvent::Reload) => {
                service.tell(ServiceState::Reloading, "reading the login file");
                reload(server);
                service.tell(ServiceState::Ready, "reloaded");
            }
            Some(last) => return last,
            None => {}
        }
    }
}

fn reload(server: &Server) {
    match server.reload() {
        Ok(Some(count)) => info!(
            target: component::AUTH,
            "SIGHUP: the login file (-Y) was read again and has {count} logins; clients that are \
             logged in stay logged in"
        ),
        Ok(None) => info!(
            target: component::AUTH,
            "SIGHUP has no effect, because the server has no login file (-Y)"
        ),
        Err(error) => error!(
            target: component::AUTH,
            "SIGHUP: {error}; the logins that were read before stay in force"
        ),
    }
}

fn finish(server: Server, last: ControlEvent, service: &Service) -> anyhow::Result<ExitCode> {
    let stopped = server.stop();
    if last == ControlEvent::StopAndSave {
        let saved = service.extending(|| stopped.save());
        match saved.context("the contents are lost")? {
            Some(path) => info!(
                target: component::SERVER,
                file = %path.display(),
                "the contents are saved"
            ),
            None => warn!(
                target: component::SERVER,
                "the contents are lost, because the server was started without -e FILE to save \
                 them to"
            ),
        }
    }
    info!(target: component::SERVER, "stopped");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use curtail_server::{Durability, StorageConfig};

    use super::*;

    /// Goal: clients cannot take the descriptors that the disk tier needs. Method: as said.
    #[test]
    fn the_disk_has_descriptors_of_its_own() {
        let mut config = Config::default();
        let before = descriptors_wanted(&config);
        config.disk = Some(StorageConfig {
            dir: "data".into(),
            durability: Durability::Sync,
            memory_bytes: 16 << 20,
            readers: 1,
            reserve_bytes: 0,
        });
        assert_eq!(descriptors_wanted(&config), before + DISK_DESCRIPTORS);
    }
}
