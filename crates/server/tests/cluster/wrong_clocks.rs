//! Nodes whose clocks are wrong: a library that is loaded before the C library's `clock_gettime`
//! answers in its place, by what a file says. The server itself knows nothing of it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What makes the clocks of a cluster's nodes wrong.
pub(crate) struct WrongClocks {
    library: PathBuf,
    /// What is wrong with the clock of each node.
    files: Vec<PathBuf>,
}

/// How a clock is wrong.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct WrongBy {
    /// What it gains, in parts of a million.
    pub(crate) gain_ppm: i64,
    /// What the wall clock is off, in seconds.
    pub(crate) wall_s: i64,
}

impl WrongClocks {
    /// Has everything in `folder` that it takes; `None`, said aloud, without a C compiler.
    pub(crate) fn prepare(folder: &Path, nodes: usize) -> Option<Self> {
        let library = folder.join("wrong_clocks.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/wrong_clocks.c");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(&library);
        let status = compiler.arg(source).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("no wrong clocks: there is no C compiler `cc`");
            return None;
        }
        let clocks = Self {
            library,
            files: (0..nodes)
                .map(|id| folder.join(format!("clock{id}")))
                .collect(),
        };
        (0..nodes).for_each(|id| clocks.set(id, WrongBy::default()));
        Some(clocks)
    }

    /// What a node's process must have in its environment.
    pub(crate) fn environment(&self, id: usize) -> [(&'static str, &Path); 2] {
        [
            ("LD_PRELOAD", &self.library),
            ("CURTAIL_TEST_CLOCK", &self.files[id]),
        ]
    }

    /// Has the clock of a node be wrong from now on, or go right.
    pub(crate) fn set(&self, id: usize, by: WrongBy) {
        let words = [by.gain_ppm, by.wall_s * 1_000_000_000];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // In place: the node has mapped the file.
        let path = &self.files[id];
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        std::os::unix::fs::FileExt::write_all_at(&file.unwrap(), &bytes, 0).unwrap();
    }
}
