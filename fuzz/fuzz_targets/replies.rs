//! Every reply to whatever request can be decoded: bounded, whole, quiet when asked to be.
#![no_main]

#[path = "../../crates/codec/tests/properties/mod.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::replies(data));
