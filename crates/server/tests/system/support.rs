//! What tests of the server share beside `curtail_testing`.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use curtail_server::{Config, Server};
use curtail_testing::Client;

/// Says that a test is over when it goes out of scope, whether that went well or not: threads that
/// wait for it end.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What `body` returns while so many other clients do `again` and again, each with its number.
pub(crate) fn beside<T>(
    server: &Server,
    clients: usize,
    again: impl Fn(&mut Client, usize) + Sync,
    body: impl FnOnce() -> T,
) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..clients {
            let (done, again) = (&done, &again);
            scope.spawn(move || {
                let mut client = Client::connect(server);
                while !done.load(Ordering::Relaxed) {
                    again(&mut client, number);
                }
            });
        }
        let _over = Over(&done);
        body()
    })
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
