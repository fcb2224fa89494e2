//! How a switch of each kind is started: the forwarder in user space, XDP, an Open vSwitch of our
//! own, or a switch that others run and that speaks OpenFlow.

use std::{
    fs::DirBuilder, io, os::unix::fs::DirBuilderExt as _, path::Path, thread, time::Duration,
};

use curtail_codec::tiered::HostId;
use curtail_routing::{
    ControllerEndpoint, Destination, Encoding, OpenFlowOptions, OpenFlowTable, OpenVswitch,
    OpenVswitchOptions, PortNumber, PortType, Switch, SwitchPort, UserForwarder, XdpTable,
    XdpTableOptions,
};
use curtail_runtime::Attach;
use curtail_types::BackEndId;

use crate::{
    node_loop::{NodeError, TierInbox},
    switch::{Daemons, SwitchNode, SwitchOptions},
    switch_ports::TierPort,
    tier_file::{TierFile, TierFileNetwork},
};

/// The controller's thread may be in another network namespace while it binds its socket.
type Enter<'a> = &'a (dyn Fn() -> io::Result<()> + Sync);

impl SwitchNode {
    /// Starts a forwarder in user space, with the nodes of the file as its ports.
    ///
    /// # Errors
    /// Each says what is in the way.
    pub fn start(file: &TierFile, options: &SwitchOptions) -> Result<Self, NodeError> {
        let address = match file.network {
            TierFileNetwork::Forwarder(address) => address,
            TierFileNetwork::Ipv6 { .. } => {
                let why = "the file is for a switch that reads IPv6 addresses: give \
                           --xdp-port, --ovs-port or --openflow-port";
                return Err(NodeError::Refused(why.to_string()));
            }
            TierFileNetwork::Mac { .. } => {
                let why = "the file is for a switch that reads MAC addresses, which the forwarder \
                           in user space cannot: give --xdp-port, --ovs-port or --openflow-port";
                return Err(NodeError::Refused(why.to_string()));
            }
        };
        let forwarder = UserForwarder::start(address, options.capacity)
            .map_err(|error| NodeError::Refused(format!("cannot forward at {address}: {error}")))?;
        let mut table = forwarder.table();
        let back_ends = file.back_ends.iter().enumerate();
        let back_ends = back_ends.map(|(id, at)| (back_end(id), *at));
        let caches = file.caches.iter().enumerate();
        let caches = caches.map(|(id, at)| (cache(id), *at));
        for ((destination, address), port) in back_ends.chain(caches).zip(1..) {
            forwarder.add_port(PortNumber(port), address);
            let connected = table.connect(destination, Some(PortNumber(port)));
            connected.map_err(refused)?;
        }
        let inbox = TierInbox::bind(file.bound(file.control))?;
        Self::control(file, inbox, Box::new(table), Daemons::UserSpace(forwarder))
    }

    /// Loads the XDP switch into these interfaces of this thread's network namespace. The
    /// controller's socket is bound after `enter`, which may enter another namespace.
    ///
    /// # Errors
    /// Each says what is in the way.
    pub fn start_xdp(
        file: &TierFile,
        options: &SwitchOptions,
        ports: &[TierPort],
        enter: Enter<'_>,
    ) -> Result<Self, NodeError> {
        let xdp = XdpTableOptions {
            encoding: encoding(file)?,
            capacity: u32::try_from(options.capacity).unwrap_or(u32::MAX),
            ports: numbered(ports, encoding(file)?),
            attach: Attach::Any,
            pins: None,
        };
        let mut table = XdpTable::start(&xdp).map_err(refused)?;
        connect(&mut table, ports, &xdp.ports)?;
        let inbox = bind(file, enter)?;
        Self::control(file, inbox, Box::new(table), Daemons::None)
    }

