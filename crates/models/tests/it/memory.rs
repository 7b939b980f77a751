//! The memory of rings: see crate `fabric`.

use crate::sync::AtomicU64;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    #[error("refused: {0}")]
    Refused(String),
    #[error("lost: {0}")]
    Lost(String),
}

pub trait Words {
    fn words(&self) -> &[AtomicU64];
}

pub trait Remote {
    fn len(&self) -> usize;
    fn write(&mut self, from: usize, words: &[u64]) -> Result<(), RemoteError>;
    fn settle(&mut self) -> Result<bool, RemoteError>;
}
