//! How two workers of different nodes come to trust a connection.
//!
//! ```text
//!  connector                                acceptor
//!    Hello     who, versions, nonce    --->
//!                                      <---   Challenge  who, chosen version, nonce
//!    Proof     of the secret           --->
//!                                      <---   Welcome    proof of the secret
//!    frames                            <-->   frames
//! ```
//!
//! A proof is HMAC-SHA256 under the cluster's secret, over [`HandshakeProof::label`] and both
//! greetings byte for byte ([`Greeting::BYTES`] each, the connector's first): so it holds for these
//! two nodes, these incarnations, this version and these nonces alone, and neither side can be
//! answered with its own proof. The connector proves itself first, since anybody can connect and
//! ask. Instead of its next message either side may send a [`HandshakeRefusal`] and close.
//!
//! Codec carries the 32 bytes; the owner of the secret computes and compares them.

use curtail_types::{NodeId, numbered_enum};

use super::{
    MAGIC,
    words::{Reader, Writer},
};
use crate::native::Checksum;

/// The random bytes that make a proof good for one connection only.
pub type Nonce = [u8; 32];

/// What either side says of itself and of the link, in the clear.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Greeting {
    /// [`HandshakeKind::Hello`] or [`HandshakeKind::Challenge`].
    pub kind: HandshakeKind,
    /// The oldest version that it speaks; in a challenge the chosen one.
    pub version_min: u8,
    /// The newest version that it speaks; in a challenge the chosen one.
    pub version_max: u8,
    /// Whether the link carries large items; else the small ones.
    pub large: bool,
    /// [`cluster_hash`] of the cluster's name.
    pub cluster: u64,
    /// Which life of the node this is.
    pub incarnation: u64,
    /// Who speaks.
    pub node: NodeId,
    /// Who is spoken to.
    pub to: NodeId,
    /// Which of the links between the two nodes: it belongs to worker `pair` modulo the number of
    /// workers, on either side.
    pub pair: u16,
    /// Workers that the speaker's node has.
    pub workers: u16,
    /// Drawn for this connection.
    pub nonce: Nonce,
}

/// That its sender has the cluster's secret.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct HandshakeProof {
    /// [`HandshakeKind::Proof`] or [`HandshakeKind::Welcome`].
    pub kind: HandshakeKind,
    /// HMAC-SHA256.
    pub mac: [u8; 32],
}

/// That there will be no link.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct HandshakeRefusal {
    /// Why.
    pub reason: RefusalReason,
    /// The oldest version that its sender speaks.
    pub version_min: u8,
    /// The newest version that its sender speaks.
    pub version_max: u8,
}

numbered_enum! {
    /// Which message of the handshake. The number is what travels.
    pub enum HandshakeKind: u8 {
        /// The connector's greeting.
        Hello = 1,
        /// The acceptor's greeting.
        Challenge = 2,
        /// The connector's proof.
        Proof = 3,
        /// The acceptor's proof; frames follow.
        Welcome = 4,
        /// There will be no link.
        Refusal = 5,
    }
}

numbered_enum! {
    /// Why there will be no link. The number is what travels.
    pub enum RefusalReason: u8 {
        /// No version is spoken by both.
        Version = 1,
        /// Another cluster's name.
        Cluster = 2,
        /// The proof is wrong: another secret.
        Secret = 3,
        /// The node or its incarnation is not one that the refuser knows (yet); try again later.
        Unknown = 4,
        /// Spoken to a node that this one is not: an address was given to another node.
        NotMe = 5,
    }
}

impl HandshakeKind {
    /// The kind of the message that `bytes` begin with, and its length in bytes. `Ok(None)` if the
    /// first eight bytes have not all arrived; an error if they are of no handshake.
    pub fn of(bytes: &[u8]) -> Result<Option<(Self, usize)>, super::MalformedFrame> {
        let mut reader = Reader::new(bytes);
        match reader.u32() {
            Some(MAGIC) => {}
            Some(_) => return Err(super::MalformedFrame::Magic),
            None => return Ok(None),
        }
        let Some(number) = reader.byte() else {
            return Ok(None);
        };
        let kind = Self::from_number(number).ok_or(super::MalformedFrame::Kind)?;
        Ok(Some((kind, kind.bytes())))
    }

