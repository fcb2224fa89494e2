//! The file that describes a tier: who takes part, where, and what all must agree on.
//!
//! It holds the secret of the nodes, so it is refused if others than its owner can read it.

use std::{
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    str::FromStr as _,
};

use curtail_codec::tiered::{
    GetPath, HostId, PartitionMap, TierAddress, TierNetwork, TierSecret, TierTarget,
};
use curtail_types::{BackEndId, CacheId, HashSeed, KeyAddress, LoadScale};
use serde::{Deserialize, Serialize};

/// A tier.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TierFile {
    /// What messages between nodes are sealed with: 32 hexadecimal digits.
    pub secret: String,
    /// Which partition map this is; it rises when back ends come or go.
    #[serde(default = "first_epoch")]
    pub epoch: u32,
    /// The lease of a cache node, in milliseconds.
    #[serde(default = "lease_ms")]
    pub lease_ms: u64,
    /// Between two reports of the hottest keys, in milliseconds.
    #[serde(default = "period_ms")]
    pub period_ms: u64,
    /// The hottest keys of each cache node of which all cache nodes may have copies, at most
    /// (CC-81); 0 is none.
    #[serde(default = "group_keys")]
    pub group_keys: u8,
    /// Another way of reads than by the network's rules, for comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<TierBaseline>,
    /// How the switch is reached.
    pub network: TierFileNetwork,
    /// Where the switch's process takes the rules of cache nodes.
    pub control: SocketAddr,
    /// Where each cache node receives; the first is number 0.
    pub caches: Vec<SocketAddr>,
    /// Where each back end receives; the first is number 0.
    pub back_ends: Vec<SocketAddr>,
}

/// How clients and nodes reach the switch.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TierFileNetwork {
    /// A forwarder in user space receives there.
    Forwarder(SocketAddr),
    /// The network reads the key in the IPv6 destination (SW-87).
    Ipv6 {
        /// The number of the cluster, which is part of its addresses.
        cluster: u32,
        /// The UDP port of every node.
        port: u16,
    },
    /// The network reads the key in the MAC destination, and the back end in the IPv4 destination
    /// (SW-7, SW-8): nodes and clients send frames.
    Mac {
        /// The network of all back ends and cache nodes.
        network: MacNetwork,
        /// The UDP port of every node.
        port: u16,
    },
}

/// An IPv4 network of 16 bits, as `10.77.0.0/16`: what its addresses begin with.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacNetwork(pub [u8; 2]);

/// How clients read in systems that do not route by keys (SW-67): every read goes to a cache node.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierBaseline {
    /// A cache node without a copy says so, and the client asks the back end.
    LookAside,
    /// A cache node without a copy passes the request on to the back end.
    LookThrough,
}

/// What is wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum TierFileError {
    /// It cannot be read or written.
    Io(PathBuf, io::Error),
    /// Others can read the secret.
    Open(PathBuf),
    /// It is not what such a file looks like.
    Syntax(PathBuf, String),
    /// A value is out of range.
    Value(PathBuf, &'static str),
}

impl TierFile {
    /// Back ends at most; more make no sense below one switch.
    pub const BACK_ENDS_MAX: usize = 4096;

    /// Keys that a cache node names to the others, at most.
    pub const GROUP_KEYS_MAX: u8 = 64;

    /// Reads and checks a file.
    ///
    /// # Errors
    /// Each names the file, and says what to change.
    pub fn load(path: &Path) -> Result<Self, TierFileError> {
        let failed = |error| TierFileError::Io(path.to_path_buf(), error);
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(TierFileError::Open(path.to_path_buf()));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let syntax = |error: toml::de::Error| {
            TierFileError::Syntax(path.to_path_buf(), error.message().to_string())
        };
        let file: Self = toml::from_str(&text).map_err(syntax)?;
        let wrong = file.wrong();
        wrong.map_or(Ok(file), |what| {
            Err(TierFileError::Value(path.to_path_buf(), what))
        })
    }

