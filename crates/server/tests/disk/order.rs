//! Requests keep their order while the disk is read, and concurrent clients see one history.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use curtail_server::Durability;
use curtail_testing::{Client, pattern, together};
use curtail_workload::Random;

use crate::support::{bounded, folder, push_out, serve_disk};

/// Goal: what one connection sends at once is executed in its order, whatever has to be read from
/// disk in between. Method: reads and writes of evicted keys in one packet.
#[test]
fn a_pipeline_keeps_its_order_over_disk_reads() {
    let folder = folder();
    let (_server, mut client) = serve_disk(folder.path(), bounded());
    client.set("a", "1");
    client.set("b", "2");
    client.set("n", "5");
    push_out(&mut client, 1);
    client.demand(
        "get a\r\nset a 0 0 1\r\n9\r\nget a\r\nincr n 1\r\nincr n 1\r\nget b\r\ndelete b\r\n\
         get b\r\nadd b 0 0 1\r\n7\r\nappend b 0 0 1\r\n8\r\nget b n\r\nversion\r\n",
        "VALUE a 0 1\r\n1\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\n9\r\nEND\r\n6\r\n7\r\n\
         VALUE b 0 1\r\n2\r\nEND\r\nDELETED\r\nEND\r\nSTORED\r\nSTORED\r\n\
         VALUE b 0 2\r\n78\r\nVALUE n 0 1\r\n7\r\nEND\r\n",
    );
    assert!(client.line().starts_with("VERSION"));
}

/// Counts in a few keys from several connections, while another one pushes items out.
fn count_while_evicting(durability: Durability) {
    const CLIENTS: usize = 4;
    const STEPS: usize = 400;
    // So many that most are pushed out before they are counted again.
    const KEYS: u64 = 200;
    let folder = folder();
    let (server, mut client) = serve_disk(folder.path(), durability);
    for key in 0..KEYS {
        client.set(format!("count-{key}"), "0");
    }
    push_out(&mut client, 0);
    let ended = AtomicBool::new(false);
    let sums = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut filler = Client::connect(&server);
            let mut salt = 0;
            while !ended.load(Relaxed) {
                salt += 1;
                push_out(&mut filler, salt);
            }
        });
        scopeguard::defer! { ended.store(true, Relaxed) }
        together(CLIENTS, |number| {
            let mut client = Client::connect(&server);
            let mut random = Random::new(number as u64);
            let mut sums = vec![0; KEYS as usize];
            let mut seen = vec![0; KEYS as usize];
            for _ in 0..STEPS {
                let key = random.below(KEYS) as usize;
                if random.one_in(3) {
                    let value = client.get(&format!("count-{key}"));
                    let value = value.and_then(|text| text.parse::<u64>().ok()).unwrap();
                    assert!(value >= seen[key], "a read went back");
                    seen[key] = value;
                } else {
                    client.send(format!("incr count-{key} 1\r\n"));
                    let value: u64 = client.line().trim_end().parse().unwrap();
                    assert!(value > seen[key], "a count was given twice");
                    (sums[key], seen[key]) = (sums[key] + 1, value);
                }
            }
            sums
        })
    });
    for key in 0..KEYS as usize {
        let sum: u64 = sums.iter().map(|sums| sums[key]).sum();
        client.demand_value(format!("count-{key}"), sum.to_string());
    }
    assert!(
        client.stat("curtail", "disk_reads") > 0,
        "the disk was never read"
    );
}

/// Goal: no increment is lost or done twice while items go to disk and come back all the time.
/// Method: sums of what each client was told.
#[test]
fn counts_are_exact_under_eviction() {
    count_while_evicting(bounded());
}

/// The same where replies wait for the disk.
#[test]
fn counts_are_exact_under_eviction_and_sync() {
    count_while_evicting(Durability::Sync);
}

/// Goal: values are not mixed up between keys. Method: every value tells its key; several clients
/// write and read more than the memory holds.
#[test]
fn more_data_than_memory_reads_back() {
    const ITEMS: usize = 4000;
    let folder = folder();
    let (server, mut client) = serve_disk(folder.path(), bounded());
    together(4, |part| {
        let mut client = Client::connect(&server);
        for number in (part..ITEMS).step_by(4) {
            client.set(
                format!("item-{number}"),
                pattern(4000 + number % 100, number),
            );
        }
    });
    assert!(client.stat("", "curr_items") < ITEMS as u64);
    together(4, |part| {
        let mut client = Client::connect(&server);
        let mut random = Random::new(part as u64);
        for _ in 0..1000 {
            let number = random.below(ITEMS as u64) as usize;
            client.demand_value(
                format!("item-{number}"),
                pattern(4000 + number % 100, number),
            );
        }
    });
}
