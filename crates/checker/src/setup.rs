//! What a model is made of: how many nodes, what is asked, what may go wrong, and how often.

use curtail_consistency::symmetric::{Access, Model};

/// A bounded cluster with one key.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What to call it.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub about: &'static str,
    /// How copies of the key agree while it is hot.
    pub model: Model,
    /// How many nodes; the first is the key's home.
    pub nodes: u8,
    /// How many of them hold the key while it is cold.
    pub replicas: u8,
    /// Whether every node has the key already.
    pub starts_hot: bool,
    /// What clients ask, each once, of any node, at any time.
    pub operations: &'static [Kind],
    /// How often each of the things may happen that need not.
    pub chances: Chances,
    /// Whether a message may overtake one between the same two nodes.
    pub is_ordered: bool,
    /// Whether readers beside the machine take a step to copy the item, and another to look whether
    /// they may use it.
    pub readers_take_time: bool,
    /// What must be seen on some way, or else the model is too small to show anything.
    pub sees: &'static [Witness],
    /// Whether it takes long and runs only when asked for.
    pub is_deep: bool,
}

/// What a client asks.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Reads the value.
    Get,
    /// Writes another, whatever was there.
    Set,
    /// Writes one that holds what was there.
    Append,
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Chances {
    /// A message is lost.
    pub losses: u8,
    /// A message arrives twice.
    pub duplicates: u8,
    /// A timer rings although what it waits for is on its way.
    pub early_timers: u8,
    /// The key becomes hot.
    pub promotions: u8,
    /// The key ceases to be hot, or ceases to become so.
    pub demotions: u8,
    /// A node dies and is taken out of the view.
    pub crashes: u8,
    /// A node's lease ends and it is taken out of the view, but it lives on.
    pub lost_leases: u8,
    /// Which nodes that may be, a bit for each.
    pub victims: u8,
    /// The last node, which is no member at first, joins.
    pub joins: u8,
}

/// Something that is worth seeing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Witness {
    /// Everything that was asked is answered.
    AllAnswered,
    /// A get returned what a set or an append wrote.
    GetSawWrite,
    /// A node that is not the home answered a get.
    GetAnsweredElsewhere,
    /// Two nodes' writes were on their way at once.
    WritesRaced,
    /// A node completed another's write.
    Replayed,
    /// An update lost against a write and ran again.
    UpdateRanAgain,
    /// A request was sent on.
    Forwarded,
    /// The key became hot.
    Promoted,
    /// The key ceased to be hot.
    Demoted,
    /// A node other than the first became home of the hot key.
    TookOver,
    /// A reader beside the machine had to start over.
    ReaderStartedOver,
    /// A get answered after a node was taken out of the view.
    GetAfterView,
    /// A get returned what was no longer the last write (SC).
    GetSawOldValue,
    /// A message of an earlier view arrived.
    LateMessage,
    /// A node that joined answered a get.
    GetAnsweredByJoiner,
}

impl Kind {
    pub(crate) const fn access(self) -> Access {
        match self {
            Self::Get => Access::Read,
            Self::Set => Access::Replace,
            Self::Append => Access::Update,
        }
    }
}

impl Witness {
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }
}