    /// Writes the file, for its owner alone.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), TierFileError> {
        let failed = |error| TierFileError::Io(path.to_path_buf(), error);
        let text = toml::to_string(self).map_err(|error| failed(io::Error::other(error)))?;
        fs::write(path, "").map_err(failed)?;
        let owner_alone = fs::Permissions::from_mode(0o600);
        fs::set_permissions(path, owner_alone).map_err(failed)?;
        fs::write(path, text).map_err(failed)
    }

    fn wrong(&self) -> Option<&'static str> {
        let checks = [
            (self.seed().is_none(), "secret: give 32 hexadecimal digits"),
            (self.epoch == 0, "epoch: at least 1"),
            (
                !(50..=60_000).contains(&self.lease_ms),
                "lease_ms: 50 to 60000",
            ),
            (
                !(10..=600_000).contains(&self.period_ms),
                "period_ms: 10 to 600000",
            ),
            (
                self.back_ends.is_empty() || self.back_ends.len() > Self::BACK_ENDS_MAX,
                "back_ends: name 1 to 4096",
            ),
            (
                self.group_keys > Self::GROUP_KEYS_MAX,
                "group_keys: 0 to 64; 0: no key has copies at several cache nodes",
            ),
            (self.caches.len() > 256, "caches: name at most 256"),
            (
                self.baseline.is_some() && self.caches.is_empty(),
                "baseline: `caches` must name a cache node, which receives every read",
            ),
            (
                self.has_twins(),
                "an address is there twice; every node needs its own",
            ),
            (
                !self.has_addresses_of_network(),
                "back_ends, caches: with encoding mac, numbers decide addresses: in the network \
                 10.77.0.0/16, back end 1 must have 10.77.0.1, cache node 1 must have 10.77.254.1, \
                 and all must have the port of `network`",
            ),
        ];
        let first = checks.iter().find(|(is_wrong, _)| *is_wrong);
        first.map(|(_, what)| *what)
    }

    fn has_twins(&self) -> bool {
        let forwarder = match self.network {
            TierFileNetwork::Forwarder(at) => Some(at),
            TierFileNetwork::Ipv6 { .. } | TierFileNetwork::Mac { .. } => None,
        };
        let mut all: Vec<SocketAddr> = forwarder
            .into_iter()
            .chain([self.control])
            .chain(self.caches.iter().copied())
            .chain(self.back_ends.iter().copied())
            .collect();
        all.sort_unstable();
        all.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// With encoding `mac` addresses follow from numbers.
    fn has_addresses_of_network(&self) -> bool {
        let TierFileNetwork::Mac { network, port } = self.network else {
            return true;
        };
        let back_end = |(id, at): (u16, &SocketAddr)| {
            let key = KeyAddress {
                back_end: BackEndId(id),
                ..KeyAddress::default()
            };
            let ip = TierAddress::back_end(key).to_ipv4(network.0);
            *at == SocketAddr::from((ip, port))
        };
        let cache = |(id, at): (u32, &SocketAddr)| {
            let ip = TierNetwork::host_ipv4(network.0, HostId(id));
            *at == SocketAddr::from((ip, port))
        };
        (0..).zip(&self.back_ends).all(back_end)
            && (0..).zip(&self.caches).all(cache)
            && self.control.is_ipv4()
    }

    fn seed(&self) -> Option<[u64; 2]> {
        let is_hex = self.secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (high, low) = self.secret.split_at_checked(16)?;
        if !is_hex || low.len() != 16 {
            return None;
        }
        let read = |half| u64::from_str_radix(half, 16).ok();
        Some([read(high)?, read(low)?])
    }

    /// What messages between nodes are sealed with.
    pub fn secret(&self) -> TierSecret {
        // `load` has checked it; a file that was made otherwise has a secret that fits no other.
        TierSecret(HashSeed(self.seed().unwrap_or_default()))
    }

    /// How keys are divided.
    pub fn map(&self) -> PartitionMap {
        PartitionMap {
            epoch: self.epoch,
            back_ends: u16::try_from(self.back_ends.len()).unwrap_or(1),
        }
    }

    /// How nodes and clients reach the switch.
    pub const fn network(&self) -> TierNetwork {
        match self.network {
            TierFileNetwork::Forwarder(at) => TierNetwork::Forwarder(at),
            TierFileNetwork::Ipv6 { cluster, port } => TierNetwork::Ipv6 { cluster, port },
            TierFileNetwork::Mac { network, port } => TierNetwork::Mac {
                network: network.0,
                port,
            },
        }
    }

    /// What a client must know of the tier.
    pub fn target(&self) -> TierTarget {
        let caches = u16::try_from(self.caches.len()).unwrap_or(u16::MAX);
        TierTarget {
            network: self.network(),
            map: self.map(),
            gets: match self.baseline {
                None => GetPath::ByKey,
                Some(TierBaseline::LookAside) => GetPath::LookAside { caches },
                Some(TierBaseline::LookThrough) => GetPath::LookThrough { caches },
            },
        }
    }

    /// Where a node binds its socket: one that receives for many addresses binds none of them.
    pub(crate) fn bound(&self, node: SocketAddr) -> SocketAddr {
        match self.network {
            TierFileNetwork::Forwarder(_) | TierFileNetwork::Mac { .. } => node,
            TierFileNetwork::Ipv6 { port, .. } => (std::net::Ipv6Addr::UNSPECIFIED, port).into(),
        }
    }

    /// The cache node that a back end reports to (SW-65).
    pub fn cache_of(&self, back_end: BackEndId) -> Option<CacheId> {
        home_of(back_end, self.caches.len())
    }

    /// The cache nodes that may have copies of each other's keys (CC-81).
    pub fn group(&self) -> impl Iterator<Item = CacheId> + use<> {
        let is_on = self.group_keys > 0 && self.baseline.is_none() && self.caches.len() > 1;
        let count = if is_on { self.caches.len() } else { 0 };
        (0..=u8::MAX).map(CacheId).take(count)
    }

    /// How loads are measured, at back ends and cache nodes (SW-52).
    pub const fn scale(&self) -> LoadScale {
        LoadScale {
            segment_ns: self.period_ms * 1_000_000,
            alpha: LoadScale::ALPHA_ONE / 2,
            sampled_every: 1,
        }
    }

    /// The lease in nanoseconds.
    pub const fn lease_ns(&self) -> u64 {
        self.lease_ms * 1_000_000
    }
}

