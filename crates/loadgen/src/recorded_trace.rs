//! A recorded trace in memory, replayed in order and repeated.
//!
//! Keys become dense numbers, so that a preload can store them all and a replayed key has the
//! recorded length, whatever it was called. Threads take turns at the requests. Recorded times are
//! not replayed: the offered rate is the run's own.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use curtail_workload::{
    KeyText, Kind,
    trace::{self, Format, Record},
};

use crate::error::LoadError;

/// Requests of a trace.
#[derive(Clone, Debug)]
pub struct Recording {
    name: String,
    requests: Vec<Recorded>,
    /// By key number: what it was when it was first seen.
    items: Vec<Recorded>,
    /// By length: how keys of that length are written.
    key_texts: Vec<Option<KeyText>>,
    /// Lines that were no requests, and the first of them in words.
    skipped: u64,
    first_fault: Option<String>,
    is_cut: bool,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    pub(crate) key: u32,
    pub(crate) value_bytes: u32,
    pub(crate) ttl_s: u32,
    pub(crate) kind: Kind,
    pub(crate) key_bytes: u8,
}

/// Requests that are kept of a longer trace: 1 GB of memory.
const REQUESTS_MAX: usize = 64 << 20;

/// Traces of blocks name none: memcached's limit is 250, and this is what the named workloads have.
const KEY_BYTES: u8 = 16;

/// No line of a trace is longer.
const LINE_BYTES_MAX: usize = 64 << 10;

/// No value in a trace is longer than what a server of caches takes.
const VALUE_BYTES_MAX: u32 = 128 << 20;

impl Recording {
    /// Reads a file whose format its first line tells: four numbers (ARC), five fields
    /// (CloudPhysics) or seven (Twitter) between commas.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let reading = || format!("reading the trace {name}");
        let file = File::open(path).map_err(LoadError::machine(reading()))?;
        let mut input = BufReader::with_capacity(1 << 20, file);
        let head = input.fill_buf().map_err(LoadError::machine(reading()))?;
        let format = format_of(head).ok_or_else(|| {
            LoadError::Arguments(format!(
                "{name} is neither a workload's name nor a trace (lines of ARC, CloudPhysics or \
                 Twitter; compressed files have to be unpacked)"
            ))
        })?;
        let mut recording =
            Self::read(&name, format, &mut input).map_err(LoadError::machine(reading()))?;
        if recording.requests.is_empty() {
            let fault = recording.first_fault.take();
            let fault = fault.unwrap_or_else(|| "there is no line but a heading".into());
            return Err(LoadError::Arguments(format!(
                "{name} holds no request: {fault}"
            )));
        }
        if recording.skipped > 0 {
            let fault = recording.first_fault.as_deref().unwrap_or_default();
            eprintln!("{name}: {} lines skipped, {fault}", recording.skipped);
        }
        Ok(recording)
    }

    fn read(name: &str, format: Format, input: &mut impl BufRead) -> std::io::Result<Self> {
        let mut recording = Self {
            name: name.into(),
            requests: Vec::new(),
            items: Vec::new(),
            key_texts: Vec::new(),
            skipped: 0,
            first_fault: None,
            is_cut: false,
        };
        let mut numbers = HashMap::new();
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let mut limited = input.by_ref().take(LINE_BYTES_MAX as u64 + 2);
            if limited.read_until(b'\n', &mut line)? == 0 || recording.is_cut {
                break;
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if text.len() > LINE_BYTES_MAX {
                if !line.ends_with(b"\n") {
                    input.skip_until(b'\n')?;
                }
                recording.skip(format!("line {number}: longer than {LINE_BYTES_MAX} bytes"));
                continue;
            }
            match trace::records(format, text) {
                Ok(records) => {
                    records.for_each(|record| recording.take(&mut numbers, number, record));
                }
                Err(fault) => recording.skip(format!("line {number}: {fault}")),
            }
        }
        let distinct = recording.items.len() as u64;
        recording.key_texts = (0..=250)
            .map(|bytes| KeyText::new(bytes, distinct))
            .collect();
        recording.lengthen_keys();
        Ok(recording)
    }

    fn skip(&mut self, why: String) {
        self.skipped += 1;
        self.first_fault.get_or_insert(why);
    }

    fn take(&mut self, numbers: &mut HashMap<u64, u32>, line: u64, record: Record) {
        if record.value_bytes > VALUE_BYTES_MAX {
            let bytes = record.value_bytes;
            let why = format!("a value of {bytes} bytes, more than {VALUE_BYTES_MAX}");
            return self.skip(format!("line {line}: {why}"));
        }
        if self.requests.len() == REQUESTS_MAX {
            self.is_cut = true;
            return;
        }
        let next = self.items.len() as u32;
        let key = *numbers.entry(record.key).or_insert(next);
        let key_bytes = record
            .key_bytes
            .map_or(KEY_BYTES, |bytes| bytes.clamp(1, 250) as u8);
        let mut recorded = Recorded {
            key,
            value_bytes: record.value_bytes,
            ttl_s: record.ttl_s,
            kind: record.kind,
            key_bytes,
        };
        match self.items.get_mut(key as usize) {
            None => self.items.push(recorded),
            Some(item) => {
                recorded.key_bytes = item.key_bytes;
                // Reads that missed were recorded without a length.
                item.value_bytes = item.value_bytes.max(recorded.value_bytes);
            }
        }
        self.requests.push(recorded);
    }

    /// Keys too short to be told apart get the shortest length that does.
    fn lengthen_keys(&mut self) {
        let fits = |bytes: u8| self.key_texts[usize::from(bytes)].is_some();
        let shortest = (1..=250).find(|&bytes| fits(bytes)).unwrap_or(KEY_BYTES);
        for recorded in self.requests.iter_mut().chain(&mut self.items) {
            recorded.key_bytes = recorded.key_bytes.max(shortest);
        }
    }

    pub(crate) fn request(&self, index: usize) -> Recorded {
        self.requests[index % self.requests.len()]
    }

    /// Length of key, length of value and time to live of the key with this number.
    pub(crate) fn item(&self, key: u64) -> (u8, u32, u32) {
        self.items[key as usize].item()
    }

    pub(crate) fn key_text(&self, bytes: u8) -> KeyText {
        let text = self.key_texts[usize::from(bytes)];
        text.unwrap_or_else(|| unreachable!("keys have been lengthened"))
    }

    pub(crate) fn keys(&self) -> u64 {
        self.items.len() as u64
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = Vec::new();
        for recorded in &self.requests {
            if !kinds.contains(&recorded.kind) {
                kinds.push(recorded.kind);
            }
        }
        kinds
    }

    pub(crate) fn value_bytes_max(&self) -> u32 {
        let requests = self.requests.iter().chain(&self.items);
        requests
            .map(|recorded| recorded.value_bytes)
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn describe(&self) -> String {
        let cut = if self.is_cut { " (cut short)" } else { "" };
        let (name, requests, keys) = (&self.name, self.requests.len(), self.items.len());
        format!("trace {name}: {requests} requests of {keys} keys{cut}")
    }
}

