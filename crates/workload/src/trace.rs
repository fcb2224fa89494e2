//! Recorded traces: bytes of a file in, requests out, line by line.
//!
//! The crate opens no file. A driver pushes the bytes as it reads them, in pieces of any length,
//! and every line becomes requests or an error with its number and reason; whether an error ends
//! the run is the driver's decision. No input panics, and memory is bounded by one line.
//!
//! - **ARC**, `start count 0 number`: the blocks `start..start+count` are read (Megiddo and Modha,
//!   "ARC: a self-tuning, low overhead replacement cache", FAST 2003).
//! - **CloudPhysics**, `version,time,op,size,lbn`: a SCSI command, `op` its opcode, at a second.
//! - **Twitter**, `time,key,key size,value size,client,operation,ttl`: a request at a second (Yang,
//!   Yue and Rashmi, OSDI 2020).

use std::{fmt, ops::ControlFlow, str::FromStr};

use curtail_types::named_enum;

use crate::{mix::Kind, random::mix};

named_enum! {
    /// How a trace is written.
    pub enum Format {
        /// The `.lis` files of the ARC paper.
        Arc = "arc",
        /// The CSV of block requests that libCacheSim ships.
        CloudPhysics = "cloud-physics",
        /// The CSV of Twitter's production caches.
        Twitter = "twitter",
    }
}

/// One recorded request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Record<'a> {
    /// When, in nanoseconds of the trace's own clock; `None` if the trace has none.
    pub at_ns: Option<u64>,
    /// What.
    pub kind: Kind,
    /// Of which key.
    pub key: RecordKey<'a>,
    /// Length of the key; `None` if the trace's keys are numbers.
    pub key_bytes: Option<u32>,
    /// Length of the value, asked for or stored.
    pub value_bytes: u32,
    /// Seconds to live; 0 without limit.
    pub ttl_s: u32,
    /// Who asked; `None` if the trace does not say.
    pub client: Option<u32>,
}

/// A key as the trace names it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RecordKey<'a> {
    /// A block's number.
    Number(u64),
    /// An anonymised name.
    Text(&'a [u8]),
}

/// Turns the bytes of a trace into records.
#[derive(Clone, Debug)]
pub struct TraceReader {
    format: Format,
    /// Lines begun so far.
    line: u64,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    /// The rest of an overlong line is being passed over.
    overlong: bool,
}

/// A line that is not what its format says.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TraceError {
    /// Counted from one.
    pub line: u64,
    /// What is wrong with it.
    pub fault: Fault,
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
    /// Longer than 64 KiB.
    Overlong,
}

impl TraceReader {
    /// A reader at the start of a trace.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            line: 0,
            partial: Vec::new(),
            overlong: false,
        }
    }

    /// Hands the records of all lines that end in `bytes` to `emit`, in order, and keeps what is
    /// left for the next call. `Break` from `emit` ends the call at once; what `bytes` still held
    /// is lost.
    pub fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(Found<'_>) -> Flow) -> Flow {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if self.overlong {
                self.overlong = false;
            } else if self.partial.is_empty() {
                self.line += 1;
                self.take(line, &mut emit)?;
            } else {
                self.line += 1;
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                let flow = self.take(&whole, &mut emit);
                whole.clear();
                self.partial = whole;
                flow?;
            }
        }
        if self.overlong {
            return Flow::Continue(());
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > LINE_BYTES_MAX {
            self.partial.clear();
            self.overlong = true;
            self.line += 1;
            return emit(Err(self.error(Fault::Overlong)));
        }
        Flow::Continue(())
    }

    /// The trace has ended: a last line needs no line feed.
    pub fn finish(mut self, mut emit: impl FnMut(Found<'_>) -> Flow) -> Flow {
        let line = std::mem::take(&mut self.partial);
        if line.is_empty() {
            return Flow::Continue(());
        }
        self.line += 1;
        self.take(&line, &mut emit)
    }

    /// Lines read so far.
    pub fn lines(&self) -> u64 {
        self.line
    }

    fn take(&self, line: &[u8], emit: &mut impl FnMut(Found<'_>) -> Flow) -> Flow {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LINE_BYTES_MAX {
            return emit(Err(self.error(Fault::Overlong)));
        }
        if line.is_empty() || (self.line == 1 && line == CLOUD_PHYSICS_HEADER) {
            return Flow::Continue(());
        }
        let blocks = match self.format {
            Format::Arc => arc(line),
            Format::CloudPhysics => cloud_physics(line).map(|record| (record, 1)),
            Format::Twitter => twitter(line).map(|record| (record, 1)),
        };
        match blocks {
            Ok((record, count)) => each_block(record, count, emit),
            Err(fault) => emit(Err(self.error(fault))),
        }
    }

    fn error(&self, fault: Fault) -> TraceError {
        TraceError {
            line: self.line,
            fault,
        }
    }
}

