//! Size-aware sharding: small and large requests never share a core, so that a small one never
//! waits behind a large one.
//!
//! Minos (Didona, Zwaenepoel, "Size-aware Sharding For Improving Tail Latencies in In-memory
//! Key-value Stores", NSDI 2019, section 3). Every core counts the sizes it serves
//! ([`SizeHistogram`]); once an epoch [`SizeControl`] sets the threshold between small and large,
//! divides the cores between the two by cost, and divides the large sizes among the large cores by
//! ranges of equal cost. The result is a [`SizePlan`], which is immutable and published whole.
//!
//! ```text
//!            +-> small core: own RX queue, its share of the large cores' RX queues
//! clients ---+        | size below the threshold: served here
//!  (any RX)           | else: ring of the large core of that size
//!                     +-> large core: its ring, one at a time
//! ```

mod control;
mod histogram;
mod plan;

pub use control::{ControlConfig, ControlInput, CostRule, SizeControl, ThresholdRule};
pub use histogram::{CLASSES_MAX, SizeClasses, SizeHistogram};
pub use plan::{Route, SizePlan};
