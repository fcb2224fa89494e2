//! A server as a process of its own.

use std::{
    fs,
    io::Read,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use tempfile::TempPath;

use crate::{Client, eventually, temporary_path};

/// A server on a port that the system chose, killed when the test is over.
#[derive(Debug)]
pub struct Process {
    child: Child,
    address: SocketAddr,
    _ports: TempPath,
}

impl Process {
    /// Starts `BINARY serve` with one worker and these arguments, and waits until it listens.
    pub fn serve(binary: impl AsRef<Path>, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary.as_ref());
        command.args(["serve", "-p", "-1", "-t", "1"]);
        Self::start(command.args(arguments))
    }

    /// Runs a command that starts a server, and waits until that listens.
    pub fn start(command: &mut Command) -> Self {
        let ports = temporary_path();
        let child = command
            .env("MEMCACHED_PORT_FILENAME", &ports)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let address = listening(&ports);
        Self {
            child,
            address,
            _ports: ports,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        Client::connect_to(self.address)
    }

    /// What it answers to these requests until it has nothing more to say.
    pub fn ask(&self, requests: &str) -> String {
        let mut client = self.client();
        client.send(requests);
        client.stream().shutdown(std::net::Shutdown::Write).unwrap();
        String::from_utf8(client.take(usize::MAX)).unwrap()
    }

    /// Sends it a signal, by its name.
    pub fn signal(&self, name: &str) {
        signal(&self.id().to_string(), name);
    }

    /// Ends it; how it ended, and what it said on standard error.
    pub fn stop(self) -> (ExitStatus, String) {
        self.signal("TERM");
        self.wait()
    }

    /// Waits until it has ended; how, and what it said on standard error.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let mut status = None;
        eventually("it has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let mut told = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut told).unwrap();
        (status.unwrap(), told)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a server has written its file of ports; the first, or 0 if it has no TCP.
pub fn listening(ports: &Path) -> SocketAddr {
    eventually("the file of ports is written", || ports.exists());
    let text = fs::read_to_string(ports).unwrap();
    let port = text.strip_prefix("TCP INET: ").unwrap_or("0\n");
    let port = port.lines().next().unwrap().trim().parse().unwrap();
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Sends a signal, by its name, to a process.
pub fn signal(id: &str, name: &str) {
    let sent = Command::new("kill").args(["-s", name, id]).status();
    assert!(sent.unwrap().success());
}
