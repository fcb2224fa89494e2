//! The flags of `curtail serve`: memcached's, with the same letters and the same meaning.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use anyhow::{Context, anyhow, bail};
use clap::{ArgAction, Args};
use curtail_codec::tiered::TierTarget;
use curtail_server::{
    Config, Listen, MEMORY_BYTES_LIMIT, PolicyName, UnixSocket, check_gateway, check_native,
    check_tier, count_logins,
    log::{LogFormat, LogLevel},
};
use curtail_tier::TierFile;
use curtail_workload::quantity;

use crate::{
    cluster_flags::ClusterFlags,
    config_file::Origins,
    disk_flags::DiskFlags,
    extended_options::{self, Unused},
    flag_errors::Faults,
    native_flags::NativeFlags,
    ranged_numbers,
};

/// The flags; see `--help` for what each means.
#[derive(Args, Debug)]
#[command(args_override_self = true, disable_version_flag = true)]
#[command(after_help = extended_options::HELP)]
pub(crate) struct Flags {
    /// TCP port to listen on; 0: no TCP, -1: the system chooses a port (default: 11211, but the
    /// port of -U if only -U is given)
    #[arg(short = 'p', long, value_name = "NUM", allow_negative_numbers = true)]
    port: Option<i32>,
    /// UDP port for memcached's datagrams; 0: no UDP, -1: the system chooses a port. A request
    /// whose reply could be longer than the request itself is not executed: send it over TCP
    #[arg(short = 'U', long, value_name = "NUM", default_value_t = 0)]
    #[arg(allow_negative_numbers = true)]
    udp_port: i32,
    /// Unix socket to listen on, instead of a TCP port
    #[arg(short = 's', long, value_name = "FILE")]
    unix_socket: Option<PathBuf>,
    /// Permissions of the Unix socket (-s), in octal (default: 700)
    #[arg(short = 'a', long, value_name = "MASK")]
    unix_mask: Option<String>,
    /// Enable the "shutdown" command
    #[arg(short = 'A', long)]
    enable_shutdown: bool,
    /// Address to listen on, with an optional :port; several are separated by commas, or the flag
    /// is repeated (default: loopback)
    #[arg(short = 'l', long, value_name = "ADDR", action = ArgAction::Append)]
    listen: Vec<String>,
    /// Allow listening beyond loopback without a login (-Y)
    #[arg(long)]
    open_to_network: bool,
    /// Run in the background, detached from the terminal

