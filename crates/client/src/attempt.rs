//! One attempt of a call: what its answer means, and if another attempt follows.

use base::partition::OwnedReply;
use base::{Abort, NodeId};
use cluster::message::Answer;

use crate::connection_pool::RequestFailure;
use crate::error::Error;

/// Why an attempt is followed by another.
pub(crate) struct RetryReason {
    pub(crate) why: String,
    /// A newer file may help.
    pub(crate) stale: bool,
}

/// Result of an attempt.
pub(crate) type AttemptResult<T> = Result<Result<T, RetryReason>, Error>;

/// Judges the answer to an attempt that changes nothing, and that was not answered as expected.
pub(crate) fn judge_other(
    answer: Result<Answer, RequestFailure>,
    node: NodeId,
) -> Result<RetryReason, Error> {
    judge(answer, 0, node, true).map(|judged| match judged {
        Ok(_) => RetryReason {
            why: format!("node {node} has answered nothing"),
            stale: false,
        },
        Err(again) => again,
    })
}

/// Returns the error of a transaction that is not sent again.
pub(crate) fn final_error(abort: Abort) -> Error {
    match abort {
        Abort::Unknown { what } => Error::Unknown { why: what },
        Abort::Unacknowledged { partitions } => Error::Committed {
            why: format!(
                "keys of the partitions {partitions:?}, of which nothing was heard in time, may have their \
                 old values for a while"
            ),
        },
        abort => Error::Aborted(abort),
    }
}

/// Judges the answer to an attempt without a number; see the table of the module `execute`.
pub(crate) fn judge(
    answer: Result<Answer, RequestFailure>,
    count: usize,
    node: NodeId,
    reads: bool,
) -> AttemptResult<Vec<OwnedReply>> {
    let again = |why: String, stale: bool| Ok(Err(RetryReason { why, stale }));
    let unknown = |why: String| Err(Error::Unknown { why });
    match answer {
        Ok(Answer::Replies(replies)) if replies.len() == count => Ok(Ok(replies)),
        Ok(Answer::Aborted(abort)) => match abort {
            Abort::Unavailable { .. } => again(abort.to_string(), true),
            Abort::Elsewhere { .. }
            | Abort::Conflict { .. }
            | Abort::Held { .. }
            | Abort::Overtaken { .. }
            | Abort::Refused => again(abort.to_string(), false),
            Abort::Unknown { what } if reads => again(what, true),
            abort => Err(final_error(abort)),
        },
        Err(RequestFailure::NotSent(why)) => again(why, true),
        Err(RequestFailure::TooLong(why)) => Err(Error::TooLong { why }),
        Err(RequestFailure::Refused(why)) => Err(Error::Refused { why }),
        Err(RequestFailure::Lost(why)) if reads => again(why, true),
        Err(RequestFailure::Lost(why)) => unknown(why),
        // The node's partition has stopped: another node may serve.
        Ok(Answer::Failed(why)) if reads => again(why, true),
        Ok(other) if reads => Err(Error::Answer {
            node,
            what: describe_other(other),
        }),
        Ok(other) => unknown(format!("node {node} answered: {}", describe_other(other))),
    }
}

/// Describes an answer to something else.
pub(crate) fn describe_other(answer: Answer) -> String {
    match answer {
        Answer::Failed(what) => what,
        other => format!("{other:?}"),
    }
}
