//! Instructions and time to decode and encode each frequent form of request.
//!
//! Instructions are counted by valgrind, because counts mean the same on a busy machine: each form
//! is decoded and answered in a process of its own with two numbers of rounds, and the difference
//! leaves out what the process itself costs. Times are the best of many rounds, so they too say
//! little about the neighbours; they want a quiet machine all the same. A round is a batch of 64
//! requests with 16-byte keys that differ, back to back in one buffer, as a pipelining client
//! sends them.
//!
//! `cargo bench -p curtail-codec --bench instructions`
//!
//! ```text
//! On a virtual AMD EPYC that also built six other crates:
//!                                 decode      decode and reply
//! a request of      instructions      ns  instructions      ns
//! get                      166.1    14.2         391.9    30.2
//! gets                     177.1    14.7         532.9    40.7
//! get of 4 keys           1077.8    43.2        1976.6   113.5
//! set 32 bytes             337.1    20.8         417.0    31.0
//! set noreply              337.1    20.8         399.0    29.4
//! delete                   463.2    31.5         545.1    42.2
//! incr                     504.3    33.0         639.1    43.0
//! mg v                     219.1    16.7         392.9    29.3
//! mg v k q O               371.4    21.1         731.2    37.5
//! mg t f v                 305.1    19.5         641.0    34.6
//! ms 32 bytes              340.1    25.5         485.0    36.1
//! ms T F                   598.1    28.9         743.0    39.0
//! md q                     520.3    26.3         586.1    46.5
//! ```

use std::env;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use curtail_codec::memcached::{Decoded, Decoder, Form, Limits, Request, Sink, WireKey, encode};
use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, DeleteOutcome, ItemStatus, Operation, SetOutcome,
};

/// A name, and one request with `{key}` in place of its key.
const FORMS: [(&str, &str); 13] = [
    ("get", "get {key}\r\n"),
    ("gets", "gets {key}\r\n"),
    ("get of 4 keys", "get {key} {key} {key} {key}\r\n"),
    ("set 32 bytes", "set {key} 0 0 32\r\n{value}\r\n"),
    ("set noreply", "set {key} 0 0 32 noreply\r\n{value}\r\n"),
    ("delete", "delete {key}\r\n"),
    ("incr", "incr {key} 1\r\n"),
    ("mg v", "mg {key} v\r\n"),
    ("mg v k q O", "mg {key} v k q O123\r\n"),
    ("mg t f v", "mg {key} t f v\r\n"),
    ("ms 32 bytes", "ms {key} 32\r\n{value}\r\n"),
    ("ms T F", "ms {key} 32 T3600 F1\r\n{value}\r\n"),
    ("md q", "md {key} q\r\n"),
];

const BATCH: usize = 64;
const VALUE: &str = "0123456789abcdef0123456789abcdef";
const LIMITS: Limits = Limits {
    value_bytes_max: 1 << 20,
    inline_value_bytes_max: 4096,
};

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let [_, form, work, rounds] = arguments.as_slice() {
        let mut round = Round::new(form, work);
        (0..rounds.parse().unwrap_or(0)).for_each(|_| round.run());
        return;
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("measured by `cargo bench` only");
        return;
    }
    println!("{:<16}{:>22}{:>22}", "", "decode", "decode and reply");
    println!(
        "{:<16}{:>14}{:>8}{:>14}{:>8}",
        "a request of", "instructions", "ns", "instructions", "ns"
    );
    for (form, _) in FORMS {
        print!("{form:<16}");
        for work in ["decode", "reply"] {
            match instructions(form, work) {
                Some(count) => print!("{count:>14.1}"),
                None => print!("{:>14}", "no valgrind"),
            }
            print!("{:>8.1}", best_ns(form, work));
        }
        println!();
    }
}

