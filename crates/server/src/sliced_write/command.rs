//! A command that writes very many keys.

use std::cell::OnceCell;

use base::{Abort, Op, Reply, database};
use resp::{Args, Span, Writer};
use store::SlicedTransaction;

use crate::command::{CommandDefinition, CommandKind, Ops};
use crate::command_call::CommandCall;
use crate::limits::SLICE_OPERATIONS;
use crate::partition::Worker;

/// See the module's description.
pub(crate) struct CommandWrite {
    command: &'static CommandDefinition,
    /// The database of its keys.
    database: u16,
    /// The request, as the client has sent it.
    bytes: Vec<u8>,
    /// The places of the arguments in it; none before it has the request.
    spans: Vec<Span>,
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

    /// Creates the write of a command, which has yet to get its request.
    pub(crate) fn new(command: &'static CommandDefinition, database: u16) -> CommandWrite {
        CommandWrite {
            command,
            database,
            bytes: Vec::new(),
            spans: Vec::new(),
            pass: Pass::Writes,
            next: 1,
            count: 0,
        }
    }

    pub(super) fn awaits_request(&self) -> bool {
        self.spans.is_empty()
    }

    /// Takes the request.
    pub(super) fn take_request(&mut self, bytes: Vec<u8>, spans: Vec<Span>) {
        (self.bytes, self.spans) = (bytes, spans);
    }

    /// Copies the arguments of the request.
    pub(crate) fn copy_request(&mut self, args: Args<'_>) {
        (self.bytes, self.spans) = CommandCall::new(self.command, args).into_request();
    }

    fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// Drops a part of the request after it is done. Returns `true` if nothing is left.
    pub(super) fn drop_some(&mut self) -> bool {
        match self.bytes.is_empty() {
            false => self.bytes = Vec::new(),
            true => self.spans = Vec::new(),
        }
        self.spans.is_empty()
    }

    pub(super) fn is_executed(&self) -> bool {
        self.next == self.spans.len()
    }

    /// Goes to its first operation. Returns the bytes that it brings, and the number of its writes.
    pub(super) fn begin(&mut self) -> (usize, usize) {
        self.pass = match self.command.kind {
            CommandKind::AllOrNothing(_) => Pass::Conditions,
            _ => Pass::Writes,
        };
        (self.next, self.count) = (1, 0);
        let count = self.spans.len();
        match self.command.name {
            "mset" | "msetnx" => (self.bytes.len(), count / 2),
            _ => (0, count - 1),
        }
    }

    pub(super) fn execute_slice(
        &mut self,
        sliced: &mut SlicedTransaction,
        worker: &mut Worker,
    ) -> Result<(), Abort> {
        let args = self.args();
        let end = args.len().min(self.next + SLICE_OPERATIONS);
        // The operations borrow from it, and so it is declared before them.
        let keys = OnceCell::new();
        let ops = self.operations(args.range(self.next - 1..end));
        let ops: Ops<'_> = match database::needs_qualification(self.database, &ops) {
            true => {
                let keys = keys.get_or_init(|| database::qualified_keys(self.database, &ops));
                database::qualify(self.database, ops, keys).collect()
            }
            false => ops,
        };
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
        let plan = self.command.kind.plan();
        let planned = plan.map(|plan| plan(args, &mut ops).is_ok());
        debug_assert_eq!(planned, Some(true), "no key lacks a value");
        let is_condition = |op: &Op<'_>| matches!(op, Op::Require { .. });
        ops.retain(|op| is_condition(op) == (self.pass == Pass::Conditions));
        ops
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match self.command.name {
            "mset" => writer.ok(),
            "msetnx" => writer.int(1),
            _ => writer.int(self.count),
        }
    }
}
