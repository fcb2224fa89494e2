//! A blocking connection that sends blocks of requests and frames their replies.
//!
//! For preloading, sampling and checking, where simple matters more than fast. The replies'
//! bodies are skipped unless the caller wants them.

use std::{
    io::{self, ErrorKind, Read},
    time::Duration,
};

use curtail_client::memcached::{self, Connection, Login, UNAUTHENTICATED};
use curtail_workload::Kind;

use crate::{
    error::LoadError,
    request_source::Load,
    text_protocol::{Frame, Protocol, Reply},
};

/// One blocking connection.
#[derive(Debug)]
pub(crate) struct Exchange {
    connection: Connection,
    protocol: Protocol,
    line: Vec<u8>,
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
            connection: connect(target, load.login.as_ref())?,
            protocol: load.protocol,
            line: Vec::new(),
        })
    }

    pub(crate) fn send(&mut self, requests: &[u8]) -> Result<(), LoadError> {
        let sent = self.connection.send(requests);
        sent.map_err(LoadError::network("sending"))
    }

    /// The next reply, to a request of this verb; its body is dropped.
    pub(crate) fn receive(&mut self, verb: Kind) -> Result<Reply, LoadError> {
        let receiving = || LoadError::network("receiving");
        let read = self.connection.read_line(&mut self.line);
        read.map_err(receiving())?;
        let frame = self.protocol.frame(verb, &self.line);
        let Frame::Reply {
            reply, body_bytes, ..
        } = frame
        else {
            return Err(LoadError::Protocol("a line that is too long".into()));
        };
        let mut body = (&mut self.connection).take(body_bytes as u64);
        let received = io::copy(&mut body, &mut io::sink()).map_err(receiving())?;
        if received < body_bytes as u64 {
            return Err(receiving()(ErrorKind::UnexpectedEof.into()));
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::TcpListener, thread};

    use super::*;

    #[test]
    fn a_server_that_ends_inside_a_value_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let load = Load::drawn(Protocol::Text, "uniform:keys=1".parse().unwrap());
        for (answer, is_whole) in [
            ("VALUE k 0 4\r\nfour\r\nEND\r\n", true),
            ("VALUE k 0 4\r\nfour\r\nEND", false),
            ("VALUE k 0 4\r\n", false),
        ] {
            let received = thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.write_all(answer.as_bytes()).unwrap();
                });
                let mut exchange = Exchange::open(&target, &load).unwrap();
                exchange.receive(Kind::Get)
            });
            assert_eq!(received.is_ok(), is_whole, "{answer:?}: {received:?}");
        }
    }
}
