//! Commands about the server: administration, `stats`, listings; and memcached's datagrams.

pub(crate) mod commands;
pub(crate) mod lru_crawler;
pub(crate) mod stats;
pub(crate) mod udp;
mod udp_on_node;
