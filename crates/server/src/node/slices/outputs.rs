//! Steps a slice's machine, and performs its outputs in their order.

use curtail_codec::node::{self, Class, ItemRequest, KeyMessage, Part};
use curtail_consistency::symmetric::{Access, Input, Mode, Output, Ticket, Value, Visibility};
use curtail_dispatch::SharedState;
use curtail_store::Image;
use curtail_types::{Cas, Key, Message, NodeSet, RouteHash};

use crate::node::{
    execute::execute,
    slice_jobs::End,
    slices::{Held, LARGE_BYTES, Relayed, RelayedKind, SliceContext, context::failure_of},
};

/// What a message brought.
pub(super) struct Incoming<'a> {
    pub(super) image: Option<Image>,
    pub(super) value: &'a [u8],
}

impl Held {
    /// Passes an input to the machine, and performs its outputs.
    pub(super) fn step(
        &mut self,
        slice_cx: &mut SliceContext<'_, '_>,
        input: Input,
        subject: Option<RouteHash>,
        incoming: Option<&Incoming<'_>>,
    ) {
        self.tell(slice_cx, input, subject);
        while let Some(output) = self.outputs.pop_front() {
            self.perform(slice_cx, output, incoming);
        }
        if let Some(key) = subject
            && !self.knows(key)
        {
            self.forget(slice_cx, key);
        }
    }

    fn tell(
        &mut self,
        slice_cx: &mut SliceContext<'_, '_>,
        input: Input,
        subject: Option<RouteHash>,
    ) {
        // What the machine knows it need not be told.
        let stored = subject
            .filter(|key| !self.knows(*key))
            .and_then(|key| self.stored(slice_cx, key));
        let outputs = &mut self.outputs;
        let now = slice_cx.cx.store_cx.now.instant;
        self.machine
            .step(now, input, stored.unwrap_or_default(), |output| {
                outputs.push_back(output);
            });
    }

