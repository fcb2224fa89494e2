//! Drivers and soak against a small server of our own, honest or told to lie.
#![allow(clippy::unwrap_used)] // helpers of tests stand outside `#[test]` functions

mod bench;
mod drive;
mod fake;
mod soak;
