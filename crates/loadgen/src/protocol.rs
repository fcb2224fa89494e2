//! The three wire protocols, as much of them as a load driver needs: bytes of a GET and a SET, and
//! how long a reply is by its first line.
//!
//! A reply's first line says everything that counts: hit or miss, stored or refused, and how many
//! bytes follow. So replies are framed without looking at bodies.

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

use crate::workload::Kind;

/// The protocol to speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// memcached's classic text commands, `get` and `set`.
    Text,
    /// memcached's meta commands, `mg` and `ms`.
    Meta,
    /// Redis's protocol, `GET` and `SET`.
    Resp,
}

/// What a reply's first line said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reply {
    Hit { value_bytes: usize },
    Miss,
    Stored,
    Error,
}

/// The frame of the reply at the start of some bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Frame {
    /// The first line is not there yet.
    Incomplete,
    /// The whole reply has this many bytes, which may be more than are there.
    Reply { reply: Reply, bytes: usize },
}

impl Protocol {
    /// Appends a read of the key that `key` appends.
    pub(crate) fn put_get(
        self,
        key_bytes: usize,
        key: impl FnOnce(&mut Vec<u8>),
        output: &mut Vec<u8>,
    ) {
        match self {
            Self::Text => output.extend_from_slice(b"get "),
            Self::Meta => output.extend_from_slice(b"mg "),
            Self::Resp => {
                output.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$");
                put_number(key_bytes, output);
                output.extend_from_slice(b"\r\n");
            }
        }
        key(output);
        output.extend_from_slice(match self {
            Self::Meta => b" v\r\n",
            _ => b"\r\n",
        });
    }

    /// Appends a write of `value` under the key that `key` appends.
    pub(crate) fn put_set(
        self,
        key_bytes: usize,
        key: impl FnOnce(&mut Vec<u8>),
        value: &[u8],
        output: &mut Vec<u8>,
    ) {
        match self {
            Self::Text => output.extend_from_slice(b"set "),
            Self::Meta => output.extend_from_slice(b"ms "),
            Self::Resp => {
                output.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$");
                put_number(key_bytes, output);
                output.extend_from_slice(b"\r\n");
            }
        }
        key(output);
        output.extend_from_slice(match self {
            Self::Text => b" 0 0 ",
            Self::Meta => b" ",
            Self::Resp => b"\r\n$",
        });
        put_number(value.len(), output);
        output.extend_from_slice(b"\r\n");
        output.extend_from_slice(value);
        output.extend_from_slice(b"\r\n");
    }

    /// Length of the reply to a read that hits.
    pub(crate) fn hit_bytes(self, key_bytes: usize, value_bytes: usize) -> usize {
        let digits = value_bytes.max(1).ilog10() as usize + 1;
        match self {
            Self::Text => "VALUE  0 \r\n\r\nEND\r\n".len() + key_bytes + digits + value_bytes,
            Self::Meta => "VA \r\n\r\n".len() + digits + value_bytes,
            Self::Resp => "$\r\n\r\n".len() + digits + value_bytes,
        }
    }

    /// Length of the reply to a write that is stored.
    pub(crate) fn stored_bytes(self) -> usize {
        match self {
            Self::Text => "STORED\r\n".len(),
            Self::Meta => "HD\r\n".len(),
            Self::Resp => "+OK\r\n".len(),
        }
    }

    /// Frames the reply at the start of `input`. Anything that is not a good reply to `kind`
    /// counts as an error of one line.
    pub(crate) fn frame(self, kind: Kind, input: &[u8]) -> Frame {
        let Some(end) = memchr::memchr(b'\n', input) else {
            return Frame::Incomplete;
        };
        let line_bytes = end + 1;
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let (reply, body_bytes) = match kind {
            Kind::Get => self.get_reply(line),
            Kind::Set => (self.set_reply(line), 0),
        };
        Frame::Reply {
            reply,
            bytes: line_bytes + body_bytes,
        }
    }

