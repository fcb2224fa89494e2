//! The handshake in which two nodes prove to each other that they belong to the cluster.
//!
//! The messages are `codec::node`'s; here is which side sends what when, and what is verified. It
//! is stepped with whole messages and holds no socket, so that tests can be either side, or
//! somebody on the way.
//!
//! ```text
//!  connector:  Hello sent -----> Challenge? send Proof -----> Welcome? done
//!  acceptor:   nothing sent ---> Hello? send Challenge -----> Proof? send Welcome, done
//! ```
//!
//! A refusal gives its reason only to a peer that speaks the protocol; malformed bytes get no
//! answer.

use curtail_codec::node::{
    Greeting, HandshakeKind, HandshakeProof, HandshakeRefusal, Nonce, RefusalReason,
};
use curtail_types::NodeId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::peer_list::{PeerList, PeerNode};

/// What a node knows of itself.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    pub(crate) workers: u16,
    /// `cluster_hash` of the cluster's name.
    pub(crate) cluster: u64,
    pub(crate) secret: Vec<u8>,
    /// The versions that it speaks.
    pub(crate) versions: (u8, u8),
}

/// One handshake, of which one side is played here.
pub(crate) struct Handshake {
    expected: Expected,
    hello: Option<Greeting>,
    challenge: Option<Greeting>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expected {
    Hello { nonce: Nonce },
    Challenge { peer: PeerNode },
    Proof,
    Welcome,
}

/// What to do after a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum HandshakeStep {
    /// Send this and wait for the next message.
    Send(Vec<u8>),
    /// Send this, then the connection is a link.
    Done(Vec<u8>, Established),
    /// Send this, then close: the other side cannot be linked with.
    Refuse(Vec<u8>, RefusalReason),
    /// Close: the other side does not want to be linked with.
    Refused(RefusalReason),
    /// Close: this is not the protocol.
    Close,
}

/// What a connection was found to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Established {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u64,
    pub(crate) pair: u16,
    pub(crate) large: bool,
    /// Workers that the other node has.
    pub(crate) workers: u16,
    /// The newest version that both speak.
    pub(crate) version: u8,
}

/// Why a proof is wanted: `Hmac` takes keys of any length, so making one cannot fail.
type HmacSha256 = Hmac<Sha256>;

impl Identity {
    /// Whether this side's own greeting of `kind` to node `to` can be written; its bytes.
    fn greet(&self, kind: HandshakeKind, to: NodeId, (pair, large): (u16, bool)) -> Greeting {
        Greeting {
            kind,
            version_min: self.versions.0,
            version_max: self.versions.1,
            large,
            cluster: self.cluster,
            incarnation: self.incarnation,
            node: self.node,
            to,
            pair,
            workers: self.workers,
            nonce: [0; 32],
        }
    }

    fn mac(
        &self,
        kind: HandshakeKind,
        hello: &Greeting,
        challenge: &Greeting,
    ) -> Option<HmacSha256> {
        let mut mac = HmacSha256::new_from_slice(&self.secret).ok()?;
        mac.update(&HandshakeProof::label(kind));
        mac.update(&hello.encode());
        mac.update(&challenge.encode());
        Some(mac)
    }

    fn prove(
        &self,
        kind: HandshakeKind,
        hello: &Greeting,
        challenge: &Greeting,
    ) -> Option<HandshakeProof> {
        let mac = self.mac(kind, hello, challenge)?;
        let mac = mac.finalize().into_bytes().into();
        Some(HandshakeProof { kind, mac })
    }

    /// Whether a proof is right; the comparison takes as long wherever they differ.
    fn believes(&self, proof: &HandshakeProof, hello: &Greeting, challenge: &Greeting) -> bool {
        let mac = self.mac(proof.kind, hello, challenge);
        mac.is_some_and(|mac| mac.verify_slice(&proof.mac).is_ok())
    }

    fn refuse(&self, reason: RefusalReason) -> HandshakeStep {
        let refusal = HandshakeRefusal {
            reason,
            version_min: self.versions.0,
            version_max: self.versions.1,
        };
        HandshakeStep::Refuse(refusal.encode().to_vec(), reason)
    }
}

impl Handshake {
    /// The side of the connector, for one of the links with `peer`; and its first message.
    pub(crate) fn connect(
        me: &Identity,
        peer: PeerNode,
        (pair, large): (u16, bool),
        nonce: Nonce,
    ) -> (Self, Vec<u8>) {
        let hello = me.greet(HandshakeKind::Hello, peer.node, (pair, large));
        let hello = Greeting { nonce, ..hello };
        let handshake = Self {
            expected: Expected::Challenge { peer },
            hello: Some(hello),
            challenge: None,
        };
        (handshake, hello.encode().to_vec())
    }

    /// The side of the acceptor.
    pub(crate) fn accept(nonce: Nonce) -> Self {
        Self {
            expected: Expected::Hello { nonce },
            hello: None,
            challenge: None,
        }
    }

