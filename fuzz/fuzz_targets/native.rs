//! Datagrams of the native protocol: canonical, within the limits, never answered with more bytes.
#![no_main]

#[path = "../../crates/codec/tests/properties/native.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for (_, property) in properties::REGISTRY {
        property(data);
    }
});
