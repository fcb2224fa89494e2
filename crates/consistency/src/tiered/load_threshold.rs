//! Whether a back end is loaded enough for instant reports (SW-58, SW-59).
//!
//! A key that is frequent among few requests is no reason to move it. So the rate of the last whole
//! window counts, relative to what the back end can serve.

use curtail_types::Instant;

/// Measures the load of a back end in windows of fixed length.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LoadThreshold {
    /// Requests of a window from which on the back end is loaded.
    loaded_from: u64,
    window_ns: u64,
    /// The number of the window that is being counted.
    window: u64,
    served: u64,
    is_loaded: bool,
}

impl LoadThreshold {
    /// Windows are 10 to 100 ms.
    pub const WINDOW_NS: u64 = 20_000_000;

    /// Loaded from 80 % of a limit in requests a second.
    pub const fn new(limit_per_s: u64) -> Self {
        let whole = limit_per_s as u128 * Self::WINDOW_NS as u128 / 1_000_000_000;
        Self {
            loaded_from: (whole * 4 / 5) as u64,
            window_ns: Self::WINDOW_NS,
            window: 0,
            served: 0,
            is_loaded: false,
        }
    }

    /// Counts requests that were served.
    pub const fn serve(&mut self, now: Instant, requests: u64) {
        let window = now.ns / self.window_ns;
        if window != self.window {
            let is_next = window == self.window + 1;
            self.is_loaded = is_next && self.served >= self.loaded_from;
            (self.window, self.served) = (window, 0);
        }
        self.served += requests;
    }

    /// Whether the last whole window was loaded, or this one is already.
    pub const fn is_loaded(&self) -> bool {
        self.is_loaded || self.served >= self.loaded_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_loaded_from_four_fifths_of_its_limit() {
        let mut gate = LoadThreshold::new(100_000);
        let at = |ms: u64| Instant { ns: ms * 1_000_000 };
        gate.serve(at(0), 1_599);
        assert!(!gate.is_loaded());
        gate.serve(at(19), 1);
        assert!(gate.is_loaded());
        gate.serve(at(20), 1);
        assert!(gate.is_loaded(), "by the window before");
        gate.serve(at(40), 1);
        assert!(!gate.is_loaded());
        gate.serve(at(41), 2_000);
        gate.serve(at(90), 1);
        assert!(!gate.is_loaded(), "a pause is no load");
    }
}
