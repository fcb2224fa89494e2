//! Completion: how a reply that was not ready when its turn ended reaches the connection that waits
//! for it.
//!
//! ```text
//!   replies of a turn   | spelt | spelt | place 7 | spelt |
//!                                            |
//!                       Token { connection, place 7 } goes along with the request
//!                                            |
//!   delegated batch, other node, tier ... answers: Answer -> the place's own form spells it
//! ```
//!
//! A place keeps the order of its connection: nothing behind it is sent before it is filled, and
//! nothing more is read from the connection meanwhile. It is filled once: its number is not used
//! again while anything of it can be on its way. A token whose connection has closed fills nothing.

use curtail_codec::{
    memcached::{
        Form, Sink,
        encode::{self, REPLY_BYTES_MAX, Refusal},
    },
    node::Shows,
};
use curtail_types::{Failure, Operation, Outcome};

use crate::{
    key_encoding::{BASE64_BYTES_MAX, base64_in},
    owned_reply_form::OwnedForm,
};

/// Where an answer belongs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Token {
    /// The slot of the connection, and which connection of its worker that must be.
    pub(crate) slot: usize,
    pub(crate) serial: u64,
    /// Which of its places.
    pub(crate) place: u32,
}

/// The threads that ask a node of a cluster, beside its workers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AskingThread {
    /// The one of memcached's datagrams.
    Memcached,
    /// The one that receives native datagrams.
    Native,
    /// The one of native streams.
    NativeStreams,
}

impl AskingThread {
    pub(crate) const COUNT: usize = 3;
}

/// Which request of a thread waits for an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ThreadAsker {
    pub(crate) thread: AskingThread,
    /// What the thread calls it.
    pub(crate) name: u64,
}

/// How a request ended that a node of a cluster executed, and what it shows of a value; a flush has
/// no outcome.
pub(crate) type Told<'a> = Result<Option<(Outcome, &'a [u8])>, Failure>;

/// A place in a connection's replies that is filled later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) number: u32,
    pub(crate) what: Awaited,
    /// How an outcome is spelt; `None` if nothing but errors is told.
    pub(crate) form: Option<OwnedForm>,
}

/// What becomes of an answer that is awaited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Awaited {
    /// It is sent as it is.
    Whole,
    /// It is a part: a value is sent; an error ends up in the request's last line.
    Part,
    /// The client asked for no reply, so it is told of no error either.
    Silent,
}

/// What a place is filled with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    /// An operation on `key` ended so; `value` is what a read found.
    Outcome {
        outcome: Outcome,
        key: &'a [u8],
        value: &'a [u8],
    },
    /// Nothing went wrong, and there is nothing to tell.
    Nothing,
    /// It has no outcome.
    Failed(Failure),
}

impl<'a> Answer<'a> {
    /// What a client is told: how its request on `key` ended, and what it shows of a value.
    /// Without a key there is nothing to tell but a failure.
    pub(crate) fn of(told: Told<'a>, key: Option<&'a [u8]>, shows_versions: bool) -> Self {
        match (told, key) {
            (Err(failure), _) => Self::Failed(failure),
            (Ok(Some((mut outcome, value))), Some(key)) => {
                if !shows_versions {
                    outcome.hide_version();
                }
                Self::Outcome {
                    outcome,
                    key,
                    value,
                }
            }
            (Ok(_), _) => Self::Nothing,
        }
    }
}

/// An answer as a place's client is to see it.
#[derive(Debug)]
pub(crate) struct Spelt<'a> {
    head: [u8; REPLY_BYTES_MAX],
    head_bytes: usize,
    value: &'a [u8],
    tail: &'static [u8],
}

impl Awaited {
    /// What becomes of the answer to a request of this form.
    pub(crate) fn of(form: &Form<'_>) -> Self {
        match form {
            Form::Value { last: false, .. } => Self::Part,
            Form::Line { noreply: true } => Self::Silent,
            _ => Self::Whole,
        }
    }
}

impl Place {
    /// The bytes of `answer` here; if it is the error of a part, the line that tells it.
    pub(crate) fn spell<'a>(&self, answer: Answer<'a>) -> Result<Spelt<'a>, &'static [u8]> {
        let mut spelt = Spelt {
            head: [0; REPLY_BYTES_MAX],
            head_bytes: 0,
            value: &[],
            tail: &[],
        };
        match (self.what, answer) {
            (Awaited::Silent, _) | (_, Answer::Nothing) => {}
            (what, Answer::Failed(failure)) => {
                let line = Refusal::from(failure).reply();
                if what == Awaited::Part {
                    return Err(line);
                }
                spelt.tail = line;
            }
            (
                _,
                Answer::Outcome {
                    outcome,
                    key,
                    value,
                },
            ) => {
                if let Some(form) = &self.form {
                    spelt.spell(form, &outcome, key, value);
                }
            }
        }
        Ok(spelt)
    }
}

impl<'a> Spelt<'a> {
    fn spell(&mut self, form: &OwnedForm, outcome: &Outcome, key: &[u8], value: &'a [u8]) {
        let mut room = [0; BASE64_BYTES_MAX];
        let text = match form.is_base64() {
            false => key,
            true => base64_in(&mut room, key),
        };
        let Some(key) = form.key(text) else {
            return;
        };
        let mut sink = Sink::new(&mut self.head);
        let form = form.form();
        if encode::outcome(&mut sink, &key, &form, outcome) {
            self.value = value;
            self.tail = encode::value_tail(&form);
        }
        self.head_bytes = sink.len();
    }

    /// Its pieces, in order.
    pub(crate) fn pieces(&self) -> [&[u8]; 3] {
        let head = self.head.get(..self.head_bytes).unwrap_or_default();
        [head, self.value, self.tail]
    }

    /// Whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces().iter().all(|piece| piece.is_empty())
    }
}

/// What another thread or node is to show of what a request of this form reads.
pub(crate) fn shows(operation: &Operation, form: &Form<'_>) -> Shows {
    match (operation, form) {
        (Operation::Get(_), Form::Value { .. }) => Shows::Value,
        (Operation::Get(_), Form::Meta(meta)) if meta.value => Shows::Value,
        (Operation::Get(_), Form::Meta(_) | Form::Debug) => Shows::Status,
        _ => Shows::Nothing,
    }
}
