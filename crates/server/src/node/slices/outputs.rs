//! A step of a slice's machine, and what it asks for carried out, in its order.

use curtail_codec::{
    memcached::Carried,
    node::{self, Class, KeyMessage, Part},
};
use curtail_consistency::symmetric::{Access, Input, Mode, Output, Ticket, Value, Visibility};
use curtail_dispatch::SharedState;
use curtail_store::Image;
use curtail_types::{Cas, Delete, Key, KeyHash, Message, NodeSet, RouteHash};

use crate::node::slices::{Held, LARGE_BYTES, Relayed, RelayedKind, Tools};
use crate::{node::slice_jobs::End, worker::context::Kit};

/// What a message brought.
pub(super) struct Incoming<'a> {
    pub(super) image: Option<Image>,
    pub(super) value: &'a [u8],
}

impl Held {
    /// Tells the machine, and does what it wants.
    pub(super) fn step(
        &mut self,
        tools: &mut Tools<'_>,
        input: Input,
        subject: Option<RouteHash>,
        incoming: Option<&Incoming<'_>>,
    ) {
        self.tell(tools, input, subject);
        while let Some(output) = self.outputs.pop_front() {
            self.perform(tools, output, incoming);
        }
        if let Some(key) = subject
            && !self.knows(key)
        {
            self.forget(tools, key);
        }
    }

    fn tell(&mut self, tools: &mut Tools<'_>, input: Input, subject: Option<RouteHash>) {
        // What the machine knows it need not be told.
        let stored = subject
            .filter(|key| !self.knows(*key))
            .and_then(|key| self.stored(tools, key));
        let outputs = &mut self.outputs;
        let now = tools.kit.now.instant;
        self.machine
            .step(now, input, stored.unwrap_or_default(), |output| {
                outputs.push_back(output);
            });
    }

    fn perform(&mut self, tools: &mut Tools<'_>, output: Output, incoming: Option<&Incoming<'_>>) {
        match output {
            Output::Run { ticket, ts } => self.run(tools, ticket, ts),
            Output::Done { ticket } => {
                if let Some(waiting) = self.release(ticket) {
                    tools.complete(waiting, End::Done);
                }
            }
            Output::Forward { ticket, to, after } => {
                if let Some(waiting) = self.release(ticket) {
                    tools.spare.give(waiting.reply);
                    tools.elsewhere.push(Relayed {
                        origin: waiting.origin,
                        to,
                        key: waiting.key,
                        after,
                        bytes: waiting.bytes,
                        kind: RelayedKind::Item,
                    });
                }
            }
            Output::Refuse { ticket, reason } => {
                if let Some(waiting) = self.release(ticket) {
                    tools.spare.give(waiting.reply);
                    tools.refuse(
                        waiting.origin,
                        waiting.bytes,
                        crate::node::slices::context::text_of(reason),
                    );
                }
            }
            Output::Publish {
                key,
                ts,
                state,
                value,
            } => self.publish(
                tools,
                key,
                (ts, state),
                incoming.filter(|_| value == Value::Incoming),
            ),
            Output::Send {
                to, key, message, ..
            } => self.send(tools, to, key, message),
            Output::Moved { key, epoch, mode } => {
                match mode {
                    Mode::Cold => self.hot.remove(&key),
                    _ => self.hot.insert(key, (epoch, mode)),
                };
            }
        }
    }

