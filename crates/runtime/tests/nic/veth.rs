//! Two network namespaces joined by a veth, for tests of a server behind a network: the thread that
//! makes them is at the server's end.
//!
//! ```text
//!   the test's thread, the server                            threads of `at_client`
//!     one, 10.77.0.1, with the XDP program  <---- veth ---->  two, 10.77.0.2 and 10.77.0.3
//! ```
//!
//! Both end with the thread and this value, and the pins of the program with them.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::namespace::{Namespace, run, unshare};

/// The two ends.
pub(crate) struct Veth {
    pub(crate) namespace: Namespace,
    server: File,
    client: File,
}

/// The server's end.
pub(crate) const INTERFACE: &str = "one";
/// The client's end.
pub(crate) const CLIENT_INTERFACE: &str = "two";
/// The server's address.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The client's addresses: sockets that name none have the first.
pub(crate) const CLIENTS: [Ipv4Addr; 2] =
    [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3)];

impl Veth {
    /// `None`, said aloud, where the test is to be skipped; fails where it should be possible.
    pub(crate) fn join() -> Option<Self> {
        let namespace = Namespace::enter()?;
        let made = || {
            unshare(libc::CLONE_NEWNET);
            own_network()
        };
        let link = Self {
            namespace,
            server: own_network(),
            client: thread::spawn(made).join().unwrap(),
        };
        let there = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            link.client.as_raw_fd()
        );
        let (one, two) = (INTERFACE, CLIENT_INTERFACE);
        run(
            "ip",
            &["link", "add", one, "type", "veth", "peer", "name", two],
        );
        run("ip", &["link", "set", two, "netns", &there]);
        run("ip", &["addr", "add", &format!("{SERVER}/24"), "dev", one]);
        run("ip", &["link", "set", one, "up"]);
        link.at_client(|| {
            run("ip", &["link", "set", "lo", "up"]);
            for address in CLIENTS {
                run("ip", &["addr", "add", &format!("{address}/24"), "dev", two]);
            }
            run("ip", &["link", "set", two, "up"]);
        });
        Some(link)
    }

    /// Runs this at the client's end, in a thread; what that starts is there as well.
    pub(crate) fn at_client<T: Send>(&self, does: impl FnOnce() -> T + Send) -> T {
        at(&self.client, does)
    }

    /// Runs this at the server's end, for a test at the client's.
    pub(crate) fn at_server<T: Send>(&self, does: impl FnOnce() -> T + Send) -> T {
        at(&self.server, does)
    }
}

/// The network namespace of this thread.
fn own_network() -> File {
    File::open("/proc/thread-self/ns/net").unwrap()
}

fn at<T: Send>(place: &File, does: impl FnOnce() -> T + Send) -> T {
    let moved = move || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(place.as_fd(), kind).unwrap();
        does()
    };
    let done = thread::scope(|scope| scope.spawn(moved).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs a test in a thread of its own, since namespaces are a thread's and tests may share one.
pub(crate) fn in_a_thread(test: impl FnOnce() + Send + 'static) {
    let name = thread::current().name().map(str::to_owned);
    let builder = thread::Builder::new().name(name.unwrap_or_default());
    let ended = builder.spawn(test).unwrap().join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
