//! Bytes that the machines of another node could send: what is understood is canonical, and within
//! its bounds.
#![no_main]

use curtail_consistency::{
    control_messages::ControlMessage,
    hot_list::{HotList, HotReport},
    replica::ReplicaMessage,
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut again = Vec::new();
    let mut is_canonical = |encode: &dyn Fn(&mut Vec<u8>)| {
        again.clear();
        encode(&mut again);
        assert_eq!(again, data, "canonical");
    };
    if let Some(message) = ReplicaMessage::decode(data) {
        is_canonical(&|bytes| message.encode(bytes));
    }
    if let Some(news) = ControlMessage::decode(data) {
        is_canonical(&|bytes| bytes.extend(news.encode()));
    }
    if let Some(list) = HotList::decode(data) {
        assert!(list.keys.len() <= HotList::KEYS_MAX);
        is_canonical(&|bytes| list.encode(bytes));
    }
    if let Some(report) = HotReport::decode(data) {
        assert!(report.load.keys.len() <= HotReport::KEYS_MAX);
        is_canonical(&|bytes| report.encode(bytes));
    }
});
