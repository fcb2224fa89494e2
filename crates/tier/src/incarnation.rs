//! Numbers that a node never had before: its incarnation, from which generations, sessions and
//! versions are made.
//!
//! It is the time in tenths of a second since 2020, in 32 bits, and above the one that the data
//! directory remembers. Two starts within a tenth of a second are kept apart by waiting.

use std::{
    fs, io,
    path::Path,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// An incarnation above all before.
pub(crate) fn next(directory: Option<&Path>) -> io::Result<u32> {
    thread::sleep(Duration::from_millis(100));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let tenths = now.unwrap_or_default().as_millis() / 100;
    let clock = u32::try_from(tenths.saturating_sub(BEGAN_TENTHS)).unwrap_or(u32::MAX - 1);
    let Some(directory) = directory else {
        return Ok(clock.max(1));
    };
    let path = directory.join("incarnation");
    let last = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| {
            let what = format!("{}: not a number; was it edited?", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let next = clock.max(1).max(last + 1);
    write_durably(directory, &path, &format!("{next}\n"))?;
    Ok(next)
}

/// The file has either text after a crash, and the new one from now on.
fn write_durably(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, path)?;
    fs::File::open(directory)?.sync_all()
}

/// The first of January 2020, in tenths of a second.
const BEGAN_TENTHS: u128 = 15_778_368_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_incarnation_is_above_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let first = next(Some(directory.path())).unwrap();
        let second = next(Some(directory.path())).unwrap();
        assert!(second > first);
        // A clock that was set back.
        fs::write(directory.path().join("incarnation"), "4000000000\n").unwrap();
        assert_eq!(next(Some(directory.path())).unwrap(), 4_000_000_001);
        fs::write(directory.path().join("incarnation"), "junk").unwrap();
        assert!(next(Some(directory.path())).is_err());
        assert!(next(None).unwrap() >= second);
    }
}
