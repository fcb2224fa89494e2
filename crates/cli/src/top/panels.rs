//! Formats a view as lines of text in panels, for the screen and the report.
//!
//! Panels are what the screen shares its height among: the first lines of each matter most.

use super::{
    histogram::Edge,
    history::History,
    number_format::{age, bytes, count, known, percent, rate, size, sparkline, tenths},
    rates::{Change, Clients, Memory, Moves, Plan, Role, Sampled, StageRow, Traffic, View, Worker},
    reported_cluster,
    watched_keys::HotKeys,
};

/// A heading and the lines below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panel {
    /// Empty for none.
    pub(crate) heading: String,
    pub(crate) lines: Vec<String>,
    /// Lines that matter, should height be scarce.
    pub(crate) least: usize,
}

/// All panels that have something to say, for lines of `width` characters.
pub(crate) fn panels(
    view: &View,
    history: &History,
    keys: Option<&Result<HotKeys, String>>,
    width: usize,
) -> Vec<Panel> {
    let mut panels = vec![overview(view)];
    let cluster = view.cluster.as_ref();
    panels.extend(cluster.map(|cluster| reported_cluster::panel(cluster, view.uptime_seconds)));
    if !view.workers.is_empty() {
        panels.push(workers(view));
    }
    if let Some(plan) = &view.plan {
        panels.push(self::plan(plan, view, history, width));
    }
    panels.extend(keys.map(self::keys));
    if !view.stages.is_empty() {
        panels.push(stages(&view.stages));
    }
    if keys.is_none() && !view.hot_keys.is_empty() {
        panels.push(sampled(&view.hot_keys));
    }
    panels
}

impl Panel {
    /// Lines in all.
    pub(crate) fn height(&self) -> usize {
        usize::from(!self.heading.is_empty()) + self.lines.len()
    }
}

fn overview(view: &View) -> Panel {
    let lines = vec![
        requests(&view.traffic),
        traffic(&view.traffic),
        memory(&view.memory),
        items(&view.memory, view.traffic.evictions),
        clients(&view.clients),
    ];
    Panel {
        heading: String::new(),
        least: lines.len(),
        lines,
    }
}

fn requests(traffic: &Traffic) -> String {
    let (requests, reads) = (rate(traffic.requests), rate(traffic.reads));
    let (writes, hits) = (rate(traffic.writes), percent(traffic.hit_ratio));
    let mut line =
        format!("requests {requests}/s   reads {reads}/s   writes {writes}/s   hits {hits}");
    if traffic.requests_per_turn.is_some() {
        line += &format!("   {} a turn", tenths(traffic.requests_per_turn));
    }
    line
}

fn traffic(traffic: &Traffic) -> String {
    let flow = |flow: Option<f64>| flow.map_or("-".to_owned(), bytes);
    let (received, sent) = (flow(traffic.bytes_received), flow(traffic.bytes_sent));
    let (cpus, each) = (percent(traffic.cpus), tenths(traffic.cpu_us_per_request));
    format!("traffic  in {received}/s   out {sent}/s   cpu {cpus}   {each} us cpu/request")
}

fn memory(memory: &Memory) -> String {
    let told = parts(&[
        ("limit", memory.limit),
        ("resident", memory.resident),
        ("index", memory.index),
        ("buffers", memory.connections),
    ]);
    format!("memory{told}")
}

fn items(memory: &Memory, evictions: Option<f64>) -> String {
    let (items, item_bytes) = (known(memory.items), size(memory.item_bytes));
    let evicted = rate(evictions);
    let told = parts(&[
        ("segments", memory.segments),
        ("free", memory.free),
        ("leased", memory.leased.filter(|leased| *leased > 0)),
    ]);
    format!("items    {items} in {item_bytes}   evicted {evicted}/s{told}")
}

/// Those that are told.
fn parts(parts: &[(&str, Option<u64>)]) -> String {
    let told = parts.iter().filter(|(_, part)| part.is_some());
    told.map(|(name, part)| format!("   {name} {}", size(*part)))
        .collect()
}

