//! How functions and calls end.

/// How a function fails.
#[derive(Debug)]
pub(crate) enum FunctionFailure {
    /// With the value on the top.
    Value,
    /// With a message, after the position of the caller.
    Message(Vec<u8>),
    /// With a message about an argument, counted from 1.
    Argument(i32, Vec<u8>),
    /// Because the script is killed.
    Killed,
    /// Because the memory limit is reached.
    OutOfMemory,
}

impl FunctionFailure {
    /// Returns a failure with a message, which is put behind the position of the caller.
    pub(crate) fn message(text: impl Into<Vec<u8>>) -> FunctionFailure {
        FunctionFailure::Message(text.into())
    }
}

/// How a call has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallStatus {
    /// The results are on the stack.
    Returned,
    /// The error is on the stack.
    Failed,
    /// The heap has reached its limit; a message is on the stack.
    OutOfMemory,
    /// The error handler has failed; a message is on the stack.
    HandlerFailed,
}
