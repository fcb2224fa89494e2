//! One machine and a host that only notes what it proposes.

use alloc::{boxed::Box, vec::Vec};

use curtail_types::{Cas, Instant, NodeId, NodeSet, RouteHash, ViewNumber};

use super::*;
use crate::{
    replica::{Model, Ticket},
    slice_view::{RowChange, RowStep, SliceId, SliceView},
};

#[derive(Default)]
struct Notes {
    proposed: Vec<RowChange>,
}

impl ReplicaHost for Notes {
    fn run(&mut self, _: &ReplicaRequest, _: Cas) -> RunResult {
        RunResult::Unchanged
    }
    fn stamp(&mut self, _: Ticket, _: Cas) {}
    fn respond(&mut self, _: Ticket) {}
    fn refuse(&mut self, _: Ticket, _: ReplicaRefusal) {}
    fn forward(&mut self, _: &ReplicaRequest, _: NodeId) {}
    fn send(&mut self, _: NodeSet, _: &ReplicaMessage) {}
    fn apply(&mut self, _: NodeId, _: &SliceChange) -> bool {
        true
    }
    fn item(&mut self, _: RouteHash) -> Option<(Cas, u32)> {
        None
    }
    fn promise(&mut self, _: NodeId, _: u64, wanted: u64) -> u64 {
        wanted
    }
    fn evicts(&self) -> bool {
        false
    }
    fn evict(
        &mut self,
        _: u64,
        _: &mut dyn FnMut(SliceId) -> bool,
        _: &mut dyn FnMut(SliceId, RouteHash),
    ) {
    }
    fn scan(&mut self, _: SliceId, _: bool) {}
    fn clear(&mut self, _: SliceId, _: Option<Cas>) {}
    fn gate(&mut self, _: SliceId, _: Gate) {}
    fn propose(&mut self, change: RowChange) {
        self.proposed.push(change);
    }
    fn next_version(&mut self) -> Cas {
        Cas(1)
    }
    fn saw(&mut self, _: Cas) {}
    fn show(&mut self, _: RouteHash, _: Cas, _: CopyState, _: bool) {}
    fn read_copy(&mut self, _: &ReplicaRequest) {}
    fn write_copy(&mut self, _: &ReplicaRequest, _: Cas) -> bool {
        false
    }
    fn send_write(&mut self, _: NodeSet, _: &ReplicaMessage, _: Ticket) {}
    fn store_copy(&mut self, _: RouteHash, _: Cas) -> RunResult {
        RunResult::Unchanged
    }
    fn incoming_bytes(&self) -> u32 {
        0
    }
    fn now(&self) -> Instant {
        Instant { ns: 1 }
    }
}

/// The step that one view did not take is not proposed in the next, where the plan may want
/// another: both together would leave a copy too few. It happened while a node was added to three
/// with two replicas; a node that died soon after took slices with it.
#[test]
fn a_step_of_the_plan_is_proposed_in_its_view_only() {
    let slice = SliceId(0);
    let nodes = NodeSet::from_bits(0b111);
    let view = SliceView::first(ViewNumber(1), nodes, 1, 3);
    let mut replica = Replica::new(ReplicaConfig {
        me: NodeId(0),
        model: Model::Lin,
        retransmit_ns: 10,
        suspicion_ns: 100,
        patience_ns: 100,
        waiting_max: 10,
        window_max: 10,
        room_ask: 0,
        catch_ups_max: 1,
        stage: (0, 1),
    });
    let mut notes = Notes::default();
    replica.step(ReplicaEvent::View(&view), &mut notes);
    for node in [1, 2] {
        let tail = ReplicaMessage::Tail {
            slice,
            term: ViewNumber(1),
            keys: Box::default(),
            seen: Cas(0),
            flushed: Cas(0),
        };
        replica.step(ReplicaEvent::Message(NodeId(node), &tail), &mut notes);
    }
    assert!(replica.serves(slice));
    let exit = |node, view| RowChange {
        slice,
        view,
        step: RowStep::Exit(NodeId(node)),
    };
    let wanted = |node| ReplicaEvent::Wanted(slice, RowStep::Exit(NodeId(node)));
    replica.step(wanted(1), &mut notes);
    replica.step(wanted(1), &mut notes);
    assert_eq!(notes.proposed, [exit(1, ViewNumber(1))]);
    let next = view.renumbered(ViewNumber(2));
    replica.step(ReplicaEvent::View(&next), &mut notes);
    replica.step(wanted(2), &mut notes);
    assert_eq!(notes.proposed[1..], [exit(2, ViewNumber(2))]);
}
