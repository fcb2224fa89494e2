//! The native datagram path against a real server: what is answered, what attackers get, and
//! whether every key stays linearizable.

mod basics;
mod support;
