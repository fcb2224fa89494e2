//! Decoded requests, which borrow from the input, and the form of their replies.
//!
//! Everything here is `Copy`, so that a server can collect a batch of requests, hand them to the
//! store in whatever order is fast, and still spell each reply as it was asked for.

use core::fmt;

use curtail_types::{Key, Operation, Set};

use super::{admin::Admin, base64, encode::Refusal};

/// The longest command line in bytes, its line end not counted; only `get` and `gets` may be
/// longer.
pub const LINE_BYTES_MAX: usize = 2048;

/// The longest opaque token in bytes, the `O` before it not counted.
pub const OPAQUE_BYTES_MAX: usize = 31;

/// What a decoder is allowed to accept.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Limits {
    /// The longest value in bytes that the store could take (`-I`). A longer one is refused, and
    /// its bytes are swallowed.
    pub value_bytes_max: u32,
    /// The longest value in bytes that is delivered as part of [`Request::Item`]; a longer one
    /// comes as [`Request::SetHeader`] and the server receives the value itself.
    pub inline_value_bytes_max: u32,
}

/// What one call of [`Decoder::decode`](super::Decoder::decode) made of the input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decoded<'a> {
    /// A whole request.
    Complete {
        /// The request; borrows from the input.
        request: Request<'a>,
        /// Bytes of the input that belong to it; decode again from there.
        consumed: usize,
    },
    /// No whole request. Drop `consumed` bytes, keep the rest, and come back with more behind it.
    Incomplete {
        /// Bytes of the input that are done with: of a value that is being swallowed, and the
        /// like. Usually 0.
        consumed: usize,
        /// How many bytes the input must hold, after dropping `consumed`, before another call can
        /// get further. Never more than [`Limits::input_bytes_max`].
        needed: usize,
    },
    /// Not a request. Send `reply`, drop `consumed` bytes, and go on unless `close`.
    Malformed {
        /// What to answer, line end included; empty when the client asked for silence.
        reply: &'static [u8],
        /// Bytes of the input that are done with.
        consumed: usize,
        /// Whether the connection must be closed once everything before it is answered.
        close: bool,
    },
}

/// One request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Request<'a> {
    /// An operation on one item. A `get` of many keys comes as one of these per key, none of them
    /// the last, and then [`EndOfKeys`](Self::EndOfKeys).
    Item {
        /// The key.
        key: WireKey<'a>,
        /// What to do.
        operation: Operation,
        /// The value of a [`Operation::Set`]; empty for the others.
        value: &'a [u8],
        /// How to spell the reply.
        form: Form<'a>,
    },
    /// A write whose value is too long to come along ([`Limits::inline_value_bytes_max`]). The next
    /// `value_bytes` bytes are the value and the two after it must pass a
    /// [`BodyEnd`](super::BodyEnd); the server takes these bytes itself and then decodes on. If it
    /// cannot place the value it answers and calls
    /// [`Decoder::swallow`](super::Decoder::swallow) instead.
    SetHeader(SetHeader<'a>),
    /// A write above [`Limits::value_bytes_max`]. The decoder swallows the value by itself. Answer
    /// [`SetOutcome::TooLarge`](curtail_types::SetOutcome::TooLarge); memcached also removes the
    /// item under this key (of text commands only `set` does so), lest a stale value stay.
    SetTooLarge(SetHeader<'a>),
    /// All keys of a `get` of many have been given out: answer [`encode::end`](super::encode::end),
    /// or one error line if any of them failed or there is a `refusal`.
    EndOfKeys {
        /// The line had a key that cannot be one.
        refusal: Option<Refusal>,
    },
    /// `mn`: answer at once, so that the client knows that all before it is done.
    Noop,
    /// The login that `-Y` asks for. After a right one answer `STORED` and call
    /// [`Decoder::authenticated`](super::Decoder::authenticated).
    Authenticate {
        /// The name.
        user: &'a [u8],
        /// The password.
        password: &'a [u8],
    },
    /// Everything that is not about one item.
    Admin(Admin<'a>),
}

/// A write whose line is understood and whose value comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SetHeader<'a> {
    /// The key.
    pub key: WireKey<'a>,
    /// What to do with the value.
    pub set: Set,
    /// Length of the value in bytes.
    pub value_bytes: u32,
    /// How to spell the reply.
    pub form: Form<'a>,
}

/// How a reply is spelt.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Form<'a> {
    /// `get`, `gets`, `gat`, `gats`: `VALUE` on a hit, nothing on a miss, `END` behind the last.
    Value {
        /// With the version, as `gets` and `gats` want it.
        with_cas: bool,
        /// This is the only key of its command: `END` follows. Of many keys none is the last:
        /// their end is a request of its own.
        last: bool,
    },
    /// The other text commands: one line.
    Line {
        /// Not even that, errors included.
        noreply: bool,
    },
    /// The meta commands.
    Meta(Meta<'a>),
    /// `me`: an item's metadata for human readers.
    Debug,
}

/// How a reply to a meta command is spelt.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Meta<'a> {
    /// The flags to return, in the order in which they were asked for.
    pub returns: Returns,
    /// What to return as `O`, when asked for.
    pub opaque: &'a [u8],
    /// Send the value or the number: `v`.
    pub value: bool,
    /// Leave the nominal reply out: `q`. That is `EN` for `mg` and `HD` for the others; for `ma`
    /// also `VA`. Errors are always sent.
    pub quiet: bool,
}

