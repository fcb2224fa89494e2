//! Commands that are about the server and not about an item: administration, `stats`, listings; and
//! memcached's datagrams.

pub(crate) mod commands;
pub(crate) mod lru_crawler;
pub(crate) mod stats;
pub(crate) mod udp;
