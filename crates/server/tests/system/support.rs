//! What tests of the server share beside `curtail_testing`.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use curtail_server::{Config, Server};

/// Says that a test is over when it goes out of scope, whether that went well or not: threads that
/// wait for it end.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a server asked of its control thread.
pub(crate) type Asked = Arc<Mutex<Vec<curtail_runtime::ControlEvent>>>;

/// Starts a server and records its requests to stop.
pub(crate) fn start_recording(config: Config) -> (Server, Asked) {
    let asked = Asked::default();
    let record = Arc::clone(&asked);
    let server = Server::start(config, move |event| record.lock().unwrap().push(event)).unwrap();
    (server, asked)
}
