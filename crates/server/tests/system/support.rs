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
        scopeguard::defer! { done.store(true, Ordering::Relaxed) }
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
