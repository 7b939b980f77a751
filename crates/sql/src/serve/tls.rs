//! TLS with clients of PostgreSQL, by the certificate that the process keeps.

use std::sync::Arc;

use pgwire::tokio::TlsAcceptor;
use reactor::tls::ServerTls;

/// The protocol's name in the handshakes of clients that begin with TLS at once.
const PROTOCOL: &[u8] = b"postgresql";

/// Returns the acceptor for a new connection, by the certificate as it was read last.
pub(crate) fn acceptor(certificate: &ServerTls) -> TlsAcceptor {
    let mut config = (*certificate.config()).clone();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}
