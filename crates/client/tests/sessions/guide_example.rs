//! The Rust example of `docs/guide/clients.md`, line by line, run against a server.

use std::time::Duration;

use curtail_client::{ClientError, Command, Session, Status};

const GUIDE: &str = include_str!("../../../../docs/guide/clients.md");
const THIS: &str = include_str!("guide_example.rs");

#[rustfmt::skip] // The comments stand below each other.
fn example(address: &str) -> Result<(), ClientError> {
    // begin
    let session = Session::connect(address)?;

    let first = session.set(b"greeting", b"hello")?;         // sends it and does not wait
    let second = session.set(b"other", b"value")?;
    first.executed(&session, Duration::from_secs(1))?;       // so that get returns its version
    second.accepted()?;

    let found = session.get(b"greeting")?.result()?;
    assert_eq!((found.status, &*found.value), (Status::Value, &b"hello"[..]));

    let visits = session.call(&Command::increment(b"visits", 1))?.result()?;
    let swap = Command::set(b"greeting", b"bye").if_version(found.version).expires(60);
    let swapped = session.call(&swap)?.result()?.status == Status::Done;

    match session.write(&Command::append(b"log", b"line\n").marked())?.accepted() {
        Ok(accepted) => println!("queue {}, position {}", accepted.place.queue, accepted.place.pos),
        Err(error) if error.may_have_happened() => println!("outcome unknown: {error}"),
        Err(error) => println!("not written: {error}"),
    }
    // end
    assert!(swapped);
    assert_eq!(visits.status, Status::NotFound);
    Ok(())
}

/// The statements between two marks.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    let text = text.split_once(begin).map_or("", |(_, text)| text);
    let text = text.split_once(end).map_or("", |(text, _)| text);
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("use "))
        .collect()
}

/// Goal: what the guide shows compiles and works. Method: the same lines run here.
#[test]
fn the_example_of_the_guide_works() {
    let guide = between(GUIDE, "```rust\n", "```\n");
    let ours = between(THIS, "// begin\n", "// end\n");
    let ours = ours
        .iter()
        .map(|line| line.replace("(address)", "(\"127.0.0.1:11311\")"));
    assert_eq!(guide, ours.collect::<Vec<_>>());
    let (_server, address) = super::start(super::NativeMode::IoAck, |_| ());
    example(&address.to_string()).unwrap();
}
