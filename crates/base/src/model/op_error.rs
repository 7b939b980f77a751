//! Why an operation failed.

use super::call_error::CallError;

/// The reason why one operation failed. The transaction's other operations are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// The value has another type.
    #[error("the key holds a value of another type")]
    WrongType,
    /// The value, or the operand, is not an integer of 64 bits.
    #[error("value is not an integer or out of range")]
    NotInteger,
    /// The sum does not fit 64 bits.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// The value is not a number.
    #[error("value is not a valid float")]
    NotNumber,
    /// The sum is not a finite number.
    #[error("increment would produce NaN or Infinity")]
    NotFinite,
    /// The key or the value is longer than the limits allow.
    #[error("the key or value exceeds the maximum allowed size")]
    TooLong,
    /// The expiry lies out of range.
    #[error("the expire time is out of range")]
    BadExpiry,
    /// The key is one of those that the store keeps for itself.
    #[error("the key is reserved: no key may begin with sixteen bytes of 0xff")]
    Reserved,
    /// A command on a collection failed.
    #[error("{0}")]
    Call(CallError),
}
