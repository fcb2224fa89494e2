//! Steps, messages and bounds of clusters of slices in words.

use curtail_consistency::replica::{
    Append, ChangeKind, CopyKind, CopyMessage, ReplicaMessage, ReplicaRefusal, Ticket,
};
use curtail_consistency::slice_view::{RowStep, SliceId};
use curtail_types::{Cas, NodeId, RouteHash};

use super::SliceSetup;
use super::actions::SliceAction;
use super::world::{Load, SliceParcel, SliceWorld, Stage, StoredItem};
use crate::judge::Written;
use crate::requests::Label;

impl SliceSetup {
    pub(super) fn action_in_words(&self, before: &SliceWorld, action: &SliceAction) -> String {
        match *action {
            SliceAction::Ask(label, node) => self.asked_in_words(label, node),
            SliceAction::Begin(label, node) => {
                self.asked_in_words(label, node) + ", which begins it"
            }
            SliceAction::Accept(label, node) => {
                self.asked_in_words(label, node) + ", which accepts it"
            }
            SliceAction::End(label) => end_in_words(before, Label(label)),
            SliceAction::Deliver(index, stays) => {
                let parcel = self.parcel_in_words(&before.parcels[index]);
                match stays {
                    true => format!("{parcel} (it will arrive once more)"),
                    false => parcel,
                }
            }
            SliceAction::Lose(index) => {
                let parcel = self.parcel_in_words(&before.parcels[index]);
                format!("the network loses {parcel}")
            }
            SliceAction::Tick(node) => format!("a timer of {} expires", named(node)),
            SliceAction::Want(index) => {
                let (slice, step) = self.wants[index];
                let step = row_step_in_words(slice, step);
                format!("the primary is to propose that {step}")
            }
            SliceAction::Change(node, change) => {
                let step = row_step_in_words(change.slice, change.step);
                let node = named(node);
                format!("the view store accepts the proposal of {node} that {step}")
            }
            SliceAction::Adopt(node) => {
                format!("{} adopts view {}", named(node), before.view.number.0)
            }
            SliceAction::Crash(node) => format!("{} crashes", named(node)),
            SliceAction::Remove(node) => format!("the other nodes remove {}", named(node)),
            SliceAction::Restart(node) => format!("{} restarts empty and joins", named(node)),
            SliceAction::Heat(key, true) => format!("key {key} becomes hot"),
            SliceAction::Heat(key, false) => format!("key {key} ceases to be hot"),
            SliceAction::Flush(slice) => format!("a client flushes slice {}", slice.0),
        }
    }

    fn asked_in_words(&self, label: u8, node: NodeId) -> String {
        let request = self.request_in_words(Ticket(label.into()));
        format!("a client sends {request} to {}", named(node))
    }

    fn parcel_in_words(&self, parcel: &SliceParcel) -> String {
        let (from, to) = (named(parcel.from), named(parcel.to));
        let load = self.load_in_words(&parcel.load);
        match parcel.load {
            Load::Scan(..) | Load::Closed(_) => format!("{to}: {load}"),
            _ => format!("{from} -> {to}: {load}"),
        }
    }

    fn load_in_words(&self, load: &Load) -> String {
        match load {
            Load::Message(message, image) => {
                let message_text = self.message_in_words(message);
                match message.carries_image().is_some() || image.is_some() {
                    true => format!("{message_text}: {}", item_in_words(*image)),
                    false => message_text,
                }
            }
            Load::Request(request) => self.request_in_words(request.ticket),
            Load::Answer(ticket, Ok((_, value))) => {
                format!("answer to {}: {value}", Label(ticket.0 as u8))
            }
            Load::Answer(ticket, Err(refusal)) => {
                let refusal = refusal_in_words(*refusal);
                format!("{} is refused: {refusal}", Label(ticket.0 as u8))
            }
            Load::Scan(slice, None) => format!("the scan of slice {} begins", slice.0),
            Load::Scan(slice, Some(key)) => {
                let (slice, key) = (slice.0, self.key(*key));
                format!("the scan of slice {slice} goes on after {key}")
            }
            Load::Closed(slice) => {
                format!(
                    "all requests that it had begun in slice {} have ended",
                    slice.0
                )
            }
        }
    }

