//! The secret that the nodes of a cluster prove to each other. It is never printed.

use std::{
    fmt, fs,
    io::{Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use crate::ClusterError;

/// What only the nodes of one cluster know.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Vec<u8>);

/// Refuses a file that others than its owner may read.
pub(crate) fn refuse_readable(path: &Path) -> Result<(), ClusterError> {
    let metadata = fs::metadata(path).map_err(ClusterError::file(path))?;
    match metadata.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => Err(ClusterError::Secret {
            path: path.to_owned(),
            reason: "others may read it; run chmod 600 on it".to_owned(),
        }),
    }
}

impl Secret {
    /// Bytes that a secret has at least.
    pub const BYTES_MIN: usize = 32;
    /// Bytes that a secret has at most.
    pub const BYTES_MAX: usize = 4096;

    /// One that was not read yet.
    pub(crate) const fn unread() -> Self {
        Self(Vec::new())
    }

    /// The content of a file that nobody but its owner may read, without white space around it.
    ///
    /// # Errors
    /// When it cannot be read, others may read it, or it is too short or too long.
    pub fn read(path: &Path) -> Result<Self, ClusterError> {
        let refused = |reason: String| ClusterError::Secret {
            path: path.to_owned(),
            reason,
        };
        refuse_readable(path)?;
        let content = fs::read(path).map_err(ClusterError::file(path))?;
        let bytes = content.trim_ascii();
        if !(Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes.len()) {
            return Err(refused(format!(
                "from {} to {} bytes; `head -c 32 /dev/urandom | base64` makes a good one",
                Self::BYTES_MIN,
                Self::BYTES_MAX
            )));
        }
        Ok(Self(bytes.to_owned()))
    }

    /// Writes a new one into a file that must not exist yet.
    ///
    /// # Errors
    /// When there is a file, it cannot be written, or there is no randomness.
    pub fn create(path: &Path) -> Result<(), ClusterError> {
        let mut bytes = [0_u8; 32];
        fill_random(&mut bytes)?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(ClusterError::file(path))?;
        writeln!(file, "{text}").map_err(ClusterError::file(path))
    }

    /// What the nodes share.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Random bytes from the system.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), ClusterError> {
    let read = |bytes: &mut [u8]| fs::File::open("/dev/urandom")?.read_exact(bytes);
    read(bytes).map_err(ClusterError::Random)
}
