//! A folder for data, and groups of processes whose memory is limited, gone when the bench ends,
//! however it ends.
//!
//! ```text
//!   bench --- pipe ---> janitor (sh): at the pipe's end removes the folder and the groups
//!     +-- sh: enters its group --> setpriv --pdeathsig KILL --> taskset --> the server
//! ```
//!
//! The limit of a control group counts the page cache of the files that its processes read and
//! write, too: a server whose data is ten times its memory cannot have the rest in the page cache
//! unnoticed. A page counts for the group that touched it first, so a file belongs to one group.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process::Running;

/// What a bench leaves nothing of.
pub(crate) struct Scratch {
    folder: PathBuf,
    janitor: Child,
}

/// Processes that share one limit.
pub(crate) struct MemoryGroup {
    /// The folder of the group; none where nothing enforces the limit.
    folder: Option<PathBuf>,
    is_unified: bool,
}

/// What a group uses, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct MemoryUse {
    pub(crate) anonymous: u64,
    pub(crate) page_cache: u64,
}

/// Removes what it is told to when its input ends. It outlives what ends the bench.
const JANITOR: &str = r#"
trap '' INT TERM HUP
cat > /dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
  left=0
  for group in "$2"-*; do
    [ -d "$group" ] || continue
    rmdir "$group" 2> /dev/null || left=1
  done
  rm -rf "$1"
  [ "$left" = 0 ] && [ ! -e "$1" ] && exit 0
  sleep 0.5
done
"#;

/// Enters a group, and ends with the bench. Other jobs of the machine have a lower priority, where
/// that is allowed: Linux shares the processors among sessions first, and then within each.
const ENTER: &str = r#"
[ -z "$0" ] || echo $$ > "$0/cgroup.procs" || exit 1
renice -n -20 -p $$ > /dev/null 2>&1
[ ! -e /proc/$$/autogroup ] || echo -20 > /proc/$$/autogroup 2> /dev/null
exec setpriv --pdeathsig KILL "$@"
"#;

impl Scratch {
    /// A new folder in `parent`.
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        let folder = parent.join(format!("data-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(&folder)
            .arg(groups())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { folder, janitor })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Its input ends here.
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

/// What the folders of this process's groups begin with.
fn groups() -> PathBuf {
    let name = format!("curtail-bench-{}", std::process::id());
    match unified() {
        Some(root) => root.join(name),
        None => Path::new(LEGACY).join(name),
    }
}

/// The root of the unified hierarchy if it limits memory.
fn unified() -> Option<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
    let limits = controllers.split_whitespace().any(|name| name == "memory");
    limits.then(|| root.to_owned())
}

/// The hierarchy of version 1.
const LEGACY: &str = "/sys/fs/cgroup/memory";

impl MemoryGroup {
    /// A group of this name whose processes and page cache have so many bytes together. Without the
    /// right to make one it limits nothing, and [`is_enforced`](Self::is_enforced) says so.
    pub(crate) fn new(name: &str, bytes_max: u64) -> Self {
        let mut folder = groups().into_os_string();
        folder.push(format!("-{name}"));
        let folder = PathBuf::from(folder);
        let is_unified = unified().is_some();
        let limited = match is_unified {
            true => limit_unified(&folder, bytes_max),
            false => limit_legacy(&folder, bytes_max),
        };
        Self {
            folder: limited.is_ok().then_some(folder),
            is_unified,
        }
    }

    /// A group that limits nothing.
    pub(crate) const fn unlimited() -> Self {
        Self {
            folder: None,
            is_unified: false,
        }
    }

    /// Whether the limit holds.
    pub(crate) fn is_enforced(&self) -> bool {
        self.folder.is_some()
    }

    /// Starts a program in the group, on these processors.
    pub(crate) fn start(&self, cores: &str, words: &[String]) -> Result<Running> {
        Running::start(self.command(cores, words).stdout(Stdio::null()))
    }

    /// The command that does.
    pub(crate) fn command(&self, cores: &str, words: &[String]) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", ENTER])
            .arg(self.folder.as_deref().unwrap_or(Path::new("")))
            .args(["taskset", "-c", cores])
            .args(words)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// What it uses now; nothing where there is no group.
    pub(crate) fn memory(&self) -> MemoryUse {
        let path = self.folder.as_ref().map(|path| path.join("memory.stat"));
        let text = path.and_then(|path| fs::read_to_string(path).ok());
        let text = text.unwrap_or_default();
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let found = lines.find(|(of, _)| *of == name);
            found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
        };
        let (anonymous, page_cache) = match self.is_unified {
            true => ("anon", "file"),
            false => ("rss", "cache"),
        };
        MemoryUse {
            anonymous: value(anonymous),
            page_cache: value(page_cache),
        }
    }
}

/// Has the kernel write what the file system of a directory has in memory.
pub(crate) fn flush(folder: &Path) -> Result<()> {
    Command::new("sync").arg("-f").arg(folder).status()?;
    Ok(())
}

/// Has the page cache forget the files of a directory.
pub(crate) fn forget(folder: &Path) -> Result<()> {
    flush(folder)?;
    let files = "find \"$0\" -type f -exec dd if={} iflag=nocache count=0 status=none ';'";
    let mut command = Command::new("sh");
    command.args(["-c", files]).arg(folder);
    match command.status()?.success() {
        true => Ok(()),
        false => bail!("the page cache keeps the files of {}", folder.display()),
    }
}

/// As many processors as there are.
pub(crate) fn all_cores() -> Result<String> {
    let cores = fs::read_to_string("/sys/devices/system/cpu/online")?;
    Ok(cores.trim().to_owned())
}

fn limit_unified(folder: &Path, bytes_max: u64) -> Result<()> {
    let parent = folder.parent().context("a group without a parent")?;
    fs::write(parent.join("cgroup.subtree_control"), "+memory")?;
    fs::create_dir_all(folder)?;
    fs::write(folder.join("memory.max"), bytes_max.to_string())?;
    let swap = folder.join("memory.swap.max");
    match swap.exists() {
        true => Ok(fs::write(swap, "0")?),
        false => Ok(()),
    }
}

fn limit_legacy(folder: &Path, bytes_max: u64) -> Result<()> {
    if !Path::new(LEGACY).join("memory.limit_in_bytes").exists() {
        bail!("no hierarchy limits memory");
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join("memory.limit_in_bytes"), bytes_max.to_string())?;
    // Absent where the kernel does not account for swap.
    let _ = fs::write(
        folder.join("memory.memsw.limit_in_bytes"),
        bytes_max.to_string(),
    );
    Ok(())
}
