//! Dialogues with the codec as text files that a person can check.
//!
//! In `tests/scenarios/*.txt` a line begins with
//!
//! ```text
//! #  a comment
//! *  options, for what follows: `value_max=N inline_max=N`, `login`
//! =  what the store will say to the next request that asks it
//! >  bytes that arrive; escapes as in Rust, and {x*250} for 250 times x
//! .  what they were decoded to, or how many bytes are missing
//! <  the reply
//! !  the reply to what was malformed
//! ```
//!
//! The last three are what this test computes and compares. `BLESS=1 cargo test -p curtail-codec`
//! writes them into the files, to be read before they are committed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a script that makes no sense fails the test"
)]

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::{env, fmt, fs};

use curtail_codec::memcached::{
    Admin, BodyEnd, BodyEndState, Decoded, Decoder, Form, Limits, Meta, Request, SetHeader, Sink,
    WireKey, encode,
};
use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, DeleteOutcome, Get, ItemStatus, Operation, Set,
    SetOutcome,
};

#[test]
fn conversations_go_as_written() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let written = fs::read_to_string(&path).unwrap();
        let spoken = Conversation::play(&written);
        if env::var_os("BLESS").is_some() {
            fs::write(&path, &spoken).unwrap();
        } else {
            assert_eq!(written, spoken, "{}", path.display());
        }
        count += 1;
    }
    assert!(count > 0, "there are scenarios");
}

struct Conversation {
    decoder: Decoder,
    limits: Limits,
    outcomes: VecDeque<String>,
    input: Vec<u8>,
    transcript: String,
}

impl Conversation {
    fn play(script: &str) -> String {
        let mut conversation = Self {
            decoder: Decoder::new(false),
            limits: Limits {
                value_bytes_max: 1 << 20,
                inline_value_bytes_max: 4096,
            },
            outcomes: VecDeque::new(),
            input: Vec::new(),
            transcript: String::new(),
        };
        for line in script.lines() {
            if !line.starts_with(['.', '<', '!']) {
                conversation.say(line);
                conversation.hear(line);
            }
        }
        assert!(conversation.outcomes.is_empty(), "the store was not asked");
        conversation.transcript
    }

    fn say(&mut self, line: &str) {
        self.transcript.push_str(line);
        self.transcript.push('\n');
    }

    fn hear(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("*", options)) => self.set_options(options),
            Some(("=", outcome)) => self.outcomes.push_back(outcome.to_owned()),
            Some((">", bytes)) => {
                self.input.extend(unescape(bytes));
                while self.step() {}
            }
            _ => assert!(line.is_empty() || line.starts_with('#'), "{line}"),
        }
    }

    fn set_options(&mut self, options: &str) {
        *self = Self {
            decoder: Decoder::new(options.contains("login")),
            input: Vec::new(),
            transcript: std::mem::take(&mut self.transcript),
            outcomes: VecDeque::new(),
            limits: Limits {
                value_bytes_max: number(options, "value_max").unwrap_or(1 << 20) as u32,
                inline_value_bytes_max: number(options, "inline_max").unwrap_or(4096) as u32,
            },
        };
    }

    /// Decodes once; false when more input is needed.
    fn step(&mut self) -> bool {
        if self.input.is_empty() {
            return false;
        }
        let input = self.input.clone();
        match self.decoder.decode(&input, &self.limits) {
            Decoded::Complete { request, consumed } => {
                self.input.drain(..consumed);
                self.say(&format!(". {}", describe(&request)));
                self.answer(&request);
                true
            }
            Decoded::Incomplete { consumed, needed } => {
                self.input.drain(..consumed);
                let missing = needed - self.input.len();
                self.say(&format!(". {missing} more"));
                false
            }
            Decoded::Malformed {
                reply,
                consumed,
                close,
            } => {
                self.input.drain(..consumed);
                let end = if close { " and close" } else { "" };
                self.say(format!("! {}{end}", reply.escape_ascii()).trim_end());
                if close {
                    self.input.clear();
                }
                !close
            }
        }
    }

    fn answer(&mut self, request: &Request<'_>) {
        let mut buffer = [0; 2048];
        let mut sink = Sink::new(&mut buffer);
        match request {
            Request::Item {
                key,
                operation,
                form,
                ..
            } => self.reply(&mut sink, key, operation, form),
            Request::SetHeader(header) => {
                let (key, form) = (&header.key, &header.form);
                let value_bytes = header.value_bytes as usize;
                let body: Vec<u8> = self.input.drain(..value_bytes).collect();
                assert_eq!(body.len(), value_bytes);
                let (taken, state) = BodyEnd::default().feed(&self.input);
                self.input.drain(..taken);
                if state == BodyEndState::Right {
                    self.reply(&mut sink, key, &Operation::Set(header.set), form);
                } else {
                    encode::bad_data_chunk(&mut sink, form);
                }
            }
            Request::SetTooLarge(SetHeader { key, form, .. }) => {
                encode::set(&mut sink, key, form, SetOutcome::TooLarge);
            }
            Request::EndOfKeys { refusal: None } => encode::end(&mut sink),
            Request::EndOfKeys {
                refusal: Some(refusal),
            } => encode::error(&mut sink, *refusal),
            Request::Noop => encode::noop(&mut sink),
            Request::Authenticate { user, password } => {
                if (*user, *password) == (b"foo", b"bar") {
                    self.decoder.authenticated();
                    encode::authenticated(&mut sink);
                } else {
                    encode::error(&mut sink, encode::Refusal::LoginFailed);
                }
            }
            Request::Admin(admin) => administrate(&mut sink, admin),
        }
        if !sink.is_empty() {
            let reply = format!("< {}", sink.written().escape_ascii());
            self.say(&reply);
        }
    }

    fn reply(
        &mut self,
        sink: &mut Sink<'_>,
        key: &WireKey<'_>,
        operation: &Operation,
        form: &Form<'_>,
    ) {
        let outcome = self.outcomes.pop_front().unwrap_or_default();
        match operation {
            Operation::Get(_) => match hit(&outcome) {
                Some((value, status)) => {
                    if encode::hit(sink, key, form, &status) {
                        sink.push(&value);
                        encode::value_end(sink, form);
                    }
                }
                None => encode::miss(sink, key, form),
            },
            Operation::Set(_) => encode::set(sink, key, form, set_outcome(&outcome)),
            Operation::Delete(_) => {
                let outcome = match outcome.as_str() {
                    "" | "deleted" => DeleteOutcome::Deleted,
                    "not_found" => DeleteOutcome::NotFound,
                    "exists" => DeleteOutcome::Exists,
                    "out_of_memory" => DeleteOutcome::OutOfMemory,
                    other => panic!("{other} is not an outcome of a delete"),
                };
                encode::delete(sink, key, form, outcome);
            }
            Operation::Arithmetic(_) => {
                encode::arithmetic(sink, key, form, &arithmetic_outcome(&outcome));
            }
        }
    }
}

