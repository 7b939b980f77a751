//! The execution of a block: its commands as the operations of one transaction, and their replies.
//!
//! | part | operations |
//! |---|---|
//! | each watched key | `Check` with the version seen |
//! | each command that touches the store | those of its plan |
//! | each `LOCK.GUARD` | `Guard` |
//! | each other command | none; it answers in its place afterwards |
//!
//! Invariants:
//! 1. A block is one transaction: all its operations take effect at one point, or none.
//! 2. A command that is all or nothing (`MSETNX`) must not abort the block when its preconditions
//!    are not met. Its outcome is assumed and the assumption is a precondition of the block:
//!    first that all are met; then, when the store names one that is not, the opposite of that
//!    one, in place of the command's operations. The block takes effect only with assumptions
//!    that hold at that point.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::transaction::check_guards;
use base::{Abort, Epoch, Op, Reply, Version};
use resp::Writer;

use crate::block::{Call, plan_guard};
use crate::command::{Ops, Run};
use crate::commands::key::{keys_end, plan_keys, plan_scan, scan_position};
use crate::connection::Connection;
use crate::cursors::Cursors;
use crate::executor::Executor;
use crate::refusal::{self, Refusal};
use crate::render::{Render, Surroundings};
use crate::shared::Context;
use crate::task::Work;

/// How often the assumptions of invariant 2 are revised, for each command that makes them.
const REVISIONS: usize = 16;

/// See the module's description.
pub(crate) struct Execution {
    calls: Vec<Call>,
    watches: BTreeMap<Vec<u8>, Version>,
    /// Where each command that visits keys begins or ends.
    positions: Vec<Result<Arc<[u8]>, Refusal>>,
    assumed: Vec<Assumption>,
    revisions: usize,
}

/// The assumption about a command that is all or nothing: which of its preconditions is not met.
type Assumption = Option<usize>;

/// The result of planning one command.
enum Part<'a> {
    /// It has `count` operations from `first` on.
    Planned {
        first: usize,
        count: usize,
        render: Render<'a>,
    },
    /// It is assumed not to happen: its answer is 0.
    NotDone {
        first: usize,
    },
    Refused(Refusal),
    Local,
}

/// The operations of a block, and the command of each.
pub(crate) struct Plan<'a> {
    pub(crate) ops: Ops<'a>,
    parts: Vec<Part<'a>>,
}

/// What to do with a block that did not take effect.
pub(crate) enum Verdict {
    /// It is tried again, with other assumptions.
    Again,
    /// Its client gets this answer.
    Tell(Abort),
}

impl Execution {
    pub(crate) fn new(
        calls: Vec<Call>,
        watches: BTreeMap<Vec<u8>, Version>,
        cursors: &Cursors,
    ) -> Execution {
        let positions = calls
            .iter()
            .map(|call| match call.command.run {
                Run::Scan => scan_position(call.args(), cursors),
                Run::Keys => Ok(keys_end(call.args())),
                _ => Ok([].into()),
            })
            .collect();
        Execution {
            positions,
            assumed: vec![None; calls.len()],
            calls,
            watches,
            revisions: 0,
        }
    }

    /// Returns the block's operations under the current assumptions.
    pub(crate) fn plan(&self) -> Plan<'_> {
        let mut ops: Ops<'_> = self
            .watches
            .iter()
            .map(|(key, version)| Op::Check {
                key,
                version: *version,
            })
            .collect();
        let parts = self
            .calls
            .iter()
            .zip(&self.positions)
            .zip(&self.assumed)
            .map(|((call, position), assumed)| plan(call, position, *assumed, &mut ops))
            .collect();
        Plan { ops, parts }
    }

    /// Decides how the block continues after `abort`.
    pub(crate) fn revise(&mut self, abort: Abort) -> Verdict {
        let Abort::Precondition { op } = abort else {
            return Verdict::Tell(abort);
        };
        if op < self.watches.len() {
            return Verdict::Tell(abort);
        }
        let conditional = |call: &&Call| matches!(call.command.run, Run::AllOrNothing(_));
        let most = REVISIONS * self.calls.iter().filter(conditional).count();
        self.revisions += 1;
        let firsts = self.plan().parts.into_iter().map(|part| part.first_op());
        let at = firsts
            .enumerate()
            .rfind(|(_, first)| first.is_some_and(|first| first <= op));
        let Some((at, Some(first))) = at.filter(|_| self.revisions <= most) else {
            return Verdict::Tell(Abort::Conflict {
                attempts: self.revisions as u32,
            });
        };
        self.assumed[at] = match self.assumed[at] {
            None => Some(op - first),
            Some(_) => None,
        };
        Verdict::Again
    }

    /// Writes the replies of a block that has taken effect.
    pub(crate) fn answer(
        &self,
        plan: &Plan<'_>,
        replies: &[Reply<'_>],
        time_ms: u64,
        context: &mut Context,
        connection: &mut Connection,
    ) {
        connection.writer().array(plan.parts.len());
        for (call, part) in self.calls.iter().zip(&plan.parts) {
            let command = call.command;
            context.recorder.count(command);
            let mut writer = Writer::new(connection.output.buffer(), connection.protocol);
            match part {
                Part::Planned {
                    first,
                    count,
                    render,
                } => {
                    let around = Surroundings {
                        command,
                        cursors: &context.shared.cursors,
                        time_ms,
                        lookups: &context.lookups,
                    };
                    render.write(&replies[*first..first + count], &around, &mut writer);
                }
                Part::NotDone { .. } => writer.int(0),
                Part::Refused(refusal) => refusal.write(command, &mut writer),
                Part::Local => {
                    if let Run::Local(local) = command.run {
                        context.in_block = true;
                        local(context, connection, call.args());
                        context.in_block = false;
                    } else if let Run::Unwatch = command.run {
                        // EXEC has ended the watches.
                        writer.ok();
                    } else {
                        refusal::arity(command, &mut writer);
                    }
                }
            }
        }
    }
}

