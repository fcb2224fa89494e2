//! Requests of threads that are no workers, such as the one of memcached's datagrams.
//!
//! ```text
//!   thread --> mailbox of the worker that steps the key's stage --> here, machine, other node
//!      ^                                                                       |
//!      +------ woken <------ answers of the thread <------ done <--------------+
//! ```
//!
//! Such a thread passes no marks, so it must not use the store beside a machine: a worker does, as
//! for one of its own clients. The thread bounds how many requests it has under way, and every
//! request is answered.

use std::sync::OnceLock;

use curtail_codec::node::ItemRequest;
use curtail_runtime::Waker;
use curtail_types::{Cas, Exptime, Failure};

use crate::{
    native::Behind,
    node::{
        Cluster, NodeWorker,
        execute::execute,
        host::{NodeArrival, NodeContext, NodeHost},
        request_placement::{Way, route_of},
        stages::{Asker, Completed, End, Origin, stage_of},
    },
    sync::{Mutex, lock},
};

/// The threads that ask.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AskingThread {
    /// The one of memcached's datagrams.
    Memcached,
    /// The one that receives native datagrams.
    Native,
    /// The one of native streams.
    NativeStreams,
}

/// Which request of a thread waits for an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ThreadAsker {
    pub(crate) thread: AskingThread,
    /// The place of the thread where the request waits.
    pub(crate) place: u32,
    /// Which use of this place that is.
    pub(crate) serial: u64,
}

/// A request of a thread, on its way to a worker.
#[derive(Debug)]
pub(crate) struct ThreadRequest {
    asker: ThreadAsker,
    /// An [`ItemRequest`]; nothing if everything is to be flushed.
    bytes: Vec<u8>,
    /// The accepted writes that it waits for.
    behind: Option<Behind>,
    /// Memory for what it shows: answers take memory along, so requests bring some.
    spare: Vec<u8>,
}

/// Answers to a thread that asks, and how it is woken.
#[derive(Default)]
pub(super) struct ThreadAnswers {
    answers: Mutex<Vec<Completed>>,
    /// Those that the thread has taken, while it looks at them: the two lists keep their memory.
    taken: Mutex<Vec<Completed>>,
    waker: OnceLock<Waker>,
}

impl ThreadRequest {
    /// Whether it waits for accepted writes.
    fn waits(&mut self, cx: &mut NodeContext<'_>) -> bool {
        if cx.barrier.is_none() {
            return false;
        }
        let key = ItemRequest::decode(&self.bytes).map(|request| request.key);
        self.behind = key.and_then(|key| cx.accepted_before(key.bytes(), self.behind));
        self.behind.is_some()
    }
}

impl AskingThread {
    pub(super) const COUNT: usize = 3;
}

impl ThreadAnswers {
    /// Leaves an answer, and wakes the thread if it has taken all earlier ones.
    fn leave(&self, completed: Completed) {
        let mut answers = lock(&self.answers);
        let is_first = answers.is_empty();
        answers.push(completed);
        drop(answers);
        if let (true, Some(waker)) = (is_first, self.waker.get()) {
            waker.wake();
        }
    }
}

impl Cluster {
    fn answers_of(&self, thread: AskingThread) -> Option<&ThreadAnswers> {
        self.thread_answers.get(thread as usize)
    }

    /// Has `waker` wake a thread that asks, which calls this once.
    pub(crate) fn wake_with(&self, thread: AskingThread, waker: Waker) {
        if let Some(answers) = self.answers_of(thread) {
            let _ = answers.waker.set(waker);
        }
    }

    /// Has a worker execute a request. It is written to the first piece of memory, and the second
    /// is for what it shows; they come back with the answer
    /// ([`take_memory`](Completed::take_memory)).
    pub(crate) fn ask(
        &self,
        host: &dyn NodeHost,
        asker: ThreadAsker,
        request: &ItemRequest<'_>,
        [mut bytes, spare]: [Vec<u8>; 2],
    ) {
        bytes.clear();
        bytes.resize(ItemRequest::HEAD_BYTES_MAX + request.value.len(), 0);
        let length = request.encode(&mut bytes);
        bytes.truncate(length.unwrap_or_default());
        let slices = self.views.current().map(|now| {
            let slices = &now.slices;
            slices.slice_of(route_of(request.key.bytes()))
        });
        let worker = stage_of(slices.unwrap_or_default()) % self.workers.max(1);
        let asked = ThreadRequest {
            asker,
            bytes,
            behind: None,
            spare,
        };
        host.send(worker, NodeArrival::Asked(asked));
    }

