//! A state of a cluster of slices: its nodes, what is on its way, and what clients know.

use std::collections::{BTreeMap, BTreeSet};

use curtail_consistency::replica::Ticket;
use curtail_consistency::replica::{
    CopyState, Gate, Replica, ReplicaMessage, ReplicaRefusal, ReplicaRequest,
};
use curtail_consistency::slice_view::{RowChange, SliceId, SliceView};
use curtail_types::{Cas, NodeId, RouteHash};

use super::SliceFaults;
use super::accepted::AcceptedWrites;
use super::in_words::refusal_in_words;
use crate::interned_parts::{Shared, SharedPart};
use crate::judge::{Linearizable, Written};
use crate::requests::{Kind, Label, answer_in_words};
use crate::search::ModelState;
use crate::step_notes::StepNotes;

/// A state.
#[derive(Clone, Debug, Hash)]
pub(crate) struct SliceWorld {
    pub(super) nodes: Vec<Shared<SliceNode>>,
    /// What is on its way, sorted.
    pub(super) parcels: Shared<Vec<SliceParcel>>,
    /// The requests, by their labels.
    pub(super) operations: Shared<Vec<Stage>>,
    /// Of requests whose clients wait, those that some store has executed, by their labels.
    pub(super) executed: u16,
    pub(super) left: SliceFaults,
    /// One for each key.
    pub(super) judges: Shared<Vec<Linearizable>>,
    /// Under SC: the last version that the sessions of each node saw of each key.
    pub(super) sessions: Option<BTreeMap<(NodeId, usize), Cas>>,
    /// The newest view.
    pub(super) view: Shared<SliceView>,
    /// Of the placement's wishes, those that are not fulfilled.
    pub(super) wants: u8,
    pub(super) notes: StepNotes,
}

/// A node and its store.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct SliceNode {
    /// `None` while it is down.
    pub(super) machine: Option<Replica>,
    pub(super) items: BTreeMap<RouteHash, StoredItem>,
    pub(super) copies: BTreeMap<RouteHash, HeldCopy>,
    /// What requests of clients here write into copies.
    pub(super) writes: BTreeMap<Ticket, (RouteHash, StoredItem)>,
    /// Room kept free for changes of other nodes.
    pub(super) promised: BTreeMap<NodeId, u64>,
    pub(super) clock: u64,
    pub(super) gates: Vec<Gate>,
    pub(super) accepted: AcceptedWrites,
    /// The last key that a scan of a slice showed.
    pub(super) scans: BTreeMap<SliceId, RouteHash>,
    /// What requests that ran are answered with.
    pub(super) results: BTreeMap<Ticket, (Cas, Written)>,
    /// Requests of clients of this node.
    pub(super) own: BTreeSet<Ticket>,
    pub(super) proposals: BTreeSet<RowChange>,
}

/// A value and its version.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct StoredItem {
    pub(super) version: Cas,
    pub(super) value: Written,
}

/// A copy of a hot key.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct HeldCopy {
    pub(super) state: CopyState,
    pub(super) version: Cas,
    /// What it shows; at the key's primary the item does.
    pub(super) image: Option<Option<StoredItem>>,
}

impl HeldCopy {
    /// The write that a reader sees, and what it left.
    pub(super) fn shown(&self) -> (Cas, Written) {
        let nothing = (self.version, Written::NOTHING);
        let item = self.image.flatten();
        item.map_or(nothing, |item| (item.version, item.value))
    }
}

/// What travels; from a node to itself: what its host does later.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct SliceParcel {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) load: Load,
}

#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Load {
    Message(ReplicaMessage, Option<StoredItem>),
    Request(ReplicaRequest),
    Answer(Ticket, Result<(Cas, Written), ReplicaRefusal>),
    /// A scan goes on behind this key.
    Scan(SliceId, Option<RouteHash>),
    Closed(SliceId),
}

/// How far a request is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Stage {
    Unasked,
    /// A machine has it.
    Asked(NodeId),
    /// It began beside the machine of this node while its gate was open.
    Beside(NodeId),
    /// This node has accepted it, and has not executed it.
    Accepted(NodeId),
    /// A reader beside the machine has copied the value; whether the gate was closed since.
    Copied(NodeId, (Cas, Written), bool),
    Answered,
    /// Its client knows only that it does not know.
    Unknown,
}

impl ModelState for SliceWorld {
    fn notes(&mut self) -> &mut StepNotes {
        &mut self.notes
    }

    fn each_part(&mut self, each: &mut dyn FnMut(&mut dyn SharedPart)) {
        self.nodes.iter_mut().for_each(|node| each(node));
        each(&mut self.parcels);
        each(&mut self.operations);
        each(&mut self.judges);
        each(&mut self.view);
    }
}

impl SliceNode {
    /// It dies, and what it had.
    pub(super) fn stop(&mut self) {
        *self = Self {
            gates: vec![Gate::Closed; self.gates.len()],
            clock: self.clock,
            ..Self::default()
        };
    }

    pub(super) fn room_taken(&self) -> u64 {
        self.items.len() as u64 + self.promised.values().sum::<u64>()
    }
}

