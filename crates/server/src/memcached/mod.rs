//! The memcached front end: administration commands, `watch`, dumps, UDP and `stats`.

pub(crate) mod admin;
pub(crate) mod event_log;
pub(crate) mod key_encoding;
pub(crate) mod lru_crawler;
pub(crate) mod metadump;
pub(crate) mod prefix_stats;
pub(crate) mod stats;
pub(crate) mod udp;
pub(crate) mod watch;
