//! What a request costs in a whole system: service times by size, contention, hand-offs, frames.
//!
//! The numbers are a file in TOML. The one that is built in, `costs.toml`, was measured on our own
//! server and store by `cargo bench -p curtail-server --bench costs`, which prints such a file;
//! another can be given on the command line. The models of whole systems draw on it; those of the
//! papers' queueing models ([`crate::C4Model`] and [`crate::MinosModel`] as they are) do not.

use std::{fmt, sync::LazyLock};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use toml::Value;

/// All costs, in nanoseconds of one core.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FullCosts {
    /// Around the store.
    pub request: RequestCosts,
    /// Reading an item in the store.
    pub get: SizeCosts,
    /// Writing an item in the store.
    pub set: SizeCosts,
    /// What other cores at the same bucket add.
    pub contended: ContendedCosts,
    /// A write that is left to the worker that holds its partition: its own worker's part and the
    /// holder's, without the store.
    pub delegated_write: OneCost,
    /// A connection or request that goes to another core over a ring: both cores' parts.
    pub hand_off: OneCost,
    /// What a dispatcher decides for a request: when it comes, and when it is done.
    pub decision: OneCost,
    /// A write that waits for the last one to its key.
    pub put_aside: OneCost,
    /// What the write that stands for a whole window costs beyond an ordinary one.
    pub apply: OneCost,
    /// The network's stack.
    pub network: NetworkCosts,
}

/// A small request without store and network: decoded, decided, answered.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RequestCosts {
    /// Requests in the turn in which one costs `base_ns`.
    pub batch: u32,
    /// In a turn of `batch` requests.
    pub base_ns: f64,
    /// Alone in its turn.
    pub alone_ns: f64,
}

/// A cost that grows with the size of the value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SizeCosts {
    /// Bytes of the value, and nanoseconds; bytes ascend.
    pub points: Vec<(f64, f64)>,
}

/// What it adds that other cores touch the same bucket at the same time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ContendedCosts {
    /// To a read: how many others write there, and nanoseconds.
    pub read: Vec<(f64, f64)>,
    /// To a write: how many others read or write there, and nanoseconds.
    pub write: Vec<(f64, f64)>,
}

/// A cost of one number.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OneCost {
    /// Nanoseconds.
    pub ns: f64,
}

/// The network's stack.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkCosts {
    /// One call that receives or sends, with one small frame; a turn's requests share it.
    pub call_ns: f64,
    /// Every further frame of a long value, its copying included.
    pub frame_ns: f64,
    /// Bytes that a frame carries.
    pub mtu_bytes: u32,
}

/// Why a file of costs is none.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CostsError {
    /// It is not the TOML that is expected.
    Syntax(String),
    /// A number that no cost can be, by its name.
    Number(String),
}

impl FullCosts {
    /// Those that are built in: measured on our own store.
    pub fn measured() -> &'static Self {
        static COSTS: LazyLock<FullCosts> =
            LazyLock::new(|| built_in(FullCosts::parse(include_str!("../costs.toml"))));
        &COSTS
    }

    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Self, CostsError> {
        parse(text, Self::check)
    }

    fn check(&self) -> Result<(), CostsError> {
        check_times(self)?;
        let curves = [
            ("get", &self.get.points),
            ("set", &self.set.points),
            ("contended.read", &self.contended.read),
            ("contended.write", &self.contended.write),
        ];
        for (name, points) in curves {
            check(name, points.first().is_some_and(|(x, _)| *x > 0.0))?;
        }
        check("request.batch", self.request.batch > 0)?;
        check("network.mtu_bytes", self.network.mtu_bytes > 0)
    }

    /// What a request takes of a core that balances: the decisions, the request's way into a
    /// worker's ring, and the report's way out of one. A worker has the other ends of both rings,
    /// so that each pays one whole hand-off.
    pub fn dispatch_ns(&self) -> f64 {
        self.hand_off.ns + self.decision.ns
    }

    /// What a request costs around the store in a turn of `batch` requests from one connection:
    /// its share of one receive and one send, the frames of its value beyond the first, and what
    /// is done for it alone.
    pub fn around_ns(&self, batch: u32, value_bytes: u64) -> f64 {
        let calls = 2.0 * self.network.call_ns / f64::from(batch.max(1));
        let frames = self.network.frames(value_bytes) - 1;
        calls + frames as f64 * self.network.frame_ns + self.request.ns(batch)
    }
}

