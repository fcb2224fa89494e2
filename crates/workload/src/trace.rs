//! Recorded traces: a line in, requests out.
//!
//! The crate opens no file: a driver hands over each line as it reads it, and decides whether one
//! that is wrong ends the run. No line panics.
//!
//! - **ARC**, `start count 0 number`: the blocks `start..start+count` are read (Megiddo and Modha,
//!   "ARC: a self-tuning, low overhead replacement cache", FAST 2003).
//! - **CloudPhysics**, `version,time,op,size,lbn`: a SCSI command, `op` its opcode, at a second.
//! - **Twitter**, `time,key,key size,value size,client,operation,ttl`: a request at a second (Yang,
//!   Yue and Rashmi, OSDI 2020).

use std::{fmt, str::FromStr};

use crate::{mix::Kind, random::mix};

/// How a trace is written.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    /// The `.lis` files of the ARC paper.
    Arc,
    /// The CSV of block requests that libCacheSim ships.
    CloudPhysics,
    /// The CSV of Twitter's production caches.
    Twitter,
}

/// One recorded request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Record {
    /// What.
    pub kind: Kind,
    /// Of which key: a block's number, or one that stands for a name. Different names share one
    /// with a probability of 2^-64 a pair.
    pub key: u64,
    /// Length of the key; `None` if the trace's keys are numbers.
    pub key_bytes: Option<u32>,
    /// Length of the value, asked for or stored.
    pub value_bytes: u32,
    /// Seconds to live; 0 without limit.
    pub ttl_s: u32,
}

/// What is wrong with a line of a trace.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Another number of fields.
    Fields {
        /// How many the format has.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// This field is not a number, or too large for what it counts.
    Number(&'static str),
    /// A command or opcode that nobody knows.
    Command,
    /// More blocks in one request than a device takes (65,536).
    Blocks,
    /// A key without a byte.
    NoKey,
}

/// The requests of a line, without its end; an empty one and a heading have none.
pub fn records(format: Format, line: &[u8]) -> Result<impl Iterator<Item = Record>, Fault> {
    let found = match format {
        _ if line.is_empty() || line == CLOUD_PHYSICS_HEADER => None,
        Format::Arc => Some(arc(line)?),
        Format::CloudPhysics => Some((cloud_physics(line)?, 1)),
        Format::Twitter => Some((session(line)?.2, 1)),
    };
    let all = found.into_iter().flat_map(|(first, blocks)| {
        let block = move |block| Record {
            key: first.key + block,
            ..first
        };
        (0..blocks).map(block)
    });
    Ok(all)
}

fn arc(line: &[u8]) -> Result<(Record, u64), Fault> {
    let words = line.split(u8::is_ascii_whitespace);
    let [start, count, unused, request] = fields(words.filter(|word| !word.is_empty()))?;
    let first: u64 = decimal(start, "start")?;
    let blocks: u64 = decimal(count, "count")?;
    let _: u64 = decimal(unused, "third field")?;
    let _: u64 = decimal(request, "request number")?;
    if blocks > BLOCKS_MAX {
        return Err(Fault::Blocks);
    }
    first.checked_add(blocks).ok_or(Fault::Number("start"))?;
    let record = Record {
        kind: Kind::Get,
        key: first,
        key_bytes: None,
        value_bytes: BLOCK_BYTES,
        ttl_s: 0,
    };
    Ok((record, blocks))
}

/// As many fields as the format has.
fn fields<'a, const N: usize>(all: impl Iterator<Item = &'a [u8]>) -> Result<[&'a [u8]; N], Fault> {
    let mut fields = [&b""[..]; N];
    let mut found = 0;
    for field in all {
        if let Some(place) = fields.get_mut(found) {
            *place = field;
        }
        found += 1;
    }
    match found == N {
        true => Ok(fields),
        false => Err(Fault::Fields { expected: N, found }),
    }
}

