//! The errors of the proxy: what happened, in words, and who can do something about it.

/// An error of the proxy. Its text says what happened; the kind says what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// A node cannot be reached, or does not answer. Another node may, or the same one later.
    #[error("{0}")]
    Unavailable(String),
    /// A node refuses the proxy's request. The settings of the node or of the proxy must change.
    #[error("{0}")]
    Refused(String),
    /// A node's answer is not what its protocol promises. It is damaged, or of another version.
    #[error("{0}")]
    Malformed(String),
    /// The client's request is not valid. The client must change it.
    #[error("{0}")]
    InvalidRequest(String),
    /// A setting of the proxy is not valid. The operator must change it.
    #[error("{0}")]
    InvalidSetting(String),
}

impl ProxyError {
    pub(crate) fn unavailable(text: impl Into<String>) -> ProxyError {
        ProxyError::Unavailable(text.into())
    }

    pub(crate) fn refused(text: impl Into<String>) -> ProxyError {
        ProxyError::Refused(text.into())
    }

    pub(crate) fn malformed(text: impl Into<String>) -> ProxyError {
        ProxyError::Malformed(text.into())
    }

    pub(crate) fn invalid_request(text: impl Into<String>) -> ProxyError {
        ProxyError::InvalidRequest(text.into())
    }

    pub(crate) fn invalid_setting(text: impl Into<String>) -> ProxyError {
        ProxyError::InvalidSetting(text.into())
    }
}
