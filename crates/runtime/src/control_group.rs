//! The limits that control groups set for this process: memory and processor time.
//!
//! A process lies in a group of each hierarchy, and every group above has a limit of its own; what
//! holds is the lowest along the path. Version 2 has one hierarchy, version 1 one for each
//! controller, and both may be mounted. In a container the path is as the container sees it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The files that tell of this process's groups.
#[derive(Clone, Copy, Debug)]
pub struct ControlGroups<'a> {
    root: &'a Path,
}

/// A limit of memory, and the group that has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupMemory {
    /// The limit in bytes.
    pub bytes: u64,
    /// The folder of the group.
    pub group: PathBuf,
}

/// Version 1 says "no limit" by a number near the largest that there is.
const UNLIMITED: u64 = 1 << 60;

impl ControlGroups<'static> {
    /// Those of this process.
    pub fn own() -> Self {
        Self {
            root: Path::new("/"),
        }
    }
}

impl<'a> ControlGroups<'a> {
    /// The same with `proc` and `sys` below another folder, for tests.
    pub fn below(root: &'a Path) -> Self {
        Self { root }
    }

    /// The lowest limit of memory, if there is any.
    pub fn memory_limit(&self) -> Option<GroupMemory> {
        let groups = self.groups("memory").into_iter();
        let limits = groups.filter_map(|group| {
            let files = ["memory.max", "memory.limit_in_bytes"];
            let texts = files.iter().filter_map(|file| read(&group.join(file)));
            let bytes: u64 = texts.filter_map(|text| text.parse().ok()).min()?;
            (bytes < UNLIMITED).then_some(GroupMemory { bytes, group })
        });
        limits.min_by_key(|limit| limit.bytes)
    }

    /// The lowest quota of processor time, in processors, if there is any.
    pub fn processor_quota(&self) -> Option<f64> {
        let groups = self.groups("cpu").into_iter();
        groups
            .filter_map(|group| quota_of(&group))
            .min_by(f64::total_cmp)
    }

    /// The group of this process and those above it, of version 2 and of the hierarchy of version 1
    /// that has `controller`.
    fn groups(&self, controller: &str) -> Vec<PathBuf> {
        let memberships = read(&self.root.join("proc/self/cgroup")).unwrap_or_default();
        let mounts = read(&self.root.join("proc/self/mountinfo")).unwrap_or_default();
        let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(Mount::parse).collect();
        let mut groups = Vec::new();
        for membership in memberships.lines() {
            let mut parts = membership.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let mut mounts = mounts.iter();
            let mount = match controllers {
                "" => mounts.find(|mount| mount.kind == "cgroup2"),
                listed if !listed.split(',').any(|one| one == controller) => None,
                _ => mounts.find(|mount| {
                    let mut options = mount.options.split(',');
                    mount.kind == "cgroup" && options.any(|one| one == controller)
                }),
            };
            if let Some(mount) = mount {
                groups.extend(self.path_up(mount, path));
            }
        }
        groups
    }

    /// The folder of the group `path`, and those above it, to where the hierarchy is mounted.
    fn path_up(&self, mount: &Mount<'_>, path: &str) -> Vec<PathBuf> {
        let top = self.root.join(mount.point.trim_start_matches('/'));
        // What is mounted may be a part of the hierarchy; a group outside of it is not seen.
        let below = Path::new(path).strip_prefix(mount.root);
        let below = below.unwrap_or(Path::new(""));
        let is_inside = below
            .components()
            .all(|part| !matches!(part, std::path::Component::ParentDir));
        let below = below.strip_prefix("/").unwrap_or(below);
        let own = if is_inside {
            top.join(below)
        } else {
            top.clone()
        };
        let up = own.ancestors().take_while(|group| group.starts_with(&top));
        up.map(Path::to_owned).collect()
    }
}

/// A line of mountinfo, as far as it is needed.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        Some(Self {
            root: before.next()?,
            point: before.next()?,
            kind: after.next()?,
            options: after.nth(1)?,
        })
    }
}

fn quota_of(group: &Path) -> Option<f64> {
    let (quota, period) = match read(&group.join("cpu.max")) {
        Some(text) => {
            let (quota, period) = text.split_once(' ')?;
            (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
        }
        None => {
            let number = |file: &str| read(&group.join(file))?.parse::<f64>().ok();
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        }
    };
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the files named, removed at the end.
    struct Root(PathBuf);

    impl Root {
        fn with(name: &str, files: &[(&str, &str)]) -> Self {
            let name = format!("curtail-groups-{}-{name}", std::process::id());
            let root = std::env::temp_dir().join(name);
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MOUNT: &str = "1 0 0:1 / /proc rw - proc proc rw\n\
                         30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    /// Goal: the lowest limit holds, wherever along the path it is, and not the root's alone.
    /// Method: a service in a slice; the limit in the service, in the slice, in both.
    #[test]
    fn the_lowest_limit_along_the_path_holds() {
        let group = "sys/fs/cgroup/system.slice";
        let service = format!("{group}/curtail.service");
        for (name, in_slice, in_service, wanted) in [
            ("service", "max", "1000", Some(1000)),
            ("slice", "500", "max", Some(500)),
            ("both", "700", "900", Some(700)),
            ("none", "max", "max", None),
        ] {
            let root = Root::with(
                name,
                &[
                    ("proc/self/cgroup", "0::/system.slice/curtail.service\n"),
                    ("proc/self/mountinfo", MOUNT),
                    (&format!("{group}/memory.max"), in_slice),
                    (&format!("{service}/memory.max"), in_service),
                    (&format!("{group}/cpu.max"), "150000 100000"),
                    (&format!("{service}/cpu.max"), "max 100000"),
                ],
            );
            let groups = ControlGroups::below(&root.0);
            let limit = groups.memory_limit();
            assert_eq!(limit.as_ref().map(|limit| limit.bytes), wanted, "{name}");
            assert_eq!(groups.processor_quota(), Some(1.5));
        }
    }

    /// Goal: version 1, also beside version 2, and mounted from a part of the hierarchy as in a
    /// container.
    #[test]
    fn version_one_is_read_in_a_container_too() {
        let root = Root::with(
            "one",
            &[
                (
                    "proc/self/cgroup",
                    "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x/in\n0::/docker/x\n",
                ),
                (
                    "proc/self/mountinfo",
                    "30 23 0:26 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     31 23 0:27 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
                ),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096"),
                (
                    "sys/fs/cgroup/memory/in/memory.limit_in_bytes",
                    "9223372036854771712",
                ),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
            ],
        );
        let groups = ControlGroups::below(&root.0);
        let limit = groups.memory_limit().unwrap();
        assert_eq!(limit.bytes, 4096);
        assert!(limit.group.ends_with("sys/fs/cgroup/memory"));
        assert_eq!(groups.processor_quota(), None);
    }

    #[test]
    fn where_nothing_is_told_there_is_no_limit() {
        let root = Root::with("nothing", &[("proc/self/cgroup", "0::/../outside\n")]);
        let groups = ControlGroups::below(&root.0);
        assert_eq!(
            (groups.memory_limit(), groups.processor_quota()),
            (None, None)
        );
    }
}
