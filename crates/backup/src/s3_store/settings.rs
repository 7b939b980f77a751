//! Where a store is, and who asks.

use std::path::PathBuf;

/// Where a store is, and who asks.
#[derive(Clone, Default)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// The beginning of the names of all objects, without a slash at its end; it may be empty.
    pub prefix: String,
    /// The URL of the store; `None`: that of AWS in the region.
    pub endpoint: Option<String>,
    /// The region.
    pub region: String,
    /// The id of the access key.
    pub access_key: String,
    /// The secret of the access key.
    pub secret_key: String,
    /// The token of a session, if there is one.
    pub session_token: Option<String>,
    /// A file with the certificates of authorities; `None`: those that the system trusts.
    pub authorities: Option<PathBuf>,
}
