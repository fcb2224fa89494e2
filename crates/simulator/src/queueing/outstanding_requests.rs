//! Outstanding requests, and the queues they wait in.

use std::collections::VecDeque;

use curtail_dispatch::{Access, Ticket, pull_baselines::Source};

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// When it was sent.
    pub(crate) at: u64,
    /// What is added to the time from `at` to the reply: what went at once over an idle link.
    pub(crate) extra: u32,
    /// When it came to a receive queue.
    pub(crate) delivered: u64,
    /// Since when it is certain which core serves it.
    pub(crate) bound: u64,
    /// Its key's rank or hash.
    pub(crate) key: u64,
    pub(crate) partition: u32,
    pub(crate) value_bytes: u32,
    /// Of a large value that is moved part by part, what is not moved.
    pub(crate) bytes_left: u32,
    /// Bytes of large values that its core had moved part by part when it came.
    pub(crate) moved_before: u64,
    /// The queue that it was sent to.
    pub(crate) to: Source,
    /// Where it is on its way between two cores.
    pub(crate) way: Way,
    /// The claim of its partition, where claims are given back.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) write: bool,
    pub(crate) large: bool,
    pub(crate) measured: bool,
    /// Its core was credited for it when it was put aside.
    pub(crate) deferred: bool,
}

/// Whether a request is served by the core that it came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Way {
    Direct,
    /// It was handed to the core that holds its partition.
    Delegated,
    /// It was carried out there; what is left is to answer.
    Returned,
}

/// All requests under way, by number.
#[derive(Debug)]
pub(crate) struct Slab<R = Request> {
    requests: Vec<R>,
    free: Vec<u32>,
}

/// All queues. A ring counts the request of it that is being served, so that its core is seen to
/// be in large mode.
#[derive(Debug)]
pub(crate) struct Queues {
    rx: Vec<VecDeque<u32>>,
    rings: Vec<VecDeque<u32>>,
    software: Vec<VecDeque<u32>>,
    shared: VecDeque<u32>,
    /// By core: requests of its ring that are being served, or whose replies have not left.
    pub(crate) in_service: Vec<usize>,
    /// Requests in all queues.
    waiting: usize,
}

impl Request {
    pub(crate) fn access(&self) -> Access {
        match self.write {
            true => Access::Write,
            false => Access::Read,
        }
    }
}

impl<R> Default for Slab<R> {
    fn default() -> Self {
        let (requests, free) = (Vec::new(), Vec::new());
        Self { requests, free }
    }
}

impl<R: Copy> Slab<R> {
    #[inline]
    pub(crate) fn insert(&mut self, request: R) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> R {
        self.free.push(id);
        self.requests[id as usize]
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> &R {
        &self.requests[id as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> &mut R {
        &mut self.requests[id as usize]
    }

    /// All requests, also those that were removed and not replaced.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &R> {
        self.requests.iter()
    }

    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.requests.len() - self.free.len()
    }
}

impl Queues {
    pub(crate) fn new(cores: usize) -> Self {
        let empty = || vec![VecDeque::new(); cores];
        Self {
            rx: empty(),
            rings: empty(),
            software: empty(),
            shared: VecDeque::new(),
            in_service: vec![0; cores],
            waiting: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, to: Source, id: u32) {
        self.of(to).push_back(id);
        self.waiting += 1;
    }

    /// Puts a request before all that wait in the queue.
    pub(crate) fn push_first(&mut self, to: Source, id: u32) {
        self.of(to).push_front(id);
        self.waiting += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self, from: Source) -> Option<u32> {
        let id = self.of(from).pop_front()?;
        self.waiting -= 1;
        Some(id)
    }

    /// Requests that some core could take.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    #[inline]
    pub(crate) fn depth(&self, source: Source) -> usize {
        match source {
            Source::Rx(core) => self.rx[core.index()].len(),
            Source::Ring(core) => self.rings[core.index()].len() + self.in_service[core.index()],
            Source::Software(core) => self.software[core.index()].len(),
            Source::Shared => self.shared.len(),
        }
    }

    /// Whether one of the first `depth` requests that a core received writes `key`.
    pub(crate) fn has_write(&self, slab: &Slab, core: usize, key: u64, depth: usize) -> bool {
        let mut next = self.rx[core].iter().take(depth).map(|id| slab.get(*id));
        next.any(|request| request.write && request.key == key)
    }

    #[inline]
    fn of(&mut self, source: Source) -> &mut VecDeque<u32> {
        match source {
            Source::Rx(core) => &mut self.rx[core.index()],
            Source::Ring(core) => &mut self.rings[core.index()],
            Source::Software(core) => &mut self.software[core.index()],
            Source::Shared => &mut self.shared,
        }
    }
}
