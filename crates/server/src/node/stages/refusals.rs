//! How a request ends that a machine refuses.

use curtail_codec::node::{ItemRequest, Shows};
use curtail_consistency::replica::ReplicaRefusal;
use curtail_types::{
    Access, ArithmeticOutcome, Delete, DeleteOutcome, Failure, Operation, Outcome, RouteHash,
    SetOutcome,
};

use super::{
    StageContext,
    jobs::written,
    waiting::{Next, Waiting},
};

/// What the asker is told.
pub(super) const fn failure_of(refusal: ReplicaRefusal) -> Failure {
    match refusal {
        ReplicaRefusal::Busy => Failure::Busy,
        ReplicaRefusal::NoRoom => Failure::OutOfMemory,
        ReplicaRefusal::Elsewhere => Failure::OutOfService,
        ReplicaRefusal::Late => Failure::NotBegun,
        ReplicaRefusal::Unknown => Failure::ViewChanged,
    }
}

/// How a write ends that finds no room, and whether what is there goes as well: as on a server that
/// is alone, nobody reads an old value after a plain set was seen to fail.
pub(super) fn without_room(operation: &Operation) -> Option<(Outcome, bool)> {
    match operation {
        Operation::Set(set) => Some((
            Outcome::Set(SetOutcome::OutOfMemory),
            set.removes_if_too_large(),
        )),
        Operation::Delete(_) => Some((Outcome::Delete(DeleteOutcome::OutOfMemory), false)),
        Operation::Arithmetic(_) => {
            Some((Outcome::Arithmetic(ArithmeticOutcome::OutOfMemory), false))
        }
        Operation::Get(_) => None,
    }
}

impl StageContext<'_, '_> {
    /// Removes what is there; the requester of `waiting` is told `outcome` then.
    pub(super) fn removal_of(
        &mut self,
        request: &ItemRequest<'_>,
        outcome: Outcome,
        waiting: &Waiting,
    ) -> Waiting {
        let removal = ItemRequest {
            key: request.key,
            operation: Operation::Delete(Delete::default()),
            shows: Shows::Nothing,
            value: &[],
        };
        let bytes = written(&removal, self.spare.take());
        let of: (RouteHash, Access) = (waiting.key, Access::Update);
        Waiting {
            next: Next::Refused(outcome),
            ..Waiting::new(waiting.done.origin, of, bytes, self.spare.take())
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::{Cas, Set};

    use super::*;

    #[test]
    fn a_plain_set_without_room_takes_the_old_value_with_it() {
        let set = |set| without_room(&Operation::Set(set)).map(|(_, removes)| removes);
        assert_eq!(set(Set::default()), Some(true));
        let compare = Some(Cas(1));
        assert_eq!(
            set(Set {
                compare,
                ..Set::default()
            }),
            Some(false)
        );
    }
}
