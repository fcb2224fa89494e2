//! Planted errors: a checker that does not find them finds nothing.
//!
//! They are compiled in for tests and with the feature `mutants` only.

use curtail_types::listed_enum;

listed_enum! {
    /// An error that a replica makes.
    #[derive(Ord, PartialOrd)]
    pub enum ReplicaMutant {
        /// A write is answered before its followers have it.
        AnswersAtOnce,
        /// A read shows a change that is not finished.
        ReadsUnfinished,
        /// A follower that enters the in-sync set is not waited for.
        EnteringUncounted,
        /// A follower applies changes whatever came before them.
        OrderIgnored,
        /// An acknowledgement counts in every term.
        AnyTerm,
        /// A new primary serves before the others obey it.
        TailsNotAwaited,
        /// A new primary does not repair what it knows to be unfinished.
        TailsNotRepaired,
        /// Changes are sent whether or not there is room.
        RoomIgnored,
        /// An evicted key is not reported to the followers.
        EvictsAlone,
        /// A follower that catches up keeps what it had.
        BeginKeeps,
        /// A follower that catches up enters before it has all of the scan.
        EntersEarly,
        /// A follower that catches up enters while others do not have yet what it was shown.
        EntersUncommitted,
        /// A follower that catches up is not sent what changes meanwhile.
        LiveUnsent,
        /// A flush is not sent to the followers.
        FlushesAlone,
        /// Requests beside the machine are not waited for when a follower comes.
        GateNotAwaited,
        /// A lost change is not sent again.
        NeverResends,
        /// Copies of a hot key outlive the view.
        CopiesKept,
        /// A primary does not wait until members have entered the view.
        Unguarded,
        /// A primary rejects a write of an earlier view that it has taken.
        LateRejected,
        /// A primary goes on alone before the others have dropped their copies.
        DropUnacknowledged,
        /// A member drops its copy while a write that it makes is under way.
        DroppedBesideRound,
        /// A primary acknowledges a write of another node before the nodes in sync have it.
        AcksUncommitted,
        /// A primary stores a write of another node while readers see the key.
        HiddenLate,
        /// A new view has keys cease to be hot while readers may pass the gate.
        GuardedLate,
        /// A primary takes a write of another node beside one of its own.
        TakesBeside,
        /// A primary validates its write before all copies are invalid.
        ValidatesEarly,
        /// An answer goes out before the copy here shows as much (SC).
        SessionGoesBack,
        /// What was promised to a node that has left is kept.
        PromiseKept,
    }
}
