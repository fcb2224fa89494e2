//! Operations on an owned key: how each is encoded, what its reply says, and its effect on the key.

use super::{
    model::{Content, Ends, Slot, When},
    tally::Fault,
};
use crate::self_checking_value::Piece;

/// One request on an owned key.
#[derive(Debug)]
pub(super) enum Ask {
    Get {
        touch: Option<u32>,
    },
    Gets,
    MetaGet,
    Store {
        verb: Verb,
        content: Content,
        flags: u32,
        seconds: u32,
    },
    Extend {
        piece: Piece,
        at_front: bool,
    },
    Delete {
        is_meta: bool,
    },
    Count {
        delta: u64,
        is_up: bool,
    },
    Touch {
        seconds: u32,
    },
}

/// The ways of writing a whole value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verb {
    Set,
    MetaSet,
    Add,
    Replace,
    /// With the version token of a read, and whether nothing was written since.
    Cas {
        token: u64,
        is_current: bool,
    },
}

impl Ask {
    /// Appends the request.
    pub(super) fn put(&self, key: &str, request: &mut Vec<u8>) {
        let mut value = Vec::new();
        match self {
            Self::Extend { piece, .. } => piece.put(&mut value),
            Self::Store { content, .. } => put_content(content, &mut value),
            _ => {}
        }
        request.extend_from_slice(self.line(key, value.len()).as_bytes());
        request.extend_from_slice(b"\r\n");
        if matches!(self, Self::Extend { .. } | Self::Store { .. }) {
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
    }

    fn line(&self, key: &str, bytes: usize) -> String {
        match self {
            Self::Get { touch: None } => format!("get {key}"),
            Self::Get {
                touch: Some(seconds),
            } => format!("gat {seconds} {key}"),
            Self::Gets => format!("gets {key}"),
            Self::MetaGet => format!("mg {key} k f c v"),
            Self::Delete { is_meta: false } => format!("delete {key}"),
            Self::Delete { is_meta: true } => format!("md {key}"),
            Self::Touch { seconds } => format!("touch {key} {seconds}"),
            Self::Count { delta, is_up: true } => format!("incr {key} {delta}"),
            Self::Count { delta, .. } => format!("decr {key} {delta}"),
            Self::Extend { at_front: true, .. } => format!("prepend {key} 0 0 {bytes}"),
            Self::Extend { .. } => format!("append {key} 0 0 {bytes}"),
            Self::Store {
                verb,
                flags,
                seconds,
                ..
            } => match verb {
                Verb::Set => format!("set {key} {flags} {seconds} {bytes}"),
                Verb::Add => format!("add {key} {flags} {seconds} {bytes}"),
                Verb::Replace => format!("replace {key} {flags} {seconds} {bytes}"),
                Verb::Cas { token, .. } => format!("cas {key} {flags} {seconds} {bytes} {token}"),
                Verb::MetaSet => format!("ms {key} {bytes} F{flags} T{seconds}"),
            },
        }
    }

    /// What a one-line reply says about the item before the request: outer `None` if it does not
    /// fit the request, inner `None` if it says nothing.
    pub(super) fn was_there(&self, line: &str, before: &Slot) -> Option<Option<bool>> {
        Some(match (self, line) {
            (Self::Store { verb, .. }, line) => return verb.was_there(line),
            (Self::Extend { .. }, "STORED") => Some(true),
            (Self::Extend { .. }, "NOT_STORED") => Some(false),
            (Self::Delete { is_meta: false }, "DELETED") => Some(true),
            (Self::Delete { is_meta: false }, "NOT_FOUND") => Some(false),
            (Self::Delete { is_meta: true }, "HD") => Some(true),
            (Self::Delete { is_meta: true }, "NF") => Some(false),
            (Self::Touch { .. }, "TOUCHED") => Some(true),
            (Self::Touch { .. } | Self::Count { .. }, "NOT_FOUND") => Some(false),
            (Self::Count { .. }, line) if line.parse::<u64>().is_ok() => {
                let is_text = matches!(before.content, Content::Pieces(_));
                (!is_text).then_some(true)
            }
            _ => return None,
        })
    }

    /// Carries out on the slot what the reply says was done; whether it was there is settled.
    pub(super) fn apply(&self, slot: &mut Slot, line: &str, when: When) {
        let ends = |seconds: u32| (seconds > 0).then(|| Ends::after(seconds, when));
        match self {
            Self::Store {
                content,
                flags,
                seconds,
                ..
            } if line == "STORED" || line == "HD" => {
                slot.store(content.clone(), *flags, ends(*seconds));
            }
            Self::Extend { piece, at_front } if line == "STORED" => {
                if let Content::Pieces(pieces) = &mut slot.content {
                    let at = if *at_front { 0 } else { pieces.len() };
                    pieces.insert(at, *piece);
                }
                slot.overwritten();
            }
            Self::Delete { .. } => slot.forget(),
            Self::Touch { seconds } if line == "TOUCHED" => slot.ends = ends(*seconds),
            Self::Count { .. } => {
                if let Ok(number) = line.parse() {
                    slot.content = Content::Number(number);
                }
                slot.overwritten();
            }
            _ => {}
        }
    }

    /// Whether a counted number is not what the number before gives.
    pub(super) fn number_fault(&self, line: &str, before: &Slot) -> Option<Fault> {
        let (Self::Count { delta, is_up }, Content::Number(number), Ok(counted)) =
            (self, &before.content, line.parse::<u64>())
        else {
            return None;
        };
        let expected = if *is_up {
            number.wrapping_add(*delta)
        } else {
            number.saturating_sub(*delta)
        };
        (counted != expected).then_some(Fault::Miscounted)
    }
}

impl Verb {
    fn was_there(self, line: &str) -> Option<Option<bool>> {
        Some(match (self, line) {
            (Self::Set, "STORED") | (Self::MetaSet, "HD") => None,
            (Self::Add, "STORED") | (Self::Replace, "NOT_STORED") => Some(false),
            (Self::Add, "NOT_STORED") | (Self::Replace, "STORED") => Some(true),
            (Self::Cas { .. }, "NOT_FOUND") => Some(false),
            // Only an outdated token may be refused, and it must be.
            (
                Self::Cas {
                    is_current: true, ..
                },
                "STORED",
            )
            | (
                Self::Cas {
                    is_current: false, ..
                },
                "EXISTS",
            ) => Some(true),
            _ => return None,
        })
    }
}

fn put_content(content: &Content, output: &mut Vec<u8>) {
    match content {
        Content::Missing => {}
        Content::Number(number) => output.extend_from_slice(number.to_string().as_bytes()),
        Content::Pieces(pieces) => pieces.iter().for_each(|piece| piece.put(output)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelt(ask: &Ask) -> String {
        let mut request = Vec::new();
        ask.put("key", &mut request);
        String::from_utf8_lossy(&request).into_owned()
    }

    fn store(verb: Verb) -> Ask {
        Ask::Store {
            verb,
            content: Content::Number(42),
            flags: 3,
            seconds: 9,
        }
    }

    #[test]
    fn requests_are_spelt_as_the_protocol_says() {
        let token = Verb::Cas {
            token: 77,
            is_current: true,
        };
        assert_eq!(spelt(&store(Verb::Set)), "set key 3 9 2\r\n42\r\n");
        assert_eq!(spelt(&store(Verb::MetaSet)), "ms key 2 F3 T9\r\n42\r\n");
        assert_eq!(spelt(&store(token)), "cas key 3 9 2 77\r\n42\r\n");
        assert_eq!(spelt(&Ask::Get { touch: Some(5) }), "gat 5 key\r\n");
        let count = Ask::Count {
            delta: 4,
            is_up: false,
        };
        assert_eq!(spelt(&count), "decr key 4\r\n");
    }

    #[test]
    fn a_current_token_must_be_accepted_and_an_outdated_one_refused() {
        let before = Slot::default();
        for (is_current, line, fits) in [
            (true, "STORED", true),
            (true, "EXISTS", false),
            (false, "EXISTS", true),
            (false, "STORED", false),
        ] {
            let ask = store(Verb::Cas {
                token: 1,
                is_current,
            });
            assert_eq!(ask.was_there(line, &before).is_some(), fits, "{line}");
        }
    }

    #[test]
    fn a_wrong_count_is_noticed() {
        let before = Slot {
            content: Content::Number(10),
            ..Slot::default()
        };
        let count =
            |delta, is_up, line: &str| Ask::Count { delta, is_up }.number_fault(line, &before);
        assert_eq!(count(5, true, "15"), None);
        assert_eq!(count(5, true, "16"), Some(Fault::Miscounted));
        assert_eq!(count(11, false, "0"), None);
        assert_eq!(count(5, false, "10"), Some(Fault::Miscounted));
    }
}
