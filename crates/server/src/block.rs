//! `MULTI` blocks: queued commands that execute as one transaction, and `WATCH`, its
//! precondition.
//!
//! | part | operations |
//! |---|---|
//! | each watched key | `Check` with the version seen |
//! | each command that touches the store | those of its plan |
//! | each other command | none; it answers in its place afterwards |
//!
//! Invariants:
//! 1. A block is one transaction: all its operations take effect at one point, or none.
//! 2. `EXEC` and `DISCARD` end the watches, whatever comes of them.
//! 3. A command that is all or nothing (`MSETNX`) must not abort the block when its preconditions
//!    are not met. Its outcome is assumed and the assumption is a precondition of the block:
//!    first that all are met; then, when the store names one that is not, the opposite of that
//!    one, in place of the command's operations. The block takes effect only with assumptions
//!    that hold at that point.

use base::{Abort, Epoch, Op, Reply};
use resp::{Args, Span, Writer};

use crate::command::{Command, Flags, Ops, Run};
use crate::commands::key::{keys_end, plan_keys, plan_scan, scan_position};
use crate::connection::Connection;
use crate::executor::Executor;
use crate::limits::Limits;
use crate::refusal::{self, Refusal};
use crate::render::{Render, Surroundings};

/// How often the assumptions of invariant 3 are revised, for each command that needs them.
const REVISIONS: usize = 16;

/// Commands queued for `EXEC`.
#[derive(Default)]
pub(crate) struct Block {
    commands: Vec<Queued>,
    bytes: usize,
    /// A command was refused, so that the block cannot execute.
    pub(crate) broken: bool,
    /// The last command went beyond the limits.
    pub(crate) broken_by_size: bool,
}

/// A command that waits for `EXEC`.
struct Queued {
    command: &'static Command,
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl Block {
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Queues a command, whose bytes are copied.
    pub(crate) fn queue(&mut self, command: &'static Command, args: Args<'_>, limits: &Limits) {
        let size = args.total_bytes() + args.len() * size_of::<Span>() + size_of::<Queued>();
        if self.bytes + size > limits.block_bytes || self.commands.len() >= limits.block_commands {
            self.broken = true;
            self.broken_by_size = true;
            return;
        }
        self.bytes += size;
        let mut bytes = Vec::with_capacity(args.total_bytes());
        let mut spans = Vec::with_capacity(args.len());
        for arg in args.iter() {
            spans.push(Span::new(bytes.len(), arg.len()));
            bytes.extend_from_slice(arg);
        }
        self.commands.push(Queued {
            command,
            bytes: bytes.into(),
            spans: spans.into(),
        });
    }

    fn needs_memory(&self) -> bool {
        self.commands
            .iter()
            .any(|queued| queued.command.flags.has(Flags::NEEDS_MEMORY))
    }
}

impl Queued {
    fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }
}

/// What became of one queued command when it was planned.
enum Part<'a> {
    /// It has the operations from `first` on, as many as `count`.
    Planned {
        first: usize,
        count: usize,
        render: Render<'a>,
    },
    /// Assumed not to happen: its answer is 0.
    NotDone {
        first: usize,
    },
    Refused(Refusal),
    Local,
}

/// What is assumed of a command that is all or nothing: the key that decides against it.
type Assumption<'a> = Option<Op<'a>>;