    #[arg(short = 'd', long)]
    pub(crate) daemon: bool,
    /// Set the limit for core files to its maximum
    #[arg(short = 'r', long)]
    pub(crate) enable_coredumps: bool,
    /// User to which the server switches if root starts it; otherwise ignored
    #[arg(short = 'u', long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Memory limit in MiB, for items, index and all buffers together (1 to 8388607)
    #[arg(
        short = 'm',
        long,
        value_name = "NUM",
        default_value = "64",
        allow_negative_numbers = true
    )]
    memory_limit: String,
    /// When memory is full, refuse writes instead of evicting items
    #[arg(short = 'M', long)]
    disable_evictions: bool,
    /// Maximum number of client connections at a time
    #[arg(short = 'c', long, value_name = "NUM", default_value_t = 1024)]
    #[arg(allow_negative_numbers = true)]
    conn_limit: i64,
    /// Lock each page of memory when it is first used, so that it is never swapped out
    #[arg(short = 'k', long)]
    pub(crate) lock_memory: bool,
    /// Log more: -v is --log-level debug; -vv (or -vvv) also logs connections and commands
    #[arg(short = 'v', long, action = ArgAction::Count)]
    verbose: u8,
    /// Format of the log on standard error: text or json, one line for each event
    #[arg(long, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Least severe level that is logged: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value_t = LogLevel::Info)]
    pub(crate) log_level: LogLevel,
    /// Check all flags and the files that they name, print the resulting configuration, and exit
    /// with 0 if it is valid, 1 if not, 2 for an unknown flag or a value that cannot be read. It
    /// does not check ports, users, address space and folders, except the folder of the -e file
    #[arg(long)]
    pub(crate) check_config: bool,
    /// Print version and exit
    #[arg(short = 'V', long)]
    pub(crate) version: bool,
    /// File into which the server writes its process id
    #[arg(short = 'P', long, value_name = "FILE")]
    pub(crate) pidfile: Option<PathBuf>,
    /// Accepted and ignored: there are no slabs
    #[arg(short = 'f', long, value_name = "NUM")]
    slab_growth_factor: Option<f64>,
    /// Accepted and ignored: there are no slabs
    #[arg(short = 'n', long, value_name = "BYTES")]
    slab_min_size: Option<u32>,
    /// Use huge pages if the system has them (the default)
    #[arg(short = 'L', long, overrides_with = "no_largepages")]
    enable_largepages: bool,
    /// Do not use huge pages
    #[arg(long, overrides_with = "enable_largepages")]
    no_largepages: bool,
    /// Character that ends the prefix of a key in "stats detail"; also switches these statistics on
    #[arg(short = 'D', long, value_name = "CHAR")]
    prefix_delimiter: Option<char>,
    /// Number of worker threads (default: usable processors)
    #[arg(short = 't', long, value_name = "NUM", allow_negative_numbers = true)]
    threads: Option<i64>,
    /// Maximum number of requests of one connection that a worker executes in one turn (pass of its
    /// event loop). With n ready connections it is 256/n or 32, whichever is more, but never more
    /// than NUM; after 256 requests the turn is full
    #[arg(short = 'R', long, value_name = "NUM", default_value_t = 256)]
    #[arg(allow_negative_numbers = true)]
    max_reqs_per_event: i64,
    /// Do not return the versions of items (CAS values); then clients cannot use compare-and-swap
    #[arg(short = 'C', long)]
    disable_cas: bool,
    /// Maximum number of connections that wait in the kernel until the server accepts them
    #[arg(short = 'b', long, value_name = "NUM", default_value_t = 1024)]
    #[arg(allow_negative_numbers = true)]
    listen_backlog: i64,
    /// Protocol: auto or ascii, which are the same here; binary gives a warning, because the binary
    /// protocol is not offered
    #[arg(short = 'B', long, value_name = "NAME", default_value = "auto")]
    protocol: String,
    /// Longest value, in bytes or with k or m (1k to 128m)
    #[arg(short = 'I', long, value_name = "NUM", default_value = "1m")]
    max_item_size: String,
    /// Disable the flush_all command
    #[arg(short = 'F', long)]
    disable_flush_all: bool,
    /// Disable commands that list keys
    #[arg(short = 'X', long)]
    disable_dumping: bool,
    /// Disable watch commands
    #[arg(short = 'W', long)]
    disable_watch: bool,
    /// Require a login; FILE has one line name:password per user; SIGHUP makes the server read it
    /// again
    #[arg(short = 'Y', long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// File for a warm restart: SIGUSR1 or "shutdown graceful" saves the contents to it and stops
    /// the server; the next start restores them
    #[arg(short = 'e', long, value_name = "FILE")]
    memory_file: Option<PathBuf>,
    /// Extended options, separated by commas: see below
    #[arg(short = 'o', long, value_name = "OPTIONS", action = ArgAction::Append)]
    extended: Vec<String>,
    /// Accepted and ignored
    #[arg(short = 'N', long = "napi_ids", value_name = "NUM", hide = true)]
    napi_ids: Option<String>,
    /// Not offered
    #[arg(short = 'S', hide = true)]
    login_by_mechanism: bool,
    /// Not offered
    #[arg(short = 'Z', hide = true)]
    encrypted: bool,
    /// Address at which the server answers HTTP requests for /metrics, /livez, /readyz, /healthz
    /// and /policy, without a login (default: none)
    #[arg(long, value_name = "ADDR:PORT")]
    admin_port: Option<String>,
    /// Enable the "debugtime" command, which shifts the clock: for test suites
    #[arg(long, hide = true)]
    debug_time: bool,
    /// Which worker thread runs a request: erew, crew, crcw or d-crew; with size-aware+ or
    /// size-aware-static+ in front, other threads serve requests for large values
    #[arg(long, value_name = "NAME", default_value = "size-aware+d-crew")]
    policy: String,
    /// Refuse to change the policy at run time
    #[arg(long)]
    fixed_policy: bool,
    /// Do not pin worker threads to processors (by default they are pinned if there are more
    /// processors than workers)
    #[arg(long)]
    no_pin: bool,
    #[command(flatten)]
    native: NativeFlags,
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
    #[command(flatten)]
    disk: DiskFlags,
    /// File of a cache tier (tier.toml). The server stores nothing then: it sends each request of
    /// its clients to the tier
    #[arg(long, value_name = "FILE")]
    tier_file: Option<PathBuf>,
    /// TOML file with flags under their long names; a flag on the command line takes precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the flags of that file stand in it.
    #[arg(skip)]
    pub(crate) origins: Origins,
}

