//! The flags that make a server a node of a cluster.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use curtail_membership::NodeConfig;
use curtail_server::Config;
use rustix::process::{self, Signal};

use crate::ranged_numbers;

/// The flags; see `--help` for what each means.
#[derive(Args, Debug)]
pub(crate) struct ClusterFlags {
    /// Run as a node of the cluster that this file describes; requires --node
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Number or name of this node in the cluster file. If none of -p, -l and -s is given, the
    /// server listens on this node's `clients` address in the file
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Maximum number of hot keys, of which every node has a copy; 0: none (default: 256)
    #[arg(long, value_name = "NUM", allow_negative_numbers = true)]
    hot_keys: Option<usize>,
    /// Maximum time in seconds that a node takes to move its keys to other nodes before it stops;
    /// with 0, or at a second signal to stop, the node stops at once (default: 20)
    #[arg(long, value_name = "SECONDS")]
    leave_seconds: Option<u64>,
    /// End when the process that started this one, which has this number, ends
    #[arg(long, value_name = "PID", hide = true)]
    end_with_parent: Option<i32>,
}

impl ClusterFlags {
    /// What they ask for.
    pub(crate) fn settle(&self, warnings: &mut Vec<String>) -> anyhow::Result<Option<NodeConfig>> {
        if let Some(parent) = self.end_with_parent {
            end_with(parent).context("--end-with-parent")?;
        }
        let hot_keys = self.hot_keys();
        ranged_numbers::check(hot_keys, 0..=Config::HOT_KEYS_MAX)
            .with_context(|| format!("--hot-keys {hot_keys}"))?;
        match (&self.cluster, &self.node) {
            (None, None) => {
                let given = [
                    ("--hot-keys", self.hot_keys.is_some()),
                    ("--leave-seconds", self.leave_seconds.is_some()),
                ];
                let given = given.iter().filter(|(_, given)| *given);
                let unused = |flag| format!("{flag}: of no effect without --cluster");
                warnings.extend(given.map(|(flag, _)| unused(flag)));
                Ok(None)
            }
            (Some(file), Some(node)) => {
                let named = || format!("--cluster {}", file.display());
                Ok(Some(NodeConfig::load(file, node).with_context(named)?))
            }
            (Some(_), None) => {
                bail!("--cluster: give --node NODE too, which says which node of that file this is")
            }
            (None, Some(_)) => {
                bail!("--node: give --cluster FILE too, which describes the cluster")
            }
        }
    }

    /// Keys that may be on every node.
    pub(crate) fn hot_keys(&self) -> usize {
        self.hot_keys.unwrap_or(HOT_KEYS)
    }

    /// How long a node that is told to stop may take to give its keys to the others.
    pub(crate) fn leave_seconds(&self) -> u64 {
        self.leave_seconds.unwrap_or(LEAVE_SECONDS)
    }
}

const HOT_KEYS: usize = 256;
const LEAVE_SECONDS: u64 = 20;

/// Has the kernel end this process as soon as `parent` is gone, however it went.
pub(crate) fn end_with(parent: i32) -> anyhow::Result<()> {
    process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have gone before.
    let now = process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if now != Some(parent) {
        bail!("process {parent}, which started this one, has ended");
    }
    Ok(())
}
