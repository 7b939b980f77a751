//! TLS for clients: a certificate and its key, from files.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pgwire::tokio::TlsAcceptor;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;

/// What clients call the protocol where they begin with TLS at once.
const PROTOCOL: &[u8] = b"postgresql";

/// Files in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate, and those that it is derived from.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Tls {
    /// What speaks TLS with clients.
    ///
    /// # Errors
    /// Which file is of no use, and why.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, Error> {
        let chain = certificates(&self.cert)?;
        base::private::check(&self.key)
            .map_err(|error| format!("--tls-key {}: {error}", self.key.display()))?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| unusable(&self.key, "no private key", &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::System(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key);
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => format!(
                "the key in {} is not that of the certificate in {}: correct --tls-key or --tls-cert",
                self.key.display(),
                self.cert.display()
            ),
            other => format!("the certificate in {}: {other}", self.cert.display()),
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |error: &dyn Display| unusable(file, "no certificate", error);
    let all = CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
    let all = all.collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| wrong(&error))?;
    if all.is_empty() {
        return Err(wrong(&"it has none in PEM"));
    }
    Ok(all)
}

fn unusable(file: &Path, what: &str, error: &dyn Display) -> Error {
    format!("{what} can be read from {}: {error}", file.display()).into()
}
