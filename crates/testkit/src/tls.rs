//! Certificates for tests of TLS: an authority, the files that it signs, and sessions of clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::Client;
use crate::http::{self, Response};

pub use rcgen;

/// An authority, and the files that it has signed. They are removed when it is dropped.
pub struct CertificateAuthority {
    dir: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// Creates an authority with a certificate of its own.
    ///
    /// # Panics
    /// Panics if no temporary file can be written.
    #[must_use]
    pub fn new(name: &str) -> CertificateAuthority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("ca.pem"), issuer.pem()).expect("a file");
        CertificateAuthority { dir, issuer }
    }

    /// Returns the path of a file in the authority's directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the file of the authority's own certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Signs a certificate for 127.0.0.1 after `change`, and returns the files of it and its key: `NAME.pem` and
    /// `NAME.key`.
    ///
    /// # Panics
    /// Panics if the files cannot be written, or if the changed certificate cannot be signed.
    pub fn sign(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        params.subject_alt_names = vec![SanType::IpAddress(address)];
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = (
            self.path(&format!("{name}.pem")),
            self.path(&format!("{name}.key")),
        );
        std::fs::write(&files.0, signed.pem()).expect("a file");
        crate::files::write_private(&files.1, key.serialize_pem());
        files
    }

    /// Returns the settings of a client of servers that have a certificate of this authority. The client shows
    /// the certificate `own`, if there is one.
    ///
    /// # Panics
    /// Panics if the files cannot be read.
    #[must_use]
    pub fn client_config(&self, own: Option<&(PathBuf, PathBuf)>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.ca()).expect("a certificate");
        roots.add(ca).expect("it is added");
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_file(cert).expect("a certificate")],
                    PrivateKeyDer::from_pem_file(key).expect("a key"),
                )
                .expect("they match"),
        }
    }

    /// Returns a client's session with a server on 127.0.0.1, by the settings of
    /// [`CertificateAuthority::client_config`].
    ///
    /// # Panics
    /// Panics if the files cannot be read.
    #[must_use]
    pub fn session(&self, own: Option<&(PathBuf, PathBuf)>) -> ClientConnection {
        session(self.client_config(own))
    }

    /// Connects to a server on 127.0.0.1 that speaks RESP, by the settings of [`CertificateAuthority::client_config`].
    ///
    /// # Panics
    /// Panics if the files cannot be read, or if no process listens at `address`.
    #[must_use]
    pub fn client(
        &self,
        address: SocketAddr,
        own: Option<&(PathBuf, PathBuf)>,
    ) -> Client<StreamOwned<ClientConnection, TcpStream>> {
        let stream = http::connect(address);
        stream.set_nodelay(true).expect("no delay");
        Client::over(StreamOwned::new(self.session(own), stream))
    }

    /// Sends a `GET` by HTTPS as a client with the certificate `own`, and returns the response; `None` if one
    /// side refuses the other.
    ///
    /// # Panics
    /// Panics if no process listens at `address`.
    #[must_use]
    pub fn get(
        &self,
        address: SocketAddr,
        path: &str,
        own: Option<&(PathBuf, PathBuf)>,
    ) -> Option<Response> {
        let stream = StreamOwned::new(self.session(own), http::connect(address));
        http::get_over(stream, path)
    }
}

/// Returns a client's session with a server on 127.0.0.1.
///
/// # Panics
/// Panics if the settings cannot be used.
#[must_use]
pub fn session(config: ClientConfig) -> ClientConnection {
    let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
    ClientConnection::new(Arc::new(config), name).expect("a session")
}
