//! The common parts of networks that hold bytes of connections themselves, between the kernel and the
//! owner of a connection.

use std::io::{self, ErrorKind};
use std::time::Duration;

/// Bytes that a connection holds in one direction.
pub const MOST: usize = 64 * 1024;
/// How long written bytes are still sent after a connection was closed.
pub const LINGER: Duration = Duration::from_secs(5);
/// Interval at which closed connections with unsent bytes are checked.
pub const LOOK: Duration = Duration::from_millis(50);

/// An error that can be returned more than once.
#[derive(Clone, Debug)]
pub struct Failure(ErrorKind, String);

impl Failure {
    /// Keeps the kind and the text of an error.
    #[must_use]
    pub fn new(error: &io::Error) -> Failure {
        Failure(error.kind(), error.to_string())
    }

    /// Returns an error of the same kind and text.
    #[must_use]
    pub fn error(&self) -> io::Error {
        io::Error::new(self.0, self.1.clone())
    }
}
