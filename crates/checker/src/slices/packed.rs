//! A state that waits to be expanded; parts that states share are stored once.

use std::collections::BTreeMap;

use curtail_consistency::slice_view::SliceView;
use curtail_types::{Cas, NodeId};

use super::SliceFaults;
use super::world::{SliceNode, SliceParcel, SliceWorld, Stage};
use crate::interned_parts::{Parts, Shared};
use crate::judge::Linearizable;
use crate::step_description::StepDescription;
use crate::witnesses::StepWitnesses;

/// A state in little memory.
#[derive(Debug)]
pub struct PackedSlices {
    nodes: Box<[Shared<SliceNode>]>,
    parcels: Shared<Vec<SliceParcel>>,
    operations: Shared<Vec<Stage>>,
    judges: Shared<Vec<Linearizable>>,
    view: Shared<SliceView>,
    sessions: Option<BTreeMap<(NodeId, usize), Cas>>,
    executed: u16,
    left: SliceFaults,
    wants: u8,
}

/// What packed states share.
#[derive(Debug, Default)]
pub struct SlicePool {
    nodes: Parts<SliceNode>,
    parcels: Parts<Vec<SliceParcel>>,
    operations: Parts<Vec<Stage>>,
    judges: Parts<Vec<Linearizable>>,
    views: Parts<SliceView>,
}

impl SlicePool {
    pub(super) fn sweep(&self) {
        self.nodes.sweep();
        self.parcels.sweep();
        self.operations.sweep();
        self.judges.sweep();
        self.views.sweep();
    }
}

impl PackedSlices {
    pub(super) fn new(world: SliceWorld, pool: &SlicePool) -> Self {
        let nodes = world.nodes.iter();
        Self {
            nodes: nodes.map(|node| pool.nodes.shared(node)).collect(),
            parcels: pool.parcels.shared(&Shared::new(world.parcels)),
            operations: pool.operations.shared(&Shared::new(world.operations)),
            judges: pool.judges.shared(&world.judges),
            view: pool.views.shared(&world.view),
            sessions: world.sessions,
            executed: world.executed,
            left: world.left,
            wants: world.wants,
        }
    }

    pub(super) fn world(&self) -> SliceWorld {
        SliceWorld {
            nodes: self.nodes.to_vec(),
            parcels: self.parcels.to_vec(),
            operations: self.operations.to_vec(),
            executed: self.executed,
            left: self.left,
            judges: self.judges.clone(),
            sessions: self.sessions.clone(),
            view: self.view.clone(),
            wants: self.wants,
            seen: StepWitnesses::default(),
            notes: StepDescription::default(),
            fault: None,
        }
    }
}
