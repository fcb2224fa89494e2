//! A blocking connection that sends blocks of requests and frames their replies.
//!
//! For preloading, sampling and checking, where simple matters more than fast. The replies'
//! bodies are skipped unless the caller wants them.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use curtail_client::memcached::{self, Connection, Login, UNAUTHENTICATED};

use crate::{
    error::LoadError,
    load::Load,
    protocol::{Frame, Protocol, Reply, Verb},
};

/// One blocking connection.
#[derive(Debug)]
pub(crate) struct Exchange {
    stream: TcpStream,
    protocol: Protocol,
    buffer: Vec<u8>,
    filled: usize,
}

/// A silent server is given up after this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to `target`, logged in if there is a login and the server asks for one.
pub(crate) fn connect(target: &str, login: Option<&Login>) -> Result<Connection, LoadError> {
    let connect = || memcached::connect(target, PATIENCE);
    Connection::open(connect, login)
        .map_err(|error| LoadError::network(format!("connecting to {target}"))(error.into()))
}

/// What a server of memcached's protocols calls itself; `None` if it does not say within a second.
/// One that says no more without a login is an error.
pub(crate) fn server_version(
    target: &str,
    protocol: Protocol,
    login: Option<&Login>,
) -> Result<Option<String>, LoadError> {
    const SHORT: Duration = Duration::from_secs(1);
    if matches!(protocol, Protocol::Resp | Protocol::Native) {
        return Ok(None);
    }
    let mut connection = connect(target, login)?;
    let asked = connection.stream().set_read_timeout(Some(SHORT));
    let answer = asked.and_then(|()| connection.ask("version\r\n"));
    let answer = answer.unwrap_or_default();
    if answer == UNAUTHENTICATED {
        return Err(LoadError::Arguments(format!(
            "{target} wants a login: --user NAME --password-file FILE"
        )));
    }
    let version = answer.strip_prefix("VERSION ");
    Ok(version.map(|version| version.trim().to_string()))
}

impl Exchange {
    /// A connection that speaks as the load does, logged in where it has a login.
    pub(crate) fn open(target: &str, load: &Load) -> Result<Self, LoadError> {
        Ok(Self {
            stream: connect(target, load.login.as_ref())?.into_stream(),
            protocol: load.protocol,
            buffer: vec![0; 64 << 10],
            filled: 0,
        })
    }

    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<(), LoadError> {
        self.stream
            .write_all(requests)
            .map_err(LoadError::network("sending"))
    }

    /// The next reply, to a request of this verb; its body is dropped.
    pub(crate) fn receive(&mut self, verb: Verb) -> Result<Reply, LoadError> {
        loop {
            match self.protocol.frame(verb, &self.buffer[..self.filled]) {
                Frame::Incomplete => self.fill()?,
                Frame::Reply {
                    reply,
                    line_bytes,
                    body_bytes,
                } => {
                    self.skip(line_bytes + body_bytes)?;
                    return Ok(reply);
                }
            }
        }
    }

    fn fill(&mut self) -> Result<(), LoadError> {
        let free = &mut self.buffer[self.filled..];
        if free.is_empty() {
            return Err(LoadError::Protocol("a line without an end".into()));
        }
        match self.stream.read(free) {
            Ok(0) => Err(LoadError::Protocol(
                "the server closed the connection".into(),
            )),
            Ok(bytes) => {
                self.filled += bytes;
                Ok(())
            }
            Err(error) => Err(LoadError::network("receiving")(error)),
        }
    }

    fn skip(&mut self, mut bytes: usize) -> Result<(), LoadError> {
        while bytes > self.filled {
            bytes -= self.filled;
            self.filled = 0;
            self.fill()?;
        }
        self.buffer.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
        Ok(())
    }
}
