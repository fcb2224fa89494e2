//! The soak against a server that is told to lie: it must notice each kind of lie, and nothing
//! where there is none.

use std::process::ExitCode;

use clap::Parser;
use curtail_loadgen::soak::{self, SoakArgs};

use crate::fake::{self, Lie};

/// A command line with nothing but a soak's arguments.
#[derive(Parser)]
#[command(args_override_self = true)]
struct Command {
    #[command(flatten)]
    args: SoakArgs,
}

/// Runs a soak for some seconds; whether it found nothing wrong.
fn passes(lie: Lie, seconds: &str, more: &str) -> bool {
    let all = format!(
        "soak --target {} --duration {seconds} --threads 2 --keys 200 --value-bytes-max 20000 \
         --json {more}",
        fake::start(lie)
    );
    let args = Command::try_parse_from(all.split_whitespace());
    let args = args.unwrap().args;
    soak::run(&args).unwrap() == ExitCode::SUCCESS
}

#[test]
fn an_honest_server_passes() {
    assert!(passes(Lie::None, "4", "--linearizability 2"));
    assert!(passes(Lie::None, "0.5", "--mode cache"));
}

#[test]
fn each_lie_about_values_is_noticed() {
    for lie in [Lie::Stale, Lie::Torn, Lie::Foreign] {
        assert!(!passes(lie, "2", "--mode cache"), "{lie:?}");
    }
}

#[test]
fn each_lie_about_writes_is_noticed() {
    for lie in [Lie::Lost, Lie::Uncounted, Lie::BlindSwap] {
        assert!(!passes(lie, "2", ""), "{lie:?}");
    }
}

#[test]
fn items_that_never_expire_are_noticed() {
    assert!(!passes(Lie::Undying, "6", ""));
}

/// Goal: the histories alone are enough. Method: two owned keys, hardly touched, beside the
/// registers.
#[test]
fn a_register_that_is_not_atomic_is_noticed() {
    let registers = "--linearizability 2 --keys 1 --threads 1";
    for lie in [Lie::Stale, Lie::Lost, Lie::BlindSwap] {
        assert!(!passes(lie, "2", registers), "{lie:?}");
    }
}
