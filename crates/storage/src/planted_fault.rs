//! Faults that tests plant, to see that other tests catch them. Only test builds have them.

/// What is done wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PlantedFault {
    /// Writes count as durable when they are appended.
    AcknowledgesEarly,
    /// Files of the log are deleted before the tree has flushed them.
    DeletesEarly,
    /// A group is read although its checksum does not match.
    ReadsTorn,
    /// Damage is cut off as if it were the torn end.
    CutsDamage,
    /// What a read found is shown although the key was written since.
    ShowsVoid,
}

#[cfg(test)]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<PlantedFault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in this thread, or none.
#[cfg(test)]
pub(crate) fn plant(fault: Option<PlantedFault>) {
    PLANTED.set(fault);
}

/// Whether this fault is planted in this thread.
#[cfg(test)]
pub(crate) fn planted(fault: PlantedFault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Whether this fault is planted: there are none but in tests.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn planted(_: PlantedFault) -> bool {
    false
}
