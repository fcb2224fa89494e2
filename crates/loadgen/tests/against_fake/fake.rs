//! A small memcached in a few threads that can be told to lie.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// What the server does wrong, in a small share of the cases where it could.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lie {
    None,
    /// Answers a read with the value before the last write.
    Stale,
    /// Answers a read with the head of one value and the tail of another.
    Torn,
    /// Answers a read with another key's value.
    Foreign,
    /// Says that it stored, and does not.
    Lost,
    /// Says that it counted, and does not.
    Uncounted,
    /// Swaps whatever the token is.
    BlindSwap,
    /// Never lets an item expire.
    Undying,
    /// Answers every write with an error.
    Refusing,
    /// Answers the truth, 5 ms late.
    Slow,
    /// Answers the truth, and ends all connections after some hundred requests.
    Ending,
    /// Answers nothing before somebody has logged in as ada.
    Locked,
}

/// Requests that [`Lie::Ending`] answers.
const ENDS_AFTER: u64 = 900;

#[derive(Clone)]
struct Item {
    value: Vec<u8>,
    flags: String,
    token: u64,
    ends: Option<Instant>,
}

#[derive(Default)]
struct Store {
    items: HashMap<String, Item>,
    /// The item before the last write.
    before: HashMap<String, Item>,
    token: u64,
    dice: u64,
    requests: u64,
}

/// Starts a server on a free port; it lives as long as the process.
pub(crate) fn start(lie: Lie) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let store = Arc::new(Mutex::new(Store::default()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let store = Arc::clone(&store);
            std::thread::spawn(move || serve(stream, &store, lie));
        }
    });
    target
}

