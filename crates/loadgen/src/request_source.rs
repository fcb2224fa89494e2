//! What is asked for, turned into bytes: a workload or a recorded trace, in a wire protocol.
//!
//! A key's number decides everything about it: its bytes, its value's length and its time to live,
//! so that a reply's length is known before it arrives and a preload agrees with the run that
//! follows it.
//!
//! ```text
//!   Asker    which request is next            one for each thread
//!   Wording  which bytes that request has     shared by preload, run and samples
//! ```

use std::sync::Arc;

use clap::ValueEnum;
use curtail_client::memcached::Login;
use curtail_workload::{Generator, Items, KeyText, Kind, Random, Stream, Workload};
use serde::Serialize;

use crate::{
    error::LoadError,
    recorded_trace::Recording,
    self_checking_value::{HEAD_BYTES, Piece},
    text_protocol::Protocol,
};

/// What a run asks for.
#[derive(Clone, Debug)]
pub struct Load {
    /// The wire protocol.
    pub protocol: Protocol,
    /// Where the requests come from.
    pub source: Source,
    /// Whether a read that misses is followed by a write of what was missing.
    pub fill: bool,
    /// Whether values prove whose and how old they are, and are checked.
    pub verify: bool,
    /// Which writes end when they are accepted, where the protocol has such a thing.
    pub marking: Marking,
    /// Who asks, where a server lets in only whom it knows.
    pub login: Option<Login>,
}

/// Which writes of the native protocol are marked: they end when they are accepted, the others when
/// they are executed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Marking {
    /// Sets.
    #[default]
    Sets,
    /// All writes; their replies have no results.
    Writes,
    /// None.
    None,
}

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Drawn from distributions.
    Drawn(Box<Workload>),
    /// Read from a trace, in order and over again.
    Recorded(Arc<Recording>),
}

/// One request before it has bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) verb: Kind,
    pub(crate) key: u64,
    pub(crate) key_bytes: u8,
    /// Of the value stored, or of the one expected; 0 if it is not known.
    pub(crate) value_bytes: u32,
    pub(crate) ttl_s: u32,
    /// Counters are keys of their own.
    pub(crate) is_counter: bool,
    pub(crate) then: Then,
}

/// What follows a request on its connection once it is answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Then {
    Nothing,
    /// A write of the same key.
    Set,
    /// A write if nothing has changed since; where nothing was found, a write if there still is
    /// nothing.
    Cas,
    /// A write if nothing was found.
    Fill,
}

/// Decides which request is next; one for each thread.
#[derive(Debug)]
pub(crate) struct Asker {
    draws: Draws,
    fill: bool,
    /// Length of every key, where it is one.
    key_bytes: u8,
}

#[derive(Debug)]
enum Draws {
    Drawn(Box<Generator>),
    Recorded {
        recording: Arc<Recording>,
        next: usize,
        step: usize,
    },
}

/// Decides which bytes a request has.
#[derive(Clone, Debug)]
pub(crate) struct Wording {
    pub(crate) protocol: Protocol,
    keys: Keys,
    /// Values are cut from this; the same for every seed.
    body: Arc<[u8]>,
    stamped: bool,
    /// Whether every value of a key has the length that its number says.
    pub(crate) lengths_are_known: bool,
}

#[derive(Clone, Debug)]
enum Keys {
    Numbered(Box<Items>),
    Recorded(Arc<Recording>),
}

impl Load {
    /// A workload, without filling or verification.
    pub fn drawn(protocol: Protocol, workload: Workload) -> Self {
        Self {
            protocol,
            source: Source::Drawn(Box::new(workload)),
            fill: false,
            verify: false,
            marking: Marking::default(),
            login: None,
        }
    }

    /// Number of keys that a preload stores.
    pub fn keys(&self) -> u64 {
        match &self.source {
            Source::Drawn(workload) => workload.keys,
            Source::Recorded(recording) => recording.keys(),
        }
    }

