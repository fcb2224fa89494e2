//! exploratory
mod arc;
mod list;
mod optimum;
mod policy;
mod recency;
mod s3_fifo;
mod segmented;
mod tiny_lfu;
mod trace;
use policy::{Policy, replay};
use recency::{OneQueue, Rule};
use segmented::*;
use std::path::PathBuf;
use trace::Trace;

fn main() {
    let dir = PathBuf::from(
        std::env::args()
            .skip_while(|a| a != "--traces")
            .nth(1)
            .unwrap(),
    );
    let which = std::env::args()
        .skip_while(|a| a != "--which")
        .nth(1)
        .unwrap_or("base".into());
    let oltp = Trace::arc("OLTP", &dir.join("OLTP.lis.zst")).unwrap();
    let p2 = Trace::arc("P2", &dir.join("P2.lis.zst")).unwrap();
    let cpb = Trace::cloud_physics("CPbytes", &dir.join("cloudPhysicsIO.csv")).unwrap();
    let cpo = cpb.of_equal_sizes("CPobj");
    let traces = [oltp, p2, cpo, cpb];
    for t in &traces {
        eprintln!(
            "{} requests {} objects {} footprint {}",
            t.name,
            t.requests.len(),
            t.sizes.len(),
            t.footprint()
        );
    }
    let mut rows: Vec<(
        String,
        Box<dyn for<'t> Fn(&'t Trace, u64) -> Box<dyn Policy + 't>>,
    )> = vec![];
    macro_rules! row {
        ($n:expr, $t:ident, $c:ident, $e:expr) => {
            rows.push(($n.to_string(), Box::new(move |$t, $c| Box::new($e))))
        };
    }
    if which == "base" {
        row!("FIFO", t, c, OneQueue::new(t, c, Rule::Fifo));
        row!("LRU", t, c, OneQueue::new(t, c, Rule::Lru));
        row!("CLOCK", t, c, OneQueue::new(t, c, Rule::Clock));
        row!("SIEVE", t, c, OneQueue::new(t, c, Rule::Sieve));
        row!("S3-FIFO", t, c, s3_fifo::S3Fifo::new(t, c));
        row!("ARC", t, c, arc::Arc::new(t, c));
        row!("W-TinyLFU", t, c, tiny_lfu::TinyLfu::new(t, c));
        row!("OPT", t, c, optimum::Optimum::new(t, c));
    }
    for (n, r) in recipes(&which) {
        row!(n, t, c, Segmented::new(t, c, r));
    }
    let best = [
        46.47, 62.11, 67.78, 73.73, 12.76, 37.20, 51.99, 75.40, 17.08, 19.74, 24.75, 34.74, 17.71,
        19.69, 26.44, 32.58,
    ];
    println!(
        "{:44} {:>7} {}",
        "",
        "mean",
        traces
            .iter()
            .map(|t| format!("{:>28}", t.name))
            .collect::<String>()
    );
    for (name, make) in &rows {
        let mut line = String::new();
        let mut sum = 0.0;
        let mut wa: f64 = 0.0;
        let mut n = 0.0;
        let mut worst: f64 = 9.0;
        let mut good = 0;
        for t in &traces {
            for pct in [1, 5, 10, 25] {
                let c = t.footprint() * pct / 100;
                let mut p = make(t, c);
                let o = replay(t, &mut *p);
                let d = o.hit_ratio * 100.0 - best[n as usize];
                worst = worst.min(d);
                if d > -0.1 {
                    good += 1;
                }
                sum += o.hit_ratio;
                n += 1.0;
                wa = wa.max(o.write_amplification);
                line += &format!(" {:6.2}", o.hit_ratio * 100.0);
            }
            line += " |";
        }
        println!(
            "{name:44} {:7.3} {line} wa {wa:.2} worst {worst:.2} good {good}",
            sum / n * 100.0
        );
    }
}
fn recipes(which: &str) -> Vec<(String, Recipe)> {
    let d = Recipe::default();
    let mut v = vec![];
    macro_rules! r { ($($f:ident : $e:expr),*) => {{ let mut n = String::new(); $( n += &format!("{}={:?} ", stringify!($f), $e); )* v.push((n, Recipe { $($f: $e,)* ..d })); }} }
    match which {
        "base" => {
            r!();
            r!(promote_at: 1);
            r!(promote_at: 1, mark_max: 7);
            r!(promote_at: 1, decay: Decay::Halve);
            r!(promote_at: 1, decay: Decay::Reset);
            r!(small: 0.0);
            r!(small: 0.0, decay: Decay::Reset);
            r!(small: 0.0, mark_max: 1, in_place: true);
            r!(small: 0.0, mark_max: 3, in_place: true);
            for small in [0.05, 0.2, 0.3, 0.5] {
                r!(small: small, promote_at: 1);
            }
            for s in [16, 64, 1024] {
                r!(segments: s, promote_at: 1);
            }
            for rate in [0.25, 1.0, 4.0] {
                r!(promote_at: 1, ghost_main: 1.0, adapt: Adapt::Ghosts { rate: rate });
            }
            for rate in [0.25, 1.0, 4.0] {
                r!(promote_at: 2, ghost_main: 1.0, adapt: Adapt::Ghosts { rate: rate });
            }
        }
        "a" => {
            for p in [1, 2] {
                r!(promote_at: p);
                for g in [0.5, 1.5, 2.0, 4.0] {
                    r!(promote_at: p, ghost: g);
                }
                for g in [0.5, 1.0] {
                    r!(promote_at: p, ghost_main: g);
                }
                for g in [1, 2] {
                    r!(promote_at: p, ghost_mark: g);
                }
                for g in [-1, 1, 2] {
                    r!(promote_at: p, promote_mark: g);
                }
                for g in [0.02, 0.05] {
                    r!(promote_at: p, small: g);
                }
                for g in [0.5, 0.75, 0.9] {
                    r!(promote_at: p, keep: g);
                }
                r!(promote_at: p, in_place: true);
                r!(promote_at: p, in_place: true, mark_max: 1);
                r!(promote_at: p, mark_max: 7);
                r!(promote_at: p, mark_max: 15);
                r!(promote_at: p, mark_max: 15, decay: Decay::Halve);
                r!(promote_at: p, reserve: 0);
                r!(promote_at: p, reserve: 0, segments: 4096);
            }
            r!(lap: true);
            r!(lap: true, small: 0.05);
            r!(lap: true, small: 0.03);
        }
        _ => {}
    }
    v
}