    /// Starts an Open vSwitch of its own with these interfaces of this thread's network namespace,
    /// and controls it over OpenFlow 1.3. Its daemons end with this thread, its files are in
    /// `directory`, and `enter` is as above.
    ///
    /// # Errors
    /// It is not installed, or cannot attach to an interface; each says what is in the way.
    pub fn start_open_vswitch(
        file: &TierFile,
        options: &SwitchOptions,
        (ports, directory): (&[TierPort], &Path),
        enter: Enter<'_>,
    ) -> Result<Self, NodeError> {
        if !OpenVswitch::is_installed() {
            let why = "Open vSwitch is not installed: ovsdb-server, ovs-vswitchd, ovs-vsctl and \
                       ovsdb-tool are needed (Debian: openvswitch-switch)";
            return Err(NodeError::Refused(why.to_string()));
        }
        // The switch connects to its controller, which waits for it from before.
        let endpoint = ControllerEndpoint::ListenUnix(OpenVswitch::controller_socket(directory));
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        made.map_err(|error| NodeError::Io("the directory of Open vSwitch", error))?;
        let node = Self::start_openflow(file, options, (ports, endpoint), enter)?;
        let own = OpenVswitchOptions {
            directory: directory.to_path_buf(),
            ports: numbered(ports, encoding(file)?),
            port_type: PortType::System,
            encoding: encoding(file)?,
            datapath: DATAPATH,
            calls_controller: true,
            flows_max: None,
            ends_with_thread: true,
        };
        let daemons = OpenVswitch::start(own).map_err(refused)?;
        Ok(node.with_daemons(Daemons::OpenVswitch(daemons)))
    }

    /// Controls a switch that others run. Ports whose name is a number have that number there;
    /// others are numbered from 1.
    ///
    /// # Errors
    /// The endpoint cannot be had; that no switch is there yet is none.
    pub fn start_openflow(
        file: &TierFile,
        options: &SwitchOptions,
        (ports, endpoint): (&[TierPort], ControllerEndpoint),
        enter: Enter<'_>,
    ) -> Result<Self, NodeError> {
        let open = OpenFlowOptions {
            endpoint,
            datapath: None,
            encoding: encoding(file)?,
            capacity: options.capacity,
            ports: numbered(ports, encoding(file)?),
            timeout: ANSWER_MAX,
        };
        let at = open.ports.clone();
        let table = OpenFlowTable::open(open);
        let mut table = table.map_err(|error| NodeError::Io("the controller's socket", error))?;
        connect(&mut table, ports, &at)?;
        let inbox = bind(file, enter)?;
        Self::control(file, inbox, Box::new(table), Daemons::None)
    }
}

pub(crate) fn numbered(ports: &[TierPort], encoding: Encoding) -> Vec<SwitchPort> {
    let all = ports.iter().zip(1..);
    let number = |port: &TierPort, number| port.interface.parse().unwrap_or(number);
    all.map(|(port, at)| port.at(number(port, at), encoding))
        .collect()
}

fn connect(
    table: &mut dyn Switch,
    ports: &[TierPort],
    numbered: &[SwitchPort],
) -> Result<(), NodeError> {
    for (port, at) in ports.iter().zip(numbered) {
        let connected = table.connect(port.destination, Some(at.number));
        connected.map_err(refused)?;
    }
    Ok(())
}

/// A thread of its own enters, so that this one stays where the switch is.
fn bind(file: &TierFile, enter: Enter<'_>) -> Result<TierInbox, NodeError> {
    let enters = || {
        enter().map_err(|error| NodeError::Io("the controller's namespace", error))?;
        TierInbox::bind(file.bound(file.control))
    };
    let bound = thread::scope(|scope| scope.spawn(enters).join());
    let ended =
        || NodeError::Refused("the thread that binds the controller's socket panicked".into());
    bound.unwrap_or_else(|_| Err(ended()))
}

pub(crate) fn encoding(file: &TierFile) -> Result<Encoding, NodeError> {
    match file.network {
        TierFileNetwork::Ipv6 { cluster, .. } => Ok(Encoding::Ipv6 { cluster }),
        TierFileNetwork::Mac { network, .. } => Ok(Encoding::Mac { network: network.0 }),
        TierFileNetwork::Forwarder(_) => {
            let why = "the file is for the forwarder in user space: remove --xdp-port, --ovs-port \
                       and --openflow-port";
            Err(NodeError::Refused(why.to_string()))
        }
    }
}

fn refused(error: impl std::fmt::Display) -> NodeError {
    NodeError::Refused(error.to_string())
}

fn back_end(id: usize) -> Destination {
    Destination::BackEnd(BackEndId(u16::try_from(id).unwrap_or(BackEndId::END)))
}

fn cache(id: usize) -> Destination {
    Destination::Host(HostId(u32::try_from(id).unwrap_or(u32::MAX)))
}

/// The name of an Open vSwitch of our own.
const DATAPATH: u64 = 0x00c0_ffee;
/// How long an answer of a switch may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);
