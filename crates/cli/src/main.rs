//! The one binary, `curtail`.
fn main() {}