/// One thing that a meta reply can return.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Return {
    /// `s`: length of the value.
    Size = 1,
    /// `t`: seconds to live, -1 for ever.
    Ttl,
    /// `c`: the item's version.
    Cas,
    /// `f`: the client's flags.
    Flags,
    /// `l`: seconds since the last access.
    Idle,
    /// `h`: whether it was read before.
    Fetched,
    /// `O`: the opaque token.
    Opaque,
    /// `k`: the key as it was sent.
    Key,
}

/// A short list of distinct [`Return`]s: four bits each in one word, the last in the lowest bits.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Returns(u32);

/// A key as it stands on the wire: either its bytes, or their base64 form (meta flag `b`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct WireKey<'a> {
    text: Key<'a>,
    base64: bool,
}

/// Room to turn a base64 key into bytes.
#[derive(Clone, Debug)]
pub struct KeyScratch([u8; Key::BYTES_MAX]);

impl Limits {
    /// The most bytes that the input must be able to hold at once, whatever a client sends.
    pub const fn input_bytes_max(&self) -> usize {
        LINE_BYTES_MAX + 2 * LINE_END_BYTES_MAX + self.inline_value_bytes_max as usize
    }
}

impl Meta<'_> {
    /// The plainest reply.
    pub const NONE: Self = Self {
        returns: Returns(0),
        opaque: &[],
        value: false,
        quiet: false,
    };
}

impl Returns {
    /// Appends `what`, which must not be there yet.
    #[inline]
    pub const fn push(&mut self, what: Return) {
        debug_assert!(self.0 >> (u32::BITS - 4) == 0);
        self.0 = self.0 << 4 | what as u32;
    }

    /// Whether nothing is to be returned.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Iterator for Returns {
    type Item = Return;

    #[inline]
    fn next(&mut self) -> Option<Return> {
        let above_bits = self.0.leading_zeros() & !3;
        let place = (u32::BITS - 4).wrapping_sub(above_bits);
        let what = match self.0.wrapping_shr(place) {
            1 => Return::Size,
            2 => Return::Ttl,
            3 => Return::Cas,
            4 => Return::Flags,
            5 => Return::Idle,
            6 => Return::Fetched,
            7 => Return::Opaque,
            8 => Return::Key,
            _ => return None,
        };
        self.0 &= !(0xf << place);
        Some(what)
    }
}

impl fmt::Debug for Returns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

impl Return {
    /// What a flag without a token asks to be returned; `None` for all other letters.
    #[inline(always)]
    pub(super) const fn of_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b's' => Self::Size,
            b't' => Self::Ttl,
            b'c' => Self::Cas,
            b'f' => Self::Flags,
            b'l' => Self::Idle,
            b'h' => Self::Fetched,
            b'k' => Self::Key,
            _ => return None,
        })
    }
}

impl<'a> WireKey<'a> {
    /// A key that stands for itself.
    #[inline]
    pub const fn plain(text: Key<'a>) -> Self {
        Self {
            text,
            base64: false,
        }
    }

    /// The same text as a base64 form; `None` when it is not one.
    pub fn as_base64(self) -> Option<Self> {
        let mut scratch = KeyScratch::default();
        base64::decode(self.text.bytes(), &mut scratch.0)?;
        Some(Self {
            base64: true,
            ..self
        })
    }

    /// The bytes as the client sent them, and as it wants to see them again.
    #[inline]
    pub const fn text(&self) -> &'a [u8] {
        self.text.bytes()
    }

    /// Whether the text is a base64 form.
    #[inline]
    pub const fn is_base64(&self) -> bool {
        self.base64
    }

    /// The key itself: what the store is asked for. Free unless the text is a base64 form.
    #[inline]
    pub fn resolve<'s>(&self, scratch: &'s mut KeyScratch) -> Key<'s>
    where
        'a: 's,
    {
        if self.base64 {
            self.resolve_base64(scratch)
        } else {
            self.text
        }
    }

    #[cold]
    fn resolve_base64<'s>(&self, scratch: &'s mut KeyScratch) -> Key<'s>
    where
        'a: 's,
    {
        let decoded = base64::decode(self.text.bytes(), &mut scratch.0);
        // The text was decoded when this key was made; the other arm cannot be reached.
        match decoded.map(Key::new) {
            Some(Ok(key)) => key,
            _ => self.text,
        }
    }
}

impl Default for KeyScratch {
    fn default() -> Self {
        Self([0; Key::BYTES_MAX])
    }
}

const LINE_END_BYTES_MAX: usize = 2;
