//! A network namespace and a BPF file system for one test, removed when it ends.
//!
//! A test that cannot have them must not pass: as root it fails, unless `CURTAIL_WITHOUT_XDP` is
//! set. Without root, or with that variable, it is skipped, and a line on standard error, which the
//! test harness does not capture, says so.

use std::ffi::CString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The thread's own network namespace and mounted BPF file system; processes that it starts share
/// them.
pub(crate) struct Namespace {
    pub(crate) pins: PathBuf,
}

impl Namespace {
    /// `None`, said aloud, where the test is to be skipped; fails where it should be possible.
    pub(crate) fn enter() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if is_skipped() {
            return None;
        }
        unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("curtail-nic-{}-{number}", std::process::id());
        let pins = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&pins).unwrap();
        mount(
            "none",
            Path::new("/"),
            None,
            libc::MS_REC | libc::MS_PRIVATE,
        );
        mount("bpf", &pins, Some("bpf"), 0);
        run("ip", &["link", "set", "lo", "up"]);
        Some(Self { pins })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let name = c_string(&self.pins);
        // SAFETY: the name ends with a zero byte and lives past the call.
        unsafe { libc::umount2(name.as_ptr(), libc::MNT_DETACH) };
        let _ = std::fs::remove_dir(&self.pins);
    }
}

/// Whether tests that need privileges are skipped here; then it is said on standard error.
pub(crate) fn is_skipped() -> bool {
    // SAFETY: it takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let why = match std::env::var_os("CURTAIL_WITHOUT_XDP") {
        Some(_) => "CURTAIL_WITHOUT_XDP is set",
        None if !is_root => "not root",
        None => return false,
    };
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("SKIPPED: {name}: no namespaces and no XDP here: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    true
}

/// Gives this thread namespaces of its own.
pub(crate) fn unshare(flags: libc::c_int) {
    // SAFETY: flags and no memory; only this thread changes its namespaces.
    let answer = unsafe { libc::unshare(flags) };
    let error = std::io::Error::last_os_error();
    assert_eq!(
        answer, 0,
        "no namespace ({error}); CURTAIL_WITHOUT_XDP=1 skips what needs one"
    );
}

/// Runs a program that has to succeed.
pub(crate) fn run(program: &str, words: &[&str]) {
    let status = Command::new(program).args(words).status().unwrap();
    assert!(status.success(), "{program} {words:?} ended with {status}");
}

fn mount(source: &str, place: &Path, kind: Option<&str>, flags: libc::c_ulong) {
    let source = CString::new(source).unwrap();
    let place = c_string(place);
    let kind = kind.map(|kind| CString::new(kind).unwrap());
    let kind = kind.as_ref().map_or(std::ptr::null(), |kind| kind.as_ptr());
    // SAFETY: all names end with a zero byte and live past the call; no data is given.
    let answer = unsafe {
        libc::mount(
            source.as_ptr(),
            place.as_ptr(),
            kind,
            flags,
            std::ptr::null(),
        )
    };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).unwrap()
}