/// What a line holds.
pub type Found<'a> = Result<Record<'a>, TraceError>;
/// Whether to go on.
pub type Flow = ControlFlow<()>;

/// The same request for `count` blocks, one after the other.
fn each_block(record: Record<'_>, count: u64, emit: &mut impl FnMut(Found<'_>) -> Flow) -> Flow {
    for offset in 0..count {
        let key = match record.key {
            RecordKey::Number(first) => RecordKey::Number(first + offset),
            text @ RecordKey::Text(_) => text,
        };
        emit(Ok(Record { key, ..record }))?;
    }
    Flow::Continue(())
}

fn arc(line: &[u8]) -> Result<(Record<'_>, u64), Fault> {
    let mut fields = line
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty());
    let four = [(); 4].map(|()| fields.next());
    let [Some(start), Some(count), Some(unused), Some(request)] = four else {
        let found = four.iter().flatten().count();
        return Err(Fault::Fields { expected: 4, found });
    };
    let more = fields.count();
    if more > 0 {
        return Err(Fault::Fields {
            expected: 4,
            found: 4 + more,
        });
    }
    let first: u64 = decimal(start, "start")?;
    let blocks: u64 = decimal(count, "count")?;
    let _: u64 = decimal(unused, "third field")?;
    let _: u64 = decimal(request, "request number")?;
    if blocks > BLOCKS_MAX {
        return Err(Fault::Blocks);
    }
    first.checked_add(blocks).ok_or(Fault::Number("start"))?;
    let record = Record {
        at_ns: None,
        kind: Kind::Get,
        key: RecordKey::Number(first),
        key_bytes: None,
        value_bytes: BLOCK_BYTES,
        ttl_s: 0,
        client: None,
    };
    Ok((record, blocks))
}

fn cloud_physics(line: &[u8]) -> Result<Record<'_>, Fault> {
    let mut fields = line.split(|&byte| byte == b',');
    let five = [(); 5].map(|()| fields.next());
    let [Some(version), Some(time), Some(op), Some(size), Some(block)] = five else {
        let found = five.iter().flatten().count();
        return Err(Fault::Fields { expected: 5, found });
    };
    let more = fields.count();
    if more > 0 {
        return Err(Fault::Fields {
            expected: 5,
            found: 5 + more,
        });
    }
    let _: u32 = decimal(version, "version")?;
    Ok(Record {
        at_ns: Some(seconds(time)?),
        kind: match op {
            b"8" | b"08" | b"28" | b"88" | b"a8" => Kind::Get,
            b"a" | b"0a" | b"2a" | b"8a" | b"aa" => Kind::Set,
            _ => return Err(Fault::Command),
        },
        key: RecordKey::Number(decimal(block, "lbn")?),
        key_bytes: None,
        value_bytes: decimal(size, "size")?,
        ttl_s: 0,
        client: None,
    })
}

/// The key is between the first comma and the fifth from the end: keys may hold commas.
fn twitter(line: &[u8]) -> Result<Record<'_>, Fault> {
    let commas = line.iter().filter(|&&byte| byte == b',').count();
    let few = Fault::Fields {
        expected: 7,
        found: commas + 1,
    };
    let mut from_end = line.rsplitn(6, |&byte| byte == b',');
    let five = [(); 5].map(|()| from_end.next());
    let [
        Some(ttl),
        Some(operation),
        Some(client),
        Some(value),
        Some(key_size),
    ] = five
    else {
        return Err(few);
    };
    let mut from_start = from_end.next().ok_or(few)?.splitn(2, |&byte| byte == b',');
    let (Some(time), Some(key)) = (from_start.next(), from_start.next()) else {
        return Err(few);
    };
    if key.is_empty() {
        return Err(Fault::NoKey);
    }
    let name = std::str::from_utf8(operation).map_err(|_| Fault::Command)?;
    Ok(Record {
        at_ns: Some(seconds(time)?),
        kind: Kind::from_str(name)
            .ok()
            .filter(|kind| !matches!(kind, Kind::ReadModifyWrite | Kind::Insert))
            .ok_or(Fault::Command)?,
        key: RecordKey::Text(key),
        key_bytes: Some(decimal(key_size, "key size")?),
        value_bytes: decimal(value, "value size")?,
        ttl_s: decimal(ttl, "ttl")?,
        client: Some(decimal(client, "client")?),
    })
}

