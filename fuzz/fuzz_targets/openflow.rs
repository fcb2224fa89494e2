//! OpenFlow of both sides: within the lengths, the same when encoded again.
#![no_main]

#[path = "../../crates/codec/tests/properties/openflow.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for (_, property) in properties::REGISTRY {
        property(data);
    }
});
