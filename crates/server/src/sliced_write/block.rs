//! A `MULTI` block of very many commands.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use base::{Abort, Op, Version, database};
use resp::{Protocol, Writer};
use store::SlicedTransaction;

use crate::command::{CommandKind, Ops};
use crate::command_call::CommandCall;
use crate::limits::SLICE_OPERATIONS;
use crate::lookup_counts::count_lookups;
use crate::partition::Worker;
use crate::render::RenderContext;
use crate::runtime_context::RuntimeContext;

/// See the module's description.
pub(crate) struct BlockWrite {
    calls: Vec<CommandCall>,
    /// The memory that these take, in bytes.
    calls_bytes: usize,
    /// The keys that must have these versions.
    watches: BTreeMap<Vec<u8>, Version>,
    /// The database of all commands.
    database: u16,
    protocol: Protocol,
    /// The next command; `None`: the watches are not checked yet.
    next: Option<usize>,
    /// The replies of the commands before, as RESP.
    replies: Vec<u8>,
}

impl BlockWrite {
    /// Returns `true` if all of these commands can run in slices: each has keys, and operations that depend on nothing
    /// else.
    pub(crate) fn serves(calls: &[CommandCall]) -> bool {
        let suits = |call: &CommandCall| {
            call.command.keys.first != 0 && matches!(call.command.kind, CommandKind::Store(_))
        };
        calls.iter().all(suits)
    }

    pub(crate) fn new(
        calls: Vec<CommandCall>,
        watches: BTreeMap<Vec<u8>, Version>,
        database: u16,
        protocol: Protocol,
    ) -> BlockWrite {
        BlockWrite {
            calls_bytes: calls.iter().map(CommandCall::size).sum(),
            calls,
            watches,
            database,
            protocol,
            next: None,
            replies: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.calls_bytes + self.replies.capacity()
    }

    pub(super) fn is_executed(&self) -> bool {
        self.next == Some(self.calls.len())
    }

    /// Goes to its first operation. Returns the bytes that it brings, and the number of its writes, about.
    pub(super) fn begin(&mut self) -> (usize, usize) {
        self.next = None;
        self.replies.clear();
        (0, self.calls.len())
    }

    pub(super) fn execute_slice(
        &mut self,
        sliced: &mut SlicedTransaction,
        worker: &mut Worker,
        context: &RuntimeContext,
    ) -> Result<(), Abort> {
        let Some(first) = self.next else {
            let watches = self.watches.iter();
            let checks = watches.map(|(key, &version)| Op::Check { key, version });
            let checks: Ops<'_> = checks.collect();
            worker.execute_slice(sliced, &checks, |_| {})?;
            self.next = Some(0);
            return Ok(());
        };
        // The operations borrow from it, and so it is declared before them.
        let keys = OnceCell::new();
        let (mut ops, mut planned) = (Ops::new(), Vec::new());
        for call in &self.calls[first..] {
            let (before, plan) = (ops.len(), call.command.kind.plan());
            let render = plan.map(|plan| plan(call.args(), &mut ops));
            if !matches!(render, Some(Ok(_))) {
                ops.truncate(before);
            }
            planned.push((call, render, before..ops.len()));
            if ops.len() >= SLICE_OPERATIONS {
                break;
            }
        }
        let keys = keys.get_or_init(|| database::qualified_keys(self.database, &ops));
        let ops: Ops<'_> = match database::needs_qualification(self.database, &ops) {
            true => database::qualify(self.database, ops, keys).collect(),
            false => ops,
        };
        let time_ms = sliced.observed().time_ms;
        worker.execute_slice(sliced, &ops, |replies| {
            for (call, render, own) in &planned {
                let (command, own) = (call.command, &replies[own.clone()]);
                let mut writer = Writer::new(&mut self.replies, self.protocol);
                match render {
                    Some(Ok(render)) => {
                        let around = RenderContext {
                            command: command.name,
                            cursors: &context.shared.cursors,
                            time_ms,
                        };
                        count_lookups(command, own, &context.lookups);
                        render.write(own, &around, &mut writer);
                    }
                    Some(Err(refusal)) => refusal.write(command.name, &mut writer),
                    None => unreachable!("it has a plan"),
                }
            }
        })?;
        let next = first + planned.len();
        drop(ops);
        self.next = Some(next);
        Ok(())
    }

    /// Returns the commands.
    pub(super) fn calls(&self) -> &[CommandCall] {
        &self.calls
    }

    /// Drops some of the commands after they are done. Returns `true` if none is left.
    pub(super) fn drop_some(&mut self, count: usize) -> bool {
        let left = self.calls.len().saturating_sub(count);
        self.calls.truncate(left);
        left == 0
    }

    pub(super) fn reply_bytes(&self) -> usize {
        self.replies.len()
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        writer.array(self.calls.len());
        writer.raw(&self.replies);
    }
}