    /// Has worker 0 order that all nodes flush; the answer has no outcome.
    pub(crate) fn ask_flush(&self, host: &dyn NodeHost, asker: ThreadAsker) {
        let asked = ThreadRequest {
            asker,
            bytes: Vec::new(),
            behind: None,
            spare: Vec::new(),
        };
        host.send(0, NodeArrival::Asked(asked));
    }

    /// Shows the thread the answers that are there; how many there are.
    pub(crate) fn take_thread_answers(
        &self,
        thread: AskingThread,
        each: &mut dyn FnMut(Completed),
    ) -> usize {
        let Some(of_thread) = self.answers_of(thread) else {
            return 0;
        };
        let mut taken = lock(&of_thread.taken);
        std::mem::swap(&mut *lock(&of_thread.answers), &mut *taken);
        let count = taken.len();
        taken.drain(..).for_each(each);
        count
    }
}

impl NodeWorker {
    /// Has the requests executed that threads left here in this turn.
    pub(super) fn answer_threads(&mut self, cx: &mut NodeContext<'_>) {
        let mut asked = std::mem::take(&mut self.inbox.of_threads);
        for mut one in asked.drain(..) {
            if one.waits(cx) {
                self.put_off.of_threads.push(one);
                continue;
            }
            let ThreadRequest {
                asker,
                bytes,
                spare,
                ..
            } = one;
            self.spare.give(spare);
            let asker = Asker::Thread(asker);
            if bytes.is_empty() {
                self.order_flush_for(cx, asker, Exptime(0));
                continue;
            }
            let origin = Origin {
                worker: self.index,
                asker,
            };
            self.execute_where_placed(cx, origin, bytes);
        }
        asked.append(&mut self.put_off.of_threads);
        self.inbox.of_threads = asked;
    }

    fn execute_where_placed(&mut self, cx: &mut NodeContext<'_>, origin: Origin, bytes: Vec<u8>) {
        let Some(request) = ItemRequest::decode(&bytes) else {
            let failed = Completed::failed(origin, bytes, Failure::OutOfService);
            return self.done.push(failed);
        };
        let (key, access) = (route_of(request.key.bytes()), request.operation.access());
        match self.way(key, access) {
            None => {
                let failed = Completed::failed(origin, bytes, Failure::OutOfService);
                self.done.push(failed);
            }
            Some(Way::At(to)) => {
                self.relay_item(cx, (origin, to), key, bytes);
            }
            Some(way) => {
                if let Some(bytes) = self.execute_beside(cx, origin, way, bytes) {
                    self.give_request(origin, key, access, bytes);
                }
            }
        }
    }

    /// Executes a request beside the machine of its slice, if `way` allows it; else, and if what
    /// was read may not be shown, returns it.
    pub(super) fn execute_beside(
        &mut self,
        cx: &mut NodeContext<'_>,
        origin: Origin,
        way: Way,
        bytes: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let request = ItemRequest::decode(&bytes)?;
        match way {
            // On a node versions are those of its machine.
            Way::Here if request.operation.new_cas().is_none() => {}
            Way::Looked(_) => {}
            _ => return Some(bytes),
        }
        // Beside the machine runs what no other node holds, and reads.
        let copies = u8::from(!request.operation.is_read());
        let hash = cx.store_cx.store.hash(request.key.bytes());
        let mut value = self.spare.take();
        let end = End::of(execute(cx, &request, hash, &mut value));
        if let Way::Looked(seen) = way
            && !self.cluster.is_as(route_of(request.key.bytes()), &seen)
        {
            self.spare.give(value);
            return Some(bytes);
        }
        self.done.push(Completed {
            origin,
            end,
            request: bytes,
            value,
            shown: Cas(0),
            copies,
        });
        None
    }

    /// Leaves an answer to the thread that asked.
    pub(super) fn answer_thread(&self, completed: Completed) {
        let thread = match completed.origin.asker {
            Asker::Thread(asker) => self.cluster.answers_of(asker.thread),
            _ => None,
        };
        if let Some(thread) = thread {
            thread.leave(completed);
        }
    }
}
