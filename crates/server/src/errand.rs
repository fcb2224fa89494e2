//! What keeps a connection busy over many turns: a dump.
//!
//! Requests behind it on the same connection wait until it is done.

use crate::{connection::Connection, dump::Dump, kit::Kit};

/// What keeps a connection busy.
#[derive(Debug)]
pub(crate) enum Errand {
    /// It is sent a list of all items.
    Dump(Dump),
}

impl Connection {
    /// Goes on with the connection's errand; nothing is unsent when this is called.
    pub(crate) fn go_on(&mut self, kit: &mut Kit) {
        let Some(errand) = &mut self.errand else {
            return;
        };
        match errand.as_mut() {
            Errand::Dump(dump) => {
                let (text, done) = dump.piece(kit);
                self.visible.touch(kit.now.unix_seconds());
                self.unsent.push(&mut kit.pool, &text);
                if done {
                    self.errand = None;
                }
            }
        }
    }
}
