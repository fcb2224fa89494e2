//! What the server tells of its own workers, stages and keys, in `stats curtail` and `/metrics`.

use std::collections::HashMap;

use curtail_testing::{Client, assert_contains, config, eventually, scrape, serve, start};

/// All rows of `stats curtail`.
fn rows(client: &mut Client) -> HashMap<String, String> {
    let mut rows = HashMap::new();
    for (name, value) in client.rows("curtail") {
        assert!(rows.insert(name.clone(), value).is_none(), "{name} twice");
    }
    rows
}

/// `stats` and `/metrics` agree on the splits and displacements of a growing index.
#[test]
fn the_index_tells_what_it_did() {
    let (server, mut client) = serve(curtail_server::Config {
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..config()
    });
    let sets: String = (0..30_000)
        .map(|number| format!("ms {number} 1 q\r\nv\r\n"))
        .collect();
    client.demand(sets + "mn\r\n", "MN\r\n");
    let rows = rows(&mut client);
    let page = scrape(&server);
    for (name, least) in [
        ("index_splits", 1000),
        ("index_paths", 100),
        ("index_paths_invalid", 0),
        ("index_restarts", 0),
        ("index_lock_alls", 0),
        ("index_searches_far", 0),
        ("index_refused", 0),
        ("index_read_retries", 0),
        ("index_reads_locked", 0),
    ] {
        let count: u64 = rows[name].parse().unwrap();
        assert!(count >= least, "{name} {count}");
        let line = format!("curtail_{name}_total {count}\n");
        assert!(page.contains(&line), "{line} in {page}");
    }
}

/// The sum of the numbers whose names begin and end like this.
fn sum(rows: &HashMap<String, String>, prefix: &str, suffix: &str) -> u64 {
    let fits = |name: &str| name.starts_with(prefix) && name.ends_with(suffix);
    let found = rows.iter().filter(|row| fits(row.0));
    found.map(|row| row.1.parse::<u64>().unwrap()).sum()
}

/// Goal: what each worker counts adds up to what all count. Method: two workers, clients on both.
#[test]
fn workers_are_counted_apart() {
    let server = start(curtail_server::Config {
        workers: 2,
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..config()
    });
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        for _ in 0..50 {
            client.demand("set k 0 0 1\r\nv\r\nmg k v\r\n", "STORED\r\nVA 1\r\nv\r\n");
        }
    }
    let rows = rows(&mut clients[0]);
    for what in ["requests", "turns", "delegations", "writes_compacted"] {
        let apart =
            sum(&rows, "worker:", &format!(":{what}")) + sum(&rows, "large:", &format!(":{what}"));
        let all: u64 = rows[what].parse().unwrap();
        // The worker that answers counts on while the others are read.
        assert!(apart.abs_diff(all) <= 2, "{what}: {apart} and {all}");
    }
    for worker in 0..2 {
        let requests: u64 = rows[&format!("worker:{worker}:requests")].parse().unwrap();
        assert!(requests >= 200, "two of four clients: {requests}");
        assert_eq!(rows[&format!("worker:{worker}:queue_depth")], "0");
    }
    let page = scrape(&server);
    for line in [
        "curtail_requests_total{worker=\"1\",role=\"small\"} ",
        "curtail_worker_queue_depth{worker=\"2\",role=\"large\"} 0",
        "curtail_line_requests_ahead_bucket{le=\"0\"} ",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
}

/// Small and large requests have their three stages, with sizes apart and together.
#[test]
fn stages_are_told_by_size() {
    for policy in ["size-aware+d-crew", "d-crew"] {
        let (server, mut client) = serve(curtail_server::Config {
            policy: policy.parse().unwrap(),
            threshold: Some(50_000),
            admin: Some("127.0.0.1:0".parse().unwrap()),
            ..config()
        });
        let value = "v".repeat(100_000);
        let set = format!("set large 0 0 100000\r\n{value}\r\n");
        let seen = |rows: &HashMap<String, String>, stage: &str, size: &str| {
            sum(rows, &format!("stage:{stage}_us:{size}:"), "")
        };
        eventually("all stages of both sizes", || {
            for _ in 0..20 {
                client.demand(&set, "STORED\r\n");
                client.demand_value("large", &value);
                client.demand("mg small\r\n", "EN\r\n");
            }
            let rows = rows(&mut client);
            ["queue", "execute", "reply"].iter().all(|stage| {
                ["small", "large"]
                    .iter()
                    .all(|size| seen(&rows, stage, size) > 0)
            })
        });
        let rows = rows(&mut client);
        if policy == "size-aware+d-crew" {
            let hand_offs: u64 = rows["hand_offs"].parse().unwrap();
            // The last may still be under way, and stages are shown now and then.
            let visits = seen(&rows, "execute", "large") + seen(&rows, "reply", "large");
            assert!(visits <= hand_offs && seen(&rows, "queue", "large") <= hand_offs);
        }
        let page = scrape(&server);
        let count = "curtail_stage_duration_seconds_count{stage=\"reply\",size=\"large\"} ";
        assert_contains(&page, count);
        assert_eq!(
            page.matches("# TYPE curtail_stage_duration_seconds ")
                .count(),
            1,
            "one heading for all stages and both sizes"
        );
    }
}

