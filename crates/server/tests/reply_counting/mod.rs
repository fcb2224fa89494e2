//! A client that counts replies: it knows how many each command must get.
//!
//! It sends commands of every kind one behind the other, with values, without replies, quiet,
//! well and badly formed, each followed by an `mn`. The replies are then read by the one rule of
//! the protocol: a command has one reply, or none where the client asked for none; a `get` has its
//! values and then one line, `END` or an error. A reply too many or too few is met as something
//! else than the `MN` that has to come next, and the commands around it are told.
//!
//! Which replies are errors is not judged, only counted, so that a test can see that it met some.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use curtail_testing::{Connection, eventually, together};
use curtail_workload::Random;

/// What a conversation is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    /// Gives the commands.
    pub(crate) seed: u64,
    /// How many.
    pub(crate) commands: usize,
    /// The longest value that the server takes.
    pub(crate) item_bytes_max: usize,
    /// The longest value that is stored; longer ones are only refused.
    pub(crate) value_bytes_max: usize,
    /// Whether `flush_all` is among them.
    pub(crate) flushes: bool,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// Commands that were answered as they must be.
    pub(crate) commands: usize,
    /// `get`s that ended with an error.
    pub(crate) failed_gets: usize,
    /// Other commands that the server could not carry out.
    pub(crate) server_errors: usize,
    /// The server closed the connection before the end.
    pub(crate) closed: bool,
}

impl Counted {
    pub(crate) fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.failed_gets += other.failed_gets;
        self.server_errors += other.server_errors;
        self.closed |= other.closed;
    }
}

/// Holds a conversation with each of these addresses at once; their sum.
#[track_caller]
pub(crate) fn converse_with(addresses: &[SocketAddr], talk: Talk) -> Counted {
    let counts = together(addresses.len(), |number| {
        let seed = talk.seed * 1000 + number as u64;
        converse(addresses[number], Talk { seed, ..talk })
    });
    let mut sum = Counted::default();
    counts.into_iter().for_each(|counted| sum.add(counted));
    sum
}

/// How a command is answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expected {
    Nothing,
    Line,
    /// Values, and `END` or an error.
    Values,
    /// One reply of the meta protocol.
    Meta,
    /// The same, or none.
    Quiet,
    /// Lines up to `END`, or an error.
    List,
}

struct Command {
    bytes: Vec<u8>,
    expected: Expected,
}

/// Keys that are written.
const KEYS: u64 = 24;

/// Keys from there on are only read, and only by `get` and its kin: what a test puts there stays.
pub(crate) const READ_ONLY: std::ops::Range<u64> = KEYS..KEYS + 4;

/// The longest that the server may be silent.
const PATIENCE: Duration = Duration::from_secs(40);

/// A key of more than 250 bytes is none.
const KEY_BYTES_MAX: usize = 250;

/// Holds a conversation.
///
/// # Panics
///
/// When a command has a reply too many, or too few, or none comes in time.
#[track_caller]
fn converse(address: SocketAddr, talk: Talk) -> Counted {
    let mut random = Random::new(talk.seed);
    let commands: Vec<Command> = (0..talk.commands)
        .map(|_| command(&mut random, &talk))
        .collect();
    let mut connected = None;
    eventually("somebody listens", || {
        connected = Connection::to(address, PATIENCE).ok();
        connected.is_some()
    });
    let input = connected.unwrap();
    let stream = input.stream().try_clone().unwrap();
    let (counted, wrong) = thread::scope(|scope| {
        let writing = scope.spawn(|| send(&stream, &commands, random));
        let mut reader = Reader {
            input,
            counted: Counted::default(),
        };
        let wrong = commands.iter().enumerate().find_map(|(number, command)| {
            let wrong = reader.take(command.expected).err()?;
            Some((number, wrong))
        });
        // A thread that still writes ends.
        let _ = stream.shutdown(Shutdown::Both);
        writing.join().unwrap();
        (reader.counted, wrong)
    });
    let Some((number, wrong)) = wrong else {
        return counted;
    };
    if wrong == Wrong::Closed {
        return Counted {
            closed: true,
            ..counted
        };
    }
    let around = &commands[number.saturating_sub(2)..commands.len().min(number + 2)];
    let around: Vec<String> = around.iter().map(Command::shown).collect();
    panic!(
        "{wrong:?} at command {number} of {talk:?}, the third of {}",
        around.join(" | ")
    );
}

