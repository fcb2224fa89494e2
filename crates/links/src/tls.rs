//! TLS for links: this node's certificate, the authorities it trusts, and advice on failures.
//!
//! Version 1.3 only. Both sides show a certificate that the cluster's authority has signed; the one
//! that is connected to is also known by its address. The handshake of the secret
//! ([`handshake`](super::handshake)) follows inside.

use std::{net::IpAddr, path::Path, sync::Arc};

use curtail_membership::{Rollout, TlsFiles};
use curtail_runtime::Stream;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, RootCertStore,
    ServerConfig, ServerConnection,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::TLS13,
};

use crate::transport::{TlsFailure, Transport};

/// What connections are made and taken with.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    rollout: Option<Rollout>,
}

/// Why there is none: a sentence for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// What is spoken inside, so that nothing else is.
const PROTOCOL: &[u8] = b"curtail-nodes/1";

impl Tls {
    /// Reads the files and sees that they fit each other, and that others will believe them now.
    ///
    /// # Errors
    /// When they do not; it says which, and what would.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let authorities = certificates(&files.ca)?;
        let chain = certificates(&files.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| unreadable(&files.key, "private key", &error))?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots
                .add(authority)
                .map_err(|error| strange(&files.ca, &error))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(ring::default_provider()));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider.clone())
                .build()
                .map_err(|error| TlsError(format!("{}: {error}", files.ca.display())))?;
        if let Some((own, between)) = chain.split_first() {
            verifier
                .verify_client_cert(own, between, UnixTime::now())
                .map_err(|error| strange(&files.certificate, &error))?;
        }
        let (client, server) =
            configure(provider, roots, verifier, chain, key).map_err(|error| {
                let (certificate, key) = (files.certificate.display(), files.key.display());
                TlsError(format!("{certificate} and {key}: {error}"))
            })?;
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
            rollout: files.rollout,
        })
    }

    /// The side that connects to a node at `address`; `None` only if there is no randomness.
    pub(crate) fn connect(&self, stream: Stream, address: IpAddr) -> Option<Transport> {
        if self.rollout == Some(Rollout::Accept) {
            return Some(Transport::plain(stream));
        }
        let name = ServerName::IpAddress(address.into());
        let tls = ClientConnection::new(Arc::clone(&self.client), name).ok()?;
        Some(Transport::secured(stream, tls.into(), false))
    }

    /// The side that is connected to.
    pub(crate) fn accept(&self, stream: Stream) -> Option<Transport> {
        let tls = ServerConnection::new(Arc::clone(&self.server)).ok()?;
        let is_open = self.rollout.is_some();
        Some(Transport::secured(stream, tls.into(), is_open))
    }
}

fn configure(
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    verifier: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<(ClientConfig, ServerConfig), Error> {
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.clone(), key.clone_key())?;
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.resumption = Resumption::disabled();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A link reconnects rarely, and then with a full handshake.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok((client, server))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error| unreadable(path, "certificate", &error);
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(unreadable)?
        .collect();
    match found {
        Ok(found) if found.is_empty() => Err(unreadable(pem::Error::NoItemsFound)),
        found => found.map_err(unreadable),
    }
}

fn unreadable(path: &Path, what: &str, error: &pem::Error) -> TlsError {
    let path = path.display();
    TlsError(match error {
        pem::Error::NoItemsFound => format!("{path}: there is no {what} in it (as PEM)"),
        pem::Error::Io(error) => format!("{path}: {error}"),
        error => format!("{path}: {error}"),
    })
}

fn strange(path: &Path, error: &Error) -> TlsError {
    let why = match error {
        Error::InvalidCertificate(error) => about_certificate(error),
        error => error.to_string(),
    };
    TlsError(format!("{}: the certificate {why}", path.display()))
}

/// What is wrong with a certificate, and what would mend it.
fn about_certificate(error: &CertificateError) -> String {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext,
        NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext, UnknownIssuer,
    };
    match error {
        Expired | ExpiredContext { .. } => {
            "has expired: have the authority issue another, and restart the node".into()
        }
        NotValidYet | NotValidYetContext { .. } => {
            "is not valid yet: compare the clocks of both machines".into()
        }
        UnknownIssuer | BadSignature => {
            "is not signed by this cluster's authority: give all nodes the same `ca`, and \
             certificates that it has signed"
                .into()
        }
        NotValidForName | NotValidForNameContext { .. } => {
            "is not for the address at which the node is reached: it has to name that as a subject \
             alternative name (IP:...)"
                .into()
        }
        InvalidPurpose | InvalidPurposeContext { .. } => {
            "is not valid for both sides: its extended key usage must be absent, or clientAuth and \
             serverAuth"
                .into()
        }
        error => format!("is unusable: {error}"),
    }
}

impl TlsFailure {
    /// What to log about the node with which this happened.
    pub(crate) fn advice(&self) -> String {
        let error = match self {
            Self::Refused(error) => error,
            Self::Silent => {
                return "it closed the connection before TLS began; check that its cluster file has \
                        [tls], too"
                    .into();
            }
        };
        match error {
            Error::InvalidCertificate(error) => {
                format!("its certificate {}", about_certificate(error))
            }
            Error::NoCertificatesPresented => "it presents no certificate".into(),
            Error::InvalidMessage(_) => SPEAKS_PLAINLY.into(),
            Error::AlertReceived(alert) => match alert {
                AlertDescription::CertificateExpired => {
                    "it says that this node's certificate has expired: compare both clocks, or \
                     have the authority issue another and restart this node"
                        .into()
                }
                AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                    "it says that this node's certificate is not signed by the cluster's \
                     authority: give all nodes the same `ca`"
                        .into()
                }
                alert => format!("it ended TLS: {alert:?}; its log says why"),
            },
            error => format!("TLS failed: {error}"),
        }
    }
}

const SPEAKS_PLAINLY: &str = "it does not speak TLS: give all nodes [tls]; use `rollout` if the \
                              cluster runs (docs/operations/security.md)";

/// What to log about a node that speaks TLS to one that does not.
pub(crate) const SPEAKS_TLS: &str = "it speaks TLS, and this node does not: give all nodes [tls]; \
                                     use `rollout` if the cluster runs \
                                     (docs/operations/security.md)";

/// Whether bytes begin as TLS does: a handshake or an alert, of any version.
pub(crate) fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 0x03, ..])
}
