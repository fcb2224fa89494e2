//! `curtail serve`: from flags to a running server, and to its end.

use std::{
    fs,
    io::Write,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use curtail_runtime::{
    ControlEvent, Controls, ControlsHandle, Service, ServiceState, stop_waiting_parent,
};
use curtail_server::{Config, Restored, Server, StartError};

use crate::flags::{Flags, Settled};

/// Descriptors that are not client connections: in all, and for each worker with the large worker
/// that may go with it.
const OWN_DESCRIPTORS: u64 = 64;
const THREAD_DESCRIPTORS: u64 = 6;

/// How often a node is looked at that is on its way in or out.
const GLANCE: Duration = Duration::from_millis(10);

/// Runs a server until it is told to stop.
pub(crate) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    if flags.version {
        println!("{}", version());
        return Ok(ExitCode::SUCCESS);
    }
    let Settled { config, warnings } = flags.settle()?;
    for warning in &warnings {
        eprintln!("curtail: warning: {warning}");
    }
    prepare_process(flags, &config)?;
    // Before the first thread: threads inherit the blocked signals.
    let mut controls = Controls::new()?;
    let service = Service::from_environment();
    let server = start(config.clone(), controls.handle())?;
    // After the store has its address space, so that a low limit is a warning and not an end.
    if flags.lock_memory
        && let Err(error) = curtail_runtime::lock_memory()
    {
        eprintln!("curtail: warning: -k: {error}; raise the limit of locked memory");
    }
    if let Some(path) = &flags.pidfile {
        write_pid(path)?;
    }
    write_ports(&server)?;
    greet(&server, &config);
    stop_waiting_parent(config.verbosity > 0);
    let early = await_service(&mut controls, &server, &service);
    let last = match early {
        Some(last) => last,
        None => wait_for_the_end(&mut controls, &server, &service),
    };
    leave(&mut controls, &server, &service, flags);
    service.tell(ServiceState::Stopping, "answering what is in flight");
    let answer = finish(server, last, config.verbosity);
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

fn prepare_process(flags: &Flags, config: &Config) -> anyhow::Result<()> {
    if flags.enable_coredumps {
        curtail_runtime::allow_core_dumps().context("-r")?;
    }
    let wanted = config.connections_max as u64
        + OWN_DESCRIPTORS
        + THREAD_DESCRIPTORS * config.workers as u64;
    match curtail_runtime::raise_open_files_limit(wanted) {
        Ok(got) if got >= wanted => {}
        _ => eprintln!(
            "curtail: warning: the limit of open files is below -c {}; raise it with ulimit -n",
            config.connections_max
        ),
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

/// The ports, for whoever let the system choose them: where `MEMCACHED_PORT_FILENAME` says.
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
    let mut screen = std::io::stderr();
    let workers = match config.workers {
        1 => "1 worker".to_owned(),
        many => format!("{many} workers"),
    };
    let where_to = match server.names() {
        [] => "nothing: neither TCP nor a Unix socket was asked for".to_owned(),
        names => names.join(", "),
    };
    // Nobody may be looking.
    let _ = writeln!(
        screen,
        "curtail {} listens on {where_to}\n{} MiB, {workers}. Stop with Ctrl-C or kill {}.",
        env!("CARGO_PKG_VERSION"),
        config.memory_bytes_max >> 20,
        std::process::id()
    );
    if let Some(native) = server.native() {
        let addresses: Vec<String> = native.addresses.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            screen,
            "Native protocol on {}, mode {}: {}.",
            addresses.join(", "),
            native.mode.name(),
            native.promise
        );
        if let Some(note) = native.note {
            let _ = writeln!(screen, "Native protocol: {note}.");
        }
    }
    let _ = match server.restored() {
        Restored::Nothing => Ok(()),
        Restored::Items(items) => writeln!(screen, "Restored {items} items."),
        Restored::Failed(error) => writeln!(screen, "Started empty: {error}"),
    };
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
            None | Some(ControlEvent::Reload) => {}
            last => return last,
        }
    }
    let text = format!("listening on {}", server.names().join(", "));
    service.tell(ServiceState::Ready, &text);
    None
}

/// A node gives its keys to the others before it ends.
fn leave(controls: &mut Controls, server: &Server, service: &Service, flags: &Flags) {
    let seconds = flags.cluster.leave_seconds;
    if seconds == 0 || !server.leave() {
        return;
    }
    service.tell(ServiceState::Stopping, "giving its keys to other nodes");
    let start = Instant::now();
    while !server.has_left() {
        if start.elapsed() >= Duration::from_secs(seconds) {
            eprintln!("curtail: not all keys went to other nodes within {seconds} s");
            return;
        }
        if controls.wait(Some(GLANCE)).is_some() {
            return;
        }
    }
}

fn wait_for_the_end(controls: &mut Controls, server: &Server, service: &Service) -> ControlEvent {
    loop {
        match controls.wait(None) {
            Some(ControlEvent::Reload) => {
                service.tell(ServiceState::Reloading, "reading the authentication file");
                if let Err(error) = server.reload() {
                    eprintln!("curtail: {error}; the old one stays in force");
                }
                service.tell(ServiceState::Ready, "reloaded");
            }
            Some(last) => return last,
            None => {}
        }
    }
}

fn finish(server: Server, last: ControlEvent, verbosity: u8) -> anyhow::Result<ExitCode> {
    let stopped = server.stop();
    if last == ControlEvent::StopAndSave
        && let Some(path) = stopped.save()?
        && verbosity > 0
    {
        eprintln!("curtail: contents saved to {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