impl Recorded {
    /// Length of key, length of value and time to live.
    pub(crate) fn item(&self) -> (u8, u32, u32) {
        (self.key_bytes, self.value_bytes, self.ttl_s)
    }
}

/// By the number of fields in the first line.
fn format_of(head: &[u8]) -> Option<Format> {
    let line = head.split(|&byte| byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    match line.split(',').count() {
        1 => {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let numbers = fields.iter().all(|field| field.parse::<u64>().is_ok());
            (fields.len() == 4 && numbers).then_some(Format::Arc)
        }
        5 => Some(Format::CloudPhysics),
        7.. => Some(Format::Twitter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(format: Format, text: &str) -> Recording {
        Recording::read("t", format, &mut text.as_bytes()).unwrap()
    }

    #[test]
    fn formats_are_told_by_their_first_line() {
        let twitter = "0,abc,3,10,1,get,0\n1,a,b,1,2,1,set,60\n";
        for (text, expected) in [
            ("10 2 0 1\n", Some(Format::Arc)),
            ("version,time,op,size,lbn\n", Some(Format::CloudPhysics)),
            ("7,0,28,512,9\n", Some(Format::CloudPhysics)),
            (twitter, Some(Format::Twitter)),
            ("[package]\n", None),
            ("a b c d\n", None),
        ] {
            assert_eq!(format_of(text.as_bytes()), expected, "{text}");
        }
    }

    /// Goal: a replay has the trace's keys, lengths and commands, in order and over again.
    #[test]
    fn requests_come_back_in_order() {
        let text = "0,first,5,10,1,get,0\n0,second,6,20,1,set,60\nbad\n1,first,5,11,1,delete,0\n";
        let recording = recording(Format::Twitter, text);
        assert_eq!((recording.keys(), recording.skipped), (2, 1));
        let kinds: Vec<Kind> = (0..4).map(|index| recording.request(index).kind).collect();
        assert_eq!(kinds, [Kind::Get, Kind::Set, Kind::Delete, Kind::Get]);
        assert_eq!(recording.request(2).key, recording.request(0).key);
        assert_eq!(recording.item(1), (6, 20, 60));
        assert_eq!(recording.item(0).1, 11);
        assert_eq!(recording.key_text(5).bytes(), 5);
        assert_eq!(recording.value_bytes_max(), 20);
    }

    #[test]
    fn overlong_lines_are_skipped_and_the_next_line_is_read() {
        let long = "1".repeat(2 * LINE_BYTES_MAX);
        let recording = recording(Format::Arc, &format!("1 1 0 0\r\n{long}\n2 1 0 0"));
        assert_eq!((recording.keys(), recording.skipped), (2, 1));
        assert!(
            recording
                .first_fault
                .is_some_and(|fault| fault.starts_with("line 2: longer"))
        );
    }

    /// Goal: who reads why lines were skipped learns of values that are too long, too.
    #[test]
    fn overlong_values_are_skipped_with_their_line() {
        let recording = recording(Format::CloudPhysics, "1,2,28,512,7\n1,2,28,4000000000,8");
        assert_eq!((recording.keys(), recording.skipped), (1, 1));
        let fault = recording.first_fault.unwrap_or_default();
        assert!(
            fault.starts_with("line 2: a value of 4000000000"),
            "{fault}"
        );
    }

    #[test]
    fn keys_too_short_for_their_number_are_lengthened() {
        let lines = (0..100).map(|n| format!("0,k{n},1,10,1,get,0\n"));
        let recording = recording(Format::Twitter, &lines.collect::<String>());
        let bytes = recording.request(0).key_bytes;
        assert_eq!(bytes, 2);
        assert!((0..100).all(|index| recording.request(index).key_bytes == bytes));
    }
}
