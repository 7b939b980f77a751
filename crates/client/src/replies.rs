//! The values in the replies to operations.

use base::Abort;
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

/// Returns the value that the reply to a read holds.
pub(crate) fn value(op: usize, reply: OwnedReply) -> Result<Option<Vec<u8>>, Error> {
    match reply {
        OwnedReply::Bytes(bytes) => Ok(Some(bytes)),
        OwnedReply::Nil => Ok(None),
        OwnedReply::Error(error) => Err(Error::Operation { op, error }),
        other => Err(unexpected_read(&other)),
    }
}

/// Returns the number in the reply to a write.
pub(crate) fn number(reply: OwnedReply) -> Result<i64, Error> {
    match reply {
        OwnedReply::Int(number) => Ok(number),
        other => Err(Error::Committed {
            why: format!("its reply should be a number, and is {other:?}"),
        }),
    }
}

/// Returns the error for a read whose reply is of another kind than its own.
pub(crate) fn unexpected_read(reply: &OwnedReply) -> Error {
    let what = format!("a node answered a read by {reply:?}");
    Error::Aborted(Abort::Unsupported { what })
}
