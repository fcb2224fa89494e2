//! A connection to a server over memcached's text protocol: reads statistics and logs in.
//!
//! Nothing that a server sends may hang or fill `top`: every wait, line and answer has a bound.

use std::{
    fmt, io,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use curtail_client::memcached::{self, Login, OpenError};
use socket2::Socket;

use super::{address::Address, sample::Names};

/// An open connection; after an error it is of no more use.
#[derive(Debug)]
pub(crate) struct Connection(memcached::Connection<Socket>);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The network or the system says no: the server is not there, or gone.
    Io(io::Error),
    /// The server takes no command without a login, and none is known: the caller's.
    LoginMissing,
    /// The server does not know this login: the caller's.
    LoginRefused,
    /// The server lets nobody watch, or nobody else; what it said.
    Unwatched(String),
    /// The peer does not speak memcached's protocol; what it said.
    Foreign(String),
}

/// A server that does not answer for so long is gone.
const PATIENCE: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: usize = 16 << 20;

impl Connection {
    /// Connects. A login is told only to a server that asks for one.
    pub(crate) fn open(address: &Address, login: Option<&Login>) -> Result<Self, Fault> {
        let opened = memcached::Connection::open(|| connect(address), login);
        let mut connection = Self(opened.map_err(|error| match error {
            OpenError::Login { .. } => Fault::LoginRefused,
            other => Fault::Io(other.into()),
        })?);
        connection.ask("version")?;
        Ok(connection)
    }

    /// The rows of an answer; `None` when the server does not know `command`.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Option<Names>, Fault> {
        self.send(&format!("{command}\r\n"))?;
        let deadline = Instant::now() + PATIENCE;
        let mut names = Names::default();
        let mut bytes = 0;
        while bytes < ANSWER_BYTES_MAX {
            let line = self.line()?;
            bytes += line.len() + 1;
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("STAT", row) => names.add(row),
                ("END" | "VERSION" | "RESET" | "OK", _) => return Ok(Some(names)),
                ("CLIENT_ERROR", reason) if reason.contains("auth") => {
                    return Err(Fault::LoginMissing);
                }
                ("ERROR" | "CLIENT_ERROR" | "SERVER_ERROR", _) => return Ok(None),
                _ => return Err(Fault::Foreign(line)),
            }
            if Instant::now() > deadline {
                return Err(Fault::Io(io::ErrorKind::TimedOut.into()));
            }
        }
        Err(Fault::Foreign("an answer that is too long".to_owned()))
    }

    /// Sends a command whose answer is read by [`Connection::line`].
    pub(crate) fn send(&mut self, text: &str) -> Result<(), Fault> {
        self.0.send(text).map_err(Fault::Io)
    }

    /// The next line, without its end, and with nothing in it that a terminal would obey.
    pub(crate) fn line(&mut self) -> Result<String, Fault> {
        let line = self.0.line().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Fault::Foreign(error.to_string()),
            _ => Fault::Io(error),
        })?;
        let shown = line.chars();
        Ok(shown
            .map(|c| if c.is_control() { '?' } else { c })
            .collect())
    }

    /// The next line if one comes within `wait`. After `None` the line that was under way is lost.
    pub(crate) fn line_within(&mut self, wait: Duration) -> Result<Option<String>, Fault> {
        if !self.0.has_line() {
            wait_at_most(self.0.stream(), wait).map_err(Fault::Io)?;
        }
        match self.line() {
            Ok(line) => Ok(Some(line)),
            Err(Fault::Io(error)) if is_late(&error) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

fn connect(address: &Address) -> io::Result<Socket> {
    let socket = match address {
        Address::Tcp { host, port } => memcached::connect((host.as_str(), *port), PATIENCE)?.into(),
        Address::Unix(path) => UnixStream::connect(path)?.into(),
    };
    wait_at_most(&socket, PATIENCE)?;
    Ok(socket)
}

fn wait_at_most(socket: &Socket, wait: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(wait))?;
    socket.set_write_timeout(Some(wait))
}

/// A read that times out says "try again".
fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if is_late(error) => {
                write!(f, "no answer within {} s", PATIENCE.as_secs())
            }
            Self::Io(error) if is_hang_up(error) => write!(f, "the server closed the connection"),
            Self::Io(error) => write!(f, "{error}"),
            Self::LoginMissing => write!(
                f,
                "the server requires a login: --user NAME --password-file FILE"
            ),
            Self::Unwatched(said) => write!(f, "the server refuses `watch`: {said}"),
            Self::LoginRefused => write!(f, "the server does not know this name and password"),
            Self::Foreign(said) => {
                let said: String = said.chars().take(60).collect();
                write!(f, "this is not memcached's protocol: {said}")
            }
        }
    }
}

impl std::error::Error for Fault {}
