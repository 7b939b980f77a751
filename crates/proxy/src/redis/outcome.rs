//! The result of one command of a client.

use crate::runtime::protocol::InputProgress;

/// The result of one command.
pub(crate) enum CommandOutcome {
    /// It is answered, or on its way.
    Handled,
    /// It stays in the input, and is read again later.
    PutBack(InputProgress),
    /// It is answered, and later commands are not.
    Close,
    /// It has a wrong password, and is refused after a delay.
    WrongPassword,
}
