//! What the operating system offers: processors, clocks, signals, sockets and the state of the
//! process.
//!
//! It may hold `unsafe`, as only `table`, `segments` and `memory` may too, and is the only place
//! that knows libc. Nothing here decides anything: the server says what to do, this crate does it
//! and tells what the kernel answered.
//!
//! ```text
//!   server ── clock, cpu, process, signals, systemd   (start and control)
//!      └───── poll, socket, datagram                   (every turn of a worker)
//! ```

mod clock;
mod control_group;
#[cfg(feature = "counting_allocator")]
mod counting_allocator;
mod cpu;
mod datagram;
mod frame_socket;
mod links;
mod poll;
mod process;
mod signals;
mod socket;
mod steering;
mod sync;
mod systemd;
mod xdp;

pub use clock::{Clock, ThreadCpuClock, monotonic_ns};
pub use control_group::{ControlGroups, GroupMemory};
#[cfg(feature = "counting_allocator")]
pub use counting_allocator::CountingAllocator;
pub use cpu::{
    ThreadId, cpus_allowed, cpus_usable, lower_priority, may_step_forward, pin_current_thread,
    quota_cpus, set_slice,
};
pub use datagram::{
    DATAGRAM_SLOT_BYTES, DatagramOptions, DatagramSocket, Inbox, Outbox, Posted, bind_udp,
};
pub use frame_socket::{FrameSocket, KeyedFrames};
pub use links::LinkStates;
pub use poll::{Events, Poller, Readiness, Registrar, Token, Waker, WatchError};
pub use process::{
    ProcessError, ProcessUsage, allow_core_dumps, allow_stepping_forward, daemonize,
    drop_privileges, is_root, lock_memory, open_files_limit, raise_open_files_limit,
    resident_bytes, stop_waiting_parent, usage,
};
pub use signals::{ControlEvent, Controls, ControlsHandle, SignalError};
pub use socket::{
    BindError, Listener, PeerAddress, Received, Sent, SocketOptions, Stream, bind_tcp, bind_unix,
    connect_tcp, wait_for_bytes,
};
pub use steering::{SteerBy, Steering};
pub use sync::lock;
pub use systemd::{Service, ServiceState};
pub use xdp::{
    Attach, MapsOrigin, Nic, NicOptions, PacketFate, Ran, SharedWords, SwitchFate, SwitchNetwork,
    SwitchProgram, SwitchRule, Xdp, XdpError, XdpOptions,
};