impl TryFrom<String> for MacNetwork {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let address = text.strip_suffix("/16").map(Ipv4Addr::from_str);
        match address.and_then(Result::ok).map(|ip| ip.octets()) {
            Some([a, b, 0, 0]) if TierNetwork::is_closed(IpAddr::from([a, b, 0, 1])) => {
                Ok(Self([a, b]))
            }
            _ => Err(format!(
                "network: {text:?} is no private IPv4 network of 16 bits, as 10.77.0.0/16"
            )),
        }
    }
}

impl From<MacNetwork> for String {
    fn from(MacNetwork([a, b]): MacNetwork) -> Self {
        format!("{a}.{b}.0.0/16")
    }
}

const fn first_epoch() -> u32 {
    1
}

/// The defaults of SW-32 and SW-46.
const fn lease_ms() -> u64 {
    500
}

const fn period_ms() -> u64 {
    1000
}

const fn group_keys() -> u8 {
    16
}

impl fmt::Display for TierFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Open(path) => write!(
                f,
                "{0}: others can read the secret in it; run `chmod 600 {0}`",
                path.display()
            ),
            Self::Syntax(path, what) => write!(f, "{}: {what}", path.display()),
            Self::Value(path, what) => write!(f, "{}: {what}", path.display()),
        }
    }
}

