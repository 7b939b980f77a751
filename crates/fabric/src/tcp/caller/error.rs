//! The reason why a caller has no answer.

use std::io;
use std::net::SocketAddr;

use crate::frame::RefusalCode;
use crate::handshake::HandshakeRefusal;

/// An error of a connection. After any of them but `TooLong` the connection is of no use.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The connection could not be made.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// The address of the peer.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The peers do not fit together; trying again usually does not help.
    #[error("{address}: {refused}")]
    Refused {
        /// The address of the peer that refused.
        address: SocketAddr,
        /// The reason.
        refused: HandshakeRefusal,
    },
    /// No answer came in time.
    #[error("{address} did not answer in time")]
    TimedOut {
        /// The address of the peer.
        address: SocketAddr,
    },
    /// The connection was closed, or broke.
    #[error("the connection to {address} broke: {error}")]
    Broken {
        /// The address of the peer.
        address: SocketAddr,
        /// The error.
        error: io::Error,
    },
    /// The message is longer than the limit; it was not sent.
    #[error("the message has {len} bytes, more than the {limit} that are allowed")]
    TooLong {
        /// The length of the message in bytes.
        len: usize,
        /// The limit.
        limit: usize,
    },
}

impl CallError {
    /// Returns `true` if another try cannot help before a configuration is changed: the peers do
    /// not fit together.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            CallError::Refused { refused, .. } => !matches!(
                refused.code,
                RefusalCode::Busy | RefusalCode::Late | RefusalCode::Other
            ),
            CallError::TooLong { .. } => true,
            _ => false,
        }
    }
}
