//! The connections of one worker by slot number, and the order in which a turn serves them.

use std::collections::VecDeque;

use crate::connection::Connection;

/// The connections of a worker. A slot's number is the token under which its socket is watched.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlab {
    connections: Vec<Option<Box<Connection>>>,
    /// Slots that nobody has; one that is lent is not among them.
    free: Vec<usize>,
    ready: VecDeque<usize>,
    /// Requests carried out so far.
    carried_out: u64,
    /// Slots that had their turn: written by `request::receive`.
    pub(crate) served: Vec<usize>,
    /// Slots whose sockets broke while replying: written by `request::send`.
    pub(crate) broken: Vec<usize>,
    /// Slots of connections that watch: written by `memcached::watch`.
    pub(crate) watching: Vec<usize>,
    /// The serial that the next connection gets.
    pub(crate) next_serial: u64,
    /// What rebalancing has noted.
    pub(crate) marks: RebalanceMarks,
}

/// Whether rebalancing has noted what connections did, and from which slot on.
#[derive(Debug, Default)]
pub(crate) struct RebalanceMarks {
    pub(crate) is_set: bool,
    pub(crate) from: usize,
}

impl ConnectionSlab {
    /// One past the highest slot.
    pub(crate) fn end(&self) -> usize {
        self.connections.len()
    }

    /// The slot that the next connection will get.
    pub(crate) fn next_slot(&mut self) -> usize {
        if self.free.is_empty() {
            self.free.push(self.connections.len());
            self.connections.push(None);
        }
        self.free.last().copied().unwrap_or_default()
    }

    /// Puts a connection into [`ConnectionSlab::next_slot`].
    pub(crate) fn insert(&mut self, connection: Box<Connection>) {
        let slot = self.reserve();
        self.restore(slot, connection);
    }

    /// Takes a slot for a connection that follows.
    pub(crate) fn reserve(&mut self) -> usize {
        let slot = self.next_slot();
        self.free.pop();
        slot
    }

    /// Puts a connection back that was lent.
    pub(crate) fn restore(&mut self, slot: usize, connection: Box<Connection>) {
        if let Some(place) = self.connections.get_mut(slot) {
            *place = Some(connection);
        }
    }

    /// Takes the connection out of its slot, which stays taken until [`ConnectionSlab::restore`] or
    /// [`ConnectionSlab::free`].
    pub(crate) fn lend(&mut self, slot: usize) -> Option<Box<Connection>> {
        let mut connection = self.connections.get_mut(slot)?.take()?;
        if std::mem::take(&mut connection.queued) {
            self.ready.retain(|&queued| queued != slot);
        }
        Some(connection)
    }

    /// A connection that was lent will not come back.
    pub(crate) fn free(&mut self, slot: usize) {
        self.free.push(slot);
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.connections.get_mut(slot)?.as_deref_mut()
    }

    /// The connection in `slot`.
    pub(crate) fn get(&self, slot: usize) -> Option<&Connection> {
        self.connections.get(slot)?.as_deref()
    }

    /// Takes the connection out of its slot and out of the line.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Box<Connection>> {
        let connection = self.lend(slot)?;
        self.free(slot);
        Some(connection)
    }

    /// Whether any connection waits for its turn.
    pub(crate) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many wait for their turn.
    pub(crate) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Queues the connection if there is something to do for it and it does not wait already.
    #[inline]
    pub(crate) fn queue(&mut self, slot: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(slot)
            && !connection.queued
            && connection.wants_turn()
        {
            connection.queued = true;
            connection.queued_at = self.carried_out;
            self.ready.push_back(slot);
        }
    }

    /// Queues the connections that watch, if there is something for them.
    pub(crate) fn queue_watching(&mut self) {
        for number in 0..self.watching.len() {
            if let Some(&slot) = self.watching.get(number) {
                self.queue(slot);
            }
        }
    }

    /// The first in line, which then has its turn.
    #[inline]
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        let slot = self.ready.pop_front()?;
        if let Some(connection) = self.get_mut(slot) {
            connection.queued = false;
        }
        Some(slot)
    }

    /// So many requests more were carried out.
    #[inline]
    pub(crate) fn count(&mut self, requests: u64) {
        self.carried_out += requests;
    }

    /// Requests carried out in all.
    #[inline]
    pub(crate) fn carried_out(&self) -> u64 {
        self.carried_out
    }

    /// All slots that are in use.
    pub(crate) fn used(&self) -> impl Iterator<Item = (usize, &Connection)> {
        let places = self.connections.iter().enumerate();
        places.filter_map(|(slot, place)| Some((slot, place.as_deref()?)))
    }
}
