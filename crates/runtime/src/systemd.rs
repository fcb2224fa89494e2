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
};

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

    /// Goal: the manager hears of readiness. Method: a datagram socket of ours in the abstract
    /// namespace plays the manager.
    #[test]
    fn readiness_arrives_as_one_datagram() {
        let name = format!("curtail-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let service = Service {
            socket: Some((UnixDatagram::unbound().unwrap(), address)),
        };
        service.tell(ServiceState::Ready, "listening");
        let mut message = [0; 64];
        let length = manager.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1\nSTATUS=listening\n");
    }
}