    /// What it was called when it was asked for.
    pub fn name(&self) -> &str {
        match &self.source {
            Source::Drawn(workload) => &workload.name,
            Source::Recorded(recording) => recording.name(),
        }
    }

    /// In full, for a report.
    pub fn describe(&self) -> String {
        match &self.source {
            Source::Drawn(workload) => workload.to_string(),
            Source::Recorded(recording) => recording.describe(),
        }
    }

    /// Refuses what cannot be driven.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |what: String| Err(LoadError::Arguments(what));
        if let Source::Drawn(workload) = &self.source
            && let Err(error) = workload.check()
        {
            return refuse(error.to_string());
        }
        if self.login.is_some() && matches!(self.protocol, Protocol::Resp | Protocol::Native) {
            return refuse("only memcached's protocols have a login (--user)".into());
        }
        for verb in self.verbs() {
            if !self.protocol.has(verb) {
                let protocol = self.protocol;
                return refuse(format!("the driver cannot send {verb:?} by {protocol:?}"));
            }
            let mixes = matches!(verb, Kind::Append | Kind::Prepend);
            if self.verify && mixes {
                return refuse("--verify cannot check what append and prepend store".into());
            }
        }
        Ok(())
    }

    /// Every verb that may be sent.
    fn verbs(&self) -> Vec<Kind> {
        let kinds: Vec<Kind> = match &self.source {
            Source::Drawn(workload) => {
                let shares = workload.mix.shares().iter();
                shares.map(|(kind, _)| *kind).collect()
            }
            Source::Recorded(recording) => recording.kinds(),
        };
        let steps = |kind| -> [Kind; 2] {
            let (first, then) = steps_of(kind);
            let second = match then {
                Then::Set => Kind::Set,
                Then::Cas => Kind::Cas,
                Then::Nothing | Then::Fill => first,
            };
            [first, second]
        };
        kinds.into_iter().flat_map(steps).collect()
    }

    /// Whether a request's bytes may depend on the reply before it.
    pub(crate) fn depends_on_replies(&self) -> bool {
        self.fill || self.verbs().contains(&Kind::Cas)
    }

    /// A drawer of requests for one of `count` threads.
    pub(crate) fn asker(&self, seed: u64, index: usize, count: usize) -> Asker {
        let draws = match &self.source {
            Source::Drawn(workload) => {
                let stream = Stream {
                    index: index as u32,
                    count: count as u32,
                };
                Draws::Drawn(Box::new(workload.generator(seed, stream)))
            }
            Source::Recorded(recording) => Draws::Recorded {
                recording: Arc::clone(recording),
                next: index,
                step: count,
            },
        };
        Asker {
            draws,
            fill: self.fill,
            key_bytes: match &self.source {
                Source::Drawn(workload) => workload.key_bytes as u8,
                Source::Recorded(_) => 0,
            },
        }
    }

    /// The words for its requests.
    pub(crate) fn wording(&self) -> Wording {
        let (keys, bytes_max) = match &self.source {
            Source::Drawn(workload) => {
                let items = workload.items();
                let bytes_max = items.value_bytes_max();
                (Keys::Numbered(Box::new(items)), bytes_max)
            }
            Source::Recorded(recording) => {
                let bytes_max = recording.value_bytes_max();
                (Keys::Recorded(Arc::clone(recording)), bytes_max)
            }
        };
        let mut random = Random::new(0x626f_6479);
        let letter = |_| b'a' + random.below(26) as u8;
        let changes_length = |verb: &Kind| matches!(verb, Kind::Append | Kind::Prepend);
        let numbered = matches!(keys, Keys::Numbered(_));
        Wording {
            protocol: self.protocol,
            keys,
            body: (0..bytes_max).map(letter).collect(),
            stamped: self.verify,
            lengths_are_known: numbered && !self.verbs().iter().any(changes_length),
        }
    }
}

/// What a command of a workload is on the wire, which is never two requests, and what follows it.
fn steps_of(kind: Kind) -> (Kind, Then) {
    match kind {
        Kind::Insert => (Kind::Set, Then::Nothing),
        Kind::Cas => (Kind::Gets, Then::Cas),
        Kind::ReadModifyWrite => (Kind::Get, Then::Set),
        verb => (verb, Then::Nothing),
    }
}

