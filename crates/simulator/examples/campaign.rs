//! Local runner.
use clap::Parser;
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: curtail_simulator::command::Args,
}
fn main() {
    let line = Line::parse();
    match curtail_simulator::command::run(&line.args, &Default::default()) {
        Ok(code) => std::process::exit(if code == std::process::ExitCode::SUCCESS { 0 } else { 1 }),
        Err(error) => { eprintln!("{error}"); std::process::exit(2) }
    }
}
