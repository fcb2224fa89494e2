//! Packets as pages of hex, and the files that keep them.

use std::fmt::Write as _;
use std::{env, fs};

/// As in the protocol's drawing: a line is a word.
pub(crate) fn page(title: &str, packets: &[(String, Vec<u8>)]) -> String {
    let mut page = format!("# {title}\n");
    for (name, bytes) in packets {
        write!(page, "\n= {name}\n").unwrap();
        for (number, line) in bytes.chunks(8).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(page, "{:4}  {}", number * 8, hex.join(" ")).unwrap();
        }
    }
    page
}

/// Asserts that `text` is in this file of `tests`, after it was written there if that was asked
/// for.
pub(crate) fn golden(name: &str, text: &str) {
    let path = format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"));
    if env::var_os("BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "{path}");
}
