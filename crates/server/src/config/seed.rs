//! Random seeds from the operating system.

use std::io;

use curtail_types::HashSeed;

/// A seed that nobody outside can guess.
pub(crate) fn random_seed() -> io::Result<HashSeed> {
    let mut bytes = [0; 16];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    let (low, high) = bytes.split_at(8);
    let word = |half: &[u8]| {
        half.iter()
            .fold(0, |word, &byte| word << 8 | u64::from(byte))
    };
    Ok(HashSeed([word(low), word(high)]))
}