fn clients(clients: &Clients) -> String {
    let (now, limit) = (known(clients.now), known(clients.limit));
    let mut line = format!(
        "clients  {now} of {limit}   {} new/s   {} refused",
        rate(clients.opened),
        known(clients.refused)
    );
    if let Some(closed) = clients.slow_readers_closed.filter(|closed| *closed > 0) {
        line += &format!("   {} slow readers closed", count(closed));
    }
    for (state, number) in &clients.states {
        line += &format!("   {number} {state}");
    }
    line
}

/// A column: its heading, its width (below 0 for one that starts at the left), and what stands in
/// it.
type Column<T> = (&'static str, isize, fn(&T) -> String);

fn table<T>(columns: &[&Column<T>], rows: &[T]) -> (String, Vec<String>) {
    let line = |cell: &dyn Fn(&Column<T>) -> String| {
        let cells = columns.iter().map(|column| {
            let (text, width) = (cell(column), column.1.unsigned_abs());
            match column.1 < 0 {
                true => format!("{text:<width$}"),
                false => format!("{text:>width$}"),
            }
        });
        cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    };
    let heading = line(&|column| column.0.to_owned());
    let lines = rows.iter().map(|row| line(&|column| (column.2)(row)));
    (heading, lines.collect())
}

const WORKER_COLUMNS: [Column<Worker>; 9] = [
    ("WORKER", -8, |worker| worker.name.clone()),
    ("ROLE", -14, role),
    ("CLIENTS", 7, |worker| known(worker.connections)),
    ("REQUESTS/s", 10, |worker| rate(worker.requests)),
    ("QUEUE", 6, |worker| known(worker.queue)),
    ("us/TURN", 8, |worker| tenths(worker.cpu_us_per_turn)),
    ("p99", 7, |worker| edge(worker.cpu_us_p99)),
    ("LONGEST", 8, |worker| known(worker.cpu_us_most)),
    ("TURNS/s", 8, |worker| rate(worker.turns)),
];

/// Columns of servers that count them for each worker.
const WORKER_MOVES: [Column<Worker>; 3] = [
    ("HANDED/s", 9, |worker| rate(worker.hand_offs)),
    ("DELEG/s", 9, |worker| rate(worker.delegations)),
    ("COMPACT/s", 9, |worker| rate(worker.compacted)),
];

fn workers(view: &View) -> Panel {
    let workers = &view.workers;
    let told = |tells: fn(&Worker) -> Option<f64>| workers.iter().any(|w| tells(w).is_some());
    let mut columns: Vec<&Column<Worker>> = WORKER_COLUMNS.iter().collect();
    if !told(|worker| worker.turns) {
        columns.pop();
    }
    if told(|worker| worker.hand_offs) || told(|worker| worker.delegations) {
        columns.extend(&WORKER_MOVES);
    }
    let (heading, lines) = table(&columns, workers);
    Panel {
        heading,
        least: lines.len().min(3),
        lines,
    }
}

fn role(worker: &Worker) -> String {
    let from = || size(worker.from_bytes);
    match worker.role {
        Role::Any => "any size".to_owned(),
        Role::Small => "small".to_owned(),
        Role::Large => format!("from {}", from()),
        Role::Standby => format!("({})", from()),
        Role::Idle => "idle".to_owned(),
    }
}

fn edge(edge: Option<Edge>) -> String {
    edge.map_or("-".to_owned(), |edge| edge.to_string())
}

fn plan(plan: &Plan, view: &View, history: &History, width: usize) -> Panel {
    let cores = format!("{}+{}", known(plan.small_cores), known(plan.large_cores));
    let standby = if plan.standby { ", standby" } else { "" };
    let heading = format!(
        "PLAN {}   small below {}   cores {cores}{standby}   change {}",
        plan.policy,
        size(plan.threshold),
        known(plan.regime)
    );
    let mut lines = vec![
        thresholds(history, width),
        rates(history, width),
        moves(view.moves.as_ref()),
    ];
    let least = lines.len() + 1;
    let now = view.uptime_seconds;
    lines.extend(history.changes().map(|change| past(change, now)));
    Panel {
        heading,
        lines,
        least,
    }
}

/// What stands around a sparkline.
const SPARKLINE_ROOM: usize = 40;

fn thresholds(history: &History, width: usize) -> String {
    let room = width.saturating_sub(SPARKLINE_ROOM).max(1);
    let points = history.points(room);
    let values: Vec<Option<f64>> = points
        .map(|point| point.threshold.map(|threshold| threshold as f64))
        .collect();
    let known = || values.iter().flatten().copied();
    let (least, most) = (known().reduce(f64::min), known().reduce(f64::max));
    let line = sparkline(&values, false);
    match (least, most) {
        (Some(least), Some(most)) if least < most => {
            format!(
                "threshold {line:>room$} {} to {}",
                bytes(least),
                bytes(most)
            )
        }
        (Some(same), _) => format!("threshold {line:>room$} {} throughout", bytes(same)),
        _ => "threshold -".to_owned(),
    }
}

fn rates(history: &History, width: usize) -> String {
    let room = width.saturating_sub(SPARKLINE_ROOM).max(1);
    let values: Vec<Option<f64>> = history.points(room).map(|point| point.requests).collect();
    let most = values.iter().flatten().copied().reduce(f64::max);
    let line = sparkline(&values, true);
    format!("requests  {line:>room$} at most {}/s", rate(most))
}

fn moves(moves: Option<&Moves>) -> String {
    let Some(moves) = moves else {
        return String::new();
    };
    // The first two should be 0; they come first, so that they are seen on a narrow screen too.
    format!(
        "behind large {}   busy {}   handed off {}/s   delegated {}/s   compacted {}/s",
        known(moves.small_behind_large),
        known(moves.large_refused),
        rate(moves.hand_offs),
        rate(moves.delegations),
        rate(moves.compacted)
    )
}

fn past(change: &Change, now_seconds: u64) -> String {
    let ago = age(now_seconds.saturating_sub(change.at_seconds));
    let mut words = change.what.split(' ');
    let mut next = || words.next().unwrap_or("-");
    let (policy, threshold, cores) = (next(), next(), next());
    let threshold = threshold.parse().map_or(threshold.to_owned(), count);
    format!("{ago} ago   {policy}   threshold {threshold}   cores {cores}")
}

const STAGE_COLUMNS: [Column<StageRow>; 6] = [
    ("STAGE", -31, |stage| stage.name.clone()),
    ("SEEN/s", 10, |stage| rate(stage.per_second)),
    ("p50", 8, |stage| edge(stage.quantiles.p50)),
    ("p99", 8, |stage| edge(stage.quantiles.p99)),
    ("p99.9", 8, |stage| edge(stage.quantiles.p999)),
    ("MOST", 8, |stage| edge(stage.quantiles.most)),
];

fn stages(rows: &[StageRow]) -> Panel {
    let columns: Vec<&Column<StageRow>> = STAGE_COLUMNS.iter().collect();
    let (heading, lines) = table(&columns, rows);
    Panel {
        heading,
        least: lines.len().min(STAGES_LEAST),
        lines,
    }
}

/// Lines of the stages that matter.
const STAGES_LEAST: usize = 7;

/// What the server itself sampled; the last on the screen, so what there is room for.
fn sampled(keys: &[Sampled]) -> Panel {
    let keys = keys.iter();
    let line = |key: &Sampled| {
        let (share, writes) = (percent(Some(key.share)), percent(key.writes));
        format!("{share:>8} {writes:>8} {}", key.key)
    };
    let lines = keys.map(line);
    Panel {
        heading: "HOTTEST KEYS   sample of 1 in 64 requests: share, its writes, key".to_owned(),
        lines: lines.collect(),
        least: 1,
    }
}

/// Lines of the hottest keys that matter.
const KEYS_LEAST: usize = 4;

fn keys(looked: &Result<HotKeys, String>) -> Panel {
    let (heading, lines) = match looked {
        Err(reason) => (String::new(), vec![reason.clone()]),
        Ok(hot) => {
            let share = |seen: u64| percent(Some(seen as f64 / hot.seen.max(1) as f64));
            let keys = hot.keys.iter();
            let lines = keys.map(|key| format!("{:>8} {}", share(key.seen), key.key));
            let (seen, skipped) = (count(hot.seen), count(hot.skipped));
            (
                format!("{seen} requests seen, {skipped} not"),
                lines.collect(),
            )
        }
    };
    Panel {
        heading: format!("HOTTEST KEYS   {heading}"),
        least: lines.len().min(KEYS_LEAST),
        lines,
    }
}
