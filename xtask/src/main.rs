//! Every check and task of the repository.
fn main() {}
