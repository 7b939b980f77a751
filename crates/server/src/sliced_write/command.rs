//! A command that writes very many keys.

use base::{Abort, Op, Reply};
use resp::{Args, Writer};
use store::SlicedTransaction;

use crate::command::{CommandKind, Ops};
use crate::command_call::CommandCall;
use crate::limits::SLICE_OPERATIONS;
use crate::partition::Worker;

/// See the module's description.
pub(crate) struct CommandWrite {
    /// The command; its keys are as they are stored.
    call: CommandCall,
    pass: Pass,
    /// The first argument of the next slice.
    next: usize,
    /// The sum of the numbers that its operations have answered.
    count: i64,
}

/// Which of the operations are executed: `MSETNX` checks all conditions before it writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Conditions,
    Writes,
}

impl CommandWrite {
    /// Returns `true` if a command can run in slices.
    pub(crate) fn serves(command: &str, args: Args<'_>) -> bool {
        match command {
            // Otherwise a key has no value.
            "mset" | "msetnx" => !args.len().is_multiple_of(2),
            "del" | "unlink" => true,
            _ => false,
        }
    }

    /// Creates the write of a command, whose keys are as they are stored.
    pub(crate) fn new(call: CommandCall) -> CommandWrite {
        CommandWrite {
            call,
            pass: Pass::Writes,
            next: 1,
            count: 0,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.call.size()
    }

    pub(super) fn is_executed(&self) -> bool {
        self.next == self.call.args().len()
    }

    /// Goes to its first operation. Returns the bytes that it brings, and the number of its writes.
    pub(super) fn begin(&mut self) -> (usize, usize) {
        self.pass = match self.call.command.kind {
            CommandKind::AllOrNothing(_) => Pass::Conditions,
            _ => Pass::Writes,
        };
        (self.next, self.count) = (1, 0);
        let args = self.call.args();
        match self.call.command.name {
            "mset" | "msetnx" => (args.total_bytes(), args.len() / 2),
            _ => (0, args.len() - 1),
        }
    }

    pub(super) fn execute_slice(
        &mut self,
        sliced: &mut SlicedTransaction,
        worker: &mut Worker,
    ) -> Result<(), Abort> {
        let args = self.call.args();
        let end = args.len().min(self.next + SLICE_OPERATIONS);
        let ops = self.operations(args.range(self.next - 1..end));
        let mut count = 0;
        worker.execute_slice(sliced, &ops, |replies| {
            let numbers = replies.iter().map(|reply| match reply {
                Reply::Int(number) => *number,
                _ => 0,
            });
            count = numbers.sum();
        })?;
        drop(ops);
        self.count += count;
        self.next = end;
        if self.is_executed() && self.pass == Pass::Conditions {
            (self.pass, self.next) = (Pass::Writes, 1);
        }
        Ok(())
    }

    /// Returns the operations of the pass for some of the arguments, behind one that is none of them.
    fn operations<'a>(&self, args: Args<'a>) -> Ops<'a> {
        let mut ops = Ops::new();
        let plan = self.call.command.kind.plan();
        let planned = plan.map(|plan| plan(args, &mut ops).is_ok());
        debug_assert_eq!(planned, Some(true), "no key lacks a value");
        let is_condition = |op: &Op<'_>| matches!(op, Op::Require { .. });
        ops.retain(|op| is_condition(op) == (self.pass == Pass::Conditions));
        ops
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match self.call.command.name {
            "mset" => writer.ok(),
            "msetnx" => writer.int(1),
            _ => writer.int(self.count),
        }
    }
}
