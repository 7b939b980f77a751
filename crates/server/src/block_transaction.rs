//! The transaction of a block: its commands as the operations of one transaction, and their replies.
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

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Abort, Op, Reply, Version, database};
use resp::Writer;

use crate::command::{CommandDefinition, CommandKind, Ops};
use crate::command_call::CommandCall;
use crate::cursors::Cursors;
use crate::database_selection::{DatabaseLimits, database_after};
use crate::lookup_counts::count_lookups;
use crate::refusal::{self, Refusal};
use crate::render::{Render, RenderContext};
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;

/// How often the assumptions of invariant 2 are revised, for each command that makes them.
const REVISIONS: usize = 16;

/// See the module's description.
pub(crate) struct BlockTransaction {
    calls: Vec<CommandCall>,
    watches: BTreeMap<Vec<u8>, Version>,
    /// Of each command that visits keys: the key at which it begins or ends.
    keys: Vec<Result<Arc<[u8]>, Refusal>>,
    /// The database of each command.
    databases: Vec<u16>,
    limits: DatabaseLimits,
    /// Of each command whose keys are not stored as the client names them: the stored keys.
    qualified: Vec<OnceCell<Vec<u8>>>,
    assumed: Vec<Assumption>,
    revisions: usize,
}

/// The assumption about a command that is all or nothing: which of its preconditions is not met.
type Assumption = Option<usize>;

/// The result of planning one command.
enum PlannedCommand<'a> {
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
pub(crate) struct BlockPlan<'a> {
    pub(crate) ops: Ops<'a>,
    commands: Vec<PlannedCommand<'a>>,
}

/// What to do with a block that did not take effect.
pub(crate) enum BlockDecision {
    /// It is tried again, with other assumptions.
    Retry,
    /// Its client gets this answer.
    Answer(Abort),
}

impl BlockTransaction {
    pub(crate) fn new(
        calls: Vec<CommandCall>,
        watches: BTreeMap<Vec<u8>, Version>,
        cursors: &Cursors,
        (database, limits): (u16, DatabaseLimits),
    ) -> BlockTransaction {
        let keys = calls
            .iter()
            .map(|call| match call.command.kind {
                CommandKind::Scan(from_key) | CommandKind::Keys(from_key) => {
                    (from_key.key)(call.args(), cursors)
                }
                _ => Ok([].into()),
            })
            .collect();
        BlockTransaction {
            keys,
            databases: databases_of(&calls, database, limits.count),
            limits,
            qualified: vec![OnceCell::new(); calls.len()],
            assumed: vec![None; calls.len()],
            calls,
            watches,
            revisions: 0,
        }
    }

