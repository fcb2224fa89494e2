//! The address of a server: the argument of `curtail top`.

use std::{fmt, path::PathBuf, str::FromStr};

/// A host and a port, or a socket in the file system.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Address {
    /// `HOST`, `HOST:PORT` or `[HOST]:PORT`.
    Tcp { host: String, port: u16 },
    /// `unix:PATH`, or anything with a slash in it.
    Unix(PathBuf),
}

/// memcached's.
const PORT: u16 = 11211;

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        // More than one colon without brackets is an IPv6 address without a port.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let host = host.strip_prefix('[').unwrap_or(host);
        let host = host.strip_suffix(']').unwrap_or(host);
        if host.is_empty() {
            return Err("give HOST, HOST:PORT or the path of a Unix socket".to_owned());
        }
        let number = port.map_or(Ok(PORT), str::parse);
        match number {
            Ok(port) if port > 0 => Ok(Self::Tcp {
                host: host.to_owned(),
                port,
            }),
            _ => Err(format!("`{}` is not a port", port.unwrap_or_default())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, shown) in [
            ("cache", "cache:11211"),
            ("cache:7", "cache:7"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("::1", "[::1]:11211"),
            ("[::1]", "[::1]:11211"),
            ("[::1]:7", "[::1]:7"),
            ("/run/socket", "/run/socket"),
            ("unix:socket", "socket"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), shown);
        }
        for bad in ["", ":7", "cache:x", "cache:0", "cache:70000", "[]:7"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
