//! Planted errors: a checker that does not find them finds nothing.
//!
//! They are compiled in for tests and with the feature `mutants` only. Each is asked for where it
//! would have been made.

use curtail_types::listed_enum;

listed_enum! {
    /// An error that the machine makes.
    pub enum Mutant {
        /// Acknowledgements are counted, whoever they come from.
        AckWithoutSender,
        /// An invalidation is acknowledged before readers know of it.
        AckBeforePublish,
        /// A validation is taken for whatever write is here.
        ValidateAnother,
        /// Nobody completes the write of another.
        NoReplay,
        /// Messages of every view count.
        AnyView,
        /// An update takes a timestamp like that of any other write.
        UpdateStepTwo,
        /// An update is acknowledged also by who knows a later write.
        UpdateAcknowledged,
        /// Who knows an update that is not complete acknowledges an earlier write.
        EarlierAcknowledged,
        /// An update's writer helps another to complete it, and may run it again.
        UpdateHelped,
        /// A set that finds another of the same node on its way is answered and forgotten (CC-22).
        SetDropped,
        /// An activation is obeyed whichever promotion it belongs to (CC-70).
        AnyActivation,
        /// A key ceases to be hot before all nodes have stopped to answer (CC-74).
        DemotionWithoutAcks,
        /// An invalidation of a key that is not here is acknowledged and forgotten (CC-74).
        AbsentAcknowledged,
        /// A new home trusts the value that it kept while it had been told to leave.
        DoubtfulServed,
        /// An update is taken although a later write is here (SC).
        OlderUpdateTaken,
        /// Nobody asks whether the others have the last write (SC).
        NoAntiEntropy,
        /// What a session has seen by way of the home is forgotten (SC, CC-72).
        SeenForgotten,
        /// A write counts only in the view that it was done in (SC).
        LateUpdateDropped,
        /// Who may have to send a hot key on takes it for granted that its new home has it.
        HomeUnasked,
        /// An update of an earlier view makes a follower of a node that has left since (SC).
        LateUpdateBegins,
        /// Nobody who has waited for a write that died with its writer hears that it did (SC).
        LostAwaited,
        /// A hot key's new home doubts its value, though it was never told to leave.
        HeirDoubts,
        /// What was removed from a key with several holders is not remembered for late messages.
        RemovedForgotten,
    }
}
