//! Memory per item: 10 million items of 16 B key and 32 B value.
//!
//! ```text
//! cargo bench -p curtail-store --bench memory            items and -m are chosen to fit
//! cargo bench -p curtail-store --bench memory -- 20000000 1500     items, MiB
//! ```
//!
//! Prints resident bytes per item, less what the process took before, and checks that every item is
//! there. The bar: 80 bytes, 75 where the index is at least 90 % full.

use curtail_runtime::resident_bytes;
use curtail_store::{Store, StoreConfig, Writer};
use curtail_types::{Get, HashSeed, Key, Now, Set, SetOutcome, WriterId};

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'));
    let mut number = |default: usize| -> usize {
        arguments
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(default)
    };
    let items = number(10_000_000) as u64;
    let memory_mib = number((items as usize * 80) >> 20);
    let before = resident_bytes();
    let store = match Store::new(StoreConfig {
        memory_bytes_max: memory_mib << 20,
        hash_seed: HashSeed([0x1234, 0x5678]),
        ..StoreConfig::default()
    }) {
        Ok(store) => store,
        Err(error) => return println!("no store: {error}"),
    };
    let now = Now {
        unix_ns: 1_800_000_000_000_000_000,
        ..Now::default()
    };
    let mut writer = store.writer(WriterId(0));
    let mut refused = 0;
    for n in 0..items {
        let bytes = key(n);
        let Ok(handle) = Key::new(&bytes) else { return };
        let hash = store.hash(&bytes);
        let outcome = store.set(
            &mut writer,
            now,
            handle,
            hash,
            &Set::default(),
            &[n as u8; 32],
        );
        refused += u64::from(!matches!(outcome, SetOutcome::Stored(_)));
        if n % 64 == 0 {
            store.maintain(&mut writer, now, 64);
        }
    }
    let resident = resident_bytes() - before;
    let present = count_present(&store, &mut writer, now, items);
    let memory = store.memory();
    let counters = store.counters();
    let per_item = |bytes: u64| bytes as f64 / items as f64;
    println!("items               {items}, present {present}, refused {refused}");
    println!(
        "-m                  {memory_mib} MiB, {:.2} B/item",
        per_item(memory.limit)
    );
    println!("resident            {:.2} B/item", per_item(resident));
    println!("  index             {:.2} B/item", per_item(memory.index));
    let fill = counters.items_now as f64 / memory.index_slots as f64;
    println!("  index fill        {:.1} %", 100.0 * fill);
    println!(
        "  segments          {:.2} B/item",
        per_item(memory.segments)
    );
    println!("  live items        {:.2} B/item", per_item(memory.live));
    println!(
        "evictions           {}, moved {}",
        counters.evictions, counters.moved
    );
}

/// How many of the items are there, with the right value.
fn count_present(store: &Store, writer: &mut Writer, now: Now, items: u64) -> u64 {
    let mut present = 0;
    for n in 0..items {
        let bytes = key(n);
        let Ok(handle) = Key::new(&bytes) else {
            continue;
        };
        let get = Get {
            quiet_access: true,
            ..Get::default()
        };
        let found = store.get(writer, now, handle, store.hash(&bytes), &get, |view| {
            let mut value = [0; 32];
            view.copy_value(0, &mut value);
            value
        });
        present += u64::from(found == Some([n as u8; 32]));
    }
    present
}

fn key(n: u64) -> [u8; 16] {
    let mut bytes = *b"key-000000000000";
    let mut rest = n;
    for digit in bytes[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}
