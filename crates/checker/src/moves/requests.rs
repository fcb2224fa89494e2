//! Where a request for a key that may move runs: here, at its home, or here after the key has
//! arrived.

use curtail_consistency::moves::Stand;
use curtail_consistency::symmetric::Visibility;
use curtail_types::{Cas, NodeId, NodeSet, ViewNumber, WriterId};

use crate::judge::Written;
use crate::mutants::DriverMutant;
use crate::outputs::Driver;
use crate::setup::{Kind, Witness};
use crate::world::{Content, Item, Label, Parcel};

impl Driver<'_> {
    /// A thread of `at` that acts on view `number` has a request.
    pub(crate) fn route(&mut self, label: Label, at: NodeId, number: ViewNumber, after: Cas) {
        let in_force = self.in_force(number);
        let state = self.world.node(at).state;
        match in_force.stand(self.setup.route(), at) {
            _ if state.is_some() => {}
            Stand::Elsewhere(to) => {
                self.world.see(Witness::Forwarded);
                let content = Content::Request(label, after, number);
                return self.send(Parcel::new((at, to), content));
            }
            Stand::Arriving if !self.is(DriverMutant::ServesBeforeArrival) => {
                return self.await_arrival(label, at, after);
            }
            Stand::Here | Stand::Arriving if self.setup.replicas == 1 => {
                return self.run_here(label, at);
            }
            Stand::Here | Stand::Arriving => {}
        }
        let is_shown = matches!(state, None | Some(Visibility::Valid));
        // Of another node's request the machine says which write its answer shows.
        let is_own = at == label.session();
        if is_shown && is_own && self.kind(label) == Kind::Get {
            let item = self.world.node(at).item;
            self.conclude(at, label, item);
        } else {
            self.request(label, at, after);
        }
    }

    /// Runs a request when the key is here.
    pub(super) fn await_arrival(&mut self, label: Label, at: NodeId, after: Cas) {
        let in_force = self.in_force(self.view_of(at));
        let node = self.world.edit(at);
        let (is_here, is_shared) = (node.item.is_some(), node.state.is_some());
        let (key, denied) = (self.setup.route(), NodeSet::NONE);
        let source = in_force.asks(key, denied, (is_here, is_shared));
        let Some(source) = source else {
            return self.request(label, at, after);
        };
        let was_asked = !node.mover.arrivals.is_empty();
        node.mover.arrivals.push((label, after));
        if !was_asked {
            self.ask_for(at, source);
        }
    }

    /// As on a server that is alone: past the machine.
    fn run_here(&mut self, label: Label, at: NodeId) {
        let kind = self.kind(label);
        let before = self.world.node(at).item;
        let value = before.map_or(Written::NOTHING, |item| item.value);
        let (left, said) = value.outcome(label, kind);
        let ts = Cas::new(self.world.last.clock() + 1, WriterId::of(at, 0));
        if kind != Kind::Get && left != value {
            self.world.last = ts;
            self.note_written(Item { ts, value: left });
            let item = Item { ts, value: left };
            self.world.edit(at).item = (left != Written::NOTHING).then_some(item);
            if left == Written::NOTHING {
                self.note_gone(at, ts);
            }
        }
        let ts = match kind {
            Kind::Get => before.map_or(Cas(0), |item| item.ts),
            _ => ts,
        };
        let said = Item { ts, value: said };
        self.conclude(at, label, Some(said));
    }

    /// A request that found nobody, or the wrong one, goes where its key is now.
    pub(crate) fn ask_again(&mut self, index: usize) {
        let parcel = self.world.parcels.remove(index);
        if let Content::Request(label, after, _) = parcel.content {
            let at = label.session();
            if !self.world.node(at).is_up {
                return self.lose(label);
            }
            self.route(label, at, self.view_of(at), after);
        }
    }
}
