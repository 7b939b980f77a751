//! Replies that are computed of several sorted sets.

use base::Reply;
use resp::Writer;
use values::StoredBlock;
use values::commands::{Combination, check_sources, intersection_size};

use super::context::stored_value;
use super::nested;
use crate::refusal::{Refusal, write_op_error};

/// The computation. The options are checked only if all keys have sorted sets, or sets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SortedSetComputation {
    /// The members of a combination.
    Members(Result<CombinedMembers, Refusal>),
    /// The number of members that all sets have, up to a limit.
    IntersectionSize(Result<usize, Refusal>),
}

/// The members of a combination, with their scores if these are asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CombinedMembers {
    pub(crate) combination: Combination,
    pub(crate) with_scores: bool,
}

impl SortedSetComputation {
    /// Writes the reply.
    pub(super) fn write(&self, replies: &[Reply<'_>], command: &str, writer: &mut Writer<'_>) {
        let sources: Vec<Option<StoredBlock<'_>>> = replies.iter().map(stored_value).collect();
        if let Err(error) = check_sources(&sources) {
            return write_op_error(error, command, writer);
        }
        let failed = match self {
            SortedSetComputation::Members(Err(refusal))
            | SortedSetComputation::IntersectionSize(Err(refusal)) => {
                return refusal.write(command, writer);
            }
            SortedSetComputation::Members(Ok(members)) => {
                let reply = members.combination.reply(&sources, members.with_scores);
                reply.map(|reply| nested::write(&reply, writer))
            }
            SortedSetComputation::IntersectionSize(Ok(limit)) => {
                let size = intersection_size(&sources, *limit);
                size.map(|size| writer.int(size as i64))
            }
        };
        if let Err(error) = failed {
            write_op_error(error, command, writer);
        }
    }
}
