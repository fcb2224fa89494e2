//! The time from the start of a process to its first reply.

use serde::Serialize;

use super::{
    CompareArgs, Spread,
    servers::{Kind, Server, Setting},
};
use crate::error::LoadError;

/// One server's start.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Start {
    pub(crate) server: Kind,
    /// Milliseconds until a connection was accepted and a question answered.
    pub(crate) ms: Spread,
}

/// The default memory limit of the protocol's servers, in MiB.
const MEMORY_MIB: u64 = 64;

pub(crate) fn compare(args: &CompareArgs, settings: &[Setting]) -> Result<Vec<Start>, LoadError> {
    let mut all: Vec<Vec<f64>> = settings.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds {
        for (setting, times) in settings.iter().zip(&mut all) {
            let (_, time) = Server::start_timed(setting, MEMORY_MIB, args.server_core)?;
            times.push(time.as_secs_f64() * 1000.0);
        }
    }
    let starts = settings.iter().zip(&all).map(|(setting, times)| Start {
        server: setting.kind,
        ms: Spread::of(times),
    });
    Ok(starts.collect())
}
