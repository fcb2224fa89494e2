//! Names and passwords: the file that `-Y` names, read at the start and again on SIGHUP.
//!
//! One `name:password` a line, as memcached has it. A comparison takes the same time wherever the
//! difference is, and every entry is compared, so that timing tells nothing.

use std::{fs, io, path::Path};

use thiserror::Error;

use crate::limits::AUTH_FILE_BYTES_MAX;

/// Who may log in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Logins {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The file is of no use; the operator's to mend.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoginsError {
    /// It cannot be read.
    #[error("cannot read the login file: {0}")]
    File(io::Error),
    /// It is longer than any sensible one.
    #[error("the login file is longer than 64 KiB")]
    TooLong,
    /// This line (from 1) has no colon, or no name before it.
    #[error("line {0} of the login file is not name:password")]
    Line(usize),
    /// It names nobody.
    #[error("the login file has no logins")]
    Empty,
}

impl Logins {
    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, LoginsError> {
        let text = fs::read(path).map_err(LoginsError::File)?;
        Self::parse(&text)
    }

    fn parse(text: &[u8]) -> Result<Self, LoginsError> {
        if text.len() > AUTH_FILE_BYTES_MAX {
            return Err(LoginsError::TooLong);
        }
        let mut entries = Vec::new();
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|&byte| byte == b':');
            let (name, password) = colon
                .filter(|&colon| colon > 0)
                .and_then(|colon| line.split_at_checked(colon))
                .ok_or(LoginsError::Line(index + 1))?;
            let password = password.strip_prefix(b":").unwrap_or(password);
            entries.push((name.to_vec(), password.to_vec()));
        }
        if entries.is_empty() {
            return Err(LoginsError::Empty);
        }
        Ok(Self { entries })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether `user` may log in with `password`.
    pub(crate) fn accept(&self, user: &[u8], password: &[u8]) -> bool {
        self.entries.iter().fold(false, |accepted, (name, secret)| {
            accepted | (same(name, user) & same(secret, password))
        })
    }
}

/// Whether two strings are equal, in a time that depends on their lengths only.
fn same(known: &[u8], given: &[u8]) -> bool {
    let difference = known
        .iter()
        .zip(given)
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0 && known.len() == given.len()
}

/// How many logins the authentication file at `path` has: for checks before a start.
///
/// # Errors
/// What is wrong with the file.
pub fn count_logins(path: &Path) -> Result<usize, LoginsError> {
    Logins::read(path).map(|logins| logins.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_with_its_password_only() {
        let logins = Logins::parse(b"foo:bar\nbaaaz:qu:ux\r\n\n").unwrap();
        assert!(logins.accept(b"foo", b"bar"));
        assert!(logins.accept(b"baaaz", b"qu:ux"));
        assert!(!logins.accept(b"foo", b"qu:ux"));
        assert!(!logins.accept(b"foo", b"bab"));
        assert!(!logins.accept(b"foo", b""));
        assert!(!logins.accept(b"", b""));
    }

    #[test]
    fn a_bad_file_is_said_so() {
        assert!(matches!(Logins::parse(b"\n\n"), Err(LoginsError::Empty)));
        assert!(matches!(
            Logins::parse(b"a:b\nnothing\n"),
            Err(LoginsError::Line(2))
        ));
        assert!(matches!(Logins::parse(b":b\n"), Err(LoginsError::Line(1))));
        assert!(matches!(
            Logins::read(Path::new("/no/such/file")),
            Err(LoginsError::File(_))
        ));
    }
}