impl RequestCosts {
    /// In a turn of `batch` requests: a part of its own, and a share of what a turn costs.
    pub fn ns(&self, batch: u32) -> f64 {
        let measured = f64::from(self.batch);
        if measured <= 1.0 {
            return self.base_ns;
        }
        let turn = (self.alone_ns - self.base_ns).max(0.0) * measured / (measured - 1.0);
        let own = self.alone_ns.max(self.base_ns) - turn;
        own + turn / f64::from(batch.max(1))
    }
}

impl SizeCosts {
    /// Nanoseconds for a value of so many bytes: straight lines between the points, the first
    /// point's cost below it, the last line's slope above the last.
    #[inline]
    pub fn ns(&self, value_bytes: u64) -> f64 {
        between(&self.points, value_bytes)
    }
}

impl ContendedCosts {
    /// What a read gains by `others` cores that write the bucket meanwhile.
    #[inline]
    pub fn read_ns(&self, others: f64) -> f64 {
        along(&self.read, others)
    }

    /// What a write gains by `others` cores that read or write the bucket meanwhile.
    #[inline]
    pub fn write_ns(&self, others: f64) -> f64 {
        along(&self.write, others)
    }
}

impl NetworkCosts {
    /// Frames for so many bytes; at least one.
    #[inline]
    pub fn frames(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.mtu_bytes)).max(1)
    }
}

/// A file of costs, read and checked.
pub(crate) fn parse<T: DeserializeOwned>(
    text: &str,
    check: impl Fn(&T) -> Result<(), CostsError>,
) -> Result<T, CostsError> {
    let costs = toml::from_str(text).map_err(|error| CostsError::Syntax(error.to_string()))?;
    check(&costs).map(|()| costs)
}

/// What a file of ours says, which is right.
pub(crate) fn built_in<T>(parsed: Result<T, CostsError>) -> T {
    parsed.unwrap_or_else(|error| unreachable!("a built-in file: {error}"))
}

/// Whether the cost of this name is right.
pub(crate) fn check(name: &str, is_right: bool) -> Result<(), CostsError> {
    let wrong = || CostsError::Number(name.into());
    is_right.then_some(()).ok_or_else(wrong)
}

/// Whether every number is a time (or another that is in a time's range), and the points of every
/// curve ascend.
pub(crate) fn check_times(costs: &impl Serialize) -> Result<(), CostsError> {
    let syntax = |error: toml::ser::Error| CostsError::Syntax(error.to_string());
    check_value("", &Value::try_from(costs).map_err(syntax)?)
}

fn check_value(name: &str, value: &Value) -> Result<(), CostsError> {
    let is_time = |ns: f64| (0.0..=TIME_NS_MAX).contains(&ns);
    match value {
        Value::Integer(ns) => check(name, is_time(*ns as f64)),
        Value::Float(ns) => check(name, is_time(*ns)),
        Value::Array(points) => {
            let x = |point: &Value| point.get(0).and_then(Value::as_float);
            let ascend = |pair: &[Value]| x(&pair[0]) < x(&pair[1]) || x(&pair[0]).is_none();
            check(name, points.windows(2).all(ascend))?;
            points.iter().try_for_each(|point| check_value(name, point))
        }
        Value::Table(own) => own.iter().try_for_each(|(key, value)| {
            let path = format!("{name}.{key}");
            check_value(path.trim_start_matches('.'), value)
        }),
        _ => Ok(()),
    }
}

/// Straight lines between the points, the first point's cost below it, the last line's slope above
/// the last.
#[inline]
pub(crate) fn between(points: &[(f64, f64)], value_bytes: u64) -> f64 {
    let bytes = value_bytes as f64;
    let above = points.partition_point(|(x, _)| *x <= bytes);
    match (above, points.len()) {
        (0, _) | (_, 1) => points.first().map_or(0.0, |(_, ns)| *ns),
        (above, length) => {
            let high = above.min(length - 1);
            let (x0, y0) = points[high - 1];
            let (x1, y1) = points[high];
            y0 + (bytes - x0) * (y1 - y0) / (x1 - x0)
        }
    }
}

