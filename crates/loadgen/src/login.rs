//! Who asks, where a server lets in only whom it knows (`-Y`).
//!
//! memcached's text protocol logs in by a `set` whose value is `USER PASSWORD`, first on every
//! connection; the meta commands are spoken over the same connections afterwards. The password
//! comes from a file, never from the command line, where everybody on the machine could read it.

use std::{fmt, path::Path};

use crate::error::LoadError;

/// A name and its password.
#[derive(Clone, Eq, PartialEq)]
pub struct Login {
    user: String,
    password: String,
}

impl Login {
    /// The password is the first line of the file, as `curtail top` takes it.
    pub fn from_file(user: &str, path: &Path) -> Result<Self, LoadError> {
        let doing = format!("reading {}", path.display());
        let text = std::fs::read_to_string(path).map_err(LoadError::machine(doing))?;
        Self::parse(user, &text).ok_or_else(|| {
            let path = path.display();
            LoadError::Arguments(format!("{path} has no password in its first line"))
        })
    }

    fn parse(user: &str, text: &str) -> Option<Self> {
        let password = text.lines().next().filter(|line| !line.is_empty())?;
        Some(Self {
            user: user.into(),
            password: password.into(),
        })
    }

    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    /// The bytes that log in; the key may be any.
    pub(crate) fn request(&self) -> Vec<u8> {
        let Self { user, password } = self;
        let bytes = user.len() + 1 + password.len();
        format!("set auth 0 0 {bytes}\r\n{user} {password}\r\n").into_bytes()
    }
}

/// A plan that is printed does not show the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_the_first_line_and_is_never_shown() {
        let login = Login::parse("ada", "lovelace\r\nmore").unwrap();
        assert_eq!(login.request(), b"set auth 0 0 12\r\nada lovelace\r\n");
        assert_eq!(Login::parse("ada", "\nlate"), None);
        assert!(!format!("{login:?}").contains("lovelace"));
    }
}