fn seconds(field: &[u8]) -> Result<u64, Fault> {
    let seconds: u64 = decimal(field, "time")?;
    seconds
        .checked_mul(1_000_000_000)
        .ok_or(Fault::Number("time"))
}

fn decimal<T: FromStr>(field: &[u8], name: &'static str) -> Result<T, Fault> {
    let digits = !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(field).ok().filter(|_| digits);
    text.and_then(|text| text.parse().ok())
        .ok_or(Fault::Number(name))
}

impl RecordKey<'_> {
    /// A number that stands for the key: equal for equal keys; different keys share one with a
    /// probability of 2^-64 a pair. Block numbers stay themselves.
    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Text(text) => text.chunks(8).fold(mix(text.len() as u64), |hash, chunk| {
                let word = chunk
                    .iter()
                    .rev()
                    .fold(0, |word, &b| word << 8 | u64::from(b));
                mix(hash.rotate_left(5) ^ mix(word))
            }),
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

impl std::error::Error for TraceError {}

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
            Self::Overlong => write!(f, "longer than {LINE_BYTES_MAX} bytes"),
        }
    }
}

const LINE_BYTES_MAX: usize = 64 << 10;
const BLOCKS_MAX: u64 = 65_536;
/// The ARC traces count blocks of 512 bytes.
const BLOCK_BYTES: u32 = 512;
const CLOUD_PHYSICS_HEADER: &[u8] = b"version,time,op,size,lbn";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    type Owned = Result<(Option<u64>, Kind, u64, u32, u32), TraceError>;

    fn read(format: Format, pieces: &[&[u8]]) -> Vec<Owned> {
        let mut found = Vec::new();
        let mut keep = |record: Found<'_>| {
            let whole = |r: Record<'_>| (r.at_ns, r.kind, r.key.number(), r.value_bytes, r.ttl_s);
            found.push(record.map(whole));
            Flow::Continue(())
        };
        let mut reader = TraceReader::new(format);
        for piece in pieces {
            assert!(reader.push(piece, &mut keep).is_continue());
        }
        assert!(reader.finish(&mut keep).is_continue());
        found
    }

    fn faults(format: Format, text: &str) -> Vec<(u64, Fault)> {
        let errors = read(format, &[text.as_bytes()])
            .into_iter()
            .filter_map(Result::err);
        errors.map(|error| (error.line, error.fault)).collect()
    }

    #[test]
    fn arc_lines_become_their_blocks() {
        let found = read(Format::Arc, &[b"10 3 0 0\n\n7 1 0 1 \r\n5 0 0 2\n8 1 0 3"]);
        let blocks: Vec<u64> = found.into_iter().map(|record| record.unwrap().2).collect();
        assert_eq!(blocks, [10, 11, 12, 7, 8]);
        let text = "1 2 0\n1 2 0 3 4\nx 1 0 0\n1 65537 0 0\n18446744073709551615 1 0 0\n-1 1 0 0\n";
        let few = |found| Fault::Fields { expected: 4, found };
        let start = Fault::Number("start");
        assert_eq!(
            faults(Format::Arc, text),
            [
                (1, few(3)),
                (2, few(5)),
                (3, start),
                (4, Fault::Blocks),
                (5, start),
                (6, start)
            ]
        );
    }

    #[test]
    fn cloud_physics_lines_become_reads_and_writes() {
        let text = b"version,time,op,size,lbn\n1,2,2a,512,77\n1,3,28,4096,78\n";
        let found = read(Format::CloudPhysics, &[text]);
        let second = 1_000_000_000;
        assert_eq!(
            found,
            [
                Ok((Some(2 * second), Kind::Set, 77, 512, 0)),
                Ok((Some(3 * second), Kind::Get, 78, 4096, 0)),
            ]
        );
        let text = "1,2,2b,512,77\n1,2,28,4294967296,7\n1,2,28,5\n1,99999999999,28,5,5\n";
        let found = faults(Format::CloudPhysics, text);
        let few = Fault::Fields {
            expected: 5,
            found: 4,
        };
        let expected = [
            Fault::Command,
            Fault::Number("size"),
            few,
            Fault::Number("time"),
        ];
        assert_eq!(
            found.iter().map(|(_, fault)| *fault).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn twitter_lines_may_have_commas_in_keys() {
        let mut seen = Vec::new();
        let text = b"5,a:b,c,24,100,7,get,0\n6,nz,2,30,8,add,86400\n";
        let flow = TraceReader::new(Format::Twitter).push(text, |record| {
            let record = record.unwrap();
            let RecordKey::Text(key) = record.key else {
                return Flow::Break(());
            };
            seen.push((
                key.to_vec(),
                record.key_bytes,
                record.client,
                record.kind,
                record.ttl_s,
            ));
            Flow::Continue(())
        });
        assert!(flow.is_continue());
        assert_eq!(
            seen,
            [
                (b"a:b,c".to_vec(), Some(24), Some(7), Kind::Get, 0),
                (b"nz".to_vec(), Some(2), Some(8), Kind::Add, 86_400),
            ]
        );
        let text =
            "5,k,2,30,8,scan,0\n5,k,2,30,8,rmw,0\n5,,2,30,8,get,0\n1,2,3,4,5,6\n5,k,2,-3,8,get,0\n";
        let few = Fault::Fields {
            expected: 7,
            found: 6,
        };
        let reasons: Vec<Fault> = faults(Format::Twitter, text)
            .into_iter()
            .map(|(_, fault)| fault)
            .collect();
        let value = Fault::Number("value size");
        assert_eq!(
            reasons,
            [Fault::Command, Fault::Command, Fault::NoKey, few, value]
        );
    }

    #[test]
    fn overlong_lines_are_one_error_and_the_next_line_is_read() {
        let long = vec![b'1'; LINE_BYTES_MAX + 5];
        let found = read(Format::Arc, &[b"1 1 0 0\n", &long, &long, b"\n2 1 0 0\n"]);
        let overlong = TraceError {
            line: 2,
            fault: Fault::Overlong,
        };
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], Err(overlong));
        assert_eq!(found[2].map(|record| record.2), Ok(2));
        let mut reader = TraceReader::new(Format::Arc);
        assert!(reader.push(b"x\n1 1 0 0\n", |_| Flow::Break(())).is_break());
        assert_eq!(reader.lines(), 1);
    }

    /// Goal: no bytes panic, and the pieces in which a trace comes make no difference. Method: 400
    /// mutated traces per format, whole and cut at random places.
    #[test]
    fn any_bytes_in_any_pieces_give_the_same_records() {
        let samples: [(Format, &[u8]); 3] = [
            (Format::Arc, b"3050771 25 0 0\n1 1 0 1\n"),
            (
                Format::CloudPhysics,
                b"version,time,op,size,lbn\n1,5,2a,512,42\n1,5,28,512,42\n",
            ),
            (
                Format::Twitter,
                b"0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n0,yDqF:3q,9,27,6,set,60\n",
            ),
        ];
        let mut random = Random::new(13);
        for (format, sample) in samples {
            for _ in 0..400 {
                let mut bytes = sample.repeat(3);
                for _ in 0..random.below(6) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.next() as u8;
                }
                let cut = random.below(bytes.len() as u64) as usize;
                let (one, other) = bytes.split_at(cut);
                assert_eq!(read(format, &[&bytes]), read(format, &[one, other]));
            }
        }
    }

    #[test]
    fn keys_have_numbers() {
        let number = |text: &[u8]| RecordKey::Text(text).number();
        assert_eq!(RecordKey::Number(5).number(), 5);
        assert_eq!(number(b"abcdefghij"), number(b"abcdefghij"));
        let others: [&[u8]; 4] = [b"abcdefghik", b"abcdefghi", b"ijabcdefgh", b"abcdefghij\0"];
        assert!(
            others
                .iter()
                .all(|other| number(other) != number(b"abcdefghij"))
        );
    }
}
