//! What a search is given: a model with its bounds, and the errors that can be planted in it.

use std::ops::ControlFlow;

use crate::search::{Limits, Outcome, Progress};

/// A model of any kind.
pub trait Checked: Sync {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Whether it takes long.
    fn is_deep(&self) -> bool;

    /// Its bounds, as a person reads them.
    fn bound(&self) -> String;

    /// The things that it must see and did not.
    fn unseen(&self, outcome: &Outcome) -> Vec<String>;

    /// Searches it with the planted error of this name; one of another kind of models changes
    /// nothing in it.
    fn search(
        &self,
        mutant: Option<&str>,
        limits: Limits,
        report: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Outcome;
}

/// Declares the bounds of a kind of models: what all of a kind share, and what models set by its
/// name.
macro_rules! setup {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident($mutant:ty) {
            $($(#[$doc:meta])* $field:ident: $type:ty,)*
            ..
            $($(#[$set_doc:meta])* $set:ident: $set_type:ty,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name {
            /// What it is called.
            pub(crate) name: &'static str,
            $($(#[$doc])* pub(crate) $field: $type,)*
            $($(#[$set_doc])* pub(crate) $set: $set_type,)+
            /// A planted error.
            pub(crate) mutant: Option<$mutant>,
        }

        impl $name {
            $(const fn $set(mut self, $set: $set_type) -> Self {
                self.$set = $set;
                self
            })+
        }

        impl $crate::setup::Checked for $name {
            fn name(&self) -> &'static str {
                self.name
            }

            fn is_deep(&self) -> bool {
                self.is_deep
            }

            fn bound(&self) -> String {
                let mut parts = self.parts();
                parts.extend(self.faults.in_words());
                parts.join(", ")
            }

            fn unseen(&self, outcome: &$crate::search::Outcome) -> Vec<String> {
                outcome.unseen(self.sees, WITNESSES)
            }

            fn search(
                &self,
                mutant: Option<&str>,
                limits: $crate::search::Limits,
                report: &mut dyn FnMut($crate::search::Progress) -> std::ops::ControlFlow<()>,
            ) -> $crate::search::Outcome {
                let mut mutants = Self::mutants();
                let mutant = mutants.find(|(_, name)| Some(name.as_str()) == mutant);
                let mutant = mutant.map(|(mutant, _)| mutant);
                $crate::search::search(&Self { mutant, ..*self }, limits, report)
            }
        }
    };
}

pub(crate) use setup;