impl Asker {
    /// The request that is meant for `now_ns` of the run.
    pub(crate) fn draw(&mut self, now_ns: u64) -> Request {
        let (kind, key, item) = match &mut self.draws {
            Draws::Drawn(generator) => {
                let drawn = generator.draw(now_ns);
                let item = (self.key_bytes, drawn.item.value_bytes, drawn.item.ttl_s);
                (drawn.kind, drawn.key, item)
            }
            Draws::Recorded {
                recording,
                next,
                step,
            } => {
                let found = recording.request(*next);
                *next += *step;
                (found.kind, found.key.into(), found.item())
            }
        };
        let (verb, then) = steps_of(kind);
        let mut request = Request {
            then,
            ..Request::new(verb, key, item)
        };
        if self.fill && !request.verb.is_write() && request.then == Then::Nothing {
            request.then = Then::Fill;
        }
        request
    }
}

impl Request {
    /// With a key and a value of these lengths, and so long to live.
    pub(crate) fn new(
        verb: Kind,
        key: u64,
        (key_bytes, value_bytes, ttl_s): (u8, u32, u32),
    ) -> Self {
        Self {
            verb,
            key,
            key_bytes,
            value_bytes,
            ttl_s,
            is_counter: verb.is_count(),
            then: Then::Nothing,
        }
    }

    /// What follows on the same connection once this was answered: a hit with its token or not.
    pub(crate) fn follow_up(&self, hit: bool) -> Option<Self> {
        let verb = match (self.then, hit) {
            (Then::Nothing, _) | (Then::Fill, true) => return None,
            (Then::Set, _) | (Then::Fill, false) => Kind::Set,
            (Then::Cas, true) => Kind::Cas,
            (Then::Cas, false) => Kind::Add,
        };
        Some(Self {
            verb,
            then: Then::Nothing,
            ..*self
        })
    }

    /// What stores a counter's first value once a change of it was refused, in protocols whose
    /// counters do not begin by themselves.
    pub(crate) fn first_count(&self, protocol: Protocol) -> Option<Self> {
        let begins = matches!(protocol, Protocol::Text | Protocol::Native);
        (self.verb.is_count() && begins).then_some(Self {
            verb: Kind::Add,
            value_bytes: 1,
            then: Then::Nothing,
            ..*self
        })
    }

    /// Whether this is such a request.
    pub(crate) fn begins_counter(&self) -> bool {
        self.is_counter && self.verb.has_value()
    }
}

impl Wording {
    /// Appends the request's bytes. A stamped value carries `version`; `token` is what
    /// [`Kind::Cas`] needs.
    pub(crate) fn put(&self, request: &Request, version: u64, token: u64, output: &mut Vec<u8>) {
        let key = |output: &mut Vec<u8>| self.put_key(request, output);
        let value = |output: &mut Vec<u8>| self.put_value(request, version, output);
        self.protocol.put(request, token, key, value, output);
    }

    /// Appends the request's key.
    pub(crate) fn put_key(&self, request: &Request, output: &mut Vec<u8>) {
        let start = output.len();
        self.key_text(request).put(request.key, output);
        if request.is_counter {
            // No other key has this byte.
            output[start] = b'#';
        }
    }

    /// Appends the value that the request stores.
    pub(crate) fn put_value(&self, request: &Request, version: u64, output: &mut Vec<u8>) {
        if request.is_counter {
            output.push(b'0');
        } else if self.stamped {
            piece(request.key, version, request.value_bytes).put(output);
        } else {
            output.extend_from_slice(&self.body[..request.value_bytes as usize]);
        }
    }

    /// The write of a key as a preload does it.
    pub(crate) fn store(&self, key: u64) -> Request {
        self.request(Kind::Set, key)
    }

    /// The read of a key as a sample does it.
    pub(crate) fn read(&self, key: u64) -> Request {
        self.request(Kind::Get, key)
    }

