//! Prints a step of a counterexample for a reader.

use core::fmt::Write;

use curtail_types::{Cas, Message, MessageKind, NodeId};

use crate::cluster_model::Action;
use crate::judge::Written;
use crate::moves::Moving;
use crate::setup::Kind;
use crate::world::{Content, Item, Label, Operation, OperationStage, Parcel, World};

/// What happens in a step, and what is different after it.
pub(crate) fn tell(before: &World, action: &Action, after: &World) -> String {
    let mut text = what(before, action);
    for old in &before.operations {
        let stage = after.operation(old.label).map(|new| new.stage);
        if stage != Some(old.stage) {
            let _ = write!(text, "; {}", outcome(old, stage));
        }
    }
    for new in &after.operations {
        if before.operation(new.label).is_none() {
            let _ = write!(text, "; {}", outcome(new, Some(new.stage)));
        }
    }
    for (id, (old, new)) in before.nodes.iter().zip(&after.nodes).enumerate() {
        if old.item != new.item || old.state != new.state {
            let state = new
                .state
                .map_or("ordinary".into(), |state| format!("{state:?}"));
            let item = new.item.map_or("nothing".into(), show_item);
            let _ = write!(text, "; node {id} has {item}, {}", state.to_lowercase());
        }
        if old.mode != new.mode {
            let mode = format!("{:?}", new.mode).to_lowercase();
            let _ = write!(text, "; node {id}: the key is {mode}");
        }
    }
    for moving in &after.moving {
        let count = |world: &World| world.moving.iter().filter(|one| *one == moving).count();
        if count(after) > count(before) {
            let _ = write!(text, "; sends {}", show_moving(moving));
        }
    }
    for parcel in &after.parcels {
        let count = |world: &World| world.parcels.iter().filter(|one| *one == parcel).count();
        if count(after) > count(before) {
            let _ = write!(text, "; sends {}", show_parcel(parcel, after));
        }
    }
    text
}

fn what(before: &World, action: &Action) -> String {
    let parcel = |index: usize| {
        let parcel = before.parcels.get(index);
        parcel.map_or(String::new(), |parcel| show_parcel(parcel, before))
    };
    match *action {
        Action::Ask(kind, node) => format!("a {} is asked of node {}", word(kind), node.0),
        Action::Look(label) => format!("the reader of {} looks again", name(label, before)),
        Action::Deliver(index) => format!("arrives: {}", parcel(index)),
        Action::Duplicate(index) => format!("arrives, and will again: {}", parcel(index)),
        Action::Lose(index) => format!("is lost: {}", parcel(index)),
        Action::Tick(node) => format!("a timer of node {} rings", node.0),
        Action::CatchUp(node) => format!("node {} carries out the rest", node.0),
        Action::Promote(node) => format!("node {} promotes the key", node.0),
        Action::Demote(node) => format!("node {} demotes the key", node.0),
        Action::Crash(node) => format!("node {} dies", node.0),
        Action::Rejoin(node) => format!("node {} starts anew, and is to join", node.0),
        Action::LoseLease(node) => format!("the lease of node {} ends", node.0),
        Action::Join => "a node is to join".into(),
        Action::Admit => "the node that joins has every hot key, and may answer".into(),
        Action::Adopt(node) => format!("node {} adopts view {}", node.0, before.newest().number.0),
        Action::AskSlow(kind, node) => {
            let kind = word(kind);
            format!("a {kind} is asked of a slow thread of node {}", node.0)
        }
        Action::Place => "keys are to be elsewhere".into(),
        Action::AllAct(node) => format!("all threads of node {} act on its view", node.0),
        Action::Scan(node) => format!("node {} looks for keys to send", node.0),
        Action::End(node) => format!("all that node {} sent has arrived", node.0),
        Action::Arrive(index) => {
            let moving = before.moving.get(index);
            format!("arrives: {}", moving.map_or(String::new(), show_moving))
        }
        Action::AskAgain(index) => format!("asked again: {}", parcel(index)),
        Action::Settle => "keys are where they belong".into(),
        Action::Sweep(node) => format!("node {} sweeps", node.0),
        Action::Depart(node) => format!("node {} departs", node.0),
    }
}

fn outcome(operation: &Operation, stage: Option<OperationStage>) -> String {
    let name = format!("{} {}", word(operation.kind), show_label(operation.label));
    match stage {
        None => format!("{name} is answered"),
        Some(OperationStage::Unknown) => format!("the client of {name} will not know"),
        Some(OperationStage::Copied(item, _)) => format!("{name} copies {}", show_item(item)),
        Some(OperationStage::Asked) => format!("{name} waits"),
    }
}

fn name(label: Label, world: &World) -> String {
    let kind = world.operation(label).map(|one| one.kind);
    format!("{} {}", kind.map_or("request", word), show_label(label))
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Get => "get",
        Kind::Set => "set",
        Kind::Append => "append",
        Kind::Delete => "delete",
    }
}

/// The node, and a letter for each request that it is asked.
fn show_label(label: Label) -> String {
    let letter = char::from(b'a' + label.index() % 26);
    format!("{}{letter}", label.session().0)
}

fn show_parcel(parcel: &Parcel, world: &World) -> String {
    let (from, to) = (parcel.from.0, parcel.to.0);
    match parcel.content {
        Content::Request(label, ..) => format!("{from}->{to} {}", name(label, world)),
        Content::MoveRequest(view) => format!("{from}->{to} asks for the key, view {}", view.0),
        Content::Message(message, item) => {
            let text = show_message(message);
            if message.kind.carries_value() {
                format!("{from}->{to} {text} value {}", show_value(item.value))
            } else {
                format!("{from}->{to} {text}")
            }
        }
    }
}

fn show_moving(moving: &Moving) -> String {
    let (from, to, view) = (moving.from.0, moving.to.0, moving.view.0);
    let item = moving.item.map_or("that there is none".into(), show_item);
    format!("{from}->{to} the key moves, view {view}: {item}")
}

fn show_message(message: Message) -> String {
    let name = match message.kind {
        MessageKind::Invalidate => "INV",
        MessageKind::Ack => "ACK",
        MessageKind::Validate => "VAL",
        MessageKind::Update => "UPDATE",
        MessageKind::Fill => "FILL",
        MessageKind::FillAck => "FILL-ACK",
        MessageKind::Activate => "ACTIVATE",
        MessageKind::Deactivate => "DEACTIVATE",
        MessageKind::DeactivateAck => "DEACTIVATE-ACK",
        MessageKind::Drop => "DROP",
        MessageKind::InvalidateUpdate => "INV(update)",
    };
    let about = match message.kind {
        MessageKind::FillAck | MessageKind::Activate => message.ts.0.to_string(),
        _ => show_ts(message.ts),
    };
    let (view, epoch) = (message.view.0, message.epoch.0);
    format!("{name} {about} view {view} epoch {epoch}")
}

fn show_ts(ts: Cas) -> String {
    let NodeId(node) = ts.writer().node();
    format!("{}.{node}", ts.clock())
}

fn show_item(item: Item) -> String {
    format!("{} at {}", show_value(item.value), show_ts(item.ts))
}

/// The requests that wrote it, the first one first.
fn show_value(value: Written) -> String {
    let written: Vec<String> = value.labels().map(show_label).collect();
    match value {
        Written::NOTHING => "nothing".into(),
        _ if written.is_empty() => "the first value".into(),
        _ => format!("[{}]", written.join(" ")),
    }
}