impl std::error::Error for TierFileError {}

/// The cache node, of so many, to which a back end reports.
pub(crate) fn home_of(back_end: BackEndId, caches: usize) -> Option<CacheId> {
    let number = back_end.0.checked_rem(u16::try_from(caches).ok()?)?;
    u8::try_from(number).ok().map(CacheId)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> TierFile {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        TierFile {
            secret: "0123456789abcdef0123456789abcdef".to_string(),
            epoch: 1,
            lease_ms: 500,
            period_ms: 1000,
            group_keys: 16,
            baseline: None,
            network: TierFileNetwork::Forwarder(at(1)),
            control: at(2),
            caches: vec![at(3)],
            back_ends: vec![at(4), at(5)],
        }
    }

    fn file_of_frames() -> TierFile {
        let at = |text: &str| text.parse().unwrap();
        TierFile {
            network: TierFileNetwork::Mac {
                network: MacNetwork([10, 77]),
                port: 9,
            },
            control: at("10.77.255.0:9"),
            caches: vec![at("10.77.254.0:9")],
            back_ends: vec![at("10.77.0.0:9"), at("10.77.0.1:9")],
            ..file()
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tier.toml");
        file().save(&path).unwrap();
        assert_eq!(TierFile::load(&path).unwrap(), file());
        let mut other = file();
        other.network = TierFileNetwork::Ipv6 {
            cluster: 7,
            port: 9,
        };
        other.baseline = Some(TierBaseline::LookAside);
        other.save(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("baseline = \"look-aside\""), "{text}");
        assert_eq!(TierFile::load(&path).unwrap(), other);
        other = file_of_frames();
        other.save(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("10.77.0.0/16"), "{text}");
        assert_eq!(TierFile::load(&path).unwrap(), other);
        file().save(&path).unwrap();
        let expected = [0x0123_4567_89ab_cdef; 2];
        assert_eq!(file().secret(), TierSecret(HashSeed(expected)));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = TierFile::load(&path).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tier.toml");
        let refused = |change: fn(&mut TierFile)| {
            let mut wrong = file();
            change(&mut wrong);
            wrong.save(&path).unwrap();
            TierFile::load(&path).unwrap_err().to_string()
        };
        let expect = |change: fn(&mut TierFile), named: &str| {
            let refused = refused(change);
            assert!(refused.contains(named), "{refused}");
        };
        expect(|file| file.secret.push('0'), "secret");
        expect(|file| file.secret = "é".repeat(16), "secret");
        expect(|file| file.lease_ms = 1, "lease_ms");
        expect(|file| file.period_ms = 0, "period_ms");
        expect(|file| file.back_ends.clear(), "back_ends");
        expect(|file| file.group_keys = 65, "group_keys");
        expect(|file| file.caches[0] = file.control, "twice");
        let without_cache = |file: &mut TierFile| {
            file.baseline = Some(TierBaseline::LookThrough);
            file.caches.clear();
        };
        expect(without_cache, "baseline");
        let other_port = |file: &mut TierFile| {
            *file = file_of_frames();
            file.back_ends[1].set_port(10);
        };
        expect(other_port, "encoding mac");
        let other_ip = |file: &mut TierFile| {
            *file = file_of_frames();
            file.caches[0].set_ip([10, 77, 253, 0].into());
        };
        expect(other_ip, "encoding mac");
        for wrong in ["10.77.0.0", "10.77.1.0/16", "8.8.0.0/16", "fd00::/16", ""] {
            file_of_frames().save(&path).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace("10.77.0.0/16", wrong)).unwrap();
            let refused = TierFile::load(&path).unwrap_err().to_string();
            assert!(refused.contains("as 10.77.0.0/16"), "{refused}");
        }
        fs::write(&path, "secrets = 1").unwrap();
        assert!(TierFile::load(&path).is_err());
    }
}
