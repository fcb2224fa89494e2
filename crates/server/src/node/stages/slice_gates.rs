//! Which requests of a slice may run beside its machine, as every worker sees it.

use curtail_consistency::{
    replica::Gate,
    slice_view::{SLICES, SliceId},
};
use curtail_dispatch::{GateWords, SeenGate};

/// The gates of all slices of a node.
#[derive(Debug)]
pub(crate) struct Gates(GateWords);

impl Gates {
    pub(crate) fn new() -> Self {
        Self(GateWords::new(usize::from(SLICES)))
    }

    /// What a request that comes now may do.
    #[inline]
    pub(crate) fn look(&self, slice: SliceId) -> (Gate, SeenGate) {
        let seen = self.0.look(slice.0);
        let gate = match seen.state() {
            1 => Gate::Reads,
            2 => Gate::Open,
            _ => Gate::Closed,
        };
        (gate, seen)
    }

    /// Whether the gate has not changed since.
    #[inline]
    pub(crate) fn is_as(&self, slice: SliceId, seen: SeenGate) -> bool {
        self.0.is_as(slice.0, seen)
    }

    /// Only the worker that owns the slice's machine calls this. Returns the gate before.
    pub(in crate::node) fn set(&self, slice: SliceId, gate: Gate) -> Gate {
        let (before, _) = self.look(slice);
        let state = match gate {
            Gate::Closed => 0,
            Gate::Reads => 1,
            Gate::Open => 2,
        };
        self.0.set(slice.0, state);
        before
    }
}
