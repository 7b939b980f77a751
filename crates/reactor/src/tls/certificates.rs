//! Certificates and keys: the files that name them, and the settings of TLS that are made of them.
//!
//! A server's files can be read again while connections exist ([`ServerTls::reload`]): connections that are
//! accepted afterwards use the new certificate, and those that exist keep the old one.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

use super::session::explain;

/// A problem with a certificate or a key: the option that names it, its file, and what to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CertificateError(String);

/// The files with which a server identifies itself. Files are in PEM.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The server's certificate, and the intermediate certificates up to the authority (`--tls-cert`).
    pub cert: PathBuf,
    /// Its private key (`--tls-key`).
    pub key: PathBuf,
    /// The certificates that clients show.
    pub clients: ClientCertificates,
}

/// The certificates that clients of a server show.
#[derive(Clone, Debug, Default)]
pub enum ClientCertificates {
    /// None is asked for.
    #[default]
    None,
    /// One of an authority in this file, if the client has one: a client without a certificate is served, a
    /// certificate of another authority is refused.
    Optional(PathBuf),
    /// One of an authority in this file: other clients are refused.
    Required(PathBuf),
}

impl ClientCertificates {
    /// Returns `true` if a client without a certificate is refused.
    #[must_use]
    pub fn are_required(&self) -> bool {
        matches!(self, ClientCertificates::Required(_))
    }
}

/// The files by which a client recognises servers.
#[derive(Clone, Debug, Default)]
pub struct AuthorityFiles {
    /// Authorities of the servers' certificates, in PEM; `None`: the authorities that the system trusts.
    pub ca: Option<PathBuf>,
    /// The name in all servers' certificates; `None`: each server's certificate must have the server's
    /// address.
    pub name: Option<String>,
    /// The client's own certificate and its key, for servers that ask for one.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// The settings of TLS for connections that are accepted.
#[derive(Debug)]
pub struct ServerTls {
    files: CertificateFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns the problem, with its option and its remedy.
    pub fn load(files: CertificateFiles) -> Result<ServerTls, CertificateError> {
        let config = RwLock::new(server_config(&files)?);
        Ok(ServerTls { files, config })
    }

    /// Reads the files again, for connections that are accepted from now on. If that fails, nothing changes.
    ///
    /// # Errors
    /// As [`ServerTls::load`].
    pub fn reload(&self) -> Result<(), CertificateError> {
        let config = server_config(&self.files)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Returns `true` if clients without a certificate are refused.
    #[must_use]
    pub fn requires_certificates(&self) -> bool {
        self.files.clients.are_required()
    }

    /// Returns the settings for a new connection.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&config)
    }
}

/// The settings of TLS for connections that are made.
#[derive(Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// The name in all servers' certificates; `None`: each server's certificate has its address.
    name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns the problem, with its option and its remedy.
    pub fn load(files: &AuthorityFiles) -> Result<ClientTls, CertificateError> {
        let roots = match &files.ca {
            Some(file) => roots(file, "--node-ca")?,
            None => of_the_system()?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| CertificateError(error.to_string()))?
            .with_root_certificates(roots);
        let config = match &files.own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates(cert, "--node-cert")?;
                let config = builder.with_client_auth_cert(chain, private_key(key, "--node-key")?);
                config.map_err(|error| mismatch(&error, cert, key, "--node"))?
            }
        };
        let name = files.name.clone().map(|name| {
            let parsed = ServerName::try_from(name.clone());
            parsed.map_err(|_| {
                CertificateError(format!(
                    "--node-name {name} is neither a host's name nor an address"
                ))
            })
        });
        Ok(ClientTls {
            config: Arc::new(config),
            name: name.transpose()?,
        })
    }

    /// Returns the settings and the server's name for a session with the server at `address`.
    pub(super) fn session(&self, address: SocketAddr) -> (Arc<ClientConfig>, ServerName<'static>) {
        let name = self.name.clone();
        let name = name.unwrap_or_else(|| ServerName::IpAddress(address.ip().into()));
        (Arc::clone(&self.config), name)
    }

    /// Speaks TLS over a blocking stream; the handshake is over when this returns.
    ///
    /// # Errors
    /// Returns the stream's error, or the reason why the server cannot be trusted.
    pub fn encrypt(
        &self,
        mut stream: TcpStream,
        address: SocketAddr,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let (config, name) = self.session(address);
        let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(|error| {
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
                    return io::Error::other(
                        "no answer to the handshake: does it speak TLS there?",
                    );
                }
                handshake_error(error)
            })?;
        }
        Ok(StreamOwned::new(tls, stream))
    }
}

/// Returns the error of a handshake in words that say which side refuses the other, and why.
#[must_use]
pub fn handshake_error(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(inner) => io::Error::other(explain(inner, true)),
        None => error,
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn server_config(files: &CertificateFiles) -> Result<Arc<ServerConfig>, CertificateError> {
    let chain = certificates(&files.cert, "--tls-cert")?;
    let key = private_key(&files.key, "--tls-key")?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| CertificateError(error.to_string()))?;
    let builder = match &files.clients {
        ClientCertificates::None => builder.with_no_client_auth(),
        ClientCertificates::Optional(file) | ClientCertificates::Required(file) => {
            let roots = Arc::new(roots(file, "--tls-ca")?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let verifier = match files.clients.are_required() {
                true => verifier.build(),
                false => verifier.allow_unauthenticated().build(),
            };
            builder.with_client_cert_verifier(verifier.map_err(|error| {
                CertificateError(format!("--tls-ca {}: {error}", file.display()))
            })?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let config = config.map_err(|error| mismatch(&error, &files.cert, &files.key, "--tls"))?;
    Ok(Arc::new(config))
}

/// Reads a key, which other users must not be able to read.
fn private_key(file: &Path, option: &str) -> Result<PrivateKeyDer<'static>, CertificateError> {
    base::private::check(file)
        .map_err(|error| CertificateError(format!("{option} {}: {error}", file.display())))?;
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| unusable(file, option, "no private key", &error))
}

/// Returns the error for a certificate and a key that cannot be used together; their options begin with
/// `prefix`.
fn mismatch(error: &rustls::Error, cert: &Path, key: &Path, prefix: &str) -> CertificateError {
    let (cert, key) = (cert.display(), key.display());
    CertificateError(match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "the key in {key} is not that of the certificate in {cert}; correct {prefix}-key or {prefix}-cert"
        ),
        other => format!("{prefix}-cert {cert}: {other}"),
    })
}

fn of_the_system() -> Result<RootCertStore, CertificateError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(CertificateError(
            "the system knows no authorities for the nodes' certificates: give --node-ca FILE"
                .to_owned(),
        ));
    }
    Ok(roots)
}

fn roots(file: &Path, option: &str) -> Result<RootCertStore, CertificateError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, option)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(file, option, "a certificate of no use", &error))?;
    }
    Ok(roots)
}

fn certificates(
    file: &Path,
    option: &str,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let wrong = |error: &dyn Display| unusable(file, option, "no certificate", error);
    let all = CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
    let all = all.collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| wrong(&error))?;
    if all.is_empty() {
        return Err(wrong(&"it has none in PEM"));
    }
    Ok(all)
}

fn unusable(file: &Path, option: &str, what: &str, error: &dyn Display) -> CertificateError {
    let file = file.display();
    CertificateError(format!("{option} {file}: {what} can be read: {error}"))
}
