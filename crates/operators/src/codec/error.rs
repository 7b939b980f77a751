//! Errors of encoding and decoding.

/// The version of the encoding.
pub(super) const VERSION: u8 = 1;

/// Why bytes cannot be decoded to a fragment, or a fragment not be encoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    /// The bytes are those of another version.
    #[error("the fragment is of version {0}, and this program knows {VERSION}: send pages instead")]
    Version(u8),
    /// The bytes are not those of a fragment.
    #[error("these bytes are no fragment: {0}")]
    Malformed(&'static str),
    /// There is more than a fragment may have.
    #[error("the fragment is too large: {0}")]
    TooLarge(&'static str),
    /// Values of this type are not computed with.
    #[error("type {0} cannot be sent")]
    Type(String),
}
