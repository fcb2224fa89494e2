//! What others read of a running server: `/metrics`, `/livez` and `/readyz`, and alarms in the log.

pub(crate) mod alarms;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod prometheus;
