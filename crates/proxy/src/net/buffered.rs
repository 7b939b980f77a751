//! What those networks have in common that hold bytes of connections themselves, between the kernel
//! and the owner of a connection.

use std::io::{self, ErrorKind};
use std::time::Duration;

/// Bytes that a connection holds in one direction.
pub(super) const MOST: usize = 64 * 1024;
/// How long what was written is sent after a connection was closed.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// How often is looked at connections that are closed and not sent yet.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// An error that can be told twice.
#[derive(Clone)]
pub(super) struct Failure(ErrorKind, String);

impl Failure {
    pub(super) fn new(error: &io::Error) -> Failure {
        Failure(error.kind(), error.to_string())
    }

    pub(super) fn error(&self) -> io::Error {
        io::Error::new(self.0, self.1.clone())
    }
}
