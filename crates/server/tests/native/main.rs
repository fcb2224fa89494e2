//! The native datagram path against a real server: what is answered, what attackers get, and
//! whether every key stays linearizable.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

mod attacks;
mod basics;
mod early_limit;
mod faults;
mod histories;
mod memcached_datagrams;
#[path = "../../../runtime/tests/nic/namespace.rs"]
mod namespace;
mod streams;
mod support;
#[path = "../../../runtime/tests/nic/veth.rs"]
mod veth;
mod xdp;
mod xdp_attacks;
mod xdp_kills;
mod xdp_network;
