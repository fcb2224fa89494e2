//! `cargo xtask hook`: what git runs before each commit.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::check_result::Outcome;
use crate::workspace::Workspace;

/// Installs the hook, and leaves one alone that somebody else wrote.
pub(crate) fn install(workspace: &Workspace) -> Result<Outcome> {
    let output = Command::new("git")
        .args(["rev-parse", "--git-path", "hooks/pre-commit"])
        .current_dir(&workspace.root)
        .output()
        .context("git")?;
    ensure!(
        output.status.success(),
        "{} is not git's",
        workspace.root.display()
    );
    let path = String::from_utf8(output.stdout).context("the hook's path")?;
    let path = workspace.root.join(path.trim());
    match fs::read_to_string(&path) {
        Ok(text) if text != HOOK => bail!(
            "{} is there already; add `cargo xtask test format tidy` to it",
            path.display()
        ),
        _ => {}
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&path, HOOK)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    println!("before each commit git now runs {}", path.display());
    Ok(Outcome::passed())
}

const HOOK: &str = "\
#!/bin/sh
# Written by `cargo xtask hook`; remove this file to be without it.
exec cargo xtask test format tidy
";
