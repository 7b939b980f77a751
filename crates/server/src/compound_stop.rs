//! Why a command of a transaction in several steps has not executed.

use store::TransactionError;

use crate::refusal::Refusal;
use crate::working_set::Need;

/// Why a command has not executed. Nothing has happened.
pub(crate) enum CompoundStop {
    Refused(Refusal),
    /// It needs further reads, and is to be called again.
    Needs(Need),
    /// The partition's transaction in which it runs must end with this error.
    End(TransactionError),
}

impl From<Refusal> for CompoundStop {
    fn from(refusal: Refusal) -> CompoundStop {
        CompoundStop::Refused(refusal)
    }
}

impl From<Need> for CompoundStop {
    fn from(need: Need) -> CompoundStop {
        CompoundStop::Needs(need)
    }
}
