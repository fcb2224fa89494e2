//! Bytes that the replica of another node could send: what is understood is canonical.
#![no_main]

use curtail_consistency::replica::ReplicaMessage;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(message) = ReplicaMessage::decode(data) {
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, data, "canonical");
    }
});
