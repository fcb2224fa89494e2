//! The flags of the meta commands: one letter each, some with a token right behind it.
//!
//! All commands take the same flags here and use those that mean something to them, as memcached
//! does; only the letters that none knows are refused. The order of its checks is kept too: an
//! unknown or repeated letter ends the matter, of several bad tokens the last is told.

use curtail_types::{Cas, Exptime, Key};

use super::{
    Meta, OPAQUE_BYTES_MAX, Return, WireKey, Words, encode::Refusal, line::token_end, number,
};

/// What the flags of one command say.
#[derive(Clone, Copy)]
pub(super) struct Flags<'a> {
    pub(super) key: WireKey<'a>,
    pub(super) meta: Meta<'a>,
    /// `u`
    pub(super) quiet_access: bool,
    /// `I`
    pub(super) invalidate: bool,
    /// `x`
    pub(super) drop_value: bool,
    /// `M`, 0 if not given
    pub(super) mode: u8,
    /// `F`
    pub(super) client_flags: u32,
    /// `T`
    pub(super) touch: Option<Exptime>,
    /// `N`
    pub(super) vivify: Option<Exptime>,
    /// `R`
    pub(super) recache: Option<Exptime>,
    /// `C`
    pub(super) compare: Option<Cas>,
    /// `E`
    pub(super) new_cas: Option<Cas>,
    /// `D`
    pub(super) delta: u64,
    /// `J`
    pub(super) initial: u64,
}

/// Why flags are refused: memcached tells it in words of its own for some commands.
pub(super) enum BadFlags {
    /// More than the command takes.
    TooMany,
    /// One of them makes no sense.
    Bad(Refusal),
}

impl<'a> Flags<'a> {
    /// Reads the flags in `words`, at most `count_max`, of a command on `key`, until they end or
    /// the line does; what remains then is given back.
    #[inline(always)]
    pub(super) fn parse(
        key: Key<'a>,
        words: &'a [u8],
        count_max: usize,
    ) -> Result<(Self, &'a [u8]), BadFlags> {
        let mut flags = Self::none(key);
        let mut seen = 0u64;
        let mut bad = None;
        let mut rest = words;
        while let [letter, tail @ ..] = rest {
            if *letter == b' ' {
                rest = tail;
                continue;
            }
            if *letter == b'\r' && tail.first() == Some(&b'\n') {
                break;
            }
            let (token, after) = split_token(tail);
            rest = after;
            let bit = letter_bit(*letter);
            if bit == 0 || seen & bit != 0 {
                return Err(unknown_or_repeated(*letter, words, count_max));
            }
            seen |= bit;
            match flags.apply(*letter, token) {
                Ok(()) => {}
                Err(Refusal::InvalidFlag) => {
                    return Err(unknown_or_repeated(*letter, words, count_max));
                }
                // A bad `F` has no text of its own and leaves another's.
                Err(Refusal::BadFormat) => bad = bad.or(Some(Refusal::BadFormat)),
                Err(refusal) => bad = Some(refusal),
            }
        }
        match bad {
            _ if seen.count_ones() as usize > count_max => Err(BadFlags::TooMany),
            Some(refusal) => Err(BadFlags::Bad(refusal)),
            None => Ok((flags, rest)),
        }
    }

    /// Whether the opaque token is longer than it may be.
    #[inline]
    pub(super) const fn opaque_is_too_long(&self) -> bool {
        self.meta.opaque.len() > OPAQUE_BYTES_MAX
    }

    #[inline(always)]
    const fn none(key: Key<'a>) -> Self {
        Self {
            key: WireKey::plain(key),
            meta: Meta::NONE,
            quiet_access: false,
            invalidate: false,
            drop_value: false,
            mode: 0,
            client_flags: 0,
            touch: None,
            vivify: None,
            recache: None,
            compare: None,
            new_cas: None,
            delta: 1,
            initial: 0,
        }
    }

