//! Streams of commands, whole and in pieces: they must decode alike.
#![no_main]

#[path = "../../crates/codec/tests/properties/mod.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::split_streams(data));