    fn get_reply(self, line: &[u8]) -> (Reply, usize) {
        let (head, tail, miss): (&[u8], usize, &[u8]) = match self {
            Self::Text => (b"VALUE ", "\r\nEND\r\n".len(), b"END"),
            Self::Meta => (b"VA ", "\r\n".len(), b"EN"),
            Self::Resp => (b"$", "\r\n".len(), b"$-1"),
        };
        if line == miss {
            return (Reply::Miss, 0);
        }
        let length = line.strip_prefix(head).and_then(|rest| match self {
            // VALUE <key> <flags> <bytes>
            Self::Text => rest.rsplit(|&byte| byte == b' ').next().and_then(number),
            Self::Meta | Self::Resp => number(rest),
        });
        match length {
            Some(value_bytes) => (Reply::Hit { value_bytes }, value_bytes + tail),
            None => (Reply::Error, 0),
        }
    }

    fn set_reply(self, line: &[u8]) -> Reply {
        let stored: &[u8] = match self {
            Self::Text => b"STORED",
            Self::Meta => b"HD",
            Self::Resp => b"+OK",
        };
        if line == stored {
            Reply::Stored
        } else {
            Reply::Error
        }
    }
}

fn put_number(number: usize, output: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(output, "{number}");
}

/// A decimal number of at most nine digits, and nothing else.
fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0, |number, &byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + usize::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(protocol: Protocol, value: Option<&[u8]>) -> String {
        let mut output = Vec::new();
        let key = |output: &mut Vec<u8>| output.extend_from_slice(b"key");
        match value {
            None => protocol.put_get(3, key, &mut output),
            Some(value) => protocol.put_set(3, key, value, &mut output),
        }
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn requests_are_spelt_as_the_protocols_say() {
        use Protocol::{Meta, Resp, Text};
        assert_eq!(request(Text, None), "get key\r\n");
        assert_eq!(request(Meta, None), "mg key v\r\n");
        assert_eq!(request(Resp, None), "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
        assert_eq!(request(Text, Some(b"ab")), "set key 0 0 2\r\nab\r\n");
        assert_eq!(request(Meta, Some(b"ab")), "ms key 2\r\nab\r\n");
        assert_eq!(
            request(Resp, Some(b"ab")),
            "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$2\r\nab\r\n"
        );
    }

    /// Goal: a hit's length is known in advance and framed alike. Method: real replies.
    #[test]
    fn replies_are_framed_by_their_first_line() {
        let hits: [(Protocol, &[u8]); 3] = [
            (Protocol::Text, b"VALUE key 0 2\r\nab\r\nEND\r\n"),
            (Protocol::Meta, b"VA 2\r\nab\r\n"),
            (Protocol::Resp, b"$2\r\nab\r\n"),
        ];
        for (protocol, bytes) in hits {
            let whole = Frame::Reply {
                reply: Reply::Hit { value_bytes: 2 },
                bytes: bytes.len(),
            };
            assert_eq!(protocol.hit_bytes(3, 2), bytes.len());
            assert_eq!(protocol.frame(Kind::Get, bytes), whole);
            assert_eq!(protocol.frame(Kind::Get, &bytes[..bytes.len() - 3]), whole);
            assert_eq!(protocol.frame(Kind::Get, &bytes[..2]), Frame::Incomplete);
        }
    }

    #[test]
    fn misses_and_refusals_are_told_apart() {
        let frame = |protocol: Protocol, kind, bytes: &[u8]| match protocol.frame(kind, bytes) {
            Frame::Reply { reply, bytes: all } => (reply, all == bytes.len()),
            Frame::Incomplete => panic!("{bytes:?}"),
        };
        use Protocol::{Meta, Resp, Text};
        assert_eq!(frame(Text, Kind::Get, b"END\r\n"), (Reply::Miss, true));
        assert_eq!(frame(Meta, Kind::Get, b"EN\r\n"), (Reply::Miss, true));
        assert_eq!(frame(Resp, Kind::Get, b"$-1\r\n"), (Reply::Miss, true));
        assert_eq!(frame(Text, Kind::Set, b"STORED\r\n"), (Reply::Stored, true));
        assert_eq!(frame(Meta, Kind::Set, b"HD\r\n"), (Reply::Stored, true));
        assert_eq!(frame(Resp, Kind::Set, b"+OK\r\n"), (Reply::Stored, true));
        for bytes in [
            &b"SERVER_ERROR out of memory\r\n"[..],
            b"-ERR x\r\n",
            b"\r\n",
        ] {
            for protocol in [Text, Meta, Resp] {
                assert_eq!(frame(protocol, Kind::Get, bytes), (Reply::Error, true));
                assert_eq!(frame(protocol, Kind::Set, bytes), (Reply::Error, true));
            }
        }
    }
}
