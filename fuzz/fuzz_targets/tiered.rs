//! Datagrams and frames of the cache tier: canonical, sealed, within the limits.
#![no_main]

#[path = "../../crates/codec/tests/properties/tiered.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for (_, property) in properties::REGISTRY {
        property(data);
    }
});