/// Why a conversation ended.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Wrong {
    Closed,
    Silence,
    Got(String),
}

struct Reader {
    input: Connection,
    counted: Counted,
}

impl Reader {
    /// Takes the reply to one command, and the one that has to follow it.
    fn take(&mut self, expected: Expected) -> Result<(), Wrong> {
        match expected {
            Expected::Nothing => {}
            Expected::Line => {
                let line = self.line()?;
                let stray = ["VALUE ", "VA ", "HD", "EN", "MN", "STAT ", "ITEM "];
                if stray.iter().any(|start| line.starts_with(start)) {
                    return Err(Wrong::Got(line));
                }
                self.note(&line);
            }
            Expected::Values => self.take_values()?,
            Expected::Meta => {
                let line = self.line()?;
                self.take_meta(line)?;
            }
            Expected::Quiet => {
                let line = self.line()?;
                if line == "MN" {
                    self.counted.commands += 1;
                    return Ok(());
                }
                self.take_meta(line)?;
            }
            Expected::List => while !self.ends_list()? {},
        }
        match self.line()? {
            line if line == "MN" => self.counted.commands += 1,
            line => return Err(Wrong::Got(line)),
        }
        Ok(())
    }

    fn take_values(&mut self) -> Result<(), Wrong> {
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(());
            }
            if is_error(&line) {
                self.counted.failed_gets += usize::from(line.starts_with("SERVER_ERROR"));
                return Ok(());
            }
            let bytes = line.strip_prefix("VALUE ").and_then(|rest| {
                let bytes = rest.split(' ').nth(2)?;
                bytes.parse().ok()
            });
            self.skip(bytes.ok_or(Wrong::Got(line))?)?;
        }
    }

    fn take_meta(&mut self, line: String) -> Result<(), Wrong> {
        let mut words = line.split(' ');
        match words.next().unwrap_or_default() {
            "VA" => {
                let bytes = words.next().and_then(|bytes| bytes.parse().ok());
                self.skip(bytes.ok_or(Wrong::Got(line))?)
            }
            "HD" | "EN" | "NF" | "NS" | "EX" | "ME" => Ok(()),
            _ if is_error(&line) => {
                self.note(&line);
                Ok(())
            }
            _ => Err(Wrong::Got(line)),
        }
    }

    fn ends_list(&mut self) -> Result<bool, Wrong> {
        let line = self.line()?;
        if line == "END" || is_error(&line) {
            return Ok(true);
        }
        let goes_on = ["STAT ", "ITEM ", "key="];
        match goes_on.iter().any(|start| line.starts_with(start)) {
            true => Ok(false),
            false => Err(Wrong::Got(line)),
        }
    }

    fn note(&mut self, line: &str) {
        self.counted.server_errors += usize::from(line.starts_with("SERVER_ERROR"));
    }

    fn line(&mut self) -> Result<String, Wrong> {
        self.input.line().map_err(|error| ended(&error))
    }

    /// A value and the line end behind it.
    fn skip(&mut self, bytes: usize) -> Result<(), Wrong> {
        let mut value = vec![0; bytes + 2];
        match self.input.read_exact(&mut value) {
            Ok(()) if value.ends_with(b"\r\n") => Ok(()),
            Ok(()) => Err(Wrong::Got("a value without its line end".to_owned())),
            Err(error) => Err(ended(&error)),
        }
    }
}

fn ended(error: &std::io::Error) -> Wrong {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    match error.kind() {
        TimedOut | WouldBlock => Wrong::Silence,
        _ => Wrong::Closed,
    }
}

fn is_error(line: &str) -> bool {
    line == "ERROR" || line.starts_with("CLIENT_ERROR ") || line.starts_with("SERVER_ERROR ")
}

