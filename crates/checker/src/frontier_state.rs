//! A state that waits to be expanded; parts that states share are stored once.

use std::sync::Arc;

use curtail_types::{Cas, View};

use crate::interned_parts::{Parts, Shared};
use crate::moves::Moving;
use crate::search::ByFingerprint;
use crate::world::{Counts, Judge, Node, Operation, Parcel, World};

/// A state in little memory.
#[derive(Debug)]
pub struct Packed {
    nodes: Box<[Shared<Node>]>,
    parcels: Shared<Vec<Parcel>>,
    operations: Shared<Vec<Operation>>,
    moving: Shared<Vec<Moving>>,
    judge: Shared<Judge>,
    views: Shared<Vec<View>>,
    counts: Counts,
    last: Cas,
}

/// What packed states share.
#[derive(Debug, Default)]
pub struct Pool {
    nodes: Parts<Node>,
    parcels: Parts<Vec<Parcel>>,
    operations: Parts<Vec<Operation>>,
    moving: Parts<Vec<Moving>>,
    judges: Parts<Judge>,
    views: Parts<Vec<View>>,
    /// What comes of arrivals.
    replies: ByFingerprint<Reply>,
}

/// What comes of a message's arrival: if the node does not change, what it sends.
pub(crate) type Reply = Option<Arc<[Parcel]>>;

impl Pool {
    pub(crate) fn sweep(&self) {
        self.nodes.sweep();
        self.parcels.sweep();
        self.operations.sweep();
        self.moving.sweep();
        self.judges.sweep();
        self.views.sweep();
    }

    pub(crate) fn reply(&self, delivery: u64) -> Option<Reply> {
        self.replies.get(&delivery).map(|reply| reply.clone())
    }

    pub(crate) fn note_reply(&self, delivery: u64, reply: Reply) {
        self.replies.insert(delivery, reply);
    }
}

impl Packed {
    pub(crate) fn new(world: World, pool: &Pool) -> Self {
        let nodes = world.nodes.iter();
        Self {
            nodes: nodes.map(|node| pool.nodes.shared(node)).collect(),
            parcels: pool.parcels.shared(&Shared::new(world.parcels)),
            operations: pool.operations.shared(&Shared::new(world.operations)),
            moving: pool.moving.shared(&Shared::new(world.moving)),
            judge: pool.judges.shared(&world.judge),
            views: pool.views.shared(&world.views),
            counts: world.counts,
            last: world.last,
        }
    }

    pub(crate) fn world(&self) -> World {
        World {
            nodes: self.nodes.to_vec(),
            parcels: self.parcels.to_vec(),
            operations: self.operations.to_vec(),
            moving: self.moving.to_vec(),
            judge: self.judge.clone(),
            counts: self.counts,
            views: self.views.clone(),
            last: self.last,
            witnesses: 0,
            fault: None,
        }
    }
}