impl SliceWorld {
    pub(super) fn node(&self, id: NodeId) -> &SliceNode {
        &self.nodes[usize::from(id.0)]
    }

    /// Whether the primary of a slice lives and answers for it.
    pub(super) fn serves(&self, slice: SliceId) -> bool {
        let row = self.view.row(slice);
        let primary = row.and_then(|row| self.node(row.primary).machine.as_ref());
        primary.is_some_and(|machine| machine.serves(slice))
    }

    pub(super) fn edit(&mut self, id: NodeId) -> &mut SliceNode {
        self.nodes[usize::from(id.0)].edit()
    }

    pub(super) fn post(&mut self, from: NodeId, to: NodeId, load: Load) {
        let parcel = SliceParcel { from, to, load };
        let at = self.parcels.partition_point(|other| *other <= parcel);
        self.parcels.edit().insert(at, parcel);
    }

    /// Machines that ask for nothing begin to number anew what they ask: how often they have asked
    /// makes no difference.
    pub(super) fn renumber(&mut self) {
        let asks = |parcel: &SliceParcel| {
            use ReplicaMessage::{Append, Room, RoomWanted};
            match &parcel.load {
                Load::Message(RoomWanted { .. } | Room { .. }, _) => true,
                Load::Message(Append(append), _) => append.asked > 0,
                _ => false,
            }
        };
        if !self.parcels.iter().any(asks) {
            let is_numbered =
                |node: &Shared<SliceNode>| node.machine.as_ref().is_some_and(Replica::is_numbered);
            for node in self.nodes.iter_mut().filter(|node| is_numbered(node)) {
                node.edit().machine.iter_mut().for_each(Replica::renumber);
            }
        }
    }

    /// A primary's store has executed a request, which may happen once.
    pub(super) fn note_executed(&mut self, label: Label) {
        let bit = 1 << label.0;
        let waits = matches!(self.operations[usize::from(label.0)], Stage::Asked(_));
        if waits && self.executed & bit != 0 {
            self.notes.fail("a request is executed twice");
        }
        self.executed |= if waits { bit } else { 0 };
    }

    /// A request is answered with `value`, which its client reads, or has left there.
    pub(super) fn answer(
        &mut self,
        at: NodeId,
        key: usize,
        (label, kind): (Label, Kind),
        (version, value): (Cas, Written),
    ) {
        self.executed &= !(1 << label.0);
        self.operations.edit()[usize::from(label.0)] = Stage::Answered;
        self.notes.add(|| answer_in_words(label, kind, value));
        if let Some(sessions) = &mut self.sessions {
            // All that is asked of a node is one session, which never goes back. Of a key that is
            // not hot and has no item nobody knows which write left it so.
            let nothing = value == Written::NOTHING;
            if version == Cas(0) {
                return;
            }
            let last = sessions.entry((at, key)).or_default();
            let shows_last = nothing || kind == Kind::Get;
            let is_right = version > *last || (shows_last && version == *last);
            *last = version;
            if !is_right {
                self.notes.fail("a client reads an older value than before");
            }
            return;
        }
        if !self.judges.edit()[key].answered(label, kind, value) {
            self.notes
                .fail("an answer that no order of the requests explains");
        }
    }

    /// A write is accepted: from now on it must be seen, whenever it is executed.
    pub(super) fn accept(&mut self, key: usize, (label, kind): (Label, Kind)) {
        self.notes.add(|| format!("{label} is answered: accepted"));
        let judge = &mut self.judges.edit()[key];
        judge.begun(label, kind);
        let explains = match kind {
            Kind::Delete => judge.took_effect(label),
            _ => judge.answered(label, kind, Written::default().outcome(label, kind).0),
        };
        if !explains {
            self.notes
                .fail("an accepted write that no order of the requests explains");
        }
    }

    /// A flush begins: it may remove what these keys have.
    pub(super) fn begin_flush(&mut self, keys: impl Iterator<Item = usize>) {
        for key in keys {
            self.judges.edit()[key].asked_once(Label::FLUSH, Kind::Delete);
        }
    }

    /// A flush is answered: what was there before is gone.
    pub(super) fn flushed(&mut self, mut keys: impl Iterator<Item = usize>) {
        if !keys.all(|key| self.judges.edit()[key].took_effect(Label::FLUSH)) {
            self.notes
                .fail("an answer to a flush that no order of the requests explains");
        }
    }

    /// A request ended without an answer.
    pub(super) fn refuse(&mut self, key: usize, label: Label, refusal: ReplicaRefusal) {
        self.executed &= !(1 << label.0);
        let stage = &mut self.operations.edit()[usize::from(label.0)];
        let why = refusal_in_words(refusal);
        self.notes.add(|| format!("{label} ends: {why}"));
        if refusal == ReplicaRefusal::Unknown {
            *stage = Stage::Unknown;
            return;
        }
        *stage = Stage::Answered;
        if self.sessions.is_none() && !self.judges.edit()[key].had_no_effect(label) {
            self.notes.fail("a request took effect that was refused");
        }
    }
}
