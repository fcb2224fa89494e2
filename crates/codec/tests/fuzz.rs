//! The fuzzers' properties with a fixed seed, a second or two each, and the proof that the harness
//! would notice.
//!
//! The inputs are streams of commands from a small grammar, some with bytes changed, cut out or
//! doubled. To look deeper, `cargo +nightly fuzz run <property>` in the `fuzz` folder invents its
//! own.

mod properties;
mod seeded_inputs;

use seeded_inputs::{Random, check};

/// Inputs per property; about a second in a debug build.
const ROUNDS: usize = 5_000;

/// The false property is false for one word of the grammar only.
#[test]
fn properties_hold() {
    check(&properties::REGISTRY, properties::canary, ROUNDS, stream);
}

/// A few commands, often damaged, behind the bytes that the properties take for options.
fn stream(random: &mut Random) -> Vec<u8> {
    let mut stream: Vec<u8> = (0..2).map(|_| random.next() as u8).collect();
    if random.below(4) == 0 {
        stream.extend((0..22).map(|_| random.next() as u8));
    }
    for _ in 0..=random.below(6) {
        command(random, &mut stream);
    }
    for _ in 0..random.below(4) {
        damage(random, &mut stream);
    }
    stream
}

fn command(random: &mut Random, stream: &mut Vec<u8>) {
    let name = pick(random, NAMES);
    stream.extend(name.as_bytes());
    let is_store = ["set", "add", "replace", "append", "prepend", "cas"].contains(&name);
    let value = random.below(60);
    if is_store && random.below(4) > 0 {
        stream.extend(format!(" k 0 0 {value}").as_bytes());
    } else if name == "ms" && random.below(4) > 0 {
        stream.extend(format!(" k {value}").as_bytes());
    }
    for _ in 0..random.below(8) {
        stream.push(b' ');
        match random.below(60) {
            0 => stream.extend([b'w'; 250]),
            1 => stream.extend([b'w'; 251]),
            2 => stream.extend("many ".repeat(500).as_bytes()),
            3 => {}
            _ => stream.extend(pick(random, WORDS).as_bytes()),
        }
    }
    stream.extend(["\r\n", "\r\n", "\r\n", "\n", " \r\n"][random.below(5)].as_bytes());
    if is_store || name == "ms" {
        stream.extend((0..value).map(|_| random.next() as u8));
        stream.extend(b"\r\n");
    }
}

fn pick(random: &mut Random, words: &'static str) -> &'static str {
    let count = words.split(' ').count();
    words.split(' ').nth(random.below(count)).unwrap_or("")
}

fn damage(random: &mut Random, stream: &mut Vec<u8>) {
    let start = random.below(stream.len());
    let end = (start + random.below(20)).min(stream.len());
    match random.below(4) {
        0 => {
            if let Some(byte) = stream.get_mut(start) {
                *byte = b"\0\r\n \tk0\x80"[random.below(8)];
            }
        }
        1 => drop(stream.drain(start..end)),
        2 => {
            let copy = stream[start..end].to_vec();
            stream.splice(start..start, copy);
        }
        _ => stream.truncate(end.max(2)),
    }
}

const NAMES: &str = "get gets gat gats set add replace append prepend cas incr decr touch \
    delete mg ms md ma me mn stats flush_all version verbosity cache_memlimit shutdown lru bget \
    quit GET mz mg";

const WORDS: &str = "k canary key:1234 0 1 3 10 -1 +4 noreply v k q t s f c h l u Oabc O T0 T30 \
    Tx N5 R9 C7 E8 D2 J3 MA ME MI M F5 I x b QUJD HTTP/1.1 4294967296 99999999999999999999";
