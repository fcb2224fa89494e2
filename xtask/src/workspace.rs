//! The repository as the tasks see it: its root, target folder, packages and files.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Where things are, and what `cargo metadata` says of them.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) metadata: Value,
}

/// A member of the workspace.
pub(crate) struct Member {
    /// The folder's name (`table`), which is how the documents speak of it.
    pub(crate) short: String,
    /// The package's name (`curtail-table`).
    pub(crate) name: String,
    /// Path of its folder, relative to the root.
    pub(crate) folder: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Kind and name of each target.
    pub(crate) targets: Vec<(String, String)>,
}

/// One line of a manifest's dependency tables.
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `normal`, `dev` or `build`.
    pub(crate) kind: String,
    /// The `cfg(..)` it stands under, if any.
    pub(crate) target: Option<String>,
}

impl Workspace {
    pub(crate) fn open() -> Result<Self> {
        // Cargo says where it runs us; what the compiler was told may be another checkout that
        // shares the target folder.
        let here = env::var_os(MANIFEST_FOLDER).map(PathBuf::from);
        let here = here.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        let manifest = here.join("../Cargo.toml");
        let manifest = fs::canonicalize(&manifest).context("the root Cargo.toml")?;
        let output = cargo_command()
            .args(["metadata", "--format-version", "1", "--manifest-path"])
            .arg(&manifest)
            .output()
            .context("cargo metadata")?;
        if !output.status.success() {
            bail!(
                "cargo metadata: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let root = PathBuf::from(text(&metadata, "workspace_root"));
        let target = PathBuf::from(text(&metadata, "target_directory"));
        Ok(Workspace {
            root,
            target,
            metadata,
        })
    }

    /// A folder of ours under the target folder, made if it is not there.
    pub(crate) fn scratch(&self, name: &str) -> Result<PathBuf> {
        let folder = self.target.join("xtask").join(name);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(folder)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// All packages of the lock file that this workspace can build, ours and others'.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &Value> {
        self.metadata["packages"].as_array().into_iter().flatten()
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        let ids: Vec<&str> = self.metadata["workspace_members"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        self.packages()
            .filter(|package| ids.contains(&text(package, "id").as_str()))
            .map(|package| self.member(package))
            .collect()
    }

    fn member(&self, package: &Value) -> Member {
        let name = text(package, "name");
        let manifest = PathBuf::from(text(package, "manifest_path"));
        let folder = manifest.parent().unwrap_or(&self.root);
        let folder = folder
            .strip_prefix(&self.root)
            .unwrap_or(folder)
            .display()
            .to_string();
        let short = folder.rsplit('/').next().unwrap_or(&name).to_string();
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let dependencies = dependencies
            .map(|line| Dependency {
                name: text(line, "name"),
                kind: line["kind"].as_str().unwrap_or("normal").to_string(),
                target: line["target"].as_str().map(str::to_string),
            })
            .collect();
        let targets = package["targets"].as_array().into_iter().flatten();
        let targets = targets
            .map(|target| {
                (
                    target["kind"][0].as_str().unwrap_or("").to_string(),
                    text(target, "name"),
                )
            })
            .collect();
        Member {
            short,
            name,
            folder,
            dependencies,
            targets,
        }
    }

    /// The text files of the repository, relative to its root. Not git's list, so that a file is
    /// held to the rules before it is added and an unpacked archive can be checked too.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if SKIPPED.contains(&name.as_str()) {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else if let Ok(path) = entry.path().strip_prefix(&self.root) {
                    found.push(path.display().to_string());
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

/// The cargo that runs us.
pub(crate) fn cargo() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".to_string())
}

/// A call of Cargo with the environment that it has from a shell: some build scripts depend on what
/// `cargo run` adds, and would build everything above them again.
pub(crate) fn cargo_command() -> Command {
    let mut command = Command::new(cargo());
    command.env_remove(MANIFEST_FOLDER);
    command
}

pub(crate) const MANIFEST_FOLDER: &str = "CARGO_MANIFEST_DIR";

/// The string under `key`, or nothing.
pub(crate) fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_string()
}

/// Made by tools, never read by a person.
const SKIPPED: &[&str] = &[".git", "target", "corpus", "artifacts", "node_modules"];