    /// Carries a request out, now that it is its turn.
    fn run(&mut self, tools: &mut Tools<'_>, ticket: Ticket, ts: Cas) {
        self.see_version(tools, ts);
        let index = ticket.0 as usize;
        let Some(Some(waiting)) = self.waiting.get_mut(index) else {
            return;
        };
        let (key, access) = (waiting.key, waiting.access);
        let (Some(name), Some((carried, _))) =
            (self.names.get_mut(&key), Carried::read(&waiting.bytes))
        else {
            return;
        };
        let (kit, bench) = (&mut *tools.kit, &mut *tools.bench);
        waiting.reply.clear();
        if access == Access::Read {
            bench.run(kit, &carried, name.hash, &mut waiting.reply);
            if let Ok(key) = Key::new(&name.key) {
                waiting.ts = kit.version_of(key, name.hash).unwrap_or_default();
            }
            if let Some(waiting) = self.release(ticket) {
                tools.complete(waiting, End::Done);
            }
            return;
        }
        let before = tools.cluster.keys.look(key).state;
        let was_shared = name.shared;
        name.unsettle(&tools.cluster.keys, &kit.store, key);
        waiting.ts = ts;
        let Ok(key_bytes) = Key::new(&name.key) else {
            return;
        };
        let subject = (key_bytes, name.hash);
        let wrote = bench.write(kit, &carried, subject, ts, &mut waiting.reply);
        if wrote {
            if self.keeps_removed(tools, key) && self.stored(tools, key).is_none() {
                self.note_removed(tools, key, ts);
            }
            self.tell(tools, Input::Write { ticket, key }, Some(key));
            return;
        }
        if let Some(name) = self.names.get_mut(&key) {
            match (was_shared, before) {
                (false, _) => name.unshare(tools, key),
                (true, state) => tools.cluster.keys.settle(key, state),
            }
        }
        if let Some(waiting) = self.release(ticket) {
            tools.complete(waiting, End::Done);
        }
        self.tell(tools, Input::Decline { ticket, key }, Some(key));
    }

    fn publish(
        &mut self,
        tools: &mut Tools<'_>,
        key: RouteHash,
        (ts, state): (Cas, Visibility),
        incoming: Option<&Incoming<'_>>,
    ) {
        let Some(name) = self.names.get_mut(&key) else {
            return;
        };
        if state == Visibility::Unsettled || incoming.is_some() {
            name.unsettle(&tools.cluster.keys, &tools.kit.store, key);
        }
        let Ok(bytes) = Key::new(&name.key) else {
            return;
        };
        let kit = &mut *tools.kit;
        // On a node that does not hold it, an item stays only to be moved from there.
        let in_force = self.in_force.as_ref();
        let stays = in_force.is_none_or(|now| now.keeps(key, tools.cluster.me));
        let leaves = state == Visibility::Ordinary && !stays;
        let gone = leaves || state == Visibility::Gone;
        match incoming {
            Some(Incoming {
                image: Some(image),
                value,
            }) if !gone => {
                let image = Image { cas: ts, ..*image };
                kit.store
                    .put_image(&mut kit.writer, kit.now, bytes, name.hash, &image, value);
            }
            Some(Incoming { image: None, .. }) => kit.remove(bytes, name.hash),
            _ if gone => kit.remove(bytes, name.hash),
            _ => {}
        }
        let removes = matches!(incoming, Some(Incoming { image: None, .. }));
        match state {
            Visibility::Unsettled => {}
            Visibility::Valid => {
                name.unsettle(&tools.cluster.keys, &tools.kit.store, key);
                tools.cluster.keys.settle(key, SharedState::Valid);
            }
            Visibility::Ordinary | Visibility::Gone => name.unshare(tools, key),
        }
        if removes {
            self.note_removed(tools, key, ts);
        }
        if state != Visibility::Unsettled {
            self.take_late(tools, key, state);
        }
    }

    /// Sends a message about `key`, with what is stored if its kind carries a value.
    fn send(&self, tools: &mut Tools<'_>, to: NodeSet, key: RouteHash, message: Message) {
        let Some(name) = self.names.get(&key) else {
            return;
        };
        let Ok(bytes) = Key::new(&name.key) else {
            return;
        };
        let carries = message.kind.carries_value();
        let image = match carries {
            true => tools.bench.take_image(tools.kit, bytes, name.hash),
            false => None,
        };
        let image = image.map(|(image, value)| node::Image {
            client_flags: image.flags,
            expiry: image.expiry,
            stale: image.stale,
            won: image.won,
            value,
        });
        let large = image.is_some_and(|image| image.value.len() > LARGE_BYTES);
        let class = match (carries, large) {
            (false, _) => Class::Answer,
            (true, false) => Class::Demand,
            (true, true) => Class::LargeDemand,
        };
        let part = Part::Message(KeyMessage {
            route: key,
            message,
            key: bytes,
            image,
        });
        for to in to {
            // What finds no room is sent again by the machine.
            if let Some(to) = tools.links.endpoint(to) {
                let _ = tools.links.send(to, class, &part);
            }
        }
    }
}

impl Kit {
    /// Removes the item of `key`.
    pub(in crate::node) fn remove(&mut self, key: Key<'_>, hash: KeyHash) {
        let delete = Delete::default();
        self.store
            .delete(&mut self.writer, self.now, key, hash, &delete);
    }
}