/// Straight lines from the origin through the points; beyond the last, the line through the origin
/// and the last goes on.
fn along(points: &[(f64, f64)], x: f64) -> f64 {
    let mut before = (0.0, 0.0);
    for point in points {
        if x <= point.0 {
            return before.1 + (x - before.0) * (point.1 - before.1) / (point.0 - before.0);
        }
        before = *point;
    }
    before.1 * x / before.0
}

impl fmt::Display for CostsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(reason) => write!(f, "these are no costs: {reason}"),
            Self::Number(name) => write!(
                f,
                "the costs of `{name}`: a time is 0 to {TIME_NS_MAX} ns, points ascend"
            ),
        }
    }
}

impl std::error::Error for CostsError {}

/// A second.
const TIME_NS_MAX: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: &str = include_str!("../costs.toml");

    #[test]
    fn the_built_in_file_is_whole() {
        let costs = FullCosts::measured();
        let (first, last) = (costs.get.points.first(), costs.get.points.last());
        assert_eq!(first.map(|point| point.0), Some(8.0));
        assert_eq!(last.map(|point| point.0), Some(1_048_576.0));
        assert!(costs.set.ns(8) < costs.set.ns(1 << 20));
    }

    #[test]
    fn lines_go_through_their_points_and_on() {
        let costs = SizeCosts {
            points: vec![(8.0, 50.0), (108.0, 150.0), (208.0, 350.0)],
        };
        let found = [1, 8, 58, 108, 158, 208, 308].map(|bytes| costs.ns(bytes));
        assert_eq!(found, [50.0, 50.0, 100.0, 150.0, 250.0, 350.0, 550.0]);
        let contended = ContendedCosts {
            read: vec![(1.0, 40.0)],
            write: vec![(1.0, 40.0), (3.0, 60.0)],
        };
        assert_eq!(contended.read_ns(0.5), 20.0);
        assert_eq!(contended.read_ns(8.0), 320.0);
        assert_eq!(contended.write_ns(2.0), 50.0);
        assert_eq!(contended.write_ns(6.0), 120.0);
        let network = NetworkCosts {
            call_ns: 9.0,
            frame_ns: 1.0,
            mtu_bytes: 1_500,
        };
        assert_eq!(
            [0, 1_500, 1_501].map(|bytes| network.frames(bytes)),
            [1, 1, 2]
        );
    }

    #[test]
    fn turns_share_what_a_turn_costs() {
        let mut costs = FullCosts::measured().clone();
        costs.request = RequestCosts {
            batch: 16,
            base_ns: 40.0,
            alone_ns: 100.0,
        };
        costs.network = NetworkCosts {
            call_ns: 800.0,
            frame_ns: 150.0,
            mtu_bytes: 1_000,
        };
        assert_eq!([1, 16].map(|batch| costs.request.ns(batch)), [100.0, 40.0]);
        assert_eq!(costs.around_ns(1, 10), 1_700.0);
        assert_eq!(costs.around_ns(16, 10), 140.0);
        assert_eq!(costs.around_ns(16, 2_001), 440.0);
    }

    /// Goal: nonsense is told. Method: the built-in file with one line changed.
    #[test]
    fn what_is_no_cost_is_refused() {
        let with = |from: &str, to: &str| {
            assert!(MEASURED.contains(from), "{from}");
            FullCosts::parse(&MEASURED.replacen(from, to, 1))
        };
        for (from, to) in [
            ("batch = 16", "batch = 0"),
            ("[[8, ", "[[-8, "),
            ("[[8, ", "[[8, 1], [8, "),
            ("[hand_off]\nns = ", "[hand_off]\nns = -"),
            ("mtu_bytes = 1448", "mtu_bytes = 0"),
        ] {
            assert!(matches!(with(from, to), Err(CostsError::Number(_))), "{to}");
        }
        assert!(matches!(
            with("batch = 16", "butch = 16"),
            Err(CostsError::Syntax(_))
        ));
    }
}
