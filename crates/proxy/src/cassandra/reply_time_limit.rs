//! How long a node may take for a request.

use cql::statement::StatementKind;

/// How long a request may take at a node that lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ReplyTimeLimit {
    /// It reads or writes rows. Nodes give up after at most ten seconds, unless configured otherwise.
    #[default]
    Rows,
    /// It changes the schema, or empties a table: nodes take up to a minute.
    Schema,
}

impl ReplyTimeLimit {
    /// Returns the limit of a statement; for a statement that is not understood, the longer one.
    pub(crate) fn of(kind: Option<StatementKind>) -> ReplyTimeLimit {
        match kind {
            None | Some(StatementKind::Truncate | StatementKind::Other) => ReplyTimeLimit::Schema,
            Some(_) => ReplyTimeLimit::Rows,
        }
    }

    /// Returns the limit as a multiple of a node's timeout, for
    /// [`Query::route`](crate::runtime::query::BackendQuery::route).
    pub(crate) fn timeouts(self) -> u32 {
        match self {
            ReplyTimeLimit::Rows => 3,
            ReplyTimeLimit::Schema => 15,
        }
    }
}
