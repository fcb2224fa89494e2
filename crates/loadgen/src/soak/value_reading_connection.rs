//! A blocking connection that reads memcached's text replies with their values.

use std::{io::Read, time::Duration};

use curtail_client::memcached;

use crate::error::LoadError;

/// One blocking connection.
#[derive(Debug)]
pub(crate) struct Connection {
    connection: memcached::Connection,
    line: Vec<u8>,
    /// The body of the last value read.
    pub(crate) body: Vec<u8>,
}

/// The head of a value that came back; its body is in [`Connection::body`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Found {
    pub(crate) flags: u32,
    pub(crate) token: u64,
}

/// A silent server is given up after this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// No value of a soak is longer.
const BODY_BYTES_MAX: usize = 128 << 20;

impl Connection {
    pub(crate) fn open(target: &str) -> Result<Self, LoadError> {
        let connection = memcached::Connection::to(target, PATIENCE);
        let doing = LoadError::network(format!("connecting to {target}"));
        Ok(Self {
            connection: connection.map_err(doing)?,
            line: Vec::new(),
            body: Vec::new(),
        })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        let sent = self.connection.send(bytes);
        sent.map_err(LoadError::network("sending"))
    }

    /// The next line without its end.
    pub(crate) fn line(&mut self) -> Result<&str, LoadError> {
        let read = self.connection.read_line(&mut self.line);
        read.map_err(LoadError::network("receiving"))?;
        let line = self.line.strip_suffix(b"\r\n");
        let text = line.and_then(|line| std::str::from_utf8(line).ok());
        text.ok_or_else(|| {
            let seen = self.line[..self.line.len().min(80)].escape_ascii();
            LoadError::Protocol(format!("\"{seen}\" is not a line"))
        })
    }

    /// The reply to a read of one key: text `get` or `gets`, or `mg <key> k f c v`. `None` is a
    /// miss.
    pub(crate) fn value(&mut self, key: &str) -> Result<Option<Found>, LoadError> {
        let Some((found, is_text)) = self.next_value(|found_key| found_key == key)? else {
            return Ok(None);
        };
        if is_text {
            match self.line()? {
                "END" => {}
                line => return Err(LoadError::Protocol(format!("{line:?} instead of END"))),
            }
        }
        Ok(Some(found))
    }

    /// The next value of a reply, if its key is expected; `None` at the reply's end. Also says
    /// whether an `END` is still to come.
    pub(crate) fn next_value(
        &mut self,
        mut is_expected: impl FnMut(&str) -> bool,
    ) -> Result<Option<(Found, bool)>, LoadError> {
        let line = self.line()?;
        if line == "END" || line == "EN" || line.starts_with("EN ") {
            return Ok(None);
        }
        let is_text = line.starts_with("VALUE ");
        let head = if is_text {
            text_head(line)
        } else {
            meta_head(line)
        };
        let head = head.filter(|(key, _, bytes)| *bytes <= BODY_BYTES_MAX && is_expected(key));
        let Some((_, found, bytes)) = head else {
            return Err(LoadError::Protocol(format!("{line:?} to a read")));
        };
        self.body.resize(bytes + 2, 0);
        self.connection
            .read_exact(&mut self.body)
            .map_err(LoadError::network("receiving a value"))?;
        if !self.body.ends_with(b"\r\n") {
            return Err(LoadError::Protocol("a value whose end is missing".into()));
        }
        self.body.truncate(bytes);
        Ok(Some((found, is_text)))
    }
}

/// `VALUE <key> <flags> <bytes> [<token>]`
fn text_head(line: &str) -> Option<(&str, Found, usize)> {
    let mut words = line.split(' ').skip(1);
    let key = words.next()?;
    let flags = words.next()?.parse().ok()?;
    let bytes = words.next()?.parse().ok()?;
    let token = words.next().map_or(Some(0), |word| word.parse().ok())?;
    Some((key, Found { flags, token }, bytes))
}

/// `VA <bytes> k<key> f<flags> c<token>`, the flags in any order.
fn meta_head(line: &str) -> Option<(&str, Found, usize)> {
    let mut words = line.strip_prefix("VA ")?.split(' ');
    let bytes = words.next()?.parse().ok()?;
    let (mut key, mut found) = (None, Found::default());
    for word in words {
        match word.split_at_checked(1)? {
            ("k", rest) => key = Some(rest),
            ("f", rest) => found.flags = rest.parse().ok()?,
            ("c", rest) => found.token = rest.parse().ok()?,
            _ => {}
        }
    }
    Some((key?, found, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_values_are_read_in_both_spellings() {
        let found = Found {
            flags: 7,
            token: 99,
        };
        assert_eq!(text_head("VALUE key 7 12 99"), Some(("key", found, 12)));
        assert_eq!(meta_head("VA 12 kkey f7 c99"), Some(("key", found, 12)));
        assert_eq!(text_head("VALUE key 7").map(|head| head.2), None);
        assert_eq!(
            text_head("VALUE key 7 12").map(|head| head.1.token),
            Some(0)
        );
        assert_eq!(meta_head("VA 12 f7").map(|head| head.2), None);
    }
}
