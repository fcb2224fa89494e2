//! `curtail` runs commands of `curtail-lab` from beside it with the same arguments, or says how to
//! get it.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Held from writing a program until it has run: a process that another test forks meanwhile
/// would inherit the file open for writing, and the kernel refuses to execute such a file.
static WRITES_PROGRAMS: Mutex<()> = Mutex::new(());

/// A folder with `curtail` in it and nothing else.
struct Folder(
    PathBuf,
    #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>,
);

impl Folder {
    fn new(name: &str) -> Self {
        let guard = WRITES_PROGRAMS
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("curtail-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_curtail"), path.join("curtail")).unwrap();
        Self(path, guard)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(self.0.join("curtail"));
        command
            .args(words)
            .env("PATH", "/nowhere")
            .output()
            .unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_the_second_program_its_commands_say_how_to_get_it() {
    let folder = Folder::new("alone");
    let output = folder.run(&["bench", "--keys", "1"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("cargo build --release -p curtail-lab"),
        "{errors}"
    );
    let help = folder.run(&["--help"]).stdout;
    let help = String::from_utf8_lossy(&help);
    for command in ["serve", "top", "bench", "soak", "check", "simulate"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
    }
}

#[test]
fn the_second_program_gets_the_arguments_as_they_stand() {
    let folder = Folder::new("beside");
    let program = folder.0.join("curtail-lab");
    fs::write(&program, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = folder.run(&["bench", "compare", "--only", "a b", "--", "-x"]);
    let told = String::from_utf8_lossy(&output.stdout);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        told,
        format!("--run-by={version}\nbench\ncompare\n--only\na b\n--\n-x\n")
    );
    assert_eq!(output.status.code(), Some(7));
}
