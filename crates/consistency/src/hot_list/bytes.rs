//! Reports and lists as bytes for other nodes, little-endian, without padding.
//!
//! ```text
//!   list:    view u32, count u32, then of each key: bytes u8, key
//!   report:  segment u64, alpha u32, sampled u32, total u64, absent u64,
//!            costs: local u32, forwarded u32, message u32, byte u32 (all 0: not measured),
//!            then of each key: load u64, error u64, writes u64, value bytes u32, bytes u8, key
//! ```

use alloc::vec::Vec;

use curtail_types::{Key, KeyLoad, KeyName, Load, LoadReport, LoadScale, ViewNumber};

use super::{HotCosts, HotList, HotListNumber, HotReport};
use crate::byte_reader::ByteReader;

impl HotList {
    /// Appends its bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.number.view.0.to_le_bytes());
        bytes.extend(self.number.count.to_le_bytes());
        for key in self.keys.iter().take(Self::KEYS_MAX) {
            put_key(bytes, key);
        }
    }

    /// The list that `bytes` are, all of them; `None` if they are none: keys are in order, and none
    /// is there twice.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let number = HotListNumber {
            view: ViewNumber(reader.u32()?),
            count: reader.u32()?,
        };
        let mut keys: Vec<KeyName> = Vec::new();
        while !reader.is_empty() {
            let key = take_key(&mut reader)?;
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
        let (load, scale) = (&self.load, &self.load.scale);
        bytes.extend(scale.segment_ns.to_le_bytes());
        bytes.extend(scale.alpha.to_le_bytes());
        bytes.extend(scale.sampled_every.to_le_bytes());
        bytes.extend(load.total.0.to_le_bytes());
        bytes.extend(load.absent_max.0.to_le_bytes());
        let costs = self.costs.map_or([0; 4], |costs| {
            [
                costs.local_ns,
                costs.forwarded_ns,
                costs.message_ns,
                costs.byte_ps,
            ]
        });
        bytes.extend(costs.iter().flat_map(|cost| cost.to_le_bytes()));
        let sizes = self
            .value_bytes
            .iter()
            .copied()
            .chain(core::iter::repeat(0));
        for (key, size) in load.keys.iter().zip(sizes).take(Self::KEYS_MAX) {
            for part in [key.load, key.error, key.writes] {
                bytes.extend(part.0.to_le_bytes());
            }
            bytes.extend(size.to_le_bytes());
            put_key(bytes, &key.key);
        }
    }

    /// The report that `bytes` are, all of them; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let scale = LoadScale {
            segment_ns: reader.u64()?,
            alpha: reader.u32()?,
            sampled_every: reader.u32()?,
        };
        let mut load = LoadReport::empty(scale);
        (load.total, load.absent_max) = (Load(reader.u64()?), Load(reader.u64()?));
        let costs = HotCosts {
            local_ns: reader.u32()?,
            forwarded_ns: reader.u32()?,
            message_ns: reader.u32()?,
            byte_ps: reader.u32()?,
        };
        let mut value_bytes = Vec::new();
        while !reader.is_empty() {
            if load.keys.len() == Self::KEYS_MAX {
                return None;
            }
            let mut key = KeyLoad {
                load: Load(reader.u64()?),
                error: Load(reader.u64()?),
                writes: Load(reader.u64()?),
                ..KeyLoad::default()
            };
            value_bytes.push(reader.u32()?);
            key.key = take_key(&mut reader)?;
            load.keys.push(key);
        }
        let none = HotCosts {
            local_ns: 0,
            forwarded_ns: 0,
            message_ns: 0,
            byte_ps: 0,
        };
        Some(Self {
            load,
            value_bytes,
            costs: (costs != none).then_some(costs),
        })
    }
}

fn put_key(bytes: &mut Vec<u8>, key: &KeyName) {
    bytes.push(key.bytes().len() as u8);
    bytes.extend(key.bytes());
}

fn take_key(reader: &mut ByteReader<'_>) -> Option<KeyName> {
    let length = reader.byte()?;
    let key = Key::new(reader.bytes(usize::from(length))?).ok()?;
    Some(KeyName::of(key))
}

#[cfg(test)]
mod tests {
    use alloc::format;

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
        many.for_each(|key| put_key(&mut bytes, &key));
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
