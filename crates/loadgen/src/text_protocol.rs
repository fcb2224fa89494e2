//! The text protocols, as much of them as a load driver needs: the bytes of a request, and
//! what a reply is and how long, by its first line.
//!
//! A reply's first line says everything that counts: hit or miss, done or refused, and how many
//! bytes follow. So replies are framed without looking at bodies.

use clap::ValueEnum;
use curtail_workload::Kind;
use serde::Serialize;

use crate::request_source::Request;

/// The protocol to speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// memcached's classic text commands, `get` and `set`.
    Text,
    /// memcached's meta commands, `mg` and `ms`.
    #[value(alias = "memcached")]
    Meta,
    /// Redis's protocol, `GET` and `SET`.
    Resp,
    /// curtail's native protocol.
    // Requests of this protocol are commands of the client library, which encodes them.
    Native,
}

/// What a reply's first line said.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reply {
    /// A read found its key; the token is 0 unless it was asked for.
    Hit { value_bytes: usize, token: u64 },
    /// A read did not.
    Miss,
    /// A change was made.
    Done,
    /// A change was not made, as the protocol foresees: not found, exists already.
    Refused,
    /// Anything that is not a good reply to the request.
    Error,
}

/// The frame of the reply at the start of some bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Frame {
    /// The first line is not there yet.
    Incomplete,
    /// The first line has `line_bytes`, and `body_bytes`, which may be more than are there, follow.
    Reply {
        reply: Reply,
        line_bytes: usize,
        body_bytes: usize,
    },
}

/// memcached takes a longer time to live for a date, so the longest is 30 days.
pub(crate) const TTL_S_MAX: u32 = 30 * 86_400;

/// A reply that announces a longer value announces nonsense: no protocol stores one.
const VALUE_BYTES_MAX: usize = u32::MAX as usize;

impl Protocol {
    /// Whether the protocol has this request.
    pub(crate) fn has(self, verb: Kind) -> bool {
        !(matches!(self, Self::Resp) && matches!(verb, Kind::Gets | Kind::Cas | Kind::Prepend))
    }

    /// Appends a request; `key` and `value` append exactly the bytes announced. `token` is what a
    /// read with [`Kind::Gets`] gave, for [`Kind::Cas`].
    pub(crate) fn put(
        self,
        request: &Request,
        token: u64,
        key: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
        output: &mut Vec<u8>,
    ) {
        match self {
            Self::Text => put_text(request, token, key, output),
            Self::Meta => put_meta(request, token, key, output),
            Self::Resp => return put_resp(request, key, value, output),
            Self::Native => return,
        }
        output.extend_from_slice(b"\r\n");
        if request.verb.has_value() {
            value(output);
            output.extend_from_slice(b"\r\n");
        }
    }

    /// Length of the reply if a read hits and a change is made; `None` where it cannot be known.
    pub(crate) fn expected_bytes(self, request: &Request) -> Option<usize> {
        let digits = request.value_bytes.max(1).ilog10() as usize + 1;
        let hit = |head: &str| head.len() + digits + request.value_bytes as usize;
        Some(match (self, request.verb) {
            (Self::Text, Kind::Get) => {
                hit("VALUE  0 \r\n\r\nEND\r\n") + usize::from(request.key_bytes)
            }
            (Self::Meta, Kind::Get) => hit("VA \r\n\r\n"),
            (Self::Resp, Kind::Get) => hit("$\r\n\r\n"),
            (_, Kind::Gets) | (Self::Native, _) => return None,
            (Self::Text, Kind::Delete) => "DELETED\r\n".len(),
            (Self::Resp, Kind::Delete) => ":1\r\n".len(),
            (Self::Text | Self::Resp, Kind::Increment | Kind::Decrement) => return None,
            (Self::Resp, Kind::Append) => return None,
            (Self::Text, _) => "STORED\r\n".len(),
            (Self::Meta, _) => "HD\r\n".len(),
            (Self::Resp, _) => "+OK\r\n".len(),
        })
    }

