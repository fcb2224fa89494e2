//! Each rule sees the violation planted here, and leaves its honest neighbour alone.

use super::*;

/// The rules that a file at `path` with this text breaks.
fn broken(path: &str, text: &str) -> Vec<(usize, &'static str)> {
    check(&TextFile::new(path, text))
        .into_iter()
        .map(|violation| (violation.line, violation.rule))
        .collect()
}

#[test]
fn header_is_asked_for() {
    assert_eq!(
        broken("crates/store/src/a.rs", "fn f() {}\n"),
        [(1, "header")]
    );
    assert_eq!(
        broken("crates/store/src/a.rs", "//! A file.\nfn f() {}\n"),
        []
    );
}

#[test]
fn length_is_counted_without_tests() {
    let body = "fn f() {}\n".repeat(799);
    let tests = "#[cfg(test)]\nmod tests {\n}\n";
    let fine = format!("//! A.\n{body}{tests}");
    assert_eq!(broken("crates/store/src/a.rs", &fine), []);
    let long = format!("//! A.\n{body}fn g() {{}}\n{tests}");
    assert_eq!(broken("crates/store/src/a.rs", &long), [(801, "length")]);
    let many = format!(
        "//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n",
        "// a\n".repeat(200)
    );
    assert_eq!(broken("crates/store/src/a.rs", &many), [(2, "length")]);
}

#[test]
fn columns_hold_in_comments_too() {
    let wide = format!("//! A.\n// {}\n", "x".repeat(98));
    assert_eq!(broken("crates/store/src/a.rs", &wide), [(2, "columns")]);
    let exact = format!("//! A.\n// {}\n", "é".repeat(97));
    assert_eq!(broken("crates/store/src/a.rs", &exact), []);
}

#[test]
fn empty_names_are_refused() {
    assert_eq!(
        broken("crates/store/src/util.rs", "//! A.\n"),
        [(0, "names")]
    );
    assert_eq!(
        broken("crates/store/src/common/a.rs", "//! A.\n"),
        [(0, "names")]
    );
    assert_eq!(
        broken("crates/store/src/a.rs", "//! A.\npub mod helper;\n"),
        [(2, "names")]
    );
    assert_eq!(
        broken("crates/store/src/a.rs", "//! A.\nmod database;\n"),
        []
    );
}

#[test]
fn imports_stand_in_blocks() {
    let mixed = "//! A.\nuse std::fs;\nuse libc::mmap;\n";
    assert_eq!(broken("crates/store/src/a.rs", mixed), [(3, "imports")]);
    let apart = "//! A.\nuse std::fs;\n\nuse libc::mmap;\n\nuse crate::b::C;\nuse super::D;\n";
    assert_eq!(broken("crates/store/src/a.rs", apart), []);
}

#[test]
fn a_pure_crate_has_no_std() {
    let with_std = "//! A.\n#![forbid(unsafe_code)]\n";
    assert_eq!(broken("crates/codec/src/lib.rs", with_std), [(1, "pure")]);
    let brought_back = "//! A.\n#![no_std]\n#![forbid(unsafe_code)]\nextern crate std;\n";
    assert_eq!(
        broken("crates/codec/src/lib.rs", brought_back),
        [(4, "pure")]
    );
    let for_tests = "//! A.\n#[cfg(test)]\nmod tests {\nextern crate std;\n}\n";
    assert_eq!(broken("crates/codec/src/a.rs", for_tests), []);
}

#[test]
fn unsafe_code_stays_in_three_crates() {
    assert_eq!(
        broken("crates/store/src/lib.rs", "//! A.\n"),
        [(1, "unsafe")]
    );
    let used = "//! A.\nfn f() { unsafe { g() } }\n";
    assert_eq!(broken("crates/store/src/a.rs", used), [(2, "unsafe")]);
    assert_eq!(broken("crates/table/src/a.rs", used), []);
    assert_eq!(
        broken("crates/store/src/a.rs", "//! A.\n// unsafe is not used\n"),
        []
    );
    assert_eq!(
        broken("crates/store/src/a.rs", "//! A.\nlet a = \"is unsafe\";\n"),
        []
    );
    let leaves = "//! A.\npub unsafe fn f() {}\n";
    assert_eq!(broken("crates/table/src/a.rs", leaves), [(2, "unsafe")]);
}

#[test]
fn atomics_come_through_one_door() {
    let direct = "//! A.\nuse core::sync::atomic::AtomicU64;\n";
    assert_eq!(broken("crates/table/src/a.rs", direct), [(2, "atomics")]);
    assert_eq!(broken("crates/table/src/sync.rs", direct), []);
    assert_eq!(broken("crates/store/src/a.rs", direct), []);
}

#[test]
fn orderings_name_their_partner() {
    let silent = "//! A.\nfn f() { x.load(Ordering::Acquire) }\n";
    assert_eq!(
        broken("crates/segments/src/a.rs", silent),
        [(2, "orderings")]
    );
    let spoken = "//! A.\n// Pairs with the Release in `g`.\nfn f() { x.load(Acquire) }\n";
    assert_eq!(broken("crates/segments/src/a.rs", spoken), []);
    let imported = "//! A.\nuse crate::sync::Ordering::{Acquire, Relaxed};\n";
    assert_eq!(broken("crates/segments/src/a.rs", imported), []);
}

#[test]
fn errors_are_open() {
    let closed = "//! A.\npub enum OpenError {\n}\n";
    assert_eq!(broken("crates/store/src/a.rs", closed), [(2, "errors")]);
    let open = "//! A.\n#[derive(Debug)]\n#[non_exhaustive]\npub enum OpenError {\n}\n";
    assert_eq!(broken("crates/store/src/a.rs", open), []);
    assert_eq!(
        broken("crates/store/src/a.rs", "//! A.\npub enum Outcome {\n}\n"),
        []
    );
}

#[test]
fn leftovers_are_found() {
    let text = "//! A.\nfn f() { todo!() }\nfn g() { unimplemented!() }\n// TODO later\n";
    let rules = [(2, "leftovers"), (3, "leftovers"), (4, "leftovers")];
    assert_eq!(broken("crates/store/src/a.rs", text), rules);
}

#[test]
fn comments_end_code_but_not_inside_strings() {
    assert_eq!(code("let a = 1; // b"), "let a = 1; ");
    assert_eq!(code("let a = \"http://b\"; // c"), "let a = \"http://b\"; ");
    assert_eq!(comment("x // y"), "// y");
}
