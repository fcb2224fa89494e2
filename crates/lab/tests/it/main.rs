//! `curtail-lab` as its users run it.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

mod interrupt;
mod same_version;
mod timeline;

const BINARY: &str = env!("CARGO_BIN_EXE_curtail-lab");
