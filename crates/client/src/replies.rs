//! The values in the replies to operations.

use base::partition::OwnedReply;

use crate::error::Error;

/// Returns an error if an operation has failed by itself.
pub(crate) fn check(replies: &[OwnedReply]) -> Result<(), Error> {
    let failed = replies.iter().enumerate().find_map(|(op, reply)| {
        let OwnedReply::Error(error) = *reply else {
            return None;
        };
        Some(Error::Operation { op, error })
    });
    failed.map_or(Ok(()), Err)
}

/// Returns the value that a reply holds.
pub(crate) fn value(op: usize, reply: OwnedReply) -> Result<Option<Vec<u8>>, Error> {
    match reply {
        OwnedReply::Bytes(bytes) => Ok(Some(bytes)),
        OwnedReply::Nil => Ok(None),
        OwnedReply::Error(error) => Err(Error::Operation { op, error }),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn number(reply: OwnedReply) -> Result<i64, Error> {
    match reply {
        OwnedReply::Int(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

/// Returns the error for an operation that was executed, but whose reply is of another kind than its
/// own.
pub(crate) fn unexpected(reply: &OwnedReply) -> Error {
    let why = format!("it was executed, and its reply is {reply:?}");
    Error::Unknown { why }
}
