//! Certificates and keys, from files.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

use super::session::explain;
use crate::config::{Config, TlsClients, TlsNodes};
use crate::error::ProxyError;

/// The TLS settings for clients and for nodes; `None`: without TLS.
#[derive(Clone, Default)]
pub(crate) struct TlsSetup {
    pub(crate) clients: Option<Arc<ServerConfig>>,
    pub(crate) nodes: Option<Arc<NodeTls>>,
}

/// The TLS settings for nodes.
#[derive(Debug)]
pub(crate) struct NodeTls {
    pub(crate) config: Arc<ClientConfig>,
    /// The name in all nodes' certificates; `None`: each node's certificate has its address.
    name: Option<ServerName<'static>>,
}

impl NodeTls {
    /// Returns the name that the certificate of the node at this address must have.
    pub(crate) fn name_of(&self, address: SocketAddr) -> ServerName<'static> {
        let name = self.name.clone();
        name.unwrap_or_else(|| ServerName::IpAddress(address.ip().into()))
    }
}

impl NodeTls {
    /// Speaks TLS over a blocking stream; the handshake is over when this returns.
    ///
    /// # Errors
    /// Returns the stream's error, or the reason why the node cannot be trusted.
    pub(crate) fn encrypt(
        &self,
        mut stream: TcpStream,
        address: SocketAddr,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = self.name_of(address);
        let mut tls =
            ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(|error| {
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
                    return io::Error::other(
                        "no answer to the handshake: does it speak TLS there?",
                    );
                }
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
                match inner {
                    Some(inner) => io::Error::other(explain(inner, true)),
                    None => error,
                }
            })?;
        }
        Ok(StreamOwned::new(tls, stream))
    }
}

impl TlsSetup {
    /// Reads the files that `config` names.
    ///
    /// # Errors
    /// Returns the problem, with its option and its remedy.
    pub(crate) fn load(config: &Config) -> Result<TlsSetup, ProxyError> {
        let clients = config.tls.as_ref().map(clients).transpose()?;
        let nodes = config.node_tls.as_ref().map(nodes).transpose()?;
        Ok(TlsSetup { clients, nodes })
    }

    /// Returns `true` if nothing is encrypted.
    pub(crate) fn is_plain(&self) -> bool {
        self.clients.is_none() && self.nodes.is_none()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn clients(tls: &TlsClients) -> Result<Arc<ServerConfig>, ProxyError> {
    let chain = certificates(&tls.cert, "--tls-cert")?;
    base::private::check(&tls.key).map_err(|error| {
        ProxyError::invalid_setting(format!("--tls-key {}: {error}", tls.key.display()))
    })?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|error| unusable(&tls.key, "--tls-key", "no private key", &error))?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| ProxyError::invalid_setting(error.to_string()))?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = Arc::new(roots(file, "--tls-client-ca")?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            let verifier = verifier.map_err(|error| {
                ProxyError::invalid_setting(format!("--tls-client-ca {}: {error}", file.display()))
            })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let config = config.map_err(|error| {
        ProxyError::invalid_setting(match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "the key in {} is not that of the certificate in {}; correct --tls-key or --tls-cert",
            tls.key.display(),
            tls.cert.display()
        ),
        other => format!("--tls-cert {}: {other}", tls.cert.display()),
    })})?;
    Ok(Arc::new(config))
}

fn nodes(tls: &TlsNodes) -> Result<Arc<NodeTls>, ProxyError> {
    let roots = match &tls.ca {
        Some(file) => roots(file, "--node-ca")?,
        None => of_the_system()?,
    };
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| ProxyError::invalid_setting(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = tls.name.clone().map(|name| {
        let parsed = ServerName::try_from(name.clone());
        parsed.map_err(|_| {
            ProxyError::invalid_setting(format!(
                "--node-name {name} is neither a host's name nor an address"
            ))
        })
    });
    Ok(Arc::new(NodeTls {
        config: Arc::new(config),
        name: name.transpose()?,
    }))
}

fn of_the_system() -> Result<RootCertStore, ProxyError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(ProxyError::invalid_setting(
            "the system knows no authorities for the nodes' certificates: give --node-ca FILE",
        ));
    }
    Ok(roots)
}

fn roots(file: &Path, option: &str) -> Result<RootCertStore, ProxyError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, option)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(file, option, "a certificate of no use", &error))?;
    }
    Ok(roots)
}

fn certificates(file: &Path, option: &str) -> Result<Vec<CertificateDer<'static>>, ProxyError> {
    let wrong = |error: &dyn std::fmt::Display| unusable(file, option, "no certificate", error);
    let all = CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
    let all = all.collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| wrong(&error))?;
    if all.is_empty() {
        return Err(wrong(&"it has none in PEM"));
    }
    Ok(all)
}

fn unusable(file: &Path, option: &str, what: &str, error: &dyn std::fmt::Display) -> ProxyError {
    ProxyError::invalid_setting(format!(
        "{option} {}: {what} can be read: {error}",
        file.display()
    ))
}
