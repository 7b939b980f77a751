//! What all connections to nodes share: their settings, and the requests with which they begin.

use std::sync::Arc;

use cql::notation::StringMap;
use cql::request::{Parameters, Query as CqlQuery, Request};
use cql::{BoundValues, Consistency, Version};

use super::connection_key::ConnectionKeys;
use super::credentials::Credential;
use reactor::tls::ClientTls;

/// The settings of connections to nodes.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) connection_keys: ConnectionKeys,
    /// The credential of the proxy itself, for its own requests to nodes.
    pub(crate) own: Option<Credential>,
    /// The TLS settings; `None`: without TLS.
    pub(crate) tls: Option<Arc<ClientTls>>,
}

/// Returns the options with which the proxy begins a connection.
pub(crate) fn startup() -> StringMap<'static> {
    vec![
        ("CQL_VERSION", "3.0.0"),
        ("DRIVER_NAME", "kumiki proxy"),
        ("DRIVER_VERSION", env!("CARGO_PKG_VERSION")),
    ]
}

/// Returns a QUERY of a text, without any options.
pub(crate) fn plain_query(text: &str, version: Version) -> Request<'_> {
    let parameters = Parameters::new(Consistency::One, BoundValues::none(version));
    Request::Query(CqlQuery { text, parameters })
}

/// Returns a name of CQL in quotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