    /// Takes one flag. [`Refusal::InvalidFlag`] for a letter that nobody knows.
    #[inline(always)]
    fn apply(&mut self, letter: u8, token: &'a [u8]) -> Result<(), Refusal> {
        match letter {
            b'v' => self.meta.value = true,
            b'q' => self.meta.quiet = true,
            b'O' => {
                self.meta.returns.push(Return::Opaque);
                self.meta.opaque = token;
            }
            b'T' => self.touch = Some(exptime(token)?),
            b'F' => {
                self.client_flags = number::unsigned_32(token).ok_or(Refusal::BadFormat)?;
            }
            b'u' => self.quiet_access = true,
            b'I' => self.invalidate = true,
            b'x' => self.drop_value = true,
            // Hints for proxies on the way.
            b'P' | b'L' => {}
            _ => match Return::of_letter(letter) {
                Some(what) => self.meta.returns.push(what),
                None => return self.apply_rare(letter, token),
            },
        }
        Ok(())
    }

    #[inline(never)]
    fn apply_rare(&mut self, letter: u8, token: &'a [u8]) -> Result<(), Refusal> {
        match letter {
            b'b' => self.key = self.key.as_base64().ok_or(Refusal::BadBase64)?,
            b'N' => self.vivify = Some(exptime(token)?),
            b'R' => self.recache = Some(exptime(token)?),
            b'C' => self.compare = Some(cas(token)?),
            b'E' => self.new_cas = Some(cas(token)?),
            b'D' => self.delta = number::unsigned(token).ok_or(Refusal::BadMetaDelta)?,
            b'J' => self.initial = number::unsigned(token).ok_or(Refusal::BadInitial)?,
            b'M' => match token {
                [mode] => self.mode = *mode,
                _ => return Err(Refusal::BadModeLength),
            },
            _ => return Err(Refusal::InvalidFlag),
        }
        Ok(())
    }
}

/// The flags of most requests, `v`, `q`, `O` and those that return something, until the line ends;
/// what remains then is given back. `None` for any other or repeated flag.
#[inline(always)]
pub(super) fn parse_plain(words: &[u8]) -> Option<(Meta<'_>, &[u8])> {
    let mut meta = Meta::NONE;
    let mut seen = 0u64;
    let mut rest = words;
    while let [b' ', letter, tail @ ..] = rest {
        let (token, after) = split_token(tail);
        rest = after;
        match letter {
            b'v' if token.is_empty() && !meta.value => meta.value = true,
            b'q' if token.is_empty() && !meta.quiet => meta.quiet = true,
            letter => {
                let bit = letter_bit(*letter);
                if seen & bit != 0 || (*letter != b'O' && !token.is_empty()) {
                    return None;
                }
                seen |= bit;
                if *letter == b'O' {
                    meta.returns.push(Return::Opaque);
                    meta.opaque = token;
                } else {
                    meta.returns.push(Return::of_letter(*letter)?);
                }
            }
        }
    }
    Some((meta, rest))
}

/// The token behind a letter, empty for most, and what follows it.
#[inline(always)]
fn split_token(tail: &[u8]) -> (&[u8], &[u8]) {
    match tail {
        [] | [b' ' | b'\r', ..] => (&[], tail),
        _ => tail.split_at_checked(token_end(tail)).unwrap_or_default(),
    }
}

/// One bit for each letter; none for what is not a letter.
#[inline(always)]
const fn letter_bit(letter: u8) -> u64 {
    if letter.is_ascii_alphabetic() {
        1 << (letter - b'A')
    } else {
        0
    }
}

#[cold]
fn unknown_or_repeated(letter: u8, words: &[u8], count_max: usize) -> BadFlags {
    if Words::new(words).count() > count_max {
        return BadFlags::TooMany;
    }
    let repeats = Words::new(words)
        .filter(|word| word.first() == Some(&letter))
        .count();
    BadFlags::Bad(if repeats > 1 || letter >= 127 {
        Refusal::DuplicateFlag
    } else {
        Refusal::InvalidFlag
    })
}

fn exptime(token: &[u8]) -> Result<Exptime, Refusal> {
    number::signed(token).map(Exptime).ok_or(Refusal::BadToken)
}

fn cas(token: &[u8]) -> Result<Cas, Refusal> {
    number::unsigned(token).map(Cas).ok_or(Refusal::BadToken)
}