    /// Length of its messages in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Hello | Self::Challenge => Greeting::BYTES,
            Self::Proof | Self::Welcome => HandshakeProof::BYTES,
            Self::Refusal => HandshakeRefusal::BYTES,
        }
    }
}

impl Greeting {
    /// Length in bytes.
    pub const BYTES: usize = 64;

    /// The greeting that exactly `bytes` are; `None` if they are none.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let kind = begin(&mut reader)?;
        if !matches!(kind, HandshakeKind::Hello | HandshakeKind::Challenge) {
            return None;
        }
        let (version_min, version_max) = (reader.byte()?, reader.byte()?);
        let large = flag(reader.byte()?)?;
        let (cluster, incarnation) = (reader.u64()?, reader.u64()?);
        let (node, to) = (reader.byte()?, reader.byte()?);
        let (pair, workers) = (reader.u16()?, reader.u16()?);
        reader.zero::<2>()?;
        Some(Self {
            kind,
            version_min,
            version_max,
            large,
            cluster,
            incarnation,
            node: NodeId(node),
            to: NodeId(to),
            pair,
            workers,
            nonce: reader.array()?,
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut writer = Writer::new(&mut bytes);
        // The array has room for all of it, so no write can fail.
        let _ = self.write(&mut writer);
        bytes
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(MAGIC)?;
        writer.byte(self.kind as u8)?;
        writer.byte(self.version_min)?;
        writer.byte(self.version_max)?;
        writer.byte(u8::from(self.large))?;
        writer.u64(self.cluster)?;
        writer.u64(self.incarnation)?;
        writer.byte(self.node.0)?;
        writer.byte(self.to.0)?;
        writer.u16(self.pair)?;
        writer.u16(self.workers)?;
        writer.u16(0)?;
        writer.bytes(&self.nonce)
    }

    /// The newest version that both speak, of what the other side speaks and `min` to `max` here.
    pub fn version_with(&self, min: u8, max: u8) -> Option<u8> {
        let newest = self.version_max.min(max);
        (newest >= self.version_min.max(min)).then_some(newest)
    }
}

impl HandshakeProof {
    /// Length in bytes.
    pub const BYTES: usize = 40;

    /// The first byte of what is authenticated: it tells the two proofs of a connection apart.
    pub const fn label(kind: HandshakeKind) -> [u8; 1] {
        [kind as u8]
    }

    /// The proof that exactly `bytes` are; `None` if they are none.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let kind = begin(&mut reader)?;
        if !matches!(kind, HandshakeKind::Proof | HandshakeKind::Welcome) {
            return None;
        }
        reader.zero::<3>()?;
        let mac = reader.array()?;
        Some(Self { kind, mac })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut writer = Writer::new(&mut bytes);
        // The array has room for all of it, so no write can fail.
        let _ = writer.u32(MAGIC);
        let _ = writer.bytes(&[self.kind as u8, 0, 0, 0]);
        let _ = writer.bytes(&self.mac);
        bytes
    }
}

impl HandshakeRefusal {
    /// Length in bytes.
    pub const BYTES: usize = 8;

    /// The refusal that exactly `bytes` are; `None` if they are none.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if begin(&mut reader)? != HandshakeKind::Refusal {
            return None;
        }
        Some(Self {
            reason: RefusalReason::from_number(reader.byte()?)?,
            version_min: reader.byte()?,
            version_max: reader.byte()?,
        })
    }

    /// Its bytes.
    pub const fn encode(&self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = MAGIC.to_le_bytes();
        let kind = HandshakeKind::Refusal as u8;
        let reason = self.reason as u8;
        [a, b, c, d, kind, reason, self.version_min, self.version_max]
    }
}

/// What a cluster's name becomes in a greeting: XXH64 of its bytes. It keeps clusters from meeting
/// by mistake; it is no secret.
pub fn cluster_hash(name: &str) -> u64 {
    let mut checksum = Checksum::new(0);
    checksum.update(name.as_bytes());
    checksum.finish()
}

fn begin(reader: &mut Reader<'_>) -> Option<HandshakeKind> {
    if reader.u32()? != MAGIC {
        return None;
    }
    HandshakeKind::from_number(reader.byte()?)
}

fn flag(byte: u8) -> Option<bool> {
    (byte <= 1).then_some(byte == 1)
}
