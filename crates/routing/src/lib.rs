//! The switches of a cache tier: which packets go to a cache node and which to a back end, decided
//! by the network from their addresses (SwitchKV: Li, dissertation, 2016, sections 2.2.1 and
//! 2.2.3).
//!
//! ```text
//!              rules (RuleTable), routes (Switch)
//!                           |
//!      +-----------+--------+-----+-----------------+
//!   MemoryTable  UserTable     XdpTable        OpenFlowTable
//!      |           |              |                 |
//!   nothing     UDP sockets    XDP program      Open vSwitch, hardware
//! ```
//!
//! There are three classes of rules (SW-15): of cached keys, of hosts, of back ends; a key's has
//! priority over its back end's (SW-16). A controller installs and deletes those of keys through
//! [`RuleTable`](curtail_types::RuleTable), which all four implement (SW-82); the same tests run on
//! all (SW-89). The pace of changes is limited above it (`consistency::tiered`).
//!
//! Invariants: a table never takes more rules of keys than its capacity (SW-17); what is addressed
//! to nobody is counted and dropped; a switch that comes back reports
//! [`Restarted`](curtail_types::SwitchEvent::Restarted), and rules are then reconciled by what is
//! there, not by what was sent.
#![forbid(unsafe_code)]

mod controller_stream;
mod memory_table;
mod network;
mod open_vswitch;
mod openflow_cookie;
mod openflow_flows;
mod openflow_session;
mod openflow_table;
mod user_table;
mod xdp_table;

pub use controller_stream::ControllerEndpoint;
pub use memory_table::{FrameVerdict, MemoryTable};
pub use network::{
    CountedRoute, Destination, Encoding, PortNumber, Switch, SwitchCounts, SwitchPort,
};
pub use open_vswitch::{OpenVswitch, OpenVswitchOptions, PortType};
pub use openflow_table::{OpenFlowOptions, OpenFlowTable};
pub use user_table::{UserForwarder, UserTable};
pub use xdp_table::{XdpTable, XdpTableOptions};
