//! The models: each shows one thing, as small as it can be shown.

use curtail_consistency::symmetric::Model::{Lin, Sc};

use crate::setup::Kind::{Append, Get, Set};
use crate::setup::{Chances, Setup, Witness};

/// All of them.
pub const MODELS: &[Setup] = &[
    Setup {
        name: "lin",
        about: "two sets and a get of a hot key, of any node",
        operations: &[Set, Set, Get],
        readers_take_time: true,
        sees: &[
            Witness::AllAnswered,
            Witness::WritesRaced,
            Witness::GetAnsweredElsewhere,
            Witness::ReaderStartedOver,
        ],
        ..HOT
    },
    Setup {
        name: "lin-readers",
        about: "two sets and two gets of a hot key, of any node",
        operations: &[Set, Set, Get, Get],
        readers_take_time: true,
        sees: &[
            Witness::AllAnswered,
            Witness::WritesRaced,
            Witness::GetAnsweredElsewhere,
            Witness::ReaderStartedOver,
        ],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-wide",
        about: "three sets and two gets of a hot key, of any node (ccKVS requirement CC-27)",
        operations: &[Set, Set, Set, Get, Get],
        sees: &[
            Witness::AllAnswered,
            Witness::WritesRaced,
            Witness::GetAnsweredElsewhere,
        ],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-append",
        about: "an append, a set and a get of a hot key: nothing comes between reading and writing",
        operations: &[Append, Set, Get],
        sees: &[Witness::AllAnswered, Witness::UpdateRanAgain],
        ..HOT
    },
    Setup {
        name: "lin-append-wide",
        about: "two sets, an append and a get of a hot key",
        operations: &[Set, Set, Append, Get],
        sees: &[Witness::AllAnswered, Witness::UpdateRanAgain],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-appends",
        about: "two appends and a set of a hot key",
        operations: &[Append, Append, Set],
        sees: &[Witness::AllAnswered, Witness::UpdateRanAgain],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-loss",
        about: "a set and a get of a hot key; a message is lost, and a timer is early",
        operations: &[Set, Get],
        chances: Chances {
            losses: 1,
            early_timers: 1,
            ..NOTHING
        },
        sees: &[Witness::AllAnswered, Witness::Replayed],
        ..HOT
    },
    Setup {
        name: "lin-loss-wide",
        about: "two sets and a get of a hot key; a message is lost, one comes twice",
        operations: &[Set, Set, Get],
        chances: Chances {
            losses: 1,
            duplicates: 1,
            ..NOTHING
        },
        sees: &[Witness::AllAnswered, Witness::Replayed],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-append-loss",
        about: "an append and a set of a hot key, and a get; timers are early",
        operations: &[Append, Set, Get],
        chances: Chances {
            early_timers: 1,
            ..NOTHING
        },
        sees: &[Witness::AllAnswered, Witness::UpdateRanAgain],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-crash",
        about: "a set and a get of a hot key; a node dies",
        operations: &[Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b100,
            ..NOTHING
        },
        is_ordered: true,
        sees: &[
            Witness::AllAnswered,
            Witness::Replayed,
            Witness::GetAfterView,
        ],
        ..HOT
    },
    Setup {
        name: "lin-crash-wide",
        about: "two sets and a get of a hot key; a node dies",
        operations: &[Set, Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b100,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::Replayed,
            Witness::GetAfterView,
        ],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-lease",
        about: "a set and a get of a hot key; a node's lease ends, and it lives on",
        operations: &[Set, Get],
        chances: Chances {
            lost_leases: 1,
            victims: 0b100,
            ..NOTHING
        },
        is_ordered: true,
        sees: &[
            Witness::AllAnswered,
            Witness::LateMessage,
            Witness::GetAfterView,
        ],
        ..HOT
    },
    Setup {
        name: "lin-lease-wide",
        about: "a set and two gets of a hot key; a node's lease ends, and it lives on",
        operations: &[Set, Get, Get],
        chances: Chances {
            lost_leases: 1,
            victims: 0b100,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::LateMessage,
            Witness::GetAfterView,
        ],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-home-crash",
        about: "an append and a get of a hot key; its home dies",
        operations: &[Append, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b001,
            ..NOTHING
        },
        is_ordered: true,
        sees: &[
            Witness::AllAnswered,
            Witness::TookOver,
            Witness::GetAfterView,
        ],
        ..HOT
    },
    Setup {
        name: "lin-home-crash-wide",
        about: "a set, an append and a get of a hot key; its home dies",
        operations: &[Set, Append, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b001,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::TookOver,
            Witness::GetAfterView,
        ],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-home-lease",
        about: "an append and a get of a hot key; its home's lease ends, and it lives on",
        operations: &[Append, Get],
        chances: Chances {
            lost_leases: 1,
            victims: 0b001,
            ..NOTHING
        },
        is_ordered: true,
        sees: &[Witness::AllAnswered, Witness::TookOver],
        ..HOT
    },
    Setup {
        name: "lin-home-lease-wide",
        about: "an append and a get of a hot key; its home's lease ends, and it lives on",
        operations: &[Append, Append, Get],
        chances: Chances {
            lost_leases: 1,
            victims: 0b001,
            ..NOTHING
        },
        sees: &[Witness::AllAnswered, Witness::TookOver],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "lin-join-pair",
        about: "a set and a get of a hot key of one node; a second joins",
        nodes: 2,
        operations: &[Set, Get],
        chances: Chances {
            joins: 1,
            ..NOTHING
        },
        sees: &[Witness::AllAnswered, Witness::GetAnsweredByJoiner],
        ..HOT
    },
    Setup {
        name: "lin-join",
        about: "a set and a get of a hot key; a third node joins",
        operations: &[Set, Get],
        chances: Chances {
            joins: 1,
            ..NOTHING
        },
        sees: &[Witness::AllAnswered, Witness::GetAnsweredByJoiner],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "promote",
        about: "a get and two sets; the key becomes hot and cold again (ccKVS requirement CC-71)",
        operations: &[Get, Set, Set],
        chances: ONE_EPOCH,
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "promote-set",
        about: "a get and a set; the key becomes hot and cold again",
        operations: &[Get, Set],
        chances: ONE_EPOCH,
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "promote-pair",
        about: "two gets and a set of two nodes; the key becomes hot and cold again",
        nodes: 2,
        operations: &[Get, Get, Set],
        chances: ONE_EPOCH,
        sees: CHANGED,
        ..COLD
    },
    Setup {
        name: "promote-gets",
        about: "two gets and a set; the key becomes hot and cold again (ccKVS requirement CC-71)",
        operations: &[Get, Get, Set],
        chances: ONE_EPOCH,
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "promote-twice",
        about: "a get and a set; the key becomes hot and cold twice (ccKVS requirement CC-71)",
        operations: &[Get, Set],
        chances: Chances {
            promotions: 2,
            demotions: 2,
            ..NOTHING
        },
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "promote-again",
        about: "a get and a set of two nodes; the key becomes hot and cold twice",
        nodes: 2,
        operations: &[Get, Set],
        chances: Chances {
            promotions: 2,
            demotions: 2,
            ..NOTHING
        },
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "promote-again-wide",
        about: "a get and a set of two nodes; the key becomes hot and cold twice",
        nodes: 2,
        operations: &[Get, Set],
        chances: Chances {
            promotions: 2,
            demotions: 2,
            duplicates: 1,
            ..NOTHING
        },
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "promote-append",
        about: "an append and a get while the key becomes hot and cold again",
        operations: &[Append, Get],
        chances: ONE_EPOCH,
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "promote-loss",
        about: "a set and a get of two nodes; the key becomes hot and cold; a message is lost",
        nodes: 2,
        operations: &[Set, Get],
        chances: Chances {
            losses: 1,
            ..ONE_EPOCH
        },
        sees: CHANGED,
        ..COLD
    },
    Setup {
        name: "promote-loss-wide",
        about: "a set and a get of two nodes; the key becomes hot and cold; messages are lost",
        nodes: 2,
        operations: &[Set, Get],
        chances: Chances {
            losses: 1,
            duplicates: 1,
            early_timers: 1,
            ..ONE_EPOCH
        },
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "promote-home-crash-pair",
        about: "a set and a get of two nodes; the key becomes hot and cold; its home dies",
        nodes: 2,
        operations: &[Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b001,
            ..ONE_EPOCH
        },
        is_ordered: true,
        sees: &[Witness::AllAnswered, Witness::TookOver, Witness::Demoted],
        ..COLD
    },
    Setup {
        name: "promote-home-crash",
        about: "a set and a get; the key becomes hot and cold again, and its home dies",
        operations: &[Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b001,
            ..ONE_EPOCH
        },
        is_ordered: true,
        sees: &[Witness::AllAnswered, Witness::TookOver, Witness::Demoted],
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "promote-crash",
        about: "a set and a get; the key becomes hot and cold again, and a follower dies",
        operations: &[Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b100,
            ..ONE_EPOCH
        },
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "cold",
        about: "a set, an append and a get of a cold key with two holders",
        replicas: 2,
        operations: &[Set, Append, Get],
        sees: &[Witness::AllAnswered, Witness::Forwarded],
        ..COLD
    },
    Setup {
        name: "cold-crash",
        about: "a set and an append of a cold key with two holders; one dies",
        replicas: 2,
        operations: &[Set, Append, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b011,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::GetAfterView,
            Witness::Replayed,
        ],
        ..COLD
    },
    Setup {
        name: "cold-crash-wide",
        about: "a set, an append and two gets of a cold key with two holders; one dies",
        replicas: 2,
        operations: &[Set, Append, Get, Get],
        chances: Chances {
            crashes: 1,
            losses: 1,
            victims: 0b011,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::GetAfterView,
            Witness::Replayed,
        ],
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "cold-promote",
        about: "a set and a get of a key with two holders that becomes hot and cold again",
        replicas: 2,
        operations: &[Set, Get],
        chances: ONE_EPOCH,
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "cold-promote-crash-pair",
        about: "a set and a get of two holders; the key becomes hot and cold; its home dies",
        replicas: 2,
        nodes: 2,
        operations: &[Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b001,
            ..ONE_EPOCH
        },
        is_ordered: true,
        sees: &[
            Witness::AllAnswered,
            Witness::TookOver,
            Witness::GetAfterView,
        ],
        ..COLD
    },
    Setup {
        name: "cold-promote-crash",
        about: "a set and a get of a key with two holders that becomes hot and cold; its home dies",
        replicas: 2,
        operations: &[Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b001,
            ..ONE_EPOCH
        },
        is_ordered: true,
        sees: &[
            Witness::AllAnswered,
            Witness::TookOver,
            Witness::GetAfterView,
        ],
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "cold-promote-crash-wide",
        about: "a set and a get of a key with two holders that becomes hot and cold; its home dies",
        replicas: 2,
        operations: &[Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b001,
            ..ONE_EPOCH
        },
        is_ordered: true,
        sees: &[
            Witness::AllAnswered,
            Witness::TookOver,
            Witness::GetAfterView,
        ],
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "sc",
        about: "two sets and a get of a hot key under SC; a message is lost",
        model: Sc,
        operations: &[Set, Set, Get],
        chances: Chances {
            losses: 1,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::WritesRaced,
            Witness::GetSawOldValue,
        ],
        ..HOT
    },
    Setup {
        name: "sc-wide",
        about: "two sets and three gets of a hot key under SC; a message is lost",
        model: Sc,
        operations: &[Set, Set, Get, Get],
        chances: Chances {
            losses: 1,
            duplicates: 1,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::WritesRaced,
            Witness::GetSawOldValue,
        ],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "sc-crash-pair",
        about: "a set and two gets of a hot key of two nodes under SC; one dies",
        model: Sc,
        nodes: 2,
        operations: &[Set, Get, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b010,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::GetSawOldValue,
            Witness::GetAfterView,
        ],
        ..HOT
    },
    Setup {
        name: "sc-crash",
        about: "a set and two gets of a hot key under SC; a node dies",
        model: Sc,
        operations: &[Set, Get, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b100,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::GetSawOldValue,
            Witness::GetAfterView,
        ],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "sc-crash-wide",
        about: "two sets and a get of a hot key under SC; a node dies",
        model: Sc,
        operations: &[Set, Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b100,
            ..NOTHING
        },
        sees: &[
            Witness::AllAnswered,
            Witness::GetSawOldValue,
            Witness::GetAfterView,
        ],
        is_deep: true,
        ..HOT
    },
    Setup {
        name: "sc-promote",
        about: "a set and two gets under SC; the key becomes hot and cold again",
        model: Sc,
        operations: &[Set, Get, Get],
        chances: ONE_EPOCH,
        is_ordered: true,
        sees: CHANGED,
        ..COLD
    },
    Setup {
        name: "sc-promote-wide",
        about: "two sets and two gets under SC; the key becomes hot and cold again",
        model: Sc,
        operations: &[Set, Set, Get, Get],
        chances: ONE_EPOCH,
        is_ordered: true,
        sees: CHANGED,
        is_deep: true,
        ..COLD
    },
    Setup {
        name: "sc-home-crash-pair",
        about: "a set and a get of a hot key of two nodes under SC; its home dies",
        model: Sc,
        nodes: 2,
        operations: &[Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b001,
            ..NOTHING
        },
        sees: &[Witness::AllAnswered, Witness::TookOver],
        ..HOT
    },
    Setup {
        name: "sc-home-crash",
        about: "a set and a get of a hot key under SC; its home dies",
        model: Sc,
        operations: &[Set, Get],
        chances: Chances {
            crashes: 1,
            victims: 0b001,
            ..NOTHING
        },
        sees: &[Witness::AllAnswered, Witness::TookOver],
        is_deep: true,
        ..HOT
    },
];

const NOTHING: Chances = Chances {
    losses: 0,
    duplicates: 0,
    early_timers: 0,
    promotions: 0,
    demotions: 0,
    crashes: 0,
    lost_leases: 0,
    victims: 0,
    joins: 0,
};

const ONE_EPOCH: Chances = Chances {
    promotions: 1,
    demotions: 1,
    ..NOTHING
};

const CHANGED: &[Witness] = &[
    Witness::AllAnswered,
    Witness::Promoted,
    Witness::Demoted,
    Witness::GetAnsweredElsewhere,
];

const HOT: Setup = Setup {
    name: "",
    about: "",
    model: Lin,
    nodes: 3,
    replicas: 1,
    starts_hot: true,
    operations: &[],
    chances: NOTHING,
    is_ordered: false,
    readers_take_time: false,
    sees: &[],
    is_deep: false,
};

const COLD: Setup = Setup {
    starts_hot: false,
    ..HOT
};
