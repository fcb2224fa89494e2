//! The models of clusters of slices: each is the smallest that shows one property.

use curtail_consistency::replica::Model;
use curtail_consistency::slice_view::{RowStep, SliceId};
use curtail_types::{NodeId, RouteHash};

use super::{
    ANSWERED, DRAINED, ENTERED, EVICTED, EXITED, LOST, SHARED, SliceFaults, SliceSetup, TOOK_OVER,
};
use crate::requests::Kind::{self, Append, Delete, Get, Set};

/// A model with nothing that goes wrong.
const fn model(name: &'static str, nodes: u8, replicas: u8) -> SliceSetup {
    SliceSetup {
        name,
        nodes,
        slices: 1,
        replicas,
        keys: &[RouteHash(1), RouteHash(2)],
        operations: UPDATES,
        done_before: 0,
        capacity: 0,
        asked: 3,
        wants: &[],
        suspects: true,
        accepts: false,
        model: Model::Lin,
        faults: NOTHING,
        sees: ANSWERED,
        is_deep: false,
        mutant: None,
        accept_mutant: None,
    }
}

/// A key becomes hot.
const fn copies(name: &'static str, nodes: u8, replicas: u8) -> SliceSetup {
    model(name, nodes, replicas)
        .operations(FEW)
        .suspects(false)
        .faults(HEATS)
        .sees(ANSWERED | SHARED)
}

/// The same, and its copies agree on an order only.
const fn sc_copies(name: &'static str, nodes: u8, replicas: u8) -> SliceSetup {
    copies(name, nodes, replicas)
        .operations(READS)
        .model(Model::Sc)
}

/// The primary accepts writes before it executes them, and another node is to catch up.
const fn accepted(name: &'static str) -> SliceSetup {
    model(name, 2, 1)
        .operations(READS)
        .accepts(true)
        .wants(const { &[hold(1)] })
        .sees(ANSWERED | ENTERED | DRAINED)
}

const NOTHING: SliceFaults = SliceFaults::NOTHING;
const HEATS: SliceFaults = NOTHING.heats(1);

const fn hold(node: u8) -> (SliceId, RowStep) {
    (SliceId(0), RowStep::Hold(NodeId(node)))
}

const fn hand_over(node: u8) -> (SliceId, RowStep) {
    (SliceId(0), RowStep::HandOver(NodeId(node)))
}

const fn exit(node: u8) -> (SliceId, RowStep) {
    (SliceId(0), RowStep::Exit(NodeId(node)))
}

const UPDATES: &[(Kind, usize)] = &[(Set, 0), (Append, 0), (Get, 0)];
const DELETES: &[(Kind, usize)] = &[(Set, 0), (Delete, 0), (Get, 0)];
const UPDATE: &[(Kind, usize)] = &[(Append, 0), (Get, 0)];
const FEW: &[(Kind, usize)] = &[(Set, 0), (Get, 0)];
const READS: &[(Kind, usize)] = &[(Set, 0), (Get, 0), (Get, 0)];
const WRITES: &[(Kind, usize)] = &[(Set, 0), (Set, 0), (Get, 0)];
const TWO_KEYS: &[(Kind, usize)] = &[(Set, 0), (Set, 1), (Get, 0)];

