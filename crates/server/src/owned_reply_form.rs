//! The form of a request's reply (text, meta flags), owned, so that it outlives the input.
//!
//! A decoded request borrows from what was received in this turn. What is answered in a later turn,
//! or executed by another worker, keeps its form like this, and the text of its key beside it.

use curtail_codec::memcached::{Form, Meta, OPAQUE_BYTES_MAX, Returns, WireKey};
use curtail_types::Key;

/// A form that borrows nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnedForm {
    shape: Shape,
    /// The key's text is a base64 form.
    base64: bool,
    opaque_bytes: u8,
    opaque: [u8; OPAQUE_BYTES_MAX],
}

#[derive(Clone, Copy, Debug)]
enum Shape {
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

impl OwnedForm {
    /// The form of a request whose key stands as `key` on the wire.
    pub(crate) fn new(key: &WireKey<'_>, form: &Form<'_>) -> Self {
        let mut opaque = [0; OPAQUE_BYTES_MAX];
        let mut opaque_bytes = 0;
        let shape = match *form {
            Form::Value { with_cas, last } => Shape::Value { with_cas, last },
            Form::Line { noreply } => Shape::Line { noreply },
            Form::Debug => Shape::Debug,
            Form::Meta(meta) => {
                if let Some(room) = opaque.get_mut(..meta.opaque.len()) {
                    room.copy_from_slice(meta.opaque);
                    opaque_bytes = meta.opaque.len() as u8;
                }
                Shape::Meta {
                    returns: meta.returns,
                    value: meta.value,
                    quiet: meta.quiet,
                }
            }
        };
        Self {
            shape,
            base64: key.is_base64(),
            opaque_bytes,
            opaque,
        }
    }

    /// The form again.
    pub(crate) fn form(&self) -> Form<'_> {
        match self.shape {
            Shape::Value { with_cas, last } => Form::Value { with_cas, last },
            Shape::Line { noreply } => Form::Line { noreply },
            Shape::Debug => Form::Debug,
            Shape::Meta {
                returns,
                value,
                quiet,
            } => {
                let opaque = self.opaque.get(..usize::from(self.opaque_bytes));
                Form::Meta(Meta {
                    returns,
                    opaque: opaque.unwrap_or_default(),
                    value,
                    quiet,
                })
            }
        }
    }

    /// The key whose text on the wire was `text`.
    pub(crate) fn key<'a>(&self, text: &'a [u8]) -> Option<WireKey<'a>> {
        let key = WireKey::plain(Key::new(text).ok()?);
        match self.base64 {
            true => key.as_base64(),
            false => Some(key),
        }
    }

    /// Whether the key's text is a base64 form of it.
    pub(crate) const fn is_base64(&self) -> bool {
        self.base64
    }
}
