//! The program `curtail`; its commands are in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    curtail_cli::main()
}
