//! One line of the log, as text or as JSON.
//!
//! A line is one line whatever its values contain: control characters are escaped, and
//! a text in it is cut at [`TEXT_BYTES_MAX`] bytes. Both forms are made from the same parts.

use std::{
    fmt::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use curtail_types::date;
use tracing::{
    Level,
    field::{Field, Visit},
};

use crate::log::LogFormat;

/// Who tells, when, and how important it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) time: SystemTime,
    pub(super) level: Level,
    pub(super) component: &'static str,
}

/// What an event says.
#[derive(Debug, Default)]
pub(super) struct Fields {
    message: String,
    named: Vec<(&'static str, Value)>,
}

#[derive(Debug)]
enum Value {
    Text(String),
    /// A number or a truth value, spelled as both forms have it.
    Plain(String),
}

/// A longer text is cut.
const TEXT_BYTES_MAX: usize = 4096;

/// The line of an event, with its end.
pub(super) fn line(format: LogFormat, head: Head, fields: &Fields) -> Vec<u8> {
    let mut line = match format {
        LogFormat::Text => text(head, fields),
        LogFormat::Json => json(head, fields),
    };
    line.push('\n');
    line.into_bytes()
}

fn text(head: Head, fields: &Fields) -> String {
    let mut line = String::with_capacity(128 + fields.message.len());
    push_time(&mut line, head.time);
    // Writing to a string cannot fail, here and below.
    let _ = write!(line, " {:<5} {}: ", head.level.as_str(), head.component);
    push_escaped(&mut line, &fields.message);
    for (name, value) in &fields.named {
        let _ = write!(line, " {name}=");
        match value {
            Value::Plain(value) => line.push_str(value),
            Value::Text(value) if is_word(value) => line.push_str(value),
            Value::Text(value) => _ = write!(line, "{value:?}"),
        }
    }
    line
}

fn json(head: Head, fields: &Fields) -> String {
    let mut line = String::with_capacity(192 + fields.message.len());
    line.push_str("{\"time\":\"");
    push_time(&mut line, head.time);
    let level = head.level.as_str().to_ascii_lowercase();
    let _ = write!(line, "\",\"level\":\"{level}\",\"component\":");
    push_json(&mut line, head.component);
    line.push_str(",\"message\":");
    push_json(&mut line, &fields.message);
    for (name, value) in &fields.named {
        line.push(',');
        push_json(&mut line, name);
        line.push(':');
        match value {
            Value::Plain(value) => line.push_str(value),
            Value::Text(value) => push_json(&mut line, value),
        }
    }
    line.push('}');
    line
}

/// Whether a value needs no quotes among other words.
fn is_word(value: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '"' | '=' | '\\');
    !value.is_empty() && value.chars().all(plain)
}

fn push_escaped(line: &mut String, text: &str) {
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
}

/// A string of JSON (RFC 8259, section 7).
fn push_json(line: &mut String, text: &str) {
    line.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => line.extend(['\\', letter]),
            '\n' => line.push_str("\\n"),
            _ if letter.is_control() => _ = write!(line, "\\u{:04x}", u32::from(letter)),
            _ => line.push(letter),
        }
    }
    line.push('"');
}

/// RFC 3339, in UTC, with microseconds.
fn push_time(line: &mut String, time: SystemTime) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, us) = (since.as_secs(), since.subsec_micros());
    let (year, month, day) = date(seconds / 86_400);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let _ = write!(
        line,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{us:06}Z"
    );
}

impl Fields {
    /// A message alone.
    pub(super) fn of(message: String) -> Self {
        Self {
            message,
            named: Vec::new(),
        }
    }

    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::Text(text) | Value::Plain(text)) => self.message = text,
            (name, value) => self.named.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let end = value.floor_char_boundary(TEXT_BYTES_MAX);
        let text = value.get(..end).unwrap_or_default().to_owned();
        self.add(field, Value::Text(text));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Plain(value.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn head(seconds: u64) -> Head {
        Head {
            time: UNIX_EPOCH + Duration::new(seconds, 1000),
            level: Level::WARN,
            component: "auth",
        }
    }

    fn fields() -> Fields {
        let text = |text: &str| Value::Text(text.to_owned());
        Fields {
            message: "refused\r\n\"x\"".to_owned(),
            named: vec![
                ("peer", text("tcp:[::1]:7")),
                ("why", text("no \"name\"\u{7}")),
                ("suppressed", Value::Plain("3".to_owned())),
            ],
        }
    }

    /// Goal: what a peer sends makes no second line and no false field. Method: line ends, quotes
    /// and a bell in a message and in a value, in both forms.
    #[test]
    fn a_line_is_one_line_in_both_forms() {
        let line = |format| String::from_utf8(line(format, head(0), &fields())).unwrap();
        assert_eq!(
            line(LogFormat::Text),
            "1970-01-01T00:00:00.000001Z WARN  auth: refused\\r\\n\"x\" peer=tcp:[::1]:7 \
             why=\"no \\\"name\\\"\\u{7}\" suppressed=3\n"
        );
        let json: serde_json::Value = serde_json::from_str(&line(LogFormat::Json)).unwrap();
        assert_eq!(json["level"], "warn");
        assert_eq!(json["message"], "refused\r\n\"x\"");
        assert_eq!(json["why"], "no \"name\"\u{7}");
        assert_eq!(json["suppressed"], 3);
        assert_eq!(line(LogFormat::Json).matches('\n').count(), 1);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, wanted) in [
            (951_782_399, "2000-02-28T23:59:59.000001Z"),
            (951_782_400, "2000-02-29T00:00:00.000001Z"),
            (951_868_800, "2000-03-01T00:00:00.000001Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000001Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000001Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000001Z"),
        ] {
            let mut line = String::new();
            push_time(&mut line, head(seconds).time);
            assert_eq!(line, wanted);
        }
    }
}
