//! The mailbox of a worker: messages of other threads, and how they wake it.
//!
//! Everything that moves between workers moves as a value through here: connections, and delegated
//! batches of requests. A worker looks when its bell was rung, at the beginning of a turn; it is
//! woken by the kernel only if it sleeps. The lock is held for a push or for taking the whole list,
//! so nobody waits behind work.

use std::sync::Arc;

use curtail_dispatch::Doorbell;
use curtail_runtime::{PeerAddress, Stream, Waker};
use curtail_storage::ReadAnswer;

use crate::{
    connection::Connection,
    node::host::NodeArrival,
    request::delegated_batch::{DelegatedBatch, Sealed},
    sync::{Mutex, lock},
};

/// Arrivals that wait for the next one: a wake costs the worker two switches of threads where it
/// shares a processor with the thread that sends.
const GATHERED_MAX: usize = 4;

/// One worker's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    left: Mutex<Left>,
    pub(crate) bell: Doorbell,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Left {
    arrivals: Vec<Arrival>,
    /// What nobody waits for.
    resting: Vec<Arrival>,
    /// The owner does wait for the next of these.
    is_expected: bool,
}

/// Something that was left.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A new client.
    Newcomer(Newcomer),
    /// A connection with a large request, for a large worker.
    Borrowed(Box<Connection>),
    /// A connection that is to belong to this worker.
    Moved(Box<Connection>),
    /// A connection is back in its slot; whether it was watched there all the time.
    Returned(usize, Box<Connection>, bool),
    /// The connection that was lent out of this slot is closed.
    Lost(usize),
    /// Requests to be carried out.
    DelegatedBatch(Arc<Sealed>),
    /// A delegated batch of ours, carried out.
    Answer(Box<DelegatedBatch>),
    /// Something for this worker's part of the node.
    Node(NodeArrival),
    /// A read of the disk that this worker asked for.
    Disk(Box<ReadAnswer>),
    /// Memory to be freed: a large worker, which may lose its processor for long at any moment,
    /// would hold the allocator's lock meanwhile.
    Spent(Vec<Box<[u8]>>),
    /// A lease was refused: the client that holds most without reading is to be closed.
    Relieve,
}

/// A connection on its way from the acceptor to its worker.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) stream: Stream,
    pub(crate) peer: PeerAddress,
    pub(crate) listener: Arc<str>,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            left: Mutex::default(),
            bell: Doorbell::new(),
            waker,
        }
    }

    /// Leaves something, and wakes the worker if it sleeps.
    pub(crate) fn send(&self, arrival: Arrival) {
        lock(&self.left).arrivals.push(arrival);
        self.ring();
    }

    /// Leaves something that has time until the worker wakes for anything else; unless it said that
    /// it waits.
    pub(crate) fn send_resting(&self, arrival: Arrival) {
        let mut left = lock(&self.left);
        left.resting.push(arrival);
        let is_expected = std::mem::take(&mut left.is_expected);
        drop(left);
        match is_expected {
            true => self.ring(),
            false => self.bell.tap(),
        }
    }

    /// Leaves something after which more is left soon by [`send`](Self::send): the worker is woken
    /// only if enough has gathered.
    pub(crate) fn send_gathered(&self, arrival: Arrival) {
        let mut left = lock(&self.left);
        left.arrivals.push(arrival);
        let is_enough = left.arrivals.len() >= GATHERED_MAX;
        drop(left);
        match is_enough {
            true => self.ring(),
            false => self.bell.tap(),
        }
    }

    /// Whether something is here that nobody was to wait for. If not, the worker is woken for the
    /// next.
    pub(crate) fn expect(&self) -> bool {
        let mut left = lock(&self.left);
        left.is_expected = left.resting.is_empty();
        !left.is_expected
    }

    /// Takes all that was left, in order, into `list`, which is empty.
    pub(crate) fn take(&self, list: &mut Vec<Arrival>) {
        let mut left = lock(&self.left);
        std::mem::swap(&mut left.arrivals, list);
        list.append(&mut left.resting);
    }

    /// How much is waiting.
    pub(crate) fn depth(&self) -> usize {
        lock(&self.left).arrivals.len()
    }

    fn ring(&self) {
        if self.bell.ring() {
            self.wake();
        }
    }

    /// Wakes the worker although nothing was left.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use curtail_runtime::{Events, Poller};

    use super::*;
    use crate::worker::WAKER;

    /// Goal: arrivals that are followed by others wake a sleeping worker once for all, at the last
    /// one or when enough have gathered, and one that is awake finds them. Method: a bell whose
    /// owner says that it sleeps, and a look whether the poller was woken.
    #[test]
    fn gathered_arrivals_wake_once() {
        let mut poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(4);
        let mail = Mailbox::new(poller.waker(WAKER).unwrap());
        let mut was_woken = || {
            poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
            !events.is_empty()
        };
        let mut list = Vec::new();
        let mut answers = || {
            mail.bell.wake();
            list.clear();
            assert!(mail.bell.answer());
            mail.take(&mut list);
            list.len()
        };
        assert!(mail.bell.try_sleep());
        mail.send_gathered(Arrival::Lost(0));
        assert!(!was_woken());
        mail.send(Arrival::Lost(1));
        assert!(was_woken());
        assert_eq!(answers(), 2);
        assert!(mail.bell.try_sleep());
        for number in 1..=GATHERED_MAX {
            mail.send_gathered(Arrival::Lost(number));
            assert_eq!(was_woken(), number == GATHERED_MAX);
        }
        assert_eq!(answers(), GATHERED_MAX);
        mail.send_gathered(Arrival::Lost(0));
        assert!(!mail.bell.try_sleep() && !was_woken());
        assert_eq!(answers(), 1);
    }
}