/// `hit <value> [flags=N] [cas=N] [ttl=N] [idle=N] [fetched] [won] [stale] [contended]`
fn hit(outcome: &str) -> Option<(Vec<u8>, ItemStatus)> {
    let rest = outcome.strip_prefix("hit")?;
    let value = unescape(rest.split_whitespace().next().unwrap_or_default());
    let status = ItemStatus {
        flags: number(rest, "flags").unwrap_or_default() as u32,
        cas: Cas(number(rest, "cas").unwrap_or_default()),
        value_bytes: value.len() as u32,
        ttl_seconds: number(rest, "ttl").map(|ttl| ttl as u32),
        idle_seconds: number(rest, "idle").unwrap_or_default() as u32,
        fetched: rest.contains("fetched"),
        won: rest.contains("won"),
        stale: rest.contains("stale"),
        contended: rest.contains("contended"),
    };
    Some((value, status))
}

fn set_outcome(outcome: &str) -> SetOutcome {
    match outcome {
        "" => SetOutcome::Stored(Cas(7)),
        "not_stored" => SetOutcome::NotStored,
        "exists" => SetOutcome::Exists,
        "not_found" => SetOutcome::NotFound,
        "too_large" => SetOutcome::TooLarge,
        "out_of_memory" => SetOutcome::OutOfMemory,
        other => panic!("{other} is not an outcome of a write"),
    }
}

fn arithmetic_outcome(outcome: &str) -> ArithmeticOutcome {
    match outcome {
        "not_found" => ArithmeticOutcome::NotFound,
        "exists" => ArithmeticOutcome::Exists,
        "not_a_number" => ArithmeticOutcome::NotANumber,
        "out_of_memory" => ArithmeticOutcome::OutOfMemory,
        counted => ArithmeticOutcome::Counted {
            number: number(counted, "counted").expect("counted=N"),
            status: hit("hit x cas=7").unwrap_or_default().1,
            created: counted.contains("created"),
        },
    }
}

fn administrate(sink: &mut Sink<'_>, admin: &Admin<'_>) {
    match admin {
        Admin::Version => encode::version(sink, "1.6.18"),
        Admin::FlushAll { noreply, .. }
        | Admin::Verbosity { noreply, .. }
        | Admin::CacheMemlimit { noreply, .. } => encode::ok(sink, *noreply),
        Admin::Stats(_) => encode::end(sink),
        _ => {}
    }
}