/// A configuration, and what to tell about it.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) config: Config,
    pub(crate) warnings: Vec<String>,
}

/// The smallest and the largest `-I`.
const ITEM_BYTES: std::ops::RangeInclusive<u64> = (1 << 10)..=(128 << 20);

/// The smallest `-m`.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

impl Flags {
    /// What the flags ask for, or all that cannot be. Each message begins with its flag.
    pub(crate) fn settle(&self) -> Result<Settled, Faults> {
        let (mut warnings, mut faults) = (Vec::new(), Faults::default());
        let mut config = self.plain();
        faults.keep(self.refuse_missing_features(&mut warnings));
        config.policy = faults.keep(self.policy());
        config.native = faults.keep(self.native.settle(&mut warnings));
        config.node = faults.keep(self.cluster.settle(&mut warnings));
        config.disk = faults.keep(self.disk.settle(&mut warnings));
        config.cache_tier = faults.keep(self.cache_tier());
        faults.keep(self.fit_policy(&mut config));
        self.settle_limits(&mut config, &mut faults);
        self.settle_rates(&mut config, &mut faults);
        if config.item_bytes_max > config.memory_bytes_max / 2 {
            warnings.push(format!(
                "-I {}: the longest values are more than half of -m {}, and may find no room",
                self.max_item_size, self.memory_limit
            ));
        }
        faults.keep(self.settle_files(&config));
        faults.keep(self.settle_echoes(&mut config));
        let mut unused = self.meaningless();
        for list in &self.extended {
            extended_options::apply(&mut config, list, &mut unused, &mut warnings, &mut faults);
        }
        warnings.extend(unused.warnings());
        faults.keep(self.settle_addresses(&mut config, &mut warnings));
        faults.keep(self.check_together(&config));
        faults.end(&self.origins)?;
        Ok(Settled { config, warnings })
    }

    fn policy(&self) -> anyhow::Result<PolicyName> {
        let name = &self.policy;
        name.parse().with_context(|| format!("--policy {name}"))
    }

    fn cache_tier(&self) -> anyhow::Result<Option<TierTarget>> {
        let Some(path) = &self.tier_file else {
            return Ok(None);
        };
        let file = TierFile::load(path).map_err(|error| anyhow!("--tier-file: {error}"))?;
        Ok(Some(file.target()))
    }

    /// With a disk tier, or at a gateway, there is one policy.
    fn fit_policy(&self, config: &mut Config) -> anyhow::Result<()> {
        const TIERED: &str = "crcw";
        let flag = match (&config.disk, config.cache_tier) {
            (None, None) => return Ok(()),
            (Some(_), _) => "--tier disk",
            (None, Some(_)) => "--tier-file",
        };
        let is_default = config.policy == PolicyName::default();
        if !is_default && self.policy != TIERED {
            bail!(
                "--policy {}: with {flag} the policy is always {TIERED}",
                self.policy
            );
        }
        config.policy = TIERED.parse()?;
        Ok(())
    }

