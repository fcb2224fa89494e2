//! Opens and closes connections at their worker.

use std::sync::Arc;

use curtail_runtime::Token;
use tracing::info;

use crate::{
    connection::{
        Connection, close_reason::CloseReason, long_running::LongRunning, registry::Visible,
    },
    log::component,
    turn::hand_off_large,
    worker::{
        Worker,
        mailbox::{Arrival, Newcomer},
    },
};

/// Places in the lists of a worker and of the registry.
const SLOT_BYTES: usize = 64;

/// What a connection takes beside its buffers: its slot, its state, its entry in the registry.
const CONNECTION_BYTES: isize =
    (size_of::<Connection>() + size_of::<Visible>() + SLOT_BYTES).cast_signed();

pub(crate) fn welcome(worker: &mut Worker, newcomer: Newcomer) {
    let Newcomer {
        mut stream,
        peer,
        listener,
    } = newcomer;
    let slot = worker.slots.next_slot();
    if stream.watch(&worker.poller, Token(slot)).is_err() {
        worker.cx.shared.doors.unwatched.add(1);
        worker.leave();
        return;
    }
    let seconds = worker.cx.store_cx.now.unix_seconds();
    let visible = Visible::connection(stream.number(), peer, listener, seconds);
    let visible = Arc::new(visible);
    worker.cx.shared.registry.add(&visible);
    let cx = &mut worker.cx;
    if cx.event_log.on {
        cx.event_log.opened(
            &cx.shared.watchers,
            cx.store_cx.now,
            (visible.number, visible.endpoint()),
        );
    }
    let authenticate = worker.cx.shared.logins().is_some();
    let serial = worker.next_serial();
    let connection = Connection::new(stream, authenticate, visible, serial);
    worker.cx.store_cx.store.account(CONNECTION_BYTES);
    worker.slots.insert(Box::new(connection));
    worker.slots.queue(slot);
}

/// Closes the connection in `slot`, if there is one.
pub(crate) fn close(worker: &mut Worker, slot: usize) {
    if let Some(connection) = worker.slots.remove(slot) {
        see_off(worker, slot, &connection);
        // Off the list before the descriptor's number is free for another.
        worker.cx.shared.registry.remove(&connection.visible);
        let loan = connection.loan;
        connection.dissolve(&mut worker.cx.pool);
        worker.cx.store_cx.store.account(-CONNECTION_BYTES);
        match loan {
            None => worker.leave(),
            Some(loan) => {
                hand_off_large::end_loan(worker);
                if let Some(home) = worker.cx.shared.workers.get(loan.home) {
                    home.mail.send(Arrival::Lost(loan.slot));
                }
            }
        }
    }
}

/// Tells of the end of a connection, and ends its watching.
fn see_off(worker: &mut Worker, slot: usize, connection: &Connection) {
    let cx = &mut worker.cx;
    if let Some(LongRunning::Watch(watcher)) = connection.long_running.as_deref() {
        cx.shared.watchers.remove(watcher);
        worker.slots.watching.retain(|&watching| watching != slot);
    }
    if cx.event_log.on {
        let (watchers, reason) = (&cx.shared.watchers, connection.close_reason);
        cx.event_log.closed(
            watchers,
            cx.store_cx.now,
            (connection.visible.number, connection.visible.endpoint()),
            reason.name(),
        );
    }
}

/// The same as [`close_after_replies`] for a client that does not speak the protocol.
pub(crate) fn close_in_error(worker: &mut Worker, slot: usize) {
    if let Some(connection) = worker.slots.get_mut(slot) {
        connection.close_reason = CloseReason::Error;
        let shared = &worker.cx.shared;
        if let Some(suppressed) = shared
            .limits
            .malformed
            .pass(worker.cx.store_cx.now.unix_seconds().into())
        {
            let peer = connection.visible.address.as_str();
            info!(
                target: component::CONNECTIONS,
                peer,
                suppressed,
                "a connection is closed because its client does not speak the protocol"
            );
        }
    }
    close_after_replies(worker, slot);
}

/// Has the connection in `slot` closed when its replies are sent.
pub(crate) fn close_after_replies(worker: &mut Worker, slot: usize) {
    if let Some(connection) = worker.slots.get_mut(slot) {
        connection.closing = true;
    }
}
