//! Errors of a storage node.

/// Errors of a storage node; the text names the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It cannot be reached, or the link has gone down. Another node that has the pages may be asked.
    #[error("{0}")]
    Lost(String),
    /// It has too much to do, or is ending. Another node, or the same one later, may do it.
    #[error("{0}")]
    Busy(String),
    /// It has ended a task whose results were not taken for long. The node works as before, and another node
    /// would wait in vain, too.
    #[error("{0}")]
    Untaken(String),
    /// It does not support the request, or does not have the table.
    #[error("{0}")]
    Refused(String),
    /// It finds a page corrupt, or cannot read it.
    #[error("{0}")]
    Page(String),
    /// A value cannot be computed.
    #[error("{0}")]
    Value(String),
    /// It was asked to make a change, and it is unknown whether it has made it.
    #[error("{0}; it is unknown whether the change was made: see with 'kumiki pages ls'")]
    Doubtful(String),
    /// The caller no longer wants the answer.
    #[error("{0}")]
    Unwanted(String),
}

impl SessionError {
    /// Converts an error after a change was requested: if the node is lost, it is unknown whether it had
    /// made the change before.
    pub(super) fn of_change(self) -> SessionError {
        match self {
            SessionError::Lost(why) => SessionError::Doubtful(why),
            told => told,
        }
    }
}