fn serve(stream: TcpStream, store: &Mutex<Store>, lie: Lie) {
    let mut writer = stream.try_clone().unwrap();
    writer.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    let (mut line, mut output) = (String::new(), Vec::new());
    let mut knows_who = lie != Lie::Locked;
    loop {
        line.clear();
        if !matches!(reader.read_line(&mut line), Ok(1..)) {
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut value = Vec::new();
        if let Some(bytes) = value_bytes(&words) {
            value.resize(bytes + 2, 0);
            if reader.read_exact(&mut value).is_err() {
                return;
            }
            value.truncate(bytes);
        }
        if lie == Lie::Slow {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(
            !value.starts_with(b"ada") || lie == Lie::Locked,
            "told unasked"
        );
        if !knows_who {
            knows_who = words[0] == "set" && value == b"ada lovelace";
            let reply = match (knows_who, words[0]) {
                (true, _) => "STORED\r\n",
                (_, "set") => "CLIENT_ERROR authentication failure\r\n",
                _ => "CLIENT_ERROR unauthenticated\r\n",
            };
            writer.write_all(reply.as_bytes()).unwrap();
            continue;
        }
        let mut store = store.lock().unwrap();
        store.requests += 1;
        if lie == Lie::Ending && store.requests > ENDS_AFTER {
            return;
        }
        store.answer(&words, value, lie, &mut output);
        drop(store);
        if reader.buffer().is_empty() {
            if writer.write_all(&output).is_err() {
                return;
            }
            output.clear();
        }
    }
}

fn value_bytes(words: &[&str]) -> Option<usize> {
    match words {
        ["ms", _, bytes, ..] => bytes.parse().ok(),
        [
            "set" | "add" | "replace" | "append" | "prepend" | "cas",
            _,
            _,
            _,
            bytes,
            ..,
        ] => bytes.parse().ok(),
        _ => None,
    }
}

impl Store {
    fn answer(&mut self, words: &[&str], value: Vec<u8>, lie: Lie, output: &mut Vec<u8>) {
        let now = Instant::now();
        if lie != Lie::Undying {
            let is_past = |item: &Item| item.ends.is_some_and(|ends| ends <= now);
            if words
                .iter()
                .skip(1)
                .any(|key| self.items.get(*key).is_some_and(is_past))
            {
                self.items.retain(|_, item| !is_past(item));
            }
        }
        match words {
            [verb @ ("get" | "gets"), keys @ ..] => {
                self.read(keys, *verb == "gets", lie, output);
            }
            ["gat", seconds, key] => {
                self.touch(key, seconds);
                self.read(&[key], false, lie, output);
            }
            ["mg", key, flags @ ..] => self.meta_read(key, flags, lie, output),
            _ => {
                let reply = self.change(words, value, lie);
                output.extend_from_slice(reply.as_bytes());
                output.extend_from_slice(b"\r\n");
            }
        }
    }

    /// One in thirty, always the same sequence.
    fn strikes(&mut self) -> bool {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.dice >> 33).is_multiple_of(30)
    }

    fn look(&mut self, key: &str, lie: Lie) -> Option<Item> {
        let item = self.items.get(key).cloned();
        let lies = matches!(lie, Lie::Stale | Lie::Torn | Lie::Foreign);
        if !lies || item.is_none() || !self.strikes() {
            return item;
        }
        let mut item = item?;
        match lie {
            Lie::Stale => return Some(self.before.get(key).cloned().unwrap_or(item)),
            Lie::Torn => {
                if let Some(before) = self.before.get(key) {
                    let cut = item.value.len().min(before.value.len()) / 2;
                    item.value[cut..].fill(before.value.first().copied().unwrap_or(0));
                }
            }
            _ => {
                let other = self.items.iter().find(|(other, _)| *other != key);
                item.value = other.map(|(_, other)| other.value.clone())?;
            }
        }
        Some(item)
    }

    fn read(&mut self, keys: &[&str], with_token: bool, lie: Lie, output: &mut Vec<u8>) {
        for key in keys {
            if let Some(item) = self.look(key, lie) {
                write!(output, "VALUE {key} {} {}", item.flags, item.value.len()).unwrap();
                if with_token {
                    write!(output, " {}", item.token).unwrap();
                }
                output.extend_from_slice(b"\r\n");
                output.extend_from_slice(&item.value);
                output.extend_from_slice(b"\r\n");
            }
        }
        output.extend_from_slice(b"END\r\n");
    }

    fn meta_read(&mut self, key: &str, flags: &[&str], lie: Lie, output: &mut Vec<u8>) {
        let Some(item) = self.look(key, lie) else {
            return output.extend_from_slice(b"EN\r\n");
        };
        write!(output, "VA {}", item.value.len()).unwrap();
        if flags.contains(&"k") {
            write!(output, " k{key} f{} c{}", item.flags, item.token).unwrap();
        } else if flags.contains(&"c") {
            write!(output, " c{}", item.token).unwrap();
        }
        output.extend_from_slice(b"\r\n");
        output.extend_from_slice(&item.value);
        output.extend_from_slice(b"\r\n");
    }

    fn change(&mut self, words: &[&str], value: Vec<u8>, lie: Lie) -> String {
        match words {
            ["ms", key, _, rest @ ..] => {
                let flag = |name| rest.iter().find_map(|word: &&str| word.strip_prefix(name));
                let (flags, seconds) = (flag("F").unwrap_or("0"), flag("T").unwrap_or("0"));
                let token = flag("C").map(|token| token.parse().unwrap());
                let verb = match (flag("M"), token) {
                    (Some("E"), _) => "add",
                    (Some("R"), _) => "replace",
                    (_, Some(_)) => "cas",
                    _ => "set",
                };
                match self.store(verb, key, (flags, seconds), value, token, lie) {
                    "STORED" => "HD".into(),
                    "NOT_STORED" => "NS".into(),
                    "EXISTS" => "EX".into(),
                    "NOT_FOUND" => "NF".into(),
                    other => other.into(),
                }
            }
            ["ma", key, modes @ ..] => {
                self.items.entry((*key).into()).or_insert_with(|| Item {
                    value: b"0".to_vec(),
                    flags: "0".into(),
                    token: 0,
                    ends: None,
                });
                self.count(key, "1", !modes.contains(&"MD"), lie);
                "HD".into()
            }
            ["append" | "prepend", key, ..] => {
                let Some(item) = self.items.get(*key).cloned() else {
                    return "NOT_STORED".into();
                };
                let (head, tail) = match words[0] {
                    "append" => (item.value.clone(), value),
                    _ => (value, item.value.clone()),
                };
                self.replace(
                    key,
                    Item {
                        value: [head, tail].concat(),
                        ..item
                    },
                );
                "STORED".into()
            }
            [verb, key, flags, seconds, _, token @ ..] => {
                let token = token.first().and_then(|token| token.parse().ok());
                self.store(verb, key, (flags, seconds), value, token, lie)
                    .into()
            }
            ["delete" | "md", key] => {
                let is_meta = words[0] == "md";
                match (self.items.remove(*key).is_some(), is_meta) {
                    (true, true) => "HD".into(),
                    (true, false) => "DELETED".into(),
                    (false, true) => "NF".into(),
                    (false, false) => "NOT_FOUND".into(),
                }
            }
            ["touch", key, seconds] if self.touch(key, seconds) => "TOUCHED".into(),
            ["touch", ..] => "NOT_FOUND".into(),
            ["incr" | "decr", key, delta] => self.count(key, delta, words[0] == "incr", lie),
            ["version"] => "VERSION fake".into(),
            _ => "ERROR".into(),
        }
    }

    fn store(
        &mut self,
        verb: &str,
        key: &str,
        (flags, seconds): (&str, &str),
        value: Vec<u8>,
        token: Option<u64>,
        lie: Lie,
    ) -> &'static str {
        if lie == Lie::Refusing {
            return "SERVER_ERROR out of memory storing object";
        }
        let current = self.items.get(key).map(|item| item.token);
        match (verb, current) {
            ("add", Some(_)) | ("replace", None) => return "NOT_STORED",
            ("cas", None) => return "NOT_FOUND",
            ("cas", current) if current != token && (lie != Lie::BlindSwap || !self.strikes()) => {
                return "EXISTS";
            }
            _ => {}
        }
        if lie == Lie::Lost && self.strikes() {
            return "STORED";
        }
        let seconds = seconds.parse().unwrap();
        self.replace(
            key,
            Item {
                value,
                flags: flags.into(),
                token: 0,
                ends: ends(seconds),
            },
        );
        "STORED"
    }

    fn replace(&mut self, key: &str, item: Item) {
        self.token += 1;
        let token = self.token;
        if let Some(before) = self.items.insert(key.into(), Item { token, ..item }) {
            self.before.insert(key.into(), before);
        }
    }

    fn touch(&mut self, key: &str, seconds: &str) -> bool {
        let Some(item) = self.items.get_mut(key) else {
            return false;
        };
        item.ends = ends(seconds.parse().unwrap());
        true
    }

    fn count(&mut self, key: &str, delta: &str, is_up: bool, lie: Lie) -> String {
        let Some(item) = self.items.get(key).cloned() else {
            return "NOT_FOUND".into();
        };
        let text = String::from_utf8_lossy(&item.value).into_owned();
        let (Ok(number), Ok(delta)) = (text.trim_end().parse::<u64>(), delta.parse::<u64>()) else {
            return "CLIENT_ERROR cannot increment or decrement non-numeric value".into();
        };
        let counted = if is_up {
            number.wrapping_add(delta)
        } else {
            number.saturating_sub(delta)
        };
        if lie != Lie::Uncounted || !self.strikes() {
            let value = counted.to_string().into_bytes();
            self.replace(key, Item { value, ..item });
        }
        counted.to_string()
    }
}

fn ends(seconds: u64) -> Option<Instant> {
    (seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds))
}
