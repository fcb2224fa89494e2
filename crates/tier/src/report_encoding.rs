//! The value of a `Report`: how loads were measured, then keys and loads (SW-46).

use curtail_types::{Key, KeyLoad, Load, LoadScale};

/// Writes a report; how many bytes. Keys beyond the room are left out.
pub(crate) fn encode(scale: LoadScale, keys: &[KeyLoad], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&scale.segment_ns.to_le_bytes());
    out.extend_from_slice(&scale.alpha.to_le_bytes());
    out.extend_from_slice(&scale.sampled_every.to_le_bytes());
    for one in keys {
        let key = one.key.bytes();
        let Ok(bytes) = u8::try_from(key.len()) else {
            continue;
        };
        if out.len() + LOAD_BYTES + key.len() > VALUE_BYTES_MAX {
            return;
        }
        out.extend_from_slice(&one.load.0.to_le_bytes());
        out.push(bytes);
        out.extend_from_slice(key);
    }
}

/// The keys and loads of a report that was measured like this; `None` if it was measured otherwise
/// or is malformed.
pub(crate) fn decode(value: &[u8], scale: LoadScale) -> Option<Vec<(Key<'_>, Load)>> {
    let (segment_ns, rest) = value.split_first_chunk()?;
    let (alpha, rest) = rest.split_first_chunk()?;
    let (sampled_every, mut rest) = rest.split_first_chunk()?;
    let measured = LoadScale {
        segment_ns: u64::from_le_bytes(*segment_ns),
        alpha: u32::from_le_bytes(*alpha),
        sampled_every: u32::from_le_bytes(*sampled_every),
    };
    if measured != scale {
        return None;
    }
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let (load, after) = rest.split_first_chunk()?;
        let (bytes, after) = after.split_first()?;
        let (key, after) = after.split_at_checked(usize::from(*bytes))?;
        keys.push((Key::new(key).ok()?, Load(u64::from_le_bytes(*load))));
        rest = after;
    }
    Some(keys)
}

const LOAD_BYTES: usize = 9;
const VALUE_BYTES_MAX: usize =
    curtail_codec::tiered::DATAGRAM_BYTES_MAX - curtail_codec::tiered::HEADER_BYTES;

#[cfg(test)]
mod tests {
    use curtail_types::KeyName;

    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_and_no_other() {
        let scale = LoadScale {
            segment_ns: 1,
            alpha: 2,
            sampled_every: 3,
        };
        let load = |key: &[u8], load| KeyLoad {
            key: KeyName::of(Key::new(key).unwrap()),
            load: Load(load),
            ..KeyLoad::default()
        };
        let long = [b'k'; 250];
        let keys: Vec<KeyLoad> = (0..9).map(|n| load(&long, n)).collect();
        let mut value = Vec::new();
        encode(scale, &keys, &mut value);
        assert_eq!(decode(&value, scale).unwrap().len(), 5, "what fits");
        encode(scale, &[load(b"a", 7), load(b"bc", 8)], &mut value);
        let read = decode(&value, scale).unwrap();
        let read: Vec<_> = read
            .iter()
            .map(|(key, load)| (key.bytes(), load.0))
            .collect();
        assert_eq!(read, [(&b"a"[..], 7), (&b"bc"[..], 8)]);
        for end in 0..value.len() {
            let cut = decode(&value[..end], scale);
            assert!(cut.is_none_or(|keys| keys.len() < 2), "{end}");
        }
        let other = LoadScale { alpha: 9, ..scale };
        assert_eq!(decode(&value, other), None);
    }
}
