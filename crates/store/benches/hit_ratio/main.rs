//! Hit ratios of eviction policies on real traces: the table from which the store's eviction was
//! chosen, and the variations of it that lost.
//!
//! ```text
//! cargo bench -p curtail-store --bench hit_ratio -- --traces ../shared/data/traces
//! ```
//!
//! The traces are not part of the repository. A relative path is taken from the repository's root.
//! Without the traces, the simulators are checked on small examples and the tables are skipped;
//! the same when the bench is run as a test. `--variations` adds the table of what was tried,
//! `--store-only` prints nothing but how the store does beside its simulator, `--admission` nothing
//! but which items a cache above a disk should take in.
#![forbid(unsafe_code)]

mod admission;
mod arc;
mod checks;
mod contenders;
mod ghost;
mod optimum;
mod policy;
mod queues;
mod real_store;
mod recency;
mod s3_fifo;
mod segcache_merge;
mod store_eviction;
mod synthetic_traces;
mod tables;
mod tiny_lfu;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tables::{Results, print_store};
use trace::Trace;

fn main() -> ExitCode {
    checks::run();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if !has("--bench") {
        println!("hit_ratio: the simulators are right on small examples; `cargo bench` for tables");
        return ExitCode::SUCCESS;
    }
    let named = arguments
        .iter()
        .skip_while(|argument| *argument != "--traces")
        .nth(1);
    let folder = folder(named.map_or(TRACES, String::as_str));
    if !folder.is_dir() {
        println!(
            "hit_ratio: skipped: no traces in {}; name them by --traces",
            folder.display()
        );
        return ExitCode::SUCCESS;
    }
    match read(&folder) {
        Ok(traces) => {
            match (has("--store-only"), has("--admission")) {
                (true, _) => print_store(&traces),
                (false, true) => admission::print(&traces),
                (false, false) => print(&traces, has("--variations")),
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("hit_ratio: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Where the traces are when nothing else is said.
const TRACES: &str = "../shared/data/traces";

/// Benches run in their crate's folder, but people type paths from the repository's root.
fn folder(named: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap_or(root);
    root.join(named)
}

fn read(folder: &Path) -> Result<Vec<Trace>, String> {
    let oltp = Trace::arc("OLTP", &folder.join("OLTP.lis.zst"))?;
    let p2 = Trace::arc("P2", &folder.join("P2.lis.zst"))?;
    let bytes = Trace::cloud_physics("CloudPhysics by bytes", &folder.join("cloudPhysicsIO.csv"))?;
    let objects = bytes.of_equal_sizes("CloudPhysics by objects");
    Ok(vec![oltp, p2, objects, bytes])
}

fn print(traces: &[Trace], with_variations: bool) {
    let made = synthetic_traces::traces();
    let results = Results::measure(traces, contenders::policies());
    let results_made = Results::measure(&made, contenders::policies());
    results.print_per_trace(traces);
    println!("\nOver all cells; `as good` and `worst`: against the best of LRU, S3-FIFO and SIEVE");
    results.print_summary(&results.yardstick());
    results.check(traces);
    println!("\nThe store itself");
    print_store(traces);
    print_store(&made);
    results_made.print_per_trace(&made);
    println!("\nOver the cells of the made-up traces");
    results_made.print_summary(&results_made.yardstick());
    if with_variations {
        println!("\nVariations of ours");
        let variations = Results::measure(traces, contenders::variations());
        variations.print_summary(&results.yardstick());
        println!("\nVariations of ours on the made-up traces");
        let variations = Results::measure(&made, contenders::variations());
        variations.print_summary(&results_made.yardstick());
    }
}
