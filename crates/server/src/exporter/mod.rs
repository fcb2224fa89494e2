//! What others read of a running server: `/metrics`, `/livez` and `/readyz`, failures in the log.

pub(crate) mod failure_log;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod prometheus;
