//! Enums without fields that travel as numbers or are written as names: each variant is declared
//! once, with its number or its name, and both directions follow from that.
//!
//! All of them are `Clone, Copy, Debug, Eq, Hash, PartialEq`; what else an enum derives stands
//! before it.

use alloc::{format, string::String};
use core::fmt::Debug;

/// Declares an enum and `ALL`, its variants in order.
#[macro_export]
macro_rules! listed_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident $(= $number:literal)?,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        $vis enum $name {
            $($(#[$doc])* $variant $(= $number)?,)+
        }

        impl $name {
            /// All of them, in order.
            $vis const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];
        }
    };
}

/// Declares an enum whose numbers travel or lie in shared memory: `enum Kind: u8 { Get = 1, }`.
#[macro_export]
macro_rules! numbered_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident: $integer:ident {
            $($(#[$doc:meta])* $variant:ident = $number:literal,)+
        }
    ) => {
        $crate::listed_enum! {
            $(#[$meta])*
            #[repr($integer)]
            $vis enum $name {
                $($(#[$doc])* $variant = $number,)+
            }
        }

        impl $name {
            /// The one with this number, if there is one.
            #[inline]
            $vis const fn from_number(number: $integer) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

/// Declares an enum whose names are written: `enum Format { Text = "text", }`.
#[macro_export]
macro_rules! worded_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $crate::listed_enum! {
            $(#[$meta])*
            $vis enum $name {
                $($(#[$doc])* $variant,)+
            }
        }

        impl $name {
            /// Its name, as it is written.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

/// The same with `Display` and `FromStr`, for names that are read as well.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $crate::worded_enum! {
            $(#[$meta])*
            $vis enum $name {
                $($(#[$doc])* $variant = $text,)+
            }
        }

        impl ::core::str::FromStr for $name {
            type Err = $crate::UnknownName;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let mut all = Self::ALL.into_iter();
                all.find(|one| one.name() == word)
                    .ok_or_else(|| $crate::unknown_name(word, &[$($text),+]))
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

/// The name of an enum's variant in small letters, with dashes between its words.
pub fn dashed(variant: &impl Debug) -> String {
    let mut words = String::new();
    for letter in format!("{variant:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// What is said of a word that is no name: `'x' is not a, b or c`.
pub type UnknownName = String;

/// What is said of a word that is none of `names`.
pub fn unknown_name(word: &str, names: &[&str]) -> UnknownName {
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("'{word}' is not {} or {last}", others.join(", "))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    numbered_enum! {
        #[derive(Default)]
        enum Numbered: u8 {
            #[default]
            One = 1,
            Three = 3,
        }
    }

    named_enum! {
        enum Named {
            One = "one",
            Two = "two",
            Three = "three",
        }
    }

    #[test]
    fn numbers_and_names_lead_back_to_what_has_them() {
        let known = (0..=u8::MAX).filter_map(Numbered::from_number);
        assert!(known.eq(Numbered::ALL));
        assert_eq!(Numbered::default() as u8, 1);
        for named in Named::ALL {
            assert_eq!(named.to_string().parse(), Ok(named));
        }
        let refused = "four".parse::<Named>().unwrap_err();
        assert_eq!(refused, "'four' is not one, two or three");
    }
}
