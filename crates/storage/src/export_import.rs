//! Exports all items as text, and imports them: for another machine, another version, another
//! program.
//!
//! ```text
//!  curtail-export 1
//!  <key in base64> <flags> <expiry, Unix seconds> <CAS> <mark> <value in base64>
//!  ...
//!  end <items> <XXH3 of everything before this line, in hexadecimal>
//! ```
//!
//! The mark is `s` for a stale item, `r` for one that a client was told to recache, `w` for one
//! that is both, and `-` for any other.

use std::{
    io::{self, BufRead, Write},
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use curtail_types::KeyHash;
use thiserror::Error;
use twox_hash::XxHash3_64;

use crate::{
    KEY_BYTES_MAX,
    engine::{Engine, WriteKind, WriteRefused},
    error::StorageError,
    inspect::{each_item, open_for_tool},
    item_record::ItemImage,
    pending_keys::KeyLock,
};

/// Why items could not be exported or imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The data directory is at fault.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The text could not be read or written.
    #[error("the export cannot be read or written: {0}")]
    Text(#[from] io::Error),
    /// The text is no export of this program.
    #[error("line {line} of the export: {what}; the {imported} items before it were imported")]
    Malformed {
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        what: &'static str,
        /// What is in the directory now.
        imported: u64,
    },
    /// The directory takes no more.
    #[error("the disk is full or has failed; {imported} items were imported")]
    Full {
        /// What is in the directory now.
        imported: u64,
    },
}

const HEADER: &str = "curtail-export 1";

/// Items that are appended to the log as one group.
const GROUP_ITEMS: u64 = 4096;

/// Writes all items as text. Returns how many there were.
///
/// # Errors
/// The directory cannot be opened or is damaged, or `to` takes no more.
pub fn export(dir: &Path, now_seconds: u32, to: &mut dyn Write) -> Result<u64, TransferError> {
    let engine = open_for_tool(dir, false, now_seconds)?;
    let (mut items, mut sum) = (0, Sum::default());
    let mut line = format!("{HEADER}\n");
    sum.add(&line);
    to.write_all(line.as_bytes())?;
    each_item(&engine, now_seconds, |key, item| {
        let Some((image, value)) = item else {
            return Ok(());
        };
        let bits = match (image.stale, image.won) {
            (false, false) => '-',
            (false, true) => 'r',
            (true, false) => 's',
            (true, true) => 'w',
        };
        line.clear();
        BASE64_STANDARD.encode_string(key, &mut line);
        let ItemImage {
            flags, expiry, cas, ..
        } = image;
        line.push_str(&format!(" {flags} {expiry} {cas} {bits} "));
        BASE64_STANDARD.encode_string(value, &mut line);
        line.push('\n');
        sum.add(&line);
        items += 1;
        to.write_all(line.as_bytes()).map_err(TransferError::Text)
    })?;
    writeln!(to, "end {items} {:016x}", sum.0)?;
    to.flush()?;
    engine.seal();
    Ok(items)
}

/// Stores all items of an export; an item that is there already is replaced. Returns how many there
/// were.
///
/// # Errors
/// The directory cannot be opened, is full, or the text is not a whole export.
pub fn import(dir: &Path, now_seconds: u32, from: &mut dyn BufRead) -> Result<u64, TransferError> {
    let engine = std::sync::Arc::new(open_for_tool(dir, true, now_seconds)?);
    let (mut imported, mut number, mut sum) = (0, 0, Sum::default());
    let mut line = String::new();
    let malformed = |line, what, imported| TransferError::Malformed {
        line,
        what,
        imported,
    };
    loop {
        line.clear();
        number += 1;
        if from.read_line(&mut line)? == 0 {
            keep(&engine, imported)?;
            return Err(malformed(number, "the export has no end", imported));
        }
        let text = line.trim_end_matches('\n');
        if let Some(end) = text.strip_prefix("end ") {
            keep(&engine, imported)?;
            if end != format!("{imported} {:016x}", sum.0) {
                let what = "the checksum or the number of items does not match";
                return Err(malformed(number, what, imported));
            }
            engine.seal();
            return Ok(imported);
        }
        sum.add(&line);
        if number == 1 {
            if text != HEADER {
                return Err(malformed(1, "it is no export of this program", 0));
            }
            continue;
        }
        let Some((key, image, value)) = parse(text) else {
            keep(&engine, imported)?;
            return Err(malformed(number, "it is not an item", imported));
        };
        // Nobody else is here, so any stripe will do.
        let hash = KeyHash(0);
        KeyLock::new(&engine, hash).put(&key, hash, &image, &value);
        imported += 1;
        if imported % GROUP_ITEMS == 0
            || engine.admit(WriteKind::Store) == Err(WriteRefused::Behind)
        {
            keep(&engine, imported)?;
        }
    }
}

/// Has what was queued stored.
fn keep(engine: &Engine, imported: u64) -> Result<(), TransferError> {
    engine.commit();
    if engine.admit(WriteKind::Store).is_err() {
        return Err(TransferError::Full { imported });
    }
    if engine.rotate_if(engine.memtable_bytes_max()) {
        engine.flush();
        while engine.compact() {}
    }
    Ok(())
}

fn parse(line: &str) -> Option<(Vec<u8>, ItemImage, Vec<u8>)> {
    let mut words = line.split(' ');
    let key = BASE64_STANDARD.decode(words.next()?).ok()?;
    let image = ItemImage {
        flags: words.next()?.parse().ok()?,
        expiry: words.next()?.parse().ok()?,
        cas: words.next()?.parse().ok()?,
        ..ItemImage::default()
    };
    let (stale, won) = match words.next()? {
        "-" => (false, false),
        "r" => (false, true),
        "s" => (true, false),
        "w" => (true, true),
        _ => return None,
    };
    let value = BASE64_STANDARD.decode(words.next()?).ok()?;
    let is_key = (1..=KEY_BYTES_MAX).contains(&key.len());
    let is_item = is_key && words.next().is_none();
    let image = ItemImage {
        stale,
        won,
        ..image
    };
    is_item.then_some((key, image, value))
}

/// The checksum of lines, each continued from the last.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, line: &str) {
        self.0 = XxHash3_64::oneshot_with_seed(self.0, line.as_bytes());
    }
}
