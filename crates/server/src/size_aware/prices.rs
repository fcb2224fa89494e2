//! The costs of serving and of a hand-off that the control loop assumes.

/// What serving a request for a value of so many bytes costs a worker, in nanoseconds.
pub(crate) const fn serve_ns(bytes: usize) -> u64 {
    REQUEST_NS + bytes as u64 * KILOBYTE_NS / 1024
}

/// A request that is alone in its turn: the prices are processor time over loopback, on two virtual
/// cores (Xeon, kernel 6.18). Plans depend on their ratios alone.
pub(crate) const REQUEST_NS: u64 = 8_000;

pub(crate) const KILOBYTE_NS: u64 = 250;

/// What one looked-at request stands for when one turn in so many is looked at.
pub(crate) const SAMPLED_EVERY: u64 = 16;
