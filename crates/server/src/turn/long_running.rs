//! Continues a long-running command when its connection has its turn.

use curtail_runtime::Received;

use crate::{
    connection::{Connection, long_running::LongRunning},
    worker::context::WorkerContext,
};

/// Goes on with the connection's long-running command; nothing is queued when this is called.
/// False when the client has left.
pub(crate) fn go_on(connection: &mut Connection, cx: &mut WorkerContext) -> bool {
    let Some(long_running) = &mut connection.long_running else {
        return true;
    };
    match long_running.as_mut() {
        LongRunning::Dump(dump) => {
            let (text, done) = dump.piece(&mut cx.store_cx, &mut cx.turn.dump_buckets);
            connection.visible.touch(cx.store_cx.now.unix_seconds());
            connection.output.push(&mut cx.pool, &text);
            if done {
                connection.long_running = None;
            }
            true
        }
        LongRunning::Watch(watcher) => {
            connection.output.push(&mut cx.pool, &watcher.take());
            !connection.readable || ignore(connection)
        }
    }
}

/// Receives what nobody wants; false at the end.
fn ignore(connection: &mut Connection) -> bool {
    let mut bytes = [0; 512];
    match connection.stream.receive(&mut bytes) {
        Received::Bytes(_) => true,
        Received::Nothing => {
            connection.readable = false;
            true
        }
        Received::End => false,
    }
}