/// A request in words, fields at their defaults left out.
fn describe(request: &Request<'_>) -> String {
    match request {
        Request::Item {
            key,
            operation,
            value,
            form,
        } => {
            let value = value.escape_ascii().to_string();
            let value = if matches!(operation, Operation::Set(_)) {
                format!(" value \"{}\"", shortened(&value))
            } else {
                value
            };
            format!(
                "{} {}{value}, reply {}",
                describe_operation(operation),
                describe_key(key),
                describe_form(form)
            )
        }
        Request::SetHeader(header) => format!("header: {}", describe_header(header)),
        Request::SetTooLarge(header) => format!("too large: {}", describe_header(header)),
        Request::EndOfKeys { refusal } => format!("end of keys {refusal:?}"),
        Request::Noop => "no-op".to_owned(),
        Request::Authenticate { user, password } => format!(
            "login \"{}\" \"{}\"",
            user.escape_ascii(),
            password.escape_ascii()
        ),
        Request::Admin(admin) => format!("{admin:?}"),
    }
}

fn describe_key(key: &WireKey<'_>) -> String {
    let mut scratch = Default::default();
    let bytes = key.resolve(&mut scratch).bytes().escape_ascii().to_string();
    let base64 = if key.is_base64() { " (base64)" } else { "" };
    format!("\"{}\"{base64}", shortened(&bytes))
}

fn describe_operation(operation: &Operation) -> String {
    match operation {
        Operation::Get(get) => format!("get{}", changes(get, &Get::default())),
        Operation::Set(set) => describe_set(set),
        Operation::Delete(delete) => format!("delete{}", changes(delete, &Delete::default())),
        Operation::Arithmetic(arithmetic) => {
            let Arithmetic {
                direction, delta, ..
            } = *arithmetic;
            let plain = Arithmetic {
                direction,
                delta,
                ..Arithmetic::default()
            };
            let changes = changes(arithmetic, &plain);
            format!("{direction:?} by {delta}{changes}").to_lowercase()
        }
    }
}

fn describe_header(header: &SetHeader<'_>) -> String {
    format!(
        "{} {} {} bytes, reply {}",
        describe_set(&header.set),
        describe_key(&header.key),
        header.value_bytes,
        describe_form(&header.form)
    )
}

fn describe_set(set: &Set) -> String {
    let plain = Set {
        mode: set.mode,
        ..Set::default()
    };
    format!("{:?}{}", set.mode, changes(set, &plain)).to_lowercase()
}

/// The fields that are not as in `plain`: ` name=number`, or ` name` of what is true.
fn changes<T: fmt::Debug>(value: &T, plain: &T) -> String {
    let [value, plain] = [value, plain].map(|value| format!("{value:?}"));
    let fields = value.split([',', '{', '}']);
    let changed = fields.zip(plain.split([',', '{', '}']));
    let changed = changed.filter(|(value, plain)| value != plain);
    let words = changed.map(|(field, _)| {
        let (name, value) = field.trim().split_once(": ").unwrap();
        match value.rsplit('(').next().unwrap().trim_end_matches(')') {
            "true" => format!(" {name}"),
            number => format!(" {name}={number}"),
        }
    });
    words.collect()
}

fn describe_form(form: &Form<'_>) -> String {
    match form {
        Form::Value { with_cas, last } => {
            let cas = if *with_cas { " with cas" } else { "" };
            let last = if *last { ", last" } else { "" };
            format!("value{cas}{last}")
        }
        Form::Line { noreply: false } => "line".to_owned(),
        Form::Line { noreply: true } => "none".to_owned(),
        Form::Meta(meta) => describe_meta(meta),
        Form::Debug => "debug".to_owned(),
    }
}

fn describe_meta(meta: &Meta<'_>) -> String {
    let mut text = "meta".to_owned();
    text += if meta.value { " value" } else { "" };
    text += if meta.quiet { " quiet" } else { "" };
    for what in meta.returns {
        let _ = write!(text, " {what:?}");
    }
    text
}

/// Long runs of one letter as `{x*250}`.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut count = 1;
        while letters.next_if_eq(&letter).is_some() {
            count += 1;
        }
        if count > 9 {
            let _ = write!(short, "{{{letter}*{count}}}");
        } else {
            short.extend(std::iter::repeat_n(letter, count));
        }
    }
    short
}

fn number(text: &str, name: &str) -> Option<u64> {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .map(|number| number.parse().unwrap())
}

/// `\r`, `\n`, `\t`, `\0`, `\\`, `\xNN`, and `{x*250}`.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\\' => {
                let (byte, length) = match rest.as_bytes()[0] {
                    b'r' => (b'\r', 1),
                    b'n' => (b'\n', 1),
                    b't' => (b'\t', 1),
                    b'0' => (0, 1),
                    b'\\' => (b'\\', 1),
                    b'x' => (u8::from_str_radix(&rest[1..3], 16).unwrap(), 3),
                    other => panic!("no such escape: {other}"),
                };
                bytes.push(byte);
                rest = &rest[length..];
            }
            '{' => {
                let (repeat, after) = rest.split_once('}').unwrap();
                let (what, count) = repeat.split_once('*').unwrap();
                bytes.extend(what.repeat(count.parse().unwrap()).as_bytes());
                rest = after;
            }
            _ => bytes.extend(letter.to_string().as_bytes()),
        }
    }
    bytes
}
