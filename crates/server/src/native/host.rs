//! The interface through which the native path uses its server.

use std::io;

use curtail_codec::node::ItemRequest;
use curtail_runtime::{Clock, Waker};
use curtail_types::{Now, RouteHash};

use crate::completion::{AskingThread, ThreadAsker, Told};

/// Is shown how a request of this name ended, and how many nodes in sync have what that shows (0 if
/// it is not known).
pub(crate) type ShowsEnded<'a> = dyn FnMut(u64, Told<'_>, u8) + 'a;

/// The server, as the native path sees it.
pub(crate) trait Host: Sync {
    /// The time, as items see it.
    fn now(&self) -> Now;

    /// The clock of this machine.
    fn clock(&self) -> Clock;

    /// Whether the server stops.
    fn is_stopping(&self) -> bool;

    /// Whether threads may look again before they sleep.
    fn polls(&self) -> bool;

    /// A connection could not be accepted.
    fn note_accept_error(&self, error: &io::Error);

    /// The workers that have connections.
    fn workers(&self) -> usize;

    /// Wakes a worker if it sleeps; whether it did.
    fn wake_worker(&self, worker: usize) -> bool;

    /// Has `waker` wake a thread that asks the node.
    fn wake_with(&self, thread: AskingThread, waker: Waker);

    /// How long this server may still accept writes, as far as it knows.
    fn accepts_ns_left(&self) -> u64;

    /// Whether a node of a cluster may accept a write of this key now: no other node holds its
    /// slice, and no reader can miss what is accepted.
    fn may_accept(&self, key: RouteHash) -> bool;

    /// Has the node execute a request, with memory for it and for what it shows; without one, has
    /// it order that all nodes flush everything.
    fn ask_node(&self, asker: ThreadAsker, request: Option<&ItemRequest<'_>>, memory: [Vec<u8>; 2]);

    /// Shows how requests of `thread` ended; the memory that was lent to them goes to `spare`.
    fn take_from_node(
        &self,
        thread: AskingThread,
        spare: &mut Vec<Vec<u8>>,
        show: &mut ShowsEnded<'_>,
    );
}
