//! A blocking connection of memcached's text and meta protocols, for tools that ask a server a few
//! questions, and for tests.
//!
//! Every wait, line and table has a bound, so that nothing a server sends hangs or fills a tool.

use std::{
    fmt,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    path::Path,
    time::Duration,
};

/// One connection; after an error it is of no more use.
#[derive(Debug)]
pub struct Connection<S = TcpStream> {
    reader: BufReader<S>,
}

/// A name and its password, for a server that lets in only whom it knows (`-Y`).
#[derive(Clone, Eq, PartialEq)]
pub struct Login {
    user: String,
    password: String,
}

/// Why a connection was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The network or the system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server does not accept the login.
    #[error("the server refused the login of {user:?}: {answer}")]
    Login {
        /// The name in it.
        user: String,
        /// What the server answered.
        answer: String,
    },
}

/// What a server answers to any command before a login.
pub const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";

/// A host that does not answer for so long is not there.
const CONNECT_MAX: Duration = Duration::from_secs(5);
const BUFFER_BYTES: usize = 64 << 10;
const LINE_BYTES_MAX: u64 = 64 << 10;
const STATS_BYTES_MAX: usize = 16 << 20;

/// Connects to the first address of `target` that accepts, with `TCP_NODELAY`. Each read and write
/// fails after `patience`, and connecting after some seconds.
pub fn connect(target: impl ToSocketAddrs, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in target.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience.min(CONNECT_MAX)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Connection {
    /// A connection that [`connect`] makes.
    pub fn to(target: impl ToSocketAddrs, patience: Duration) -> io::Result<Self> {
        connect(target, patience).map(Self::over)
    }
}

impl<S: Read + Write> Connection<S> {
    /// A connection over a stream that has its time limits.
    pub fn over(stream: S) -> Self {
        Self {
            reader: BufReader::with_capacity(BUFFER_BYTES, stream),
        }
    }

    /// The same over a stream that `connect` makes, logged in if there is a login and the server
    /// asks for one: any other server would store the password as a value.
    pub fn open(
        connect: impl Fn() -> io::Result<S>,
        login: Option<&Login>,
    ) -> Result<Self, OpenError> {
        let mut connection = Self::over(connect()?);
        let Some(Login { user, password }) = login else {
            return Ok(connection);
        };
        if connection.ask("version\r\n")? != UNAUTHENTICATED {
            return Ok(connection);
        }
        // The server may hang up on a command without a login.
        let mut connection = Self::over(connect()?);
        let bytes = user.len() + 1 + password.len();
        match connection.ask(format!("set auth 0 0 {bytes}\r\n{user} {password}\r\n"))? {
            answer if answer == "STORED" => Ok(connection),
            answer => Err(OpenError::Login {
                user: user.clone(),
                answer,
            }),
        }
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes.as_ref())
    }

    /// Puts the next line into `line`, with its end.
    pub fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<()> {
        line.clear();
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX);
        limited.read_until(b'\n', line)?;
        if line.ends_with(b"\n") {
            return Ok(());
        }
        Err(match line.len() as u64 {
            LINE_BYTES_MAX => io::Error::new(ErrorKind::InvalidData, "a line that is too long"),
            _ => io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"),
        })
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.read_line(&mut line)?;
        let text = String::from_utf8_lossy(&line);
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Sends a request and returns the first line of its reply.
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> io::Result<String> {
        self.send(request)?;
        self.line()
    }

    /// The rows of `stats KIND`, as names and values.
    pub fn stats(&mut self, kind: &str) -> io::Result<Vec<(String, String)>> {
        let request = format!("stats {kind}");
        self.send(format!("{}\r\n", request.trim_end()))?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while bytes < STATS_BYTES_MAX {
            let line = self.line()?;
            bytes += line.len();
            let row = line.strip_prefix("STAT ");
            match row.map(|row| row.split_once(' ').unwrap_or((row, ""))) {
                Some((name, value)) => rows.push((name.to_owned(), value.to_owned())),
                None if line == "END" => return Ok(rows),
                None => {
                    let wrong = format!("{line:?} in the middle of `{request}`");
                    return Err(io::Error::new(ErrorKind::InvalidData, wrong));
                }
            }
        }
        let what = "statistics that are too long";
        Err(io::Error::new(ErrorKind::InvalidData, what))
    }

    /// The stream itself.
    pub fn stream(&self) -> &S {
        self.reader.get_ref()
    }

    /// Whether a whole line was received and not read yet.
    pub fn has_line(&self) -> bool {
        self.reader.buffer().contains(&b'\n')
    }

    /// The stream without the connection; what was received and not read is lost.
    pub fn into_stream(self) -> S {
        self.reader.into_inner()
    }
}

/// The bytes of values.
impl<S: Read> Read for Connection<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl Login {
    /// The password is the first line of the file: on a command line everybody on the machine could
    /// read it.
    pub fn from_file(user: &str, path: &Path) -> io::Result<Self> {
        Self::parse(user, &std::fs::read_to_string(path)?)
    }

    fn parse(user: &str, text: &str) -> io::Result<Self> {
        let password = text.lines().next().filter(|line| !line.is_empty());
        let missing = "the first line has no password";
        Ok(Self {
            user: user.to_owned(),
            password: password
                .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, missing))?
                .to_owned(),
        })
    }

    /// The name.
    pub fn user(&self) -> &str {
        &self.user
    }
}

/// Never shows the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Io(error) => error,
            OpenError::Login { .. } => Self::new(ErrorKind::PermissionDenied, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server sends, and what it was sent.
    #[derive(Debug)]
    struct Script(&'static [u8], Vec<u8>);

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn open(sends: &'static [u8], login: &Login) -> Result<Connection<Script>, OpenError> {
        Connection::open(|| Ok(Script(sends, Vec::new())), Some(login))
    }

    #[test]
    fn the_password_is_the_first_line_and_is_never_shown() {
        let login = Login::parse("ada", "lovelace\r\nmore").unwrap();
        assert_eq!(login.password, "lovelace");
        assert!(Login::parse("ada", "\nlate").is_err());
        assert!(!format!("{login:?}").contains("lovelace"));
    }

    /// Goal: only a server that asks for a login is told the password. Method: one that answers,
    /// and one that refuses every command.
    #[test]
    fn the_password_is_sent_only_where_it_is_asked_for() {
        let login = Login::parse("ada", "lovelace").unwrap();
        let open_to_all = open(b"VERSION 1\r\n", &login).unwrap().into_stream();
        assert_eq!(open_to_all.1, b"version\r\n");
        let refused = open(b"CLIENT_ERROR unauthenticated\r\n", &login).unwrap_err();
        assert!(matches!(refused, OpenError::Login { answer, .. } if answer == UNAUTHENTICATED));
    }

    #[test]
    fn statistics_are_names_and_values() {
        let text = b"STAT a 1\r\nSTAT b c d\r\nSTAT e\r\nEND\r\nSTAT x 1\r\nERROR\r\n";
        let mut connection = Connection::over(Script(text, Vec::new()));
        let rows = connection.stats("curtail").unwrap();
        let rows: Vec<_> = rows.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(rows, [("a", "1"), ("b", "c d"), ("e", "")]);
        assert!(connection.stats("").is_err());
        let closed = connection.line().unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(connection.into_stream().1, b"stats curtail\r\nstats\r\n");
    }
}
