//! What the averages and the reports of a tracker promise, held to plain counts.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};

use curtail_types::{KeyLoad, Load, LoadScale};
use curtail_workload::Random;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn parameters(counted: u32, listed: u32, alpha: f64) -> Parameters {
    Parameters {
        scale: LoadScale {
            alpha: (alpha * f64::from(LoadScale::ALPHA_ONE)) as u32,
            ..Parameters::switchkv().scale
        },
        counted,
        listed,
        ..Parameters::switchkv()
    }
}

fn tracker(parameters: Parameters) -> Tracker {
    Tracker::new(parameters.check().unwrap(), Instant::default())
}

fn at(second: u64) -> Instant {
    Instant {
        ns: second * SECOND_NS,
    }
}

fn see(tracker: &mut Tracker, key: u64) -> Option<u32> {
    let access = match key % 4 {
        0 => Access::Write,
        _ => Access::Read,
    };
    let name = format!("key{key}");
    let hash = KeyHash(key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    tracker.see(hash, Key::new(name.as_bytes()).unwrap(), access)
}

fn see_often(tracker: &mut Tracker, key: u64, count: u64) {
    for _ in 0..count {
        see(tracker, key);
    }
}

fn find<'a>(report: &'a LoadReport, key: &str) -> Option<&'a KeyLoad> {
    let mut keys = report.keys.iter();
    keys.find(|known| known.key.bytes() == key.as_bytes())
}

fn requests(load: Load) -> f64 {
    load.0 as f64 / Load::ONE.0 as f64
}

/// Goal: averages follow a change as equation 2.1 says: after n segments, all but (1 - alpha)^n of
/// it. Method: a key that has 1000 requests a segment, then 200, for several alphas; beside it one
/// that writes.
#[test]
fn averages_follow_a_change_in_the_expected_number_of_segments() {
    for alpha in [0.25, 0.5, 1.0] {
        let mut tracker = tracker(parameters(10, 4, alpha));
        let rest: f64 = 1.0 - alpha;
        let mut expected = 0.0;
        for second in 1..=20 {
            let count = if second <= 10 { 1000 } else { 200 };
            see_often(&mut tracker, 1, count);
            see_often(&mut tracker, 4, 100);
            tracker.end_segment(at(second));
            let report = tracker.report();
            let known = find(&report, "key1").unwrap();
            expected = alpha * count as f64 + rest * expected;
            assert!((requests(known.load) - expected).abs() < 0.01, "{second}");
            assert_eq!(known.writes, Load(0));
            let writer = find(&report, "key4").unwrap();
            assert_eq!(writer.writes, writer.load);
            let total = expected + 100.0 * (1.0 - rest.powi(second as i32));
            assert!((requests(report.total) - total).abs() < 0.01);
            if second == 10 {
                let all_but = 1000.0 * (1.0 - rest.powi(10));
                assert!((expected - all_but).abs() < 1e-6);
            }
        }
    }
}

/// A key of a stream in which shares fall about like 1 / rank, and the ranks move on with time.
fn moving(random: &mut Random, second: u64) -> u64 {
    let bound = 1 << random.below(9);
    (random.below(bound) + second * 3) % 500
}

/// The averages of the true frequencies, per key.
#[derive(Default)]
struct Truth {
    counts: BTreeMap<u64, u64>,
    loads: BTreeMap<u64, f64>,
}

impl Truth {
    fn see(&mut self, key: u64) {
        *self.counts.entry(key).or_default() += 1;
    }

    fn end_segment(&mut self, alpha: f64) {
        let counts = core::mem::take(&mut self.counts);
        for key in 0..500 {
            let count = counts.get(&key).copied().unwrap_or(0) as f64;
            let load = self.loads.entry(key).or_default();
            *load = alpha * count + (1.0 - alpha) * *load;
        }
    }

    /// Every true average is within the bounds of the report.
    fn hold(&self, report: &LoadReport, what: &str) {
        assert!(
            report
                .keys
                .is_sorted_by(|one, other| one.load >= other.load)
        );
        for (key, &truth) in &self.loads {
            let name = format!("key{key}");
            let (least, most) = match find(report, &name) {
                Some(known) => (known.load, known.load_max()),
                None => (Load(0), report.absent_max),
            };
            let (least, most) = (requests(least), requests(most));
            let is_within = least - 1e-3 <= truth && truth <= most + 1e-3;
            assert!(is_within, "{what} {name}: {least} <= {truth} <= {most}");
        }
    }
}

