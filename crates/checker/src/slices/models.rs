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
    SliceSetup {
        operations: FEW,
        suspects: false,
        faults: HEATS,
        sees: ANSWERED | SHARED,
        ..model(name, nodes, replicas)
    }
}

/// The same, and its copies agree on an order only.
const fn sc_copies(name: &'static str, nodes: u8, replicas: u8) -> SliceSetup {
    SliceSetup {
        operations: READS,
        model: Model::Sc,
        ..copies(name, nodes, replicas)
    }
}

/// The primary accepts writes before it executes them, and another node is to catch up.
const fn accepted(name: &'static str) -> SliceSetup {
    SliceSetup {
        operations: READS,
        accepts: true,
        wants: const { &[hold(1)] },
        sees: ANSWERED | ENTERED | DRAINED,
        ..model(name, 2, 1)
    }
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
pub const SLICE_MODELS: &[SliceSetup] = &[
    model("slice-pair", 2, 2),
    SliceSetup {
        operations: DELETES,
        ..model("slice-deletes", 2, 2)
    },
    SliceSetup {
        operations: DELETES,
        ..model("slice-deletes-three", 3, 3)
    },
    SliceSetup {
        faults: NOTHING.losses(1).duplicates(1),
        suspects: false,
        ..model("slice-loss", 2, 2)
    },
    SliceSetup {
        operations: READS,
        faults: NOTHING.crashes(1),
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-crash", 3, 2)
    },
    SliceSetup {
        operations: UPDATE,
        faults: NOTHING.crashes(1),
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-crash-three", 3, 3)
    },
    SliceSetup {
        operations: DELETES,
        faults: NOTHING.crashes(1).losses(1),
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-crash-loss", 2, 2)
    },
    SliceSetup {
        operations: UPDATE,
        faults: NOTHING.crashes(1).restarts(1),
        wants: &[hold(1), hold(0)],
        sees: ANSWERED | LOST | ENTERED,
        ..model("slice-restart", 2, 1)
    },
    SliceSetup {
        operations: UPDATE,
        wants: &[hold(1)],
        sees: ANSWERED | ENTERED,
        ..model("slice-catch-up", 2, 1)
    },
    SliceSetup {
        operations: &[(Append, 0), (Delete, 0)],
        wants: &[hold(1)],
        faults: NOTHING.losses(1),
        sees: ANSWERED | ENTERED,
        ..model("slice-catch-up-loss", 2, 1)
    },
    SliceSetup {
        operations: UPDATE,
        wants: &[hold(1)],
        faults: NOTHING.crashes(1),
        sees: ANSWERED | ENTERED | TOOK_OVER,
        ..model("slice-catch-up-crash", 2, 1)
    },
    // The primary dies as a node enters that was not shown what the other follower still has.
    SliceSetup {
        operations: &[(Set, 0), (Set, 1), (Delete, 0)],
        done_before: 2,
        asked: 1,
        wants: &[hold(2)],
        suspects: false,
        faults: NOTHING.crashes(1),
        sees: ANSWERED | ENTERED | TOOK_OVER,
        ..model("slice-enter-crash", 3, 2)
    },
    SliceSetup {
        operations: UPDATE,
        wants: &[hold(1), hand_over(1), exit(0)],
        sees: ANSWERED | ENTERED | TOOK_OVER | EXITED,
        ..model("slice-move", 2, 1)
    },
    SliceSetup {
        operations: READS,
        wants: &[hand_over(1)],
        faults: NOTHING.crashes(1),
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-hand-over", 2, 2)
    },
    SliceSetup {
        operations: UPDATE,
        asked: 1,
        wants: &[hold(2), hand_over(2)],
        is_deep: true,
        faults: NOTHING.crashes(1),
        sees: ANSWERED | TOOK_OVER | ENTERED,
        ..model("slice-move-crash", 3, 2)
    },
    // The other nodes are asked, which forward; with a read besides it has too many states.
    SliceSetup {
        operations: &[(Append, 0)],
        asked: 6,
        wants: &[hold(2), hand_over(2)],
        is_deep: true,
        faults: NOTHING.crashes(1),
        sees: ANSWERED | TOOK_OVER | ENTERED,
        ..model("slice-move-crash-forwarded", 3, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0)],
        asked: 1,
        wants: &[hand_over(1), hand_over(0)],
        suspects: false,
        faults: NOTHING.duplicates(1).losses(1),
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-hand-over-twice", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Delete, 0)],
        wants: &[exit(1), hold(1)],
        sees: ANSWERED | EXITED | ENTERED,
        ..model("slice-return", 2, 2)
    },
    SliceSetup {
        operations: TWO_KEYS,
        capacity: 1,
        faults: NOTHING.evictions(1),
        sees: ANSWERED | EVICTED,
        ..model("slice-full", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 1)],
        capacity: 1,
        faults: NOTHING.evictions(1).crashes(1),
        sees: ANSWERED | EVICTED | TOOK_OVER,
        ..model("slice-full-crash", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 1)],
        capacity: 1,
        wants: &[hold(1)],
        ..model("slice-full-catch-up", 2, 1)
    },
    SliceSetup {
        operations: WRITES,
        faults: NOTHING.flushes(1).crashes(1),
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-flush", 2, 2)
    },
    SliceSetup {
        operations: UPDATE,
        faults: NOTHING.crashes(2),
        is_deep: true,
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-two-crashes", 3, 3)
    },
    SliceSetup {
        operations: READS,
        ..copies("copies-pair", 2, 1)
    },
    SliceSetup {
        operations: WRITES,
        ..copies("copies-writers", 2, 2)
    },
    SliceSetup {
        operations: UPDATES,
        ..copies("copies-updates", 2, 1)
    },
    SliceSetup {
        faults: HEATS.cools(1),
        ..copies("copies-cools", 2, 1)
    },
    SliceSetup {
        faults: HEATS.cools(1).losses(1),
        ..copies("copies-cools-loss", 2, 1)
    },
    SliceSetup {
        faults: HEATS.crashes(1),
        sees: ANSWERED | SHARED | TOOK_OVER,
        suspects: true,
        ..copies("copies-crash", 3, 2)
    },
    SliceSetup {
        faults: HEATS.crashes(1).restarts(1),
        sees: ANSWERED | SHARED | LOST,
        ..copies("copies-restart", 2, 1)
    },
    SliceSetup {
        wants: &[hand_over(1)],
        sees: ANSWERED | SHARED | TOOK_OVER,
        ..copies("copies-hand-over", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Delete, 0)],
        asked: 2,
        wants: &[exit(1)],
        faults: HEATS.duplicates(1),
        ..copies("copies-next-view", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0)],
        asked: 2,
        wants: &[exit(1)],
        faults: NOTHING.cools(1).losses(1).heats(2),
        ..copies("copies-again-next-view", 2, 2)
    },
    SliceSetup {
        faults: HEATS.losses(1),
        ..copies("copies-loss", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0)],
        asked: 2,
        faults: HEATS.losses(1),
        ..copies("copies-loss-writers", 2, 1)
    },
    SliceSetup {
        faults: NOTHING.cools(1).duplicates(1).heats(2),
        ..copies("copies-again", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0), (Set, 0)],
        is_deep: true,
        ..copies("copies-three-writes", 3, 1)
    },
    SliceSetup {
        operations: WRITES,
        asked: 7,
        is_deep: true,
        ..copies("copies-three", 3, 1)
    },
    sc_copies("copies-sc-pair", 2, 1),
    SliceSetup {
        operations: &[(Set, 0), (Append, 0), (Get, 0), (Get, 0)],
        ..sc_copies("copies-sc-updates", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Delete, 0), (Get, 0), (Get, 0)],
        ..sc_copies("copies-sc-deletes", 2, 1)
    },
    SliceSetup {
        faults: HEATS.cools(1),
        ..sc_copies("copies-sc-cools", 2, 1)
    },
    SliceSetup {
        faults: HEATS.crashes(1),
        sees: ANSWERED | SHARED | TOOK_OVER,
        suspects: true,
        ..sc_copies("copies-sc-crash", 3, 2)
    },
    SliceSetup {
        operations: FEW,
        faults: HEATS.losses(1).duplicates(1),
        ..sc_copies("copies-sc-loss", 2, 2)
    },
    SliceSetup {
        wants: &[hand_over(1)],
        sees: ANSWERED | SHARED | TOOK_OVER,
        ..sc_copies("copies-sc-hand-over", 2, 2)
    },
    SliceSetup {
        operations: UPDATES,
        ..accepted("accepted-catch-up")
    },
    SliceSetup {
        operations: WRITES,
        wants: &[hold(1), hand_over(1), exit(0)],
        sees: ANSWERED | ENTERED | TOOK_OVER | EXITED | DRAINED,
        ..accepted("accepted-move")
    },
    SliceSetup {
        operations: DELETES,
        suspects: false,
        faults: HEATS,
        sees: ANSWERED | SHARED | DRAINED,
        wants: &[],
        ..accepted("accepted-hot")
    },
    SliceSetup {
        faults: NOTHING.crashes(1).restarts(1),
        sees: ANSWERED | LOST | ENTERED | DRAINED,
        ..accepted("accepted-restart")
    },
    SliceSetup {
        faults: NOTHING.flushes(1),
        ..accepted("accepted-flush")
    },
    SliceSetup {
        operations: TWO_KEYS,
        capacity: 1,
        faults: NOTHING.evictions(1),
        sees: ANSWERED | EVICTED,
        wants: &[],
        ..accepted("accepted-full")
    },
];
