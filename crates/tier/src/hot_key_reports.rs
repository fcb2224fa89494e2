//! What a back end counts of its keys, and tells its cache node: the hottest once a period, and
//! keys that burst at once (SW-45 to SW-59).

use curtail_codec::tiered::TieredOpcode;
use curtail_consistency::tiered::LoadThreshold;
use curtail_hotkeys::{Access, Parameters, Tracker};
use curtail_types::{Instant, Key, KeyHash, LoadReport, LoadScale, RouteHash};

use crate::{node_loop::NodeError, report_encoding};

/// How the keys that a cache node holds follow the load: what back ends send without being asked
/// (SW-45, SW-58, SW-68).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UpdateMode {
    /// Reports of the hottest keys once a period, and a key at once that bursts (the paper's).
    #[default]
    Both,
    /// Reports only.
    Periodic,
    /// Bursts only.
    Instant,
    /// Every key that is read, at once, as caches do that admit what they missed.
    Traditional,
}

impl UpdateMode {
    pub(crate) const fn sends_reports(self) -> bool {
        matches!(self, Self::Both | Self::Periodic)
    }

    const fn sends_bursts(self) -> bool {
        matches!(self, Self::Both | Self::Instant)
    }
}

/// The counters of a back end's keys.
pub(crate) struct HotKeyReports {
    pub(crate) tracker: Tracker,
    gate: LoadThreshold,
    pub(crate) scale: LoadScale,
    pub(crate) reported: usize,
    pub(crate) update: UpdateMode,
    report: LoadReport,
    pub(crate) value: Vec<u8>,
    /// Requests of the last whole segment, and of this one.
    last: u64,
    current: u64,
}

impl HotKeyReports {
    pub(crate) fn new(
        scale: LoadScale,
        (reported, update): (usize, UpdateMode),
        limit_per_s: u64,
        now: Instant,
    ) -> Result<Self, NodeError> {
        let parameters = Parameters {
            scale,
            listed: u32::try_from(2 * reported.max(1)).unwrap_or(LISTED_MAX),
            ..Parameters::switchkv()
        };
        let checked = parameters.check();
        let checked = checked.map_err(|error| NodeError::Refused(error.to_string()))?;
        let limit = match limit_per_s {
            0 => UNLIMITED_PER_S,
            limit => limit,
        };
        Ok(Self {
            tracker: Tracker::new(checked, now),
            gate: LoadThreshold::new(limit),
            scale,
            reported,
            update,
            report: LoadReport::empty(scale),
            value: Vec::new(),
            last: 0,
            current: 0,
        })
    }

    /// Counts a request; how often its key is in the log if it bursts while the node is loaded.
    pub(crate) fn see(
        &mut self,
        route: RouteHash,
        key: Key<'_>,
        opcode: TieredOpcode,
        now: Instant,
    ) -> Option<u32> {
        self.gate.serve(now, 1);
        self.current += 1;
        let access = match opcode {
            TieredOpcode::Get => Access::Read,
            _ => Access::Write,
        };
        let burst = self.tracker.see(KeyHash(route.0), key, access);
        let is_sent =
            self.update.sends_bursts() && opcode == TieredOpcode::Get && self.gate.is_loaded();
        burst.filter(|_| is_sent)
    }

    pub(crate) fn suppress(&mut self, key: RouteHash, now: Instant, for_ns: u64) {
        let until = now.later(for_ns);
        self.tracker.bursts_mut().suppress(KeyHash(key.0), until);
    }

    /// The load of a key that bursts is what it is among the latest requests.
    pub(crate) fn load_of_burst(&self, count: u32) -> u32 {
        let logged = u64::from(Parameters::switchkv().logged);
        let requests = self.last.max(self.current);
        u32::try_from(u64::from(count) * requests / logged)
            .unwrap_or(u32::MAX)
            .max(1)
    }

    pub(crate) fn end_segment(&mut self, now: Instant) {
        self.tracker.end_segment(now);
        self.tracker.report_into(&mut self.report);
        let hottest = self.report.keys.iter().take(self.reported);
        let hottest: Vec<_> = hottest.copied().collect();
        report_encoding::encode(self.scale, &hottest, &mut self.value);
        (self.last, self.current) = (self.current, 0);
    }

    /// In 255ths: whether the node is loaded is all that it knows for certain.
    pub(crate) const fn load(&self) -> u8 {
        match self.gate.is_loaded() {
            true => u8::MAX,
            false => 0,
        }
    }
}

/// What a back end without a limit is taken to serve (the paper's).
const UNLIMITED_PER_S: u64 = 100_000;
const LISTED_MAX: u32 = 1024;
