//! Faults for tests: forced contention, and planted bugs that the checkers of histories must catch.
//!
//! They exist in debug builds alone: in a release build [`TestFaults`] has no size, and the
//! compiler drops what asks it.

/// What a server of a test does that it should not.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TestFaults {
    #[cfg(debug_assertions)]
    planted: Fault,
}

impl TestFaults {
    /// Whether it is this.
    #[inline(always)]
    pub(crate) fn has(self, fault: Fault) -> bool {
        self.planted() == fault && fault != Fault::Nothing
    }

    /// Whether it is anything at all.
    #[inline(always)]
    pub(crate) fn has_any(self) -> bool {
        self.planted() != Fault::Nothing
    }

    /// How far the clock of a node shows less than that of node 0, in nanoseconds.
    #[inline(always)]
    pub(crate) fn clock_behind_ns(self, node: u8) -> u64 {
        let are_apart = self.has(Fault::ClocksApart) || self.has(Fault::GoesByOwnClock);
        if are_apart {
            u64::from(node) * 1_000_000_000_000
        } else {
            0
        }
    }

    #[inline(always)]
    fn planted(self) -> Fault {
        #[cfg(debug_assertions)]
        return self.planted;
        #[cfg(not(debug_assertions))]
        Fault::Nothing
    }
}

const _: () = assert!(cfg!(debug_assertions) || size_of::<TestFaults>() == 0);

impl From<Fault> for TestFaults {
    fn from(fault: Fault) -> Self {
        let _ = fault;
        Self {
            #[cfg(debug_assertions)]
            planted: fault,
        }
    }
}

/// One of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fault {
    /// Nothing.
    #[default]
    Nothing,
    /// No bug, but as with all others: a worker that holds a partition yields its processor.
    Contends,
    /// A read does not follow the write to its key that was handed to another worker.
    Overtakes,
    /// Writes are compacted although something lies between them.
    FoldsAcross,
    /// All that count in a run are answered with what the last one counted to.
    AnswersLast,
    /// A large value is answered before it is in the store.
    AnswersAhead,
    /// No bug: a worker with nothing to do sleeps until it is woken, and never looks by itself.
    SleepsLong,
    /// The same, and it does not say that it waits for a connection that a large worker has.
    ForgetsReturns,
    /// No bug: a connection takes a while to come to a large worker, which goes on meanwhile.
    LendsLate,
    /// A native write is acknowledged before it has a place in its queue.
    AcceptsAhead,
    /// Nobody looks at the stamps of accepted writes.
    SkipsStamps,
    /// A native write that is sent again is executed again.
    ForgetsRequests,
    /// A native write is executed again when its queue is taken up again, as after a crash, though
    /// a write past the queue may have come between.
    RedoesWrites,
    /// No bug: of the first native write whose value is `damaged` a bit turns in its queue, and the
    /// server looks at checksums as it does where the XDP program writes the queues.
    DamagesMemory,
    /// A node shows its copy of a shared key although a write of it is not everywhere.
    ShowsUnsettled,
    /// A node goes on answering when its lease has ended.
    ServesPastLease,
    /// No bug: the clocks of a cluster's nodes are apart: that of node 1 shows 1000 s less than
    /// that of node 0, and so on.
    ClocksApart,
    /// The same, and each node goes by its own.
    GoesByOwnClock,
    /// A gateway gives a request that it sends to the tier again another number.
    NumbersAgain,
    /// No bug: the last worker of a node loses its processor for a while before each turn.
    Dozes,
    /// No bug: a node speaks the oldest version of the protocol between nodes, as one does that is
    /// not upgraded yet.
    SpeaksOldVersion,
    /// No bug: a node executes what other nodes ask for, and its answers are lost, as when it ends
    /// then.
    LosesAnswers,
    /// No bug: a node finds that its lease has ended whenever replies are to leave.
    LeaseEndsInTurn,
}
