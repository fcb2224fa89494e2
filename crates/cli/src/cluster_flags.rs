//! The flags that make a server a node of a cluster.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use curtail_cluster::NodeConfig;
use rustix::process::{self, Signal};

/// The flags; see `--help` for what each means.
#[derive(Args, Debug)]
pub(crate) struct ClusterFlags {
    /// Be a node of the cluster that this file describes; needs --node
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Which of the cluster's nodes to be: its number or its name. Without -p, -l or -s the server
    /// listens where the file says
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Keys that may be on every node of the cluster; 0 shares none
    #[arg(long, value_name = "NUM", default_value_t = 256)]
    pub(crate) hot_keys: usize,
    /// How long a node that is told to stop may take to give its keys to the others first; 0 stops
    /// at once, and so does a second signal
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) leave_seconds: u64,
    /// End when the process that started this one, which has this number, ends
    #[arg(long, value_name = "PID", hide = true)]
    end_with_parent: Option<i32>,
}

impl ClusterFlags {
    /// What they ask for.
    pub(crate) fn settle(&self) -> anyhow::Result<Option<NodeConfig>> {
        if let Some(parent) = self.end_with_parent {
            end_with(parent).context("--end-with-parent")?;
        }
        match (&self.cluster, &self.node) {
            (None, None) => Ok(None),
            (Some(file), Some(node)) => Ok(Some(NodeConfig::load(file, node)?)),
            (Some(_), None) => bail!("--cluster FILE needs --node NODE: which of them is this?"),
            (None, Some(_)) => bail!("--node NODE needs --cluster FILE: a node of which cluster?"),
        }
    }
}

/// Has the kernel end this process as soon as `parent` is gone, however it went.
fn end_with(parent: i32) -> anyhow::Result<()> {
    process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have gone before.
    let now = process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if now != Some(parent) {
        bail!("process {parent} is not the one that started this");
    }
    Ok(())
}
