//! Looks at a workload, at the table of Twitter's clusters, or at a recorded trace, and says in a
//! few lines what is in it.
//!
//! ```text
//! cargo run --release -p curtail-workload --example inspect -- workload etc:p-large=0.25
//! cargo run --release -p curtail-workload --example inspect -- clusters FILE
//! cargo run --release -p curtail-workload --example inspect -- trace FORMAT FILE
//! ```

use std::{
    collections::{HashMap, HashSet},
    env,
    error::Error,
    fs::File,
    io::Read,
};

use curtail_workload::{
    Catalogue, Kind, Stream, Workload,
    trace::{Flow, Format, TraceReader},
};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["workload", text] => workload(&text.parse()?),
        ["clusters", path] => return clusters(&std::fs::read_to_string(path)?),
        ["trace", format, path] => return trace(format.parse()?, path),
        _ => {
            println!(
                "workload NAME | clusters FILE | trace arc|cloud-physics|twitter FILE; names:"
            );
            for named in Catalogue::list() {
                println!("  {:<12} {}", named.name, named.description);
            }
        }
    }
    Ok(())
}

/// Draws a million requests.
fn workload(workload: &Workload) {
    let mut generator = workload.generator(1, Stream::ONLY);
    let mut seen: HashMap<u64, u32> = HashMap::new();
    let (mut bytes, mut large_bytes, mut large, mut writes) = (0_u64, 0_u64, 0_u64, 0_u64);
    for _ in 0..DRAWS {
        let request = generator.draw(0);
        *seen.entry(request.key).or_default() += 1;
        bytes += u64::from(request.item.value_bytes);
        writes += u64::from(request.kind.is_write());
        if request.item.large {
            large += 1;
            large_bytes += u64::from(request.item.value_bytes);
        }
    }
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
    let hottest = seen.values().max().copied().unwrap_or(0);
    println!("{workload}");
    println!(
        "data set            {:.3e} bytes",
        generator.items().total_bytes(workload.keys)
    );
    println!("of {DRAWS} requests");
    println!("  writes            {:.2} %", share(writes, DRAWS));
    println!("  different keys    {}", seen.len());
    println!(
        "  the hottest key   {:.2} %",
        share(u64::from(hottest), DRAWS)
    );
    println!(
        "  mean value        {:.1} bytes",
        bytes as f64 / DRAWS as f64
    );
    println!("  large requests    {:.4} %", share(large, DRAWS));
    println!(
        "  large bytes       {:.1} %",
        share(large_bytes, bytes.max(1))
    );
}

fn clusters(text: &str) -> Result<(), Box<dyn Error>> {
    let catalogue = Catalogue::with_clusters(text)?;
    for cluster in catalogue.clusters() {
        match catalogue.workload(&format!("twitter:{}", cluster.name)) {
            Ok(workload) => println!("{:<10} {workload}", cluster.name),
            Err(error) => println!("{:<10} refused: {error}", cluster.name),
        }
    }
    Ok(())
}

fn trace(format: Format, path: &str) -> Result<(), Box<dyn Error>> {
    let mut reader = TraceReader::new(format);
    let mut keys = HashSet::new();
    let (mut records, mut writes, mut errors, mut last_ns) = (0_u64, 0_u64, 0_u64, 0);
    let mut take = |found: curtail_workload::trace::Found<'_>| {
        match found {
            Ok(record) => {
                records += 1;
                writes += u64::from(record.kind != Kind::Get);
                keys.insert(record.key.number());
                last_ns = record.at_ns.unwrap_or(0);
            }
            Err(error) => {
                errors += 1;
                if errors <= 10 {
                    println!("{error}");
                }
            }
        }
        Flow::Continue(())
    };
    let mut file = File::open(path)?;
    let mut piece = vec![0; 1 << 16];
    let mut flow = Flow::Continue(());
    while flow.is_continue() {
        let count = file.read(&mut piece)?;
        if count == 0 {
            break;
        }
        flow = reader.push(&piece[..count], &mut take);
    }
    let lines = reader.lines();
    let _ = reader.finish(&mut take);
    println!("{lines} lines, {errors} malformed");
    println!(
        "{records} requests of {} keys, {writes} not get",
        keys.len()
    );
    println!("last one at {:.0} s", last_ns as f64 / 1e9);
    Ok(())
}

const DRAWS: u64 = 1_000_000;