fn cloud_physics(line: &[u8]) -> Result<Record, Fault> {
    let [version, time, op, size, block] = fields(line.split(|&byte| byte == b','))?;
    let _: u32 = decimal(version, "version")?;
    let _: u64 = decimal(time, "time")?;
    Ok(Record {
        kind: match op {
            b"8" | b"08" | b"28" | b"88" | b"a8" => Kind::Get,
            b"a" | b"0a" | b"2a" | b"8a" | b"aa" => Kind::Set,
            _ => return Err(Fault::Command),
        },
        key: decimal(block, "lbn")?,
        key_bytes: None,
        value_bytes: decimal(size, "size")?,
        ttl_s: 0,
    })
}

/// A line of a trace of Twitter's, without its end: the second, the client and the request. The key
/// is between the first comma and the fifth from the end: keys may hold commas.
pub(crate) fn session(line: &[u8]) -> Result<(u64, u32, Record), Fault> {
    let commas = line.iter().filter(|&&byte| byte == b',').count();
    let few = Fault::Fields {
        expected: 7,
        found: commas + 1,
    };
    let from_end: Vec<&[u8]> = line.rsplitn(6, |&byte| byte == b',').collect();
    let [ttl, operation, client, value, key_size, rest] = from_end[..] else {
        return Err(few);
    };
    let mut from_start = rest.splitn(2, |&byte| byte == b',');
    let (Some(time), Some(key)) = (from_start.next(), from_start.next()) else {
        return Err(few);
    };
    if key.is_empty() {
        return Err(Fault::NoKey);
    }
    let second = decimal(time, "time")?;
    let client = decimal(client, "client")?;
    let name = std::str::from_utf8(operation).map_err(|_| Fault::Command)?;
    let record = Record {
        kind: Kind::from_str(name)
            .ok()
            .filter(|kind| !matches!(kind, Kind::ReadModifyWrite | Kind::Insert))
            .ok_or(Fault::Command)?,
        key: number(key),
        key_bytes: Some(decimal(key_size, "key size")?),
        value_bytes: decimal(value, "value size")?,
        ttl_s: decimal(ttl, "ttl")?,
    };
    Ok((second, client, record))
}

fn decimal<T: FromStr>(field: &[u8], name: &'static str) -> Result<T, Fault> {
    let digits = !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(field).ok().filter(|_| digits);
    text.and_then(|text| text.parse().ok())
        .ok_or(Fault::Number(name))
}

/// Equal for equal names.
fn number(name: &[u8]) -> u64 {
    name.chunks(8).fold(mix(name.len() as u64), |hash, chunk| {
        let bytes = chunk.iter().rev();
        let word = bytes.fold(0, |word, &byte| word << 8 | u64::from(byte));
        mix(hash.rotate_left(5) ^ mix(word))
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields { expected, found } => {
                write!(f, "{found} fields where the format has {expected}")
            }
            Self::Number(field) => write!(f, "the {field} is not a number that fits"),
            Self::Command => f.write_str("the command is unknown"),
            Self::Blocks => write!(f, "more than {BLOCKS_MAX} blocks in one request"),
            Self::NoKey => f.write_str("the key is empty"),
        }
    }
}

