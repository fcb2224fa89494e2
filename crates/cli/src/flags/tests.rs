//! memcached's command lines mean here what they mean there.

use clap::Parser;
use curtail_server::Niceness;
use curtail_testing::{assert_contains, temporary_file};

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

fn settle(line: &str) -> anyhow::Result<Settled> {
    let words = std::iter::once("serve").chain(line.split_whitespace());
    Ok(Cli::try_parse_from(words)?.flags.settle()?)
}

fn config(line: &str) -> Config {
    settle(line).unwrap().config
}

#[test]
fn letters_may_stick_to_their_values() {
    let config = config("-p11212 -m100 -vv -t3 -c 77 -I2m -M -C -F -A -X -W -R5 -b9");
    assert_eq!(config.listen[0].address, "127.0.0.1:11212".parse().unwrap());
    assert_eq!(config.memory_bytes_max, 100 << 20);
    assert_eq!((config.verbosity, config.workers), (2, 3));
    assert_eq!(
        (config.connections_max, config.item_bytes_max),
        (77, 2 << 20)
    );
    assert!(!config.evict && !config.cas && !config.flush_allowed);
    assert!(config.shutdown_allowed && !config.dump_allowed && !config.watch_allowed);
    assert_eq!((config.requests_per_turn_max, config.backlog), (5, 9));
}

#[test]
fn long_names_are_memcacheds() {
    let config = config(
        "--port=7 --memory-limit=65 --conn-limit=5 --max-item-size=1k --disable-evictions \
         --disable-cas --threads=2 --listen-backlog=3 --unix-mask=777 --extended=idle_timeout=9",
    );
    assert_eq!(config.listen[0].address.port(), 7);
    assert_eq!(config.idle_timeout_seconds, 9);
    assert_eq!(config.item_bytes_max, 1024);
}

#[test]
fn the_last_one_wins() {
    let config = config("-m 64 -m 128 -o idle_timeout=3 -o idle_timeout=4,no_maxconns_fast");
    assert_eq!(config.memory_bytes_max, 128 << 20);
    assert_eq!(config.idle_timeout_seconds, 4);
    assert!(!config.refuse_connections_fast);
}

#[test]
fn the_default_is_loopback() {
    let addresses: Vec<String> = config("")
        .listen
        .iter()
        .map(|listen| listen.address.to_string())
        .collect();
    assert_eq!(addresses, ["127.0.0.1:11211", "[::1]:11211"]);
    assert!(config("-p 0").listen.is_empty());
    assert_eq!(config("-p -1").listen[0].address.port(), 0);
    assert_eq!(config("-U 11222").listen[0].address.port(), 11222);
    assert_eq!(config("-U 11222 -p 5").listen[0].address.port(), 5);
    let both = config("-s /tmp/x -a 770");
    assert!(both.listen.is_empty());
    assert_eq!(both.unix.unwrap().mode, 0o770);
}

#[test]
fn an_open_address_needs_a_login_or_a_flag() {
    let logins = temporary_file("a:b\n");
    assert!(settle("-l 0.0.0.0").is_err());
    assert!(settle("-l 127.0.0.1,[::]:5").is_err());
    assert_eq!(
        settle("-l 0.0.0.0 --open-to-network")
            .unwrap()
            .warnings
            .len(),
        1
    );
    assert!(
        settle(&format!("-l 0.0.0.0 -Y {}", logins.display()))
            .unwrap()
            .warnings
            .is_empty()
    );
    assert_eq!(config("-l 127.0.0.2:99,[::1]").listen.len(), 2);
}

#[test]
fn nonsense_is_refused() {
    for line in [
        "-c 0",
        "-c -1",
        "-t 0",
        "-t 1000",
        "-I 1000",
        "-I 256m",
        "-B http",
        "-m x",
        "-p 70000",
        "-a 9z -s /x",
        "-S",
        "-Z",
        "-D é",
        "-l not:a:name",
        "--admin-port x",
    ] {
        assert!(settle(line).is_err(), "{line}");
    }
}

