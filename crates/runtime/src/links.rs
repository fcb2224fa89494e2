//! Whether network interfaces have a link.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd as _;

/// Asks about the interfaces of the network namespace that it was made in, from any thread.
#[derive(Debug)]
pub struct LinkStates {
    socket: UdpSocket,
}

impl LinkStates {
    /// In this thread's network namespace.
    pub fn new() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        Ok(Self { socket })
    }

    /// Whether the interface is up and has a carrier.
    pub fn is_running(&self, interface: &str) -> io::Result<bool> {
        // SAFETY: all of it may be zero.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name_max = request.ifr_name.len() - 1;
        if interface.len() > name_max {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *place = byte as libc::c_char;
        }
        // SAFETY: the request names an interface with a zero byte behind it, and lives past the
        // call, which writes its flags.
        let answer =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFFLAGS, &mut request) };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has written this field of the union, and any bits are valid in it.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(libc::c_int::from(flags) & libc::IFF_RUNNING != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback interface of this machine has a link, and an interface that there is not has
    /// none.
    #[test]
    fn the_loopback_interface_runs() {
        let links = LinkStates::new().unwrap();
        assert!(links.is_running("lo").unwrap());
        assert!(links.is_running("no-such-link").is_err());
        assert!(links.is_running("a name that is too long").is_err());
    }
}
