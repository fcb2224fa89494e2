//! Lines of `stats`: `STAT <name> <value>`.

use core::fmt::{Arguments, Write};

use super::Sink;

/// The most bytes that a line of `stats` may have. Names and values are the server's own and far
/// shorter; the path of a socket or of a file is the longest that occurs.
pub const STAT_BYTES_MAX: usize = 1024;

/// A line with a number.
pub fn stat_number(sink: &mut Sink<'_>, name: &str, value: u64) {
    begin(sink, name);
    sink.push_number(value);
    sink.push(b"\r\n");
}

/// A line with a text.
pub fn stat_text(sink: &mut Sink<'_>, name: &str, value: &str) {
    begin(sink, name);
    sink.push(value.as_bytes());
    sink.push(b"\r\n");
}

/// A line with whatever `format_args!` makes, of name and value both.
pub fn stat(sink: &mut Sink<'_>, name: Arguments<'_>, value: Arguments<'_>) {
    // An error here means that the room did not suffice, which the sink remembers.
    let _ = write!(sink, "STAT {name} {value}\r\n");
}

fn begin(sink: &mut Sink<'_>, name: &str) {
    sink.push(b"STAT ");
    sink.push(name.as_bytes());
    sink.push(b" ");
}
