//! A property that is false: this fuzzer must find it, or fuzzing does not work here.
#![no_main]

#[path = "../../crates/codec/tests/properties/mod.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::canary(data));
