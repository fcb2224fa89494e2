//! Being one of several nodes: the links between their workers.

#[allow(
    dead_code,
    unused_imports,
    reason = "the workers take their links up next"
)]
mod links;