#[test]
fn what_memcached_knows_and_we_do_not_have_is_swallowed() {
    let settled = settle(
        "-u root -f 2.0 -n 96 -L -N 1 -B binary -U 11211 -o relaxed_privileges,slab_chunk_max=1024 \
         -o no_lru_crawler,modern,unheard_of=1 -D /",
    )
    .unwrap();
    let told = settled.warnings.join("\n");
    assert_eq!(settled.warnings.len(), 4, "{told}");
    assert_contains(
        &told,
        "-f, -n, -N, -o relaxed_privileges, -o slab_chunk_max, -o no_lru_crawler, -o modern: \
             of no effect in curtail",
    );
    assert_eq!(settled.config.prefix_delimiter, b'/');
    assert!(settled.config.detail && !settled.config.echoed.lru_crawler);
}

#[test]
fn policies_and_sizes_are_set() {
    let plain = config("");
    assert_eq!(plain.policy.to_string(), "size-aware+d-crew");
    assert!(plain.policy_change_allowed && plain.threshold.is_none());
    let told = config(
        "--policy size-aware-static+crew --fixed-policy \
         -o size_threshold=5000,size_epoch=200,size_queue=8,size_nice=3",
    );
    assert_eq!(told.policy.to_string(), "size-aware-static+crew");
    assert!(!told.policy_change_allowed);
    assert_eq!(told.threshold, Some(5000));
    assert_eq!(told.epoch_ms, 200);
    assert_eq!(told.large_connections_max, 8);
    assert_eq!(told.large_nice, Niceness::Level(3));
    assert_eq!(plain.large_nice, Niceness::Idle);
    assert_eq!(config("-o size_nice=idle").large_nice, Niceness::Idle);
    for bad in [
        "--policy best",
        "-o size_epoch=0",
        "-o size_percentile=99",
        "-o size_nice=20",
        "-o size_threshold",
    ] {
        assert!(settle(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_native_path_is_off_unless_asked_for() {
    use curtail_server::{NativeMode, NativePlacement};

    assert!(config("").native.is_none() && config("--native 0").native.is_none());
    let asked = config(
        "--native 11311 --native-mode raw --native-queues 32 --native-slots 256 \
         -o native_backlog=9,native_read_wait_us=50 \
         -o native_placement=owner,native_service_us=0.5",
    );
    let native = asked.native.unwrap();
    assert_eq!((native.port, native.mode), (11311, Some(NativeMode::Raw)));
    assert_eq!((native.queues, native.slots), (32, Some(256)));
    assert_eq!((native.backlog_max, native.service_ns), (9, 500));
    assert_eq!(native.read_wait_us, 50);
    assert_eq!(native.placement, NativePlacement::Owner);
    assert_eq!(config("--native -1").native.unwrap().port, 0);
    for wrong in [
        "--native 70000",
        "--native-mode io-ack",
        "--native 1 --native-mode fast",
        "--native 1 --native-mode xdp",
        "--native 1 -o native_placement=nobody",
    ] {
        assert!(settle(wrong).is_err(), "{wrong}");
    }
    assert_eq!(settle("-o native_backlog=9").unwrap().warnings.len(), 1);
}

#[test]
fn datagrams_of_memcached_are_off_unless_asked_for() {
    assert_eq!(config("").udp_port, None);
    assert_eq!(config("-U 11211 -p 5").udp_port, Some(11211));
    assert_eq!(settle("-U 7").unwrap().warnings.len(), 1);
    assert!(settle("-U 7 -Y file").is_err());
}

/// Goal: a login that half of the doors ask for is none. Method: native clients know none.
#[test]
fn a_login_is_not_given_where_native_clients_need_none() {
    let logins = temporary_file("a:b\n");
    assert!(settle("--native 7 -Y file").is_err());
    assert!(settle(&format!("--native 0 -Y {}", logins.display())).is_ok());
    assert!(settle("--native 7 -l 0.0.0.0").is_err());
    assert!(settle("--native 7 -l 0.0.0.0 --open-to-network").is_ok());
}

/// Goal: a number that cannot be says which would, and what is likely to fail later is said now.
#[test]
fn numbers_and_places_that_cannot_be_say_so() {
    let says = |flags: &str| format!("{:#}", settle(flags).err().unwrap());
    assert!(says("-p 70000").contains("from 1 to 65535"));
    assert!(says("-U -7").contains("-U -7"));
    assert!(says("--native 99999").contains("from 1 to 65535"));
    assert!(says("-e /no/such/folder/file").contains("no folder /no/such/folder"));
    assert!(settle("-e file").is_ok());
    assert_eq!(settle("-m 64 -I 128m").unwrap().warnings.len(), 1);
    assert_eq!(settle("-m 2").unwrap().warnings.len(), 0);
}

/// Values that no flag may take as another one, by the flag's long name. A flag with no values
/// takes any text, or names a file that is looked at when it is used.
const BAD_VALUES: [(&str, &[&str]); 45] = [
    ("port", &["-2", "65536", "x", "1.5", ""]),
    ("udp-port", &["-2", "65536", "x"]),
    ("unix-socket", &[]),
    ("unix-mask", &["9", "1000", "+7", "x", ""]),
    ("listen", &["not:a:name", "1.2.3.4:99999"]),
    ("user", &[]),
    (
        "memory-limit",
        &["0", "-1", "1x", "1023k", "99999999999g", ""],
    ),
    ("conn-limit", &["0", "-1", "x"]),
    ("pidfile", &[]),
    ("slab-growth-factor", &["0.5", "1", "nan", "inf", "x"]),
    ("slab-min-size", &["0", "-1", "x"]),
    ("prefix-delimiter", &["\u{e9}", "ab"]),
    ("threads", &["0", "-1", "257", "x"]),
    ("max-reqs-per-event", &["0", "-1", "4294967296", "x"]),
    ("listen-backlog", &["0", "-1", "2147483648", "x"]),
    ("protocol", &["http", ""]),
    ("max-item-size", &["1023", "129m", "-1", "x"]),
    ("auth-file", &["/no/such/file"]),
    ("memory-file", &["/no/such/folder/file"]),
    ("napi_ids", &[]),
    ("admin-port", &["x", "65536", "1.2.3.4"]),
    ("policy", &["best", "D-CREW", ""]),
    ("native", &["-2", "65536", "x"]),
    ("native-mode", &["fast", ""]),
    ("native-interface", &[]),
    ("native-queues", &["0", "8", "65", "-1", "x"]),
    ("native-slots", &["0", "3", "2097152", "-1", "x"]),
    ("native-pin", &[]),
    ("cluster", &["/no/such/file"]),
    ("node", &[]),
    ("hot-keys", &["16385", "-1", "x"]),
    ("leave-seconds", &["-1", "x"]),
    ("end-with-parent", &["x"]),
    ("tier", &["tape", ""]),
    ("tier-file", &["/no/such/file"]),
    ("data", &[]),
    ("durability", &["always", ""]),
    ("loss-window-ms", &["9", "60001", "-1", "x"]),
    ("disk-memory", &["15", "1048577", "-1", "x"]),
    ("disk-threads", &["0", "65", "-1", "x"]),
    ("disk-reserve", &["-1", "x", "1073741825"]),
    ("config", &[]),
    ("log-format", &["xml", ""]),
    ("log-level", &["loud", "trace", ""]),
    ("extended", &[]),
];

/// The same for `-o`, where `None` is no value at all. An option with no bad values takes none.
const BAD_OPTIONS: [(&str, &[&str]); 29] = [
    ("maxconns_fast", &["=1", "="]),
    ("no_maxconns_fast", &["=0"]),
    ("idle_timeout", &["", "=-1", "=x", "=4294967296"]),
    ("read_buf_mem_limit", &["", "=-1", "=x", "=99999999999"]),
    ("watcher_logbuf_size", &["", "=0", "=-1", "=99999999999"]),
    ("worker_logbuf_size", &["", "=0", "=x"]),
    ("compaction", &["=", "=maybe"]),
    ("no_compaction", &["=1"]),
    ("size_threshold", &["", "=12", "=4096", "=4294967296", "=x"]),
    ("size_percentile", &["", "=99"]),
    ("size_queue", &["", "=0", "=-1"]),
    ("size_nice", &["", "=-1", "=20", "=lazy"]),
    ("size_epoch", &["", "=0", "=-1"]),
    ("slow_us", &["", "=-1", "=x"]),
    ("native_backlog", &["", "=-1", "=x"]),
    ("native_read_wait_us", &["", "=-1", "=x", "=1000001"]),
    ("native_sessions", &["", "=0", "=65537"]),
    ("native_address_sessions", &["", "=0", "=17"]),
    ("native_lease_ms", &["", "=99", "=-1"]),
    ("native_datagram", &["", "=0", "=313", "=1985", "=99999"]),
    ("native_attach", &["", "=both"]),
    ("native_placement", &["", "=nobody"]),
    ("native_choice", &["", "=nobody"]),
    ("native_service_us", &["", "=-1", "=nan", "=1e9"]),
    ("hashpower", &["", "=11", "=33"]),
    ("tail_repair_time", &["", "=9"]),
    ("slab_chunk_max", &["", "=0", "=99999999999999999"]),
    ("temporary_ttl", &["", "=-1"]),
    ("lru_crawler", &["=1"]),
];

/// Goal: no value is taken as another one in silence. Method: for every flag that there is, values
/// out of its range; each is an error that names the flag and the value.
#[test]
fn every_bad_value_is_an_error_that_names_its_flag() {
    let command = <Cli as clap::CommandFactory>::command();
    for argument in command
        .get_arguments()
        .filter(|one| one.get_action().takes_values())
    {
        let long = argument.get_long().unwrap();
        let row = BAD_VALUES.iter().find(|(name, _)| *name == long);
        let (_, values) = row.unwrap_or_else(|| panic!("--{long} is not in the table"));
        for value in *values {
            let mut words = vec!["serve".to_owned(), format!("--{long}={value}")];
            match long {
                "native-queues" | "native-slots" | "native-mode" => {
                    words.push("--native=1".to_owned());
                }
                "cluster" => words.push("--node=1".to_owned()),
                "loss-window-ms" | "disk-memory" | "disk-threads" | "disk-reserve" => {
                    words.extend(["--tier=disk", "--data=nowhere"].map(str::to_owned));
                }
                _ => {}
            }
            let parsed = Cli::try_parse_from(&words).map_err(|error| error.to_string());
            let settled =
                parsed.and_then(|cli| cli.flags.settle().map_err(|error| error.to_string()));
            let told = settled
                .err()
                .unwrap_or_else(|| panic!("--{long}={value} is taken"));
            let short = argument
                .get_short()
                .map_or_else(String::new, |one| format!("-{one}"));
            let names = told.contains(&format!("--{long}")) || told.contains(&short);
            let shows = told.to_lowercase().contains(&value.to_lowercase());
            assert!(names && shows, "--{long}={value}: {told}");
        }
    }
    for (name, _) in BAD_VALUES {
        assert!(
            command
                .get_arguments()
                .any(|one| one.get_long() == Some(name)),
            "there is no --{name}"
        );
    }
}

/// Goal and method as above, for every option that `--help` names.
#[test]
fn every_bad_option_is_an_error_that_names_it() {
    let helped = extended_options::HELP.lines().filter_map(|line| {
        let word = line.strip_prefix("  ")?.split([' ', '=']).next()?;
        (!word.is_empty()).then_some(word)
    });
    for name in helped {
        assert!(
            BAD_OPTIONS.iter().any(|(known, _)| *known == name),
            "{name} is not in the table"
        );
    }
    for (name, values) in BAD_OPTIONS {
        for value in values {
            for native in ["", "--native=1"] {
                let line = format!("{native} -o {name}{value}");
                let told = settle(&line)
                    .err()
                    .unwrap_or_else(|| panic!("{line} is taken"));
                let told = format!("{told:#}");
                assert!(
                    told.starts_with(&format!("-o {name}{value}: ")),
                    "{line}: {told}"
                );
            }
        }
    }
    let told = settle("-o size_threshold=12").err().unwrap();
    assert_eq!(
        told.to_string(),
        "-o size_threshold=12: 12 is not a number of 4097 or more"
    );
}

/// Goal: all that is wrong is said at once, and what has no effect is said, too.
#[test]
fn all_faults_are_said_at_once_and_unused_flags_are_named() {
    let told = settle("-c 0 -t 0 -o size_queue=0,size_epoch=0 -I 1")
        .err()
        .unwrap();
    assert_eq!(told.to_string().lines().count(), 5, "{told}");
    for (line, flag) in [
        ("-a 700", "-a"),
        ("-s /x -p 5", "-p"),
        ("-s /x -l ::1", "-l"),
        ("--hot-keys 5", "--hot-keys"),
        ("--leave-seconds 5", "--leave-seconds"),
        (
            "--native 1 --native-mode io-ack --native-interface x",
            "--native-interface",
        ),
        ("-o native_backlog=3", "-o native_backlog"),
    ] {
        let warnings = settle(line).unwrap().warnings;
        assert!(
            warnings.iter().any(|told| told.starts_with(flag)),
            "{line}: {warnings:?}"
        );
    }
    assert!(settle("--native-slots 64").is_err() && settle("--native-pin /x").is_err());
}
