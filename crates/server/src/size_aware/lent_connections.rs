//! A worker's connections that are lent to large workers, and the kernel's events for them
//! meanwhile.
//!
//! A connection whose large value is being sent stays watched by the worker it belongs to: so the
//! usual way there and back costs no call to the kernel and wakes nobody at the end. What it asks
//! for before it is back is kept here, and then the worker wants to hear of its return at once
//! (see `Mailbox::expect`).

use curtail_runtime::Readiness;

/// The connections of one worker that are away: few, so a list. Slow readers may make it long, so
/// it is gone through when something happens, not in every turn.
#[derive(Debug, Default)]
pub(crate) struct LentConnections {
    lent: Vec<Lent>,
    is_wanted: bool,
}

#[derive(Debug)]
struct Lent {
    slot: usize,
    missed: Readiness,
}

impl LentConnections {
    /// The connection in `slot` goes.
    pub(crate) fn lend(&mut self, slot: usize) {
        let missed = Readiness::default();
        self.lent.push(Lent { slot, missed });
    }

    /// Something was reported of a connection that is not in its slot.
    pub(crate) fn note(&mut self, slot: usize, readiness: Readiness) {
        // One that nobody has is closed, and the report older than that.
        if let Some(lent) = self.lent.iter_mut().find(|lent| lent.slot == slot) {
            lent.missed.add(readiness);
            self.is_wanted = true;
        }
    }

    /// The connection in `slot` is back or will not come back; what was reported of it.
    pub(crate) fn take(&mut self, slot: usize) -> Readiness {
        let Some(place) = self.lent.iter().position(|lent| lent.slot == slot) else {
            return Readiness::default();
        };
        let missed = self.lent.swap_remove(place).missed;
        // What came was perhaps what its worker had said it waits for: it has to say so again.
        let nothing = Readiness::default();
        self.is_wanted = self.lent.iter().any(|lent| lent.missed != nothing);
        missed
    }

    /// Whether one that is away has asked for something, and its worker has not said yet that it
    /// waits.
    #[inline]
    pub(crate) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Its worker has said so.
    pub(crate) const fn told(&mut self) {
        self.is_wanted = false;
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reported_meanwhile_comes_with_the_connection() {
        let mut lent_connections = LentConnections::default();
        lent_connections.lend(3);
        lent_connections.lend(5);
        let read = Readiness {
            read: true,
            ..Readiness::default()
        };
        let closed = Readiness {
            closed: true,
            ..Readiness::default()
        };
        lent_connections.note(9, read);
        assert!(!lent_connections.is_wanted(), "nobody has it");
        lent_connections.note(5, read);
        lent_connections.note(5, closed);
        assert!(lent_connections.is_wanted());
        lent_connections.told();
        assert!(!lent_connections.is_wanted());
        assert_eq!(lent_connections.take(3), Readiness::default());
        assert!(lent_connections.is_wanted(), "that was not the one");
        let missed = lent_connections.take(5);
        assert!(missed.read && missed.closed && !missed.write);
        assert!(lent_connections.is_empty() && !lent_connections.is_wanted());
    }
}
