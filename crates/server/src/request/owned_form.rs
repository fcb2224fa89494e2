//! How a request wants its answer spelt, kept longer than the input it came in.
//!
//! A decoded request borrows from what was received in this turn. What is answered in a later turn,
//! or by another worker, keeps its form like this, with the opaque token as bytes of its own.

use curtail_codec::memcached::{Form, Meta, Returns, WireKey};
use curtail_types::Key;

/// A form without its opaque token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeptForm {
    Value {
        with_cas: bool,
        last: bool,
    },
    Line {
        noreply: bool,
    },
    Meta {
        returns: Returns,
        value: bool,
        quiet: bool,
    },
    Debug,
}

impl KeptForm {
    /// The form, and the token that is to be kept beside it.
    pub(crate) fn of<'a>(form: &Form<'a>) -> (Self, &'a [u8]) {
        match *form {
            Form::Value { with_cas, last } => (Self::Value { with_cas, last }, b""),
            Form::Line { noreply } => (Self::Line { noreply }, b""),
            Form::Debug => (Self::Debug, b""),
            Form::Meta(meta) => {
                let kept = Self::Meta {
                    returns: meta.returns,
                    value: meta.value,
                    quiet: meta.quiet,
                };
                (kept, meta.opaque)
            }
        }
    }

    /// The form again.
    pub(crate) fn restore(self, opaque: &[u8]) -> Form<'_> {
        match self {
            Self::Value { with_cas, last } => Form::Value { with_cas, last },
            Self::Line { noreply } => Form::Line { noreply },
            Self::Debug => Form::Debug,
            Self::Meta {
                returns,
                value,
                quiet,
            } => Form::Meta(Meta {
                returns,
                opaque,
                value,
                quiet,
            }),
        }
    }
}

/// The key that was spelt as `text`.
pub(crate) fn restore_key(text: &[u8], base64: bool) -> Option<WireKey<'_>> {
    let key = WireKey::plain(Key::new(text).ok()?);
    if base64 { key.as_base64() } else { Some(key) }
}