/// Sends everything, cut anywhere.
fn send(mut stream: &TcpStream, commands: &[Command], mut random: Random) {
    let mut bytes = Vec::new();
    for command in commands {
        bytes.extend_from_slice(&command.bytes);
        bytes.extend_from_slice(b"mn\r\n");
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let most = [3, 200, 4_000, 100_000][random.below(4) as usize];
        let count = (1 + random.below(most) as usize).min(rest.len());
        // The reader says what is wrong.
        if stream.write_all(&rest[..count]).is_err() {
            return;
        }
        rest = &rest[count..];
    }
}

impl Command {
    fn new(bytes: impl Into<Vec<u8>>, expected: Expected) -> Self {
        Self {
            bytes: bytes.into(),
            expected,
        }
    }

    fn shown(&self) -> String {
        let text = self.bytes.escape_ascii().to_string();
        let text: String = text.chars().take(120).collect();
        format!("{text} ({:?})", self.expected)
    }
}

fn command(random: &mut Random, talk: &Talk) -> Command {
    match random.below(20) {
        0..=5 => get(random),
        6..=9 => store(random, talk),
        10 | 11 => one_line(random, talk),
        12..=14 => meta_get(random),
        15 | 16 => meta_store(random, talk),
        17 | 18 => meta_other(random),
        _ => other(random),
    }
}

/// `get` and its kin, of one key, of some, or of more than a line's worth.
fn get(random: &mut Random) -> Command {
    let name = ["get", "gets", "gat 100", "gats 200"][random.below(4) as usize];
    let keys = match random.below(10) {
        0..=2 => 1,
        3..=8 => 2 + random.below(12),
        _ if name.starts_with("get") => 600,
        _ => 100,
    };
    let mut text = name.to_owned();
    for _ in 0..keys {
        text += &format!(" counted{}", random.below(READ_ONLY.end));
    }
    if random.below(12) == 0 {
        // No key: the whole command is refused.
        text += " ";
        text += &"x".repeat(KEY_BYTES_MAX + 1);
    }
    Command::new(text + "\r\n", Expected::Values)
}

/// The commands that bring a value.
fn store(random: &mut Random, talk: &Talk) -> Command {
    let names = ["set", "set", "add", "replace", "append", "prepend", "cas"];
    let name = random.one_of(&names);
    let value = value(random, talk);
    let unique = if name == "cas" { " 7" } else { "" };
    let (noreply, expected) = silence(random, Expected::Line);
    let exptime = ["0", "0", "100", "-1"][random.below(4) as usize];
    let head = format!(
        "{name} {} 5 {exptime} {}{unique}{noreply}\r\n",
        key(random),
        value.len()
    );
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&value);
    // Two bytes that are no line end: one error, and what follows is a command again.
    let is_wrong = random.below(16) == 0 && value.len() <= talk.item_bytes_max;
    bytes.extend_from_slice(if is_wrong { b"!!" } else { b"\r\n" });
    Command::new(bytes, expected)
}

/// Text commands of a line that are answered with a line.
fn one_line(random: &mut Random, talk: &Talk) -> Command {
    let key = key(random);
    let (noreply, expected) = silence(random, Expected::Line);
    let text = match random.below(if talk.flushes { 9 } else { 7 }) {
        0 => format!("incr {key} 1{noreply}"),
        1 => format!("decr {key} 3{noreply}"),
        2 => format!("touch {key} 100{noreply}"),
        3 | 4 => format!("delete {key}{noreply}"),
        5 => format!("incr {key} many{noreply}"),
        6 => format!("touch {key} later{noreply}"),
        7 => format!("flush_all{noreply}"),
        _ => format!("flush_all 1000{noreply}"),
    };
    Command::new(text + "\r\n", expected)
}

fn meta_get(random: &mut Random) -> Command {
    let (mut text, mut quiet) = (format!("mg {}", meta_key(random)), false);
    let flags = [
        "v", "t", "s", "c", "f", "k", "h", "l", "q", "Oabc", "N30", "R30",
    ];
    add_flags(random, &mut text, &mut quiet, &flags);
    meta(text, quiet)
}

