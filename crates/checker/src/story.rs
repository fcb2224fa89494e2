//! A step of a counterexample as a person reads it.

use core::fmt::Write;

use curtail_types::{Cas, Message, MessageKind, NodeId};

use crate::cluster::Action;
use crate::judge::Written;
use crate::setup::{Kind, Setup};
use crate::world::{Content, Item, OperationStage, Parcel, World, node_of};

/// What happens in a step, and what is different after it.
pub(crate) fn tell(setup: &Setup, before: &World, action: &Action, after: &World) -> String {
    let mut text = what(setup, before, action);
    for (number, (old, new)) in before.operations.iter().zip(&after.operations).enumerate() {
        if old.stage != new.stage {
            let _ = write!(text, "; {}", outcome(setup, number, after));
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
    for parcel in &after.parcels {
        let count = |world: &World| world.parcels.iter().filter(|one| *one == parcel).count();
        if count(after) > count(before) {
            let _ = write!(text, "; sends {}", show_parcel(setup, parcel));
        }
    }
    text
}

fn what(setup: &Setup, before: &World, action: &Action) -> String {
    let parcel = |index: usize| {
        let parcel = before.parcels.get(index);
        parcel.map_or(String::new(), |parcel| show_parcel(setup, parcel))
    };
    match *action {
        Action::Ask(number, node) => format!("{} is asked of node {}", name(setup, number), node.0),
        Action::Look(number) => format!("the reader of {} looks again", name(setup, number)),
        Action::Deliver(index) => format!("arrives: {}", parcel(index)),
        Action::Duplicate(index) => format!("arrives, and will again: {}", parcel(index)),
        Action::Lose(index) => format!("is lost: {}", parcel(index)),
        Action::Tick(node) => format!("a timer of node {} rings", node.0),
        Action::CatchUp(node) => format!("node {} carries out the rest", node.0),
        Action::Promote(node) => format!("node {} promotes the key", node.0),
        Action::Demote(node) => format!("node {} demotes the key", node.0),
        Action::Crash(node) => format!("node {} dies", node.0),
        Action::LoseLease(node) => format!("the lease of node {} ends", node.0),
        Action::Join => "a node is to join".into(),
        Action::Admit => "the node that joins has every hot key, and may answer".into(),
        Action::Adopt(node) => format!("node {} adopts view {}", node.0, before.newest().number.0),
    }
}

fn outcome(setup: &Setup, number: usize, world: &World) -> String {
    let name = name(setup, number);
    match world.operations.get(number).map(|one| one.stage) {
        Some(OperationStage::Answered) => format!("{name} is answered"),
        Some(OperationStage::Unknown) => format!("the client of {name} will not know"),
        Some(OperationStage::Copied(item, _)) => format!("{name} copies {}", show_item(item)),
        Some(OperationStage::Asked) => format!("{name} waits"),
        Some(OperationStage::NotAsked) | None => String::new(),
    }
}

fn name(setup: &Setup, number: usize) -> String {
    let kind = match setup.operations.get(number) {
        Some(Kind::Get) => "get",
        Some(Kind::Set) => "set",
        Some(Kind::Append) => "append",
        None => "request",
    };
    format!("{kind} {}", number + 1)
}

fn show_parcel(setup: &Setup, parcel: &Parcel) -> String {
    let (from, to) = (parcel.from.0, parcel.to.0);
    match parcel.content {
        Content::Request(number, _) => format!("{from}->{to} {}", name(setup, number)),
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
    let NodeId(node) = node_of(ts.writer());
    format!("{}.{node}", ts.clock())
}

fn show_item(item: Item) -> String {
    format!("{} at {}", show_value(item.value), show_ts(item.ts))
}

/// The requests that wrote it, the first one first.
fn show_value(value: Written) -> String {
    let digits = (0..16).rev().map(|place| value.0 >> (4 * place) & 15);
    let written: Vec<String> = digits
        .skip_while(|digit| *digit == 0)
        .map(|digit| digit.to_string())
        .collect();
    if written.is_empty() {
        "the first value".into()
    } else {
        format!("[{}]", written.join(" "))
    }
}
