//! Every reply to any request that can be decoded: bounded, complete, and absent when the request
//! is quiet.
#![no_main]

#[path = "../../crates/codec/tests/properties/mod.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::replies(data));