/// Instructions of one request.
fn instructions(form: &str, work: &str) -> Option<f64> {
    const ROUNDS: [u64; 2] = [100, 1_100];
    let few = collected(form, work, ROUNDS[0])?;
    let many = collected(form, work, ROUNDS[1])?;
    Some((many - few) / ((ROUNDS[1] - ROUNDS[0]) * BATCH as u64) as f64)
}

/// Instructions of a whole process.
fn collected(form: &str, work: &str, rounds: u64) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().ok()?)
        .args([form, work, &rounds.to_string()])
        .output()
        .ok()?;
    let report = String::from_utf8(output.stderr).ok()?;
    let (_, count) = report.split_once("Collected : ")?;
    count.split_whitespace().next()?.parse().ok()
}

/// Nanoseconds of one request, in the best of many rounds.
fn best_ns(form: &str, work: &str) -> f64 {
    let mut round = Round::new(form, work);
    let best = (0..2_000).map(|_| {
        let start = Instant::now();
        round.run();
        start.elapsed()
    });
    best.min().unwrap_or_default().as_nanos() as f64 / BATCH as f64
}

struct Round {
    input: Vec<u8>,
    reply: Option<Vec<u8>>,
}

impl Round {
    fn new(form: &str, work: &str) -> Self {
        let pattern = FORMS.iter().find(|(name, _)| *name == form);
        Self {
            input: batch(pattern.map_or("", |(_, pattern)| pattern)),
            reply: (work == "reply").then(|| vec![0; 1 << 16]),
        }
    }

    fn run(&mut self) {
        match &mut self.reply {
            None => decode_all(black_box(&self.input)),
            Some(reply) => answer_all(black_box(&self.input), black_box(reply)),
        }
    }
}

fn batch(pattern: &str) -> Vec<u8> {
    let mut number = 0u64;
    let mut input = String::new();
    for _ in 0..BATCH {
        let mut request = pattern.replace("{value}", VALUE);
        while request.contains("{key}") {
            number += 1;
            let key = format!("key:{:012}", number * 7_919);
            request = request.replacen("{key}", &key, 1);
        }
        input.push_str(&request);
    }
    input.into_bytes()
}

fn decode_all(mut input: &[u8]) {
    let mut decoder = Decoder::new(false);
    loop {
        let decoded = decoder.decode(input, &LIMITS);
        let Decoded::Complete {
            ref request,
            consumed,
        } = decoded
        else {
            return;
        };
        black_box(request);
        input = &input[consumed..];
    }
}

fn answer_all(mut input: &[u8], reply: &mut [u8]) {
    let mut sink = Sink::new(reply);
    let mut decoder = Decoder::new(false);
    while let decoded = decoder.decode(input, &LIMITS)
        && let Decoded::Complete { request, consumed } = &decoded
    {
        if let Request::Item {
            key,
            operation,
            form,
            ..
        } = request
        {
            answer(&mut sink, key, operation, form);
        } else if let Request::EndOfKeys { refusal: None } = request {
            encode::end(&mut sink);
        }
        input = &input[*consumed..];
    }
    black_box(sink.written());
}

fn answer(sink: &mut Sink<'_>, key: &WireKey<'_>, operation: &Operation, form: &Form<'_>) {
    let status = black_box(ItemStatus {
        value_bytes: VALUE.len() as u32,
        cas: Cas(1_234_567_890_123),
        ..ItemStatus::default()
    });
    match operation {
        Operation::Get(_) => {
            if encode::hit(sink, key, form, &status) {
                sink.push(VALUE.as_bytes());
                encode::value_end(sink, form);
            }
        }
        Operation::Set(_) => encode::set(sink, key, form, SetOutcome::Stored(status.cas)),
        Operation::Delete(_) => encode::delete(sink, key, form, DeleteOutcome::Deleted),
        Operation::Arithmetic(Arithmetic { delta, .. }) => {
            let number = *delta;
            let outcome = ArithmeticOutcome::Counted {
                number,
                status,
                created: false,
            };
            encode::arithmetic(sink, key, form, &outcome);
        }
    }
}
