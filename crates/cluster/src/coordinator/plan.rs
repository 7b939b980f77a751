//! How the operations of a caller are executed, and by which partitions.

use base::transaction::check_guards;
use base::{Abort, Op, PartitionId};

use super::transaction::ExecutionMode;
use crate::context::NodeContext;
use crate::ramp::{self, Algorithm, ReadAtomicRead, ReadAtomicRefusal, TransactionClass, classify};

/// What a caller wants besides its operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestedMode {
    Default,
    /// Keys that are only read are held, too.
    HoldReads,
    /// The operations must read or write read-atomic keys, by this algorithm.
    ReadAtomic(Algorithm),
}

/// Returns how operations are executed, and the partition of each, as in
/// [`CoordinatedTransaction::partitions`].
pub(super) fn plan(
    context: &NodeContext,
    default: Algorithm,
    ops: &[Op<'_>],
    requested: RequestedMode,
) -> Result<(ExecutionMode, Vec<Option<PartitionId>>), Abort> {
    let mode = mode(context, default, ops, requested)?;
    let partitions = if let ExecutionMode::ReadAtomicRead(reading) = &mode {
        let keys = reading.keys();
        keys.map(|key| Some(context.topology.partition_of(key)))
            .collect()
    } else {
        partitions_of(context, ops)?
    };
    Ok((mode, partitions))
}

/// Returns how operations are executed. Refusals do not depend on where keys lie.
fn mode(
    context: &NodeContext,
    default: Algorithm,
    ops: &[Op<'_>],
    requested: RequestedMode,
) -> Result<ExecutionMode, ReadAtomicRefusal> {
    let declared = context.topology.read_atomic();
    let reading = |algorithm| {
        let reading = ReadAtomicRead::of_ops(algorithm, ops, context.now);
        ExecutionMode::ReadAtomicRead(Box::new(reading))
    };
    let way = classify(declared, ops)?;
    Ok(match (way, requested) {
        (TransactionClass::Read | TransactionClass::Write, RequestedMode::HoldReads) => {
            return Err(ReadAtomicRefusal::holds(ops));
        }
        (TransactionClass::Ordinary, RequestedMode::Default) => ExecutionMode::Serializable,
        (TransactionClass::Ordinary, RequestedMode::HoldReads) => ExecutionMode::HoldingReads,
        (TransactionClass::Read, RequestedMode::Default) => reading(default),
        (TransactionClass::Write, RequestedMode::Default) => {
            ExecutionMode::ReadAtomicWrite(default)
        }
        (way, RequestedMode::ReadAtomic(algorithm)) => {
            ramp::check_one_kind(declared, ops)?;
            match way {
                TransactionClass::Read => reading(algorithm),
                TransactionClass::Write => ExecutionMode::ReadAtomicWrite(algorithm),
                // A single key.
                TransactionClass::Ordinary => ExecutionMode::Serializable,
            }
        }
    })
}

/// Returns the partition of each operation, as in [`CoordinatedTransaction::partitions`](super::transaction::CoordinatedTransaction::partitions).
fn partitions_of(context: &NodeContext, ops: &[Op<'_>]) -> Result<Vec<Option<PartitionId>>, Abort> {
    check_guards(ops)?;
    let along = !ops.iter().all(Op::goes_along);
    let mut partitions = Vec::with_capacity(ops.len());
    for op in ops {
        partitions.push(match op.key() {
            Some(key) => Some(context.topology.partition_of(key)),
            None if along && op.goes_along() => None,
            None => Some(context.local_partition.ok_or_else(no_partition)?),
        });
    }
    let mut named = partitions.iter().flatten();
    let first = named.next();
    if ops.contains(&Op::Now) && named.any(|of| Some(of) != first) {
        let what = "each partition has a time of its own: ask for it in a transaction of one";
        let what = what.to_owned();
        return Err(Abort::Unsupported { what });
    }
    Ok(partitions)
}

fn no_partition() -> Abort {
    let what = "a node without a partition was given an operation that names no key";
    let what = what.to_owned();
    Abort::Unavailable { what }
}
