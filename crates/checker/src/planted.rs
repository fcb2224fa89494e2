//! The names of planted errors.

use std::fmt::Debug;

use curtail_types::dashed;

/// Errors of machines, with their names: none in a build in which they cannot be planted.
pub(crate) fn planted<E: Copy + Debug, const N: usize>(
    errors: [E; N],
    of: &str,
) -> impl Iterator<Item = (E, String)> {
    let are_there = cfg!(any(test, feature = "mutants"));
    named(errors, of).filter(move |_| are_there)
}

/// Errors with their names: whose they are, and the words of the variant, with dashes.
pub(crate) fn named<E: Copy + Debug, const N: usize>(
    errors: [E; N],
    of: &str,
) -> impl Iterator<Item = (E, String)> {
    let errors = errors.into_iter();
    errors.map(move |error| (error, format!("{of}-{}", dashed(&error))))
}