/// The hottest key is shown with its share over both workers, and keys of equal load are not.
#[test]
fn the_hottest_keys_are_told() {
    let server = start(curtail_server::Config {
        workers: 2,
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..config()
    });
    let mut clients: Vec<_> = (0..2).map(|_| Client::connect(&server)).collect();
    let mut next = 0;
    let mut told = String::new();
    eventually("the hot key is told", || {
        for client in &mut clients {
            for _ in 0..20 {
                let mut requests = String::new();
                for _ in 0..50 {
                    next += 1;
                    requests += &format!("mg hot%key\r\nmg other{}\r\n", next % 5000);
                }
                client.send(&requests);
                assert_eq!(client.take(100 * 4).len(), 400);
            }
        }
        let rows = rows(&mut clients[0]);
        told = rows.get("hot_key:1").cloned().unwrap_or_default();
        told.ends_with(" hot%25key")
    });
    let share: f64 = told.split(' ').next().unwrap().parse().unwrap();
    assert!((0.4..0.6).contains(&share), "{told}");
    let rows = rows(&mut clients[0]);
    assert_eq!(rows["hot_key_writes:1"], "0.0000");
    if let Some(second) = rows.get("hot_key:2") {
        let share: f64 = second.split(' ').next().unwrap().parse().unwrap();
        assert!(share < 0.1, "{second}");
    }
    let page = scrape(&server);
    assert_contains(&page, "curtail_hot_key_share_ratio{rank=\"1\"} 0.");
    assert!(page.contains("curtail_hot_key_write_ratio{rank=\"1\"} 0\n"));
    assert!(!page.contains("hot%25key"), "keys are clients' data");
}

/// Each command is measured under its name and size class, wherever it runs.
#[test]
fn latency_is_told_by_command_and_size() {
    for policy in ["size-aware+d-crew", "d-crew", "erew"] {
        let (server, mut client) = serve(curtail_server::Config {
            policy: policy.parse().unwrap(),
            threshold: Some(50_000),
            workers: 2,
            admin: Some("127.0.0.1:0".parse().unwrap()),
            ..config()
        });
        let value = "v".repeat(100_000);
        let set = format!("set large 0 0 100000\r\n{value}\r\n");
        let get = format!("VALUE large 0 100000\r\n{value}\r\nEND\r\n");
        let count = |page: &str, command: &str, size: &str| -> u64 {
            let name = format!(
                "curtail_request_duration_seconds_count{{command=\"{command}\",size=\"{size}\"}} "
            );
            let line = page.lines().find_map(|line| line.strip_prefix(&name));
            line.unwrap_or_else(|| panic!("{name} in\n{page}"))
                .parse()
                .unwrap()
        };
        let (mut page, mut rounds) = (String::new(), 0);
        eventually("all commands are measured", || {
            for _ in 0..20 {
                // Not in step with the turns that are measured.
                rounds += 1;
                for _ in 0..rounds % 7 {
                    client.demand("mn\r\n", "MN\r\n");
                }
                client.set("n", "1");
                client.demand("mg n v\r\n", "VA 1\r\n1\r\n");
                client.demand("incr n 1\r\n", "2\r\n");
                client.demand("touch n 0\r\n", "TOUCHED\r\n");
                client.demand("delete n\r\n", "DELETED\r\n");
                client.demand("mn\r\n", "MN\r\n");
                client.demand(&set, "STORED\r\n");
                client.demand("get large\r\n", &get);
            }
            page = scrape(&server);
            let small = ["get", "set", "delete", "arithmetic", "touch", "other"];
            let small = small.map(|command| (command, "small"));
            let mut all = small
                .into_iter()
                .chain([("get", "large"), ("set", "large")]);
            let missing = all.find(|(command, size)| count(&page, command, size) == 0);
            assert!(
                missing.is_none() || rounds < 4000,
                "{policy}: no {missing:?}"
            );
            missing.is_none()
        });
        for command in ["delete", "arithmetic", "touch", "other"] {
            assert_eq!(count(&page, command, "large"), 0, "{command}");
        }
        assert_contains(&page, "curtail_size_class_boundary_bytes 50000\n");
    }
}
