//! Why a caller has no answer.

use std::io;
use std::net::SocketAddr;

use crate::frame::Code;
use crate::handshake::Refused;

/// What went wrong with a connection. After any of them but `TooLong` it is of no use.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// To where.
        address: SocketAddr,
        /// What happened.
        error: io::Error,
    },
    /// The peers do not fit together; trying again does not help, mostly.
    #[error("{address}: {refused}")]
    Refused {
        /// By whom.
        address: SocketAddr,
        /// Why.
        refused: Refused,
    },
    /// Nothing came in time.
    #[error("{address} did not answer in time")]
    TimedOut {
        /// From where.
        address: SocketAddr,
    },
    /// The connection was closed, or broke.
    #[error("the connection to {address} broke: {error}")]
    Broken {
        /// To where.
        address: SocketAddr,
        /// What happened.
        error: io::Error,
    },
    /// The message is longer than the limit; it was not sent.
    #[error("the message has {len} bytes, more than the {limit} that are allowed")]
    TooLong {
        /// Its bytes.
        len: usize,
        /// The limit.
        limit: usize,
    },
}

impl CallError {
    /// Whether another try cannot help until somebody has changed something: the peers do not fit
    /// together.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            CallError::Refused { refused, .. } => {
                !matches!(refused.code, Code::Busy | Code::Late | Code::Other)
            }
            CallError::TooLong { .. } => true,
            _ => false,
        }
    }
}