    fn perform(
        &mut self,
        slice_cx: &mut SliceContext<'_, '_>,
        output: Output,
        incoming: Option<&Incoming<'_>>,
    ) {
        match output {
            Output::Run { ticket, ts } => self.run(slice_cx, ticket, ts),
            Output::Done { ticket } => {
                if let Some(waiting) = self.release(ticket) {
                    slice_cx.complete(waiting);
                }
            }
            Output::Forward { ticket, to, after } => {
                if let Some(waiting) = self.release(ticket) {
                    slice_cx.spare.give(waiting.value);
                    slice_cx.elsewhere.push(Relayed {
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
                    slice_cx.spare.give(waiting.value);
                    slice_cx.refuse(waiting.origin, waiting.bytes, failure_of(reason));
                }
            }
            Output::Publish {
                key,
                ts,
                state,
                value,
            } => self.publish(
                slice_cx,
                key,
                (ts, state),
                incoming.filter(|_| value == Value::Incoming),
            ),
            Output::Send {
                to, key, message, ..
            } => self.send(slice_cx, to, key, message),
            Output::Moved { key, epoch, mode } => {
                match mode {
                    Mode::Cold => self.hot.remove(&key),
                    _ => self.hot.insert(key, (epoch, mode)),
                };
            }
        }
    }

    /// Executes a request, now that it is its turn.
    fn run(&mut self, slice_cx: &mut SliceContext<'_, '_>, ticket: Ticket, ts: Cas) {
        self.see_version(slice_cx, ts);
        let index = ticket.0 as usize;
        let Some(Some(waiting)) = self.waiting.get_mut(index) else {
            return;
        };
        let (key, access) = (waiting.key, waiting.access);
        let (Some(name), Some(request)) = (
            self.names.get_mut(&key),
            ItemRequest::decode(&waiting.bytes),
        ) else {
            return;
        };
        let (cx, execute_cx) = (&mut *slice_cx.cx, &mut *slice_cx.execute_cx);
        let hash = name.hash;
        waiting.value.clear();
        if access == Access::Read {
            waiting.end = End::of(execute(cx, &request, hash, &mut waiting.value));
            waiting.ts = cx
                .store_cx
                .version_of(request.key, hash)
                .unwrap_or_default();
            if let Some(waiting) = self.release(ticket) {
                slice_cx.complete(waiting);
            }
            return;
        }
        let before = slice_cx.cluster.keys.look(key).state;
        let was_shared = name.shared;
        name.unsettle(&slice_cx.cluster.keys, &cx.store_cx.store, key);
        waiting.ts = ts;
        let (ended, wrote) = execute_cx.write(cx, &request, (hash, ts), &mut waiting.value);
        waiting.end = End::of(ended);
        if wrote {
            if self.keeps_removed(slice_cx, key) && self.stored(slice_cx, key).is_none() {
                self.note_removed(slice_cx, key, ts);
            }
            self.tell(slice_cx, Input::Write { ticket, key }, Some(key));
            return;
        }
        if let Some(name) = self.names.get_mut(&key) {
            match (was_shared, before) {
                (false, _) => name.unshare(slice_cx, key),
                (true, state) => slice_cx.cluster.keys.settle(key, state),
            }
        }
        if let Some(waiting) = self.release(ticket) {
            slice_cx.complete(waiting);
        }
        self.tell(slice_cx, Input::Decline { ticket, key }, Some(key));
    }

    fn publish(
        &mut self,
        slice_cx: &mut SliceContext<'_, '_>,
        key: RouteHash,
        (ts, state): (Cas, Visibility),
        incoming: Option<&Incoming<'_>>,
    ) {
        let Some(name) = self.names.get_mut(&key) else {
            return;
        };
        if state == Visibility::Unsettled || incoming.is_some() {
            name.unsettle(&slice_cx.cluster.keys, &slice_cx.cx.store_cx.store, key);
        }
        let Ok(bytes) = Key::new(&name.key) else {
            return;
        };
        let cx = &mut *slice_cx.cx;
        // On a node that does not hold it, an item stays only to be moved from there.
        let in_force = self.in_force.as_ref();
        let stays = in_force.is_none_or(|now| now.keeps(key, slice_cx.cluster.me));
        let leaves = state == Visibility::Ordinary && !stays;
        let gone = leaves || state == Visibility::Gone;
        match incoming {
            Some(Incoming {
                image: Some(image),
                value,
            }) if !gone => {
                let image = Image { cas: ts, ..*image };
                cx.store_cx.put_image(bytes, name.hash, &image, value);
            }
            Some(Incoming { image: None, .. }) => cx.store_cx.remove(bytes, name.hash),
            _ if gone => cx.store_cx.remove(bytes, name.hash),
            _ => {}
        }
        let removes = matches!(incoming, Some(Incoming { image: None, .. }));
        match state {
            Visibility::Unsettled => {}
            Visibility::Valid => {
                name.unsettle(&slice_cx.cluster.keys, &slice_cx.cx.store_cx.store, key);
                slice_cx.cluster.keys.settle(key, SharedState::Valid);
            }
            Visibility::Ordinary | Visibility::Gone => name.unshare(slice_cx, key),
        }
        if removes {
            self.note_removed(slice_cx, key, ts);
        }
        if state != Visibility::Unsettled {
            self.take_late(slice_cx, key, state);
        }
    }

    /// Sends a message about `key`, with what is stored if its kind carries a value.
    fn send(
        &self,
        slice_cx: &mut SliceContext<'_, '_>,
        to: NodeSet,
        key: RouteHash,
        message: Message,
    ) {
        let Some(name) = self.names.get(&key) else {
            return;
        };
        let Ok(bytes) = Key::new(&name.key) else {
            return;
        };
        let carries = message.kind.carries_value();
        let image = match carries {
            true => slice_cx
                .execute_cx
                .take_image(slice_cx.cx, bytes, name.hash),
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
            if let Some(to) = slice_cx.links.endpoint(to) {
                let _ = slice_cx.links.send(to, class, &part);
            }
        }
    }
}
