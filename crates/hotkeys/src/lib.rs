//! Which keys are asked for most, in this epoch and lately.
#![no_std]
#![forbid(unsafe_code)]
