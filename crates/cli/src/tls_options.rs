//! The options of TLS: of a listener, the same for all commands that serve, and of connections to nodes.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use reactor::tls::{AuthorityFiles, CertificateFiles, ClientCertificates, ServerTls};

/// Options of a listener that speaks TLS.
#[derive(Args, Debug)]
pub(crate) struct TlsOptions {
    /// Have clients speak TLS, and show them this certificate (PEM), with those between it and its
    /// authority.
    #[arg(help_heading = "TLS", long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM).
    #[arg(help_heading = "TLS", long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The authorities of clients' certificates (PEM). Clients without a certificate of one of them are
    /// refused, but see --tls-auth-clients.
    #[arg(
        help_heading = "TLS",
        long,
        value_name = "FILE",
        requires = "tls_cert",
        alias = "tls-client-ca"
    )]
    tls_ca: Option<PathBuf>,
    /// Ask clients for a certificate of --tls-ca: refuse those without one (yes, the default with --tls-ca),
    /// serve them as well (optional), or do not ask (no, the default without).
    #[arg(help_heading = "TLS", long, value_name = "WHEN", requires = "tls_cert")]
    tls_auth_clients: Option<AuthClients>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum AuthClients {
    Yes,
    Optional,
    No,
}

impl TlsOptions {
    /// Returns `true` if the listener speaks TLS.
    pub(crate) fn are_given(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// Reads the certificate; `None`: the listener does not speak TLS.
    ///
    /// # Errors
    /// Returns an error if a file cannot be used, or if clients are to show certificates and their authorities
    /// are not known.
    pub(crate) fn certificate(&self) -> Result<Option<Arc<ServerTls>>, String> {
        let loaded = self.files()?.map(ServerTls::load).transpose();
        let loaded = loaded.map_err(|error| error.to_string())?;
        Ok(loaded.map(Arc::new))
    }

    fn files(&self) -> Result<Option<CertificateFiles>, String> {
        let (Some(cert), Some(key)) = (self.tls_cert.clone(), self.tls_key.clone()) else {
            return Ok(None);
        };
        let clients = match (self.tls_auth_clients, self.tls_ca.clone()) {
            (Some(AuthClients::No), _) | (None, None) => ClientCertificates::None,
            (Some(AuthClients::Optional), Some(ca)) => ClientCertificates::Optional(ca),
            (Some(AuthClients::Yes) | None, Some(ca)) => ClientCertificates::Required(ca),
            (Some(_), None) => {
                let needs = "--tls-auth-clients needs --tls-ca FILE, the authorities of clients' certificates";
                return Err(needs.to_owned());
            }
        };
        Ok(Some(CertificateFiles { cert, key, clients }))
    }
}

/// Options of connections to nodes that speak TLS.
#[derive(Args, Debug)]
pub(crate) struct NodeTlsOptions {
    /// Speak TLS with the nodes.
    #[arg(help_heading = "TLS", long)]
    node_tls: bool,
    /// The authorities of the nodes' certificates (PEM); default: those that the system knows.
    #[arg(help_heading = "TLS", long, value_name = "FILE", requires = "node_tls")]
    node_ca: Option<PathBuf>,
    /// The name in all nodes' certificates; default: each node's address.
    #[arg(help_heading = "TLS", long, value_name = "NAME", requires = "node_tls")]
    node_name: Option<String>,
    /// Show this certificate (PEM) to nodes that ask for one.
    #[arg(
        help_heading = "TLS",
        long,
        value_name = "FILE",
        requires = "node_tls",
        requires = "node_key"
    )]
    node_cert: Option<PathBuf>,
    /// The private key of --node-cert (PEM).
    #[arg(
        help_heading = "TLS",
        long,
        value_name = "FILE",
        requires = "node_cert"
    )]
    node_key: Option<PathBuf>,
}

impl NodeTlsOptions {
    /// Returns the files by which nodes are recognised; `None`: connections to nodes are not encrypted.
    pub(crate) fn files(&self) -> Option<AuthorityFiles> {
        self.node_tls.then(|| AuthorityFiles {
            ca: self.node_ca.clone(),
            name: self.node_name.clone(),
            own: self.node_cert.clone().zip(self.node_key.clone()),
        })
    }
}
