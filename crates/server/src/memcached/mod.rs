//! The memcached front end: administration commands, `watch`, dumps, UDP and `stats`.

pub(crate) mod event_log;
pub(crate) mod key_encoding;
pub(crate) mod metadump;
pub(crate) mod watch;
