//! Traces as the policies see them: requests for objects that are numbered from zero.
//!
//! Numbering the objects once lets every policy keep its state in plain arrays, which makes a
//! sweep over many policies and sizes a matter of seconds. An object keeps the size of its first
//! request: the traces are of reads through a cache, and a cache that is asked for another length
//! of the same block would otherwise measure overwriting, not eviction.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use ruzstd::decoding::StreamingDecoder;

/// The number of an object within its trace, counted from zero in order of first request.
pub(crate) type ObjectId = u32;

/// A whole trace in memory.
pub(crate) struct Trace {
    /// The name that the tables print.
    pub(crate) name: &'static str,
    /// The requested objects, in order.
    pub(crate) requests: Vec<ObjectId>,
    /// The size of each object, in the unit of the cache's capacity: 1 each, or bytes.
    pub(crate) sizes: Vec<u32>,
}

impl Trace {
    /// Reads an ARC trace: lines of `first_block count 0 request_number`, compressed by zstd.
    pub(crate) fn arc(name: &'static str, path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let decoder = StreamingDecoder::new(BufReader::new(file))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let mut trace = Self::empty(name);
        let mut numbers = HashMap::new();
        for line in BufReader::new(decoder).lines() {
            let line = line.map_err(|error| format!("{}: {error}", path.display()))?;
            let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
            let (Some(Ok(first)), Some(Ok(count))) = (fields.next(), fields.next()) else {
                return Err(format!("{}: not an ARC trace line: {line}", path.display()));
            };
            for block in first..first + count {
                trace.request(&mut numbers, block, 1);
            }
        }
        Ok(trace)
    }

    /// Reads a CloudPhysics trace: a header, then lines of `version,time,operation,size,block`.
    pub(crate) fn cloud_physics(name: &'static str, path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut trace = Self::empty(name);
        let mut numbers = HashMap::new();
        for line in BufReader::new(file).lines().skip(1) {
            let line = line.map_err(|error| format!("{}: {error}", path.display()))?;
            let mut fields = line.split(',').skip(3).map(str::parse::<u64>);
            let (Some(Ok(size)), Some(Ok(block))) = (fields.next(), fields.next()) else {
                return Err(format!(
                    "{}: not a CloudPhysics line: {line}",
                    path.display()
                ));
            };
            let size = u32::try_from(size).map_err(|error| format!("{line}: {error}"))?;
            trace.request(&mut numbers, block, size.max(1));
        }
        Ok(trace)
    }

    /// A trace of the given blocks, all of size 1.
    pub(crate) fn of_blocks(name: &'static str, blocks: impl Iterator<Item = u64>) -> Self {
        let mut trace = Self::empty(name);
        let mut numbers = HashMap::new();
        blocks.for_each(|block| trace.request(&mut numbers, block, 1));
        trace
    }

    /// The same requests with every object of size 1.
    pub(crate) fn of_equal_sizes(&self, name: &'static str) -> Self {
        let sizes = vec![1; self.sizes.len()];
        Self {
            name,
            requests: self.requests.clone(),
            sizes,
        }
    }

    /// The sum of the sizes of all objects.
    pub(crate) fn footprint(&self) -> u64 {
        self.sizes.iter().map(|&size| u64::from(size)).sum()
    }

    /// Whether the objects differ in size.
    pub(crate) fn has_sizes(&self) -> bool {
        self.sizes.iter().any(|&size| size != 1)
    }

    fn empty(name: &'static str) -> Self {
        Self {
            name,
            requests: Vec::new(),
            sizes: Vec::new(),
        }
    }

    fn request(&mut self, numbers: &mut HashMap<u64, ObjectId>, block: u64, size: u32) {
        let next = self.sizes.len() as ObjectId;
        let object = *numbers.entry(block).or_insert(next);
        if object == next {
            self.sizes.push(size);
        }
        self.requests.push(object);
    }
}