    /// Returns the block's operations under the current assumptions.
    pub(crate) fn plan(&self) -> BlockPlan<'_> {
        let mut ops: Ops<'_> = self
            .watches
            .iter()
            .map(|(key, version)| Op::Check {
                key,
                version: *version,
            })
            .collect();
        let numbers = 0..self.calls.len();
        let commands = numbers.map(|at| self.plan_command(at, &mut ops)).collect();
        BlockPlan { ops, commands }
    }

    fn plan_command<'a>(&'a self, at: usize, ops: &mut Ops<'a>) -> PlannedCommand<'a> {
        let stored = (self.databases[at], self.limits, &self.qualified[at]);
        plan(
            &self.calls[at],
            &self.keys[at],
            self.assumed[at],
            stored,
            ops,
        )
    }

    /// Decides how the block continues after `abort`.
    pub(crate) fn revise(&mut self, abort: Abort) -> BlockDecision {
        let Abort::Precondition { op } = abort else {
            return BlockDecision::Answer(abort);
        };
        if op < self.watches.len() {
            return BlockDecision::Answer(abort);
        }
        let conditional =
            |call: &&CommandCall| matches!(call.command.kind, CommandKind::AllOrNothing(_));
        let most = REVISIONS * self.calls.iter().filter(conditional).count();
        self.revisions += 1;
        let firsts = self
            .plan()
            .commands
            .into_iter()
            .map(|planned| planned.first_op());
        let at = firsts
            .enumerate()
            .rfind(|(_, first)| first.is_some_and(|first| first <= op));
        let Some((at, Some(first))) = at.filter(|_| self.revisions <= most) else {
            return BlockDecision::Answer(Abort::Conflict {
                attempts: self.revisions as u32,
            });
        };
        self.assumed[at] = match self.assumed[at] {
            None => Some(op - first),
            Some(_) => None,
        };
        BlockDecision::Retry
    }

    /// Writes the replies of a block that has taken effect.
    pub(crate) fn answer(
        &self,
        plan: &BlockPlan<'_>,
        replies: &[Reply<'_>],
        time_ms: u64,
        commands: &'static [CommandDefinition],
        context: &mut RuntimeContext,
        session: &mut ClientSession,
    ) {
        session.writer().array(plan.commands.len());
        for (call, planned) in self.calls.iter().zip(&plan.commands) {
            let command = call.command;
            context.recorder.count(command.number);
            let mut writer = Writer::new(session.output.buffer(), session.protocol);
            match planned {
                PlannedCommand::Planned {
                    first,
                    count,
                    render,
                } => {
                    let around = RenderContext {
                        command: command.name,
                        cursors: &context.shared.cursors,
                        time_ms,
                    };
                    let replies = &replies[*first..first + count];
                    count_lookups(command, replies, &context.lookups);
                    render.write(replies, &around, &mut writer);
                }
                PlannedCommand::NotDone { .. } => writer.int(0),
                PlannedCommand::Refused(refusal) => refusal.write(command.name, &mut writer),
                PlannedCommand::Local => match command.kind {
                    CommandKind::Local(local) => {
                        context.in_block = true;
                        local(context, session, call.args());
                        context.in_block = false;
                    }
                    CommandKind::Deferred(local) => {
                        context.in_block = true;
                        let deferred = local(context, session, call.args());
                        context.in_block = false;
                        debug_assert!(deferred.is_none(), "{} answers later", command.name);
                    }
                    CommandKind::Introspection(answer) => {
                        answer(commands, call.args(), &mut writer)
                    }
                    // EXEC has ended the watches.
                    CommandKind::Unwatch => writer.ok(),
                    _ => refusal::write_arity(command.name, &mut writer),
                },
            }
        }
    }
}

impl PlannedCommand<'_> {
    fn first_op(&self) -> Option<usize> {
        match self {
            PlannedCommand::Planned { first, .. } | PlannedCommand::NotDone { first } => {
                Some(*first)
            }
            PlannedCommand::Refused(_) | PlannedCommand::Local => None,
        }
    }
}

/// Returns the database of each command, the first one being executed in `database`, of `databases`.
fn databases_of(calls: &[CommandCall], mut database: u16, databases: u16) -> Vec<u16> {
    let of_call = |call: &CommandCall| {
        let own = database;
        database = database_after(call.command.name, call.args(), (database, databases));
        own
    };
    calls.iter().map(of_call).collect()
}

/// Adds the operations of one command to those of the block.
fn plan<'a>(
    call: &'a CommandCall,
    key: &'a Result<Arc<[u8]>, Refusal>,
    assumed: Assumption,
    (database, limits, qualified): (u16, DatabaseLimits, &'a OnceCell<Vec<u8>>),
    ops: &mut Ops<'a>,
) -> PlannedCommand<'a> {
    let args = call.args();
    let first = ops.len();
    let planned = match call.command.kind {
        CommandKind::Guard(plan) => plan(args, ops),
        CommandKind::Databases(plan) => plan(args, limits, ops),
        CommandKind::Scan(from_key) | CommandKind::Keys(from_key) => match key {
            Ok(key) => (from_key.plan)(args, key, ops),
            Err(refusal) => Err(refusal.clone()),
        },
        kind => match kind.plan() {
            Some(plan) => plan(args, ops),
            None => return PlannedCommand::Local,
        },
    };
    let render = match planned {
        Ok(render) => render,
        Err(refusal) => {
            ops.truncate(first);
            return PlannedCommand::Refused(refusal);
        }
    };
    if database::needs_qualification(database, &ops[first..]) {
        let own: Ops<'a> = ops.drain(first..).collect();
        let keys = qualified.get_or_init(|| database::qualified_keys(database, &own));
        ops.extend(database::qualify(database, own, keys));
    }
    if let Some(unmet) = assumed
        && let Some(&Op::Require { key, present }) = ops.get(first + unmet)
    {
        ops.truncate(first);
        let present = !present;
        ops.push(Op::Require { key, present });
        return PlannedCommand::NotDone { first };
    }
    PlannedCommand::Planned {
        first,
        count: ops.len() - first,
        render,
    }
}
