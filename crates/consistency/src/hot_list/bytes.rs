//! Reports and lists as bytes for other nodes, little-endian, without padding.
//!
//! ```text
//!   list:    view u32, count u32, then of each key: bytes u8, key
//!   report:  segment u64, alpha u32, sampled u32, total u64, absent u64,
//!            costs: local u32, forwarded u32, message u32, byte u32 (all 0: not measured),
//!            then of each key: load u64, error u64, writes u64, value bytes u32, bytes u8, key
//! ```

use alloc::vec::Vec;

use curtail_types::{Key, KeyLoad, KeyName, LoadReport, LoadScale};

use super::{HotCosts, HotList, HotListNumber, HotReport};
use crate::wire::{Wire, wire_structs};

wire_structs! {
    HotListNumber { view, count }
    HotCosts { local_ns, forwarded_ns, message_ns, byte_ps }
    LoadScale { segment_ns, alpha, sampled_every }
}

impl HotList {
    /// Appends its bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        self.number.put(bytes);
        let keys = self.keys.iter().take(Self::KEYS_MAX);
        keys.for_each(|key| key.put(bytes));
    }

    /// The list that `bytes` are, all of them; `None` if they are none: keys are in order, and none
    /// is there twice.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let number = Wire::take(&mut bytes)?;
        let mut keys: Vec<KeyName> = Vec::new();
        while !bytes.is_empty() {
            let key = Wire::take(&mut bytes)?;
            if keys.len() == Self::KEYS_MAX || keys.last().is_some_and(|last| *last >= key) {
                return None;
            }
            keys.push(key);
        }
        Some(Self { number, keys })
    }
}

impl HotReport {
    /// Keys that are reported; more are left out.
    pub const KEYS_MAX: usize = 512;

    /// Appends its bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let load = &self.load;
        load.scale.put(bytes);
        load.total.put(bytes);
        load.absent_max.put(bytes);
        self.costs.unwrap_or_default().put(bytes);
        let sizes = self.value_bytes.iter().chain(core::iter::repeat(&0));
        for (key, size) in load.keys.iter().zip(sizes).take(Self::KEYS_MAX) {
            for part in [key.load, key.error, key.writes] {
                part.put(bytes);
            }
            size.put(bytes);
            key.key.put(bytes);
        }
    }

    /// The report that `bytes` are, all of them; `None` if they are none.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let mut load = LoadReport::empty(Wire::take(bytes)?);
        (load.total, load.absent_max) = (Wire::take(bytes)?, Wire::take(bytes)?);
        let costs = HotCosts::take(bytes)?;
        let mut value_bytes = Vec::new();
        while !bytes.is_empty() {
            if load.keys.len() == Self::KEYS_MAX {
                return None;
            }
            let mut key = KeyLoad {
                load: Wire::take(bytes)?,
                error: Wire::take(bytes)?,
                writes: Wire::take(bytes)?,
                ..KeyLoad::default()
            };
            value_bytes.push(Wire::take(bytes)?);
            key.key = Wire::take(bytes)?;
            load.keys.push(key);
        }
        Some(Self {
            load,
            value_bytes,
            costs: (costs != HotCosts::default()).then_some(costs),
        })
    }
}

impl Wire for KeyName {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.bytes().len() as u8);
        bytes.extend(self.bytes());
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let length = u8::take(bytes)?;
        let (key, rest) = bytes.split_at_checked(length.into())?;
        *bytes = rest;
        Some(Self::of(Key::new(key).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use curtail_types::{Load, ViewNumber};

    use super::*;

    fn name(bytes: &[u8]) -> KeyName {
        KeyName::of(Key::new(bytes).unwrap())
    }

    #[test]
    fn a_list_decodes_to_what_was_encoded() {
        let list = HotList {
            number: HotListNumber {
                view: ViewNumber(7),
                count: u32::MAX,
            },
            keys: [&b"a"[..], b"aa", &[b'k'; 250]].map(name).to_vec(),
        };
        let mut bytes = Vec::new();
        list.encode(&mut bytes);
        assert_eq!(HotList::decode(&bytes), Some(list.clone()));
        for length in [0, 7, 9, bytes.len() - 1] {
            assert_eq!(HotList::decode(&bytes[..length]), None, "{length}");
        }
        for keys in [["b", "a"], ["a", "a"]] {
            let keys = keys.map(|key| name(key.as_bytes())).to_vec();
            let mut bytes = Vec::new();
            HotList { keys, ..list }.encode(&mut bytes);
            assert_eq!(HotList::decode(&bytes), None);
        }
        let many = (0..513_u16).map(|key| name(format!("{key:03}").as_bytes()));
        let mut bytes = Vec::new();
        HotList::default().encode(&mut bytes);
        many.for_each(|key| key.put(&mut bytes));
        assert_eq!(HotList::decode(&bytes), None, "too many");
    }

    #[test]
    fn a_report_decodes_to_what_was_encoded() {
        let scale = LoadScale {
            segment_ns: 1 << 40,
            alpha: 3,
            sampled_every: 64,
        };
        let key = |bytes: &[u8], load| KeyLoad {
            key: name(bytes),
            load: Load(load),
            error: Load(2),
            writes: Load(u64::MAX),
        };
        for costs in [None, Some(HotCosts::ASSUMED)] {
            let mut load = LoadReport::empty(scale);
            (load.total, load.absent_max) = (Load(5), Load(6));
            load.keys = [key(b"b", 9), key(&[b'k'; 250], 8)].to_vec();
            let report = HotReport {
                load,
                value_bytes: [0, u32::MAX].to_vec(),
                costs,
            };
            let mut bytes = Vec::new();
            report.encode(&mut bytes);
            assert_eq!(HotReport::decode(&bytes), Some(report));
            for length in [0, 47, 49, bytes.len() - 1] {
                assert_eq!(HotReport::decode(&bytes[..length]), None, "{length}");
            }
        }
    }
}