    fn request(&self, verb: Kind, key: u64) -> Request {
        let item = match &self.keys {
            Keys::Numbered(items) => {
                let item = items.item(key);
                (items.key_text().bytes() as u8, item.value_bytes, item.ttl_s)
            }
            Keys::Recorded(recording) => recording.item(key),
        };
        Request::new(verb, key, item)
    }

    /// Length of the reply if a read hits and a change is made, where it can be known.
    pub(crate) fn expected_bytes(&self, request: &Request) -> Option<usize> {
        self.protocol
            .expected_bytes(request)
            .filter(|_| self.lengths_are_known)
    }

    fn key_text(&self, request: &Request) -> KeyText {
        match &self.keys {
            Keys::Numbered(items) => items.key_text(),
            Keys::Recorded(recording) => recording.key_text(request.key_bytes),
        }
    }
}

/// The stamp of a value. One too short for a head proves its key alone: it is the same in every
/// version.
pub(crate) fn piece(key: u64, version: u64, bytes: u32) -> Piece {
    Piece {
        key,
        version: if bytes < HEAD_BYTES { 0 } else { version },
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Load {
        Load::drawn(Protocol::Text, text.parse().unwrap())
    }

    fn worded(load: &Load, request: &Request) -> String {
        let mut output = Vec::new();
        load.wording().put(request, 0, 7, &mut output);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_read_modify_write_is_two_requests() {
        let load = load("ycsb-f:keys=100,key=4,value=3,mix=rmw");
        let first = load.asker(1, 0, 1).draw(0);
        assert!(worded(&load, &first).starts_with("get k"));
        let second = first.follow_up(true).unwrap();
        assert!(worded(&load, &second).starts_with("set k") && second.key == first.key);
        assert!(second.follow_up(true).is_none());
    }

    #[test]
    fn a_compare_and_swap_needs_a_token_or_nothing_there() {
        let load = load("custom:keys=100,key=4,value=3,mix=cas");
        let first = load.asker(1, 0, 1).draw(0);
        assert!(worded(&load, &first).starts_with("gets k"));
        let swap = worded(&load, &first.follow_up(true).unwrap());
        assert!(
            swap.starts_with("cas k") && swap.contains(" 0 0 3 7\r\n"),
            "{swap}"
        );
        let add = worded(&load, &first.follow_up(false).unwrap());
        assert!(add.starts_with("add k"), "{add}");
    }

    #[test]
    fn misses_are_filled_only_on_request() {
        let mut load = load("custom:keys=100,key=4,value=3,mix=get,ttl=60s");
        assert!(load.asker(1, 0, 1).draw(0).follow_up(false).is_none());
        load.fill = true;
        let read = load.asker(1, 0, 1).draw(0);
        assert!(read.follow_up(true).is_none());
        let fill = worded(&load, &read.follow_up(false).unwrap());
        assert!(
            fill.starts_with("set k") && fill.contains(" 0 60 3\r\n"),
            "{fill}"
        );
    }

    #[test]
    fn counters_are_keys_of_their_own() {
        let load = load("custom:keys=100,key=4,value=3,mix=incr");
        let request = load.asker(1, 0, 1).draw(0);
        let text = worded(&load, &request);
        assert!(
            text.starts_with("incr #0") && text.ends_with(" 1\r\n"),
            "{text}"
        );
        let first = worded(&load, &request.first_count(Protocol::Text).unwrap());
        assert!(first.starts_with("add #0") && first.ends_with(" 0 0 1\r\n0\r\n"));
        assert!(request.first_count(Protocol::Meta).is_none());
    }

    #[test]
    fn what_a_protocol_cannot_say_is_refused() {
        let mut resp = load("custom:mix=cas");
        resp.protocol = Protocol::Resp;
        assert!(resp.check().is_err());
        let mut lengthened = load("custom:mix=get@0.9+append@0.1");
        assert!(lengthened.check().is_ok());
        lengthened.verify = true;
        assert!(lengthened.check().is_err());
    }
}
