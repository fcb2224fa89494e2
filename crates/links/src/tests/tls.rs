//! Links over TLS, with valid and invalid certificates.

use std::{fs, path::PathBuf};

use curtail_membership::{Rollout, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};

use crate::tests::*;

/// A folder with an authority and what it has signed.
struct Office {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// What a certificate is like.
#[derive(Clone, Copy)]
struct Paper {
    address: &'static str,
    until: i32,
    usages: &'static [ExtendedKeyUsagePurpose],
}

const PAPER: Paper = Paper {
    address: "127.0.0.1",
    until: 4000,
    usages: &[
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ],
};

impl Office {
    fn open(name: &str) -> Self {
        let name = format!("curtail-tls-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { folder, issuer }
    }

    fn sign(&self, name: &str, paper: Paper) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let address = paper.address.parse().unwrap();
        params.subject_alt_names = vec![SanType::IpAddress(address)];
        params.extended_key_usages = paper.usages.to_vec();
        params.not_after = date_time_ymd(paper.until, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = TlsFiles {
            ca: self.folder.join("ca.pem"),
            certificate: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
            rollout: None,
        };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    fn tls(&self, name: &str, paper: Paper) -> Option<Tls> {
        Some(Tls::load(&self.sign(name, paper)).unwrap())
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Goal: with TLS a link does what it does without. Method: the same test.
#[test]
fn reports_arrive_once_and_in_order_over_tls() {
    let office = Office::open("order");
    let a = Node::secured(KIND, office.tls("a", PAPER));
    let b = Node::secured(other(), office.tls("b", PAPER));
    exchange(link(a, b));
}

/// Goal: a cluster takes TLS up node by node, and is linked at each step; from the last but one on
/// nobody can read along. Method: nodes before and after each step, either of which makes the link;
/// somebody on the way. Without a rollout two such nodes never link: the test after the next.
#[test]
fn tls_is_taken_up_node_by_node() {
    let office = Office::open("rollout");
    let tls = |name: &str, rollout: Option<Option<Rollout>>| {
        let files = TlsFiles {
            rollout: rollout?,
            ..office.sign(name, PAPER)
        };
        Some(Tls::load(&files).unwrap())
    };
    let (none, accept) = (None, Some(Some(Rollout::Accept)));
    let (dial, strict) = (Some(Some(Rollout::Dial)), Some(None));
    for (one, other_one, hides) in [
        (none, accept, false),
        (accept, accept, false),
        (accept, dial, false),
        (dial, dial, true),
        (dial, strict, true),
    ] {
        for (first, second) in [(one, other_one), (other_one, one)] {
            let a = Node::secured(KIND, tls("a", first));
            let b = Node::secured(other(), tls("b", second));
            let shows = is_overheard(a, b);
            assert!(!(hides && shows), "{first:?} {second:?}");
        }
    }
}

/// Goal: what goes over the wire cannot be read there. Method: somebody on the way, who hands on
/// what it sees; a report in it without TLS, and none with it.
#[test]
fn what_is_sent_is_hidden() {
    let office = Office::open("hidden");
    for hides in [false, true] {
        let tls = |name| hides.then(|| office.tls(name, PAPER)).flatten();
        let a = Node::secured(KIND, tls("a"));
        let b = Node::secured(other(), tls("b"));
        assert_eq!(is_overheard(a, b), !hides);
    }
}

/// Links `a` and `b` by way of somebody who listens, sends a report, and tells whether it could be
/// read on the way.
fn is_overheard(mut a: Node, mut b: Node) -> bool {
    const REPORT: &[u8] = b"a report that nobody else may read";
    let (address, seen) = listen_in(b.handle.address());
    b.peer.address = address;
    introduce(&[&a, &b]);
    until(&mut a, &mut b, "linking", |a, b| are_up(a, b));
    a.workers[0].report(2, Class::Demand, REPORT).unwrap();
    until(&mut a, &mut b, "sending", |_, b| {
        !b.workers[0].received.is_empty()
    });
    assert_eq!(b.workers[0].received[0].1, REPORT);
    let seen = seen.lock().unwrap();
    seen.windows(REPORT.len()).any(|bytes| bytes == REPORT)
}

/// Hands connections on to `to`, and keeps what it sees.
fn listen_in(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    std::thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let Ok(there) = TcpStream::connect(to) else {
                return;
            };
            let ways = [
                (from.try_clone().unwrap(), there.try_clone().unwrap()),
                (there, from),
            ];
            for (mut from, mut to) in ways {
                let seen = Arc::clone(&all);
                std::thread::spawn(move || {
                    let mut area = [0; 4096];
                    while let Ok(bytes @ 1..) = from.read(&mut area) {
                        seen.lock().unwrap().extend(&area[..bytes]);
                        if to.write_all(&area[..bytes]).is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    (address, seen)
}

/// Goal: the end of a connection is seen though it comes together with the last bytes. Method: a
/// peer that says something and is gone before this side looks; silence would tell after a second.
#[test]
fn an_end_right_behind_the_last_bytes_is_seen() {
    let office = Office::open("end");
    for hides in [false, true] {
        let tls = |name| hides.then(|| office.tls(name, PAPER)).flatten();
        let (mut a, mut b) = link(
            Node::secured(KIND, tls("a")),
            Node::secured(other(), tls("b")),
        );
        // Nobody connects again.
        a.handle.stop();
        a.workers[0].report(2, Class::Demand, b"last").unwrap();
        a.turn();
        let links = a.workers[0].links.links.len();
        (0..links).for_each(|number| a.workers[0].links.give_up(number));
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..3 {
            b.turn();
        }
        assert_eq!(b.workers[0].received.len(), 1);
        let down = LinkEvent::Down(NodeId(1));
        assert!(b.workers[0].happened.contains(&down), "TLS: {hides}");
    }
}

/// Goal: two nodes that do not believe each other are not linked, and each says what to do. Method:
/// pairs of which one side is wrong.
#[test]
fn who_is_not_believed_is_not_linked() {
    let (office, stranger) = (Office::open("here"), Office::open("there"));
    let elsewhere = Paper {
        address: "10.9.9.9",
        ..PAPER
    };
    let good = || office.tls("good", PAPER);
    for (a, b, says_a, says_b) in [
        // Of another authority, either way round.
        (
            good(),
            stranger.tls("b", PAPER),
            "not signed by",
            "same `ca`",
        ),
        (stranger.tls("a", PAPER), good(), "same `ca`", ""),
        // Not for the address at which it is reached; who connects need not have one.
        (
            good(),
            office.tls("b", elsewhere),
            "subject alternative",
            "",
        ),
        // One of them without TLS.
        (None, good(), "speaks TLS", "does not speak TLS"),
        (good(), None, "", "speaks TLS"),
    ] {
        let mut a = Node::secured(KIND, a);
        let mut b = Node::secured(other(), b);
        introduce(&[&a, &b]);
        let said = |node: &Node, what: &str| {
            what.is_empty() || node.said().iter().any(|line| line.contains(what))
        };
        let what = format!("{says_a:?} and {says_b:?}");
        until(&mut a, &mut b, &what, |a, b| {
            said(a, says_a) && said(b, says_b)
        });
        assert!(!are_up(&a, &b));
        assert!(a.said().len() <= 2, "said once: {:?}", a.said());
        assert!(b.said().len() <= 2, "said once: {:?}", b.said());
    }
}

/// Goal: a node that nobody would believe does not start, and says why. Method: files that are
/// wrong in one way each.
#[test]
fn a_node_looks_at_its_own_certificate_first() {
    let (office, stranger) = (Office::open("own"), Office::open("stranger"));
    let expired = Paper {
        until: 2001,
        ..PAPER
    };
    let half = Paper {
        usages: &PAPER.usages[1..],
        ..PAPER
    };
    let good = office.sign("good", PAPER);
    let missing = office.folder.join("missing.pem");
    for (files, says) in [
        (office.sign("old", expired), "has expired"),
        (office.sign("half", half), "clientAuth"),
        (
            TlsFiles {
                ca: stranger.folder.join("ca.pem"),
                ..good.clone()
            },
            "same `ca`",
        ),
        (
            TlsFiles {
                key: office.sign("other", PAPER).key,
                ..good.clone()
            },
            "good.pem and",
        ),
        (
            TlsFiles {
                certificate: good.key.clone(),
                ..good.clone()
            },
            "there is no certificate in it",
        ),
        (
            TlsFiles {
                key: good.ca.clone(),
                ..good.clone()
            },
            "there is no private key in it",
        ),
        (
            TlsFiles {
                ca: missing,
                ..good.clone()
            },
            "No such file",
        ),
    ] {
        let error = Tls::load(&files).err().unwrap().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    assert!(Tls::load(&good).is_ok());
}

/// Goal: a certificate that expires while a node runs is said to have. Method: what a peer's
/// refusal of each kind becomes.
#[test]
fn an_expiry_says_what_to_do() {
    use crate::transport::TlsFailure;
    use rustls::{AlertDescription, CertificateError, Error};
    for (error, says) in [
        (
            Error::InvalidCertificate(CertificateError::Expired),
            "its certificate has expired: have the authority issue another",
        ),
        (
            Error::AlertReceived(AlertDescription::CertificateExpired),
            "it says that this node's certificate has expired",
        ),
        (
            Error::InvalidCertificate(CertificateError::NotValidYet),
            "compare the clocks",
        ),
    ] {
        let advice = TlsFailure::Refused(error).advice();
        assert!(advice.contains(says), "{advice}");
    }
}