/// All of them.
pub(crate) const SLICE_MODELS: &[SliceSetup] = &[
    model("slice-pair", 2, 2),
    model("slice-deletes", 2, 2).operations(DELETES),
    model("slice-deletes-three", 3, 3).operations(DELETES),
    model("slice-loss", 2, 2)
        .faults(NOTHING.losses(1).duplicates(1))
        .suspects(false),
    model("slice-crash", 3, 2)
        .operations(READS)
        .faults(NOTHING.crashes(1))
        .sees(ANSWERED | TOOK_OVER),
    model("slice-crash-three", 3, 3)
        .operations(UPDATE)
        .faults(NOTHING.crashes(1))
        .sees(ANSWERED | TOOK_OVER),
    model("slice-crash-loss", 2, 2)
        .operations(DELETES)
        .faults(NOTHING.crashes(1).losses(1))
        .sees(ANSWERED | TOOK_OVER),
    model("slice-restart", 2, 1)
        .operations(UPDATE)
        .faults(NOTHING.crashes(1).restarts(1))
        .wants(&[hold(1), hold(0)])
        .sees(ANSWERED | LOST | ENTERED),
    model("slice-catch-up", 2, 1)
        .operations(UPDATE)
        .wants(&[hold(1)])
        .sees(ANSWERED | ENTERED),
    model("slice-catch-up-loss", 2, 1)
        .operations(&[(Append, 0), (Delete, 0)])
        .wants(&[hold(1)])
        .faults(NOTHING.losses(1))
        .sees(ANSWERED | ENTERED),
    model("slice-catch-up-crash", 2, 1)
        .operations(UPDATE)
        .wants(&[hold(1)])
        .faults(NOTHING.crashes(1))
        .sees(ANSWERED | ENTERED | TOOK_OVER),
    // The primary dies as a node enters that was not shown what the other follower still has.
    model("slice-enter-crash", 3, 2)
        .operations(&[(Set, 0), (Set, 1), (Delete, 0)])
        .done_before(2)
        .asked(1)
        .wants(&[hold(2)])
        .suspects(false)
        .faults(NOTHING.crashes(1))
        .sees(ANSWERED | ENTERED | TOOK_OVER),
    model("slice-move", 2, 1)
        .operations(UPDATE)
        .wants(&[hold(1), hand_over(1), exit(0)])
        .sees(ANSWERED | ENTERED | TOOK_OVER | EXITED),
    model("slice-hand-over", 2, 2)
        .operations(READS)
        .wants(&[hand_over(1)])
        .faults(NOTHING.crashes(1))
        .sees(ANSWERED | TOOK_OVER),
    model("slice-move-crash", 3, 2)
        .operations(UPDATE)
        .asked(1)
        .wants(&[hold(2), hand_over(2)])
        .is_deep(true)
        .faults(NOTHING.crashes(1))
        .sees(ANSWERED | TOOK_OVER | ENTERED),
    // The other nodes are asked, which forward; with a read besides it has too many states.
    model("slice-move-crash-forwarded", 3, 2)
        .operations(&[(Append, 0)])
        .asked(6)
        .wants(&[hold(2), hand_over(2)])
        .is_deep(true)
        .faults(NOTHING.crashes(1))
        .sees(ANSWERED | TOOK_OVER | ENTERED),
    model("slice-hand-over-twice", 2, 2)
        .operations(&[(Set, 0), (Set, 0)])
        .asked(1)
        .wants(&[hand_over(1), hand_over(0)])
        .suspects(false)
        .faults(NOTHING.duplicates(1).losses(1))
        .sees(ANSWERED | TOOK_OVER),
    model("slice-return", 2, 2)
        .operations(&[(Set, 0), (Delete, 0)])
        .wants(&[exit(1), hold(1)])
        .sees(ANSWERED | EXITED | ENTERED),
    model("slice-full", 2, 2)
        .operations(TWO_KEYS)
        .capacity(1)
        .faults(NOTHING.evictions(1))
        .sees(ANSWERED | EVICTED),
    model("slice-full-crash", 2, 2)
        .operations(&[(Set, 0), (Set, 1)])
        .capacity(1)
        .faults(NOTHING.evictions(1).crashes(1))
        .sees(ANSWERED | EVICTED | TOOK_OVER),
    model("slice-full-catch-up", 2, 1)
        .operations(&[(Set, 0), (Set, 1)])
        .capacity(1)
        .wants(&[hold(1)]),
    model("slice-flush", 2, 2)
        .operations(WRITES)
        .faults(NOTHING.flushes(1).crashes(1))
        .sees(ANSWERED | TOOK_OVER),
    model("slice-two-crashes", 3, 3)
        .operations(UPDATE)
        .faults(NOTHING.crashes(2))
        .is_deep(true)
        .sees(ANSWERED | TOOK_OVER),
    copies("copies-pair", 2, 1).operations(READS),
    copies("copies-writers", 2, 2).operations(WRITES),
    copies("copies-updates", 2, 1).operations(UPDATES),
    copies("copies-cools", 2, 1).faults(HEATS.cools(1)),
    copies("copies-cools-loss", 2, 1).faults(HEATS.cools(1).losses(1)),
    copies("copies-crash", 3, 2)
        .faults(HEATS.crashes(1))
        .sees(ANSWERED | SHARED | TOOK_OVER)
        .suspects(true),
    copies("copies-restart", 2, 1)
        .faults(HEATS.crashes(1).restarts(1))
        .sees(ANSWERED | SHARED | LOST),
    copies("copies-hand-over", 2, 2)
        .wants(&[hand_over(1)])
        .sees(ANSWERED | SHARED | TOOK_OVER),
    copies("copies-next-view", 2, 2)
        .operations(&[(Set, 0), (Delete, 0)])
        .asked(2)
        .wants(&[exit(1)])
        .faults(HEATS.duplicates(1)),
    copies("copies-again-next-view", 2, 2)
        .operations(&[(Set, 0)])
        .asked(2)
        .wants(&[exit(1)])
        .faults(NOTHING.cools(1).losses(1).heats(2)),
    copies("copies-loss", 2, 1).faults(HEATS.losses(1)),
    copies("copies-loss-writers", 2, 1)
        .operations(&[(Set, 0), (Set, 0)])
        .asked(2)
        .faults(HEATS.losses(1)),
    copies("copies-again", 2, 1).faults(NOTHING.cools(1).duplicates(1).heats(2)),
    copies("copies-three-writes", 3, 1)
        .operations(&[(Set, 0), (Set, 0), (Set, 0)])
        .is_deep(true),
    copies("copies-three", 3, 1)
        .operations(WRITES)
        .asked(7)
        .is_deep(true),
    sc_copies("copies-sc-pair", 2, 1),
    sc_copies("copies-sc-updates", 2, 2).operations(&[(Set, 0), (Append, 0), (Get, 0), (Get, 0)]),
    sc_copies("copies-sc-deletes", 2, 1).operations(&[(Set, 0), (Delete, 0), (Get, 0), (Get, 0)]),
    sc_copies("copies-sc-cools", 2, 1).faults(HEATS.cools(1)),
    sc_copies("copies-sc-crash", 3, 2)
        .faults(HEATS.crashes(1))
        .sees(ANSWERED | SHARED | TOOK_OVER)
        .suspects(true),
    sc_copies("copies-sc-loss", 2, 2)
        .operations(FEW)
        .faults(HEATS.losses(1).duplicates(1)),
    sc_copies("copies-sc-hand-over", 2, 2)
        .wants(&[hand_over(1)])
        .sees(ANSWERED | SHARED | TOOK_OVER),
    accepted("accepted-catch-up").operations(UPDATES),
    accepted("accepted-move")
        .operations(WRITES)
        .wants(&[hold(1), hand_over(1), exit(0)])
        .sees(ANSWERED | ENTERED | TOOK_OVER | EXITED | DRAINED),
    accepted("accepted-hot")
        .operations(DELETES)
        .suspects(false)
        .faults(HEATS)
        .sees(ANSWERED | SHARED | DRAINED)
        .wants(&[]),
    accepted("accepted-restart")
        .faults(NOTHING.crashes(1).restarts(1))
        .sees(ANSWERED | LOST | ENTERED | DRAINED),
    accepted("accepted-flush").faults(NOTHING.flushes(1)),
    accepted("accepted-full")
        .operations(TWO_KEYS)
        .capacity(1)
        .faults(NOTHING.evictions(1))
        .sees(ANSWERED | EVICTED)
        .wants(&[]),
];
