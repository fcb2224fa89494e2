//! The fast path of the frequent forms against the general decoder.
#![no_main]

#[path = "../../crates/codec/tests/properties/mod.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::fast_path(data));