    fn message_in_words(&self, message: &ReplicaMessage) -> String {
        match message {
            ReplicaMessage::Append(append) => self.append_in_words(append),
            ReplicaMessage::Applied { slice, term, seq } => {
                let (slice, term) = (slice.0, term.0);
                format!("changes of slice {slice} up to {seq} of term {term} are applied")
            }
            ReplicaMessage::TailWanted { slice, term } => {
                let (slice, term) = (slice.0, term.0);
                format!("which keys of slice {slice} have unfinished changes? (term {term})")
            }
            ReplicaMessage::Tail {
                slice, term, keys, ..
            } => {
                let keys: Vec<String> = match keys.is_empty() {
                    true => vec!["no key".to_owned()],
                    false => keys.iter().map(|key| self.key(*key)).collect(),
                };
                let keys = keys.join(", ");
                let (slice, term) = (slice.0, term.0);
                format!("in slice {slice} {keys} may have unfinished changes (term {term})")
            }
            ReplicaMessage::RoomWanted { held, wanted, .. } => {
                format!("promise room for {wanted} more; {held} were promised")
            }
            ReplicaMessage::Room { bytes, .. } => format!("room for {bytes} more is promised"),
            ReplicaMessage::Copy(copy) => self.copy_in_words(copy),
            ReplicaMessage::Entered(view) => format!("no copy is from before view {}", view.0),
            ReplicaMessage::EnteredWanted(view) => {
                format!("is any copy from before view {}?", view.0)
            }
            ReplicaMessage::Evict(bytes) => format!("evict about {bytes}"),
        }
    }

    fn append_in_words(&self, append: &Append) -> String {
        let (change, prev, seq) = (&append.change, append.prev, append.seq);
        let key = self.key(change.key);
        let what = match change.kind {
            ChangeKind::Store => format!("store {key}"),
            ChangeKind::Evict => format!("evict {key}"),
            ChangeKind::Flush => format!("remove what is older than {}", version(change.version)),
            ChangeKind::Begin => "begin to catch up, from empty".to_owned(),
        };
        let (slice, term) = (append.slice.0, append.term.0);
        format!("change {seq} of slice {slice} in term {term}, after {prev}: {what}")
    }

    fn copy_in_words(&self, copy: &CopyMessage) -> String {
        let (key, version) = (self.key(copy.key), version(copy.version));
        let text = match copy.kind {
            CopyKind::Install => format!("install a copy of {key}, {version}"),
            CopyKind::Invalidate => format!("invalidate the copy of {key} for {version}"),
            CopyKind::Ack => format!("{key}, {version}, has arrived"),
            CopyKind::Reject => format!("{key}, {version}, is rejected"),
            CopyKind::Validate => format!("the copy of {key}, {version}, is valid"),
            CopyKind::ValidateWanted => format!("is {key}, {version}, valid?"),
            CopyKind::Update => format!("update the copy of {key} to {version}"),
            CopyKind::Drop => format!("drop the copy of {key}"),
            CopyKind::Dropped => format!("there is no copy of {key}"),
        };
        format!("{text} (view {})", copy.view.0)
    }

    pub(super) fn request_in_words(&self, ticket: Ticket) -> String {
        let label = Label(ticket.0 as u8);
        match self.operations.get(usize::from(label.0)) {
            Some((kind, key)) => format!("{label} ({kind} key {key})"),
            None => format!("the flush of slice {}", ticket.0 - Self::FLUSHES),
        }
    }

    pub(super) fn key(&self, key: RouteHash) -> String {
        match self.keys.iter().position(|one| *one == key) {
            Some(index) => format!("key {index}"),
            None => "the whole slice".to_owned(),
        }
    }
}

fn end_in_words(before: &SliceWorld, label: Label) -> String {
    match before.operations[usize::from(label.0)] {
        Stage::Copied(node, _, false) => format!("{} answers {label}", named(node)),
        Stage::Copied(node, _, true) => {
            let node = named(node);
            format!("{node} begins {label} again: what it read may be out of date")
        }
        Stage::Beside(node) | Stage::Accepted(node) => {
            format!("{} executes {label}", named(node))
        }
        _ => format!("{label} ends"),
    }
}

/// A node as people read it.
pub(super) fn named(node: NodeId) -> String {
    format!("node {}", node.0)
}

/// What a change of a row does.
pub(super) fn row_step_in_words(slice: SliceId, step: RowStep) -> String {
    let (slice, node) = (slice.0, named(step.node()));
    match step {
        RowStep::Hold(_) => format!("{node} becomes a holder of slice {slice}"),
        RowStep::Enter(_) => format!("{node} enters the in-sync set of slice {slice}"),
        RowStep::Exit(_) => format!("{node} ceases to hold slice {slice}"),
        RowStep::HandOver(_) => format!("{node} becomes the primary of slice {slice}"),
    }
}

/// Why a request is refused.
pub(super) const fn refusal_in_words(refusal: ReplicaRefusal) -> &'static str {
    match refusal {
        ReplicaRefusal::Busy => "too many requests wait",
        ReplicaRefusal::NoRoom => "there is no room",
        ReplicaRefusal::Elsewhere => "this node is not the primary",
        ReplicaRefusal::Late => "it waited too long",
        ReplicaRefusal::Unknown => "its outcome is unknown",
    }
}

fn version(version: Cas) -> String {
    match version {
        Cas(0) => "no version".to_owned(),
        _ => {
            let (clock, node) = (version.clock(), version.writer().node());
            format!("version {clock} of {}", named(node))
        }
    }
}

fn item_in_words(item: Option<StoredItem>) -> String {
    match item {
        Some(item) => format!("{}, {}", item.value, version(item.version)),
        None => Written::NOTHING.to_string(),
    }
}