    /// Takes the next message, whole.
    pub(crate) fn take(
        &mut self,
        me: &Identity,
        roster: &PeerList,
        message: &[u8],
    ) -> HandshakeStep {
        if let Some(refusal) = message.first_chunk().and_then(HandshakeRefusal::decode) {
            return HandshakeStep::Refused(refusal.reason);
        }
        let greeting = || message.first_chunk().and_then(Greeting::decode);
        let proof = || message.first_chunk().and_then(HandshakeProof::decode);
        let step = match self.expected {
            Expected::Hello { nonce } => {
                greeting().and_then(|hello| self.take_hello(me, roster, hello, nonce))
            }
            Expected::Challenge { peer } => {
                greeting().and_then(|challenge| self.take_challenge(me, &peer, challenge))
            }
            Expected::Proof => proof().and_then(|proof| self.take_proof(me, roster, &proof)),
            Expected::Welcome => proof().and_then(|proof| self.take_welcome(me, &proof)),
        };
        step.unwrap_or(HandshakeStep::Close)
    }

    fn take_hello(
        &mut self,
        me: &Identity,
        roster: &PeerList,
        hello: Greeting,
        nonce: Nonce,
    ) -> Option<HandshakeStep> {
        if hello.kind != HandshakeKind::Hello {
            return None;
        }
        let Some(version) = hello.version_with(me.versions.0, me.versions.1) else {
            return Some(me.refuse(RefusalReason::Version));
        };
        if hello.cluster != me.cluster {
            return Some(me.refuse(RefusalReason::Cluster));
        }
        if hello.to != me.node {
            return Some(me.refuse(RefusalReason::NotMe));
        }
        // The lower node connects: of two connections for one link neither would know which counts.
        let known = roster.find(hello.node).filter(|_| hello.node < me.node);
        if known.is_none_or(|peer| peer.incarnation != hello.incarnation) {
            return Some(me.refuse(RefusalReason::Unknown));
        }
        let of_link = (hello.pair, hello.large);
        let challenge = Greeting {
            version_min: version,
            version_max: version,
            nonce,
            ..me.greet(HandshakeKind::Challenge, hello.node, of_link)
        };
        self.hello = Some(hello);
        self.challenge = Some(challenge);
        self.expected = Expected::Proof;
        (hello.pair < me.workers.max(hello.workers))
            .then(|| HandshakeStep::Send(challenge.encode().into()))
    }

    fn take_challenge(
        &mut self,
        me: &Identity,
        peer: &PeerNode,
        challenge: Greeting,
    ) -> Option<HandshakeStep> {
        let hello = self.hello?;
        let agrees = challenge.kind == HandshakeKind::Challenge
            && challenge.to == me.node
            && (challenge.pair, challenge.large) == (hello.pair, hello.large)
            && challenge.workers > 0;
        if !agrees {
            return None;
        }
        let version = challenge.version_max;
        if challenge.version_min != version || !(me.versions.0..=me.versions.1).contains(&version) {
            return Some(me.refuse(RefusalReason::Version));
        }
        if challenge.cluster != me.cluster {
            return Some(me.refuse(RefusalReason::Cluster));
        }
        if (challenge.node, challenge.incarnation) != (peer.node, peer.incarnation) {
            return Some(me.refuse(RefusalReason::Unknown));
        }
        self.challenge = Some(challenge);
        self.expected = Expected::Welcome;
        let proof = me.prove(HandshakeKind::Proof, &hello, &challenge)?;
        Some(HandshakeStep::Send(proof.encode().into()))
    }

    fn take_proof(
        &mut self,
        me: &Identity,
        roster: &PeerList,
        proof: &HandshakeProof,
    ) -> Option<HandshakeStep> {
        let (hello, challenge) = (self.hello?, self.challenge?);
        if proof.kind != HandshakeKind::Proof {
            return None;
        }
        if !me.believes(proof, &hello, &challenge) {
            return Some(me.refuse(RefusalReason::Secret));
        }
        // The list of peers may have changed since the Hello.
        if roster.find(hello.node).map(|peer| peer.incarnation) != Some(hello.incarnation) {
            return Some(me.refuse(RefusalReason::Unknown));
        }
        let welcome = me.prove(HandshakeKind::Welcome, &hello, &challenge)?;
        Some(HandshakeStep::Done(
            welcome.encode().into(),
            Established::of(&hello, &challenge),
        ))
    }

    fn take_welcome(&mut self, me: &Identity, welcome: &HandshakeProof) -> Option<HandshakeStep> {
        let (hello, challenge) = (self.hello?, self.challenge?);
        if welcome.kind != HandshakeKind::Welcome {
            return None;
        }
        if !me.believes(welcome, &hello, &challenge) {
            return Some(me.refuse(RefusalReason::Secret));
        }
        let established = Established::of(&challenge, &challenge);
        Some(HandshakeStep::Done(Vec::new(), established))
    }
}

impl Established {
    /// What the peer's greeting contains, and the version that the challenge chose.
    fn of(greeting: &Greeting, challenge: &Greeting) -> Self {
        Self {
            node: greeting.node,
            incarnation: greeting.incarnation,
            pair: greeting.pair,
            large: greeting.large,
            workers: greeting.workers,
            version: challenge.version_max,
        }
    }
}
