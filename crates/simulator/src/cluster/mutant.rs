//! Wrong drivers, each of which the judges must find out.

/// A way to drive the machines wrongly.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Mutant {
    /// Readers see a key as valid for a while after its invalidation was acknowledged.
    LatePublish,
    /// A node serves on when its lease has ended.
    Unfenced,
    /// Messages of another view are taken for messages of this one.
    AnyView,
    /// A write is answered when it begins, not when it is done.
    EarlyAnswer,
    /// The home reads its store beside the machine while the key is hot (CC-74).
    HomeBeside,
    /// A value for a key that is not in the store is acknowledged and dropped (CC-74).
    DropUnknown,
    /// The new home of a key does not wait for its item.
    Unmoved,
    /// A request is sent again when the node that was asked may have carried it out.
    AskTwice,
    /// The node that a key moves from forgets it when it ceases to be hot.
    SourceForgets,
    /// What a session has seen by way of another node is not told to the machine (SC, CC-72).
    SeenUntold,
    /// A dead node is missed late: hot keys wait for longer than they may (CC-85).
    LateMissed,
}

impl Mutant {
    /// What it is called on the command line.
    pub fn name(self) -> String {
        super::name(&self)
    }
}
