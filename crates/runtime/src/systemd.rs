//! Tells systemd the state of the service (`Type=notify` units).
//!
//! The protocol is one datagram with a line per fact to the socket that `NOTIFY_SOCKET` names; a
//! name that begins with `@` lies in Linux's abstract namespace.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// What the manager is asked for, thrice as often as it ends.
const EXTENSION: Duration = Duration::from_secs(30);

/// The service manager, if one asked to be told.
#[derive(Debug)]
pub struct Service {
    socket: Option<(UnixDatagram, SocketAddr)>,
}

/// What to tell it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServiceState {
    /// Requests are answered from now on.
    Ready,
    /// The configuration is being read again; `Ready` follows.
    Reloading,
    /// No new connection is taken; the process ends soon.
    Stopping,
}

impl Service {
    /// Finds the service manager in the environment; without one, telling it does nothing.
    pub fn from_environment() -> Self {
        Self {
            socket: find().ok().flatten(),
        }
    }

    /// Tells the manager `state`, and one line for `systemctl status`. Failures are ignored: the
    /// manager has its own time limits.
    pub fn tell(&self, state: ServiceState, status: &str) {
        let Some((socket, address)) = &self.socket else {
            return;
        };
        let word = match state {
            ServiceState::Ready => "READY=1",
            ServiceState::Reloading => "RELOADING=1",
            ServiceState::Stopping => "STOPPING=1",
        };
        let message = format!("{word}\nSTATUS={status}\n");
        let _ = socket.send_to_addr(message.as_bytes(), address);
    }

    /// Does `work`, however long it takes: without this the manager kills a process that takes
    /// longer than the unit's `TimeoutStopSec` to stop.
    pub fn extending<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some((socket, address)) = &self.socket else {
            return work();
        };
        let (done, is_done) = mpsc::channel::<()>();
        let message = format!("EXTEND_TIMEOUT_USEC={}\n", EXTENSION.as_micros());
        thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    let _ = socket.send_to_addr(message.as_bytes(), address);
                    if is_done.recv_timeout(EXTENSION / 3) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            });
            let value = work();
            drop(done);
            value
        })
    }
}

fn find() -> io::Result<Option<(UnixDatagram, SocketAddr)>> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(None);
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&path)?,
    };
    Ok(Some((UnixDatagram::unbound()?, address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram socket of ours in the abstract namespace that plays the manager, and its service.
    fn manager(name: &str) -> (UnixDatagram, Service) {
        let name = format!("curtail-test-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let service = Service {
            socket: Some((UnixDatagram::unbound().unwrap(), address)),
        };
        (manager, service)
    }

    fn heard(manager: &UnixDatagram) -> String {
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into()
    }

    #[test]
    fn readiness_arrives_as_one_datagram() {
        let (manager, service) = manager("ready");
        service.tell(ServiceState::Ready, "listening");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=listening\n");
    }

    /// Goal: the manager is asked for time before something long ends. Method: work that ends when
    /// the manager has heard of it.
    #[test]
    fn long_work_asks_for_time() {
        let (manager, service) = manager("extends");
        let message = service.extending(|| heard(&manager));
        assert_eq!(message, "EXTEND_TIMEOUT_USEC=30000000\n");
    }
}