const BLOCKS_MAX: u64 = 65_536;
/// The ARC traces count blocks of 512 bytes.
const BLOCK_BYTES: u32 = 512;
const CLOUD_PHYSICS_HEADER: &[u8] = b"version,time,op,size,lbn";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn read(format: Format, text: &str) -> Vec<Record> {
        let lines = text.split('\n').map(str::as_bytes);
        let of = |line| records(format, line).unwrap();
        lines.flat_map(of).collect()
    }

    fn faults(format: Format, text: &str) -> Vec<Fault> {
        let lines = text.split('\n').map(str::as_bytes);
        let fault = |line| records(format, line).err().unwrap();
        lines.map(fault).collect()
    }

    #[test]
    fn arc_lines_become_their_blocks() {
        let found = read(Format::Arc, "10 3 0 0\n\n7 1 0 1 \n5 0 0 2\n8 1 0 3");
        let blocks: Vec<u64> = found.iter().map(|record| record.key).collect();
        assert_eq!(blocks, [10, 11, 12, 7, 8]);
        let text = "1 2 0\n1 2 0 3 4\nx 1 0 0\n1 65537 0 0\n18446744073709551615 1 0 0\n-1 1 0 0";
        let few = |found| Fault::Fields { expected: 4, found };
        let start = Fault::Number("start");
        let expected = [few(3), few(5), start, Fault::Blocks, start, start];
        assert_eq!(faults(Format::Arc, text), expected);
    }

    #[test]
    fn cloud_physics_lines_become_reads_and_writes() {
        let text = "version,time,op,size,lbn\n1,2,2a,512,77\n1,3,28,4096,78";
        let found = read(Format::CloudPhysics, text).into_iter();
        let found: Vec<_> = found
            .map(|one| (one.kind, one.key, one.value_bytes))
            .collect();
        assert_eq!(found, [(Kind::Set, 77, 512), (Kind::Get, 78, 4096)]);
        let text = "1,2,2b,512,77\n1,2,28,4294967296,7\n1,2,28,5\n1,late,28,5,5";
        let (expected, found) = (5, 4);
        let few = Fault::Fields { expected, found };
        let [size, time] = ["size", "time"].map(Fault::Number);
        let expected = [Fault::Command, size, few, time];
        assert_eq!(faults(Format::CloudPhysics, text), expected);
    }

    #[test]
    fn twitter_lines_may_have_commas_in_keys() {
        let text = "5,a:b,c,24,100,7,get,0\n6,nz,2,30,8,add,86400";
        let found = read(Format::Twitter, text).into_iter();
        let found: Vec<_> = found
            .map(|one| (one.key, one.key_bytes, one.kind, one.ttl_s))
            .collect();
        let expected = [
            (number(b"a:b,c"), Some(24), Kind::Get, 0),
            (number(b"nz"), Some(2), Kind::Add, 86_400),
        ];
        assert_eq!(found, expected);
        let text =
            "5,k,2,30,8,scan,0\n5,k,2,30,8,rmw,0\n5,,2,30,8,get,0\n1,2,3,4,5,6\n5,k,2,-3,8,get,0";
        let (expected, found) = (7, 6);
        let few = Fault::Fields { expected, found };
        let value = Fault::Number("value size");
        let expected = [Fault::Command, Fault::Command, Fault::NoKey, few, value];
        assert_eq!(faults(Format::Twitter, text), expected);
    }

    /// Goal: no bytes panic. Method: 400 mutated lines per format.
    #[test]
    fn any_bytes_are_records_or_faults() {
        let samples: [(Format, &[u8]); 3] = [
            (Format::Arc, b"3050771 25 0 0"),
            (Format::CloudPhysics, b"1,5,2a,512,42"),
            (Format::Twitter, b"0,q:q:1:8WTfjZU14ee,17,213,4,get,0"),
        ];
        let mut random = Random::new(13);
        for (format, sample) in samples {
            let mut good = 0;
            for _ in 0..400 {
                let mut bytes = sample.to_vec();
                for _ in 0..random.below(3) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.next() as u8;
                }
                good += records(format, &bytes).map_or(0, Iterator::count);
            }
            assert!(good > 0);
        }
    }

    #[test]
    fn keys_have_numbers() {
        let names: [&[u8]; 5] = [
            b"abcdefghij",
            b"abcdefghik",
            b"abcdefghi",
            b"ijabcdefgh",
            b"abcdefghij\0",
        ];
        let mut numbers = names.map(number);
        assert_eq!(numbers[0], number(b"abcdefghij"));
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|two| two[0] < two[1]));
    }
}