impl Part<'_> {
    fn first_op(&self) -> Option<usize> {
        match self {
            Part::Planned { first, .. } | Part::NotDone { first } => Some(*first),
            Part::Refused(_) | Part::Local => None,
        }
    }
}

/// Adds the operations of one command to those of the block.
fn plan<'a>(
    call: &'a Call,
    position: &'a Result<Arc<[u8]>, Refusal>,
    assumed: Assumption,
    ops: &mut Ops<'a>,
) -> Part<'a> {
    let args = call.args();
    let first = ops.len();
    let planned = match (call.command.run, position) {
        (Run::Store(plan) | Run::AllOrNothing(plan), _) => plan(args, ops),
        (Run::Scan, Ok(position)) => plan_scan(args, position, ops),
        (Run::Scan | Run::Keys, Err(refusal)) => Err(refusal.clone()),
        (Run::Keys, Ok(end)) => plan_keys(args, end, ops),
        (Run::Guard, _) => plan_guard(args, ops),
        _ => return Part::Local,
    };
    let render = match planned {
        Ok(render) => render,
        Err(refusal) => {
            ops.truncate(first);
            return Part::Refused(refusal);
        }
    };
    if let Some(unmet) = assumed
        && let Some(&Op::Require { key, present }) = ops.get(first + unmet)
    {
        ops.truncate(first);
        let present = !present;
        ops.push(Op::Require { key, present });
        return Part::NotDone { first };
    }
    Part::Planned {
        first,
        count: ops.len() - first,
        render,
    }
}

impl Executor {
    /// Executes a block, here or with other nodes, now or when no other transaction holds the keys
    /// that it needs.
    pub(crate) fn execute_block(
        &mut self,
        connection: &mut Connection,
        mut execution: Box<Execution>,
    ) {
        loop {
            let plan = execution.plan();
            let checked = check_guards(&plan.ops).and_then(|()| self.check_read_atomic(&plan.ops));
            if let Err(abort) = checked {
                return refusal::abort(&abort, &mut connection.writer());
            }
            if self.cluster.is_some() && !self.is_here(&plan.ops) {
                let number = self.begin(connection, &plan.ops);
                drop(plan);
                return connection.wait_for(number, Work::Block(execution));
            }
            if plan.ops.is_empty() {
                // It shows no data of the store.
                return execution.answer(&plan, &[], 0, &mut self.context, connection);
            }
            if self.worker.executes_later(&plan.ops) {
                let proposed = self.worker.propose(&plan.ops);
                drop(plan);
                return self.wait_for_outcome(connection, Work::Block(execution), proposed);
            }
            let from = connection.output.position();
            let context = &mut self.context;
            let outcome = self.worker.execute(&plan.ops, None, |replies, observed| {
                execution.answer(&plan, replies, observed.time_ms, context, connection);
            });
            let abort = match outcome {
                Ok(epoch) => return self.finish(connection, from, epoch),
                Err(Abort::Elsewhere { .. }) => {
                    // A client cannot be sent to another node with a block.
                    let number = self.begin(connection, &plan.ops);
                    drop(plan);
                    return connection.wait_for(number, Work::Block(execution));
                }
                Err(abort) => abort,
            };
            drop(plan);
            match execution.revise(abort) {
                Verdict::Again => {}
                Verdict::Tell(Abort::Held { by }) => {
                    return self.park(connection, Work::Block(execution), by);
                }
                Verdict::Tell(abort) => {
                    let epoch = self.worker.observed().epoch;
                    return self.tell_block(connection, &abort, epoch);
                }
            }
        }
    }

    /// Answers a block that did not take effect, because of data that `epoch` shows.
    pub(crate) fn tell_block(&mut self, connection: &mut Connection, abort: &Abort, epoch: Epoch) {
        let from = connection.output.position();
        let mut writer = connection.writer();
        if let Abort::Precondition { .. } = abort {
            writer.null_array();
            return self.finish(connection, from, epoch);
        }
        if *abort == Abort::OutOfMemory {
            let reason = refusal::OUT_OF_MEMORY;
            let text = format!("EXECABORT Transaction discarded because of: {reason}");
            return writer.error(&text);
        }
        refusal::abort(abort, &mut writer);
        if abort.shows() {
            self.finish(connection, from, epoch);
        }
    }
}
