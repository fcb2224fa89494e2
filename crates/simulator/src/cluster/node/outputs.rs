//! Steps of the machines, and what they ask for, in the order in which they ask.

use curtail_consistency::symmetric::{Input, Output, Value, Visibility, is_nothing};
use curtail_types::{Cas, RouteHash};

use super::{Deed, Node, slice_of};
use crate::cluster::{
    mutant::Mutant,
    packet::{Item, Packet},
};

impl Node<'_> {
    /// Steps the key's machine.
    pub(super) fn tell(&mut self, key: usize, input: Input) {
        self.step(slice_of(key), input, Item::default());
    }

    /// Steps a machine and does what it says; `incoming` came with the input.
    pub(super) fn step(&mut self, slice: usize, input: Input, incoming: Item) {
        let stored = match key_of(&input) {
            Some(route) => self.stored(self.keys.index_of(route)),
            None => Cas(0),
        };
        let now = self.clock.instant(self.now);
        let mut outputs = std::mem::take(&mut self.outputs);
        self.machines[slice].step(now, input, stored, |output| outputs.push(output));
        self.trace_step(input, incoming, &outputs);
        for output in outputs.drain(..) {
            self.carry_out(output, incoming);
        }
        self.outputs = outputs;
    }

    /// The version that the machine is told is there. What a promotion called nothing is forgotten
    /// with the promotion, as on a server, which keeps no version of nothing at all: no other
    /// holder need have heard of it, so that its next write may have an earlier one.
    fn stored(&self, key: usize) -> Cas {
        let item = self.items[key];
        match self.index[key] {
            None if self.is_promise(item) => self.deleted[key],
            _ => item.version,
        }
    }

    /// Shows what a machine was told and what it said, if somebody wants to see this key.
    fn trace_step(&self, input: Input, incoming: Item, outputs: &[Output]) {
        let Some(key) = self.run.trace else {
            return;
        };
        let route = self.keys.route(key);
        let about = |output: &Output| match *output {
            Output::Publish { key, .. } | Output::Send { key, .. } | Output::Moved { key, .. } => {
                key == route
            }
            _ => key_of(&input).is_some(),
        };
        let outputs: Vec<&Output> = outputs.iter().filter(|output| about(output)).collect();
        let is_nothing = key_of(&input).is_none() && outputs.is_empty();
        if is_nothing || key_of(&input).is_some_and(|key| key != route) {
            return;
        }
        let stored = self.items[key];
        self.trace(key, || {
            format!("{input:?} with {incoming:?} on {stored:?} -> {outputs:?}")
        });
    }

    /// Shows something else that happens to the key that somebody wants to see.
    pub(super) fn trace(&self, key: usize, what: impl FnOnce() -> String) {
        if self.run.trace == Some(key) {
            let (now, node, view) = (self.now, self.me.0, self.view.number.0);
            eprintln!("{now} node {node} view {view}: {}", what());
        }
    }

    fn carry_out(&mut self, output: Output, incoming: Item) {
        match output {
            Output::Run { ticket, ts } => self.run(ticket, ts),
            Output::Done { ticket } => self.done(ticket),
            Output::Forward { ticket, to, after } => self.forward(ticket, to, after),
            Output::Refuse { ticket, reason } => self.refused(ticket, reason),
            Output::Publish {
                key,
                ts,
                state,
                value,
            } => {
                let item = (value == Value::Incoming).then_some(Item {
                    version: ts,
                    ..incoming
                });
                self.publish((ts, state), (self.keys.index_of(key), item));
            }
            Output::Send {
                to,
                key,
                message,
                value,
            } => {
                let key = self.keys.index_of(key);
                let item = match value {
                    Value::Incoming => incoming,
                    Value::Stored => self.items[key],
                };
                let is_other = item.version != message.ts && !self.is_promise(item);
                if message.kind.carries_value() && is_other {
                    self.broken("a message carries the value of another write");
                }
                let item = Item {
                    version: message.ts,
                    ..item
                };
                for to in to {
                    self.send(to, Packet::Key { key, message, item });
                }
            }
            Output::Moved { key, mode, .. } => {
                let key = self.keys.index_of(key);
                self.modes[key] = mode;
                self.deeds.push(Deed::Moved { key, mode });
            }
        }
    }

    fn publish(&mut self, (ts, state): (Cas, Visibility), (key, item): (usize, Option<Item>)) {
        let before = self.items[key];
        let unknown = before.version == Cas(0) && self.run.mutant == Some(Mutant::DropUnknown);
        if let Some(item) = item.filter(|_| !unknown) {
            self.items[key] = item;
            self.note_deleted(key);
        }
        let late = self.run.mutant == Some(Mutant::LatePublish);
        if late && state == Visibility::Unsettled && self.index[key] == Some(true) {
            self.stale[key] = Some((self.now + STALE_NS, before));
        }
        let is_other = self.items[key].version != ts && !self.is_promise(self.items[key]);
        if state == Visibility::Valid && is_other && !unknown {
            self.broken("another write is shown than the one that is stored");
        }
        if state == Visibility::Valid && self.index[key] != Some(true) {
            self.deeds.push(Deed::Shown { key });
        }
        self.index[key] = match state {
            Visibility::Valid => Some(true),
            Visibility::Unsettled => Some(false),
            Visibility::Ordinary | Visibility::Gone => None,
        };
        let leaves = state == Visibility::Ordinary && !self.keeps(key);
        if leaves || state == Visibility::Gone {
            self.forget_item(key);
        }
        if state == Visibility::Gone {
            self.await_again(key);
        }
    }

    /// Whether it is nothing, of a version that nobody wrote: one that a promotion gave.
    pub(super) fn is_promise(&self, item: Item) -> bool {
        self.run.replicas > 1 && item.value.is_none() && is_nothing(item.version)
    }
}

fn key_of(input: &Input) -> Option<RouteHash> {
    match *input {
        Input::Request { key, .. }
        | Input::Write { key, .. }
        | Input::Decline { key, .. }
        | Input::Message { key, .. }
        | Input::Promote { key, .. }
        | Input::Demote { key }
        | Input::Placed { key, .. }
        | Input::Seen { key, .. } => Some(key),
        Input::Tick | Input::View(_) => None,
    }
}

/// How long the mutant's readers are behind.
const STALE_NS: u64 = 300_000;
