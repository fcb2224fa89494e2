//! To come in this file.
use crate::LoadError;
use clap::Args;
use std::process::ExitCode;
/// x
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {}
/// x
pub fn run(_args: &CompareArgs) -> Result<ExitCode, LoadError> {
    Ok(ExitCode::SUCCESS)
}
