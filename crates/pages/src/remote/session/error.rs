//! What can go wrong with a storage node.

/// What can go wrong with a storage node; the text says with which.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It cannot be reached, or the link has gone down. Another node that has the pages may be asked.
    #[error("{0}")]
    Lost(String),
    /// It has too much to do, or is ending. Another node, or the same one later, may do it.
    #[error("{0}")]
    Busy(String),
    /// It has ended a task whose results nobody took for long. It is as good as before, and so would another
    /// one wait in vain.
    #[error("{0}")]
    Untaken(String),
    /// It does not do this, or does not have it.
    #[error("{0}")]
    Refused(String),
    /// It finds a page corrupt, or cannot read it.
    #[error("{0}")]
    Page(String),
    /// A value cannot be computed.
    #[error("{0}")]
    Value(String),
    /// It was asked to make a change, and may have made it or not.
    #[error("{0}; nobody knows whether the change was made: see with 'kumiki pages ls'")]
    Doubtful(String),
    /// Whoever has asked wants no answer any more.
    #[error("{0}")]
    Unwanted(String),
}

impl SessionError {
    /// Returns what the error means after a change was asked for: of a node that is lost nobody knows
    /// whether it had made the change before.
    pub(super) fn of_change(self) -> SessionError {
        match self {
            SessionError::Lost(why) => SessionError::Doubtful(why),
            told => told,
        }
    }
}
