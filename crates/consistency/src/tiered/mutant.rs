//! Planted errors: a checker that does not find them finds nothing.
//!
//! They are compiled in for tests and with the feature `mutants` only.

use curtail_types::listed_enum;

listed_enum! {
    /// An error that a back end or a cache makes.
    #[derive(Ord, PartialOrd)]
    pub enum TierMutant {
        /// Reads at the back end do not wait for an update that is under way (SW-26).
        NoReadQueue,
        /// The cache takes messages of any generation, and keeps its copies in a new one.
        NoGeneration,
        /// The cache counts the lease from receiving the reply.
        LeaseFromReply,
        /// A write is answered before the cache has acknowledged it.
        AnswersAtOnce,
        /// A key leaves the cached-key set whatever number was dropped.
        DroppedAnyNumber,
        /// The cache forgets what it dropped or declined.
        NoFloor,
        /// An older update replaces a later copy.
        OrderIgnored,
        /// Any acknowledgement of the key ends the waiting.
        AnyAcknowledgement,
        /// An item is sent of a key that is not put into the cached-key set.
        Untracked,
        /// The cache serves what it has when the lease has ended.
        LeaseIgnored,
        /// A restarted back end takes writes at once.
        WritesAfterRestart,
        /// A restarted back end answers reads at once, as the paper allows.
        ReadsAfterRestart,
        /// A restarted cache goes on with the session number that it had.
        SessionReused,
        /// A full cached-key set forgets a key before the cache has dropped it.
        ForgetsWhenFull,
        /// Another cache gets the lease before the last one's has ended.
        ReassignsAtOnce,
        /// An update is not sent again.
        NeverResends,
        /// The cache takes an update for a copy that it does not have as applied, and no more.
        AbsentApplied,
        /// What waited behind a write is forgotten with the session.
        QueueLost,
        /// A write is answered after the first of several caches has acknowledged it.
        FirstAcknowledgement,
        /// One cache is updated before the others have dropped their copies.
        UpdatesTogether,
        /// An item is sent to another cache while the key's update is not acknowledged.
        SentInRound,
        /// Any acknowledgement of a revocation counts for the current one, whatever its number.
        RevocationAnyNumber,
        /// A revocation is not sent again.
        RevocationNotResent,
        /// An acknowledgement of an earlier session of the cache counts.
        AcknowledgedInAnySession,
        /// The back end answers reads after one of two caches has dropped its copy, before the
        /// other has acknowledged the update (SW-26).
        ServesWhenOneDropped,
        /// A flush does not wait for the end of the lease.
        FlushesAtOnce,
        /// A flush does not wait for the leases that were granted before a restart.
        FlushesAfterRestart,
        /// The lease is renewed while a flush waits for its end.
        RenewsWhileFlushing,
    }
}

listed_enum! {
    /// An error that a controller makes.
    #[derive(Ord, PartialOrd)]
    pub enum RuleMutant {
        /// What was found is deleted before the cache has named all its rules.
        UnnamedDeletedEarly,
        /// What was found and not named is never deleted.
        UnnamedKept,
        /// A switch that lost its rules does not begin another life of them.
        LifeKept,
        /// What a cache installs before it knows of the life counts as named.
        LifeIgnored,
        /// A message that was taken is taken again.
        OldMessages,
        /// A rule that was found counts as named whether or not it is spread as it is to be.
        MarkIgnored,
        /// A switch that lost its rules is not told again who shares.
        SharingKept,
        /// A cache node that has no rules any more goes on sharing.
        GoneShare,
    }
}
