//! What a runtime executes commands with.

use std::time::Duration;

use base::{Epoch, Reply};

use crate::command::{CommandDefinition, CommandFlags};
use crate::command_table::CommandTable;
use crate::command_timing::CommandTiming;
use crate::connection::Connection;
use crate::coordination::RuntimeNode;
use crate::eviction_pace::EvictionPace;
use crate::limits::READ_BUFFER;
use crate::long_transaction::LongTransaction;
use crate::partition::Worker;
use crate::refusal;
use crate::runtime_context::RuntimeContext;
use crate::session::ClientSession;
use crate::sliced_write::SlicedWrite;

/// Runs commands for the connections of one runtime.
pub(crate) struct Executor {
    pub(crate) table: &'static CommandTable,
    pub(crate) worker: Worker,
    pub(crate) context: RuntimeContext,
    /// This runtime's part of the cluster, if the server is a node of one.
    pub(crate) cluster: Option<Box<RuntimeNode>>,
    /// A long transaction that has ended, kept for its memory.
    pub(crate) ended: Option<Box<LongTransaction>>,
    /// `true` if the input of the command that executes is the connection's own, and is given to a write of very
    /// many keys afterwards.
    pub(crate) gives_input: bool,
    /// Writes in slices whose connections have closed.
    pub(crate) closing_writes: Vec<SlicedWrite>,
    /// Finds commands that take long.
    pub(crate) timing: CommandTiming,
    pub(crate) eviction: EvictionPace,
}

impl Executor {
    /// Makes the reply that starts at `from` wait for `epoch`.
    #[inline]
    pub(super) fn hold_reply(&mut self, connection: &mut Connection, from: usize, epoch: Epoch) {
        if epoch <= self.context.durable {
            return;
        }
        let output = &mut connection.session.output;
        if self.context.failed.is_some() {
            output.truncate(from);
            let published = &mut connection.session.published;
            published.retain(|published| published.position < from);
            connection.writer().error(refusal::NEVER_DURABLE);
            return;
        }
        if self.context.can_lose {
            output.hold_alone(from, epoch, self.context.durable);
        } else {
            output.hold(from, epoch, self.context.durable);
        }
    }

    /// Closes a connection whose replies are refused by [`takes`].
    #[cold]
    pub(super) fn close_for_replies(&mut self, connection: &mut Connection) {
        let text = "closed: the replies to one command exceed what clients may leave untaken (--max-client-memory)";
        let client = connection.session.client.address;
        self.context.warn(client, text, text);
        connection.session.closing = true;
    }

    /// Returns the greatest age of the data that a command of the connection may read here, if it
    /// may read old data.
    #[inline]
    pub(super) fn staleness(
        &self,
        connection: &Connection,
        command: &CommandDefinition,
    ) -> Option<Duration> {
        let may = connection.session.reads_stale || reads_node(command);
        self.staleness_of_node().filter(|_| may)
    }

    /// Returns the greatest age of the node's keys when a command shows them.
    pub(super) fn staleness_of_node(&self) -> Option<Duration> {
        Some(self.context.shared.config.staleness)
    }
}

/// Returns `true` if a client may be sent these replies: they are not written, and take no memory yet.
#[inline]
pub(super) fn takes(
    context: &RuntimeContext,
    session: &ClientSession,
    replies: &[Reply<'_>],
) -> bool {
    // One value is no longer than values may be.
    replies.len() < 2 || takes_many(context, session, replies)
}

fn takes_many(context: &RuntimeContext, session: &ClientSession, replies: &[Reply<'_>]) -> bool {
    let length = |reply: &Reply<'_>| match reply {
        Reply::Bytes(value) => value.len(),
        Reply::Pairs(pairs) => pairs
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum(),
        _ => 0,
    };
    let bytes: usize = replies.iter().map(length).sum();
    let shared = &context.shared;
    let budget = &shared.in_flight;
    bytes <= READ_BUFFER
        || session.output.pending() + bytes <= shared.config.limits.output
            && bytes as u64 <= budget.limit().saturating_sub(budget.used())
}

/// Returns `true` if a command reads the keys of the node on which it runs, whichever these are.
#[inline]
fn reads_node(command: &CommandDefinition) -> bool {
    let flags = command.flags;
    command.keys.first == 0 && flags.has(CommandFlags::READ) && !flags.has(CommandFlags::ADMIN)
}