    /// Frames the reply at the start of `input`. Anything that is not a good reply to `verb`
    /// counts as an error of one line.
    pub(crate) fn frame(self, verb: Kind, input: &[u8]) -> Frame {
        let Some(end) = memchr::memchr(b'\n', input) else {
            return Frame::Incomplete;
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let (reply, body_bytes) = if !verb.is_write() {
            self.read_reply(verb, line)
        } else {
            (self.change_reply(verb, line), 0)
        };
        Frame::Reply {
            reply,
            line_bytes: end + 1,
            body_bytes,
        }
    }

    fn read_reply(self, verb: Kind, line: &[u8]) -> (Reply, usize) {
        let (head, tail_bytes, miss): (&[u8], usize, &[u8]) = match self {
            Self::Text => (b"VALUE ", "\r\nEND\r\n".len(), b"END"),
            Self::Meta => (b"VA ", "\r\n".len(), b"EN"),
            Self::Resp | Self::Native => (b"$", "\r\n".len(), b"$-1"),
        };
        if line == miss {
            return (Reply::Miss, 0);
        }
        let rest = line.strip_prefix(head);
        match rest.and_then(|rest| self.hit(verb == Kind::Gets, rest)) {
            Some((value_bytes, token)) if value_bytes <= VALUE_BYTES_MAX => {
                let hit = Reply::Hit { value_bytes, token };
                (hit, value_bytes + tail_bytes)
            }
            _ => (Reply::Error, 0),
        }
    }

    /// Length and token of a hit, from what follows its first word.
    fn hit(self, with_token: bool, rest: &[u8]) -> Option<(usize, u64)> {
        let mut words = rest.rsplit(|&byte| byte == b' ');
        match (self, with_token) {
            // VALUE <key> <flags> <bytes> [<token>]
            (Self::Text, true) => {
                let token = number(words.next()?)? as u64;
                Some((number(words.next()?)?, token))
            }
            (Self::Text, false) => Some((number(words.next()?)?, 0)),
            // VA <bytes> [c<token>]
            (Self::Meta, true) => {
                let token = words.next()?.strip_prefix(b"c")?;
                Some((number(words.next()?)?, number(token)? as u64))
            }
            (Self::Meta, false) | (Self::Resp | Self::Native, _) => Some((number(rest)?, 0)),
        }
    }

    fn change_reply(self, verb: Kind, line: &[u8]) -> Reply {
        let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let (done, refused): (bool, &[&[u8]]) = match self {
            Self::Text => {
                let done = match verb {
                    Kind::Delete => line == b"DELETED",
                    Kind::Increment | Kind::Decrement => is_number(line.trim_ascii_end()),
                    _ => line == b"STORED",
                };
                (done, &[b"NOT_STORED", b"EXISTS", b"NOT_FOUND"])
            }
            Self::Meta => (line == b"HD", &[b"NS", b"EX", b"NF"]),
            Self::Resp | Self::Native => {
                let count = line.strip_prefix(b":").unwrap_or(b"");
                let count = count.strip_prefix(b"-").unwrap_or(count);
                let done = match verb {
                    Kind::Delete => line == b":1",
                    Kind::Increment | Kind::Decrement | Kind::Append => is_number(count),
                    _ => line == b"+OK",
                };
                (done, &[b"$-1", b"_", b":0"])
            }
        };
        match (done, refused.contains(&line)) {
            (true, _) => Reply::Done,
            (false, true) => Reply::Refused,
            (false, false) => Reply::Error,
        }
    }
}

fn put_text(request: &Request, token: u64, key: impl FnOnce(&mut Vec<u8>), output: &mut Vec<u8>) {
    output.extend_from_slice(request.verb.name().as_bytes());
    output.push(b' ');
    key(output);
    if request.verb.has_value() {
        output.extend_from_slice(b" 0 ");
        put_number(u64::from(request.ttl_s.min(TTL_S_MAX)), output);
        output.push(b' ');
        put_number(request.value_bytes.into(), output);
    }
    if request.verb == Kind::Cas {
        output.push(b' ');
        put_number(token, output);
    }
    if request.verb.is_count() {
        output.extend_from_slice(b" 1");
    }
}

fn put_meta(request: &Request, token: u64, key: impl FnOnce(&mut Vec<u8>), output: &mut Vec<u8>) {
    output.extend_from_slice(match request.verb {
        Kind::Get | Kind::Gets => b"mg ",
        Kind::Delete => b"md ",
        Kind::Increment | Kind::Decrement => b"ma ",
        _ => b"ms ",
    });
    key(output);
    if request.verb.has_value() {
        output.push(b' ');
        put_number(request.value_bytes.into(), output);
        if request.ttl_s > 0 {
            output.extend_from_slice(b" T");
            put_number(u64::from(request.ttl_s.min(TTL_S_MAX)), output);
        }
    }
    let flags: &[u8] = match request.verb {
        Kind::Get => b" v",
        Kind::Gets => b" v c",
        Kind::Add => b" ME",
        Kind::Replace => b" MR",
        Kind::Append => b" MA",
        Kind::Prepend => b" MP",
        Kind::Cas => b" C",
        // A counter that is not there begins at 0 and lives for ever.
        Kind::Increment => b" N0 J0",
        Kind::Decrement => b" N0 J0 MD",
        _ => b"",
    };
    output.extend_from_slice(flags);
    if request.verb == Kind::Cas {
        put_number(token, output);
    }
}

fn put_resp(
    request: &Request,
    key: impl FnOnce(&mut Vec<u8>),
    value: impl FnOnce(&mut Vec<u8>),
    output: &mut Vec<u8>,
) {
    let (name, condition): (&[u8], &[u8]) = match request.verb {
        Kind::Get | Kind::Gets => (b"GET", b""),
        Kind::Add => (b"SET", b"NX"),
        Kind::Replace => (b"SET", b"XX"),
        Kind::Append => (b"APPEND", b""),
        Kind::Delete => (b"DEL", b""),
        Kind::Increment => (b"INCR", b""),
        Kind::Decrement => (b"DECR", b""),
        _ => (b"SET", b""),
    };
    let stores = request.verb.has_value();
    let expires = stores && request.ttl_s > 0 && request.verb != Kind::Append;
    let words = 2 + usize::from(stores) + 2 * usize::from(expires);
    output.push(b'*');
    put_number((words + usize::from(!condition.is_empty())) as u64, output);
    output.extend_from_slice(b"\r\n");
    put_bulk(name, output);
    put_bulk_head(request.key_bytes.into(), output);
    key(output);
    output.extend_from_slice(b"\r\n");
    if stores {
        put_bulk_head(request.value_bytes as usize, output);
        value(output);
        output.extend_from_slice(b"\r\n");
    }
    if expires {
        put_bulk(b"EX", output);
        put_bulk(itoa::Buffer::new().format(request.ttl_s).as_bytes(), output);
    }
    if !condition.is_empty() {
        put_bulk(condition, output);
    }
}

fn put_bulk(bytes: &[u8], output: &mut Vec<u8>) {
    put_bulk_head(bytes.len(), output);
    output.extend_from_slice(bytes);
    output.extend_from_slice(b"\r\n");
}

fn put_bulk_head(bytes: usize, output: &mut Vec<u8>) {
    output.push(b'$');
    put_number(bytes as u64, output);
    output.extend_from_slice(b"\r\n");
}

fn put_number(number: u64, output: &mut Vec<u8>) {
    output.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Decimal digits and nothing else; a number that no 64 bits hold is none.
fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_usize, |number, &byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Protocol::{Meta, Resp, Text};

    fn request(protocol: Protocol, verb: Kind, ttl_s: u32) -> String {
        let request = Request::new(verb, 0, (3, 2, ttl_s));
        let mut output = Vec::new();
        let key = |output: &mut Vec<u8>| output.extend_from_slice(b"key");
        let value = |output: &mut Vec<u8>| output.extend_from_slice(b"ab");
        protocol.put(&request, 9, key, value, &mut output);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn requests_are_spelt_as_the_protocols_say() {
        let cases = [
            (Text, Kind::Get, "get key\r\n"),
            (Meta, Kind::Get, "mg key v\r\n"),
            (Resp, Kind::Get, "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"),
            (Text, Kind::Set, "set key 0 0 2\r\nab\r\n"),
            (Meta, Kind::Set, "ms key 2\r\nab\r\n"),
            (
                Resp,
                Kind::Set,
                "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$2\r\nab\r\n",
            ),
            (Text, Kind::Gets, "gets key\r\n"),
            (Meta, Kind::Gets, "mg key v c\r\n"),
            (Text, Kind::Cas, "cas key 0 0 2 9\r\nab\r\n"),
            (Meta, Kind::Cas, "ms key 2 C9\r\nab\r\n"),
            (Meta, Kind::Append, "ms key 2 MA\r\nab\r\n"),
            (Text, Kind::Delete, "delete key\r\n"),
            (Meta, Kind::Delete, "md key\r\n"),
            (Resp, Kind::Delete, "*2\r\n$3\r\nDEL\r\n$3\r\nkey\r\n"),
            (Text, Kind::Increment, "incr key 1\r\n"),
            (Meta, Kind::Decrement, "ma key N0 J0 MD\r\n"),
        ];
        for (protocol, verb, expected) in cases {
            assert_eq!(request(protocol, verb, 0), expected);
        }
        assert_eq!(request(Text, Kind::Add, 60), "add key 0 60 2\r\nab\r\n");
        assert_eq!(
            request(Meta, Kind::Set, 99_999_999),
            "ms key 2 T2592000\r\nab\r\n"
        );
        let conditional =
            "*6\r\n$3\r\nSET\r\n$3\r\nkey\r\n$2\r\nab\r\n$2\r\nEX\r\n$2\r\n60\r\n$2\r\nNX\r\n";
        assert_eq!(request(Resp, Kind::Add, 60), conditional);
    }

    /// Goal: a hit's length is known in advance and framed alike. Method: real replies.
    #[test]
    fn replies_are_framed_by_their_first_line() {
        let hits: [(Protocol, &[u8]); 3] = [
            (Text, b"VALUE key 0 2\r\nab\r\nEND\r\n"),
            (Meta, b"VA 2\r\nab\r\n"),
            (Resp, b"$2\r\nab\r\n"),
        ];
        for (protocol, bytes) in hits {
            let (value_bytes, token) = (2, 0);
            let line_bytes = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
            let whole = Frame::Reply {
                reply: Reply::Hit { value_bytes, token },
                line_bytes,
                body_bytes: bytes.len() - line_bytes,
            };
            let request = Request::new(Kind::Get, 0, (3, value_bytes as u32, 0));
            assert_eq!(protocol.expected_bytes(&request), Some(bytes.len()));
            assert_eq!(protocol.frame(Kind::Get, bytes), whole);
            assert_eq!(protocol.frame(Kind::Get, &bytes[..bytes.len() - 3]), whole);
            assert_eq!(protocol.frame(Kind::Get, &bytes[..2]), Frame::Incomplete);
        }
    }

    fn reply(protocol: Protocol, verb: Kind, bytes: &[u8]) -> (Reply, bool) {
        match protocol.frame(verb, bytes) {
            Frame::Reply {
                reply,
                line_bytes,
                body_bytes,
            } => (reply, line_bytes + body_bytes == bytes.len()),
            Frame::Incomplete => panic!("{bytes:?}"),
        }
    }

    /// Goal: a length that nothing can have is an error of one line, and overflows nothing.
    #[test]
    fn impossible_lengths_are_errors() {
        for length in [u64::from(u32::MAX) + 1, u64::MAX - 1, u64::MAX] {
            for (protocol, line) in [
                (Text, format!("VALUE key 0 {length}\r\n")),
                (Meta, format!("VA {length}\r\n")),
                (Resp, format!("${length}\r\n")),
            ] {
                let framed = reply(protocol, Kind::Get, line.as_bytes());
                assert_eq!(framed, (Reply::Error, true), "{line}");
            }
        }
    }

    #[test]
    fn misses_and_refusals_are_told_apart() {
        let cases: [(Protocol, Kind, &[u8], Reply); 13] = [
            (Text, Kind::Get, b"END\r\n", Reply::Miss),
            (Meta, Kind::Get, b"EN\r\n", Reply::Miss),
            (Resp, Kind::Get, b"$-1\r\n", Reply::Miss),
            (Text, Kind::Set, b"STORED\r\n", Reply::Done),
            (Meta, Kind::Set, b"HD\r\n", Reply::Done),
            (Resp, Kind::Set, b"+OK\r\n", Reply::Done),
            (Text, Kind::Add, b"NOT_STORED\r\n", Reply::Refused),
            (Meta, Kind::Cas, b"EX\r\n", Reply::Refused),
            (Text, Kind::Delete, b"DELETED\r\n", Reply::Done),
            (Resp, Kind::Delete, b":0\r\n", Reply::Refused),
            (Text, Kind::Increment, b"17\r\n", Reply::Done),
            (Resp, Kind::Decrement, b":-3\r\n", Reply::Done),
            (Text, Kind::Delete, b"17\r\n", Reply::Error),
        ];
        for (protocol, verb, bytes, expected) in cases {
            assert_eq!(reply(protocol, verb, bytes), (expected, true), "{bytes:?}");
        }
        for bytes in [
            &b"SERVER_ERROR out of memory\r\n"[..],
            b"-ERR x\r\n",
            b"\r\n",
        ] {
            for protocol in [Text, Meta, Resp] {
                assert_eq!(reply(protocol, Kind::Get, bytes), (Reply::Error, true));
                assert_eq!(reply(protocol, Kind::Set, bytes), (Reply::Error, true));
            }
        }
    }

    #[test]
    fn tokens_are_read() {
        let (value_bytes, token) = (2, 77);
        let hit = (Reply::Hit { value_bytes, token }, true);
        let text = b"VALUE key 0 2 77\r\nab\r\nEND\r\n";
        assert_eq!(reply(Text, Kind::Gets, text), hit);
        assert_eq!(reply(Meta, Kind::Gets, b"VA 2 c77\r\nab\r\n"), hit);
    }
}