    /// What needs no check.
    fn plain(&self) -> Config {
        Config {
            evict: !self.disable_evictions,
            cas: !self.disable_cas,
            huge_pages: self.enable_largepages || !self.no_largepages,
            pin: !self.no_pin,
            policy_change_allowed: !self.fixed_policy,
            verbosity: self.verbose,
            flush_allowed: !self.disable_flush_all,
            shutdown_allowed: self.enable_shutdown,
            dump_allowed: !self.disable_dumping,
            watch_allowed: !self.disable_watch,
            debug_time: self.debug_time,
            auth_file: self.auth_file.clone(),
            memory_file: self.memory_file.clone(),
            hot_keys_max: self.cluster.hot_keys(),
            ..Config::default()
        }
    }

    fn refuse_missing_features(&self, warnings: &mut Vec<String>) -> anyhow::Result<()> {
        if self.login_by_mechanism {
            bail!("-S: SASL is not offered; use -Y FILE for a login");
        }
        if self.encrypted {
            bail!("-Z: TLS for clients is not offered; use a TLS proxy");
        }
        if self.udp_port != 0 {
            warnings.push(format!(
                "-U {}: the server does not execute a request whose reply could be longer than the \
                 request; clients must send it over TCP",
                self.udp_port
            ));
        }
        if self.user.as_deref().is_some_and(|user| user != "root") && !curtail_runtime::is_root() {
            warnings
                .push("-u: of no effect, because the server was not started by root".to_owned());
        }
        Ok(())
    }

    /// Flags that one at a time are right.
    fn check_together(&self, config: &Config) -> anyhow::Result<()> {
        if self.udp_port != 0 && self.auth_file.is_some() {
            bail!(
                "-U: memcached's datagrams have no login, so -U cannot be given together with -Y"
            );
        }
        if config.native.is_some() && config.auth_file.is_some() {
            bail!(
                "--native: the native protocol has no login, so it cannot be given together with -Y"
            );
        }
        check_tier(config)?;
        check_gateway(config)?;
        // A wrong -m is a mistake of its own.
        if config.memory_bytes_max > 0 {
            check_native(config)?;
        }
        Ok(())
    }

