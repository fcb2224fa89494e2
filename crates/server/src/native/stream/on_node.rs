//! Streams at a node of a cluster: a complete request is given to the node, and the stream waits
//! for its end, which it answers as a datagram would be.

use curtail_codec::native::{Head, Nack, NackReason, Opcode, Reply, Request};
use curtail_types::Key;

use crate::{
    completion::{AskingThread, ThreadAsker, Told},
    limits::NATIVE_UNDER_WAY_MAX,
    native::{
        Host, Native,
        counters::NativeCounts,
        on_node::{Ended, asked_of},
        stream::decode::{INPUT_BYTES, Line, Progress, Whole, push},
    },
    store_context::StoreContext,
};

impl Line {
    /// Has the node execute the request that is complete, if there is one that it was not asked
    /// yet; `place` is this stream's.
    pub(super) fn ask_node(
        &mut self,
        (host, native): (&dyn Host, &Native),
        store_cx: &StoreContext,
        (place, serial): (u32, &mut u32),
    ) {
        let Progress::Waiting(whole) = &mut self.state else {
            return;
        };
        if whole.asked.is_some() {
            return;
        }
        *serial = serial.wrapping_add(1);
        let name = u64::from(*serial) << 32 | u64::from(place);
        whole.asked = Some(name);
        if let Some(reservation) = whole.reservation.take() {
            whole.value.clear();
            reservation.read(&mut whole.value);
        }
        let request = Request {
            head: whole.head,
            key: key_of(&whole.head, &whole.key),
            value: &whole.value,
        };
        let asked = asked_of(&request, store_cx.now.unix_ns);
        if asked.is_none() {
            native.log_flush(store_cx.now, &whole.head);
        }
        let asker = ThreadAsker {
            thread: AskingThread::NativeStreams,
            name,
        };
        host.ask_node(asker, asked.as_ref(), <[Vec<u8>; 2]>::default());
    }

    /// Answers the request that the node was asked under this name.
    pub(super) fn take_from_node(
        &mut self,
        native: &Native,
        counts: &mut NativeCounts,
        name: u64,
        (told, copies): (Told<'_>, u8),
    ) {
        let is_it = |whole: &Whole| whole.asked == Some(name);
        if !matches!(&self.state, Progress::Waiting(whole) if is_it(whole)) {
            return;
        }
        let Progress::Waiting(whole) = std::mem::replace(&mut self.state, Progress::Between) else {
            return;
        };
        let Whole {
            head,
            ticket,
            value: memory,
            ..
        } = whole;
        if memory.capacity() <= INPUT_BYTES {
            self.values = memory;
        }
        let (done, value) = match native.ended(counts, (&head, ticket), (told, copies)) {
            Ended::Done(done, value) => (done, value),
            Ended::NotReady => {
                let nack = Reply::Nack(Nack {
                    echo: head.echo(),
                    place: native.node_place(0, NATIVE_UNDER_WAY_MAX as u32),
                    reason: NackReason::NotReady,
                });
                return push(&mut self.output, Some(&nack));
            }
            // Its client finds the request indeterminate, and need not wait for that.
            Ended::Unknown => {
                self.closing = true;
                return;
            }
        };
        native.commit_done(&head, ticket, done);
        match head.opcode {
            Opcode::Get | Opcode::GetTouch => self.push_value(native, &head, &done, value),
            _ => self.push_result(native, &head, &done),
        }
    }
}

fn key_of<'k>(head: &Head, key: &'k [u8]) -> Option<Key<'k>> {
    Key::new(key.get(..usize::from(head.key_bytes))?).ok()
}
