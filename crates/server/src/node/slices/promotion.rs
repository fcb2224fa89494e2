//! Promotion at a key's home, in two steps; between them no request bypasses the key's machine.

use curtail_consistency::symmetric::{Input, Place, nothing_since};
use curtail_types::{Cas, HotEpoch, RouteHash};

use crate::node::slices::{Held, SliceContext};

impl Held {
    /// From here on requests for the key come to the machine.
    pub(super) fn prepare(
        &mut self,
        slice_cx: &mut SliceContext<'_, '_>,
        key: RouteHash,
        bytes: &[u8],
    ) {
        let is_home = self
            .place(key)
            .is_some_and(|place| place.home == slice_cx.cluster.me);
        if is_home
            && self.admit(slice_cx, key, bytes)
            && let Some(name) = self.names.get_mut(&key)
            && !name.shared
        {
            name.unsettle(&slice_cx.cluster.keys, &slice_cx.cx.store_cx.store, key);
            name.preparing = true;
            slice_cx.cluster.note_prepared(key);
            slice_cx.cx.host.wake_all();
        }
    }

    /// No request bypasses the machine any more: it informs the other nodes.
    pub(super) fn promote(&mut self, slice_cx: &mut SliceContext<'_, '_>, key: RouteHash) {
        // Greater than all before, whichever node was home and whatever clocks say.
        let view = self.in_force.as_ref().map_or(0, |now| now.view.number.0);
        self.promotions += 1;
        let epoch = HotEpoch(u64::from(view) << 32 | self.promotions);
        let Some(name) = self.names.get_mut(&key) else {
            return;
        };
        let was_prepared = std::mem::take(&mut name.preparing);
        let version = self.stored(slice_cx, key);
        let is_mine = |place: &Place| place.home == slice_cx.cluster.me;
        if let (true, Some(place)) = (was_prepared, self.place(key).filter(is_mine)) {
            // A version from before a delete must not come again.
            let floor = match version {
                Some(_) => Cas(0),
                None => nothing_since(
                    slice_cx.cluster.me,
                    self.clock.next(slice_cx.cx.store_cx.now),
                ),
            };
            let input = Input::Promote {
                key,
                place,
                epoch,
                floor,
            };
            self.step(slice_cx, input, Some(key), None);
        } else if !self.knows(key) {
            self.forget(slice_cx, key);
        }
    }
}
