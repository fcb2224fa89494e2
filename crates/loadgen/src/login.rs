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
    /// From a file as `-Y` takes it, `USER:PASSWORD` a line: the first line, or that of `user`.
    pub fn from_file(path: &Path, user: Option<&str>) -> Result<Self, LoadError> {
        let doing = format!("reading {}", path.display());
        let text = std::fs::read_to_string(path).map_err(LoadError::machine(doing))?;
        Self::parse(&text, user).ok_or_else(|| {
            let whom = user.map_or(String::new(), |user| format!(" of {user:?}"));
            let path = path.display();
            LoadError::Arguments(format!("{path} has no line USER:PASSWORD{whom}"))
        })
    }

    fn parse(text: &str, user: Option<&str>) -> Option<Self> {
        let lines = text.lines().filter_map(|line| {
            let (user, password) = line.split_once(':')?;
            Some(Self {
                user: user.into(),
                password: password.into(),
            })
        });
        let is_wanted = |login: &Self| user.is_none_or(|user| login.user == user);
        let is_whole = |login: &Self| !login.user.is_empty() && !login.password.is_empty();
        lines.filter(is_whole).find(is_wanted)
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
    fn a_login_is_the_first_line_or_that_of_its_user() {
        let text = "\nada:lovelace\nbyron:a:b\nempty:\n";
        let login = |user| Login::parse(text, user);
        let first = login(None).unwrap();
        assert_eq!(first.request(), b"set auth 0 0 12\r\nada lovelace\r\n");
        assert_eq!(login(Some("byron")).unwrap().password, "a:b");
        assert_eq!((login(Some("empty")), login(Some("x"))), (None, None));
        assert!(!format!("{first:?}").contains("lovelace"));
    }
}
