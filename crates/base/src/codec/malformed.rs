//! Why bytes are malformed.

/// The version of the encoding.
pub const VERSION: u8 = 5;

/// The reason why bytes are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at byte {at})")]
pub struct Malformed {
    /// The kind of the error.
    pub kind: MalformedKind,
    /// The number of bytes that had been read.
    pub at: usize,
}

/// The kinds of errors in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedKind {
    /// They end too early.
    #[error("the message is cut off")]
    Cut,
    /// They go on behind the end.
    #[error("bytes follow the message's end")]
    TooMuch,
    /// They are of another version than [`VERSION`].
    #[error(
        "the message is of version {0} and this program reads version {VERSION}: use the same release on both sides"
    )]
    Version(u8),
    /// A number that tells variants apart has no meaning.
    #[error("{0} is no kind of {1}")]
    Kind(u8, &'static str),
    /// A count is too large, or longer than necessary.
    #[error("a count is out of range")]
    BadCount,
    /// A flag is neither set nor clear, or is unknown.
    #[error("a flag is unknown, or neither set nor clear")]
    BadFlag,
    /// A roll has a home that does not take part.
    #[error("the home is none of the participants")]
    NoHome,
    /// A nested reply is malformed.
    #[error("a nested reply is malformed")]
    BadReply,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    NotText,
}