/// Goal: the average of a key's true frequencies is within the bounds of its report, and of a key
/// that is not reported below `absent_max`; of one tracker, and of three merged. So a merged report
/// says of the whole stream what one tracker of all of it would, within the bounds. Method: a
/// moving skewed stream over more keys than are counted, for several sizes.
#[test]
fn the_truth_is_within_the_bounds_also_when_reports_are_merged() {
    for (counted, listed) in [(20, 5), (100, 50), (100, 100), (600, 20)] {
        let made_with = parameters(counted, listed, 0.5);
        let mut parts: Vec<_> = (0..3).map(|_| tracker(made_with)).collect();
        let mut whole = tracker(made_with);
        let (mut stream, mut truth) = (Random::new(3), Truth::default());
        for second in 1..=12 {
            for _ in 0..5000 {
                let key = moving(&mut stream, second);
                truth.see(key);
                see(&mut whole, key);
                see(&mut parts[stream.below(3) as usize], key);
            }
            truth.end_segment(0.5);
            let trackers = parts.iter_mut().chain(core::iter::once(&mut whole));
            trackers.for_each(|one| one.end_segment(at(second)));
            truth.hold(&whole.report(), "one");
            let reports: Vec<_> = parts.iter().map(Tracker::report).collect();
            let merged = LoadReport::merged(&reports, listed as usize);
            let merged = merged.unwrap().unwrap();
            truth.hold(&merged, "merged");
            assert!((requests(merged.total) - requests(whole.report().total)).abs() < 0.01);
        }
    }
}

/// Goal: a thread that slept forgets as one that did not, and one that is late by a little does not
/// make its keys look hotter. Method: the same requests, in segments of other lengths.
#[test]
fn a_late_end_of_a_segment_does_not_change_the_scale() {
    let mut tracker = tracker(parameters(10, 4, 0.5));
    let mut second = |ms: u64, count: u64| {
        see_often(&mut tracker, 1, count);
        let ns = tracker.deadline().ns - SECOND_NS + ms * 1_000_000;
        tracker.end_segment(Instant { ns });
        requests(tracker.report().keys[0].load)
    };
    for _ in 0..20 {
        second(1000, 100);
    }
    assert!((second(1250, 125) - 100.0).abs() < 0.1);
    assert!((second(5000, 500) - 100.0).abs() < 0.1);
    let seldom = second(4000, 4);
    assert!(
        (seldom - (100.0 / 16.0 + 15.0 / 16.0)).abs() < 0.1,
        "{seldom}"
    );
}

/// Goal: what is even looks even: no key's certain load is far above its share. Method: 10,000
/// keys, each as often, in few places.
#[test]
fn no_key_is_hot_when_all_are_alike() {
    let mut tracker = tracker(parameters(32, 16, 0.5));
    let mut stream = Random::new(1);
    for second in 1..=4 {
        for _ in 0..40_000 {
            let key = stream.below(10_000);
            see(&mut tracker, key);
        }
        tracker.end_segment(at(second));
    }
    let report = tracker.report();
    let most = report.keys[0].load;
    assert!(report.share_millionths(most) < 500, "{most:?}");
}

/// Goal: a burst is told at once, its repeats are not, and after a period they are again. Method: a
/// key that comes from nowhere, in an even stream.
#[test]
fn a_burst_is_told_at_once_and_once_a_period() {
    let mut tracker = tracker(Parameters {
        listed: 20,
        ..parameters(100, 20, 0.5)
    });
    let mut stream = Random::new(5);
    let even: Vec<_> = (0..400).map(|_| stream.below(400)).collect();
    assert!(
        even.iter()
            .all(|&key| see(&mut tracker, 1000 + key).is_none())
    );
    let told = (0..200).position(|step| {
        see(&mut tracker, 1000 + even[step]);
        see(&mut tracker, 7).is_some()
    });
    assert_eq!(told, Some(8), "the ninth request");
    let hash = KeyHash(7_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let deadline = tracker.deadline();
    tracker.bursts_mut().suppress(hash, deadline);
    assert_eq!(see(&mut tracker, 7), None);
    tracker.end_segment(deadline);
    assert!(see(&mut tracker, 7).is_some());
}

/// Goal: nothing allocates once it is made. Method: a report is written twice into the same memory;
/// two trackers that saw the same are equal, whatever they saw before they were made anew.
#[test]
fn reports_reuse_memory_and_equal_streams_make_equal_trackers() {
    let mut one = tracker(parameters(50, 20, 0.5));
    let mut other = tracker(parameters(50, 20, 0.5));
    for tracker in [&mut one, &mut other] {
        let mut stream = Random::new(8);
        for second in 1..=3 {
            for _ in 0..1000 {
                see(tracker, moving(&mut stream, second));
            }
            tracker.end_segment(at(second));
        }
    }
    assert_eq!(one, other);
    let mut report = one.report();
    let (before, capacity) = (report.clone(), report.keys.capacity());
    one.report_into(&mut report);
    assert_eq!((&report, report.keys.capacity()), (&before, capacity));
    let names: Vec<_> = report.keys.iter().map(text).collect();
    assert_eq!(names.len(), 20);
    see(&mut one, 1);
    assert_ne!(one, other);
}

fn text(known: &KeyLoad) -> String {
    String::from_utf8(known.key.bytes().to_vec()).unwrap()
}
