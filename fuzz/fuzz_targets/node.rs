//! Bytes that another node could send: frames and handshakes, canonical and within their limits.
#![no_main]

#[path = "../../crates/codec/tests/properties/node.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for (_, property) in properties::REGISTRY {
        property(data);
    }
});
