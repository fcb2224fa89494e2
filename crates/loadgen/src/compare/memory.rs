//! Memory per item: resident bytes after storing many small items, and how many of them are
//! present.
//!
//! Ours is measured twice: with room to spare, and with `-m` sized to what one item may cost, in
//! which case all items must still be there.

use curtail_workload::Sizes;
use serde::Serialize;

use super::{
    CompareArgs,
    servers::{Kind, MEMORY_MIB, Server, Setting},
    throughput::workload,
};
use crate::{cpu, error::LoadError, preload, request_source::Load, stop::Stop};

/// One server's memory.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) server: Kind,
    pub(crate) limit_mib: u64,
    pub(crate) items: u64,
    pub(crate) resident_mib: f64,
    /// Resident bytes per item, the empty server's included.
    pub(crate) bytes_per_item: f64,
    /// The same without the empty server's.
    pub(crate) bytes_per_item_net: f64,
    /// Share of sampled items that are there with their length.
    pub(crate) found: f64,
    pub(crate) refused: u64,
}

/// What one item may cost: the goal, in bytes.
const BYTES_PER_ITEM_GOAL: u64 = 80;

/// Items read back at random.
const SAMPLES: u64 = 200_000;

pub(crate) fn compare(args: &CompareArgs, settings: &[Setting]) -> Result<Vec<Memory>, LoadError> {
    let mut results = Vec::new();
    for setting in settings {
        results.push(load(args, setting, MEMORY_MIB)?);
        if setting.kind == Kind::Ours {
            let sized_mib = (args.memory_items * BYTES_PER_ITEM_GOAL).div_ceil(1 << 20);
            results.push(load(args, setting, sized_mib)?);
        }
    }
    Ok(results)
}

fn load(args: &CompareArgs, setting: &Setting, limit_mib: u64) -> Result<Memory, LoadError> {
    let server = Server::start(setting, limit_mib, args.server_core)?;
    let gone = || LoadError::Server(format!("{} is gone", setting.kind.name()));
    let empty = cpu::resident_bytes(server.pid()).ok_or_else(gone)?;
    let workload = workload(args.memory_items, Sizes::constant(32), 1.0, 0.0)?;
    let load = Load::drawn(setting.kind.protocol(16), workload);
    let refused = preload::preload(&server.target, &load, (1, None), &Stop::new())?;
    let resident = cpu::resident_bytes(server.pid()).ok_or_else(gone)?;
    let found = preload::sample(&server.target, &load, SAMPLES)?;
    let items = args.memory_items as f64;
    Ok(Memory {
        server: setting.kind,
        limit_mib,
        items: args.memory_items,
        resident_mib: resident as f64 / f64::from(1 << 20),
        bytes_per_item: resident as f64 / items,
        bytes_per_item_net: resident.saturating_sub(empty) as f64 / items,
        found,
        refused,
    })
}
