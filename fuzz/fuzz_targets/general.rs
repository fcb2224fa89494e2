//! The one-pass reading of the usual forms against the general one.
#![no_main]

#[path = "../../crates/codec/tests/properties/mod.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::general(data));