fn meta_store(random: &mut Random, talk: &Talk) -> Command {
    let value = value(random, talk);
    let key = meta_key(random);
    let (key, base64) = key.split_once(' ').unwrap_or((&key, ""));
    let (mut text, mut quiet) = (format!("ms {key} {} {base64}", value.len()), false);
    let flags = ["c", "k", "q", "Oxyz", "F3", "T100", "I", "N30"];
    add_flags(random, &mut text, &mut quiet, &flags);
    let modes = ["", "", " MS", " ME", " MA", " MP", " MR", " MX", " C9"];
    text += random.one_of(&modes);
    let mut bytes = (text + "\r\n").into_bytes();
    bytes.extend_from_slice(&value);
    bytes.extend_from_slice(b"\r\n");
    let expected = if quiet {
        Expected::Quiet
    } else {
        Expected::Meta
    };
    Command::new(bytes, expected)
}

fn meta_other(random: &mut Random) -> Command {
    let (name, flags): (_, &[&str]) = match random.below(6) {
        0 | 1 => ("md", &["q", "k", "I", "T30", "O1"]),
        2 | 3 => (
            "ma",
            &["q", "v", "t", "c", "k", "N0", "J13", "D9", "MD", "T60"],
        ),
        4 => return meta(format!("me {}", key(random)), false),
        // A flag that there is not, and a base64 key that is none.
        _ => {
            let wrong = ["mg k !", "md k !", "ma k MQ", "mg a! b"];
            return meta(wrong[random.below(4) as usize].to_owned(), false);
        }
    };
    let (mut text, mut quiet) = (format!("{name} {}", meta_key(random)), false);
    add_flags(random, &mut text, &mut quiet, flags);
    meta(text, quiet)
}

/// What is not about one key, and what is no command.
fn other(random: &mut Random) -> Command {
    let (text, expected) = [
        ("version", Expected::Line),
        ("verbosity 0", Expected::Line),
        ("verbosity 0 noreply", Expected::Nothing),
        ("get", Expected::Line),
        ("gat later k", Expected::Line),
        ("set k 0 0", Expected::Line),
        ("set k 0 0 many", Expected::Line),
        ("incr k", Expected::Line),
        ("delete k 5", Expected::Line),
        ("no such command", Expected::Line),
        ("", Expected::Line),
        ("cache_memlimit 1", Expected::Line),
        ("stats", Expected::List),
        ("stats settings", Expected::List),
        ("stats items", Expected::List),
        ("stats slabs", Expected::List),
        ("stats cachedump 1 20", Expected::List),
        ("stats cachedump 1 0", Expected::List),
        ("stats nothing", Expected::Line),
        ("lru_crawler metadump all", Expected::List),
    ][random.below(20) as usize];
    Command::new(format!("{text}\r\n"), expected)
}

fn meta(text: String, quiet: bool) -> Command {
    let expected = if quiet {
        Expected::Quiet
    } else {
        Expected::Meta
    };
    Command::new(text + "\r\n", expected)
}

fn add_flags(random: &mut Random, text: &mut String, quiet: &mut bool, flags: &[&str]) {
    for flag in flags {
        if random.below(3) == 0 {
            *text += " ";
            *text += flag;
            *quiet |= *flag == "q";
        }
    }
}

fn silence(random: &mut Random, expected: Expected) -> (&'static str, Expected) {
    match random.below(3) {
        0 => (" noreply", Expected::Nothing),
        _ => ("", expected),
    }
}

fn key(random: &mut Random) -> String {
    format!("counted{}", random.below(KEYS))
}

/// The same, or one that only its base64 form can name.
fn meta_key(random: &mut Random) -> String {
    match random.below(8) {
        0 => "YSBi b".to_owned(),
        _ => key(random),
    }
}

/// Mostly short ones, and some of every kind that is received in another way.
fn value(random: &mut Random, talk: &Talk) -> Vec<u8> {
    let bytes = match random.below(40) {
        0 => talk.item_bytes_max as u64 + 1 + random.below(2000),
        1..=4 => 4_000 + random.below(talk.value_bytes_max as u64 - 4_000),
        5..=9 => return b"17".to_vec(),
        _ => random.below(300),
    };
    vec![b'a' + (bytes % 26) as u8; bytes as usize]
}
