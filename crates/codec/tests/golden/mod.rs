//! Packets as pages of hex, and the files that keep them.

use std::fmt::{Debug, Write as _};
use std::{env, fs};

/// What is made from the packet `good` of another page, is refused, and why.
pub(crate) struct Refused<Why> {
    pub(crate) name: &'static str,
    pub(crate) good: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) why: Why,
}

/// As in the protocol's drawing: a line is a word.
pub(crate) fn page(title: &str, packets: &[(String, Vec<u8>)]) -> String {
    let mut page = format!("# {title}\n");
    for (name, bytes) in packets {
        write!(page, "\n= {name}\n").unwrap();
        for (number, line) in bytes.chunks(8).enumerate() {
            page += &hex_line(number, line);
        }
    }
    page
}

/// The lines in which each packet differs from the one that it is made from.
pub(crate) fn page_of_refused<Why: Debug>(
    title: &str,
    good: &[(String, Vec<u8>)],
    refused: &[Refused<Why>],
) -> String {
    let mut page =
        format!("# {title}\n# Lines that are not shown are those of the packet named.\n");
    for packet in refused {
        let (_, good) = good.iter().find(|(name, _)| name == packet.good).unwrap();
        let good: Vec<&[u8]> = good.chunks(8).collect();
        let lines = packet.bytes.chunks(8);
        assert!(lines.len() >= good.len(), "no line says the length");
        writeln!(
            page,
            "\n= {} of {}: {:?}",
            packet.name, packet.good, packet.why
        )
        .unwrap();
        for (number, line) in lines.enumerate() {
            if good.get(number) != Some(&line) {
                page += &hex_line(number, line);
            }
        }
    }
    page
}

fn hex_line(number: usize, line: &[u8]) -> String {
    let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{:4}  {}\n", number * 8, hex.join(" "))
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