    /// Flags of memcached that were given and change nothing here.
    fn meaningless(&self) -> Unused {
        let given = [
            ("-f", self.slab_growth_factor.is_some()),
            ("-n", self.slab_min_size.is_some()),
            ("-N", self.napi_ids.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        Unused {
            meaningless: given.map(|(flag, _)| flag.to_owned()).collect(),
            unknown: Vec::new(),
        }
    }

    fn settle_limits(&self, config: &mut Config, faults: &mut Faults) {
        let bytes = |text: &str, unit| quantity::memory(text, unit).map_err(anyhow::Error::msg);
        let memory = bytes(&self.memory_limit, 1 << 20)
            .context("-m")
            .and_then(|bytes| {
                if bytes < MEMORY_BYTES_MIN {
                    bail!(
                        "-m {}: at least 1 MiB of memory is needed",
                        self.memory_limit
                    );
                }
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                if bytes > MEMORY_BYTES_LIMIT {
                    bail!(
                        "-m {}: the greatest memory limit is {} MiB",
                        self.memory_limit,
                        MEMORY_BYTES_LIMIT >> 20
                    );
                }
                Ok(bytes)
            });
        config.memory_bytes_max = faults.keep(memory);
        let item = bytes(&self.max_item_size, 1)
            .context("-I")
            .and_then(|bytes| {
                if !ITEM_BYTES.contains(&bytes) {
                    let size = &self.max_item_size;
                    bail!("-I {size}: the longest value must be from 1k to 128m");
                }
                usize::try_from(bytes).context("-I")
            });
        config.item_bytes_max = faults.keep(item);
        config.connections_max = faults.keep(match self.conn_limit {
            given @ ..=0 => Err(anyhow!(
                "-c {given}: at least one connection must be allowed"
            )),
            some => usize::try_from(some).context("-c"),
        });
        config.workers = faults.keep(match self.threads {
            None => Ok(config.workers),
            Some(some @ 1..=256) => usize::try_from(some).context("-t"),
            Some(other) => Err(anyhow!("-t {other}: give 1 to 256 threads")),
        });
    }

    fn settle_rates(&self, config: &mut Config, faults: &mut Faults) {
        let backlog = ranged_numbers::check(self.listen_backlog, 1..=i64::from(i32::MAX));
        let backlog = backlog.and_then(|backlog| Ok(i32::try_from(backlog)?));
        let named = || format!("-b {}", self.listen_backlog);
        config.backlog = faults.keep(backlog.with_context(named));
        let requests = ranged_numbers::check(self.max_reqs_per_event, 1..=i64::from(u32::MAX));
        let requests = requests.and_then(|requests| Ok(usize::try_from(requests)?));
        let named = || format!("-R {}", self.max_reqs_per_event);
        config.requests_per_turn_max = faults.keep(requests.with_context(named));
    }

    /// Files that are read or written later.
    fn settle_files(&self, config: &Config) -> anyhow::Result<()> {
        if let Some(file) = self.memory_file.as_deref()
            && let Some(folder) = file.parent()
            && !folder.as_os_str().is_empty()
            && !folder.is_dir()
        {
            let (file, folder) = (file.display(), folder.display());
            bail!("-e {file}: there is no folder {folder} to save contents in");
        }
        if let Some(file) = &config.auth_file {
            count_logins(file).with_context(|| format!("-Y {}", file.display()))?;
        }
        Ok(())
    }

    /// The TCP port asked for. As with memcached, it follows `-U` when only that is given.
    fn tcp_port(&self) -> i32 {
        match (self.port, self.udp_port) {
            (Some(port), _) => port,
            (None, 0) => i32::from(Config::PORT),
            (None, udp_port) => udp_port,
        }
    }

    fn settle_echoes(&self, config: &mut Config) -> anyhow::Result<()> {
        config.echoed.tcp_port = self.tcp_port();
        config.udp_port = match self.udp_port {
            0 => None,
            -1 => Some(0),
            port => Some(port_of("-U", port)?),
        };
        if let Some(factor) = self.slab_growth_factor {
            if !(factor > 1.0 && factor.is_finite()) {
                bail!("-f {factor}: give a number above 1");
            }
            config.echoed.growth_factor = factor;
        }
        if let Some(bytes) = self.slab_min_size {
            let bytes = ranged_numbers::check(bytes, 1..).with_context(|| format!("-n {bytes}"))?;
            config.echoed.chunk_bytes = bytes;
        }
        config.echoed.protocol = match self.protocol.as_str() {
            "auto" => "auto-negotiate",
            "ascii" => "ascii",
            "binary" => "binary",
            other => bail!("-B {other}: the protocol must be auto or ascii"),
        };
        if let Some(delimiter) = self.prefix_delimiter {
            if !delimiter.is_ascii() {
                bail!("-D {delimiter}: give one ASCII character");
            }
            config.prefix_delimiter = delimiter as u8;
            config.detail = true;
        }
        if !self.listen.is_empty() {
            config.echoed.interface = Some(self.listen.join(","));
        }
        if let Some(address) = &self.admin_port {
            config.admin = Some(resolve_admin(address)?);
        }
        Ok(())
    }

    fn settle_addresses(
        &self,
        config: &mut Config,
        warnings: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        if self.protocol == "binary" {
            let why = "the binary protocol is not offered; the server speaks text and meta";
            warnings.push(format!("-B binary: {why}"));
        }
        let mode = self.unix_mode()?;
        if let Some(path) = &self.unix_socket {
            let path = path.clone();
            config.unix = Some(UnixSocket { path, mode });
            let other = [("-p", self.port.is_some()), ("-l", !self.listen.is_empty())];
            let given = other.iter().filter(|(_, given)| *given);
            warnings.extend(given.map(|(flag, _)| format!("{flag}: of no effect with -s")));
            return Ok(());
        }
        if self.unix_mask.is_some() {
            warnings.push("-a: of no effect without -s".to_owned());
        }
        if let Some(address) = self.address_of_node(config)? {
            config.echoed.tcp_port = i32::from(address.port());
            config.listen = vec![Listen {
                address,
                optional: false,
            }];
            return self.guard(config, warnings);
        }
        let port = match self.tcp_port() {
            0 => None,
            -1 => Some(0),
            port => Some(port_of("-p", port)?),
        };
        config.listen = match port {
            None => Vec::new(),
            Some(port) if self.listen.is_empty() => loopback(port),
            Some(port) => resolve_all(&self.listen, port)?,
        };
        self.guard(config, warnings)
    }

    /// The permissions of the Unix socket.
    fn unix_mode(&self) -> anyhow::Result<u32> {
        let text = self.unix_mask.as_deref().unwrap_or("700");
        let mode = u32::from_str_radix(text, 8).ok();
        let mode = mode.filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
        mode.with_context(|| format!("-a {text}: give an octal mask from 0 to 777"))
    }

    /// Where a node of a cluster listens by its file, unless other flags say where.
    fn address_of_node(&self, config: &Config) -> anyhow::Result<Option<SocketAddr>> {
        let entry = config.node.as_ref().and_then(|node| node.entry());
        match entry {
            Some(entry) if self.port.is_none() && self.listen.is_empty() => {
                Ok(Some(entry.clients_address().context("--cluster")?))
            }
            _ => Ok(None),
        }
    }

    /// Without a login, every client that reaches a server can read and change everything in it.
    fn guard(&self, config: &Config, warnings: &mut Vec<String>) -> anyhow::Result<()> {
        let reachable = |listen: &&Listen| !listen.address.ip().to_canonical().is_loopback();
        let Some(Listen { address, .. }) = config.listen.iter().find(reachable) else {
            return Ok(());
        };
        if config.auth_file.is_some() {
            return Ok(());
        }
        if !self.open_to_network {
            bail!(
                "-l {address}: refusing to listen there without a login, because every client that \
                 reaches the address could read and change everything: require a login with -Y \
                 FILE, or allow all clients with --open-to-network"
            );
        }
        warnings.push(format!("{address} is open to the network without a login"));
        Ok(())
    }
}

/// A port that is none of the numbers with a meaning of their own.
pub(crate) fn port_of(flag: &str, number: i32) -> anyhow::Result<u16> {
    let port = u16::try_from(number).ok();
    port.with_context(|| {
        format!("{flag} {number}: a port is from 1 to 65535; 0: no port, -1: the system chooses")
    })
}

/// Both loopback addresses; a machine without IPv6 does with one. A port that the system is to
/// choose would differ between the two, so then it is IPv4 alone.
fn loopback(port: u16) -> Vec<Listen> {
    let listen = |ip: IpAddr, optional| Listen {
        address: SocketAddr::new(ip, port),
        optional,
    };
    let mut addresses = vec![listen(Ipv4Addr::LOCALHOST.into(), false)];
    if port != 0 {
        addresses.push(listen(Ipv6Addr::LOCALHOST.into(), true));
    }
    addresses
}

fn resolve_all(lists: &[String], port: u16) -> anyhow::Result<Vec<Listen>> {
    let mut addresses: Vec<Listen> = Vec::new();
    for name in lists.iter().flat_map(|list| list.split(',')) {
        for address in resolve(name, port).with_context(|| format!("-l {name}"))? {
            let optional = addresses
                .iter()
                .any(|known| known.address.port() == address.port());
            if addresses.iter().all(|known| known.address != address) {
                addresses.push(Listen { address, optional });
            }
        }
    }
    Ok(addresses)
}

/// The addresses of `name`: a number, a name, either with a port behind a colon.
fn resolve(name: &str, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    if let Ok(ip) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    if let Ok(address) = name.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    let found: Vec<SocketAddr> = match name.rsplit_once(':') {
        Some(_) => name.to_socket_addrs()?.collect(),
        None => (name, port).to_socket_addrs()?.collect(),
    };
    if found.is_empty() {
        bail!("this name has no address");
    }
    Ok(found)
}

/// An admin address; a port alone means loopback.
fn resolve_admin(text: &str) -> anyhow::Result<SocketAddr> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    text.parse()
        .with_context(|| format!("--admin-port {text}: give a port or an address with a port"))
}

#[cfg(test)]
mod tests;
