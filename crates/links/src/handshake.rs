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

/// One handshake, of which one side is played here; it knows what comes next.
pub(crate) struct Handshake(Expected);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expected {
    Hello { nonce: Nonce },
    Challenge { peer: PeerNode, hello: Greeting },
    Proof(Greetings),
    Welcome(Greetings),
}

/// What both sides prove to have seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Greetings {
    hello: Greeting,
    challenge: Greeting,
}

/// How a handshake ends when everything is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HandshakeEnd {
    /// It is a link: the peer's greeting, of which `version_max` is the newest that both speak.
    Linked(Greeting),
    /// This side refuses: the other one cannot be linked with.
    Refuses(RefusalReason),
    /// The other side does not want to be linked with.
    IsRefused(RefusalReason),
    /// The connection broke, or it is not this protocol.
    Broken,
}

/// What to send after a message, and how the handshake ends then; if it does not, the next message
/// is awaited.
pub(crate) type HandshakeStep = (Vec<u8>, Option<HandshakeEnd>);

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

    fn mac(&self, kind: HandshakeKind, seen: &Greetings) -> Option<HmacSha256> {
        let mut mac = HmacSha256::new_from_slice(&self.secret).ok()?;
        mac.update(&HandshakeProof::label(kind));
        mac.update(&seen.hello.encode());
        mac.update(&seen.challenge.encode());
        Some(mac)
    }

    fn prove(&self, kind: HandshakeKind, seen: &Greetings) -> Option<Vec<u8>> {
        let mac = self.mac(kind, seen)?.finalize().into_bytes().into();
        Some(HandshakeProof { kind, mac }.encode().into())
    }

    /// Whether a proof is right; the comparison takes as long wherever they differ.
    fn believes(&self, proof: &HandshakeProof, seen: &Greetings) -> bool {
        let mac = self.mac(proof.kind, seen);
        mac.is_some_and(|mac| mac.verify_slice(&proof.mac).is_ok())
    }

    fn refuse(&self, reason: RefusalReason) -> HandshakeStep {
        let refusal = HandshakeRefusal {
            reason,
            version_min: self.versions.0,
            version_max: self.versions.1,
        };
        let end = HandshakeEnd::Refuses(reason);
        (refusal.encode().into(), Some(end))
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
        let handshake = Self(Expected::Challenge { peer, hello });
        (handshake, hello.encode().into())
    }

    /// The side of the acceptor, which sends nothing at first.
    pub(crate) const fn accept(nonce: Nonce) -> (Self, Vec<u8>) {
        (Self(Expected::Hello { nonce }), Vec::new())
    }

    /// Takes the next message, whole.
    pub(crate) fn take(
        &mut self,
        me: &Identity,
        roster: &PeerList,
        message: &[u8],
    ) -> HandshakeStep {
        if let Some(refusal) = message.first_chunk().and_then(HandshakeRefusal::decode) {
            let end = HandshakeEnd::IsRefused(refusal.reason);
            return (Vec::new(), Some(end));
        }
        let greeting = |kind| {
            let greeting = message.first_chunk().and_then(Greeting::decode);
            greeting.filter(|greeting| greeting.kind == kind)
        };
        let proof = |kind| {
            let proof = message.first_chunk().and_then(HandshakeProof::decode);
            proof.filter(|proof| proof.kind == kind)
        };
        let step = match self.0 {
            Expected::Hello { nonce } => greeting(HandshakeKind::Hello)
                .and_then(|hello| self.take_hello(me, roster, hello, nonce)),
            Expected::Challenge { peer, hello } => greeting(HandshakeKind::Challenge)
                .and_then(|challenge| self.take_challenge(me, &peer, hello, challenge)),
            Expected::Proof(seen) => {
                proof(HandshakeKind::Proof).and_then(|proof| seen.take_proof(me, roster, &proof))
            }
            Expected::Welcome(seen) => {
                proof(HandshakeKind::Welcome).and_then(|proof| seen.take_welcome(me, &proof))
            }
        };
        step.unwrap_or((Vec::new(), Some(HandshakeEnd::Broken)))
    }

    fn take_hello(
        &mut self,
        me: &Identity,
        roster: &PeerList,
        hello: Greeting,
        nonce: Nonce,
    ) -> Option<HandshakeStep> {
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
        self.0 = Expected::Proof(Greetings { hello, challenge });
        (hello.pair < me.workers.max(hello.workers)).then(|| (challenge.encode().into(), None))
    }

    fn take_challenge(
        &mut self,
        me: &Identity,
        peer: &PeerNode,
        hello: Greeting,
        challenge: Greeting,
    ) -> Option<HandshakeStep> {
        let agrees = challenge.to == me.node
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
        let seen = Greetings { hello, challenge };
        self.0 = Expected::Welcome(seen);
        Some((me.prove(HandshakeKind::Proof, &seen)?, None))
    }
}

impl Greetings {
    fn take_proof(
        &self,
        me: &Identity,
        roster: &PeerList,
        proof: &HandshakeProof,
    ) -> Option<HandshakeStep> {
        if !me.believes(proof, self) {
            return Some(me.refuse(RefusalReason::Secret));
        }
        // The list of peers may have changed since the Hello.
        let known = roster.find(self.hello.node).map(|peer| peer.incarnation);
        if known != Some(self.hello.incarnation) {
            return Some(me.refuse(RefusalReason::Unknown));
        }
        let welcome = me.prove(HandshakeKind::Welcome, self)?;
        Some((welcome, Some(self.linked_with(&self.hello))))
    }

    fn take_welcome(&self, me: &Identity, welcome: &HandshakeProof) -> Option<HandshakeStep> {
        if !me.believes(welcome, self) {
            return Some(me.refuse(RefusalReason::Secret));
        }
        Some((Vec::new(), Some(self.linked_with(&self.challenge))))
    }

    /// What the peer has said, and the version that the challenge chose.
    const fn linked_with(&self, peer: &Greeting) -> HandshakeEnd {
        HandshakeEnd::Linked(Greeting {
            version_max: self.challenge.version_max,
            ..*peer
        })
    }
}