impl Executor {
    /// `WATCH`: remembers the keys' versions.
    pub(crate) fn watch(&mut self, connection: &mut Connection, args: Args<'_>) {
        if connection.block.is_some() {
            return connection
                .writer()
                .error("ERR WATCH inside MULTI is not allowed");
        }
        let watches = &connection.watches;
        let new = |key: &&[u8]| !watches.iter().any(|(watched, _)| watched == key);
        let keys: Vec<&[u8]> = args.from(1).iter().filter(new).collect();
        let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::Watch { key }).collect();
        match self.worker.execute(&ops) {
            Ok(done) => {
                for (key, reply) in keys.iter().zip(done.replies()) {
                    if let Reply::Version(version) = reply {
                        connection.watches.push((key.to_vec(), *version));
                    }
                }
            }
            Err(abort) => return refusal::abort(&abort, &mut connection.writer()),
        }
        // Nothing that was observed is shown, so there is nothing to wait for.
        connection.writer().ok();
    }

    /// `EXEC`: executes the block.
    pub(crate) fn exec(&mut self, connection: &mut Connection, command: &'static Command) {
        let Some(block) = connection.block.take() else {
            return connection.writer().error("ERR EXEC without MULTI");
        };
        connection.note_block();
        let watches = std::mem::take(&mut connection.watches);
        let mut writer = connection.writer();
        if block.broken {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return writer.error(text);
        }
        if block.needs_memory() && self.is_full(block.bytes) {
            let reason = refusal::OUT_OF_MEMORY;
            return writer.error(&format!(
                "EXECABORT Transaction discarded because of: {reason}"
            ));
        }
        let checks: Vec<Op<'_>> = watches
            .iter()
            .map(|(key, version)| Op::Check {
                key,
                version: *version,
            })
            .collect();
        self.exec_block(connection, command, &block, &checks);
    }

    fn exec_block(
        &mut self,
        connection: &mut Connection,
        command: &'static Command,
        block: &Block,
        checks: &[Op<'_>],
    ) {
        let positions: Vec<_> = block
            .commands
            .iter()
            .map(|queued| match queued.command.run {
                Run::Scan => scan_position(queued.args(), &self.context.shared.cursors),
                Run::Keys => Ok(keys_end(queued.args())),
                _ => Ok([].into()),
            })
            .collect();
        let mut assumed: Vec<Assumption<'_>> = vec![None; block.len()];
        let conditional = |queued: &&Queued| matches!(queued.command.run, Run::AllOrNothing(_));
        let revisions = REVISIONS * block.commands.iter().filter(conditional).count();
        for _ in 0..=revisions {
            let mut ops: Ops<'_> = checks.iter().cloned().collect();
            let parts: Vec<Part<'_>> = block
                .commands
                .iter()
                .zip(&positions)
                .zip(&assumed)
                .map(|((queued, position), assumed)| plan(queued, position, assumed, &mut ops))
                .collect();
            match self.attempt(connection, block, &ops, &parts) {
                Attempt::Done => return,
                Attempt::Aborted(Abort::Precondition { op }) if op >= checks.len() => {
                    let Some(at) = parts
                        .iter()
                        .rposition(|part| part.first_op() <= Some(op) && part.first_op().is_some())
                    else {
                        break;
                    };
                    assumed[at] = match (&assumed[at], &ops[op]) {
                        (None, &Op::Require { key, present }) => Some(Op::Require {
                            key,
                            present: !present,
                        }),
                        _ => None,
                    };
                }
                Attempt::Aborted(abort) => return self.aborted(connection, &abort),
            }
        }
        let abort = Abort::Conflict {
            attempts: revisions as u32 + 1,
        };
        debug_assert_eq!(command.name, "exec", "only EXEC executes blocks");
        self.aborted(connection, &abort);
    }

    /// Answers a block that did not take effect.
    fn aborted(&mut self, connection: &mut Connection, abort: &Abort) {
        let from = connection.output.position();
        let mut writer = connection.writer();
        if let Abort::Precondition { .. } = abort {
            writer.null_array();
            let epoch = self.worker.observed().epoch;
            return self.finish(connection, from, epoch);
        }
        refusal::abort(abort, &mut writer);
    }

    /// Executes the operations, and if they took effect answers the block.
    fn attempt(
        &mut self,
        connection: &mut Connection,
        block: &Block,
        ops: &[Op<'_>],
        parts: &[Part<'_>],
    ) -> Attempt {
        let from = connection.output.position();
        let done = match self.worker.execute(ops) {
            Ok(done) => done,
            Err(abort) => return Attempt::Aborted(abort),
        };
        let observed = done.observed();
        connection.writer().array(parts.len());
        for (queued, part) in block.commands.iter().zip(parts) {
            let command = queued.command;
            let mut writer = Writer::new(connection.output.buffer(), connection.protocol);
            match part {
                Part::Planned {
                    first,
                    count,
                    render,
                } => {
                    let cursors = &self.context.shared.cursors;
                    let around = Surroundings {
                        command,
                        cursors,
                        time_ms: observed.time_ms,
                    };
                    render.write(&done.replies()[*first..first + count], &around, &mut writer);
                }
                Part::NotDone { .. } => writer.int(0),
                Part::Refused(refusal) => refusal.write(command, &mut writer),
                Part::Local => {
                    if let Run::Local(local) = command.run {
                        self.context.in_block = true;
                        local(&mut self.context, connection, queued.args());
                        self.context.in_block = false;
                    } else if let Run::Unwatch = command.run {
                        // The watches have ended with EXEC.
                        writer.ok();
                    } else {
                        refusal::arity(command, &mut writer);
                    }
                }
            }
        }
        drop(done);
        let epoch = if ops.is_empty() {
            Epoch::ZERO
        } else {
            observed.epoch
        };
        self.finish(connection, from, epoch);
        Attempt::Done
    }
}

enum Attempt {
    Done,
    Aborted(Abort),
}

impl Part<'_> {
    fn first_op(&self) -> Option<usize> {
        match self {
            Part::Planned { first, .. } | Part::NotDone { first } => Some(*first),
            Part::Refused(_) | Part::Local => None,
        }
    }
}

/// Adds the operations of one queued command to those of the block.
fn plan<'a>(
    queued: &'a Queued,
    position: &'a Result<std::sync::Arc<[u8]>, Refusal>,
    assumed: &Assumption<'a>,
    ops: &mut Ops<'a>,
) -> Part<'a> {
    let args = queued.args();
    let first = ops.len();
    if let Some(condition) = assumed {
        ops.push(condition.clone());
        return Part::NotDone { first };
    }
    let planned = match (queued.command.run, position) {
        (Run::Store(plan) | Run::AllOrNothing(plan), _) => plan(args, ops),
        (Run::Scan, Ok(position)) => plan_scan(args, position, ops),
        (Run::Scan | Run::Keys, Err(refusal)) => Err(refusal.clone()),
        (Run::Keys, Ok(end)) => plan_keys(args, end, ops),
        _ => return Part::Local,
    };
    match planned {
        Ok(render) => Part::Planned {
            first,
            count: ops.len() - first,
            render,
        },
        Err(refusal) => {
            ops.truncate(first);
            Part::Refused(refusal)
        }
    }
}
