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
use curtail_types::Exptime;

use crate::{
    completion::{AskingThread, ThreadAsker},
    node::{
        Cluster, NodeWorker,
        host::{NodeArrival, NodeHost},
        request_placement::route_of,
        requests_asked::Asked,
        stages::{Asker, Completed, stage_of, written},
    },
    sync::{Mutex, lock},
};

/// Answers to a thread that asks, and how it is woken.
#[derive(Default)]
pub(super) struct ThreadAnswers {
    answers: Mutex<Vec<Completed>>,
    /// Those that the thread has taken, while it looks at them: the two lists keep their memory.
    taken: Mutex<Vec<Completed>>,
    waker: OnceLock<Waker>,
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

    /// Has a worker execute a request; without one, has worker 0 order that all nodes flush, of
    /// which the answer has no outcome. The request is written to the first piece of memory, and
    /// the second is for what it shows; they come back with the answer
    /// ([`take_memory`](Completed::take_memory)).
    pub(crate) fn ask(
        &self,
        host: &dyn NodeHost,
        asker: ThreadAsker,
        request: Option<&ItemRequest<'_>>,
        [mut bytes, spare]: [Vec<u8>; 2],
    ) {
        let mut worker = 0;
        if let Some(request) = request {
            bytes = written(request, bytes);
            let slices = self.views.current().map(|now| {
                let slices = &now.slices;
                slices.slice_of(route_of(request.key.bytes()))
            });
            worker = stage_of(slices.unwrap_or_default()) % self.workers.max(1);
        }
        let asked = Asked {
            asker: Asker::Thread(asker),
            flush: request.is_none().then_some(Exptime(0)),
            behind: None,
            bytes,
        };
        host.send(worker, NodeArrival::Asked(asked, spare));
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
