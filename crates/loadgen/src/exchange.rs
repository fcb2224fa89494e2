//! A blocking connection that sends blocks of requests and frames their replies.
//!
//! For preloading, sampling and checking, where simple matters more than fast. The replies'
//! bodies are skipped unless the caller wants them.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use crate::{
    error::LoadError,
    load::Load,
    login::Login,
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

/// Connects with `TCP_NODELAY`, giving up after some seconds.
pub(crate) fn connect(target: &str) -> Result<TcpStream, LoadError> {
    let doing = || format!("connecting to {target}");
    let resolve = target
        .to_socket_addrs()
        .map_err(LoadError::network(doing()))?;
    let mut last = std::io::Error::other("no address");
    for address in resolve {
        match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
            Ok(stream) => {
                stream
                    .set_nodelay(true)
                    .map_err(LoadError::network(doing()))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(LoadError::network(doing())(last))
}

/// The same, logged in if there is a login and the server asks for one: any other would store the
/// password as a value.
pub(crate) fn connect_as(target: &str, login: Option<&Login>) -> Result<TcpStream, LoadError> {
    let mut stream = connect(target)?;
    let Some(login) = login else {
        return Ok(stream);
    };
    let doing = || LoadError::network("logging in");
    if ask(&mut stream, b"version\r\n").map_err(doing())? != UNAUTHENTICATED {
        return Ok(stream);
    }
    // The server may hang up on a command without a login.
    let mut stream = connect(target)?;
    match ask(&mut stream, &login.request()).map_err(doing())? {
        answer if answer == "STORED" => Ok(stream),
        answer => {
            let user = login.user();
            let why = format!("{target} does not let {user:?} in: {answer}");
            Err(LoadError::Protocol(why))
        }
    }
}

/// The line that the server answers; what follows may take any time again.
fn ask(stream: &mut TcpStream, command: &[u8]) -> std::io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(command)?;
    let answer = line(stream)?;
    stream.set_read_timeout(None)?;
    Ok(answer)
}

/// What a server says that wants a login.
const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";

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
    let mut stream = connect_as(target, login)?;
    let asked = stream
        .set_read_timeout(Some(SHORT))
        .and_then(|()| stream.write_all(b"version\r\n"));
    let answer = asked.and_then(|()| line(&mut stream)).unwrap_or_default();
    if answer == UNAUTHENTICATED {
        return Err(LoadError::Arguments(format!(
            "{target} wants a login: --user NAME --password-file FILE"
        )));
    }
    let version = answer.strip_prefix("VERSION ");
    Ok(version.map(|version| version.trim().to_string()))
}

/// The next line of a reply, without its end.
fn line(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut line = Vec::new();
    let mut buffer = [0; 256];
    while !line.contains(&b'\n') && line.len() < buffer.len() {
        let bytes = stream.read(&mut buffer)?;
        if bytes == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&buffer[..bytes]);
    }
    let text = String::from_utf8_lossy(&line);
    Ok(text.lines().next().unwrap_or_default().trim().to_string())
}

impl Exchange {
    /// A connection that speaks as the load does, logged in where it has a login.
    pub(crate) fn open(target: &str, load: &Load) -> Result<Self, LoadError> {
        let stream = connect_as(target, load.login.as_ref())?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
            .map_err(LoadError::network("setting time-outs"))?;
        Ok(Self {
            stream,
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
