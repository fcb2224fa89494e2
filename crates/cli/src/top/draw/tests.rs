//! The screen as lines of text.

use std::time::Duration;

use curtail_testing::assert_contains;

use super::*;
use crate::top::{
    sample::{Names, Sample},
    screen_state::News,
    terminal::visible,
    watched_keys::{HotKey, HotKeys},
};

/// What a server said at two moments, two seconds apart.
fn sample(second: u64) -> Box<Sample> {
    let general = format!(
        "pid 7\nuptime {}\nversion 1.6.18-curtail-0.1.0\ncurr_connections 12\nmax_connections 1024
        total_connections {}\nrejected_connections 0\nrusage_user {}.250000\nrusage_system 1.000000
        cmd_get {}\ncmd_set {}\nget_hits {}\nget_misses {}\nbytes_read {}\nbytes_written {}
        evictions 0\nreclaimed 0\nlimit_maxbytes 67108864\nbytes 1000000\ncurr_items 123456",
        100 + second,
        20 + second,
        second / 2,
        second * 95_000,
        second * 5_000,
        second * 90_000,
        second * 5_000,
        second * 4_000_000,
        second * 90_000_000,
    );
    let own = format!(
        "policy size-aware+d-crew\nregime 2\nthreshold {}\nsmall_cores 2\nlarge_cores 0\nstandby 1
        large:0:from_bytes 65536\nhistory:0 size-aware+d-crew 32768 2+0
        history:61 size-aware+d-crew 65536 2+0\nslow_readers_closed 0\nrequests {}\nturns {}
        hand_offs {}
        delegations {}\nwrites_compacted {}\nlarge_refused 0\nsmall_behind_large 0
        stage:queue_requests_ahead:below_1 {}\nstage:queue_requests_ahead:below_8 {}
        stage:large_queue_connections_ahead:below_1 {}\nstage:reply_kilobytes_ahead:below_1 {}
        stage:queue_us:small:below_16 {}\nstage:execute_us:small:below_8 {}
        stage:execute_us:small:below_64 {}\nstage:reply_us:small:below_32 {}
        worker:0:connections 6\nworker:0:requests_last_epoch 600
        worker:0:turn_cpu_us_25 {}\nworker:0:turn_cpu_us_sum {}\nworker:0:turn_cpu_us_max 412
        worker:0:mailbox 3\nworker:1:connections 6\nworker:1:requests_last_epoch 400
        worker:1:turn_cpu_us_25 {}\nworker:1:turn_cpu_us_sum {}\nworker:1:turn_cpu_us_max 397
        worker:1:mailbox 0\nlarge:0:connections 0\nlarge:0:mailbox 0\nlarge:0:turn_cpu_us_max 90",
        32_768 * (1 + second / 2),
        second * 100_000,
        second * 5_000,
        second * 12,
        second * 3,
        second * 450,
        second * 90_000,
        second * 10_000,
        second * 12,
        second * 100_000,
        second * 500,
        second * 495,
        second * 5,
        second * 500,
        second * 250,
        second * 4_000,
        second * 250,
        second * 3_900,
    );
    let memory = "limit 67108864\nresident 52428800\nindex 4194304\nsegments 33554432
        items_live 30000000\nfree 1048576\nleased 0\nconnections 524592";
    let clients = "6:state conn_listening\n7:state conn_parse_cmd\n8:state conn_read";
    Box::new(Sample {
        taken: Duration::from_secs(second),
        general: Names::of(&general),
        own: Some(Names::of(&own)),
        memory: Some(Names::of(memory)),
        clients: Some(Names::of(clients)),
    })
}

fn screen() -> Screen {
    let mut screen = Screen::new("cache:11211".to_owned(), Duration::from_secs(2), false);
    screen.step(News::Sampled(sample(0)));
    screen.step(News::Sampled(sample(2)));
    screen
}

fn drawn(screen: &Screen, columns: usize, rows: usize) -> String {
    let lines = draw(screen, ScreenSize { columns, rows });
    assert_eq!(lines.len(), rows);
    let shown = lines.iter().map(|line| visible(&line.text, columns));
    shown
        .map(|text| text.trim_end().to_owned() + "\n")
        .collect()
}

/// Goal: everything of a small server has its place on the smallest usual terminal.
#[test]
fn the_screen_at_80_by_24() {
    let shown = drawn(&screen(), 80, 24);
    assert_eq!(shown, include_str!("80x24.txt"), "\n{shown}");
}

#[test]
fn a_server_that_is_gone_is_said_and_its_last_view_stays() {
    let mut screen = screen();
    screen.step(News::Gone("the server closed the connection".to_owned()));
    let shown = drawn(&screen, 80, 24);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines[1],
        "cache:11211: the server closed the connection; trying again"
    );
    assert!(lines[2].starts_with("requests 100,000/s"), "{shown}");
}

#[test]
fn before_the_first_sample_it_says_so() {
    let mut screen = Screen::new("cache:11211".to_owned(), Duration::from_secs(1), false);
    assert!(drawn(&screen, 80, 24).contains("\nconnecting\n"));
    screen.step(News::Gone("no route".to_owned()));
    let shown = drawn(&screen, 80, 24);
    assert!(shown.contains("no route; trying again") && !shown.contains("connecting"));
}

#[test]
fn help_names_every_key() {
    let mut screen = screen();
    screen.help = true;
    screen.paused = true;
    let shown = drawn(&screen, 80, 24);
    for words in [
        "q, Ctrl-C",
        "p, space",
        "+  -",
        "k  ",
        "?, h, Esc",
        "PAUSED",
        "q quit",
    ] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    let lines = HELP.iter().copied().chain([FOOTER]);
    lines.for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
    assert!(HELP.len() <= 22);
}

#[test]
fn the_hottest_keys_have_room() {
    let mut screen = screen();
    screen.keys_wanted = true;
    let key = |index: u64| HotKey {
        key: format!("user:{index}"),
        seen: 20 - index,
    };
    screen.step(News::Keys(Ok(HotKeys {
        seen: 200,
        skipped: 1000,
        keys: (0..20).map(key).collect(),
    })));
    let shown = drawn(&screen, 80, 24);
    assert_contains(&shown, "HOTTEST KEYS   200 requests seen, 1,000 not\n");
    assert_contains(&shown, "\n  10.0 % user:0\n");
    assert_contains(&shown, "\nSTAGE");
    screen.step(News::Keys(Err("the server does not".to_owned())));
    assert!(drawn(&screen, 80, 24).contains("\nthe server does not\n"));
}

/// Goal: no size of a terminal breaks it. Method: every size up to 100 by 40, in all states.
#[test]
fn any_size_will_do() {
    let mut screen = screen();
    for size in 0..40 {
        for (help, gone) in [(false, false), (true, true)] {
            screen.help = help;
            screen.gone = gone.then(|| "gone".to_owned());
            drawn(&screen, size * 5 / 2, size);
            drawn(&screen, 80, size);
            drawn(&screen, size, 24);
        }
    }
}

/// Goal: a server with many workers still shows its plan and its stages.
#[test]
fn what_matters_of_each_panel_comes_before_the_rest() {
    let panel = |lines: usize, least: usize| Panel {
        heading: "h".to_owned(),
        lines: vec![String::new(); lines],
        least,
    };
    let panels = [panel(3, 3), panel(64, 3), panel(9, 4)];
    assert_eq!(shares(&panels, 100), [4, 65, 10]);
    assert_eq!(shares(&panels, 20), [4, 11, 5]);
    assert_eq!(shares(&panels, 10), [4, 4, 2]);
    assert_eq!(shares(&panels, 0), [0, 0, 0]);
}
