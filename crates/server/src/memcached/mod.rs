//! The memcached front end: administration commands, `watch`, dumps, UDP and `stats`.

pub(crate) mod crawler_switches;
pub(crate) mod event_log;
pub(crate) mod metadump;
pub(crate) mod watch;
