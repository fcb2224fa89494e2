//! How often what a model allows may happen: faults, and what else is rare.

/// Declares counts, each with what it is called in the bounds of a model.
macro_rules! fault_counts {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$doc:meta])* $field:ident: $words:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
        $vis struct $name {
            $($(#[$doc])* pub(crate) $field: u8,)+
        }

        impl $name {
            pub(crate) const NOTHING: Self = Self { $($field: 0,)+ };

            $(pub(crate) const fn $field(self, $field: u8) -> Self {
                Self { $field, ..self }
            })+

            /// What may happen at all, in words.
            pub(crate) fn in_words(&self) -> impl Iterator<Item = String> + use<> {
                let counts = [$((self.$field, $words),)+];
                let counts = counts.into_iter().filter(|(count, _)| *count > 0);
                counts.map(|(count, words)| format!("{words} {count}"))
            }
        }
    };
}

pub(crate) use fault_counts;
