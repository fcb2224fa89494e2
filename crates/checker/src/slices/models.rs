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
        operations: &[(Set, 0), (Append, 0), (Get, 0)],
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

const NOTHING: SliceFaults = SliceFaults {
    losses: 0,
    duplicates: 0,
    crashes: 0,
    restarts: 0,
    evictions: 0,
    flushes: 0,
    heats: 0,
    cools: 0,
};

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
const READS: &[(Kind, usize)] = &[(Set, 0), (Get, 0), (Get, 0)];
const TWO_KEYS: &[(Kind, usize)] = &[(Set, 0), (Set, 1), (Get, 0)];

const HEATS: SliceFaults = SliceFaults {
    heats: 1,
    ..NOTHING
};

/// All of them.
pub const SLICE_MODELS: &[SliceSetup] = &[
    SliceSetup {
        operations: UPDATES,
        ..model("slice-pair", 2, 2)
    },
    SliceSetup {
        operations: DELETES,
        ..model("slice-deletes", 2, 2)
    },
    SliceSetup {
        operations: DELETES,
        ..model("slice-deletes-three", 3, 3)
    },
    SliceSetup {
        operations: UPDATES,
        faults: SliceFaults {
            losses: 1,
            duplicates: 1,
            ..NOTHING
        },
        sees: ANSWERED,
        suspects: false,
        ..model("slice-loss", 2, 2)
    },
    SliceSetup {
        operations: READS,
        faults: SliceFaults {
            crashes: 1,
            ..NOTHING
        },
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-crash", 3, 2)
    },
    SliceSetup {
        operations: UPDATE,
        faults: SliceFaults {
            crashes: 1,
            ..NOTHING
        },
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-crash-three", 3, 3)
    },
    SliceSetup {
        operations: DELETES,
        faults: SliceFaults {
            crashes: 1,
            losses: 1,
            ..NOTHING
        },
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-crash-loss", 2, 2)
    },
    SliceSetup {
        operations: UPDATE,
        faults: SliceFaults {
            crashes: 1,
            restarts: 1,
            ..NOTHING
        },
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
        faults: SliceFaults {
            losses: 1,
            ..NOTHING
        },
        sees: ANSWERED | ENTERED,
        ..model("slice-catch-up-loss", 2, 1)
    },
    SliceSetup {
        operations: UPDATE,
        wants: &[hold(1)],
        faults: SliceFaults {
            crashes: 1,
            ..NOTHING
        },
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
        faults: SliceFaults {
            crashes: 1,
            ..NOTHING
        },
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
        faults: SliceFaults {
            crashes: 1,
            ..NOTHING
        },
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-hand-over", 2, 2)
    },
    SliceSetup {
        operations: UPDATE,
        asked: 1,
        wants: &[hold(2), hand_over(2)],
        is_deep: true,
        faults: SliceFaults {
            crashes: 1,
            ..NOTHING
        },
        sees: ANSWERED | TOOK_OVER | ENTERED,
        ..model("slice-move-crash", 3, 2)
    },
    // The other nodes are asked, which forward; with a read besides it has too many states.
    SliceSetup {
        operations: &[(Append, 0)],
        asked: 6,
        wants: &[hold(2), hand_over(2)],
        is_deep: true,
        faults: SliceFaults {
            crashes: 1,
            ..NOTHING
        },
        sees: ANSWERED | TOOK_OVER | ENTERED,
        ..model("slice-move-crash-forwarded", 3, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0)],
        asked: 1,
        wants: &[hand_over(1), hand_over(0)],
        suspects: false,
        faults: SliceFaults {
            duplicates: 1,
            losses: 1,
            ..NOTHING
        },
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
        faults: SliceFaults {
            evictions: 1,
            ..NOTHING
        },
        sees: ANSWERED | EVICTED,
        ..model("slice-full", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 1)],
        capacity: 1,
        faults: SliceFaults {
            evictions: 1,
            crashes: 1,
            ..NOTHING
        },
        sees: ANSWERED | EVICTED | TOOK_OVER,
        ..model("slice-full-crash", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 1)],
        capacity: 1,
        wants: &[hold(1)],
        sees: ANSWERED,
        ..model("slice-full-catch-up", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0), (Get, 0)],
        faults: SliceFaults {
            flushes: 1,
            crashes: 1,
            ..NOTHING
        },
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-flush", 2, 2)
    },
    SliceSetup {
        operations: UPDATE,
        faults: SliceFaults {
            crashes: 2,
            ..NOTHING
        },
        is_deep: true,
        sees: ANSWERED | TOOK_OVER,
        ..model("slice-two-crashes", 3, 3)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0), (Get, 0)],
        suspects: false,
        faults: HEATS,
        sees: ANSWERED | SHARED,
        ..model("copies-pair", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0), (Get, 0)],
        suspects: false,
        faults: HEATS,
        sees: ANSWERED | SHARED,
        ..model("copies-writers", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Append, 0), (Get, 0)],
        suspects: false,
        faults: HEATS,
        sees: ANSWERED | SHARED,
        ..model("copies-updates", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0)],
        suspects: false,
        faults: SliceFaults { cools: 1, ..HEATS },
        sees: ANSWERED | SHARED,
        ..model("copies-cools", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0)],
        suspects: false,
        faults: SliceFaults {
            cools: 1,
            losses: 1,
            ..HEATS
        },
        sees: ANSWERED | SHARED,
        ..model("copies-cools-loss", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0)],
        faults: SliceFaults {
            crashes: 1,
            ..HEATS
        },
        sees: ANSWERED | SHARED | TOOK_OVER,
        ..model("copies-crash", 3, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0)],
        suspects: false,
        faults: SliceFaults {
            crashes: 1,
            restarts: 1,
            ..HEATS
        },
        sees: ANSWERED | SHARED | LOST,
        ..model("copies-restart", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0)],
        wants: &[hand_over(1)],
        suspects: false,
        faults: HEATS,
        sees: ANSWERED | SHARED | TOOK_OVER,
        ..model("copies-hand-over", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Delete, 0)],
        asked: 2,
        wants: &[exit(1)],
        suspects: false,
        faults: SliceFaults {
            duplicates: 1,
            ..HEATS
        },
        sees: ANSWERED | SHARED,
        ..model("copies-next-view", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0)],
        asked: 2,
        wants: &[exit(1)],
        suspects: false,
        faults: SliceFaults {
            cools: 1,
            losses: 1,
            heats: 2,
            ..NOTHING
        },
        sees: ANSWERED | SHARED,
        ..model("copies-again-next-view", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0)],
        suspects: false,
        faults: SliceFaults { losses: 1, ..HEATS },
        sees: ANSWERED | SHARED,
        ..model("copies-loss", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0)],
        asked: 2,
        suspects: false,
        faults: SliceFaults { losses: 1, ..HEATS },
        sees: ANSWERED | SHARED,
        ..model("copies-loss-writers", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0)],
        suspects: false,
        faults: SliceFaults {
            cools: 1,
            duplicates: 1,
            heats: 2,
            ..NOTHING
        },
        sees: ANSWERED | SHARED,
        ..model("copies-again", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0), (Set, 0)],
        suspects: false,
        faults: HEATS,
        sees: ANSWERED | SHARED,
        is_deep: true,
        ..model("copies-three-writes", 3, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0), (Get, 0)],
        asked: 7,
        suspects: false,
        faults: HEATS,
        sees: ANSWERED | SHARED,
        is_deep: true,
        ..model("copies-three", 3, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0), (Get, 0)],
        suspects: false,
        model: Model::Sc,
        faults: HEATS,
        sees: ANSWERED | SHARED,
        ..model("copies-sc-pair", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Append, 0), (Get, 0), (Get, 0)],
        suspects: false,
        model: Model::Sc,
        faults: HEATS,
        sees: ANSWERED | SHARED,
        ..model("copies-sc-updates", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Delete, 0), (Get, 0), (Get, 0)],
        suspects: false,
        model: Model::Sc,
        faults: HEATS,
        sees: ANSWERED | SHARED,
        ..model("copies-sc-deletes", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0), (Get, 0)],
        suspects: false,
        model: Model::Sc,
        faults: SliceFaults { cools: 1, ..HEATS },
        sees: ANSWERED | SHARED,
        ..model("copies-sc-cools", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0), (Get, 0)],
        model: Model::Sc,
        faults: SliceFaults {
            crashes: 1,
            ..HEATS
        },
        sees: ANSWERED | SHARED | TOOK_OVER,
        ..model("copies-sc-crash", 3, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0)],
        suspects: false,
        model: Model::Sc,
        faults: SliceFaults {
            losses: 1,
            duplicates: 1,
            ..HEATS
        },
        sees: ANSWERED | SHARED,
        ..model("copies-sc-loss", 2, 2)
    },
    SliceSetup {
        operations: &[(Set, 0), (Get, 0), (Get, 0)],
        wants: &[hand_over(1)],
        suspects: false,
        model: Model::Sc,
        faults: HEATS,
        sees: ANSWERED | SHARED | TOOK_OVER,
        ..model("copies-sc-hand-over", 2, 2)
    },
    SliceSetup {
        operations: UPDATES,
        accepts: true,
        wants: &[hold(1)],
        sees: ANSWERED | ENTERED | DRAINED,
        ..model("accepted-catch-up", 2, 1)
    },
    SliceSetup {
        operations: &[(Set, 0), (Set, 0), (Get, 0)],
        accepts: true,
        wants: &[hold(1), hand_over(1), exit(0)],
        sees: ANSWERED | ENTERED | TOOK_OVER | EXITED | DRAINED,
        ..model("accepted-move", 2, 1)
    },
    SliceSetup {
        operations: DELETES,
        accepts: true,
        suspects: false,
        faults: HEATS,
        sees: ANSWERED | SHARED | DRAINED,
        ..model("accepted-hot", 2, 1)
    },
    SliceSetup {
        operations: READS,
        accepts: true,
        faults: SliceFaults {
            crashes: 1,
            restarts: 1,
            ..NOTHING
        },
        wants: &[hold(1)],
        sees: ANSWERED | LOST | ENTERED | DRAINED,
        ..model("accepted-restart", 2, 1)
    },
    SliceSetup {
        operations: READS,
        accepts: true,
        faults: SliceFaults {
            flushes: 1,
            ..NOTHING
        },
        wants: &[hold(1)],
        sees: ANSWERED | ENTERED | DRAINED,
        ..model("accepted-flush", 2, 1)
    },
    SliceSetup {
        operations: TWO_KEYS,
        accepts: true,
        capacity: 1,
        faults: SliceFaults {
            evictions: 1,
            ..NOTHING
        },
        sees: ANSWERED | EVICTED,
        ..model("accepted-full", 2, 1)
    },
];
